"""Completion scripts in real shells, on a table of every kind of word, and on the real tables."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from console.cli.options.completion import SHELLS, main, script
from console.cli.options.parser import Word, parse
from console.cli.options.tables import COMMANDS, Table, spellings, table_of
from console.errors import UsageError

WORDS = (
    Word("sz", "int", "how many [ranks]: it's a number", "size", "n", "N", True),
    Word("list", "text", "which", metavar="L", original=True),
    Word("label", "flag", "names"),
    Word("distribution", "block|cyclic", "how"),
    Word("file", "text", "where \\ to", metavar="FILE", original=True),
    Word("stage", "texts", "dirs", metavar="DIR"),
    Word("quiet", "flag", "say nothing", original=True),
)
RUN = Table("run", "run [options] program [arguments]", "Runs.", WORDS)
SHOW = Table("show", "show [options]", "Shows.", WORDS)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "folder").mkdir()
    (tmp_path / "bin").mkdir()
    for name in ("input file.txt", "input2"):
        (tmp_path / name).write_text("")
    tool = tmp_path / "bin" / "zz-our-tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bash(here: Path, table: Table, *words: str) -> list[str]:
    """What bash offers for the last of ``words``, cut as bash cuts a line (at blanks and =)."""
    (here / "script").write_text(script("bash", table))
    quoted = " ".join("'" + word + "'" for word in words)
    code = (
        f"PATH={here}/bin; source {here}/script; COMP_WORDS=({quoted}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))\n"
        f"_redmesh_{table.command} 2>&1; (( ${{#COMPREPLY[@]}} )) && printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    out = subprocess.run(["/bin/bash", "--norc", "-c", code], capture_output=True, text=True, cwd=here, check=False)
    assert out.stderr == ""
    return sorted(out.stdout.splitlines())


@pytest.mark.parametrize(
    ("words", "offers"),
    [
        (["--"], ["--distribution", "--file", "--label", "--list", "--quiet", "--size", "--stage"]),
        (["-l"], ["-label", "-list"]),
        (["-quiet", "--l"], ["--label", "--list"]),
        (["-distribution", ""], ["block", "cyclic"]),
        (["-di", "c"], ["cyclic"]),
        (["--distribution", "=", "b"], ["block"]),
        (["--distribution", "="], ["block", "cyclic"]),
        (["-sz", "4", "--dis", "=", "block", "-q"], ["-quiet"]),
        (["-f", "in"], ["input file.txt", "input2"]),
        (["-stage", "f"], ["folder"]),
        (["-l", "-q"], []),  # the value of -list: nothing that we know
        (["-n", "4", "zz-o"], ["zz-our-tool"]),
        (["--", "zz-o"], ["zz-our-tool"]),
        (["zz-our-tool", "in"], ["input file.txt", "input2"]),
        (["zz-our-tool", "-q"], []),  # the program's own options are not ours
    ],
)
def test_bash_where_a_program_follows(here: Path, words: list[str], offers: list[str]) -> None:
    assert bash(here, RUN, "run", *words) == offers


def test_values_of_which_some_are_known(here: Path) -> None:
    yod = table_of("yod")
    places = ["after-exec", "after-fork", "before-exec", "before-go"]
    for words, offers in (
        (["-sleep", ""], places),
        (["--sleep", "=", "after"], places[:2]),
        (["-d", "ph"], ["phase1", "phase2"]),
        (["-si", "US"], ["USR1", "USR2"]),
        (["-input", ""], ["all", "none", "shared"]),
        (["-cpu-bind", "c"], ["core"]),
    ):
        assert bash(here, yod, "yod", *words) == offers


def test_bash_where_none_follows(here: Path) -> None:
    assert bash(here, SHOW, "show", "-q") == ["-quiet"]
    assert bash(here, SHOW, "show", "in") == [] and bash(here, SHOW, "show", "4", "in") == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_word_of_the_real_tables_is_offered(here: Path, command: str) -> None:
    table = table_of(command)
    offered = bash(here, table, command, "-")
    assert {f"--{word.long}" for word in table.words} <= set(offered)
    for form in offered:  # and what is offered is taken
        word = next(word for word in table.words if form in (f"-{word.name}", f"--{word.long}"))
        assert form in spellings(table, word)


def test_a_spelling_is_what_the_parser_takes() -> None:
    for word in WORDS:
        for form in spellings(RUN, word):
            value = {"flag": [], "int": ["3"], "block|cyclic": ["block"]}.get(word.kind, ["x"])
            assert list(parse(WORDS, [form, *value], stop=True).values) == [word.name]
    assert spellings(RUN, WORDS[0])[:2] == ["-n", "-s"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("shell", SHELLS)
def test_shells_can_read_their_scripts(tmp_path: Path, shell: str, command: str) -> None:
    program = shutil.which(shell)
    text = script(shell, table_of(command))
    assert command in text
    if not program:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(text)
    checked = subprocess.run([program, "-n", tmp_path / "script"], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_offers_words_values_and_programs(here: Path) -> None:
    (here / "script").write_text(script("fish", RUN))

    def offers(line: str) -> set[str]:
        code = f"source {here}/script; complete -C '{line}'"
        out = subprocess.run(
            ["fish", "-c", code], capture_output=True, text=True, check=True,
            env={**os.environ, "HOME": str(here), "PATH": f"{here}/bin:{os.environ['PATH']}"},
        ).stdout  # fmt: skip
        return {row.partition("\t")[0] for row in out.splitlines()}

    assert {"-list", "--list"} <= offers("run -l") | offers("run --l")
    assert offers("run --distribution ") == offers("run -distribution ") == {"block", "cyclic"}
    assert "zz-our-tool" in offers("run -sz 4 zz-o")
    assert "zz-our-tool" in offers("run -- zz-o") and "zz-our-tool" in offers("run --label -l 0..3 zz-o")
    assert "input2" in offers("run -file inp")
    assert "--label" not in offers("run zz-our-tool --l")


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bash", "yod"]) == 0
    assert "complete -F _redmesh_yod yod" in capsys.readouterr().out
    for wrong in ([], ["csh", "yod"], ["bash", "rm"]):
        assert main(wrong) == 2
    with pytest.raises(UsageError):
        script("csh", RUN)

"""The program is found, or why it cannot run is said, before anything starts; and yod's words keep their prefixes."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from console.cli.options.parser import parse
from console.cli.yod.command import WORDS, main, request_of
from console.errors import ConsoleError, UsageError
from console.launch.options.program import find


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    def make(name: str, content: bytes, mode: int) -> None:
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(mode)

    make("script", b"#!/bin/sh\nexit 0\n", 0o755)
    make("badscript", b"#!/no/such/interpreter -x\n", 0o755)
    make("dosscript", b"#!/bin/sh\r\nexit 0\r\n", 0o755)
    make("nobodyscript", b"#!\n", 0o755)
    make("dirscript", b"#!/etc\n", 0o755)
    make("load", b"-sz 4 hostname\n-sz 2 date\n", 0o644)
    make("loadx", b"-sz 4 hostname\n", 0o755)
    make("data", b"\0\1\2", 0o644)
    make("empty", b"", 0o755)
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to("/no/such/file")
    os.mkfifo(tmp_path / "fifo")
    return tmp_path


def test_a_program_that_is_not_found_names_the_directory(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bin_dir)
    for name, folder in (("./nosuch", bin_dir), ("folder/nosuch", bin_dir / "folder"), ("../nosuch", bin_dir.parent)):
        with pytest.raises(ConsoleError) as caught:
            find(name, {})
        assert caught.value.message == f"{name}: no such file in {folder}"
    with pytest.raises(ConsoleError) as caught:
        find("nosuch", {b"PATH": b"/bin"})
    assert caught.value.message == f"nosuch: no such program in PATH or in the current directory, {bin_dir}"


@pytest.mark.parametrize(
    ("name", "status", "text"),
    [
        ("missing", 127, "no such file"),
        ("dangling", 127, "no such file"),
        ("script/x", 127, "is not a directory"),
        ("folder", 126, "is a directory"),
        ("fifo", 126, "not a regular file"),
        ("data", 126, "is not executable"),
        ("load", 126, "looks like a load file"),
        ("loadx", 126, "looks like a load file"),
        ("empty", 126, "is empty"),
        ("badscript", 127, "/no/such/interpreter does not exist"),
        ("dosscript", 127, "does not exist"),
        ("nobodyscript", 126, "names no interpreter"),
        ("dirscript", 126, "is not executable"),
    ],
)
def test_why_it_cannot_run(bin_dir: Path, name: str, status: int, text: str) -> None:
    with pytest.raises(ConsoleError) as caught:
        find(str(bin_dir / name), {})
    assert caught.value.exit_status == status
    assert text in caught.value.message


def test_it_is_found_as_execvp_finds_it(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = {b"PATH": b"/nowhere:" + os.fsencode(bin_dir)}
    assert find("script", path) == os.fsencode(bin_dir / "script")
    assert find("sh", {}) == b"/bin/sh"
    monkeypatch.chdir(bin_dir)
    assert os.path.samefile(find("./script", {}), bin_dir / "script")
    assert os.path.samefile(find("script", {b"PATH": b""}), bin_dir / "script"), "an empty place means here"
    assert os.path.samefile(find("script", {b"PATH": b"/nowhere"}), bin_dir / "script"), "the original looks here too"
    with pytest.raises(ConsoleError) as caught:
        find("nosuch", {b"PATH": b"/nowhere"})
    assert caught.value.exit_status == 127
    with pytest.raises(ConsoleError) as caught:
        find("folder", path)
    assert caught.value.exit_status == 126
    with pytest.raises(ConsoleError) as caught:
        find("", path)
    assert caught.value.exit_status == 127


def test_escape_sequences_in_a_name_do_not_reach_the_terminal() -> None:
    with pytest.raises(ConsoleError) as caught:
        find("/tmp/\x1b]0;x\x07", {})
    assert "\x1b" not in caught.value.message


#: Prefixes as the original had them, with all of its words; issue 3 §1.
PREFIXES = {
    "l": "list", "q": "quiet", "t": "timing", "sz": "sz", "D": "D", "d": "d", "k": "kill", "i": "interactive",
    "h": "help", "v": "vhelp", "L": "Log", "f": "file", "al": "alloc", "at": "attach", "ba": "batch", "bt": "bt",
    "g": "g", "N": "N", "NO": "NOBUF", "sl": "sleep", "sh": "show", "ni": None, "nic": "nice", "nid": "nid",
    "p": "pid", "b": None, "s": None, "str": None, "straceo": "straceoptions", "n": "sz", "c": "cpus-per-task",
    "w": "list", "x": "exclude", "o": "output", "ov": "overcommit", "de": "detach", "dis": "distribution",
    "np": "sz", "ntasks": "sz", "ppn": "tasks-per-node", "machinefile": "hostfile",
    "si": "signal", "la": "label", "verb": "verbose", "j": "json",
}  # fmt: skip


@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_prefix_is_its_option_or_ambiguous(prefix: str) -> None:
    arguments = [f"-{prefix}", "1"]
    if PREFIXES[prefix] is None:
        with pytest.raises(UsageError) as caught:
            parse(WORDS, arguments, stop=True)
        assert "may be" in caught.value.message
        return
    values: list[str] = []
    for value in ("1", "block"):
        try:
            values = list(parse(WORDS, [f"-{prefix}", value], stop=True).values)
            break
        except UsageError:
            continue
    assert values == [PREFIXES[prefix]]


def test_every_word_has_a_long_twin_of_its_own() -> None:
    longs = [word.long for word in WORDS]
    assert len(set(longs)) == len(longs)
    assert parse(WORDS, ["--attach", "7"], stop=True).values == {"reattach": 7}


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        ([], 2, "no program"),
        (["-sz", "0", "true"], 2, "at least 1"),
        (["-sz", "x", "true"], 2, "whole number"),
        (["-sz"], 2, "needs a value"),
        (["--attach", "x"], 2, "--attach takes a whole number"),
        (["--attach"], 2, "--attach needs a value"),
        (["--label=1", "true"], 2, "--label takes no value"),
        (["-zz", "true"], 2, "no option is called -zz"),
        (["-ntask", "2", "true"], 2, "no option is called -ntask (did you mean -ntasks?)"),
        (["-immediate", "-wait-for-nodes", "3", "true"], 2, "exclude each other"),
        (["-tasks-per-node", "2", "true"], 2, "how many"),
        (["-nodes", "0", "true"], 2, "at least 1"),
        (["-nodes", "4", "-sz", "3", "true"], 2, "cannot reach"),
        (["-nodes", "2", "-tasks-per-node", "2", "-sz", "5", "true"], 2, "more than 2"),
        (["-gpus-per-task", "1", "-overcommit", "true"], 2, "exclude each other"),
        (["-umask", "9", "true"], 2, "octal"),
        (["-export", "A=1,,B", "true"], 2, "two commas"),
        (["-exclude", "3..", "true"], 2, "runs backwards or has no end"),
        (["-hostfile", "/no/such/file", "true"], 2, "cannot be read"),
        (["-N", "4", "true"], 2, "takes no number"),
        (["-list", "3..", "true"], 2, "runs backwards or has no end"),
        (["-list", "1,,2", "true"], 2, "two commas"),
        (["-batch", "-interactive", "true"], 2, "exclude each other"),
        (["-input", "some", "true"], 2, "-input takes"),
        (["-sz", "2", "-input", "2", "true"], 2, "no such rank"),
        (["/no/such/program"], 127, "no such file"),
        (["nosuchprogramanywhere"], 127, "no such program in PATH"),
        (["/tmp"], 126, "is a directory"),
        (["--config", "/no/such/file", "true"], 2, "/no/such/file"),
        (["-signal", "TERM"], 2, "a launcher's id"),
        (["-signal", "NOPE", "7"], 2, "no signal is called"),
        (["--attach", "7", "true"], 2, "no program"),
        (["-attach", "7"], 127, "to follow launcher 7: yod --attach 7"),
    ],
)
def test_bad_command_lines(arguments: list[str], status: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == status
    said = capsys.readouterr()
    assert text in said.err
    assert said.err.startswith("yod: ") and said.err.count("\n") == 1
    assert said.out == ""


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help-all"]) == 0
    text = capsys.readouterr().out
    assert all(f"--{word.long}" in text for word in WORDS)
    assert main(["-help"]) == 1, "as in the original"
    assert main(["-v"]) == 1
    capsys.readouterr()
    assert main(["-version"]) == 0
    assert capsys.readouterr().out == f"yod (Redmesh) {metadata.version('redmesh')}\n"


def test_a_batch_jobs_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDMESH_PARTITION", "6")
    monkeypatch.setenv("REDMESH_ALLOCATION_COOKIE", "fedcba9876543210")
    allocation = request_of({"sz": 2}, ["true"], 32).allocation("0" * 32, "login1", 1, 2)
    assert (allocation["partition"], allocation["cookie"]) == (6, "fedcba9876543210")
    monkeypatch.setenv("REDMESH_PARTITION", "x")
    with pytest.raises(UsageError):
        request_of({"sz": 2}, ["true"], 32)


def test_the_default_size_is_one_or_the_list() -> None:
    assert request_of({}, ["true"], 32).where.size == 1
    assert request_of({"list": "0..3"}, ["true"], 32).where.size is None
    assert request_of({"list": "0..3", "sz": 2}, ["true"], 32).where.size == 2


HEAVY = (
    "textual rich peewee pymysql paramiko cryptography asyncio argparse dataclasses logging subprocess tempfile"
    " uuid random tomllib typing contextlib ssl socket signal json enum re functools collections selectors heapq"
)


@pytest.mark.parametrize("what", ["--help", "--version", "launch"])
def test_yod_loads_nothing_heavy(what: str) -> None:
    load = (
        f"main(['{what}'])" if what.startswith("--") else "import console.launch.engine, console.launch.stdio.frontend"
    )
    code = f"import sys; from console.cli.yod.command import main; {load}; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert loaded & set(HEAVY.split()) == set()
    assert "console.launch.attach.server" not in loaded


def test_the_installed_command_loads_nothing_heavy_either() -> None:
    command = Path(sys.executable).with_name("yod")  # what pip writes for an entry point imports re
    done = subprocess.run(
        [sys.executable, "-X", "importtime", command, "--help"], capture_output=True, text=True, check=True
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "console.cli.yod.command" in loaded
    assert loaded & set(HEAVY.split()) == set()

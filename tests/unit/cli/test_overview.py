"""The pages of ``mesh``, ``mesh help`` and ``yod --help`` are short, and lead to everything."""

import argparse

import pytest

from console.cli.mesh.command import main, parser
from console.cli.mesh.overview import GROUPS, LINES, WIDTH, overview, page
from console.cli.mesh.subcommands import subcommands_of
from console.cli.yod import command as yod
from console.cli.yod.arguments import FEW, WORDS


@pytest.fixture(scope="module")
def top() -> argparse.ArgumentParser:
    return parser()


def test_each_command_is_in_one_group(top: argparse.ArgumentParser) -> None:
    named = [name for _, few, others in GROUPS for name in (*few, *others)]
    assert sorted(named) == sorted(name for name, _, _ in subcommands_of(top)) and len(GROUPS) == 6


def test_pages_are_short(top: argparse.ArgumentParser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    pages = {"": overview(top)}
    for name, _, below in subcommands_of(top):
        pages[name] = page(top, [name])
        pages.update({f"{name} {inner}": page(top, [name, inner]) for inner, _, _ in subcommands_of(below)})
    for words, text in pages.items():
        lines = text.split("\n")
        assert len(lines) <= LINES and max(map(len, lines)) <= WIDTH, words


@pytest.mark.parametrize(
    ("words", "status"),
    [([], 2), (["help"], 0), (["-h"], 0), (["--help"], 0), (["help", "job", "move"], 0), (["help", "--all"], 0)],
)
def test_help_is_printed(words: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == status
    out, err = capsys.readouterr()[:: -1 if status else 1]
    assert out.startswith("usage: mesh ") and err == ""
    assert ("unreserve" in out) == ("--all" in words)


@pytest.mark.parametrize("word", ["version", "-v", "-V", "--version"])
def test_the_version_is_printed(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        assert main([word]) == 0
    except SystemExit as end:  # argparse's own end
        assert not end.code
    assert capsys.readouterr().out.startswith("mesh (Redmesh) ")


def test_an_unknown_option_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--bogus"]) == 2
    assert "mesh has no option --bogus" in capsys.readouterr().err


def test_help_about_what_is_no_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "job", "mvoe"]) == 2
    assert "mesh job has no command 'mvoe' (mesh help job lists" in capsys.readouterr().err


def test_yods_page_has_fifteen_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert yod.main(["--help"]) == 0
    few = capsys.readouterr().out
    assert yod.main(["-h"]) == 0 and capsys.readouterr().out == few
    assert yod.main(["--help-all"]) == 0
    assert len(capsys.readouterr().out) > 4 * len(few)
    options = [line for line in few.splitlines() if line.startswith("  -")]
    assert len(options) == len(FEW) == 15 and few.count("\n") <= LINES
    assert {word.name for word in WORDS} >= set(FEW)

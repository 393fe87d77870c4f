"""The pages of showmesh and pingd show the help that the command prints."""

import subprocess
import sys
from pathlib import Path

import pytest

from console.cli import showmesh
from console.cli.pingd import command
from console.cli.pingd.arguments import EXTRA

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize(
    ("name", "main", "word"), [("showmesh", showmesh.main, "--help"), ("pingd", command.main, "--xtrahelp")]
)
def test_the_page_has_the_help(name: str, main: object, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 0  # type: ignore[operator]
    assert capsys.readouterr().out.removesuffix(EXTRA) in (DOCS / f"{name}.md").read_text()


def test_what_pingd_refuses_is_not_in_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["-help"]) == 0
    assert "efused" not in capsys.readouterr().out


@pytest.mark.parametrize(("name", "main"), [("showmesh", showmesh.main), ("pingd", command.main)])
@pytest.mark.parametrize("words", [["--jsn"], ["-list", "a", "b"], ["--every"], ["--every", "x"], ["-w=3"]])
def test_a_wrong_command_line_is_one_line_and_status_2(
    name: str, main: object, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2  # type: ignore[operator]
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"{name}: ") and err.count("\n") == 1


@pytest.mark.parametrize("command", ["yod", "mesh", "pingd", "showmesh"])
def test_a_command_without_redmesh_says_so_in_one_line(command: str) -> None:
    script = Path(__file__).parents[3] / "bin" / command
    done = subprocess.run([sys.executable, "-I", "-S", script, "-sz", "1", "true"], capture_output=True, text=True)
    assert done.returncode == 125 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"{command}: Redmesh is not installed for {sys.executable} (")

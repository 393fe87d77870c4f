"""The pages of showmesh and pingd show the help that the command prints."""

from pathlib import Path

import pytest

from console.cli import showmesh
from console.cli.pingd import command

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize(("name", "main"), [("showmesh", showmesh.main), ("pingd", command.main)])
def test_the_page_has_the_help(name: str, main: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0  # type: ignore[operator]
    assert capsys.readouterr().out in (DOCS / f"{name}.md").read_text()


@pytest.mark.parametrize(("name", "main"), [("showmesh", showmesh.main), ("pingd", command.main)])
@pytest.mark.parametrize("words", [["--jsn"], ["-list", "a", "b"], ["--every"], ["--every", "x"], ["-w=3"]])
def test_a_wrong_command_line_is_one_line_and_status_2(
    name: str, main: object, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2  # type: ignore[operator]
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"{name}: ") and err.count("\n") == 1

"""Pages and tables say the same; what a page says about a word is what the parser does with it."""

import re
from pathlib import Path

import pytest

from console.cli.options.pages import BEGIN, END, main, updated
from console.cli.options.parser import Word, help_text, parse
from console.cli.options.tables import COMMANDS, Table, table_of
from console.errors import UsageError

DOCS = Path(__file__).parents[3] / "docs"
WORDS = (
    Word("sz", "int", "how many", "size", "n", "N", True),
    Word("list", "text", "which <ids>", metavar="L", original=True),
    Word("mode", "a|b", "a or b", group="Other"),
)
RUN = Table("run", "run [options] program", "Runs.", WORDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_page_is_as_new_as_its_table(command: str) -> None:
    page = (DOCS / f"{command}.md").read_text()
    assert updated(page, table_of(command)) == page, "python -m console.cli.options.pages docs writes it anew"


def test_the_words_of_a_page_are_what_the_parser_takes() -> None:
    page = updated(f"# run\n{BEGIN}{END}after\n", RUN)
    rows = re.findall(r"^\| `-(\S+?)(?: .*?)?` \| `(\S+)` \| `(\S+)` \|", page, re.M)
    assert [name for name, _, _ in rows] == ["sz", "list", "mode"]
    for name, shortest, twin in rows:
        for form in ("-" + name, shortest, twin):
            assert list(parse(WORDS, [form, "a" if name == "mode" else "1"], stop=True).values) == [name]
        if len(shortest) > 2:
            with pytest.raises(UsageError):
                parse(WORDS, [shortest[:-1], "1"], stop=True)
    assert "### Options" in page and "### Other" in page and "which &lt;ids>" in page and page.endswith("after\n")
    assert "`-mode A\\|B`" in page
    assert updated(page, RUN) == page


def test_the_help_in_a_page_is_the_help() -> None:
    page = updated("# run\n\n```\nusage: run of old\n```\nafter\n", RUN)
    assert page == f"# run\n\n```\n{help_text(RUN.usage, RUN.about, WORDS)}```\nafter\n"
    assert updated(page, RUN) == page


def test_a_page_that_nothing_holds_to_its_table_is_refused() -> None:
    with pytest.raises(ValueError, match="neither"):
        updated("# run\n", RUN)


def test_writing_them_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        (tmp_path / f"{command}.md").write_text(f"{BEGIN}{END}")
    assert main([str(tmp_path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(COMMANDS)
    assert main([str(tmp_path)]) == 0 and capsys.readouterr().out == ""
    assert "`--size`" in (tmp_path / "yod.md").read_text()

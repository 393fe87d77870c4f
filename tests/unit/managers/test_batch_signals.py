"""Signals of a batch system: the table, the page, and the programs that travel as text."""

from pathlib import Path

from agents.linux.batch_signals import PASSED, ROWS, TRAPPED
from agents.pct.ranks import starter as rank_starter
from console.deploy.managed import steps

PAGE = Path(__file__).parents[3] / "docs" / "managers.md"


def test_the_page_has_the_rows_of_the_table() -> None:
    lines = [f"| `{row.name}` | {row.ranks} | {row.daemons} | {row.yod} |" for row in ROWS]
    assert "\n".join(lines) in PAGE.read_text()


def test_programs_that_travel_as_text_have_the_same_signals() -> None:
    text = (Path(__file__).parents[3] / "console/deploy/managed/starter.py").read_text()
    assert f"\n_FORWARDED = {tuple(sorted(PASSED))}\n" in text
    assert set(rank_starter.FORWARDED) == {row.number for row in ROWS}
    assert len(TRAPPED.split()) == len(ROWS)
    # what the shell's trap ignores gets a handler, or ranks of a mesh that is not the job's own would ignore it
    assert f"for n in {tuple(row.number for row in ROWS)}]" in steps._FIRST

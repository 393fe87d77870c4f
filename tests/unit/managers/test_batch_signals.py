"""Signals of a batch system: the table, the page, and the two copies of a signal."""

from pathlib import Path

from agents.linux.batch_signals import HOLD_S, ONLY_ONCE, PASSED, ROWS, SAME_S, TRAPPED, Copies
from agents.pct.ranks import starter as rank_starter

PAGE = Path(__file__).parents[3] / "docs" / "managers.md"
USR1, INT = 10, 2


def test_the_page_has_the_rows_of_the_table() -> None:
    lines = [f"| `{row.name}` | {row.ranks} | {row.daemons} | {row.yod} |" for row in ROWS]
    assert "\n".join(lines) in PAGE.read_text()


def test_programs_that_travel_as_text_have_the_same_signals() -> None:
    text = (Path(__file__).parents[3] / "console/deploy/managed/starter.py").read_text()
    assert f"\n_FORWARDED = {tuple(sorted(PASSED))}\n" in text
    assert set(rank_starter.FORWARDED) == {row.number for row in ROWS}
    assert len(TRAPPED.split()) == len(ROWS)


def test_the_manager_s_copy_drops_yod_s_before_and_after_it() -> None:
    copies = Copies()
    assert copies.from_manager(USR1, 100.0)
    assert copies.from_yod(USR1, 100.5) is None, "the second copy"
    assert copies.from_yod(USR1, 100.0 + SAME_S) == HOLD_S, "another signal"
    assert copies.from_manager(USR1, 100.3 + SAME_S)
    assert not copies.is_due(USR1, 101.0 + SAME_S), "the manager's came while it was held"


def test_yod_s_copy_is_delivered_if_it_is_the_only_one_and_a_late_one_of_the_manager_is_the_second() -> None:
    copies = Copies()
    assert copies.from_yod(USR1, 100.0) == HOLD_S
    assert copies.is_due(USR1, 100.0 + HOLD_S)
    assert not copies.from_manager(USR1, 102.0)
    assert copies.from_manager(USR1, 101.0 + 2 * SAME_S)


def test_a_signal_that_may_come_twice_is_not_held() -> None:
    assert INT not in ONLY_ONCE
    copies = Copies()
    assert copies.from_yod(INT, 100.0) == 0.0 and copies.is_due(INT, 100.0)

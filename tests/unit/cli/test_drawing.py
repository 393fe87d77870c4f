"""The map as text: letters, layout at any width, legend, tables."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.cli.map.drawing import GLYPHS, LETTERS, Cell, Group, cut, draw, elapsed, legend, letters, table

FREE = Cell("free", None)


def nodes(count: int, cells: int) -> list[Group]:
    return [Group(f"n{index}", [FREE] * cells) for index in range(count)]


def test_the_alphabet_is_small_then_large_then_digits() -> None:
    assert LETTERS[0] == "a" and LETTERS[26] == "A" and LETTERS[52] == "0" and len(set(LETTERS)) == 62


def test_every_state_of_a_processor_has_its_own_glyph() -> None:
    assert list(GLYPHS) == ["free", "pending", "busy", "stale", "down", "drained", "reserved"]
    marks = [glyph for state, glyph in GLYPHS.items() if state != "busy"]
    assert len(set(marks)) == 6 and not set(marks) & set(LETTERS)


@given(st.sets(st.integers(1, 1 << 40), max_size=200))
def test_every_launcher_has_a_letter_of_its_own_and_all_are_as_wide(ids: set[int]) -> None:
    got = letters(ids)
    assert set(got) == ids and len(set(got.values())) == len(ids)
    assert len({len(word) for word in got.values()}) <= 1
    assert all(len(word) == (1 if len(ids) <= 62 else 2) for word in got.values())


def test_a_letter_stays_while_others_come_and_go() -> None:
    assert letters([1, 2, 3])[3] == letters([3, 4, 9])[3] == "c"
    assert letters([1, 63]) == {1: "a", 63: "b"}
    assert len(letters(range(4000))[7]) == 3


def test_a_small_mesh() -> None:
    groups = [
        Group("n0", [Cell("busy", 7), Cell("busy", 7), Cell("pending", 8), FREE]),
        Group("n1", [Cell("stale", 7), Cell("down", None), Cell("reserved", None), FREE]),
    ]
    assert draw(groups, letters([7, 8]), 80) == ["n0 gg+.  n1 -#=."]
    assert draw(groups, letters([7, 8]), 15) == ["n0 gg+.", "n1 -#=."]


def test_colour_changes_nothing_but_colour() -> None:
    groups = [Group("n0", [Cell("busy", 7), Cell("down", 7), FREE])]
    painted = draw(groups, letters([7]), 80, colour=True)
    assert "\x1b[" in painted[0]
    assert [re.sub("\x1b\\[[0-9;]*m", "", line) for line in painted] == draw(groups, letters([7]), 80)


@given(st.integers(1, 40), st.integers(0, 70), st.integers(20, 200), st.sampled_from([3, 100]))
def test_every_processor_is_drawn_once_and_within_the_width(count: int, cells: int, width: int, launchers: int) -> None:
    letter = letters(range(1, launchers + 1))
    wide = len(letter[1])
    lines = draw(nodes(count, cells), letter, width)
    assert sum(line.count(".") for line in lines) == count * cells * wide
    assert max(map(len, lines)) <= width
    assert re.findall(r"n\d+", " ".join(lines)) == [f"n{index}" for index in range(count)]


def test_nodes_of_different_length_keep_their_columns() -> None:
    groups = [Group("n0", [FREE] * 4), Group("login", []), Group("n2", [FREE] * 2), Group("n3", [FREE] * 4)]
    assert draw(groups, {}, 26) == ["   n0 ....  login", "   n2 ..       n3 ...."]
    assert draw([], {}, 80) == ["no processors"]


def test_the_legend_names_and_counts_every_state() -> None:
    assert legend({"free": 3, "busy": 2}) == (
        ". free 3   + pending 0   a busy 2   - suspect 0   # down 0   = reserved 0"
    )
    assert "   # down 0   ! drained 1   " in legend({"drained": 1})


@pytest.mark.parametrize(("seconds", "text"), [(0, "00:00:00"), (-3, "00:00:00"), (142614.9, "39:36:54")])
def test_elapsed_time_is_hours_minutes_seconds(seconds: float, text: str) -> None:
    assert elapsed(seconds) == text


def test_a_table_is_cut_where_the_terminal_ends() -> None:
    lines = table(("id", "command"), [("7", "x" * 30), ("12", "y")], 20, right=(0,))
    assert lines == ["id  command", " 7  " + "x" * 15 + "…", "12  y"]
    assert cut("abc", 3) == "abc" and cut("abcd", 3) == "ab…"

"""Rows, their order, filters, and what is left out where there is no room."""

import csv
import io
import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.tui.model.machine import Event, Launcher, Machine, Node, NodeStatus, Picture, Processor
from console.tui.model.observation import Observation
from console.tui.model.patterns import FilterError, TooSlowError
from console.tui.model.tables import (
    EVENTS,
    LAUNCHERS,
    NODES,
    PARTITIONS,
    Column,
    Rows,
    as_csv,
    as_records,
    cells_of,
    matcher,
)
from tests.unit.tui.test_expressions import MACHINE


def many(count: int = 40) -> Machine:
    nodes = [Node(i + 1, f"n{i}", state="down" if i % 10 == 3 else "up", state_at=float(i)) for i in range(count)]
    rows = [Processor(i, 1 + i, 0, launcher=1 if i < 5 else None) for i in range(count)]
    launchers = [Launcher(1, "ada", 1, "=cmd|'/c calc'", 5, "busy", "login1", 1, 1, "", 1.0, 2.0)]
    events = [Event(i, float(i), "node_up", f"n{i}", None, None, f"n{i} is up") for i in range(1, 20)]
    made = Machine()
    made.apply(Picture(True, 1, 100.0, "main", nodes, rows, launchers, [], events=events))
    return made


def names(rows: Rows) -> list[str]:
    rows.refresh()
    return [rows.texts(key)[0] for key in rows.order]


def test_names_are_sorted_as_people_count() -> None:
    assert names(Rows(NODES, many(12))) == [f"n{i}" for i in range(12)]


def test_the_newest_event_comes_first() -> None:
    rows = Rows(EVENTS, many())
    rows.refresh()
    assert rows.order[0] == 19 and rows.order[-1] == 1


def test_any_column_both_ways() -> None:
    rows = Rows(NODES, many(12))
    for column in range(len(NODES.columns)):
        rows.sort, rows.reverse = column, False
        forward = names(rows)
        rows.reverse = True
        assert names(rows) == forward[::-1]
    rows.sort, rows.reverse = 1, False
    assert names(rows)[0] == "n3"  # down before up


@pytest.mark.parametrize(
    ("text", "passes", "held"),
    [
        ("down", "n3 down", "n4 up"),
        ("!down", "n4 up", "n3 down"),
        ("n[12]\\b", "n2", "n12x"),
        ("~hst", "hostname", "shoten"),
        ("ADA", "ADA", "ada"),
        ("ada", "ADA", "bob"),
        ("!", "anything", None),
    ],
)
def test_a_filter_passes_matching_rows(text: str, passes: str, held: str | None) -> None:
    matches = matcher(text)
    assert matches(passes) and (held is None or not matches(held))


def test_a_filter_that_is_none_is_told_and_the_old_one_stays() -> None:
    rows = Rows(NODES, many())
    rows.set_filter("down")
    with pytest.raises(FilterError):
        rows.set_filter("n[")
    assert rows.filter == "down" and names(rows) == ["n3", "n13", "n23", "n33"]


def test_a_filter_that_takes_too_long_is_dropped() -> None:
    rows = Rows(NODES, many())
    rows.set_filter(r"(((.|..)+)+)+$(?!$)")
    rows.refresh()
    assert isinstance(rows.refused, TooSlowError) and rows.filter == "" and len(rows.order) == rows.total == 40
    rows.set_filter("down")
    rows.refresh()
    assert rows.refused is None and rows.order and len(rows.order) < 40


def test_letters_in_their_order_need_no_expression() -> None:
    matches = matcher("~" + "a" * 30 + "b")
    assert not matches("a" * 5_000) and matches("A" * 5_000 + "B")


@given(st.text(max_size=12))
def test_no_filter_is_a_fault(text: str) -> None:
    try:
        matcher(text)("a line")
    except FilterError:
        pass


def test_what_has_not_changed_is_not_worked_out_again() -> None:
    made = many()
    rows = Rows(NODES, made)
    rows.refresh()
    asked: list[str] = []
    column = NODES.columns[0]
    counted = column._replace(text=lambda row, machine: asked.append(row.name) or row.name)  # type: ignore[func-returns-value]
    rows.table = NODES._replace(columns=(counted, *NODES.columns[1:]))
    made.apply(Picture(False, 2, 101.0, "main", [Node(4, "n3", state="up")], [], [], []))
    rows.refresh()
    assert asked == ["n3"]
    rows.set_filter("down")
    assert names(rows) == ["n13", "n23", "n33"]


@given(st.integers(1, 250), st.sampled_from([LAUNCHERS, PARTITIONS, NODES, EVENTS]))
def test_columns_fit_or_are_as_few_as_can_be(room: int, table: object) -> None:
    rows = Rows(table, MACHINE)  # type: ignore[arg-type]
    rows.refresh()
    widths = rows.widths(room)
    shown = [width for width in widths if width]
    assert sum(shown) + 2 * (len(shown) - 1) <= max(room, 90)
    if room > 150 and any(not column.most and rows.widest[i] for i, column in enumerate(rows.table.columns)):
        assert sum(shown) + 2 * (len(shown) - 1) == room  # nothing is left over


def test_a_text_that_is_gone_takes_no_room_from_others() -> None:
    made = many(12)
    rows = Rows(NODES, made)
    rows.refresh()
    before = rows.widths(70)
    for reason in ("a long and very long reason", ""):
        made.apply(Picture(False, 2, 101.0, "main", [Node(4, "n3", state="up", reason=reason)], [], [], []))
        rows.refresh()
        assert (rows.widths(70) == before) is not bool(reason)


def test_a_reason_names_its_user_once() -> None:
    assert Node(1, "n0", reason="a fan is loud", by="root").why == "a fan is loud (by root)"
    assert Node(1, "n0", reason="a fan is loud (root, 2026-11-26 20:31)", by="root").why.count("root") == 1


def test_csv_has_what_is_shown_and_no_formula() -> None:
    rows = Rows(LAUNCHERS, many())
    rows.refresh()
    head, line = csv.reader(io.StringIO(as_csv(rows, rows.order)))
    assert head[:4] == ["id", "user", "state", "size"] and line[0] == "1"
    assert line[-1] == "'=cmd|'/c calc'"


def test_json_has_all_that_is_known() -> None:
    rows = Rows(NODES, many(3))
    rows.refresh()
    [first, *_] = json.loads(json.dumps(as_records(rows, rows.order)))
    assert first["name"] == "n0" and first["incarnation"] == 0


def test_what_rows_stand_for() -> None:
    rows = Rows(LAUNCHERS, MACHINE)
    rows.refresh()
    assert cells_of(LAUNCHERS, rows.row(7), MACHINE) == [0, 1]
    rows = Rows(PARTITIONS, MACHINE)
    rows.refresh()
    assert cells_of(PARTITIONS, rows.row(9), MACHINE) == [13]
    assert cells_of(NODES, MACHINE.nodes[1], MACHINE) == [4, 5, 6, 7]
    event = Event(1, 1.0, "node_up", "n2", None, None, "")
    assert cells_of(EVENTS, event, MACHINE) == [8, 9, 10, 11]
    assert cells_of(EVENTS, event._replace(launcher=7, node=""), MACHINE) == [0, 1]


def test_nodes_show_their_load_memory_and_ranks_once_they_were_asked() -> None:
    machine = many(4)
    status = NodeStatus((1.5, 1.0, 0.5), (1000, 250), {7: [(0, 11), (1, 12)]})
    now = time.monotonic()
    machine.statuses[2] = Observation(status, now, machine.identity(machine.nodes[1]), 3600.0)
    machine.statuses[3] = Observation(status, now - 7200.0, machine.identity(machine.nodes[2]), 3600.0)
    rows = Rows(NODES, machine)
    rows.refresh()
    at = [column.name for column in NODES.columns].index("load")
    assert rows.texts(2)[at : at + 3] == ["1.50", "75%", "2"]
    assert rows.texts(1)[at : at + 3] == rows.texts(3)[at : at + 3] == ["", "", ""]
    rows.sort, rows.reverse = at, True
    assert names(rows)[0] == "n1"


def test_an_ended_launch_of_an_earlier_boot_names_no_node_of_this_one() -> None:
    machine = many(8)
    rows = Rows(LAUNCHERS, machine)
    ended = Launcher(9, "ada", 1, "true", 3, "ended", "", 1, None, "", 50.0, 51.0,
                     processors="2..4", ended_at=52.0, exit_status=0)  # fmt: skip
    rows.extra = [(9, ended)]
    rows.refresh()
    at = [column.name for column in LAUNCHERS.columns].index("nodes")
    assert rows.texts(9)[at] == "n2-n4"
    machine.apply(Picture(True, 2, 101.0, "main", machine.nodes, machine.processors, [], [], boot_id="b", booted_at=60))
    rows = Rows(LAUNCHERS, machine)
    rows.extra = [(9, ended)]
    rows.refresh()
    assert rows.texts(9)[at] == "processors 2..4" and "?/1" in rows.texts(9)


def test_launchers_show_where_they_are_and_their_programs_without_folders() -> None:
    machine = many(8)
    rows = Rows(LAUNCHERS, machine)
    command = "/opt/bin/python3 /home/ada/heat.py --grid /data/x"
    ended = Launcher(9, "ada", 1, command, 3, "ended", "l", 1, None, "", 1.0, 2.0,
                     processors="2..4,6", ended_at=9.0, exit_status=1)  # fmt: skip
    rows.extra = [(9, ended)]
    rows.refresh()
    texts = dict(zip([column.name for column in LAUNCHERS.columns], rows.texts(9), strict=True))
    assert texts["nodes"] == "n2-n4,n6" and texts["command"] == "heat.py --grid /data/x"
    assert texts["exit"] == "1" and texts["duration"] == "7s" and texts["user"] == "ada"
    assert "/opt/bin/python3" in as_csv(rows, [9]), "what is exported is whole"
    rows.set_filter("home/ada")
    rows.refresh()
    assert rows.order == [9], "a filter looks at all of it"


def test_a_filter_takes_the_texts_that_are_there() -> None:
    made: list[int] = []

    def text(row: Node, _: Machine) -> str:
        made.append(row.id)
        return row.name

    rows = Rows(NODES._replace(columns=(Column("name", text),)), many())
    rows.refresh()
    for words, first in (("n1", "n1"), ("n12", "n12"), ("", "n0")):
        rows.set_filter(words)
        assert names(rows)[0] == first
    assert len(made) == len(rows.order) == 40


@given(st.text("abkis0", min_size=1, max_size=3), st.text("aAbBkKsSiI0\u212a\u017f\u0130\u0131\u00c4 ", max_size=12))
def test_a_word_matches_as_a_pattern_does(word: str, line: str) -> None:
    wanted = re.search(word, line, re.IGNORECASE) is not None
    assert matcher(word)(line) is wanted
    assert matcher(f"!{word}")(line) is not wanted


def test_filter_order_and_changes_of_rows_in_any_sequence() -> None:
    machine = many(40)
    rows = Rows(NODES, machine)
    for sort, reverse, text in (
        (0, False, "down"),
        (1, True, "down"),
        (1, True, ""),
        (0, True, "!down"),
        (2, True, "n"),
    ):
        rows.sort, rows.reverse = sort, reverse
        rows.set_filter(text)
        fresh = Rows(NODES, machine)
        fresh.sort, fresh.reverse = sort, reverse
        fresh.set_filter(text)
        assert names(rows) == names(fresh)
        changed = machine.nodes[7]._replace(state="up" if machine.nodes[7].state == "down" else "down")
        machine.apply(Picture(False, machine.counter + 1, 101.0, "main", [changed], [], [], []))
        assert names(rows) == names(fresh)
        assert ("n7" in names(rows)) == matcher(text)(f"n7 {changed.state}")


def test_rows_that_are_gone_pass_no_filter() -> None:
    rows = Rows(EVENTS, machine := many())
    rows.set_filter("node_up")
    assert len(names(rows)) == 19
    del machine.events[:9]
    assert len(names(rows)) == 10 and rows.total == 10


def test_unchanged_rows_are_neither_read_nor_sorted_again() -> None:
    asked: list[int] = []

    def key(row: Node, _: Machine) -> int:
        asked.append(row.id)
        return -row.id

    machine = many(12)
    rows = Rows(NODES._replace(columns=(Column("name", lambda r, m: r.name, key),)), machine)
    order = names(rows)
    asked.clear()
    rows.set_filter("n1")
    assert names(rows) == ["n11", "n10", "n1"]
    rows.set_filter("")
    rows.reverse = True
    assert names(rows) == order[::-1] and not asked

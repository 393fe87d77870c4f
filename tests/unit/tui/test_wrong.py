"""What is wrong, in words: the worst first, the launches with it, shortened where there is little room."""

import pytest

from console.tui.format import lasting
from console.tui.model.expressions import choose
from console.tui.model.launch import Run
from console.tui.model.machine import Launcher, Machine, Node, Picture, Processor
from console.tui.model.wrong import Round, Wrong, Wrongs
from db.machine.node_states import GIVEN_UP

AT = 1_700_000_000.0
SINCE = lasting(AT, AT)
RANKS = "[4,5,6,7,8,9]"  # of launch 7: the processors 4 to 9, on n1 and n2


def node(number: int, state: str = "up", reason: str = "", **more: object) -> Node:
    return Node(number, f"n{number}", state=state, reason=reason, state_at=AT, by="rca")._replace(**more)


def machine(*nodes: Node, counter: int = 1) -> Machine:
    """Nodes of four processors; launch 7 has processors 4 to 9."""
    made = Machine()
    there = {one.id: one for one in nodes}
    rows = [Processor(cell, cell // 4, cell % 4, launcher=7 if 4 <= cell < 10 else None) for cell in range(4 * 6)]
    launcher = Launcher(7, "ada", 1, "heat", 6, "busy", "l", 1, None, "", 1.0, 1.0, ranks=RANKS)
    made.apply(Picture(True, counter, AT, "m", [there.get(n, node(n)) for n in range(6)], rows, [launcher], []))
    return made


def words(
    made: Machine, trouble: str = "", problems: tuple[str, ...] = (), runs: dict[int, Run] | None = None
) -> list[str]:
    return [wrong.text for wrong in Wrongs(made).now(trouble, problems, runs or {})]


def test_nothing_is_wrong() -> None:
    assert words(machine(node(1, "drained", "new disk"))) == []


def test_a_node_that_is_down_with_the_launch_that_has_ranks_there() -> None:
    reason = "no heartbeat for 15 s"
    assert words(machine(node(1, "down", reason))) == [f"n1 down {SINCE}: {reason}; launch 7 has ranks 0-3 there"]
    given_up = machine(node(1, "down", reason, incarnation=GIVEN_UP))
    assert words(given_up) == [f"n1 down {SINCE}: {reason}; launch 7 lost ranks 0-3"]
    wrongs = Wrongs(given_up)
    wrongs.now("", (), {})
    assert wrongs.launchers == {7: "lost ranks 0-3"}


def test_ranks_are_lost_if_yod_says_so_also_when_their_node_is_up_again() -> None:
    run = Run(7, "heat", 6)
    run.take({"event": "hello", "size": 6, "state": "running"})
    run.take({"event": "lost", "nodes": ["n2"], "ranks": [4, 5], "reason": "n2 is gone"})
    down = machine(node(2, "down", "its PCT is gone"))
    assert words(down, runs={7: run}) == [f"n2 down {SINCE}: its PCT is gone; launch 7 lost ranks 4-5"]
    [wrong] = Wrongs(machine()).now("", (), {7: run})
    assert (wrong.text, wrong.kind, wrong.name, wrong.grave) == ("launch 7 lost ranks 4-5", "run", "7", True)
    run.take({"event": "end", "at": 9.0, "exit_status": 137})
    assert words(machine(), runs={7: run}) == []


def test_the_worst_comes_first() -> None:
    made = machine(
        node(0, "suspect", "late"), node(1, "suspect", "late too"), node(2, "down", "x"), node(5, "down", "y")
    )
    found = Wrongs(made).now("the database does not answer", ("cpa-0: does not answer", "node n2 is down: x"), {})
    assert [wrong.what.partition(" since")[0] for wrong in found] == [
        "the database does not answer", "n2 down", "n5 down", "n1 suspect", "n0 suspect", "cpa-0: does not answer",
    ]  # fmt: skip
    assert [wrong.grave for wrong in found] == [True, True, True, False, False, False]


def test_many_nodes_that_went_alike_are_one() -> None:
    made = machine(*(node(n, "down", f"no heartbeat for {15 + n} s") for n in range(6)))
    [wrong] = Wrongs(made).now("", (), {})
    assert wrong.text.startswith(f"6 nodes (n0 …) down {SINCE}: no heartbeat for 1")
    assert (wrong.kind, wrong.name) == ("select", "node=n[0-5]")


def test_each_group_of_nodes_is_a_place_of_its_own() -> None:
    made = machine(*(node(n, "down", "its disk is full" if n < 3 else "no heartbeat") for n in (0, 2, 4, 5)))
    found = Wrongs(made).now("", (), {})
    assert sorted((wrong.kind, wrong.name) for wrong in found) == [
        ("select", "node=n0 | node=n2"), ("select", "node=n[4-5]"),
    ]  # fmt: skip
    places = [sorted({cell // 4 for cell in choose(wrong.name, made)}) for wrong in found]
    assert sorted(places) == [[0, 2], [4, 5]]


def test_the_round_goes_to_the_worst_that_was_not_visited_and_begins_anew_after_the_last() -> None:
    first, second, third = (Wrong(badness, f"n{badness}", kind="node", name=f"n{badness}") for badness in (2, 3, 5))
    round = Round()

    def go(*wrongs: Wrong) -> int | None:
        at = round.coming(wrongs)
        if at is not None:
            round.visit(wrongs[at], wrongs)
        return at

    assert [go(second, third) for _ in range(5)] == [0, 1, 0, 1, 0]
    assert go(first, second, third) == 0, "a worse one came meanwhile"
    assert [go(first, second, third) for _ in range(4)] == [2, 0, 1, 2]
    assert go(third) == 0 and go(third) == 0 and go() is None


@pytest.mark.parametrize("columns", range(10, 90))
def test_a_line_fits_and_loses_the_reason_before_the_launch(columns: int) -> None:
    [wrong] = Wrongs(machine(node(1, "down", "no heartbeat for 15 s", incarnation=GIVEN_UP))).now("", (), {})
    line = wrong.within(columns)
    assert len(line) <= columns and line.startswith("n1 down"[: columns - 1])
    if columns >= len(f"n1 down {SINCE}; launch 7 lost ranks 0-3"):
        assert line.endswith("launch 7 lost ranks 0-3")
    assert columns < len(wrong.text) or line == wrong.text


def test_it_is_looked_for_only_after_a_change() -> None:
    made = machine(node(1, "down", "x"))
    wrongs = Wrongs(made)
    found = wrongs.now("", (), {})
    assert wrongs.now("", (), {}) is found
    made.counter += 1
    assert wrongs.now("", (), {}) == found and wrongs.now("", (), {}) is wrongs.now("", (), {})


def test_a_login_processor_is_in_the_table_of_nodes() -> None:
    made = Machine()
    made.apply(Picture(True, 1, AT, "m", [node(9, "suspect", "late", role="login")], [], [], []))
    [wrong] = Wrongs(made).now("", (), {})
    assert (wrong.kind, wrong.name) == ("nodes", "")


def test_what_lasts_for_days_has_its_age() -> None:
    made = machine(node(1, "down", "x"))
    made.now = AT + 2 * 86_400 + 5 * 3_600
    assert words(made)[0].startswith("n1 down for 2d 05h: x")

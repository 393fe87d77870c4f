"""Choosing processors by an expression."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.tui.model.expressions import ExpressionError, Tree, choose, parse
from console.tui.model.machine import Launcher, Machine, Node, Partition, Picture, Processor

NODES = [Node(1, "n0"), Node(2, "n1", state="draining"), Node(3, "n2", state="suspect", side=2), Node(4, "big.rack-1")]


def machine() -> Machine:
    rows = [Processor(id, 1 + id // 4, id % 4) for id in range(16)]
    rows[0] = rows[0]._replace(launcher=7, partition=5)
    rows[1] = rows[1]._replace(launcher=7, partition=5)
    rows[2] = rows[2]._replace(reserved_for="grace")
    rows[4] = rows[4]._replace(launcher=8, partition=6)
    rows[12] = rows[12]._replace(mode="batch")
    rows[13] = rows[13]._replace(partition=9)
    launchers = [
        Launcher(7, "ada", 1000, "./ring 4", 2, "busy", "login1", 4711, 5, "", 1.0, 2.0),
        Launcher(8, "free", 1001, "./solve", 1, "pending", "login1", 4712, 6, "", 1.0, None),
    ]
    partitions = [
        Partition(5, "ada", 1000, "", 2, "0..1", 1.0, 2, False),
        Partition(9, "lin", 1002, "4242.pbs", 1, "13", 1.0, 0, False),
    ]
    made = Machine()
    made.apply(Picture(True, 1, 10.0, "main", NODES, rows, launchers, [], partitions))
    return made


MACHINE = machine()
WORDS = {
    "all": set(range(16)),
    "free": {3, 12, 14, 15},
    "busy": {0, 1},
    "pending": {4},
    "used": {0, 1, 4},
    "stale": {8, 9, 10, 11},
    "suspect": {8, 9, 10, 11},
    "drained": {5, 6, 7},
    "out": {5, 6, 7},
    "reserved": {2},
    "held": {13},
    "batch": {12},
    "interactive": set(range(16)) - {12},
    "n1": {4, 5, 6, 7},
    "n[0-1]": set(range(8)),
    "n[0,2]": {0, 1, 2, 3, 8, 9, 10, 11},
    "n*": set(range(12)),
    "big.rack-1": {12, 13, 14, 15},
    "3": {3},
    "0..3": {0, 1, 2, 3},
    "ada": {0, 1},
    "user=free": {4},
    "grace": {2},
    "launcher=7": {0, 1},
    "partition=9": {13},
    "job=4242": {13},
    "job=4242.pbs": {13},
    "command=RING": {0, 1},
    "state=free": {3, 12, 14, 15},
    "mode=batch": {12},
    "side=2": {8, 9, 10, 11},
    "node=n0": {0, 1, 2, 3},
    "processor=2..4": {2, 3, 4},
    "mine": {0, 1},
}


@pytest.mark.parametrize("word", WORDS)
def test_every_word_selects_its_processors(word: str) -> None:
    assert choose(word, MACHINE, 1000) == WORDS[word]


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("node=n[0-1] & free", {3}),
        ("n[0-1] free", {3}),
        ("free | busy & n0", {0, 1, 3, 12, 14, 15}),
        ("(free | busy) & n0", {0, 1, 3}),
        ("n0, n1", set(range(8))),
        ("!n0 !n1 !n2", {12, 13, 14, 15}),
        ("!(free | n0)", set(range(16)) - {0, 1, 2, 3, 12, 14, 15}),
        ("!!free", {3, 12, 14, 15}),
        ("FREE&N0 | 0", None),
    ],
)
def test_operators_combine_selections(text: str, cells: set[int] | None) -> None:
    if cells is None:  # names of nodes are as they are written
        with pytest.raises(ExpressionError, match="N0"):
            choose(text, MACHINE)
    else:
        assert choose(text, MACHINE) == cells


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("free &", "missing at the end"),
        ("| free", "missing before '\\|'"),
        ("(free", "a closing \\) is missing"),
        ("free)", "not expected"),
        ("n[1", "brackets"),
        ("n]1[", "brackets"),
        ("nobody", "called nobody"),
        ("n[0-9]", "no node n3"),
        ("launcher=x", "not a number"),
        ("user=", "needs a value"),
        ("state=weird", "no state"),
        ("5..1", "backwards"),
        ("(" * 1000 + "free" + ")" * 1000, "too deep"),
        ("!" * 1000 + "free", "too deep"),
    ],
)
def test_mistakes_are_told(text: str, told: str) -> None:
    with pytest.raises(ExpressionError, match=told):
        choose(text, MACHINE)


def test_a_long_chain_is_no_depth() -> None:
    assert choose(" | ".join(["0", "1"] * 5000), MACHINE) == {0, 1}


#: A tree, and how it is written.
trees = st.recursive(
    st.sampled_from([word for word in WORDS if word != "mine"]).map(lambda word: (("word", word), word)),
    lambda below: st.one_of(
        below.map(lambda one: (("!", one[0]), f"!({one[1]})")),
        st.tuples(below, below, st.sampled_from("&|")).map(
            lambda found: ((found[2], found[0][0], found[1][0]), f"({found[0][1]}) {found[2]} ({found[1][1]})")
        ),
    ),
    max_leaves=12,
)


def value(tree: Tree) -> set[int]:
    """By the laws of sets, from what the words stand for."""
    if tree[0] == "word":
        return WORDS[str(tree[1])]
    if tree[0] == "!":
        return set(range(16)) - value(tree[1])  # type: ignore[arg-type]
    one, other = value(tree[1]), value(tree[2])  # type: ignore[arg-type, misc]
    return one & other if tree[0] == "&" else one | other


@given(trees)
def test_expressions_are_sets(found: tuple[Tree, str]) -> None:
    tree, text = found
    assert choose(text, MACHINE) == value(tree)


@given(st.text(alphabet="nfree01[]()&|!,=.*- \x1buserlaunchr7", max_size=30))
def test_nothing_typed_is_a_fault(text: str) -> None:
    try:
        cells = choose(text, MACHINE)
    except ExpressionError as error:
        assert error.message
    else:
        assert cells <= set(range(16)) and parse(text)

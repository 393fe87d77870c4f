"""Merging stacks: whatever the order and the grouping, every rank stands where it stood."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.pct.debug import stack_tree
from agents.pct.debug.collect import Gathering
from console.launch.attach.stacks import as_told, difference, flat, in_tree, nested
from redmesh import idset

CALLS = st.tuples(st.sampled_from("abcd"), st.sampled_from(["x.c", ""]), st.integers(0, 2), st.just("c"))
STACKS = st.lists(CALLS, min_size=1, max_size=6)
RANKS = st.dictionaries(st.integers(0, 300), STACKS, min_size=1, max_size=30)


def tree_of(ranks: dict[int, list[stack_tree.Call]]) -> stack_tree.Tree:
    tree: stack_tree.Tree = {}
    for rank, stack in ranks.items():
        stack_tree.add(tree, stack, 1 << rank)
    return tree


def stacks_in(tree: stack_tree.Tree) -> dict[int, set[tuple[stack_tree.Call, ...]]]:
    """Every rank's calls as paths from the outermost: what a tree says, read back by brute force."""
    found: dict[int, set[tuple[stack_tree.Call, ...]]] = {}

    def go(level: stack_tree.Tree, path: tuple[stack_tree.Call, ...]) -> None:
        for call, node in level.items():
            for rank in idset.members(node.ranks):
                found.setdefault(rank, set()).add((*path, call))
            go(node.below, (*path, call))

    go(tree, ())
    return found


@given(st.sets(st.integers(0, 400)))
def test_sets_are_read_back(ranks: set[int]) -> None:
    whole = idset.of(ranks)
    assert idset.read(idset.text(whole)) == whole
    assert set(idset.members(whole)) == ranks and idset.count(whole) == len(ranks)
    assert idset.lowest(whole) == min(ranks, default=-1)


def test_sets_as_people_write_them() -> None:
    assert idset.text(idset.of([0, 1, 2, 3, 7, 9, 10])) == "0-3,7,9-10"
    for wrong in ("a", "3-1", "1-", "-1", "1,,2", "1 2", "99999999999", "²"):
        with pytest.raises(ValueError):
            idset.read(wrong)


@given(RANKS, st.data())
def test_neither_order_nor_grouping_matters(ranks: dict[int, list[stack_tree.Call]], data: st.DataObject) -> None:
    order = data.draw(st.permutations(list(ranks)))
    parts: list[stack_tree.Tree] = [{} for _ in range(data.draw(st.integers(1, 5)))]
    for rank in order:
        part = data.draw(st.integers(0, len(parts) - 1))
        stack_tree.merge(parts[part], tree_of({rank: ranks[rank]}))
    while len(parts) > 1:  # up a tree of any shape, over the wire at each level
        one = parts.pop(data.draw(st.integers(0, len(parts) - 1)))
        stack_tree.merge(parts[0], stack_tree.read(json.loads(json.dumps(stack_tree.rows(one)))))
    assert stack_tree.rows(parts[0]) == stack_tree.rows(tree_of(ranks))
    expected = {rank: {tuple(stack[: n + 1]) for n in range(len(stack))} for rank, stack in ranks.items()}
    assert stacks_in(parts[0]) == expected


@given(RANKS, st.integers(1, 40))
def test_a_tree_too_large_loses_its_depths_and_no_rank(ranks: dict[int, list[stack_tree.Call]], most: int) -> None:
    tree = tree_of(ranks)
    rows = stack_tree.rows(tree, most)
    assert in_tree(stack_tree.read(rows)) == in_tree(tree)
    assert len(rows) <= max(most, len(tree))


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=7)))
def test_no_message_breaks_the_reader(received: object) -> None:
    try:
        stack_tree.read(received)  # type: ignore[arg-type]
    except (ValueError, TypeError, IndexError):
        pass


@given(RANKS, RANKS)
def test_the_difference_of_two_trees(
    before: dict[int, list[stack_tree.Call]], after: dict[int, list[stack_tree.Call]]
) -> None:
    old, new = nested(stack_tree.rows(tree_of(before))), nested(stack_tree.rows(tree_of(after)))
    assert flat(new) == stack_tree.rows(tree_of(after))
    was, now = stacks_in(tree_of(before)), stacks_in(tree_of(after))

    def go(level: list[dict[str, object]], path: tuple[stack_tree.Call, ...]) -> None:
        for one in level:
            here = (*path, (one["function"], one["file"], one["line"], one["language"]))
            came = {rank for rank, paths in now.items() if here in paths and here not in was.get(rank, ())}
            left = {rank for rank, paths in was.items() if here in paths and here not in now.get(rank, ())}
            assert set(idset.members(idset.read(str(one["came"])))) == came
            assert set(idset.members(idset.read(str(one["left"])))) == left
            go(one["children"], here)  # type: ignore[arg-type]

    go(difference(old, new), ())
    assert all(not one["came"] and not one["left"] for one in difference(new, new))


def test_a_thousand_ranks_are_told_like_ten() -> None:
    def told(size: int) -> int:
        places = [[("main", "a.c", 3, "c"), (f"step{rank % 5}", "a.c", rank % 5, "c")] for rank in range(size)]
        gathering = Gathering(1, {"": 0})
        message = gathering.take("", tree_of(dict(enumerate(sorted(places)))), [])
        assert message is not None and len(message["calls"]) == 6
        return len(json.dumps(message))

    assert told(1000) < told(10) + 6 * 8, "a few digits more a call"


MAIN = [("main", "a.c", 3, "c")]


def test_a_gathering_waits_for_all_of_them() -> None:
    gathering = Gathering(4, {"": 0, "n1": 0b1100, "n2": 0b110000})
    assert gathering.take("n1", tree_of({2: MAIN, 3: MAIN}), []) is None
    assert gathering.take("n1", tree_of({9: MAIN}), []) is None, "one that has told is heard once"
    assert gathering.take("", tree_of({0: MAIN}), [["1", "n0", "its process has ended"]]) is None
    told = gathering.lost("n2", "the connection ended")
    assert told is not None and told["number"] == 4
    assert told["calls"] == [[-1, "main", "a.c", 3, "c", "0,2-3"]]
    assert told["missing"] == [["1", "n0", "its process has ended"], ["4-5", "n2", "the connection ended"]]
    assert gathering.expired() is None


def test_a_gathering_whose_time_is_over() -> None:
    gathering = Gathering(1, {"": 0, "n1": 0b10})
    assert gathering.take("", tree_of({0: MAIN}), []) is None
    told = gathering.expired()
    assert told is not None and told["missing"] == [["1", "n1", "no answer in time"]]
    assert gathering.take("n1", tree_of({1: MAIN}), []) is None


def test_ranks_that_nobody_speaks_of_have_ended() -> None:
    calls = stack_tree.rows(tree_of({0: MAIN, 2: MAIN}))
    event = {"launcher": 7, "ranks": 4, "taken_at": 1.5, "took_s": 0.1, "calls": calls}
    event["missing"] = [["1", "n0", "no stack tool"]]
    told = as_told(event)
    assert told["missing"] == [
        {"ranks": "1", "node": "n0", "why": "no stack tool"}, {"ranks": "3", "node": "", "why": "it has ended"},
    ]  # fmt: skip
    assert told["taken_at"] == "1970-01-01T00:00:01.500Z" and told["tree"][0]["ranks"] == "0,2"
    assert [one["ranks"] for one in as_told(event, 0b11)["missing"]] == ["1"], "of those that were asked for"

"""Fences over any tree, in any order of arrivals and ends: everybody sees everything, or the absent are named."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.pct.mpi import fences as module
from agents.pct.mpi.fences import Exchange, State
from tests.support.chance import examples


class Node:
    """A PMI server as agents/pct/mpi/pmi_server.py has it, without sockets: messages go into the simulation's queue."""

    def __init__(self, name: str, ranks: list[int], children: "list[Node]") -> None:
        self.name, self.ranks, self.children = name, ranks, children
        self.parent: Node | None = None
        for child in children:
            child.parent = self
        self.exchange = Exchange(ranks, {child.name: child.all_ranks() for child in children})
        self.exited: set[int] = set()

    def all_ranks(self) -> list[int]:
        return self.ranks + [rank for child in self.children for rank in child.all_ranks()]


class Simulation:
    def __init__(self, counts: list[int], fanout: int, dice: random.Random) -> None:
        self.dice = dice
        self.nodes = self._tree(counts, fanout)
        self.root = self.nodes[0]
        self.queue: list[tuple[object, ...]] = []  # one link at a time keeps its order; which link goes next is chance
        self.released: list[tuple[int, int]] = []  # rank, fence
        self.broken: list[int] | None = None

    def _tree(self, counts: list[int], fanout: int) -> list[Node]:
        first, nodes = 0, []
        ranks = []
        for count in counts:
            ranks.append(list(range(first, first + count)))
            first += count

        def build(low: int, high: int) -> Node:
            below, size = [], high - low - 1
            parts = min(fanout, size)
            for part in range(parts):
                below.append(build(low + 1 + size * part // parts, low + 1 + size * (part + 1) // parts))
            node = Node(f"n{low}", ranks[low], below)
            nodes.append(node)
            return node

        build(0, len(counts))
        return nodes[::-1]

    def settle(self, node: Node) -> None:
        for child in node.children:
            if set(child.all_ranks()) <= node.exited:
                node.exchange.child_gone(child.name)
        if not node.exchange.complete():
            return
        absent, parts = node.exchange.absent(), list(node.exchange.fresh())
        if node.parent is not None:
            self.queue.append((node, node.parent, "fence", node.exchange.number, parts, absent))
        elif absent:
            node.exchange.break_up()
            self.broken = absent
        else:
            self.release(node, parts)

    def release(self, node: Node, parts: list[list[str]]) -> None:
        number = node.exchange.number
        for child in node.children:
            self.queue.append((node, child, "fenced", number, parts, []))
        for rank in node.exchange.release():
            self.released.append((rank, number))

    def step(self) -> None:
        links = list(dict.fromkeys((message[0], message[1]) for message in self.queue))
        link = self.dice.choice(links)
        at = next(at for at, message in enumerate(self.queue) if (message[0], message[1]) == link)
        sender, receiver, what, number, parts, absent = self.queue.pop(at)
        assert isinstance(receiver, Node) and isinstance(sender, Node)
        if what == "exits":
            receiver.exited.update(absent)  # type: ignore[arg-type]
            if receiver.parent is not None:
                self.queue.append((receiver, receiver.parent, "exits", 0, [], absent))
        elif what == "fence":
            for part in parts:  # type: ignore[attr-defined]
                receiver.exchange.child_put(number, part)  # type: ignore[arg-type]
            receiver.exchange.child_inside(sender.name, absent)  # type: ignore[arg-type]
        else:
            for part in parts:  # type: ignore[attr-defined]
                receiver.exchange.coming(number, part)  # type: ignore[arg-type]
            self.release(receiver, parts)  # type: ignore[arg-type]
            return
        self.settle(receiver)

    def end(self, node: Node, rank: int) -> None:
        node.exchange.ended(rank)
        if node.parent is not None:
            self.queue.append((node, node.parent, "exits", 0, [], [rank]))
        self.settle(node)


trees = st.lists(st.integers(1, 3), min_size=1, max_size=9)


@pytest.mark.storm
@settings(max_examples=examples(100), deadline=None)
@given(trees, st.integers(1, 4), st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 40))
def test_everybody_knows_everything_behind_a_fence(
    counts: list[int], fanout: int, seed: int, fences: int, chunk: int
) -> None:
    dice = random.Random(seed)
    before, module.CHUNK = module.CHUNK, chunk
    try:
        simulation = Simulation(counts, fanout, dice)
        at = {rank: node for node in simulation.nodes for rank in node.ranks}
        for fence in range(fences):
            todo = list(at)
            dice.shuffle(todo)
            while todo or simulation.queue:
                if todo and (not simulation.queue or dice.random() < 0.5):
                    rank = todo.pop()
                    at[rank].exchange.put(f"k{rank}", f"{fence}.{rank}")
                    at[rank].exchange.enter(rank)
                    simulation.settle(at[rank])
                else:
                    simulation.step()
            assert sorted(simulation.released) == [(rank, fence) for rank in sorted(at)]
            simulation.released = []
            for node in simulation.nodes:
                assert node.exchange.known == {f"k{rank}": f"{fence}.{rank}" for rank in at}
                assert node.exchange.state is State.GATHERING
    finally:
        module.CHUNK = before


@pytest.mark.storm
@settings(max_examples=examples(100), deadline=None)
@given(trees, st.integers(1, 4), st.integers(0, 2**32), st.data())
def test_whoever_ends_instead_is_named_and_nobody_is_let_go(
    counts: list[int], fanout: int, seed: int, data: st.DataObject
) -> None:
    dice = random.Random(seed)
    simulation = Simulation(counts, fanout, dice)
    at = {rank: node for node in simulation.nodes for rank in node.ranks}
    gone = data.draw(st.sets(st.sampled_from(sorted(at)), min_size=1))
    todo = list(at)
    dice.shuffle(todo)
    while todo or simulation.queue:
        if todo and (not simulation.queue or dice.random() < 0.5):
            rank = todo.pop()
            if rank in gone:
                simulation.end(at[rank], rank)
            else:
                at[rank].exchange.enter(rank)
                simulation.settle(at[rank])
        else:
            simulation.step()
    assert simulation.released == []
    assert simulation.broken == (sorted(gone) if len(gone) < len(at) else None)

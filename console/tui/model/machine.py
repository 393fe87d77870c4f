"""The machine as last read from the database. No I/O: rows in, cells and their changes out."""

import enum
import functools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from console.tui.format import HELD
from console.tui.model.jobs import Job
from console.tui.model.observation import Identity, Observation, Value
from db.views.rows import processor_state

HUES = 8
#: How much two hues (app.tcss) look alike side by side: 4 the same, 3 nearly (two bright purples, two greys), 2 of one
#: family (blues 0 and 4; purples 1, 2, 5 and 7; greys 3 and 6), 1 less than 50 apart in CIELAB, 0 more than that.
ALIKE = (
    (4, 0, 0, 1, 2, 0, 1, 0),
    (0, 4, 2, 1, 0, 2, 1, 2),
    (0, 2, 4, 0, 1, 3, 0, 3),
    (1, 1, 0, 4, 0, 0, 3, 0),
    (2, 0, 1, 0, 4, 1, 0, 1),
    (0, 2, 3, 0, 1, 4, 0, 3),
    (1, 1, 0, 3, 0, 0, 4, 0),
    (0, 2, 3, 0, 1, 3, 0, 4),
)
_CLASH = (0, 1, 8, 200, 100_000)  # how bad a tile is beside one that looks so much alike
ONE_FAMILY = 2  # from here on, neighbours get other hues while there are any
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
MOST_EVENTS = 5_000  # events to keep; at twice as many, the older half is dropped
OUT_OF_SERVICE = frozenset(("down", "drained"))


class State(enum.IntEnum):
    """The state of a processor for display (docs/database.md)."""

    FREE = 0
    PENDING = 1
    BUSY = 2
    SUSPECT = 3  # no heartbeat of its node; called stale in JSON
    DOWN = 4
    RESERVED = 5
    DRAINING = 6  # in use on a draining node
    DRAINED = 7  # taken out of service by an administrator
    HELD = 8  # free, but only for a batch job's partition
    SERVICE = 9  # free on a service node, which is in no pool


_NAMES = {state: state.name.lower() for state in State}
_STATES = {**{name: state for state, name in _NAMES.items()}, "stale": State.SUSPECT}  # by db.views.rows' words

#: A glyph for each state (as in showmesh), readable without colour; busy processors show a launcher's letter.
GLYPHS = {
    State.FREE: "·",
    State.PENDING: "+",
    State.BUSY: "a",
    State.SUSPECT: "-",
    State.DOWN: "#",
    State.RESERVED: "=",
    State.DRAINING: "~",
    State.DRAINED: "x",
    State.HELD: ":",
    State.SERVICE: ",",
}
MIXED = "%"  # a tile for several processors with different states


class Node(NamedTuple):
    """A row of ``node``; its texts are already sanitised."""

    id: int
    name: str
    role: str = "compute"
    state: str = "up"
    reason: str = ""
    address: str = ""
    agent: str = ""
    incarnation: int = 0
    state_at: float = 0.0
    by: str = ""  # the user who drained it
    side: int = 1
    drain_at: float | None = None
    drain_reason: str = ""
    boot_id: str = ""

    @property
    def out_of_service(self) -> bool:
        """True if nothing can run there."""
        return self.state in OUT_OF_SERVICE

    @property
    def why(self) -> str:
        """The reason of its state and whose it is; a reason of ``mesh drain`` names the user itself."""
        return self.reason + (f" (by {self.by})" if self.by and f"({self.by}, " not in self.reason else "")


class NodeStatus(NamedTuple):
    """A PCT's status of its node.

    ``memory``: total and available, in bytes. ``processes``: rank and pid, by launcher.
    """

    load: tuple[float, ...] = ()
    memory: tuple[int, int] | None = None
    processes: dict[int, list[tuple[int, int]]] = {}

    @property
    def memory_share(self) -> float | None:
        """The used part of the memory, from 0 to 1."""
        return None if self.memory is None else 1 - self.memory[1] / max(1, self.memory[0])


class Processor(NamedTuple):
    """A row of ``processor``."""

    id: int
    node: int
    slot: int
    mode: str = "interactive"
    reserved_for: str = ""
    partition: int | None = None
    launcher: int | None = None


class Launcher(NamedTuple):
    """A row of ``launcher`` that has not ended."""

    id: int
    user: str
    uid: int
    command: str
    size: int
    state: str  # pending, busy
    login: str
    pid: int
    partition: int | None
    batch_job: str
    created_at: float
    started_at: float | None
    pending_until: float = 0.0
    ranks: str = ""  # JSON: the processor of each rank; empty while pending
    processors: str = ""  # folded, in rank order
    ended_at: float | None = None
    exit_status: int | None = None
    reason: str = ""

    def elapsed_s(self, now: float) -> float:
        """Seconds since its start, or since its request while it is pending. ``now``: by the database's clock."""
        return max(0.0, now - (self.started_at or self.created_at))


class Partition(NamedTuple):
    """A row of ``partition`` that has not ended."""

    id: int
    user: str
    uid: int
    batch_job: str
    size: int
    processors: str  # folded
    created_at: float
    max_in_use: int
    batch_job_error: bool


class Event(NamedTuple):
    """A row of ``event``; node by name."""

    id: int
    at: float
    kind: str
    node: str
    launcher: int | None
    partition: int | None
    text: str


class Picture(NamedTuple):
    """A reading: everything (``whole``), or what has changed since the last one (db.views.rows.Reading, sanitised)."""

    whole: bool
    counter: int
    now: float  # the database's clock
    mesh: str
    nodes: list[Node]
    processors: list[Processor]
    launchers: list[Launcher]
    ended: list[int]  # ended launchers
    partitions: Sequence[Partition] = ()
    ended_partitions: Sequence[int] = ()
    topology: str = ""  # JSON; empty for a plain line of processors
    events: Sequence[Event] = ()  # new ones, in their order
    boot_id: str = ""  # of the mesh
    booted_at: float = 0.0  # by the database's clock; 0: unknown


class Changed(NamedTuple):
    """The changes of a picture: a new shape (lay out again), changed cells, the list of launchers."""

    shape: bool
    cells: set[int]
    launchers: bool


def alike(hue: int, others: Collection[int | None]) -> int:
    """How much a hue looks like the most similar of the others."""
    return max((ALIKE[hue][other] for other in others if other is not None), default=0)


@functools.lru_cache(1024)  # thousands of processors are equal
def _state(node: str, role: str, mode: str, reserved: str | None, held: str | None, in_partition: bool) -> State:
    state = _STATES[processor_state(node, mode, reserved, held)]
    if state is State.FREE and (role == "service" or in_partition):
        return State.HELD if in_partition else State.SERVICE
    return State.DRAINING if state is State.BUSY and node == "draining" else state


class Machine:
    """Processors as cells, numbered node by node, with launchers and nodes."""

    def __init__(self) -> None:
        self.counter = -1
        self.now = 0.0
        self.mesh = ""
        self.boot_id = ""  # of the mesh: numbers of nodes and processors stand for others in another boot
        self.booted_at = 0.0
        self.topology = ""
        self.partitions: dict[int, Partition] = {}
        self.events: list[Event] = []  # the newest
        self.last_event = 0
        self.news: list[Event] = []  # starts and ends of launches (console/tui/model/news.py)
        self.nodes: list[Node] = []
        self.origins: dict[str, str] = {}  # the batch jobs of nodes that joined by `mesh grow`, by the nodes' names
        self.statuses: dict[int, Observation[NodeStatus]] = {}  # the last answers of PCTs, by the nodes' ids
        self.unanswered: dict[int, Observation[str]] = {}  # why a PCT has not answered since
        self.processors: list[Processor] = []
        self.launchers: dict[int, Launcher] = {}
        self.states = bytearray()
        self.shapes = 0  # how often nodes or processors were added or removed
        self.holdings = 0  # how often processors changed hands, or launchers their colours
        self._looks: list[tuple[str, str]] = []
        self._cell_of: dict[int, int] = {}
        self._cells_of_node: list[tuple[int, int]] = []  # first cell and count, by index into nodes
        self._nodes_with_processors = 0
        self._node_index: dict[int, int] = {}
        self._letters: dict[int, str] = {}
        self._hues: dict[int, int] = {}
        self.jobs: dict[int, Job] = {}  # of this user on this host, by number (console/tui/sources/jobs.py)
        self.held: frozenset[int] = frozenset()  # launchers whose ranks are held at their first instruction

    @property
    def cells(self) -> int:
        """How many processors there are."""
        return len(self.processors)

    def apply(self, picture: Picture) -> Changed:
        """Apply a reading."""
        self.counter, self.now, self.mesh = picture.counter, picture.now, picture.mesh
        self.boot_id, self.booted_at = picture.boot_id, picture.booted_at
        held = self._take_partitions(picture)
        self._take_events(picture)
        known = all(self._has(row) for row in picture.processors)
        nodes_known = all(node.id in self._node_index for node in picture.nodes)
        if picture.whole or not known or not nodes_known:
            return self._replace(picture)
        touched = {row.launcher for row in picture.processors} | {row.id for row in picture.launchers}
        touched.update(picture.ended)
        cells = {self._cell_of[row.id] for row in picture.processors}
        for row in picture.processors:
            self.processors[self._cell_of[row.id]] = row
        for node in picture.nodes:
            index = self._node_index[node.id]
            if self.nodes[index] != node:
                first, count = self._cells_of_node[index]
                cells.update(range(first, first + count))
            self.nodes[index] = node
        launchers = self._take_launchers(picture)
        self.holdings += bool(picture.processors or launchers)
        if launchers:
            cells.update(cell for cell, row in enumerate(self.processors) if row.launcher in touched and row.launcher)
        if held:
            cells.update(cell for cell, row in enumerate(self.processors) if row.partition in held)
        return Changed(False, {cell for cell in cells if self._look(cell)}, launchers)

    def _has(self, row: Processor) -> bool:
        """True if the processor is known at this position."""
        cell = self._cell_of.get(row.id)
        return cell is not None and self.processors[cell][:3] == row[:3]

    def _take_events(self, picture: Picture) -> None:
        if picture.whole:
            self.events, self.last_event = list(self.news), 0
        fresh = [event for event in picture.events if event.id > self.last_event]
        if fresh:
            self.events += fresh
            self.last_event = fresh[-1].id
            if len(self.events) > 2 * MOST_EVENTS:
                del self.events[:-MOST_EVENTS]

    def tell(self, news: list[Event], fresh: list[Event]) -> None:
        """Add ``fresh`` events. ``news``: all events of launches; a complete reading replaces the database's events and
        keeps these."""
        self.news = news
        kept = set(news)  # those of another database, in which launchers have the same numbers, are dropped
        self.events = [event for event in self.events if event.id > 0 or event in kept]
        known = {event.id for event in self.events}
        self.events += [event for event in fresh if event.id not in known]
        self.events.sort(key=lambda event: event.at)

    def _take_partitions(self, picture: Picture) -> set[int]:
        """Apply partitions; returns the numbers of new ones."""
        if picture.whole:
            self.partitions = {}
        new = {row.id for row in picture.partitions if row.id not in self.partitions}
        self.partitions.update((row.id, row) for row in picture.partitions)
        for number in picture.ended_partitions:
            self.partitions.pop(number, None)
        return new

    def _take_launchers(self, picture: Picture) -> bool:
        before = dict(self.launchers)
        for launcher in picture.launchers:
            self.launchers[launcher.id] = launcher
        for ended in picture.ended:
            self.launchers.pop(ended, None)
            self._letters.pop(ended, None)
            self._hues.pop(ended, None)
        new = [number for number in sorted(self.launchers) if number not in self._letters]
        near = self._neighbours() if new else {}
        for number in new:
            self._letters[number] = self._free_letter(number)
            self._hues[number] = self._free_hue(number, {self._hues.get(other) for other in near.get(number, ())})
        return before != self.launchers

    def _free_letter(self, number: int) -> str:
        """A letter for a new launcher, which it keeps: by its number, or the next free one if that is taken."""
        taken = set(self._letters.values())
        for step in range(len(LETTERS)):
            letter = LETTERS[(number - 1 + step) % len(LETTERS)]
            if letter not in taken:
                return letter
        return LETTERS[(number - 1) % len(LETTERS)]

    def _neighbours(self) -> dict[int, set[int]]:
        """The neighbours of each launcher: on the next processor, or on the same one of the next node."""
        holders = [row.launcher for row in self.processors]
        pairs = set(pairwise(holders))
        for (before, length), (first, count) in pairwise(span for span in self._cells_of_node if span[1]):
            if max(length, count) > 1:  # otherwise they are next to each other anyway
                pairs.update(zip(holders[before : before + length], holders[first : first + count], strict=False))
        found: dict[int, set[int]] = {}
        for one, other in pairs:
            if one is not None and other is not None and one != other:
                found.setdefault(one, set()).add(other)
                found.setdefault(other, set()).add(one)
        return found

    def _free_hue(self, number: int, avoid: Collection[int | None]) -> int:
        """A hue unlike the neighbours', and that few others have; by the launcher's number if many are free."""
        taken = Counter(self._hues.values())
        return min(range(HUES), key=lambda hue: (alike(hue, avoid), taken[hue], (hue - number + 1) % HUES))

    def recolour(self, launcher: int, borders: Mapping[int, int]) -> set[int]:
        """Give a launcher a hue that is less like its neighbours', if possible; returns cells that look different now.

        ``borders``: for each neighbour, how many tiles are side by side. A hue like that of a long neighbour is worse.
        """
        hues: Counter[int] = Counter()
        for other, length in borders.items():
            hues[self.hue(other)] += length
        now = self.hue(launcher)
        clashes = [sum(_CLASH[ALIKE[hue][other]] * length for other, length in hues.items()) for hue in range(HUES)]
        hue = min(range(HUES), key=clashes.__getitem__)
        if clashes[hue] >= clashes[now]:
            return set()
        self._hues[launcher] = hue
        self.holdings += 1
        return {cell for cell in self.cells_of_launcher(launcher) if self._look(cell)}

    def hold(self, launchers: frozenset[int]) -> set[int]:
        """Set the held launchers; returns cells that look different now."""
        changed, self.held = self.held ^ launchers, launchers
        return {cell for cell, row in enumerate(self.processors) if row.launcher in changed and self._look(cell)}

    def _replace(self, picture: Picture) -> Changed:
        if picture.whole:
            nodes = {node.id: node for node in picture.nodes}
            processors = {row.id: row for row in picture.processors}
            self.launchers = {}
        else:
            nodes = {node.id: node for node in (*self.nodes, *picture.nodes)}
            processors = {row.id: row for row in (*self.processors, *picture.processors)}
        shape, self.topology = self._shape(), picture.topology if picture.whole else self.topology
        old_looks = self._looks
        self.nodes = [nodes[number] for number in sorted(nodes)]
        self._node_index = {node.id: index for index, node in enumerate(self.nodes)}
        order = {node.id: index for index, node in enumerate(self.nodes)}
        rows = [row for row in processors.values() if row.node in order]
        self.processors = sorted(rows, key=lambda row: (order[row.node], row.slot, row.id))
        self._cell_of = {row.id: cell for cell, row in enumerate(self.processors)}
        self._cells_of_node = [(0, 0)] * len(self.nodes)
        for cell, row in enumerate(self.processors):
            index = order[row.node]
            first, count = self._cells_of_node[index]
            self._cells_of_node[index] = (cell if not count else first, count + 1)
        self._nodes_with_processors = sum(count > 0 for _, count in self._cells_of_node)
        self._letters = {number: letter for number, letter in self._letters.items() if number in self.launchers}
        self._hues = {number: hue for number, hue in self._hues.items() if number in self.launchers}
        launchers = self._take_launchers(picture)
        self.holdings += 1
        self.states = bytearray(len(self.processors))
        self._looks = [("", "")] * len(self.processors)
        self._look_at_all()
        if shape == self._shape():
            changed = {cell for cell, look in enumerate(self._looks) if look != old_looks[cell]}
            return Changed(False, changed, True)
        self.shapes += 1
        return Changed(True, set(), launchers or True)

    def _shape(self) -> tuple[str, list[tuple[int, str]], list[tuple[int, int]]]:
        nodes = [(node.id, node.name) for node in self.nodes]
        return self.topology, nodes, [(row.id, row.node) for row in self.processors]

    def _look_at_all(self) -> None:
        """Update the looks of all cells. Thousands of them are equal, so each kind is worked out once."""
        kinds = [(node.state, node.role) for node in self.nodes]
        known: dict[tuple[object, ...], int] = {}  # the first cell of each kind
        states, looks, index = self.states, self._looks, self._node_index
        for cell, row in enumerate(self.processors):
            first = known.setdefault((kinds[index[row[1]]], row[3:]), cell)
            if first == cell:
                self._look(cell)
            else:
                states[cell], looks[cell] = states[first], looks[first]

    def _look(self, cell: int) -> bool:
        """Update the look of a cell; True if it has changed."""
        row = self.processors[cell]
        state = self._state(row)
        glyph, style = GLYPHS[state], _NAMES[state]
        if row.launcher is not None and state in (State.BUSY, State.DRAINING):
            if state is State.BUSY:
                glyph = HELD if row.launcher in self.held else self._letters.get(row.launcher, "?")
            style = f"hue-{self.hue(row.launcher)}"
        look = (glyph, style)
        if look == self._looks[cell] and state == self.states[cell]:
            return False
        self.states[cell] = state
        self._looks[cell] = look
        return True

    def _state(self, row: Processor) -> State:
        held = None
        if row.launcher is not None:
            launcher = self.launchers.get(row.launcher)
            held = launcher.state if launcher is not None else "busy"
        node = self.nodes[self._node_index[row.node]]
        return _state(node.state, node.role, row.mode, row.reserved_for or None, held, row.partition is not None)

    # Queries

    def identity(self, node: Node) -> Identity:
        """What facts about the node belong to now."""
        return Identity(self.boot_id, node.boot_id)

    def status(self, node: Node) -> Observation[NodeStatus] | None:
        """The last answer of the node's PCT; None if the node is down, or was started anew since."""
        return self._of_now(self.statuses.get(node.id), node)

    def trouble_of(self, node: Node) -> str:
        """Why the node's PCT does not answer; empty if it does, was not asked, or the node is down."""
        found = self._of_now(self.unanswered.get(node.id), node)
        return "" if found is None else found.value

    def _of_now(self, found: Observation[Value] | None, node: Node) -> Observation[Value] | None:
        return found if found is not None and node.state != "down" and found.of == self.identity(node) else None

    def counts(self) -> dict[State, int]:
        """How many processors are in each state."""
        return {state: self.states.count(state) for state in State}

    def appearance(self, cell: int) -> tuple[str, str]:
        """Glyph and style (``free`` …, ``hue-3`` for a launcher)."""
        return self._looks[cell]

    def letter(self, launcher: int) -> str:
        """The launcher's letter on the map."""
        return self._letters.get(launcher, "?")

    @property
    def nodes_with_processors(self) -> int:
        """How many nodes have processors."""
        return self._nodes_with_processors

    def hue(self, launcher: int) -> int:
        """The colour of a launcher on the map."""
        return self._hues.get(launcher, 0)

    def cell_of(self, processor: int) -> int | None:
        """The cell of a processor id."""
        return self._cell_of.get(processor)

    def cells_of_launcher(self, launcher: int) -> list[int]:
        """The launcher's cells, in the order of the map."""
        return [cell for cell, row in enumerate(self.processors) if row.launcher == launcher]

    def node_of(self, cell: int) -> int:
        """The index of the cell's node in ``nodes``."""
        return self._node_index[self.processors[cell].node]

    def cells_of_node(self, node: int) -> range:
        """The cells of a node's id; empty for a removed node."""
        index = self._node_index.get(node)
        return range(0) if index is None else self.node_cells(index)

    def node_cells(self, index: int) -> range:
        """The cells of a node."""
        first, count = self._cells_of_node[index]
        return range(first, first + count)

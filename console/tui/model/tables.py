"""The tables' contents: columns, filters, order. No I/O; rows are the machine's own objects.

A row's texts and key are cached while the row is the same object, so that an update of ten thousand rows with a hundred
changes costs a hundred.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from rich.cells import cell_len

from console.tui.format import clock, elapsed, program_words
from console.tui.model.jobs import Job
from console.tui.model.machine import Event, Launcher, Machine, Node, NodeStatus, Partition
from console.tui.model.patterns import FilterError, Pattern, TooSlowError, within
from redmesh.idset import fold_names

_MEASURED = 1_000  # with more rows, columns keep the width of texts that are gone
_SPECIAL = frozenset(".^$*+?{}[]\\|()")  # what a regular expression reads as more than itself
_FILTERING_S = 1.0  # the longest time in which a filter looks at all rows, because keys wait for it
_GROWN = 30  # the least width of the column that takes the rest


class Column(NamedTuple):
    """``text``: of a row. ``key``: to sort by (None: the text). ``moves``: the text changes while time passes."""

    name: str
    text: Callable[[Any, Machine], str]
    key: Callable[[Any, Machine], Any] | None = None
    right: bool = False
    most: int = 24  # columns of the screen; 0: takes the rest
    moves: bool = False
    rank: int = 0  # with little space, columns with the highest rank are dropped first
    whole: Callable[[Any], str] | None = None  # the text for export and filter, if it is longer than the shown one


class Table(NamedTuple):
    """A kind of table. ``rows`` are the present rows, by id."""

    name: str
    noun: str
    columns: tuple[Column, ...]
    rows: Callable[[Machine], Iterable[tuple[int, Any]]]
    newest_first: bool = False


@lru_cache(1 << 17)  # to sort ten thousand names anew took a tenth of a core
def _natural(name: str) -> str:
    """``n10`` after ``n9``."""
    return re.sub("[0-9]+", lambda number: number[0].zfill(20), name)


def _age(row: Launcher | Partition, machine: Machine) -> str:
    end = getattr(row, "ended_at", None)
    begun = getattr(row, "started_at", None) or row.created_at
    return elapsed(max(0.0, (machine.now if end is None else end) - begun))


def _exit(row: Launcher, _: Machine) -> str:
    return "" if row.ended_at is None else "" if row.exit_status is None else str(row.exit_status)


def _nodes_of(row: Launcher, machine: Machine) -> str:
    """The nodes of its processors, also for an ended launch; of one in an earlier boot, in which processors had other
    numbers, the processors."""
    if row.ended_at is not None and row.created_at < machine.booted_at:
        return f"processors {row.processors}" if row.processors else ""
    names: dict[str, None] = {}
    for run in row.processors.split(",") if row.processors else ():
        first, _, last = run.partition("..")
        at, end = machine.cell_of(int(first)), machine.cell_of(int(last or first))
        while at is not None and end is not None and at <= end:
            node = machine.node_of(at)
            names[machine.nodes[node].name] = None
            at = machine.node_cells(node).stop
    return fold_names(list(names)) if names else ""


def _node_reason(row: Node, machine: Machine) -> str:
    """Why it is in its state, when it will be drained, and the batch job that it came from."""
    return "; ".join(filter(None, (row.why, drain_text(row), machine.origins.get(row.name, ""))))


def drain_text(node: Node) -> str:
    """``drained at 22:00:00: REASON`` for a node that will be drained; otherwise empty."""
    if node.drain_at is None:
        return ""
    return f"drained at {clock(node.drain_at)}" + (f": {node.drain_reason}" if node.drain_reason else "")


def _status(node: Node, machine: Machine) -> NodeStatus | None:
    """The status that its PCT told just now; an older one is in the details, with its age."""
    found = machine.status(node)
    return None if found is None or found.old(time.monotonic()) else found.value


def _load(node: Node, machine: Machine) -> float:
    status = _status(node, machine)
    return status.load[0] if status is not None and status.load else -1.0


def _memory(node: Node, machine: Machine) -> float:
    status = _status(node, machine)
    share = None if status is None else status.memory_share
    return -1.0 if share is None else share


def _ranks(node: Node, machine: Machine) -> int:
    status = _status(node, machine)
    return -1 if status is None else sum(map(len, status.processes.values()))


def _busy(node: Node, machine: Machine) -> tuple[int, int]:
    cells = machine.cells_of_node(node.id)
    return sum(machine.processors[cell].launcher is not None for cell in cells), len(cells)


def _use(node: Node, machine: Machine) -> str:
    busy, cells = _busy(node, machine)
    return f"{busy}/{cells}" if cells else ""


LAUNCHERS = Table(
    "launchers", "launcher",
    (
        Column("id", lambda r, m: str(r.id), lambda r, m: r.id, True, 8),
        Column("user", lambda r, m: r.user, most=12),
        Column("state", lambda r, m: "ended" if r.ended_at is not None else r.state, most=8),
        Column("size", lambda r, m: str(r.size), lambda r, m: r.size, True, 7),
        Column("duration", _age, lambda r, m: -(r.started_at or r.created_at), True, 9, True),
        Column("exit", _exit, lambda r, m: -1 if r.exit_status is None else r.exit_status, True, 5, rank=2),
        Column("nodes", _nodes_of, lambda r, m: _natural(_nodes_of(r, m)), most=24, rank=2),
        Column("partition", lambda r, m: "" if r.partition is None else str(r.partition), lambda r, m: r.partition or 0,
               True, 9, rank=4),
        Column("batch job", lambda r, m: r.batch_job, most=14, rank=3),
        Column("yod", lambda r, m: f"{r.login or '?'}/{r.pid}", most=20, rank=5),
        Column("command", lambda r, m: " ".join(program_words(r.command)), most=0, whole=lambda r: r.command),
    ),
    lambda m: m.launchers.items(),
)  # fmt: skip

PARTITIONS = Table(
    "partitions", "partition",
    (
        Column("id", lambda r, m: str(r.id), lambda r, m: r.id, True, 9),
        Column("user", lambda r, m: r.user, most=12),
        Column("batch job", lambda r, m: r.batch_job or "interactive", most=18),
        Column("size", lambda r, m: str(r.size), lambda r, m: r.size, True, 7),
        Column("max in use", lambda r, m: str(r.max_in_use), lambda r, m: r.max_in_use, True, 10, rank=2),
        Column("error", lambda r, m: "yes" if r.batch_job_error else "", most=5, rank=1),
        Column("age", _age, lambda r, m: -r.created_at, True, 9, True),
        Column("processors", lambda r, m: r.processors, most=0),
    ),
    lambda m: m.partitions.items(),
)  # fmt: skip

NODES = Table(
    "nodes", "node",
    (
        Column("name", lambda r, m: r.name, lambda r, m: _natural(r.name)),
        Column("state", lambda r, m: r.state, most=9),
        Column("in use", _use, lambda r, m: _busy(r, m), True, 9, True),
        Column("load", lambda r, m: f"{load:.2f}" if (load := _load(r, m)) >= 0 else "", _load, True, 7, True, rank=2),
        Column("memory", lambda r, m: f"{used:.0%}" if (used := _memory(r, m)) >= 0 else "", _memory, True, 7, True,
               rank=2),
        Column("ranks", lambda r, m: str(ranks) if (ranks := _ranks(r, m)) >= 0 else "", _ranks, True, 7, True, rank=2),
        Column("since", lambda r, m: elapsed(m.now - r.state_at) if r.state_at else "", lambda r, m: -r.state_at, True,
               9, True, rank=2),
        Column("role", lambda r, m: r.role, most=8, rank=3),
        Column("side", lambda r, m: str(r.side), lambda r, m: r.side, True, 4, rank=6),
        Column("agent", lambda r, m: r.agent, most=10, rank=5),
        Column("address", lambda r, m: r.address, most=64, rank=4),
        Column("reason", _node_reason, most=0),
    ),
    lambda m: ((node.id, node) for node in m.nodes),
)  # fmt: skip

EVENTS = Table(
    "events", "event",
    (
        Column("time", lambda r, m: clock(r.at), lambda r, m: (r.at, r.id), most=13),
        Column("kind", lambda r, m: r.kind, most=18),
        Column("node", lambda r, m: r.node, most=16),
        Column("launcher", lambda r, m: "" if r.launcher is None else str(r.launcher), lambda r, m: r.launcher or 0,
               True, 8),
        Column("partition", lambda r, m: "" if r.partition is None else str(r.partition), lambda r, m: r.partition or 0,
               True, 9, rank=2),
        Column("text", lambda r, m: r.text, most=0),
    ),
    lambda m: ((event.id, event) for event in m.events),
    newest_first=True,
)  # fmt: skip


def _job_time(row: Job, _: Machine) -> str:
    return elapsed((row.ended_at or time.time()) - row.begun_at) if row.begun_at else ""


def _rate(row: Job, machine: Machine) -> str:
    from console.jobs.rows import rate_text  # needed only where there are jobs

    del machine
    return rate_text(row.rate(time.time()))


def _left(row: Job, _: Machine) -> str:
    left = row.left_s(time.time())
    return elapsed(left) if left is not None and row.running else ""


JOBS = Table(
    "jobs", "job",
    (
        Column("submitted", lambda r, m: clock(r.created_at), lambda r, m: r.created_at, most=13, rank=4),
        Column("id", lambda r, m: r.id, most=8),
        Column("name", lambda r, m: r.name, most=18),
        Column("kind", lambda r, m: f"{r.noun}s", most=8, rank=5),
        Column("state", lambda r, m: r.shown, most=36),
        Column("done", lambda r, m: f"{r.finished:,} of {r.tasks:,}", lambda r, m: r.finished / max(1, r.tasks), True,
               20),
        Column("running", lambda r, m: f"{r.running:,}" if r.running else "", lambda r, m: r.running, True, 9, rank=2),
        Column("failed", lambda r, m: f"{r.failed:,}" if r.failed else "", lambda r, m: r.failed, True, 9),
        Column("rate", _rate, lambda r, m: r.rate(time.time()), True, 9, True, rank=3),
        Column("time", _job_time, lambda r, m: -r.begun_at, True, 9, True, rank=2),
        Column("left", _left, lambda r, m: r.left_s(time.time()) or 0.0, True, 9, True, rank=1),
        Column("owner", lambda r, m: r.owner, most=16, rank=4),
        Column("command", lambda r, m: " ".join(program_words(r.command)), most=0, whole=lambda r: r.command),
    ),
    lambda m: ((number, job) for number, job in m.jobs.items() if job.live),
)  # fmt: skip

TABLES = {table.name: table for table in (LAUNCHERS, PARTITIONS, NODES, EVENTS, JOBS)}


def matcher(text: str) -> Callable[[str], bool]:
    """A filter's test: a regular expression; after ``!`` its negation; after ``~`` letters in order.

    Case matters only if the filter contains capitals. Raises FilterError; the test raises TooSlowError.
    """
    inverted = text.startswith("!")
    text = text.removeprefix("!")
    if not text:
        return lambda _: True
    search = _searcher(text)
    return (lambda line: not search(line)) if inverted else search


def _searcher(text: str) -> Callable[[str], bool]:
    if text.startswith("~"):
        return partial(in_order, text[1:])
    if _SPECIAL.isdisjoint(text):  # a word: a fifth of the time of an expression
        return partial(_contains, text, text == text.lower())
    return Pattern(text).search


def in_order(letters: str, line: str) -> bool:
    """True if the line has these letters in this order; case matters only if they contain capitals."""
    if letters == letters.lower():
        line = line.lower()
    at = 0
    for letter in letters:
        at = line.find(letter, at) + 1
        if not at:
            return False
    return True


def _contains(word: str, any_case: bool, line: str) -> bool:
    return word in (line.lower() if any_case else line)


class _Kept(NamedTuple):
    row: Any
    texts: tuple[str, ...]


class Rows:
    """A table's shown rows: filtered and sorted."""

    def __init__(self, table: Table, machine: Machine) -> None:
        self.table = table
        self.order: list[int] = []  # ids
        self.total = 0
        self.sort = 0
        self.reverse = table.newest_first
        self.filter = ""
        self.extra: list[tuple[int, Any]] = []  # rows outside the machine: ended launchers
        self.widest: list[int] = [0] * len(table.columns)  # over all texts so far
        self._machine = machine
        self._matches: Callable[[str], bool] | None = None
        self._kept: dict[int, _Kept] = {}
        self._lines: dict[int, str] = {}  # for the filter: the texts of a row, once a filter has asked for them
        self._passes: dict[int, bool] = {}  # whether a row passes the filter, once it was looked at
        self._sorted: tuple[int, ...] = ()  # by which column all are sorted, and for which shape of the machine
        self._in_order: list[int] = []  # the ids of all rows in that order
        self.refused: FilterError | None = None  # why the filter was dropped

    def set_filter(self, text: str) -> None:
        """Set a filter. On FilterError the old one stays."""
        matches = matcher(text)
        self._matches = matches if text else None
        self.filter = text
        self._passes = {}
        self.refused = None

    def refresh(self) -> None:
        """Apply the machine's changes, and arrange the rows."""
        kept, before = self._kept, self._kept.get
        rows = dict((*self.extra, *self.table.rows(self._machine)))
        new = [key for key, row in rows.items() if (old := before(key)) is None or old.row is not row]
        if new or len(rows) != len(kept):
            made = dict(zip(new, self._keep([rows[key] for key in new]), strict=True))
            self._kept = {key: made[key] if key in made else kept[key] for key in rows}
            self._lines = {key: line for key, line in self._lines.items() if key not in made and key in rows}
            self._passes = {key: passes for key, passes in self._passes.items() if key in self._lines}
            self.total = len(rows)
            self._sorted = ()
        self.arrange()

    def arrange(self) -> None:
        """Apply another order or filter. A filter that takes too long is dropped; ``refused`` says so.

        Of ten thousand nodes, a third of the time of ``refresh`` goes into looking for changes.
        """
        self._sort()
        self.order = self._in_order[:: -1 if self.reverse else 1]
        if self._matches is not None:
            try:
                self._filter(within(self.filter, self._matches, _FILTERING_S))
            except TooSlowError as error:
                self.set_filter("")
                self.refused = error
            else:
                self.order = [key for key in self.order if self._passes[key]]

    def _filter(self, matches: Callable[[str], bool]) -> None:
        """Look at the rows that the filter has not seen. Raises TooSlowError."""
        lines, passes = self._lines, self._passes
        for key, one in self._kept.items():
            if key not in passes:
                if key not in lines:
                    lines[key] = self._line(one)
                passes[key] = matches(lines[key])

    def _sort(self) -> None:
        """Sort all rows by the column; those with an equal text or key by their ids."""
        column = self.table.columns[self.sort]
        by = (self.sort, self._machine.shapes)
        if self._sorted != by or column.moves:
            self._sorted = by
            self._in_order = sorted(sorted(self._kept), key=self._keys(column).__getitem__)

    def _keys(self, column: Column) -> dict[int, Any]:
        kept, machine, key_of = self._kept, self._machine, column.key
        if key_of is None:
            at = self.sort
            return {key: one.texts[at] for key, one in kept.items()}
        return {key: key_of(one.row, machine) for key, one in kept.items()}

    def _keep(self, rows: list[Any]) -> list[_Kept]:
        """The rows with their texts, column by column: thousands of rows have few different texts."""
        machine = self._machine
        columns: list[list[str]] = []
        for i, column in enumerate(self.table.columns):
            text = column.text
            texts = [""] * len(rows) if column.moves else [text(row, machine) for row in rows]
            self.widest[i] = max(self.widest[i], *map(cell_len, set(texts)), 0)
            columns.append(texts)
        return [_Kept(row, texts) for row, texts in zip(rows, zip(*columns, strict=True), strict=True)]

    def _line(self, one: _Kept) -> str:
        """The text that a filter sees."""
        whole = (
            text if column.whole is None else column.whole(one.row)
            for column, text in zip(self.table.columns, one.texts, strict=True)
        )
        return " ".join(filter(None, whole))

    def row(self, key: int) -> Any:
        """The row of an id. Raises KeyError."""
        return self._kept[key].row

    def texts(self, key: int) -> list[str]:
        """The present texts of its columns. Raises KeyError."""
        kept, machine = self._kept[key], self._machine
        columns = self.table.columns
        return [column.text(kept.row, machine) if column.moves else kept.texts[i] for i, column in enumerate(columns)]

    def widths(self, room: int) -> list[int]:
        """The width of each column in the given space, 0 if it is left out; gaps are two columns wide."""
        columns = self.table.columns
        widest = self.widest
        natural = self._natural(widest)
        if sum(natural) + 2 * len(natural) - 2 > room and self._kept and len(self._kept) <= _MEASURED:
            # A text that is gone takes no room from others. While there is room for all, columns stay where they are.
            texts = zip(*(row.texts for row in self._kept.values()), strict=True)
            widest = [max(map(cell_len, column)) for column in texts]
            natural = self._natural(widest)
        filled = {i for i, column in enumerate(columns) if widest[i] or column.moves or i == self.sort}
        shown = set(filled) if self.order else set(range(len(columns)))
        dropped = []
        for i in sorted(shown, key=lambda i: -columns[i].rank):
            if sum(natural[i] + 2 for i in shown) - 2 <= room or not columns[i].rank:
                break
            shown.discard(i)
            dropped.append(i)
        left = room - sum(natural[i] + 2 for i in shown) + 2
        for i in reversed(dropped):  # a narrow column may fit where a wide one of lower rank did not
            if natural[i] + 2 <= left:
                shown.add(i)
                left -= natural[i] + 2
        return [0 if i not in shown else natural[i] + (0 if column.most else left) for i, column in enumerate(columns)]

    def _natural(self, widest: list[int]) -> list[int]:
        """The width that each column would have, by the widths of its texts."""
        return [
            max(len(column.name), 9 if column.moves else min(column.most or _GROWN, width))
            for column, width in zip(self.table.columns, widest, strict=True)
        ]


def as_records(rows: Rows, keys: Sequence[int]) -> list[dict[str, Any]]:
    """Rows as plain objects with all data, for export."""
    records = []
    for key in keys:
        row = rows.row(key)
        record = dict(row._asdict())
        record.pop("ranks", None)
        records.append(record)
    return records


def as_csv(rows: Rows, keys: Sequence[int]) -> str:
    """The columns as CSV with a header. Texts that a spreadsheet would read as formulas get an apostrophe."""
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in rows.table.columns])
    for key in keys:
        shown = zip(rows.table.columns, rows.texts(key), strict=True)
        texts = [text if column.whole is None else column.whole(rows.row(key)) for column, text in shown]
        writer.writerow(["'" + text if text[:1] in ("=", "+", "-", "@", "\t") else text for text in texts])
    return out.getvalue()


def launcher_of(table: Table, row: Launcher | Partition | Node | Event) -> int | None:
    """The launcher that a row is, or names."""
    if table is LAUNCHERS:
        return row.id
    return row.launcher if isinstance(row, Event) else None


def cells_of(table: Table, row: Any, machine: Machine) -> list[int]:
    """The cells of a row: of a launcher, a partition, a node; of an event's node or launcher."""
    if table is PARTITIONS:
        return [cell for cell, one in enumerate(machine.processors) if one.partition == row.id]
    if table is NODES:
        return list(machine.cells_of_node(row.id))
    launcher = launcher_of(table, row)
    if launcher is not None and launcher in machine.launchers:
        return machine.cells_of_launcher(launcher)
    if table is EVENTS and row.node:
        return [cell for i, node in enumerate(machine.nodes) if node.name == row.node for cell in machine.node_cells(i)]
    return []

"""The console's only access to the database: a separate thread reads, the event loop gets pictures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from console.own_texts import OwnTexts
from console.settings import Settings
from console.tui.model.machine import MOST_EVENTS, Event, Launcher, Node, Partition, Picture, Processor
from db.views.rows import typed
from db.views.viewer import Viewer
from redmesh.sanitise import clean

FIRST_EVENTS = 1_000  # read at the start


class Translator:
    """Converts rows of the database to the console's, with every text sanitised."""

    def __init__(self) -> None:
        self._counter = -1
        self._mesh = ""
        self._boot_id = ""
        self._booted_at = 0.0
        self._batch_jobs: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._names_of_boots: dict[tuple[int, float], dict[int, str]] = {}  # by id and time of the event of each

    def same(self, now: float) -> Picture:
        """A picture in which only the time has changed."""
        return Picture(
            False, self._counter, now, self._mesh, [], [], [], [], boot_id=self._boot_id, booted_at=self._booted_at
        )

    def picture(self, reading: Any, events: list[Any]) -> Picture:
        """Convert a reading."""
        self._counter, self._mesh = reading.counter, clean(reading.mesh.name or "")
        self._boot_id, self._booted_at = reading.mesh.boot_id or "", reading.mesh.booted_at or 0.0
        if reading.whole:
            self._batch_jobs, self._names = {}, {}
        for row in reading.partitions:
            self._batch_jobs[row.id] = clean(row.batch_job or "")
            if row.ended_at is not None:
                del self._batch_jobs[row.id]
        nodes = _nodes(reading.nodes)
        self._names.update((node.id, node.name) for node in nodes)
        return Picture(
            reading.whole,
            reading.counter,
            reading.now,
            self._mesh,
            nodes,
            _processors(reading.processors),
            [self.launcher(row) for row in reading.launchers if row.ended_at is None],
            [row.id for row in reading.launchers if row.ended_at is not None],
            [_partition(row) for row in reading.partitions if row.ended_at is None],
            [row.id for row in reading.partitions if row.ended_at is not None],
            reading.mesh.topology or "",
            self._events(events),
            self._boot_id,
            self._booted_at,
        )

    def launcher(self, row: Any) -> Launcher:
        """A row of ``launcher``."""
        return Launcher(
            row.id,
            clean(row.user or ""),
            row.uid,
            clean(row.command or ""),
            row.size,
            row.state,
            self._login(row),
            row.pid,
            row.partition,
            self._batch_jobs.get(row.partition, ""),
            row.created_at,
            row.started_at,
            row.pending_until or 0.0,
            row.ranks or "",
            row.processors or "",
            row.ended_at,
            row.exit_status,
            clean(row.reason or ""),
        )

    def _login(self, row: Any) -> str:
        """The login processor; empty if it had that number in an earlier boot."""
        if row.ended_at is not None and row.created_at < self._booted_at:
            return ""
        return self._names.get(row.login_processor, str(row.login_processor))

    def _events(self, rows: list[Any]) -> list[Event]:
        """The events in order. A node has the name that its number had in the boot of its event; without a name if
        that boot was not read, because the number may be another node's now."""
        begins = [at for at, row in enumerate(rows) if row.kind == "boot"]
        last = begins[-1] if begins else -1
        if begins:
            self._names_of_boots[rows[last].id, rows[last].at] = self._names
        names = self._names if last < 0 else {}
        found = []
        for at, row in enumerate(rows):
            if row.kind == "boot":
                names = self._names_of_boots.get((row.id, row.at), {})
            found.append(self._event(row, names.get(row.node, "" if at < last else str(row.node))))
        return found

    def _event(self, row: Any, name: str) -> Event:
        node = "" if row.node is None else name
        return Event(row.id, row.at, clean(row.kind), node, row.launcher, row.partition, clean(row.text or ""))


class MachineReader:
    """Reads the machine by its change counter. Raises db.errors.StoreError."""

    def __init__(self, settings: Settings) -> None:
        self._viewer = Viewer(settings.database, settings.login)
        self._own = OwnTexts(settings)
        # A single thread, because a connection has one user at a time, and a slow database must not queue up work.
        self._thread = ThreadPoolExecutor(1, "database")
        self._counter: int | None = None
        self._now = 0.0
        self._now_read_at = 0.0
        self._last_event: int | None = None
        self._translator = Translator()

    async def read(self) -> Picture:
        """The changes since the last call; everything at first, and after the database was away."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._read)

    async def history(self, limit: int) -> list[Launcher]:
        """Ended launchers, the newest first."""
        rows = await asyncio.get_running_loop().run_in_executor(self._thread, self._history, limit)
        return [self._translator.launcher(row) for row in rows]

    def close(self) -> None:
        """Close, without waiting for a database that does not answer."""
        self._thread.submit(self._viewer.close)
        self._thread.shutdown(wait=False)

    def _history(self, limit: int) -> list[Any]:
        return self._own.put_into(self._viewer.history(limit))

    def _read(self) -> Picture:
        try:
            if self._counter is not None and self._viewer.counter() == self._counter:
                return self._translator.same(self._now + time.monotonic() - self._now_read_at)
            reading = self._viewer.read(self._counter)
            after = None if reading.whole else self._last_event
            events = self._viewer.events(after, FIRST_EVENTS if after is None else MOST_EVENTS)
        except Exception:
            self._counter = None  # after a gap everything is read again, because it may be another database
            raise
        self._counter, self._now, self._now_read_at = reading.counter, reading.now, time.monotonic()
        if events:
            self._last_event = events[-1].id
        return self._translator.picture(reading._replace(launchers=self._own.put_into(reading.launchers)), events)


def _partition(row: Any) -> Partition:
    return Partition(
        row.id,
        clean(row.user or ""),
        row.uid,
        clean(row.batch_job or ""),
        row.size,
        row.processors or "",
        row.created_at,
        row.max_in_use,
        bool(row.batch_job_error),
    )


# Tens of thousands of rows are converted at the start, so they are converted column by column.


def _nodes(rows: list[Any]) -> list[Node]:
    if not rows:
        return []
    (
        number, name, role, address, state, reason, by, boot, incarnation, agent, state_at, side, drain_at,
        drain_reason, _,
    ) = zip(*rows, strict=True)  # fmt: skip
    columns = (
        number, _texts(name), role, state, _texts(reason), _texts(address), _texts(agent), _numbers(incarnation, 0),
        _numbers(state_at, 0.0), _texts(by), _numbers(side, 1), drain_at, _texts(drain_reason),
        _texts(boot),
    )  # fmt: skip
    return typed(Node, zip(*columns, strict=True))


def _processors(rows: list[Any]) -> list[Processor]:
    if not rows:
        return []
    number, node, slot, mode, reserved_for, partition, launcher, _ = zip(*rows, strict=True)
    return typed(Processor, zip(number, node, slot, mode, _texts(reserved_for), partition, launcher, strict=True))


def _texts(column: Sequence[str | None]) -> list[str]:
    """The column with every text sanitised."""
    texts = [text or "" for text in column]
    together = "".join(texts)
    return texts if together.isascii() and together.isprintable() else [clean(text) for text in texts]


def _numbers(column: Sequence[Any], unknown: float) -> list[Any]:
    return [number or unknown for number in column]

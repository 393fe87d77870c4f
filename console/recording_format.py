"""Writes and reads recordings: files with the change stream of a mesh. docs/recording.md describes the format.

A file has lines of JSON: a head that names the columns, then one reading per line. Complete readings are repeated at
intervals, so that a replay can begin in the middle.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from typing import IO, Any, NamedTuple

from console.errors import ConsoleError
from db.views.rows import EventRow, LauncherRow, MeshRow, NodeRow, PartitionRow, ProcessorRow, Reading

FORMAT, VERSION = "redmesh recording", 1
#: After this many changed rows, or this many seconds, a complete reading is written again.
WHOLE_AFTER_ROWS, WHOLE_AFTER_S = 20_000, 600.0
_TABLES = {
    "nodes": NodeRow,
    "processors": ProcessorRow,
    "launchers": LauncherRow,
    "partitions": PartitionRow,
    "events": EventRow,
}
_LONGEST = 256 << 20  # the most bytes of a line: a machine of a million processors needs fewer


class RecordingError(ConsoleError):
    """The file is not a recording, or is a recording of another version."""

    exit_status = 2


class Record(NamedTuple):
    """One line: a reading with its events, or the reason why the database could not be read (``gap``)."""

    at: float
    reading: Any = None
    events: list[Any] = []
    gap: str = ""


def head() -> str:
    """The first line of a recording."""
    columns = {name: row._fields for name, row in _TABLES.items()}  # type: ignore[attr-defined]
    return _line({"format": FORMAT, "version": VERSION, "columns": columns})


def write(reading: Any, events: list[Any]) -> str:
    """The line for a reading and its events."""
    mesh = reading.mesh
    return _line(
        {
            "at": reading.now,
            "whole": reading.whole,
            "counter": reading.counter,
            "mesh": {"name": mesh.name, "boot_id": mesh.boot_id, "topology": mesh.topology},
            "nodes": reading.nodes,
            "processors": reading.processors,
            "launchers": reading.launchers,
            "partitions": reading.partitions,
            "events": events,
        }
    )


def write_gap(at: float, why: str) -> str:
    """The line for a moment at which the database could not be read."""
    return _line({"at": at, "gap": why})


def _line(what: dict[str, Any]) -> str:
    return json.dumps(what, separators=(",", ":")) + "\n"


class Recording:
    """A recording opened for reading. Raises RecordingError."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._times: list[float] = []
        self._offsets: list[int] = []
        self._wholes: list[int] = []  # numbers of the records that are complete readings
        try:
            self._file: IO[bytes] = open(path, "rb")  # noqa: SIM115  read from for as long as it is shown
        except OSError as error:
            raise RecordingError(f"{path}: {error.strerror}") from None
        try:
            self._columns = self._read_head()
            self._index()
        except RecordingError:
            self._file.close()
            raise

    def _read_head(self) -> dict[str, list[str]]:
        found = _decoded(self._file.readline(_LONGEST))
        if not found or found.get("format") != FORMAT:
            raise RecordingError(f"{self.path} is not a recording of a mesh", "mesh record FILE makes one")
        if found.get("version") != VERSION:
            raise RecordingError(
                f"{self.path} is of version {found.get('version')}, and this console reads {VERSION}",
                "show it with the console of the version that recorded it",
            )
        columns = found.get("columns")
        if not isinstance(columns, dict) or not all(isinstance(columns.get(name), list) for name in _TABLES):
            raise RecordingError(f"{self.path} does not name its columns")
        return columns

    def _index(self) -> None:
        """Read the offset and time of every record; ignore a last line that was cut off."""
        at = 0.0
        while True:
            offset = self._file.tell()
            line = self._file.readline(_LONGEST)
            if not line.endswith(b"\n"):
                break
            record = _decoded(line)
            if record is None or not isinstance(record.get("at"), int | float):
                raise RecordingError(f"{self.path}: record {len(self._times) + 1} cannot be read")
            if record.get("whole"):
                self._wholes.append(len(self._times))
            # Keep times ascending, so that a clock that was set back does not hide later records.
            at = max(at, float(record["at"]))
            self._times.append(at)
            self._offsets.append(offset)
        if not self._wholes or self._wholes[0]:
            raise RecordingError(f"{self.path} does not begin with a whole picture")

    def __len__(self) -> int:
        return len(self._times)

    @property
    def begin(self) -> float:
        """The time of the first record."""
        return self._times[0]

    @property
    def end(self) -> float:
        """The time of the last record."""
        return self._times[-1]

    def last_before(self, at: float) -> int:
        """The number of the last record at or before ``at``; 0 if ``at`` is before the first record."""
        return max(0, bisect_right(self._times, at) - 1)

    def whole_before(self, number: int) -> int:
        """The number of the last complete reading at or before record ``number``: a replay to it starts there."""
        return self._wholes[max(0, bisect_right(self._wholes, number) - 1)]

    def record(self, number: int) -> Record:
        """Read a record, with rows like the database's. Raises RecordingError."""
        self._file.seek(self._offsets[number])
        found = _decoded(self._file.readline(_LONGEST))
        try:
            if found is None:
                raise ValueError("no JSON")
            return self._record(found)
        except (KeyError, TypeError, ValueError) as error:
            raise RecordingError(f"{self.path}: record {number + 1} cannot be read: {error}") from None

    def _record(self, found: dict[str, Any]) -> Record:
        at = float(found["at"])
        if "gap" in found:
            return Record(at, gap=str(found["gap"]))
        rows = {name: self._rows(name, found.get(name) or []) for name in _TABLES}
        mesh = found["mesh"]
        row = MeshRow(mesh["boot_id"], mesh["name"], mesh["topology"], 0, found["counter"], 0, 0.0)
        tables = (rows["nodes"], rows["processors"], rows["launchers"], rows["partitions"])
        return Record(at, Reading(bool(found.get("whole")), int(found["counter"]), at, row, *tables), rows["events"])

    def _rows(self, name: str, rows: list[list[Any]]) -> list[Any]:
        """Convert rows by the names of columns: unknown columns are ignored, missing ones are None."""
        row_type: Any = _TABLES[name]
        where = {column: i for i, column in enumerate(self._columns[name])}
        if list(where) == list(row_type._fields):
            return [row_type._make(row) for row in rows]
        places = [where.get(field) for field in row_type._fields]
        return [row_type._make(None if i is None else row[i] for i in places) for row in rows]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _decoded(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class Fold:
    """Merges consecutive readings into one."""

    def __init__(self) -> None:
        self.gap = ""
        self._whole = False
        self._last: Any = None
        self._tables: list[dict[int, Any]] = [{}, {}, {}, {}]
        self._events: list[Any] = []

    def take(self, record: Record) -> None:
        """Add the next record."""
        self.gap = record.gap
        reading = record.reading
        if reading is None:
            return
        if reading.whole:
            self._whole, self._tables, self._events = True, [{}, {}, {}, {}], []
        self._last = reading
        rows = (reading.nodes, reading.processors, reading.launchers, reading.partitions)
        for table, changed in zip(self._tables, rows, strict=True):
            table.update((row.id, row) for row in changed)
        self._events += record.events

    def result(self, now: float) -> tuple[Any, list[Any]] | None:
        """Return the merged reading, with the time ``now``, and its events; None if no reading was added."""
        if self._last is None:
            return None
        tables = [list(table.values()) for table in self._tables]
        reading = Reading(self._whole, self._last.counter, now, self._last.mesh, *tables)
        return reading, self._events

"""``mesh record``: writes the mesh's change stream to a file, for ``mesh console --replay``."""

import argparse
import os
import signal
import sys
import time
from typing import IO, Any

from console import recording_format
from console.errors import ConsoleError, next_step
from console.settings import Settings
from db.errors import StoreError
from db.views.viewer import Viewer, open_viewer
from redmesh.text import counted

_FIRST_EVENTS, _EVENTS = 1_000, 10_000


def record(settings: Settings, options: argparse.Namespace) -> int:
    """Record until interrupted, or for a given time; returns 0. Raises ConsoleError if the file cannot be created."""
    signal.signal(signal.SIGTERM, _interrupt)
    with _opened(options.file) as file, open_viewer(settings.database, settings.login) as viewer:
        recorder = Recorder(viewer, file)
        recorder.begin()
        deadline = None if options.seconds is None else time.monotonic() + options.seconds
        try:
            while (left := options.every if deadline is None else deadline - time.monotonic()) > 0:
                time.sleep(min(options.every, left))  # the interval of the recording
                recorder.step()
        except KeyboardInterrupt:
            pass
        recorder.end()
    where = "" if options.file == "-" else f" in {options.file}"
    print(
        f"mesh record: {counted(recorder.records, 'reading')}, {counted(recorder.rows, 'row')}{where}", file=sys.stderr
    )
    return 0


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _opened(path: str) -> IO[str]:
    if path == "-":
        return open(os.dup(1), "w", encoding="utf-8")
    try:
        # Only the owner may read the file, because the database restricts who may see the machine.
        return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w", encoding="utf-8")
    except FileExistsError:
        raise ConsoleError(f"{path} exists already", "choose another name", exit_status=2) from None
    except OSError as error:
        raise ConsoleError(f"{path}: {error.strerror}", next_step(error, writing=True), exit_status=2) from None


class Recorder:
    """Reads changes from the database and writes them to the recording."""

    def __init__(self, viewer: Viewer, file: IO[str]) -> None:
        self.records = 0
        self.rows = 0
        self._viewer, self._file = viewer, file
        self._counter: int | None = None
        self._event: int | None = None
        self._since_whole = 0
        self._whole_at = 0.0
        self._gap = ""

    def begin(self) -> None:
        """Write the header and the first, complete reading. Raises StoreError if that fails."""
        self._write(recording_format.head())
        self._read(None)

    def step(self) -> None:
        """Write changes, if there are any; if the database cannot be reached, write a gap."""
        try:
            if self._viewer.counter() != self._counter or self._gap:
                self._read(None if self._due or self._gap else self._counter)
        except StoreError as error:
            if not self._gap:
                self._gap = error.message
                self._write(recording_format.write_gap(time.time(), error.message))

    def end(self) -> None:
        """Write a last reading, whose time shows until when nothing changed."""
        try:
            self._read(self._counter)
        except StoreError:
            pass

    @property
    def _due(self) -> bool:
        late = time.monotonic() - self._whole_at > recording_format.WHOLE_AFTER_S
        return late or self._since_whole > recording_format.WHOLE_AFTER_ROWS

    def _read(self, since: int | None) -> None:
        reading = self._viewer.read(since)
        # With a complete reading, also the last events, so that a replay can begin there.
        after = None if reading.whole else self._event
        events = self._viewer.events(after, _FIRST_EVENTS if after is None else _EVENTS)
        if events:
            self._event = events[-1].id
        self._write(recording_format.write(reading, events))
        self._counter, self._gap = reading.counter, ""
        self._count(reading)

    def _count(self, reading: Any) -> None:
        rows = len(reading.nodes) + len(reading.processors) + len(reading.launchers) + len(reading.partitions)
        self.records += 1
        self.rows += rows
        self._since_whole = 0 if reading.whole else self._since_whole + rows
        if reading.whole:
            self._whole_at = time.monotonic()

    def _write(self, line: str) -> None:
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            told = f"the recording cannot be written: {error.strerror}"
            raise ConsoleError(told, next_step(error, writing=True)) from None

"""Starts, ends and crashes of launches as events, in addition to the database's. No I/O."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import NamedTuple

from console.launch.options.signal_names import signal_name
from console.tui.format import elapsed, program_words, several
from console.tui.model.jobs import job_of
from console.tui.model.launch import SIGNALLED
from console.tui.model.machine import Event, Launcher

_KEPT = 500
_NAMED = 2  # ends that a note gives line by line
_FAILED = 4  # names of failed ones in a note of many ends


class News:
    """Remembers which launchers were reported. Its events have negative numbers, unlike the database's."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._begun: dict[int, float] = {}  # when the launcher of each number was created
        self._ended: dict[int, float] = {}

    def _forget_others(self, launchers: Iterable[Launcher]) -> list[Launcher]:
        """The launchers, after forgetting everything if one of them has the number of another one: the database was
        created anew, and counts from 1 again."""
        rows = list(launchers)
        known = {**self._begun, **self._ended}
        if any(known.get(row.id, row.created_at) != row.created_at for row in rows):
            self.events = []
            self._begun, self._ended = {}, {}
        return rows

    def begun(self, launchers: Iterable[Launcher]) -> list[Event]:
        """An event for each running launcher that was not reported yet."""
        rows = self._forget_others(launchers)
        known = self._begun.keys() | self._ended.keys()
        fresh = [row for row in rows if row.started_at is not None and row.id not in known]
        self._begun.update((row.id, row.created_at) for row in fresh)
        return [self._event(row.started_at or 0.0, "launch_began", row, f"{row.user}: {_size(row)}") for row in fresh]

    def ended(self, launchers: Iterable[Launcher]) -> list[tuple[Launcher, Event]]:
        """An event for each ended launcher that was not reported yet, in order."""
        rows = self._forget_others(launchers)
        fresh = [row for row in rows if row.ended_at is not None and row.id not in self._ended]
        self._ended.update((row.id, row.created_at) for row in fresh)
        for row in fresh:
            self._begun.pop(row.id, None)
        return [
            (row, self._event(row.ended_at or 0.0, "launch_failed" if failed(row) else "launch_ended", row, how(row)))
            for row in sorted(fresh, key=lambda row: (row.ended_at or 0.0, row.id))
        ]

    def _event(self, at: float, kind: str, row: Launcher, told: str) -> Event:
        number = -2 * row.id - (kind != "launch_began")
        event = Event(number, at, kind, "", row.id, row.partition, told)
        self.events = [*self.events, event][-_KEPT:]
        return event


def failed(row: Launcher) -> bool:
    """True if it failed."""
    return row.exit_status != 0


def name(row: Launcher) -> str:
    """Its program or script without the path; of a job's workers, the job."""
    words = program_words(row.command)
    return " ".join(words) if job_of(row.command) else words[0] if words else f"launcher {row.id}"


def how(row: Launcher) -> str:
    """A launch and how it ended: ``heat: exit 3 after 2 min``."""
    status = row.exit_status
    if status is None:
        what = "ended, nobody knows how"
    elif SIGNALLED < status < SIGNALLED + signal.NSIG:
        what = f"exit {status} ({signal_name(status - SIGNALLED)})"
    else:
        what = f"exit {status}"
    took = f" after {elapsed((row.ended_at or 0.0) - row.started_at)}" if row.started_at else ""
    why = f": {row.reason}" if row.reason and row.reason not in ("ended", "exited") else ""
    return f"{name(row)}: {what}{took}{why}"


class Ended(NamedTuple):
    """An end that a note reports: of a launch, or of a job."""

    name: str  # the launch's number, or the job's short id
    text: str  # the whole line: ``launcher 7, heat: exit 3 after 2 min``
    failed: bool


def ended(row: Launcher) -> Ended:
    """The end of a launch."""
    return Ended(str(row.id), f"launcher {row.id}, {how(row)}", failed(row))


class Ends:
    """The ends that one note reports. While the note is in sight, later ends are added to it."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._lines: list[str] = []
        self._count = 0
        self._failed: list[str] = []  # names
        self._last = ""  # the line of the last one that failed

    def add(self, ends: Iterable[Ended]) -> None:
        """Add ends to what the note says."""
        for end in ends:
            self._count += 1
            self._lines = [*self._lines, end.text][: _NAMED + 1]
            if end.failed:
                self._failed.append(end.name)
                self._last = end.text

    @property
    def bad(self) -> bool:
        """True if one of them failed."""
        return bool(self._failed)

    @property
    def text(self) -> str:
        """A few by name. For more, their number, the names of those that failed, and how the last of these did.

        The table of events has a row for each, so what finds no room here is not lost.
        """
        if self._count <= _NAMED:
            return "\n".join(self._lines)
        told = f"{several(self._count, self._noun)} ended"
        if not self._failed:
            return told
        newest = self._failed[-_FAILED:]
        more = len(self._failed) - len(newest)
        names = ", ".join(newest) + (f" and {more:,} before" if more else "")
        return f"{told}, {len(self._failed):,} failed: {names}\n{self._last}"


def _size(row: Launcher) -> str:
    return f"{name(row)} on {several(row.size, 'processor')}"

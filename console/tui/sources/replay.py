"""A recording in place of the database: the same pictures, at any speed, from any time."""

from __future__ import annotations

import asyncio
import time

from console.recording_format import Fold, Recording
from console.tui.model.machine import Launcher, Picture
from console.tui.sources.database import Translator

SPEEDS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_LONGEST_FOLD = 500  # the most records merged into one picture


class Player:
    """The counterpart of :class:`MachineReader`. Raises RecordingError for an invalid file."""

    def __init__(self, path: str, speed: float = 1.0) -> None:
        self.recording = Recording(path)
        self.speed = speed
        self.paused = False
        self._translator = Translator()
        self._next = 0  # the index of the next record
        self._at = self.recording.begin
        self._moved_at = time.monotonic()
        self._ended: dict[int, Launcher] = {}

    @property
    def at(self) -> float:
        """The shown time."""
        if not self.paused:
            now = time.monotonic()
            self._at = min(self.recording.end, self._at + (now - self._moved_at) * self.speed)
            self._moved_at = now
        return self._at

    @property
    def share(self) -> float:
        """The position in the recording, from 0 to 1."""
        length = self.recording.end - self.recording.begin
        return (self.at - self.recording.begin) / length if length else 1.0

    def pause(self) -> None:
        """Pause or continue; at the end, start again."""
        at = self.at
        self.paused = not self.paused
        self._moved_at = time.monotonic()
        if not self.paused and at >= self.recording.end:
            self.seek(self.recording.begin)

    def faster(self, step: int) -> None:
        """Use the next or previous speed."""
        self._at = self.at
        near = min(range(len(SPEEDS)), key=lambda i: abs(SPEEDS[i] - self.speed))
        self.speed = SPEEDS[max(0, min(len(SPEEDS) - 1, near + step))]

    def seek(self, at: float) -> None:
        """Go to a time."""
        at = max(self.recording.begin, min(self.recording.end, at))
        number = self.recording.last_before(at)
        if at < self._at or self.recording.whole_before(number) > self._next:
            self._next = self.recording.whole_before(number)
            self._translator = Translator()
            self._ended.clear()
        self._at, self._moved_at = at, time.monotonic()

    async def read(self) -> Picture:
        """The changes up to the shown time. Raises RecordingError."""
        target = self.at
        last = self.recording.last_before(target)
        fold = Fold()
        taken = 0
        while self._next <= last and taken < _LONGEST_FOLD:
            number, self._next = self._next, self._next + 1  # an unreadable record is skipped the next time
            fold.take(self.recording.record(number))
            taken += 1
            if taken % 20 == 0:
                await asyncio.sleep(0)  # handle keys first
        found = fold.result(target)
        if found is None:
            return self._translator.same(target)
        picture = self._translator.picture(*found)
        for row in found[0].launchers:
            if row.ended_at is not None:
                self._ended[row.id] = self._translator.launcher(row)
        return picture

    async def history(self, limit: int) -> list[Launcher]:
        """Launchers that have ended since the last complete picture, the newest first."""
        rows = sorted(self._ended.values(), key=lambda row: (row.ended_at or 0.0, row.id), reverse=True)
        return rows[:limit]

    def close(self) -> None:
        """Close the file."""
        self.recording.close()

"""The console application with a recording in place of the database."""

from __future__ import annotations

import time
from typing import ClassVar

from textual.binding import BindingType

from console.errors import ConsoleError
from console.recording_format import RecordingError
from console.settings import Settings
from console.tui.actions.registry import bindings
from console.tui.app import ConsoleApp
from console.tui.screens.dialogs import Entry
from console.tui.sources.replay import Player


def instant(text: str, player: Player) -> float:
    """Parse a time of the recording: ``35%``, ``+60``, ``-5``, ``12:30`` or ``12:30:05``."""
    begin, end = player.recording.begin, player.recording.end
    text = text.strip()
    try:
        if text.endswith("%"):
            return begin + (end - begin) * float(text[:-1]) / 100
        if text[:1] in ("+", "-"):
            return player.at + float(text)
        hours, minutes, *rest = (int(part) for part in text.split(":"))
    except (ValueError, OverflowError):
        raise RecordingError(f"{text!r} is not an instant", "35%, +60, -5 or 12:30:00") from None
    day = time.localtime(begin)
    clock = (day.tm_year, day.tm_mon, day.tm_mday, hours, minutes, rest[0] if rest else 0, 0, 0, -1)
    at = time.mktime(clock)
    return at if at >= begin or end - begin > 86_400 else at + 86_400


class ReplayApp(ConsoleApp):
    """Shows a recording; nothing can be changed."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("replay")]

    def __init__(self, settings: Settings, player: Player) -> None:
        super().__init__(settings)
        self._reader.close()
        self._reader = self.player = player
        self.replaying = self.read_only = True

    def where_told(self) -> str:
        """The present position, for the bar."""
        player = self.player
        mark = "❚❚" if player.paused else "▸"
        speed = f" ×{player.speed:g}" if player.speed != 1 else ""
        clock = time.strftime("%d %b %H:%M:%S", time.localtime(player.at))
        return f"{mark} {clock}{speed} {100 * player.share:.0f} %"

    def action_replay_pause(self) -> None:
        """Pause or continue."""
        self.player.pause()
        self.redraw()

    def action_replay_speed(self, step: int) -> None:
        """Use the next higher (1) or lower (-1) speed."""
        self.player.faster(step)
        self.redraw()

    def action_replay_seek(self, seconds: float) -> None:
        """Move back or forward by seconds of the screen."""
        self.player.seek(self.player.at + seconds * self.player.speed)
        self.redraw()

    def action_replay_begin(self) -> None:
        """Go to the beginning."""
        self.player.seek(self.player.recording.begin)
        self.redraw()

    def action_replay_at(self) -> None:
        """Ask for a time."""

        def told(text: str) -> str:
            if not text.strip():
                return "35%, +60, -5 or 12:30:00"
            try:
                return time.strftime("%d %b %H:%M:%S", time.localtime(instant(text, self.player)))
            except ConsoleError as error:
                return f"!{error.message}"

        def answered(text: str | None) -> None:
            if text and text.strip():
                self.player.seek(instant(text, self.player))
                self.redraw()

        self.push_screen(Entry("at", told), answered)

    def redraw(self) -> None:
        """Show the new position in the bar."""
        self.runs_changed.publish(0)

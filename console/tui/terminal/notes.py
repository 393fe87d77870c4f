"""Notes (Textual's toasts): one fault of theirs mended, and a limit for what they cover.

A note that expires between the check of its time and its mounting gets a negative time. Textual's timer then counts
backwards without end and the application handles nothing any more. The fuzz met it on a busy machine (Textual 8.2.8).

All notes together cover at most a sixth of the window's height: the newest are shown, and older ones are there again
when newer ones expire or are clicked away. Textual cannot scroll its rack of notes, because the rack is invisible.
"""

from __future__ import annotations

from textual.app import App
from textual.content import Content
from textual.css.query import NoMatches
from textual.events import Mount
from textual.geometry import Size
from textual.notifications import Notification, Notifications
from textual.widgets._toast import Toast, ToastRack

_LEAST_S = 0.01
#: The part of the window's width that a note may have, and what its edge and its padding take of that (app.tcss).
_WIDTH, _FRAME = 0.75, 3

_whole = Toast.render
_show = ToastRack.show


def _mounted(self: Toast, _: Mount) -> None:
    self.set_timer(max(_LEAST_S, self._timeout), self._expire)


def _lines(text: Content, window: Size) -> list[Content]:
    """A note's lines; what the limit leaves no room for is cut off, with a mark at the end."""
    width, most = max(2, int(window.width * _WIDTH) - _FRAME), max(1, window.height // 6)
    lines = text.wrap(width)
    return lines if len(lines) <= most else [*lines[: most - 1], lines[most - 1].truncate(width - 1) + Content("…")]


def _render(self: Toast) -> Content:
    return Content("\n").join(_lines(_whole(self), self.app.size))


def _show_newest(self: ToastRack, notifications: Notifications) -> None:
    """Show the newest notes, as many as the limit has room for."""
    _show(self, notifications)
    left = max(1, self.app.size.height // 6)
    for note in reversed(list(notifications)):
        try:
            holder = self.get_child_by_id(self._toast_id(note))
        except NoMatches:  # it has expired
            continue
        left -= _height(self.app, note) if left > 0 else 0
        holder.display = left >= 0
        left = left or -1  # older notes than the first that has no room stay away
        for toast in holder.query(Toast):
            toast.refresh(layout=True)  # another window cuts it off elsewhere


def _height(app: App[object], note: Notification) -> int:
    message = Content.from_markup(note.message) if note.markup else Content(note.message)
    return len(_lines(Content(f"{note.title}\n") + message if note.title else message, app.size))


def mend() -> None:
    """Give every note a time that is greater than zero, and all of them together a limit."""
    Toast._on_mount = _mounted  # type: ignore[method-assign]
    Toast.render = _render  # type: ignore[method-assign]
    ToastRack.show = _show_newest  # type: ignore[method-assign]

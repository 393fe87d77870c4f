"""Notes (Textual's toasts): one fault of theirs mended, a limit for what they cover, and notes that are added to.

A note that expires between the check of its time and its mounting gets a negative time. Textual's timer then counts
backwards without end and the application handles nothing any more. The fuzz met it on a busy machine (Textual 8.2.8).

At most two notes are in sight, the newest and the newest error beside it, and together they cover at most a sixth of
the window's height. Others are there again when these expire or are clicked away. (Textual cannot scroll its rack of
notes, because the rack is invisible.) They stand above the last two lines of the window, or above the cursor if it is
there.

A note of a kind replaces the one before of the same kind, so that a launch a second does not fill the window.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from textual.app import App
from textual.content import Content
from textual.css.query import NoMatches
from textual.events import Mount
from textual.geometry import Region, Size
from textual.notifications import Notification, Notifications, Notify
from textual.screen import Screen
from textual.widgets._toast import Toast, ToastRack

_LEAST_S = 0.01
#: The part of the window's width that a note may have, and what its edge and its padding take of that (app.tcss).
_WIDTH, _FRAME = 0.75, 3
_BELOW = 2  # the window's last lines, which notes leave free: a legend or a prompt, and the keys
_ABOVE = 4  # its first lines, which they leave free: tabs, what is wrong, the heads of a frame and of a table
_LOW = 3  # a focused widget that is not higher is not covered at all

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
    """Show the newest note and the newest error besides, as far as the limit has room for them."""
    _show(self, notifications)
    left = max(1, self.app.size.height // 6)
    there = list(notifications)
    newest = there[-1:]
    others = sorted(there[:-1], key=lambda note: note.severity == "error")  # stable: the last is the newest error
    shown = [*newest, *others[-1:]] if len(there) > 1 else newest
    hidden = [note for note in there if note not in shown]
    for note in [*shown, *hidden]:
        try:
            holder = self.get_child_by_id(self._toast_id(note))
        except NoMatches:  # it has expired
            continue
        left = left - _height(self.app, note) if note in shown and left > 0 else -1
        holder.display = left >= 0
        left = left or -1  # nothing more where nothing is left
        for toast in holder.query(Toast):
            toast.refresh(layout=True)  # another window cuts it off elsewhere
    _place(self, [note for note in shown if _is_shown(self, note)])


def _is_shown(rack: ToastRack, note: Notification) -> bool:
    try:
        return rack.get_child_by_id(rack._toast_id(note)).display
    except NoMatches:
        return False


@runtime_checkable
class Pointing(Protocol):
    """A widget with a cursor that notes must not cover."""

    def cursor_place(self) -> Region:
        """The cursor's place on the screen."""


def _cursor(screen: Screen[object]) -> Region | None:
    widget = screen.focused
    if widget is None:
        return None
    if isinstance(widget, Pointing):
        return widget.cursor_place().intersection(widget.region)
    return widget.region if widget.region.height <= _LOW else None


def _place(rack: ToastRack, notes: list[Notification]) -> None:
    """Put the rack above the window's last two lines, or above the cursor if the notes would cover it there."""
    app = rack.app
    below = _BELOW
    if notes:
        height = sum(_height(app, note) for note in notes)
        width = max(line.cell_length for note in notes for line in _lines(_content(note), app.size)) + _FRAME
        at = Region(app.size.width - width, app.size.height - below - height, width, height)
        cursor = _cursor(app.screen)
        if cursor and at.overlaps(cursor) and cursor.y - height > _ABOVE:
            below = app.size.height - cursor.y
    if rack.styles.margin.bottom != below:
        rack.styles.margin = (0, 0, below, 0)


def place(app: App[Any]) -> None:
    """Move the notes away from the cursor, which has moved."""
    if app._notifications:
        for rack in app.screen.query(ToastRack):
            _place(rack, [note for note in app._notifications if _is_shown(rack, note)])


def expire(note: Notification) -> None:
    """End a note: it is over for all who ask."""
    note.timeout = 0.0


class Notes:
    """The notes of an application by their kinds."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._notes: dict[str, Notification] = {}

    def in_sight(self, kind: str) -> bool:
        """True if a note of that kind has neither expired nor was clicked away."""
        note = self._notes.get(kind)
        return note is not None and not note.has_expired

    def remove(self, kind: str) -> None:
        """Take away the note of a kind: what it says is no longer so."""
        note = self._notes.pop(kind, None)
        if note is not None and not note.has_expired:
            self._app._unnotify(note)

    def tell(self, kind: str, note: Notification) -> None:
        """Show a note in place of the one before of its kind."""
        for old in [old for old, one in self._notes.items() if one.has_expired]:
            del self._notes[old]
        before = self._notes.get(kind)
        if before is not None:
            expire(before)  # also if its message is still on its way; the next note removes it from the screen
        self._notes[kind] = note
        self._app.post_message(Notify(note))


def _height(app: App[Any], note: Notification) -> int:
    return len(_lines(_content(note), app.size))


def _content(note: Notification) -> Content:
    message = Content.from_markup(note.message) if note.markup else Content(note.message)
    return Content(f"{note.title}\n") + message if note.title else message


def mend() -> None:
    """Give every note a time that is greater than zero, and all of them together a limit."""
    Toast._on_mount = _mounted  # type: ignore[method-assign]
    Toast.render = _render  # type: ignore[method-assign]
    ToastRack.show = _show_newest  # type: ignore[method-assign]

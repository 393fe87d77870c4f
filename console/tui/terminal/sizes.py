"""One fault of Textual's screens mended: an endless exchange of two sizes, which handles no key and no signal.

A screen that is laid out in another size than before sends itself a Resize of that size. With two sizes in its queue,
and other messages between them, each is laid out, differs from the one before, and is sent again (Textual 8.2.8). It
happens while the window is dragged over a breakpoint, to screens behind a dialog too. A screen always has the size of
the terminal, so here every other size is dropped: the terminal's comes after it, or came before.
"""

from __future__ import annotations

from textual.events import Resize
from textual.geometry import Size
from textual.screen import Screen

_resized = Screen._on_resize
_lay_out = Screen._screen_resized


async def _resized_once(self: Screen[object], event: Resize) -> None:
    if event.size == self.app.size:
        await _resized(self, event)
    else:
        event.stop()


def _lay_out_now(self: Screen[object], _: Size) -> None:
    """A screen that has the size is laid out when one of its widgets asks for it."""
    if self._compositor.size != self.app.size:
        _lay_out(self, self.app.size)


def mend() -> None:
    """Lay screens out in the terminal's present size alone."""
    Screen._on_resize = _resized_once  # type: ignore[method-assign, assignment]
    Screen._screen_resized = _lay_out_now  # type: ignore[method-assign, assignment]

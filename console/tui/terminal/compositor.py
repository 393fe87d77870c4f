"""Puts the effect of a key on the screen at once; keys are handled in order.

Textual itself
- visits every line of every widget while keys wait. Here unchanged lines are not visited, and large updates are painted
  in slices; keys are handled in between;
- paints sixty times a second, so that the effect of a key is visible only at the next of these times. Here it is
  painted at once;
- passes a key to the widget with the focus when the key arrives, so that keys typed right after one that opens, closes
  or changes a screen go to the old screen. Here a key is handled before the next one is read.

All of this depends on Textual's internals, so its version is pinned.

Measured (``python -m tests.bench.handwork compositor``, Textual 8.2.8, a busy machine) while 1 % of 11,136 processors
change a second: half of the keys are on the screen within 6 ms with it and 43 ms without at 120×40, 30 and 80 ms at
340×104. Bytes to the terminal and CPU time do not differ: Textual writes only changed cells too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual._compositor import Compositor, CompositorMap, CompositorUpdate, LayoutUpdate
from textual.app import App
from textual.await_remove import AwaitRemove
from textual.color import Color
from textual.dom import DOMNode
from textual.geometry import Offset, Region
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import AwaitMount, Widget
from textual.widgets import Input

from console.tui.terminal.removed import without_removed

_AT_ONCE_S = 0.03  # changes within this time after a key are painted at once
_ALONE_S = 0.008  # within this time after a key nothing else is painted, because a key's changes cause further changes
_SLICE_S = 0.003  # the time of painting after which waiting keys are handled
_PAUSE_S = 0.002  # between two slices, so that the threads for keys and the terminal can run
_REGIONS = 3  # regions painted between two checks of the clock; neighbours share lines

Spans = list[tuple[int, int]]  # columns of a line: from, to


class Piece(NamedTuple):
    """Cells of a line, and where they begin."""

    x: int
    y: int
    strip: Strip


class CellsUpdate(CompositorUpdate):
    """The changed cells only."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces

    def render_segments(self, console: Console) -> str:
        """The output: for each piece its position and its cells."""
        return "".join(f"\x1b[{y + 1};{x + 1}H{strip.render(console)}" for x, y, strip in self.pieces)


class CellsCompositor(Compositor):
    """Textual's compositor with smaller updates: only what has changed is visited and written."""

    @property
    def full_map(self) -> CompositorMap:
        """The positions of all widgets. When it is computed again, new, removed and moved widgets are repainted.

        Textual marks them only during layout, so a note that was removed before would stay on the screen for ever.
        """
        if not self._full_map_invalidated:
            return super().full_map
        before = self._full_map if self._visible_map is None else self._visible_map
        after = super().full_map
        places = [{(widget, at.region.intersection(at.clip)) for widget, at in one.items()} for one in (before, after)]
        self._dirty_regions.update(region for _, region in places[0] ^ places[1] if region)
        return after

    def render_partial_update(self) -> CellsUpdate | None:  # type: ignore[override]
        """The changes; None if there are none."""
        due = sorted(self._dirty_regions, key=_top)
        self._dirty_regions.clear()
        return CellsUpdate(self._paint(due)) if due else None

    def _render_chops(self, crop: Region, is_rendered_line: Callable[[int], bool]) -> Sequence[Mapping[int, Strip]]:
        """The strips of each line by their columns, for a repaint of the whole screen.

        Textual also cuts a line where a covered widget begins or ends. It so tears a wide character in a note or a
        dialog that stands over such an edge, until the line is painted again.
        """
        chops: list[dict[int, Strip]] = [{} for _ in range(self.size.height)]
        for x, y, strip in sorted(self._paint([crop]), key=_column):
            if is_rendered_line(y):
                chops[y][x] = strip
        return chops

    def lines(self, wanted: Sequence[int]) -> dict[int, Strip]:
        """Lines of the screen, by their numbers."""
        found: dict[int, list[Piece]] = {y: [] for y in wanted}
        for piece in self._paint([Region(0, y, self.size.width, 1) for y in wanted]):
            found[piece.y].append(piece)
        return {y: Strip.join(piece.strip for piece in sorted(pieces, key=_column)) for y, pieces in found.items()}

    def _paint(self, regions: list[Region]) -> list[Piece]:
        """Paint only the requested lines of each widget, from front to back until everything is covered.

        The places are computed before: a widget asks for its own when it is rendered. If a layout was due, that moved
        all widgets in the middle of a line, and the line behind a dialog was shorter than the screen.
        """
        screen, _ = self.size.region, self.full_map
        open_spans: dict[int, Spans] = {}
        for y, left, right in self._regions_to_spans(region.intersection(screen) for region in regions):
            open_spans.setdefault(y, []).append((left, right))
        pieces: list[Piece] = []
        for widget, (region, clip) in self.visible_widgets.items():
            if not open_spans:
                break
            shown = region.intersection(clip)
            x, right, top, bottom = shown.x, shown.right, shown.y, shown.bottom
            lines = [
                y for y, spans in open_spans.items() if top <= y < bottom and any(a < right and b > x for a, b in spans)
            ]
            if not lines:
                continue
            first = min(lines)
            strips = widget.render_lines(Region(0, first - region.y, region.width, max(lines) - first + 1))
            for y in lines:
                cut, rest = _cut(open_spans.pop(y), x, right)
                for a, b in cut:
                    left, end = self._whole(widget, region.x, strips[y - first], y, (a, b))
                    pieces.append(Piece(left, y, strips[y - first].crop(left - region.x, end - region.x)))
                if rest:
                    open_spans[y] = rest
        return pieces

    def _whole(self, widget: Widget, x: int, strip: Strip, y: int, span: tuple[int, int]) -> tuple[int, int]:
        """The columns with the other halves of the wide characters at their ends, which what was removed had covered.
        ``x``: where the strip begins."""
        a, b = span
        if _splits(strip, a - x) and self._is_in_front(widget, a - 1, y):
            a -= 1
        if b - x < strip.cell_length and _splits(strip, b - x) and self._is_in_front(widget, b, y):
            b += 1
        return a, b

    def _is_in_front(self, widget: Widget, x: int, y: int) -> bool:
        """Whether the widget is the one that is seen at a position."""
        seen = (one for one, (region, clip) in self.visible_widgets.items() if region.intersection(clip).contains(x, y))
        return next(seen, None) is widget


class SlicedCompositor(CellsCompositor):
    """Updates that are short enough for a waiting key."""

    def __init__(self) -> None:
        super().__init__()
        self.put_off: list[Region] = []  # changed and not painted yet, the oldest first
        self.hurried = False  # a key was pressed: paint its changes only, and deferred regions later

    def put_off_all(self) -> None:
        """Defer all present changes: later changes are painted before them."""
        self.put_off = list(dict.fromkeys([*self.put_off, *sorted(self._dirty_regions, key=_top)]))
        self._dirty_regions.clear()

    def render_full_update(self, simplify: bool = False) -> LayoutUpdate:
        """Repaint the whole screen; deferred regions are included."""
        self.put_off = []
        return super().render_full_update(simplify)

    def render_partial_update(self) -> CellsUpdate | None:  # type: ignore[override]
        """A slice of the changes; None if there are none. A region is never split, so that scrolling does not tear."""
        fresh = sorted(self._dirty_regions, key=_top)
        due = fresh if self.hurried else list(dict.fromkeys([*self.put_off, *fresh]))
        older = [region for region in self.put_off if region not in self._dirty_regions] if self.hurried else []
        self._dirty_regions.clear()
        if not due:
            return None
        # By this thread's CPU time: on a busy machine, slices would otherwise contain next to nothing.
        pieces: list[Piece] = []
        taken, until = 0, time.thread_time() + _SLICE_S
        while taken < len(due) and (not taken or time.thread_time() < until):
            pieces += self._paint(due[taken : taken + _REGIONS])
            taken += _REGIONS
        self.put_off = older + due[taken:]
        return CellsUpdate(pieces)


def _splits(strip: Strip, column: int) -> bool:
    """Whether a wide character has one half on each side of the column."""
    for segment in strip:
        if column <= 0:
            return False
        length = segment.cell_length
        if column < length:
            for character in "" if segment.text.isascii() else segment.text:
                column -= cell_len(character)
                if column <= 0:
                    return column < 0
            return False
        column -= length
    return False


def _top(region: Region) -> int:
    return region.y


def _column(piece: Piece) -> int:
    return piece.x


def _cut(spans: Spans, left: int, right: int) -> tuple[Spans, Spans]:
    """The parts of the spans inside those columns, and outside."""
    inside, outside = [], []
    for a, b in spans:
        if a < right and b > left:
            inside.append((max(a, left), min(b, right)))
            outside += [part for part in ((a, left), (right, b)) if part[0] < part[1]]
        else:
            outside.append((a, b))
    return inside, outside


class PromptScreen(Screen[None]):
    """A screen with small updates that paints a key's changes at once."""

    def __init__(self) -> None:
        super().__init__()
        self._compositor: SlicedCompositor = SlicedCompositor()
        self._pressed_at = 0.0
        self._rest_is_due = False

    def take_breakpoints(self) -> None:
        """Take the classes for the terminal's size before there are widgets, so that their styles are applied once."""
        width, height = self.app.size
        across = self._get_breakpoint_classes(width, self.HORIZONTAL_BREAKPOINTS or [])
        down = self._get_breakpoint_classes(height, self.VERTICAL_BREAKPOINTS or [])
        self.add_class(*across, *down)

    def pressed(self) -> None:
        """A key was handled: paint its changes at once."""
        self._pressed_at = time.monotonic()

    def put_off(self) -> None:
        """Defer the present changes until those of the next key are painted."""
        if self._dirty_widgets and self.app.screen is self and not (self._layout_required or self._repaint_required):
            self._compositor.update_widgets(self._dirty_widgets)
            self._dirty_widgets.clear()
            self._compositor.put_off_all()
            self._paint_rest_soon()

    def _forward_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.MouseDown):
            self.put_off()
            self.pressed()
        super()._forward_event(event)

    def get_widget_and_offset_at(self, x: int, y: int) -> tuple[Widget | None, Offset | None]:
        """The widget at a position, where a text selection begins."""
        return without_removed(self, super().get_widget_and_offset_at(x, y))

    def _on_screen_resume(self, event: events.ScreenResume) -> None:
        """Keep the styles: they are new, or were updated behind other screens; Textual renews them after a new theme.

        To apply them again took 9 ms of the 226 ms between the imports and the first picture, and as much for each tab.
        """
        event.refresh_styles = False

    def _compositor_refresh(self) -> None:
        """Paint, unless nothing may be shown now (at the start): Textual would paint everything, and drop it.

        Behind a dialog, the dialog's screen paints the changes. Textual also keeps them as changes to come, so that
        each is painted again for ever: after a dialog has opened, the whole screen three times a second.
        """
        dirty = self._compositor._dirty_regions
        if self.app._batch_count:
            return
        if self in self.app._background_screens:
            if dirty:
                self.app.screen.refresh(*dirty)
            dirty.clear()
            self._dirty_widgets.clear()
            return
        self._repaint_required &= self._compositor.size.region not in dirty
        super()._compositor_refresh()

    async def _on_idle(self, event: events.Idle) -> None:
        if self._dirty_widgets and not self._layout_required and time.monotonic() - self._pressed_at < _AT_ONCE_S:
            event.prevent_default()
            self._compositor.hurried = True
            try:
                self._on_timer_update()
            finally:
                self._compositor.hurried = False
        else:
            await super()._on_idle(event)

    def _on_timer_update(self) -> None:
        super()._on_timer_update()
        self._paint_rest_soon()

    def _paint_rest_soon(self) -> None:
        if self._compositor.put_off and not self._rest_is_due:
            self._rest_is_due = True
            # A Textual timer with such a short interval may never fire, because late ones are skipped.
            asyncio.get_running_loop().call_later(_PAUSE_S, self.call_later, self._paint_rest)

    def _paint_rest(self) -> None:
        self._rest_is_due = False
        compositor = self._compositor
        if self.app.screen is not self:  # the screen above paints for this one too
            compositor._dirty_regions.update(compositor.put_off)
            compositor.put_off = []
        waits = self.app._batch_count or time.monotonic() - self._pressed_at < _ALONE_S
        if self.is_current and not waits:
            compositor.update_widgets(self._dirty_widgets)  # the next call counts all dirty widgets as painted
            self._compositor_refresh()
        self._paint_rest_soon()


if TYPE_CHECKING:
    _Over = Screen[Any]
else:
    _Over = object  # Textual takes the styles of a screen from its first base class that is one


class OverPrompt(_Over):
    """A dialog, which shows the screen behind it, darkened.

    Textual paints and darkens all lines of the screen behind whenever one of them has changed. That took 3 % of a core
    while a dialog was open, and the time of a whole picture for each key that changes something behind it.
    """

    _behind: Mapping[int, Strip] = MappingProxyType({})  # the lines that are being painted

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._compositor = CellsCompositor()

    def _on_screen_resume(self, event: events.ScreenResume) -> None:
        """Keep the styles, as every screen does."""
        event.refresh_styles = False

    def _compositor_refresh(self) -> None:
        """Paint, unless nothing may be shown now: Textual would paint everything, and drop it."""
        if not self.app._batch_count:
            super()._compositor_refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Lines of the dialog's screen; those behind it are painted together."""
        cache = self._styles_cache
        due = [y for y in crop.line_range if cache.is_dirty(y) or y not in cache._cache]
        self._behind = lines_behind(self, due)
        try:
            return super().render_lines(crop)
        finally:
            self._behind = {}

    def render_line(self, y: int) -> Strip:
        """A line of what is behind the dialog."""
        behind = self._behind if y in self._behind else lines_behind(self, [y])
        return behind.get(y) or super().render_line(y)


def lines_behind(screen: Screen[Any], wanted: Sequence[int]) -> dict[int, Strip]:
    """Lines of the screen behind a dialog, darkened; none if Textual has to paint them."""
    stack = screen.app.screen_stack
    behind = stack[stack.index(screen) - 1] if screen in stack[1:] else None
    colour, width = screen.styles.background, screen.size.width
    if not isinstance(behind, PromptScreen) or colour.a == 1 or behind._compositor.size != screen.size:
        return {}
    found = behind._compositor.lines(wanted)
    return {y: Strip([_darkened(part, colour) for part in strip], width) for y, strip in found.items()}


def _darkened(part: Segment, colour: Color) -> Segment:
    return Segment(part.text, _dark_style(part.style, colour), part.control)


@lru_cache(maxsize=4096)
def _dark_style(style: Style | None, colour: Color) -> Style | None:
    """A style behind a dialog. A picture has a few dozen of them in thousands of cells."""
    [darkened] = BackgroundScreen.process_segments([Segment("", style)], colour)
    return darkened.style


def mend() -> None:
    """A screen whose focus moves is not painted anew: the two widgets are."""
    Screen.focused._repaint = False


class PromptApp(App[None]):
    """An application that handles keys one after the other, and shows another tab, or a dialog, as soon as it is
    complete: a dialog was painted, with all that is behind it, four times before it had its size and its widgets."""

    def __init__(self) -> None:
        super().__init__()
        self._disable_tooltips = True  # no widget has one, but each screen would have a widget for them

    def delay_update(self, delay: float = 0.05) -> None:
        """Paint nothing until the tab that is shown next has taken up what changed; Textual always waits ``delay``."""
        self._begin_batch()
        waits = True

        def end() -> None:
            nonlocal waits
            if waits:
                waits = False
                self._end_batch()
                if not self._batch_count:
                    self.screen.refresh()

        self.set_timer(delay, end, name="delay_update")  # also if that tab is closed before
        self.call_later(lambda: self.screen.call_later(self.screen.call_after_refresh, end))

    def _get_screen(self, screen: Screen[Any] | str) -> tuple[Screen[Any], AwaitMount]:
        """The screen. Its widgets get the present styles when they are made: Textual applies all styles to all widgets
        again when a tab is opened, and when it is shown for the second time."""
        found, mounted = super()._get_screen(screen)
        if found._css_update_count < 0:
            found._css_update_count = self._css_update_count
        if isinstance(found, OverPrompt):
            self.delay_update()
            if self._screen_stack:  # the dialog paints what is behind it too: Textual painted all of it once more
                self.screen._repaint_required = False
        return found, mounted

    def _prune(self, *nodes: Widget, parent: DOMNode | None = None) -> AwaitRemove:
        """Remove widgets. A screen that closes moves nothing on the screen below it, which Textual laid out and
        painted for the second time."""
        return super()._prune(*nodes, parent=None if parent is self else parent)

    async def on_event(self, event: events.Event) -> None:
        """A bound key is handled before the next one is read; in text input, Textual's order applies.

        A key that arrives right after one that opened a screen waits until the screen has its widgets.
        """
        if (
            isinstance(event, events.Key)
            and not event.is_forwarded
            and not self._exit
            and self.screen._task is not None
        ):
            await self.screen._mounted_event.wait()
        if isinstance(event, events.Key) and self._exit:
            return  # Textual mounts no widgets any more: a screen that a key opened would miss its own
        if isinstance(event, events.Key) and not event.is_forwarded and not isinstance(self.focused, Input):
            if isinstance(self.screen, PromptScreen):
                self.screen.put_off()
            for priority in (True, False):
                if await self._check_bindings(event.key, priority=priority):
                    if isinstance(self.screen, PromptScreen):
                        self.screen.pressed()
                    return
        await super().on_event(event)

"""The ranks' output, drawn from the limited buffer; only visible lines cost time."""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable
from functools import partial
from typing import ClassVar, NamedTuple

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection as Selected
from textual.strip import Strip
from textual.worker import Worker

from console.tui.actions.registry import ALL, bindings
from console.tui.context import context
from console.tui.format import fitted
from console.tui.model.filter import Filter, Selection
from console.tui.model.gather import Gathered
from console.tui.model.launch import Phase, Run
from console.tui.model.machine import HUES
from console.tui.model.output import NOTE, STDERR, Line
from console.tui.model.patterns import Pattern, TooSlowError
from console.tui.model.sgr import Changes, Look, cut
from console.tui.sources.search import seek
from console.tui.sources.sift import sift
from console.tui.sources.spool import AllRows, Archive
from console.tui.terminal.colours import style_of
from console.tui.terminal.themes import MONO

_WIDEST_WHO = 14  # columns for the ranks of gathered lines
_TOLD_S = 0.1  # between two reports of a search's progress
#: Seconds for which a line without an end is not continued before it is shown: output often arrives in half lines.
_OPEN_S = 0.5
_MOST_OPEN = 200  # open lines that are shown
_MOST_LOOKS = 4_096  # looks of programs whose styles are kept
_MARKING_S = 0.005  # the longest time in which a line's matches are looked for when it is drawn
_MOST_MARKED = 1_000  # lines whose matches are kept


#: A row, and the index of one of the screen lines that it takes when it is wrapped.
Position = tuple[int, int]


class Placed(NamedTuple):
    """What stands on a line of the screen: a row, or a part of it."""

    row: int
    first: bool  # the row begins on this line
    begin: int  # the part, in columns of the row's text
    end: int


class Place(NamedTuple):
    """What the lines of the screen were placed for; for anything else they are placed again."""

    top: int
    skip: int
    height: int
    room: int  # columns for text
    wrap: bool


class _Left(NamedTuple):
    """What a search that was stopped has not looked through."""

    step: int
    legs: tuple[tuple[int, int], ...]  # the numbers of the first and the last line, each as far as ``step`` goes
    everywhere: bool


class OutputPane(ScrollView, can_focus=True):
    """Lines of all ranks or of some; follows the end until the user scrolls up."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "output-pane--stderr",
        "output-pane--note",
        "output-pane--rule",
        "output-pane--stamp",
        "output-pane--match",
        "output-pane--hit",
        *(f"output-pane--rank-{number}" for number in range(HUES)),
    }

    BINDINGS: ClassVar[list[BindingType]] = bindings("output")

    following = reactive(True, repaint=False)
    #: The ranks whose lines are shown; None: all.
    scope: reactive[frozenset[int] | None] = reactive(None, repaint=False)
    wanted: reactive[Filter] = reactive(Filter(), repaint=False)
    gathered = reactive(False, repaint=False)
    stamps = reactive(False, repaint=False)
    wrap = reactive(False, repaint=False)
    search: reactive[Pattern | None] = reactive(None)

    class Changed(Message):
        """The shown lines, or following, have changed, so the title must be updated."""

    class Sought(Message):
        """A search has ended without a match; ``told`` says so. ``bad``: it could not go on."""

        def __init__(self, told: str, *, bad: bool = False) -> None:
            super().__init__()
            self.told, self.bad = told, bad

    class Refused(Message):
        """The filter was dropped because it takes too long."""

        def __init__(self, error: TooSlowError) -> None:
            super().__init__()
            self.error = error

    def __init__(self, run: Run, archive: Archive, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._run = run
        self._archive = archive
        self._rows: AllRows | Selection | Gathered = AllRows(run.output, archive)
        self._filtered_on: list[str] = []  # of the ranks, if the filter chooses by them
        self._open: list[Line] = []  # below the rows: lines without an end, for which a program waits
        self._moving = False
        self._drawn: tuple[object, ...] = ()
        self._skip = 0  # lines of the screen by which the top row is scrolled
        self._shown: list[Placed] | None = None  # the contents of each line of the screen; None: not computed
        self._shown_for: Place | None = None
        self._hit: int | None = None  # the number of the last search result
        self._at: int | None = None  # the number at which the last search ended or was stopped
        self._left: _Left | None = None
        self._seeks: Worker[None] | None = None
        self.progress = ""  # of a search that takes long
        self._sifts: Worker[None] | None = None  # reads the spool for a filter or for gathering
        self._sifted = ""  # how much of the spool was read, while that lasts
        self._marks: dict[str, list[tuple[int, int]]] = {}  # matches in lines that were drawn
        self._styles: dict[str, Style] = {}
        self._of_looks: dict[Look, Style] = {}

    def __len__(self) -> int:
        """The number of lines that can be shown now."""
        return len(self._rows)

    @property
    def below(self) -> int:
        """How many lines are below the screen."""
        positions = self._positions()
        return max(0, self._count - 1 - positions[-1].row) if positions else 0

    def update_output(self, now: float) -> None:
        """Draw what has arrived since the last call, and what is incomplete ``now`` and for a while."""
        output, rows = self._run.output, self._rows
        if self.wanted.nodes and self._filtered_on != self._run.nodes:  # the ranks have started since
            self._choose_rows()
            rows = self._rows
        opened = output.open_lines(now - _OPEN_S)[-_MOST_OPEN:]
        state = (output.end, self._run.size, output.generation, output.redrawn, opened)
        waits = not isinstance(rows, AllRows) and not rows.scan.caught_up
        if state == self._drawn and not waits:
            return
        if not isinstance(rows, AllRows) and rows.scan.outdated:
            self._choose_rows()
            return
        self._drawn = state
        top = self._top_number()
        self._keep_open(opened, self._refresh_rows())
        self._place(top)

    def _refresh_rows(self) -> bool:
        """Include new lines; False if the filter was dropped. Lines that have left memory since the last time are
        read from the spool first."""
        rows = self._rows
        if not isinstance(rows, AllRows) and rows.scan.behind:
            if self._sifts is None:
                self._sift(rows)
            return True
        try:
            rows.refresh()
        except TooSlowError as error:
            self._refuse(error)
            return False
        return True

    def _sift(self, rows: Selection | Gathered) -> None:
        """Let ``rows`` read the spool, and then show them."""
        self._sifts = self.run_worker(partial(self._read_spool, rows), group="sift", exclusive=True)

    async def _read_spool(self, rows: Selection | Gathered) -> None:
        scan, output = rows.scan, self._run.output
        lines = AllRows(output, self._archive)
        lines.refresh()
        began, told_at = scan.seen, time.monotonic()

        def looked() -> None:
            nonlocal told_at
            if time.monotonic() - told_at > _TOLD_S:
                told_at = time.monotonic()
                self._sifted = f"{(scan.seen - began) * 100 // max(1, output.end - began)} %"
                self.post_message(self.Changed())

        try:
            await sift(rows, lines, looked)
        except TooSlowError as error:
            self._refuse(error)
            return
        self._sifts, self._sifted = None, ""
        if not scan.outdated:
            top = self._top_number()
            self._rows = rows
            self._drawn = ()
            self._place(top)
        self.post_message(self.Changed())

    def _refuse(self, error: TooSlowError) -> None:
        """Drop the filter."""
        self._rows = AllRows(self._run.output, self._archive)  # it must not be asked again
        self._rows.refresh()
        self.post_message(self.Refused(error))

    @property
    def covered(self) -> str:
        """Which lines a filter, or gathering, has looked at; empty if all."""
        rows = self._rows
        if isinstance(rows, AllRows):
            return ""
        if self._sifted:
            return f"reading earlier lines {self._sifted}"
        if rows.dropped:
            return f"the newest {len(rows):,}"
        return f"in the newest {self._run.output.end - rows.scan.start:,} lines" if rows.scan.start else ""

    def _keep_open(self, opened: list[Line], accepted: bool) -> None:
        """Choose the open lines to show: all of them if the filter was dropped, for others or for one of these."""
        keep = self.keeps() if accepted else None
        try:
            self._open = [line for line in opened if keep is None or keep(line)]
        except TooSlowError as error:
            self._open = opened
            self._refuse(error)

    # What the pane shows: the rows, and below them the open lines.

    @property
    def _count(self) -> int:
        return len(self._rows) + len(self._open)

    def _line(self, row: int) -> Line:
        """The line of a row. Raises IndexError if it is unavailable."""
        rows = len(self._rows)
        return self._rows.line(row) if row < rows else self._open[row - rows]

    def _who(self, row: int) -> str:
        rows = len(self._rows)
        return self._rows.who(row) if row < rows else str(self._open[row - rows].rank)

    def _number(self, row: int) -> int | None:
        """The number of the row's line; None for an open line, which has none yet."""
        return self._rows.number(row) if row < len(self._rows) else None

    def _top_number(self) -> int | None:
        row = self.scroll_offset.y
        return self._rows.number(row) if 0 <= row < len(self._rows) else None

    def _place(self, top: int | None) -> None:
        """Go to the end, or keep the top line in place."""
        self._shown = None
        longest = max([self._run.output.longest, *(cell_len(line.text) for line in self._open)])
        width = 0 if self.wrap or not self._count else self._margin + longest
        last = self._last_top()
        self._moving = True
        # The last possible top row is the one with which the end is visible.
        self.virtual_size = Size(width, max(self._count, last[0] + self._room.height) if last[0] else self._count)
        self._moving = False
        if self.following:
            self._show_from(last)
        elif top is not None:
            self._show_from((self._row_of(top), self._skip))

    def _show_from(self, position: Position) -> None:
        """Put that line at the top of the screen."""
        self._moving = True
        # Forced, because the scroll bar appears only with the next layout.
        self.scroll_to(y=position[0], animate=False, immediate=True, force=True)
        self._skip = position[1]
        self._moving = False
        self._shown = None
        self.refresh()

    # Rows of several lines

    @property
    def _room(self) -> Size:
        return self.scrollable_content_region.size

    def _pieces(self, row: int) -> list[str]:
        """The lines of a row on the screen; notes are always wrapped."""
        try:
            line = self._line(row)
        except IndexError:
            return [""]
        if not (self.wrap or line.stream == NOTE):
            return [line.text]
        return chop_cells(line.text, max(8, self._room.width - self._margin)) or [""]

    def _step(self, position: Position, by: int) -> Position:
        """Move by lines of the screen, at most to the first or last."""
        row, piece = position[0], position[1] + by
        while piece < 0 and row > 0:
            row -= 1
            piece += len(self._pieces(row))
        while row < self._count - 1 and piece >= (there := len(self._pieces(row))):
            row, piece = row + 1, piece - there
        return row, max(0, piece)

    def _last_top(self) -> Position:
        """The top position at which the end is at the bottom."""
        height, row = self._room.height, self._count
        while row > 0 and height > 0:
            row -= 1
            height -= len(self._pieces(row))
        return row, max(0, -height)

    def _positions(self) -> list[Placed]:
        """What stands on each line of the screen."""
        room = max(0, self._room.width - self._margin)
        place = Place(self.scroll_offset.y, self._skip, self.size.height, room, self.wrap)
        if self._shown is None or self._shown_for != place:
            self._shown, self._shown_for = [], place
            row, skip = place.top, place.skip
            while len(self._shown) < place.height and row < self._count:
                pieces = self._pieces(row)
                skip = min(skip, len(pieces) - 1)  # it belongs to the width of before, or the row is shorter now
                begin = 0
                for at, piece in enumerate(pieces[: skip + place.height]):
                    end = begin + cell_len(piece)
                    if at >= skip:
                        self._shown.append(Placed(row, not at, begin, end))
                    begin = end
                row, skip = row + 1, 0
        return self._shown

    def _move(self, lines: int) -> None:
        last = self._last_top()
        to = min(last, self._step((self.scroll_offset.y, self._skip), lines))
        self.following = to == last
        self._show_from(to)

    def action_scroll_up(self) -> None:
        """Scroll up by a line of the screen."""
        self._move(-1)

    def action_scroll_down(self) -> None:
        """Scroll down by a line of the screen."""
        self._move(1)

    def action_scroll_home(self) -> None:
        """Scroll to the oldest line."""
        self.following = self._last_top() == (0, 0)
        self._show_from((0, 0))

    def action_page_up(self) -> None:
        """Scroll up by a screen."""
        self._move(1 - self._room.height)

    def action_page_down(self) -> None:
        """Scroll down by a screen."""
        self._move(self._room.height - 1)

    def _row_of(self, number: int) -> int:
        rows = self._rows
        return bisect.bisect_left(range(len(rows)), number, key=rows.number)

    @property
    def _who_width(self) -> int:
        width = max(3, len(str(max(0, self._run.size - 1))))
        return max(width, min(_WIDEST_WHO, 2 * width + 1)) if self.gathered else width

    @property
    def _margin(self) -> int:
        return self._who_width + 3 + (9 if self.stamps else 0)

    # Contents

    def keeps(self) -> Callable[[Line], bool] | None:
        """The test for shown lines, which raises TooSlowError; None if all are shown."""
        wanted = self.wanted
        if self.scope is not None:
            ranks = self.scope if wanted.ranks is None else wanted.ranks & self.scope
            wanted = wanted._replace(ranks=ranks)
        return wanted.keeps(self._run.nodes)

    def _choose_rows(self) -> None:
        self.stop_search()
        if self._sifts is not None:
            self._sifts.cancel()
        self._sifts, self._sifted = None, ""
        top = self._top_number()
        keep, self._filtered_on = self.keeps(), list(self._run.nodes)
        self._rows = self._make_rows(keep)
        accepted = self._refresh_rows()
        self._keep_open(self._open, accepted)
        oldest = self._archive.first
        if not isinstance(self._rows, AllRows) and oldest is not None and oldest < self._run.output.first:
            all_rows = self._make_rows(keep, oldest)
            if not isinstance(all_rows, AllRows):
                self._sift(all_rows)
        self._drawn = ()  # the open lines are chosen again with the next drawing
        self._place(top)
        self.post_message(self.Changed())

    def _make_rows(
        self, keep: Callable[[Line], bool] | None, start: int | None = None
    ) -> AllRows | Selection | Gathered:
        """The rows as they are wanted now, from line ``start`` on."""
        if self.gathered:
            return Gathered(self._run.output, keep, start)
        if keep is not None:
            return Selection(self._run.output, keep, start)
        return AllRows(self._run.output, self._archive)

    def watch_scope(self) -> None:
        """Show only lines of these ranks, or those of all ranks."""
        self._choose_rows()

    def watch_wanted(self) -> None:
        """Show only lines that pass the filter."""
        self._choose_rows()

    def watch_gathered(self) -> None:
        """Show equal lines in one row, or each line by itself."""
        self._choose_rows()

    def watch_stamps(self) -> None:
        """Show or hide the times of lines."""
        self._place(self._top_number())

    def watch_wrap(self) -> None:
        """Wrap long lines, or cut them off at the edge of the screen."""
        self._skip = 0
        self.scroll_to(x=0, animate=False, immediate=True, force=True)
        self._place(self._top_number())

    def watch_following(self) -> None:
        """Show in the title whether the pane follows."""
        self.post_message(self.Changed())

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scrolling up stops following; reaching the end resumes it."""
        super().watch_scroll_y(old_value, new_value)
        self._shown = None
        if not self._moving:
            self.following = round(new_value) >= self.max_scroll_y
            self._skip = self._last_top()[1] if self.following else 0

    def action_follow(self) -> None:
        """Go to the end and follow it."""
        self.following = True
        self._place(None)

    def action_pause(self) -> None:
        """Stop or resume following."""
        if self.following:
            self.following = False
        else:
            self.action_follow()

    def on_resize(self) -> None:
        self._place(self._top_number())

    # Search

    @property
    def searching(self) -> bool:
        """True while a search goes through the lines."""
        return self._seeks is not None and not self._seeks.is_finished

    def find(self, step: int, *, everywhere: bool = False) -> None:
        """Go to the next match of ``search`` (1), or the previous one (-1), as soon as it is found. Without one,
        ``Sought`` is posted. ``everywhere``: after the last line, go on from the other end. A search that was stopped
        goes on in its own direction, unless the previous match of one that went down is asked for."""
        rows, left = self._rows, self._left
        if self.search is None or not len(rows):
            self.post_message(self.Sought("nothing to look for"))
            return
        if left is None or everywhere or step not in (1, left.step):
            begin = self._first_sought(step) if self._at is None else self._at + step
            oldest, newest = rows.number(0), rows.number(len(rows) - 1)
            ends = (newest, oldest) if step > 0 else (oldest, newest)
            legs = ((begin, ends[0]), (ends[1], begin - step))[: 2 if everywhere else 1]
            left = _Left(step, legs, everywhere)
        self._left = left
        self._seeks = self.run_worker(partial(self._seek, self.search, left), group="search", exclusive=True)

    def stop_search(self) -> None:
        """Stop the search; the next one goes on where it was."""
        if self._seeks is not None:
            self._seeks.cancel()
        self._seeks, self.progress = None, ""

    async def _seek(self, search: Pattern, left: _Left) -> None:
        rows, before, (step, legs, everywhere) = self._rows, self._at, left
        total = sum(max(0, (end - start) * step + 1) for start, end in legs)
        generation, told_at, done, hit = self._run.output.generation, time.monotonic(), 0, None
        for leg, (start, end) in enumerate(legs):

            def looked(at: int, leg: int = leg, start: int = start, end: int = end, done: int = done) -> bool:
                nonlocal told_at
                self._at, self._left = at, _Left(step, ((at + step, end), *legs[leg + 1 :]), everywhere)
                if time.monotonic() - told_at > _TOLD_S:
                    told_at = time.monotonic()
                    self.progress = f"{(done + abs(at - start)) * 100 // max(1, total)} %"
                    self.post_message(self.Changed())
                return self._run.output.generation == generation

            try:
                hit = await seek(rows, search, start, end, step, looked)
            except TooSlowError as error:
                self.post_message(self.Sought(f"the search stopped: {error.message} ({error.hint})", bad=True))
                self.search = None  # ends this worker, too
                return
            if hit is not None or self._run.output.generation != generation:
                break
            done += max(0, (end - start) * step + 1)
        self.progress, self._left = "", None
        self.post_message(self.Changed())
        if self._run.output.generation != generation:
            self._hit = self._at = None  # the numbers mean other lines now
        elif hit is not None:
            self._go_to(self._row_of(hit))
        else:
            self._at = before
            told = "no match" if everywhere else "no more matches below" if step > 0 else "no more matches above"
            self.post_message(self.Sought(told + self._not_searched()))

    def _first_sought(self, step: int) -> int:
        """Where a new search begins: with the first visible line, or upwards with the last."""
        positions = self._positions()
        row = (positions[0] if step > 0 else positions[-1]).row if positions else 0
        return self._rows.number(min(row, len(self._rows) - 1)) if positions else 0

    def _not_searched(self) -> str:
        """What a search did not reach, with the way to it."""
        return (
            f" ({covered}); without filter and gathering, all lines are searched" if (covered := self.covered) else ""
        )

    def _go_to(self, row: int) -> None:
        self._hit = self._at = self._rows.number(row)
        self.following = False
        if not any(shown.row == row for shown in self._positions()):
            self._show_from(min(self._step((row, 0), -(self.size.height // 3)), self._last_top()))
        self.refresh()

    def watch_search(self) -> None:
        """A new search text: search from here."""
        self.stop_search()
        self._hit = self._at = self._left = None
        self._marks.clear()

    # Drawing

    def notify_style_update(self) -> None:
        """Forget the cached styles: the theme has changed."""
        super().notify_style_update()
        self._styles.clear()
        self._of_looks.clear()

    def _style_of(self, look: Look) -> Style:
        """The style of a program's look in this theme."""
        style = self._of_looks.get(look)
        if style is None:
            if len(self._of_looks) >= _MOST_LOOKS:
                self._of_looks.clear()
            app = self.app
            colours = not app.no_color and app.theme != MONO.name
            style = style_of(look, self.rich_style, dark=app.current_theme.dark, colours=colours)
            self._of_looks[look] = style
        return style

    def _look(self, name: str) -> Style:
        style = self._styles.get(name)
        if style is None:
            style = self._styles[name] = self.rich_style + self.get_component_rich_style(
                f"output-pane--{name}", partial=True
            )
        return style

    def visible_text(self) -> str:
        """The visible lines, uncut."""
        lines = []
        for row in dict.fromkeys(shown.row for shown in self._positions()):
            try:
                lines.append(self._line(row).text)
            except IndexError:
                continue
        return "\n".join(lines)

    def get_selection(self, selection: Selected) -> tuple[str, str] | None:
        """The text marked with the mouse, as on the screen."""
        text = "\n".join(strip.text.rstrip() for strip in map(self.render_line, range(self.size.height)))
        return selection.extract(text), "\n"

    def render_line(self, y: int) -> Strip:
        """A visible line: time, rank, a rule, text."""
        scroll_x = self.scroll_offset.x
        width, blank, positions = self.size.width, self.rich_style, self._positions()
        if y >= len(positions):
            return self._hint(width) if not y else Strip.blank(width, blank)
        placed = positions[y]
        try:
            line, who = self._line(placed.row), self._who(placed.row)
        except IndexError:  # dropped since the last refresh; the next one is coming
            return Strip.blank(width, blank)
        margin = self._draw_margin(line, who, first=placed.first)
        room = max(0, width - margin.cell_length)
        wraps = self.wrap or line.stream == NOTE
        end = placed.end if wraps else scroll_x + room
        text = Strip(self._draw_text(line, self._number(placed.row), end))
        if wraps:
            text, scroll_x = text.crop(placed.begin, placed.end), 0
        strip = Strip.join([margin, text.crop_extend(scroll_x, scroll_x + room, blank)])
        return strip.apply_offsets(0, y)

    def _hint(self, width: int) -> Strip:
        """Why nothing is shown, and what to do."""
        keys = context(self).keys_of
        if self._sifts is not None:
            told = "reading earlier lines; none has passed the filter yet"
        elif self._run.output.end and self.wanted != Filter():
            told = f"no line passes the filter; {keys(ALL['run.filter'])} changes it, {keys(ALL['run.back'])} ends it"
        elif self._run.output.end and self.scope is not None:
            told = f"nothing from the chosen ranks; {keys(ALL['run.all-ranks'])} shows all ranks"
        elif self._run.output.end:
            return Strip.blank(width, self.rich_style)
        else:
            told = "nothing was written" if self._run.phase is Phase.ENDED else "nothing written yet"
        return Strip([Segment(f" {fitted(told, width - 1)}", self._look("stamp"))]).extend_cell_length(
            width, self.rich_style
        )

    def _draw_margin(self, line: Line, who: str, *, first: bool) -> Strip:
        """Time, rank, a rule; for further lines of a wrapped one only the rule."""
        hue = "note" if line.stream == NOTE else f"rank-{line.rank % HUES}"
        room = self._who_width
        who = fitted(who, room)
        segments = [
            Segment((who if first else "").rjust(room), self._look(hue)),
            Segment(" │ " if line.stream not in (STDERR, NOTE) else " ┊ ", self._look("rule")),
        ]
        if self.stamps:
            stamp = time.strftime("%H:%M:%S", time.localtime(line.at)) if line.at else "earlier "
            segments.insert(0, Segment(f"{stamp} " if first else " " * 9, self._look("stamp")))
        return Strip(segments)

    def _draw_text(self, line: Line, number: int | None, columns: int) -> list[Segment]:
        """The text, at least its first ``columns``."""
        kind = {STDERR: "stderr", NOTE: "note"}.get(line.stream)
        style = self._look(kind) if kind else self.rich_style
        colours = line.changes
        text = line.text
        end = columns if text.isascii() else len(text)  # a program may change its colour with every character
        if self.search is None:
            return self._in_colours(text, colours, style, 0, end)
        mark = style + self.get_component_rich_style(
            "output-pane--hit" if number is not None and number == self._hit else "output-pane--match", partial=True
        )
        segments, at = [], 0
        for start, stop in self._marked(self.search, text):
            segments += self._in_colours(text, colours, style, at, start)
            segments.append(Segment(text[start:stop], mark))
            at = stop
        return segments + self._in_colours(text, colours, style, at, max(at, end))

    def _marked(self, search: Pattern, text: str) -> list[tuple[int, int]]:
        """Where the search text is in a line; unknown if that takes long, because a screen has many lines."""
        marks = self._marks.get(text)
        if marks is None:
            if len(self._marks) >= _MOST_MARKED:
                self._marks.clear()
            marks = self._marks[text] = search.spans(text, _MARKING_S)
        return marks

    def _in_colours(self, text: str, colours: Changes, style: Style, begin: int, end: int) -> list[Segment]:
        """A part of a line. ``style``: if it has no colours of its own."""
        if not colours:
            return [Segment(part, style)] if (part := text[begin:end]) else []
        return [Segment(part, self._style_of(look)) for part, look in cut(text, colours, begin, end) if part]

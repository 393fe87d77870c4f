"""The map: processors in the machine's structure, at three levels of zoom, with a cursor and a selection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.widget import Widget

from console.tui.actions.registry import bindings
from console.tui.format import several
from console.tui.map.charts import Chart
from console.tui.map.layout import TIGHTEST, Lines
from console.tui.map.zoom import MACHINE, Place, Structure
from console.tui.model.machine import ALIKE, GLYPHS, HUES, MIXED, ONE_FAMILY, Machine, State
from console.tui.widgets.grids.grid import CellGrid

#: A tile for several processors shows the first of these states that one of them has.
_WORST = ((State.DOWN, "down"), (State.SUSPECT, "suspect"), (State.DRAINED, "drained"))


_CHARTS = 6  # charts that are kept: each level of zoom in both densities
_ROUNDS = 4  # another colour may be like that of a neighbour on the other side
_NOTHING = Chart(TIGHTEST, [], [])


class MachineMap(CellGrid):
    """Draws :class:`Machine` and never changes it. The grid's cells are tiles of the present chart."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"cell-grid--{state.name.lower()}" for state in State),
        *(f"cell-grid--hue-{number}" for number in range(HUES)),
        *("cell-grid--selected", "cell-grid--selected-partly"),
    }

    BINDINGS: ClassVar[list[BindingType]] = bindings("map")

    class Selected(Message):
        """The selection has changed."""

    class LaidOut(Message):
        """The space that the map needs may have changed."""

    def __init__(self, machine: Machine, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._machine = machine
        self._structure = Structure(machine)
        self._topology = machine.topology
        self._laid_out = Chart(TIGHTEST, [], [])
        self._charted: tuple[object, ...] = ()  # the inputs of the chart
        self._charts: dict[tuple[object, ...], Chart] = {}  # the last ones of this shape, by their inputs
        self._looks: dict[int, tuple[str, str, str]] = {}  # the looks of drawn tiles; removed when they change
        # Launchers with more neighbours than there are colours, until launchers begin or end: to look for one again
        # and again took two thirds of the CPU time where many launchers are scattered over a large machine.
        self._crowded: set[int] = set()
        self._crowded_among: set[int] = set()
        self._built = -1  # the machine's shape that was laid out last
        self._labels_out: dict[int, bool] = {}  # by node whose name is drawn: whether it is as out of service
        self.place: Place = MACHINE
        self.whole = True  # everything on one screen; otherwise every processor a tile
        self.selected: set[int] = set()  # processor ids
        self._processor: int | None = None  # the id of the processor under the cursor, also after the chart changes
        self._anchor: int | None = None  # the tile at which a range begins
        self._before: set[int] = set()  # the selection before the range

    # Called by the grid

    @property
    def cells(self) -> int:
        """How many tiles there are."""
        return len(self._chart.members)

    def lay_out(self, width: int, height: int) -> Lines:
        """The chart of the present place."""
        if self._topology != self._machine.topology:
            self._structure, self._topology = Structure(self._machine), self._machine.topology
        self._charted = (self.place, width, height, self.whole, self._machine.shapes)
        self._laid_out = self._chart_of(self._charted)
        if not self._laid_out.members and self.place != MACHINE:  # the cabinet or the node was removed
            self.place = MACHINE
            self._charted = (MACHINE, *self._charted[1:])
            self._laid_out = self._chart_of(self._charted)
        return self._laid_out

    def _chart_of(self, inputs: tuple[object, ...]) -> Chart:
        """The chart for these inputs; z, enter and escape go back to what was shown before."""
        chart = self._charts.pop(inputs, None)
        if chart is None:
            place, width, height, whole, _ = inputs
            chart = self._structure.chart(place, width, height, whole=whole)  # type: ignore[arg-type]
            kept = [other for other in self._charts if other[-1] == inputs[-1]][1 - _CHARTS :]
            self._charts = {other: self._charts[other] for other in kept}
        self._charts[inputs] = chart
        return chart

    @property
    def _chart(self) -> Chart:
        """The present chart; an empty one after nodes or processors have changed, until the next layout.

        Cell numbers would stand for other processors, or for none.
        """
        return self._laid_out if self._charted and self._charted[-1] == self._machine.shapes else _NOTHING

    def appearance(self, cell: int) -> tuple[str, str]:
        """Glyph and style of a tile. For different processors: down, suspect or drained if one of them is; otherwise
        the glyph for mixed states in the most common style."""
        members = self._chart.members[cell]
        machine = self._machine
        look = machine.appearance(members[0])
        if len(members) == 1:
            return look
        looks = [machine.appearance(member) for member in members]
        if looks.count(look) == len(looks):
            return look
        states = {machine.states[member] for member in members}
        for state, name in _WORST:
            if state in states:
                return GLYPHS[state], name
        return MIXED, max(looks, key=looks.count)[1]

    def mark(self, cell: int) -> str:
        """The style of a tile that is selected, completely or partly; empty for others."""
        if not self.selected:
            return ""
        processors, selected = self._machine.processors, self.selected
        members = self._chart.members[cell]
        count = sum(processors[member].id in selected for member in members)
        return "" if not count else "selected" if count == len(members) else "selected-partly"

    def look(self, cell: int) -> tuple[str, str, str]:
        """Glyph, style and mark, cached: a changed tile redraws its line, and a tile may stand for many processors."""
        look = self._looks.get(cell)
        if look is None:
            look = self._looks[cell] = super().look(cell)
        return look

    def label_style(self, first: int) -> str:
        """Nodes out of service, and the one under the cursor, are highlighted."""
        if first < 0:
            return "label"
        node = self._node_of(first)
        out = self._labels_out[node] = self._machine.nodes[node].out_of_service
        if out:
            return "label-down"
        return "label-here" if node == self._node_of(self.cursor) else "label"

    def _node_of(self, tile: int) -> int:
        return self._machine.node_of(self._chart.members[tile][0])

    # Called by the screen

    def room(self) -> Size:
        """The whole column, including the part that the map does not need."""
        width, height = super().room()
        column = self.parent
        whole = column.size.height - self.gutter.height if isinstance(column, Widget) else 0
        return Size(width, whole if whole > 0 else height) if width else Size(0, 0)

    @property
    def needs(self) -> int:
        """The number of lines that the map needs, including its frame."""
        return len(self._chart.lines) + self.gutter.height

    @property
    def is_current(self) -> bool:
        """True if it was laid out since nodes or processors changed, for example because the window was resized."""
        return self._built == self._machine.shapes

    def rebuild(self) -> None:
        """Lay out again, if the place, the space or the shape of the machine is another; the cursor stays on its
        processor."""
        machine = self._machine
        self._anchor = None
        size = self.room()
        if not size:
            return  # not visible yet: it is laid out when it gets its space
        before = self._layout
        chart = self.lay_out(size.width, size.height)
        cell = machine.cell_of(self._processor) if self._processor is not None else 0
        tile = self._chart.tile_of.get(cell) if cell is not None else None
        if chart is before and self.is_current:
            if tile is not None:
                self.cursor = tile
            self.post_message(self.Moved(self, self.cursor))
        else:
            self._rebuild(tile)
        self._show_cursor()
        self.post_message(self.LaidOut())

    def _rebuild(self, cursor: int | None) -> None:
        """Draw another chart."""
        machine = self._machine
        self._looks.clear()
        self._crowded.clear()
        self._labels_out.clear()
        self.selected = {one for one in self.selected if machine.cell_of(one) is not None}
        if cursor is not None:
            self.set_reactive(MachineMap.cursor, cursor)
        self._keep_all_apart()
        self._built = machine.shapes
        super().rebuild()

    def repaint(self, cells: set[int]) -> None:
        """Repaint the tiles of changed cells, and of launchers that got another colour."""
        tile_of = self._chart.tile_of
        changed = cells | self._keep_apart([tile for cell in cells if (tile := tile_of.get(cell)) is not None])
        self._redraw(changed)

    def _redraw(self, cells: set[int]) -> None:
        """Repaint the tiles of these cells that look different. Those out of sight are drawn when they are seen."""
        chart, looks = self._chart, self._looks
        top = self.scroll_offset.y
        seen = range(top - chart.density.height, top + self.size.height)
        changed = set()
        for tile in {tile for cell in cells if (tile := chart.tile_of.get(cell)) is not None}:
            if chart.place(tile)[1] not in seen:
                looks.pop(tile, None)
                changed.add(tile)
                continue
            look = super().look(tile)
            if looks.get(tile) != look:
                looks[tile] = look
                changed.add(tile)
        super().repaint(changed)
        self._repaint_labels(changed)
        if self.cursor not in changed and self.cell is not None and not cells.isdisjoint(self.under):
            self.post_message(self.Moved(self, self.cursor))

    def _repaint_labels(self, tiles: Iterable[int]) -> None:
        """Repaint the names of nodes that went out of service, or came back."""
        for node in {self._node_of(tile) for tile in tiles} if self._labels_out else ():
            out = self._machine.nodes[node].out_of_service
            if out != self._labels_out.get(node, out):
                self._labels_out[node] = out
                first = self._chart.tile_of.get(self._machine.node_cells(node)[0])
                if first is not None:
                    self._refresh_line_of(first)

    def _keep_all_apart(self) -> None:
        """Recolour all launchers that look like a neighbour on this chart, unless that was done since one changed."""
        machine, chart = self._machine, self._chart
        for _ in range(_ROUNDS):
            if chart.apart == machine.holdings:
                break
            chart.apart = machine.holdings  # which change with the colour of a launcher
            holders = [machine.processors[members[0]].launcher for members in chart.members]
            pairs = (map(holders.__getitem__, tiles) for tiles in chart.borders)
            self._keep_pairs_apart(dict.fromkeys(zip(*pairs, strict=True)))  # each two only once: there are 40,000

    def _keep_apart(self, tiles: Iterable[int]) -> set[int]:
        """Recolour launchers that look like a neighbour of these tiles; returns changed cells."""
        return self._keep_pairs_apart(
            (one, self._holder(other))
            for tile in tiles
            if (one := self._holder(tile)) is not None
            for other in self._chart.neighbours[tile]
        )

    def _keep_pairs_apart(self, pairs: Iterable[tuple[int | None, int | None]]) -> set[int]:
        """Recolour one of each two launchers that look alike; returns changed cells."""
        changed: set[int] = set()
        tiles_of: dict[int, list[int]] = {}
        hue = self._machine.hue
        if self._crowded and self._crowded_among != self._machine.launchers.keys():
            self._crowded.clear()
        for one, other in pairs:
            if other is None or one is None or other == one or ALIKE[hue(other)][hue(one)] < ONE_FAMILY:
                continue
            # The older one keeps its colour, unless the two would look nearly the same.
            for launcher, limit in ((max(one, other), ONE_FAMILY), (min(one, other), ONE_FAMILY + 1)):
                if launcher not in self._crowded and ALIKE[hue(other)][hue(one)] >= limit:
                    tiles_of = tiles_of or self._tiles_of_launchers()
                    recoloured = self._recolour(launcher, tiles_of.get(launcher, ()))
                    changed |= recoloured
                    if not recoloured:
                        self._crowded.add(launcher)
                        self._crowded_among = set(self._machine.launchers)
        return changed

    def _tiles_of_launchers(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for tile in range(self.cells):
            holder = self._holder(tile)
            if holder is not None:
                found.setdefault(holder, []).append(tile)
        return found

    def _recolour(self, launcher: int, tiles: Iterable[int]) -> set[int]:
        machine = self._machine
        near = Counter(self._holder(other) for tile in tiles for other in self._chart.neighbours[tile])
        borders = {other: length for other, length in near.items() if other is not None and other != launcher}
        return machine.recolour(launcher, borders)

    def _holder(self, tile: int) -> int | None:
        return self._machine.processors[self._chart.members[tile][0]].launcher

    def show(self, place: Place, cell: int | None = None) -> None:
        """Show a place, with the cursor on that cell."""
        self.place = place
        if cell is not None and 0 <= cell < self._machine.cells:
            self._processor = self._machine.processors[cell].id
        self.rebuild()
        self.post_message(self.Selected())

    @property
    def cell(self) -> int | None:
        """The machine's cell under the cursor, the first of its tile."""
        return self._chart.members[self.cursor][0] if 0 <= self.cursor < self.cells else None

    @property
    def under(self) -> list[int]:
        """All cells of the tile under the cursor."""
        return list(self._chart.members[self.cursor]) if 0 <= self.cursor < self.cells else []

    @property
    def path(self) -> str:
        """The present place in words; empty for the whole machine."""
        return self._structure.path(self.place, self.cell)

    @property
    def side_seen(self) -> str:
        """The only visible side of the machine; empty for the whole machine."""
        return self._structure.side_seen()

    @property
    def merged(self) -> bool:
        """True if tiles stand for several processors."""
        return self._chart.merged

    @property
    def has_mixed(self) -> bool:
        """True if a tile stands for processors that are not alike, with the glyph that says so."""
        return self.merged and any(self.look(tile)[0] == MIXED for tile in range(self.cells))

    @property
    def mixture(self) -> str:
        """What is under the cursor, if that is not alike: ``1 down, 29 busy, 2 free, in 3 launches``."""
        under, machine = self.under, self._machine
        counts = Counter(State(machine.states[cell]) for cell in under)
        launchers = {machine.processors[cell].launcher for cell in under} - {None}
        if len(counts) < 2 and len(launchers) < 2:
            return ""
        order = [state for state, _ in _WORST]
        states = [*order, *(state for state in _ORDER if state not in order)]
        words = [f"{counts[state]:,} {state.name.lower()}" for state in states if counts[state]]
        within = f", in {several(len(launchers), 'launch')}" if len(launchers) > 1 else ""
        return ", ".join(words) + within

    def where(self, cell: int) -> str:
        """The cabinet of a cell, in words."""
        return self._structure.where(cell)

    @property
    def launcher(self) -> int | None:
        """The launcher of the processor under the cursor."""
        return self._machine.processors[self.cell].launcher if self.cell is not None else None

    # Cursor

    def watch_cursor(self, before: int, after: int) -> None:
        """Also repaint the label of the node that was left; a range follows."""
        super().watch_cursor(before, after)
        if 0 <= after < self.cells:
            self._processor = self._machine.processors[self._chart.members[after][0]].id
            for tile in (before, after):
                if tile < self.cells:
                    first = self._machine.node_cells(self._node_of(tile))[0]
                    self._refresh_line_of(self._chart.tile_of.get(first, tile))
        if self._anchor is not None:
            self._stretch()

    def _show_cursor(self) -> None:
        if self.cursor in self._layout:
            x, y = self._layout.place(self.cursor)
            tile = self._layout.density
            self.scroll_to_region(Region(x, y, tile.tile, tile.height), animate=False, force=True)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Inside a node, the only further level is its launch."""
        del parameters
        if action == "choose" and self.place.kind == "node":
            return True if self.launcher is not None else None
        return True

    def action_group(self, step: int) -> None:
        """Move to the next or previous cabinet (on the machine) or node (in a cabinet)."""
        start = self.cell
        if start is None:
            return
        here = self._group(start)
        cells = range(start + 1, self._machine.cells) if step > 0 else range(start - 1, -1, -1)
        found = next((cell for cell in cells if cell in self._chart.tile_of and self._group(cell) != here), None)
        if found is None:
            return
        if step < 0:  # to the beginning of that group, not its end
            there = self._group(found)
            while found > 0 and self._group(found - 1) == there and found - 1 in self._chart.tile_of:
                found -= 1
        self.cursor = self._chart.tile_of[found]

    def _group(self, cell: int) -> object:
        if self.place.kind == "machine" and self._structure.has_cabinets:
            return self._structure.cabinet(cell)
        return self._machine.node_of(cell)

    def group_cells(self, cell: int) -> list[int]:
        """The cells of a cell's cabinet (on the machine) or node (elsewhere)."""
        if self.place.kind == "machine" and self._structure.has_cabinets:
            return self._structure.cells_of(self._structure.cabinet(cell))
        return list(self._machine.node_cells(self._machine.node_of(cell)))

    # Zoom

    def zoom_in(self) -> bool:
        """Zoom in at the cursor; False at the innermost level."""
        if self.cell is None:
            return False
        inside = self._structure.inside(self.place, self.cell)
        if inside == self.place:
            return False
        self.show(inside)
        return True

    def zoom_out(self) -> bool:
        """Zoom out; False at the machine."""
        if self.place == MACHINE:
            return False
        self.show(self._structure.outside(self.place, self.cell))
        return True

    def find_place(self, kind: str, name: str) -> tuple[Place, int] | None:
        """The place of that name and its first cell; None if it does not exist."""
        machine = self._machine
        if kind == "node":
            named = (machine.node_cells(index) for index, node in enumerate(machine.nodes) if node.name == name)
            cells: Sequence[int] = next(filter(None, named), range(0))
        else:
            cells = self._structure.cells_of(name) if self._structure.has_cabinets else ()
        return (Place(kind, name), min(cells)) if cells else None

    # Selection

    def select(self, cells: Iterable[int]) -> None:
        """Select exactly these cells."""
        self._anchor = None
        self._select(self._processors(cells))

    def select_processors(self, processors: set[int]) -> None:
        """Select exactly these processors, as far as they still exist."""
        self._anchor = None
        self._select({one for one in processors if self._machine.cell_of(one) is not None})

    def _processors(self, cells: Iterable[int]) -> set[int]:
        """The ids of the cells' processors; removed cells have none."""
        processors = self._machine.processors
        return {processors[cell].id for cell in cells if 0 <= cell < len(processors)}

    def _select(self, processors: set[int]) -> None:
        changed = processors ^ self.selected
        self.selected = processors
        cells = {cell for one in changed if (cell := self._machine.cell_of(one)) is not None}
        self._redraw(cells)
        if changed:
            self.post_message(self.Selected())

    @property
    def selected_cells(self) -> list[int]:
        """The cells selected, in the machine's order."""
        found = (self._machine.cell_of(one) for one in self.selected)
        return sorted(cell for cell in found if cell is not None)

    def toggle(self, cells: Iterable[int]) -> None:
        """Select these, or unselect them if all are selected."""
        self._anchor = None
        ids = self._processors(cells)
        self._select(self.selected - ids if ids <= self.selected else self.selected | ids)

    @property
    def ranging(self) -> bool:
        """True while a range is being extended."""
        return self._anchor is not None

    def action_extend(self, where: str) -> None:
        """Move the cursor and select on the way."""
        if self._anchor is None:
            self.begin_range()
        self.action_move(where)

    def begin_range(self) -> None:
        """Start a range at the cursor; a second call ends it."""
        if self._anchor is not None or not self.cells:
            self._anchor = None
            return
        self._anchor, self._before = self.cursor, set(self.selected)
        self._stretch()

    def _stretch(self) -> None:
        if self._anchor is None or not max(self._anchor, self.cursor) < self.cells:
            return
        tiles = self._between(self._anchor, self.cursor)
        self._select(self._before | self._processors(cell for tile in tiles for cell in self._chart.members[tile]))

    def _between(self, one: int, other: int) -> Iterable[int]:
        """In a row of nodes, all cells between; on a chart, the rectangle on the screen."""
        if not self._structure.has_cabinets:
            return range(min(one, other), max(one, other) + 1)
        (x, y), (u, v) = self._chart.place(one), self._chart.place(other)
        left, right, top, bottom = min(x, u), max(x, u), min(y, v), max(y, v)
        places = ((tile, self._chart.place(tile)) for tile in range(self.cells))
        return [tile for tile, (a, b) in places if left <= a <= right and top <= b <= bottom]

    def _tile_at(self, offset: Offset | None) -> int | None:
        if offset is None:
            return None
        return self._chart.at(offset.x + self.scroll_offset.x, offset.y + self.scroll_offset.y)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """With shift: a range up to here. Otherwise: the start of a possible drag."""
        offset = event.get_content_offset(self)
        tile = self._tile_at(offset)
        if tile is None:
            return
        if event.shift and self._anchor is None:
            self.begin_range()
        elif not event.shift:
            self._anchor = None
        self.cursor = tile

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """A drag selects the tiles it passes."""
        offset = event.get_content_offset(self)
        tile = self._tile_at(offset)
        if event.button != 1 or tile is None or tile == self.cursor:
            return
        if self._anchor is None:
            self.begin_range()
        self.cursor = tile

    def on_mouse_up(self) -> None:
        """End the range; with shift, the next click or key begins a new one at the cursor."""
        self._anchor = None


# The meaning of glyphs, with the number of processors in each state.


#: Always shown; other states only if there are any.
_ALWAYS = (State.FREE, State.PENDING, State.BUSY, State.SUSPECT, State.DOWN, State.RESERVED)
_ORDER = (*_ALWAYS, State.DRAINING, State.DRAINED, State.HELD, State.SERVICE)


class Legend(Widget):
    """One line. The state "busy" is shown once for the letters of all launchers."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "legend--quiet",
        *(f"cell-grid--{state.name.lower()}" for state in State),
    }

    def __init__(self, machine: Machine, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._machine = machine
        self._counts: dict[State, int] = {}
        self._mixed = False

    def update_counts(self, mixed: bool = False) -> None:
        """Redraw if a count has changed. ``mixed``: whether the map has tiles of processors that are not alike."""
        counts = self._machine.counts()
        if (counts, mixed) != (self._counts, self._mixed):
            self._counts, self._mixed = counts, mixed
            self.refresh()

    def render(self) -> Content:
        """Glyph, name and count; shorter on a narrow terminal, without empty states."""
        states = [state for state in _ORDER if state in _ALWAYS or self._counts.get(state)]
        there = [state for state in states if self._counts.get(state)]
        for shown, gap, wide in ((states, 3, True), (states, 2, True), (states, 1, True), (states, 1, False),
                                 (there, 1, True), (there, 1, False)):  # fmt: skip
            line = self._line(shown, gap, wide)
            if line.cell_length <= self.size.width:
                break
        return line

    def _line(self, states: list[State], gap: int, wide: bool) -> Content:
        quiet = self.get_visual_style("legend--quiet")
        parts: list[Content] = []
        for state in states:
            name = state.name.lower()
            glyph = "a-z" if state is State.BUSY and wide else GLYPHS[state]
            glyph = f" {glyph} " if wide else glyph
            style = self.get_visual_style(f"cell-grid--{name}")
            parts.append(Content.assemble((glyph, style), (f" {name} ", quiet), f"{self._counts.get(state, 0):,}"))
        if self._mixed:
            parts.append(Content.styled(f" {MIXED} {'' if not wide else ' '}mixed", quiet))
        return Content(" " * gap).join(parts)

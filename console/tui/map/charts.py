"""Charts of the machine: cabinets in rows and columns, racks side by side. No I/O: structure in, lines of tiles out.

A tile stands for one processor, or for several neighbours if the whole machine would not fit otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from typing import NamedTuple

from console.tui.map.layout import DENSITIES, TIGHTEST, Block, Density, Lines, Stretch
from db.topology import Mesh

_LEFT = 4  # columns for the names of rows and cages
_PLAIN = -1  # ``first`` of a label without a tile
#: The widest tile, in columns; wider ones would waste space.
_WIDEST = 5


class Chart(Lines):
    """Lines of tiles. ``members[tile]`` are its cells in order."""

    def __init__(self, density: Density, lines: list[list[Stretch]], members: list[Sequence[int]]) -> None:
        super().__init__(density, lines)
        self.members = members
        self.tile_of = {cell: tile for tile, cells in enumerate(members) for cell in cells}
        self.merged = any(len(cells) > 1 for cells in members)
        self.apart = -1  # the machine's holdings for which launchers beside each other have other colours here

    @cached_property
    def neighbours(self) -> list[tuple[int, ...]]:
        """For each tile the tiles on its four sides."""
        row = self.width + self.density.tile + self.density.gap  # so that the end of a line is beside no beginning
        numbers = [y * row + x for x, y in map(self._where.__getitem__, range(len(self.members)))]
        across, down = self.density.tile + self.density.gap, self.density.height
        # above and below also beyond a line without tiles
        steps = (-across, across, -down * row, -(down + 1) * row, down * row, (down + 1) * row)
        at = {number: tile for tile, number in enumerate(numbers)}.get
        sides = [[at(number + step, _PLAIN) for number in numbers] for step in steps]
        return [tuple(tile for tile in beside if tile != _PLAIN) for beside in zip(*sides, strict=True)]

    @cached_property
    def borders(self) -> tuple[list[int], list[int]]:
        """Each tile as often as it has neighbours, and these neighbours: two lists of equal length."""
        ones = [tile for tile, beside in enumerate(self.neighbours) for _ in beside]
        return ones, list(chain.from_iterable(self.neighbours))


class Group(NamedTuple):
    """A titled set of blocks: a rack with its nodes, a cage with its boards."""

    title: str
    blocks: list[Block]


class _Scale(NamedTuple):
    """The scale of cabinets: bands side by side, tiles across and lines down, columns for each tile, gap between
    them."""

    beside: int
    across: int
    down: int
    tile: int
    gap: int


def cabinets(mesh: Mesh, cell_of: Callable[[int], int | None], width: int, height: int, *, whole: bool = True) -> Chart:
    """A chart of all cabinets. ``whole``: fit it into one screen; otherwise every processor is a tile, whatever the
    size."""
    cut = {switch.after for switch in mesh.switches if switch.name in mesh.open}
    scale = _scale(mesh, width, height, len(cut), whole)
    drawing = _Drawing(mesh, cell_of, scale, cut)
    a_band = _band_width(mesh, scale, len(cut))
    airy = mesh.rows // scale.beside * (scale.down + 2) - 1 <= height
    for first in range(0, mesh.rows, scale.beside):
        if first and airy:
            drawing.lines.append([])
        drawing.bands(range(first, min(first + scale.beside, mesh.rows)), a_band)
    return Chart(Density(scale.tile, 1, 0, 0), drawing.lines, drawing.members)


def _band_width(mesh: Mesh, scale: _Scale, cuts: int) -> int:
    separators = scale.gap * (mesh.columns - 1) if scale.gap else cuts
    return _LEFT + mesh.columns * scale.across * scale.tile + separators


def _scale(mesh: Mesh, width: int, height: int, cuts: int, whole: bool) -> _Scale:
    """The fitting scale with most tiles, then with the widest."""
    if not whole:
        return _Scale(1, mesh.routers, mesh.depth, 1, 1)
    downs = [mesh.cages * part for part in _divisors(mesh.boards)] + [1]
    every = [
        _Scale(beside, across, down, tile, gap)
        for beside in _divisors(mesh.rows)
        for across in _divisors(mesh.routers)
        for down in downs
        for tile in range(1, _WIDEST + 1, 2)
        for gap in (1, 0)
    ]

    def fits(scale: _Scale) -> bool:
        across = scale.beside * (_band_width(mesh, scale, cuts) + 2) - 2
        return across <= width and mesh.rows // scale.beside * (scale.down + 1) <= height

    def worth(scale: _Scale) -> tuple[int, ...]:
        # Prefer arrangements close to a square among those with as many tiles.
        needle = abs(scale.across * scale.tile * 2 - scale.down)
        return scale.across * scale.down, scale.tile, -needle, scale.gap, -scale.beside

    fitting = [scale for scale in every if fits(scale)]
    return max(fitting, key=worth) if fitting else _Scale(1, 1, 1, 1, 0)


def _divisors(number: int) -> list[int]:
    return [one for one in range(number, 0, -1) if number % one == 0]


@lru_cache(2)
def _towers(mesh: Mesh) -> list[list[list[int | None]]]:
    """The processors by x, y and z, asked for once: it is half of the time that the first chart takes."""
    return [
        [[mesh.at(x, y, z) for z in range(mesh.depth)] for y in range(mesh.rows * mesh.routers)]
        for x in range(mesh.columns)
    ]


class _Drawing:
    """Lines and tiles of all cabinets, built from the top down."""

    def __init__(self, mesh: Mesh, cell_of: Callable[[int], int | None], scale: _Scale, cut: set[int]) -> None:
        self.lines: list[list[Stretch]] = []
        self.members: list[Sequence[int]] = []
        self._mesh, self._cell_of, self._scale, self._cut = mesh, cell_of, scale, cut

    def bands(self, rows: range, a_band: int) -> None:
        """Rows of cabinets side by side."""
        self.lines.append([part for i, row in enumerate(rows) for part in self._head(row, i * (a_band + 2))])
        for line in range(self._scale.down):
            self.lines.append([part for i, row in enumerate(rows) for part in self._line(row, line, i * (a_band + 2))])

    def _x(self, column: int) -> int:
        scale = self._scale
        separators = column * scale.gap if scale.gap else sum(after < column for after in self._cut)
        return _LEFT + column * scale.across * scale.tile + separators

    def _head(self, row: int, left: int) -> list[Stretch]:
        parts = [Stretch(left, f"r{row}", left + _LEFT, _PLAIN, 0, 0)]
        taken = 0
        for column in range(self._mesh.columns):
            at, name = self._x(column), str(column)
            if at >= taken:
                parts.append(Stretch(left + at, name, left + at + len(name), _PLAIN, 0, 0))
                taken = at + max(len(name) + 1, 3)
        return parts

    def _line(self, row: int, line: int, left: int) -> list[Stretch]:
        scale, mesh = self._scale, self._mesh
        a_cage = max(1, scale.down // mesh.cages)
        name = f"c{line // a_cage}" if scale.down > 1 and line % a_cage == 0 else ""
        parts: list[Stretch] = [Stretch(left, name, left + len(name), _PLAIN, 0, 0)]
        for column in range(mesh.columns):
            for part in self._tiles(row, column, line, left + self._x(column)):
                last = parts[-1]
                if last.cells and last.x + last.cells * scale.tile == part.x:
                    parts[-1] = last._replace(cells=last.cells + part.cells)
                else:
                    parts.append(part)
            if column in self._cut:
                end = left + self._x(column) + scale.across * scale.tile
                parts.append(Stretch(end, "|", end + 1, _PLAIN, 0, 0))
        return parts

    def _tiles(self, row: int, column: int, line: int, x: int) -> list[Stretch]:
        """The tiles of one cabinet on one line, as runs."""
        scale, mesh = self._scale, self._mesh
        boards = range(line * mesh.depth // scale.down, (line + 1) * mesh.depth // scale.down)
        each = mesh.routers // scale.across
        towers = _towers(mesh)[column][row * mesh.routers : (row + 1) * mesh.routers]
        parts: list[Stretch] = []
        for i in range(scale.across):
            some = towers[i * each : (i + 1) * each]
            places = [place for z in boards for tower in some if (place := tower[z]) is not None]
            cells = [cell for cell in map(self._cell_of, places) if cell is not None]
            if not cells:
                continue
            at = x + i * scale.tile
            last = parts[-1] if parts else None
            if last is not None and last.x + last.cells * scale.tile == at:
                parts[-1] = last._replace(cells=last.cells + 1)
            else:
                parts.append(Stretch(at, "", at, len(self.members), 1, 0))
            self.members.append(cells)
        return parts


def groups(found: Sequence[Group], width: int, height: int, *, whole: bool = True) -> Chart:
    """Groups side by side, each under its title, with one line or more for each block, as wide as possible.

    ``whole``: if even the narrowest does not fit, a block becomes one tile.
    """
    for density in [one for some in DENSITIES[1:] for one in some] if whole else []:
        lines, members, fits = _grouped(found, width, density)
        if fits and len(lines) <= height:
            return Chart(density, lines, members)
    if whole:
        for density in (one for some in DENSITIES[1:] for one in some):
            lines, members, fits = _grouped([_one_block(group) for group in found], width, density)
            if fits and len(lines) <= height:
                return Chart(density, lines, _members(found))
    lines, members, _ = _grouped(found, width, TIGHTEST)
    return Chart(TIGHTEST, lines, members)


def _one_block(group: Group) -> Group:
    """The group with a tile for each of its blocks."""
    return Group(group.title, [Block("", 0, len(group.blocks))])


def _members(found: Sequence[Group]) -> list[Sequence[int]]:
    return [range(block.first, block.first + block.cells) for group in found for block in group.blocks]


def _grouped(
    found: Sequence[Group], width: int, density: Density
) -> tuple[list[list[Stretch]], list[Sequence[int]], bool]:
    """Lines and tiles; and whether each block's cells fit on at most two lines."""
    step = density.tile + density.gap
    label = min(max((len(block.label) for group in found for block in group.blocks), default=0), 16)
    label += label > 0
    longest = max((block.cells for group in found for block in group.blocks), default=1)
    run = max(1, min(longest, (width - label) // step))
    wide = max(label + run * step - density.gap, max((len(group.title) for group in found), default=0))
    beside = max(1, (width + 2) // (wide + 2))
    members: list[Sequence[int]] = []
    lines: list[list[Stretch]] = []
    for first in range(0, len(found), beside):
        row = found[first : first + beside]
        if lines:
            lines.append([])
        columns = [_group_lines(group, i * (wide + 2), label, run, density, members) for i, group in enumerate(row)]
        for y in range(max(map(len, columns))):
            lines.append([part for column in columns if y < len(column) for part in column[y]])
    return lines, members, run >= longest or (2 * run >= longest and density == TIGHTEST)


def _group_lines(
    group: Group, left: int, label: int, run: int, density: Density, members: list[Sequence[int]]
) -> list[list[Stretch]]:
    lines = [[Stretch(left, group.title, left + len(group.title), _PLAIN, 0, 0)]]
    for block in group.blocks:
        for begin in range(0, block.cells, run):
            count = min(run, block.cells - begin)
            first = len(members)
            members += [(block.first + begin + i,) for i in range(count)]
            for part in range(density.height):
                middle = part - density.height // 2
                text = block.label[: label - 1] if begin == middle == 0 else ""
                lines.append([Stretch(left, text, left + label, first, count, middle)])
        lines += [[]] * (density.blank and density.height > 1)
    return lines

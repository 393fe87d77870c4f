"""The position of each processor on the map. No I/O: blocks of cells in, columns and lines out."""

from collections.abc import Iterator
from functools import cached_property
from itertools import product
from typing import NamedTuple

#: Blocks of one processor are drawn in runs of this many if there is no room for their labels.
MERGED = 32


class Block(NamedTuple):
    """A labelled run of cells: a node, or several small ones."""

    label: str
    first: int
    cells: int


class Density(NamedTuple):
    """The space of a cell: width and height, gap to the next, blank lines between rows of blocks."""

    tile: int
    height: int
    gap: int
    blank: int


#: From wide to narrow, in groups of about the same look: within a group, whole blocks are preferred to broken ones.
DENSITIES = (
    (Density(19, 7, 1, 1), Density(15, 5, 1, 1), Density(11, 5, 1, 1)),
    (Density(9, 3, 1, 1), Density(7, 3, 1, 1), Density(5, 3, 1, 1)),
    (Density(5, 1, 1, 1), Density(3, 1, 1, 1), Density(3, 1, 1, 0), Density(3, 1, 0, 0)),
    (Density(1, 1, 1, 0), Density(1, 1, 0, 0)),
)
_PLAIN_HEIGHT = 3
TIGHTEST = DENSITIES[-1][-1]


class Stretch(NamedTuple):
    """Cells side by side on one line. ``part``: which line of the tiles it is, counted from their middle line."""

    label_x: int
    label: str
    x: int
    first: int
    cells: int
    part: int


class Lines:
    """Cells on lines, with their positions."""

    def __init__(self, density: Density, lines: list[list[Stretch]]) -> None:
        self.density, self.lines = density, lines
        self._where: dict[int, tuple[int, int]] = {}
        step = density.tile + density.gap
        for y, line in enumerate(lines):
            for stretch in line:
                if stretch.part == -(density.height // 2):
                    for i in range(stretch.cells):
                        self._where[stretch.first + i] = (stretch.x + i * step, y)

    @cached_property
    def width(self) -> int:
        """The number of used columns."""
        step = self.density.tile + self.density.gap
        ends = (
            max(s.label_x + len(s.label), s.x + s.cells * step - self.density.gap) for row in self.lines for s in row
        )
        return max(ends, default=0)

    def __contains__(self, cell: int) -> bool:
        """True if the cell existed at the time of the layout."""
        return cell in self._where

    def place(self, cell: int) -> tuple[int, int]:
        """Column and line where the cell begins."""
        return self._where[cell]

    def at(self, x: int, y: int) -> int | None:
        """The cell drawn there; None between cells."""
        if not 0 <= y < len(self.lines):
            return None
        step = self.density.tile + self.density.gap
        for stretch in self.lines[y]:
            index, inside = divmod(x - stretch.x, step)
            if 0 <= index < stretch.cells and inside < self.density.tile:
                return stretch.first + index
        return None

    def vertical(self, cell: int, step: int) -> int:
        """The nearest cell on the next line with cells, down for 1 and up for -1; otherwise the cell itself."""
        x, y = self.place(cell)
        y += step * (self.density.height if step > 0 else 1)
        while 0 <= y < len(self.lines):
            candidates = [s.first + i for s in self.lines[y] for i in range(s.cells)]
            if candidates:
                return min(candidates, key=lambda other: abs(self.place(other)[0] - x))
            y += step
        return cell


class Layout(Lines):
    """Blocks laid out row by row in ``width`` columns, as wide as ``height`` lines permit.

    ``halves``: a block may take two lines of equal length.
    """

    def __init__(self, blocks: list[Block], width: int, height: int, *, halves: bool = True) -> None:
        super().__init__(*_choose(blocks, max(8, width), height, 2 if halves else 1))


def merge(blocks: list[Block]) -> list[Block]:
    """Merge adjacent small blocks, labelled by the first of them."""
    merged: list[Block] = []
    for block in blocks:
        last = merged[-1] if merged else None
        if last and last.first + last.cells == block.first and last.cells + block.cells <= MERGED:
            merged[-1] = Block(last.label, last.first, last.cells + block.cells)
        else:
            merged.append(block)
    return merged


def _choose(blocks: list[Block], width: int, height: int, most: int) -> tuple[Density, list[list[Stretch]]]:
    """The widest arrangement that fits with blocks in at most ``most`` parts, else any that fits, else the
    narrowest."""
    longest = max((block.cells for block in blocks), default=0)
    for limits in (range(1, most + 1), (longest,)):
        for group in DENSITIES:
            for parts, density in product(limits, group):
                grown = density.height > _PLAIN_HEIGHT
                if _per_line(blocks, width, density) * parts < longest:
                    continue
                if grown and _label_width(blocks) + density.tile > width:
                    continue
                # Tiles grow in a large window, but leave half of it for what is below the map.
                if _fits(blocks, width, density, height // 2 if grown else height):
                    return density, _arrange(blocks, width, density)
    return TIGHTEST, _arrange(merge(blocks), width, TIGHTEST)


def _label_width(blocks: list[Block]) -> int:
    return min(max((len(block.label) for block in blocks), default=0), 16) + 1


def _per_line(blocks: list[Block], width: int, density: Density) -> int:
    longest = max(block.cells for block in blocks) if blocks else 0
    per_line = min(max(1, longest), max(1, (width - _label_width(blocks)) // (density.tile + density.gap)))
    if per_line < longest <= 2 * per_line and longest % 2 == 0:
        return longest // 2
    if 8 <= per_line < longest:
        per_line -= per_line % 8  # break lines at the same, easily counted place
    return per_line


def _block_width(blocks: list[Block], width: int, density: Density) -> int:
    per_line = _per_line(blocks, width, density)
    return _label_width(blocks) + per_line * (density.tile + density.gap) - density.gap + 2


def _rows(blocks: list[Block], width: int, density: Density) -> Iterator[tuple[list[Block], int]]:
    """Blocks that stand side by side, and the number of lines of cells that they take."""
    per_line = _per_line(blocks, width, density)
    columns = max(1, (width + 2) // _block_width(blocks, width, density))
    for start in range(0, len(blocks), columns):
        row = blocks[start : start + columns]
        yield row, max(1, *(-(-block.cells // per_line) for block in row))


def _fits(blocks: list[Block], width: int, density: Density, height: int) -> bool:
    """True if the blocks take at most ``height`` lines. Counting ends there: to arrange 10,368 nodes at every density
    took two seconds."""
    lines = -density.blank
    for _, cells in _rows(blocks, width, density):
        lines += density.blank + cells * density.height
        if lines > height:
            return False
    return True


def _arrange(blocks: list[Block], width: int, density: Density) -> list[list[Stretch]]:
    label, per_line = _label_width(blocks), _per_line(blocks, width, density)
    block_width = _block_width(blocks, width, density)
    lines: list[list[Stretch]] = []
    for row, subs in _rows(blocks, width, density):
        if lines and density.blank:
            lines.append([])
        for sub in range(subs):
            for part in range(density.height):
                lines.append(_line(row, (sub, part - density.height // 2), per_line, label, block_width))
    return lines


def _line(row: list[Block], where: tuple[int, int], per_line: int, label: int, block_width: int) -> list[Stretch]:
    sub, part = where
    line = []
    for column, block in enumerate(row):
        taken = sub * per_line
        cells = min(per_line, block.cells - taken)
        if cells > 0 or sub == 0:
            x = column * block_width
            text = block.label[: label - 1] if sub == part == 0 else ""
            line.append(Stretch(x, text, x + label, block.first + taken, max(0, cells), part))
    return line

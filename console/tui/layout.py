"""Where each processor stands on the map. Pure arithmetic: blocks of cells in, columns and lines out."""

from typing import NamedTuple

#: Blocks of one processor each are drawn together in runs of this many once a label for each would not fit.
MERGED = 32


class Block(NamedTuple):
    """A labelled run of cells: a node, or several small ones."""

    label: str
    first: int
    cells: int


class Density(NamedTuple):
    """How much room a cell gets: its width, the gap to the next, blank lines between rows of blocks."""

    tile: int
    gap: int
    blank: int


#: From roomy to tight: the first that fits the height is taken.
DENSITIES = (Density(5, 1, 1), Density(3, 1, 1), Density(3, 1, 0), Density(2, 1, 0), Density(1, 1, 0), Density(1, 0, 0))


class Stretch(NamedTuple):
    """Cells side by side on one line; ``label`` is empty on a block's second line and later."""

    label_x: int
    label: str
    x: int
    first: int
    cells: int


class Layout:
    """Blocks laid out row by row in ``width`` columns, as roomy as ``height`` lines allow."""

    def __init__(self, blocks: list[Block], width: int, height: int) -> None:
        self.density = DENSITIES[-1]
        self.lines: list[list[Stretch]] = []
        for density in DENSITIES:
            self.density = density
            self.lines = _arrange(blocks, max(8, width), density)
            if len(self.lines) <= height:
                break
        else:
            merged = merge(blocks)
            if len(merged) < len(blocks):
                self.lines = _arrange(merged, max(8, width), self.density)
        self._where: dict[int, tuple[int, int]] = {}
        step = self.density.tile + self.density.gap
        for y, line in enumerate(self.lines):
            for stretch in line:
                for i in range(stretch.cells):
                    self._where[stretch.first + i] = (stretch.x + i * step, y)

    @property
    def width(self) -> int:
        """Columns in use."""
        step = self.density.tile + self.density.gap
        return max((s.x + s.cells * step - self.density.gap for line in self.lines for s in line), default=0)

    def place(self, cell: int) -> tuple[int, int]:
        """Column and line where the cell begins."""
        return self._where[cell]

    def at(self, x: int, y: int) -> int | None:
        """The cell drawn there, None between cells."""
        if not 0 <= y < len(self.lines):
            return None
        step = self.density.tile + self.density.gap
        for stretch in self.lines[y]:
            index, inside = divmod(x - stretch.x, step)
            if 0 <= index < stretch.cells and inside < self.density.tile:
                return stretch.first + index
        return None

    def vertical(self, cell: int, step: int) -> int:
        """The nearest cell on the next line with any, downwards for 1 and upwards for -1; else the cell itself."""
        x, y = self.place(cell)
        y += step
        while 0 <= y < len(self.lines):
            candidates = [s.first + i for s in self.lines[y] for i in range(s.cells)]
            if candidates:
                return min(candidates, key=lambda other: abs(self.place(other)[0] - x))
            y += step
        return cell


def merge(blocks: list[Block]) -> list[Block]:
    """Neighbouring small blocks put together, labelled by the first of them."""
    merged: list[Block] = []
    for block in blocks:
        last = merged[-1] if merged else None
        if last and last.first + last.cells == block.first and last.cells + block.cells <= MERGED:
            merged[-1] = Block(last.label, last.first, last.cells + block.cells)
        else:
            merged.append(block)
    return merged


def _arrange(blocks: list[Block], width: int, density: Density) -> list[list[Stretch]]:
    if not blocks:
        return []
    label = min(max(len(block.label) for block in blocks), 16) + 1
    step = density.tile + density.gap
    per_line = min(max(block.cells for block in blocks), max(1, (width - label) // step))
    if per_line >= 8 and per_line < max(block.cells for block in blocks):
        per_line -= per_line % 8  # lines that break at the same, easily counted place
    block_width = label + per_line * step - density.gap + 2
    columns = max(1, (width + 2) // block_width)
    lines: list[list[Stretch]] = []
    for start in range(0, len(blocks), columns):
        row = blocks[start : start + columns]
        if lines and density.blank:
            lines.append([])
        height = max(1, *(-(-block.cells // per_line) for block in row))
        for sub in range(height):
            lines.append(_line(row, sub, per_line, label, block_width))
    return lines


def _line(row: list[Block], sub: int, per_line: int, label: int, block_width: int) -> list[Stretch]:
    line = []
    for column, block in enumerate(row):
        taken = sub * per_line
        count = min(per_line, block.cells - taken)
        if count > 0 or sub == 0:
            x = column * block_width
            text = block.label[: label - 1] if sub == 0 else ""
            line.append(Stretch(x, text, x + label, block.first + taken, max(0, count)))
    return line

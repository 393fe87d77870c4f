"""A contiguous sub-block: ``block:4x4x2`` is 4 columns, 4 routers in y and 2 boards in z, or a rotation of it.

Of all free positions it chooses the one with the fewest free processors next to it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, permutations
from operator import add, sub

from agents.cpa.placement.layout import Geometry, Layout, need
from agents.wire.errors import AgentError
from db.errors import NotEnough
from db.topology import Mesh
from redmesh.text import counted

Shape = tuple[int, int, int]
#: How many shapes are remembered, each with whether the machine has a position for it.
KEPT = 1000


class BadShape(AgentError):
    """A malformed shape, or one whose size is not the requested number of processors."""

    code = "invalid"
    exit_status = 2


class NoBlock(NotEnough):
    """No sub-block of the shape is free. One may become free later, unless the machine has no position for it."""


def shape_of(text: str) -> Shape:
    """``4x4x2`` as three numbers. Raises BadShape."""
    parts = text.split("x")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and 0 < len(part) < 5 for part in parts):
        raise BadShape(f"{text[:40]!r} is not a shape", "write it like 4x4x2: processors in x, y and z")
    x, y, z = map(int, parts)
    if not x * y * z:
        raise BadShape(f"the shape {text[:40]} has an empty side", "every side is at least 1")
    return x, y, z


class Block:
    """The placement for one shape."""

    def __init__(self, text: str) -> None:
        self.shape = shape_of(text)
        self.__name__ = f"block:{text}"

    def __call__(self, free: Sequence[int], count: int, geometry: Geometry) -> list[int]:
        """The free block with the fewest free neighbours: as written, or else rotated. Raises BadShape or NoBlock."""
        layout, mesh = self._machine(count, geometry)
        x, y, z = self.shape
        grid = Grid(mesh, free)
        for sides in self._turned():
            corner = grid.snuggest(sides)
            if corner is not None:
                there = (mesh.at(*cell) for cell in grid.cells(corner, sides))
                return layout.curve().sort(one for one in there if one is not None)
        if not self._has_place(layout, mesh):
            raise NoBlock(
                f"no block of {x}x{y}x{z} processors fits into this machine", "its size: mesh topology show", never=True
            )
        raise NoBlock(f"no block of {x}x{y}x{z} processors is free", "wait, or leave out --shape", free=len(free))

    def check(self, free: Sequence[int], count: int, geometry: Geometry) -> None:
        """Raise NoBlock (``never``) if even an idle machine, with ``free``, has no such block; raise BadShape for a
        bad shape."""
        _, mesh = self._machine(count, geometry)
        grid = Grid(mesh, free)
        if not any(map(grid.has, self._turned())):
            x, y, z = self.shape
            there = "what is excluded, reserved or of another use leaves no such block, were nothing running"
            raise NoBlock(f"no block of {x}x{y}x{z} processors is free", there, never=True)

    def _machine(self, count: int, geometry: Geometry) -> tuple[Layout, Mesh]:
        layout = need(geometry, self.__name__)
        mesh = layout.need_mesh(self.__name__)
        x, y, z = self.shape
        if x * y * z != count:
            raise BadShape(f"a block of {x}x{y}x{z} is {counted(x * y * z, 'processor')}, and {count} were asked for")
        return layout, mesh

    def _turned(self) -> list[Shape]:
        """The shape as written, then its other orientations."""
        return list(dict.fromkeys((a, b, c) for a, b, c in permutations(self.shape)))

    def _has_place(self, layout: Layout, mesh: Mesh) -> bool:
        """True if an idle machine has a position for it. Remembered, because a waiting request asks again and again."""
        known: dict[Shape, bool] = layout.derived.setdefault("blocks", {})
        if self.shape not in known:
            if len(known) == KEPT:
                known.clear()
            grid = Grid(mesh, range(mesh.compute))
            known[self.shape] = any(map(grid.has, self._turned()))
        return known[self.shape]


class Grid:
    """The free processors as cells of a box that is open in x and y and a ring in z."""

    def __init__(self, mesh: Mesh, free: Iterable[int]) -> None:
        self.size = mesh.columns, mesh.height, mesh.depth
        self.lines = bytearray(mesh.columns * mesh.height * mesh.depth)
        xs, ys, zs = mesh.coordinates
        _, height, depth = self.size
        for one in free:
            self.lines[(xs[one] * height + ys[one]) * depth + zs[one]] = 1
        self._cut = {switch.after for switch in mesh.switches if switch.name in mesh.open}

    def snuggest(self, sides: Shape) -> Shape | None:
        """The corner of the free block with the fewest free cells around it (the first of equals)."""
        corners = self._corners(sides)
        return min(corners, key=self._free_around(sides)) if corners else None

    def has(self, sides: Shape) -> bool:
        """True if a block of ``sides`` is free anywhere."""
        return bool(self._corners(sides))

    def cells(self, corner: Shape, sides: Shape) -> Iterator[Shape]:
        """All cells of a block."""
        depth = self.size[2]
        for x in range(corner[0], corner[0] + sides[0]):
            for y in range(corner[1], corner[1] + sides[1]):
                for z in range(corner[2], corner[2] + sides[2]):
                    yield x, y, z % depth

    def _corners(self, sides: Shape) -> list[Shape]:
        """The corners of all free blocks of ``sides``.

        Every cell is a bit; the cells that begin ``n`` free cells in a row are the AND of the bits and their shifted
        copies. Every line and plane is padded with as many zeros as a block could extend past its end.
        """
        columns, height, depth = self.size
        a, b, c = sides
        if a > columns or b > height or c > depth:
            return []
        line = depth + c - 1
        plane = line * height + line * (b - 1)
        empty = bytes(line * (b - 1))
        text = bytearray()
        for x in range(columns):
            for y in range(height):
                start = (x * height + y) * depth
                text += self.lines[start : start + depth] + self.lines[start : start + c - 1]
            text += empty
        # The first cell is the lowest bit, so that a right shift brings the next cell here.
        bits = int(bytes(text[::-1]).translate(_DIGITS), 2)
        for many, step in ((c, 1), (b, line), (a, plane)):
            bits = _in_a_row(bits, many, step)
        there = bin(bits)[:1:-1]
        # If a block spans the whole ring, every start in the ring gives the same block.
        whole = c == depth
        uncut = [self._cut.isdisjoint(range(x, x + a - 1)) for x in range(columns)]
        found: list[Shape] = []
        index = there.find("1")
        while index >= 0:
            x, rest = divmod(index, plane)
            y, z = divmod(rest, line)
            if z < (1 if whole else depth) and uncut[x]:
                found.append((x, y, z))
            index = there.find("1", index + 1)
        return found

    def _free_around(self, sides: Shape) -> Callable[[Shape], int]:
        """A function that gives the number of free cells in and next to the block at a corner.

        An empty machine has a corner for every cell, so prefix sums are computed once (over the ring, then y, then x),
        and each corner takes four look-ups: 100,000 processors take 0.1 s instead of 30 s.
        """
        columns, height, depth = self.size
        a, b, c = sides
        span = min(c + 2, depth)
        # for each column: sums over all columns before and all smaller y, at each z
        sums = [[0] * ((height + 1) * depth)]
        for x in range(columns):
            below = [0] * depth
            plane = list(below)
            for y in range(height):
                start = (x * height + y) * depth
                ring = self.lines[start : start + depth]
                run = list(accumulate(ring[-1:] + ring + ring[:span], initial=0))
                below = list(map(add, below, map(sub, run[span:], run[:depth])))
                plane += below
            sums.append(list(map(add, sums[-1], plane)))

        def around(corner: Shape) -> int:
            x, y, z = corner
            after, before = sums[min(x + a + 1, columns)], sums[max(x - 1, 0)]
            high, low = min(y + b + 1, height) * depth + z, max(y - 1, 0) * depth + z
            return after[high] - before[high] - after[low] + before[low]

        return around


_DIGITS = bytes(ord("1") if one else ord("0") for one in range(256))


def _in_a_row(bits: int, many: int, step: int) -> int:
    """The cells from which ``many`` cells, ``step`` apart, are all set."""
    done = 1
    while done < many:
        more = min(done, many - done)
        bits &= bits >> (more * step)
        done += more
    return bits

"""The map of a machine with a known topology: cabinets in their places, or racks side by side. No I/O.

A mesh is drawn like Red Storm's tools did: a row of cabinets is a band of text, and each cabinet is a block with its
routers from left to right and its boards from top to bottom. If that is wider than the screen, a board is one
character, so that 10,000 processors fit.
"""

from collections.abc import Callable, Iterable, Sequence

from console.cli.map.drawing import Cell, Group, glyph_of, painted
from db.topology import Cluster, Mesh

#: A character and its colour.
Glyph = tuple[str, str]
MIXED = ("%", "0")  # a board whose processors differ
CUT = ("|", "31")  # an open switch
_BLANK = (" ", "0")
_LEFT = 4  # columns for the names of boards at the left


def cabinets(
    mesh: Mesh, cell_of: Callable[[int], Cell | None], letter: dict[int, str], width: int, *, colour: bool, full: bool
) -> list[str]:
    """The map of the whole machine; ``cell_of`` gives a processor's cell. ``full``: never draw a board as one
    character."""
    wide = max((len(word) for word in letter.values()), default=1)
    each = mesh.routers * wide + 1
    compressed = not full and _LEFT + mesh.columns * each > width
    each = wide + (0 if compressed else mesh.routers * wide - wide + 1)
    cut = {switch.after for switch in mesh.switches if switch.name in mesh.open}
    # In a compressed map, an open switch takes its own column.
    room = max(1, (width - _LEFT - (len(cut) if compressed else 0)) // each)
    chunks = [range(first, min(first + room, mesh.columns)) for first in range(0, mesh.columns, room)]
    bands = [
        _band(mesh, row, columns, cell_of, letter, (wide, each, compressed), cut, colour)
        for columns in chunks
        for row in range(mesh.rows)
    ]
    across = _LEFT + mesh.columns * each + (len(cut) if compressed else -1) if len(chunks) == 1 else width
    beside = max(1, (width + 2) // (across + 2))
    lines: list[str] = []
    for first in range(0, len(bands), beside):
        lines += _side_by_side(bands[first : first + beside], across)
    return lines


def _band(
    mesh: Mesh,
    row: int,
    columns: range,
    cell_of: Callable[[int], Cell | None],
    letter: dict[int, str],
    sizes: tuple[int, int, bool],
    cut: set[int],
    colour: bool,
) -> list[tuple[str, int]]:
    """A row of cabinets: its lines, each with its width in columns."""
    wide, each, compressed = sizes
    lines = _head(row, columns, each, cut, compressed)
    for z in range(mesh.depth):
        cage, board = divmod(z, mesh.boards)
        name = f"c{cage}" if board == 0 else ""
        glyphs: list[Glyph] = [(f"{name:<{_LEFT}}", "0")]
        taken = _LEFT
        for column in columns:
            there = _board(mesh, row, column, z, cell_of, letter, wide)
            if compressed:
                there = [_one(there, wide)]
            glyphs += there
            taken += each
            if column in cut:
                glyphs.append(CUT)
                taken += compressed
            elif not compressed:
                glyphs.append(_BLANK)
        text = painted(glyphs) if colour else "".join(glyph for glyph, _ in glyphs).rstrip()
        lines.append((text, taken if colour else len(text)))
    return lines


def _head(row: int, columns: range, each: int, cut: set[int], compressed: bool) -> list[tuple[str, int]]:
    step = 1 if each > 3 else 5
    line, at = f"r{row:<{_LEFT - 1}}", _LEFT
    for column in columns:
        if column % step == 0 and len(line) <= at:
            line = f"{line:<{at}}{column}"
        at += each + (compressed and column in cut)
    return [(line, len(line))]


def _board(
    mesh: Mesh,
    row: int,
    column: int,
    z: int,
    cell_of: Callable[[int], Cell | None],
    letter: dict[int, str],
    wide: int,
) -> list[Glyph]:
    found = []
    for router in range(mesh.routers):
        processor = mesh.at(column, row * mesh.routers + router, z)
        cell = None if processor is None else cell_of(processor)
        found.append((" " * wide, "0") if cell is None else glyph_of(cell, letter, wide))
    return found


def _one(glyphs: Iterable[Glyph], wide: int) -> Glyph:
    different = {glyph for glyph in glyphs if glyph[0].strip()}
    if len(different) == 1:
        return different.pop()
    return (MIXED[0] * wide, MIXED[1]) if different else (" " * wide, "0")


def racks(cluster: Cluster, groups: Sequence[Group], letter: dict[int, str], width: int, *, colour: bool) -> list[str]:
    """Racks (or the lowest switches) side by side, with the nodes of each below its name."""
    wide = max((len(word) for word in letter.values()), default=1)
    by_switch: dict[str, list[Group]] = {}
    for group in groups:
        by_switch.setdefault("/".join(cluster.path(group.name)).strip("/"), []).append(group)
    order = {"/".join(cluster.path(name)).strip("/"): None for name in cluster.nodes}
    names = [*(name for name in order if name in by_switch), *(name for name in by_switch if name not in order)]
    blocks = [_rack(name, by_switch[name], letter, wide, width, colour) for name in names]
    lines: list[str] = []
    while blocks:
        taken, across = 1, max(length for _, length in blocks[0])
        while taken < len(blocks):
            further = max(length for _, length in blocks[taken])
            if (max(across, further) + 2) * (taken + 1) - 2 > width:
                break
            across, taken = max(across, further), taken + 1
        lines += _side_by_side(blocks[:taken], across)
        del blocks[:taken]
    return lines


def _rack(
    name: str, groups: Sequence[Group], letter: dict[int, str], wide: int, width: int, colour: bool
) -> list[tuple[str, int]]:
    longest = max(len(group.name) for group in groups)
    run = max(1, (width - longest - 1) // wide)
    lines = [(name or "no rack", len(name or "no rack"))]
    for group in groups:
        for first in range(0, max(1, len(group.cells)), run):
            glyphs = [glyph_of(cell, letter, wide) for cell in group.cells[first : first + run]]
            text = painted(glyphs) if colour else "".join(glyph for glyph, _ in glyphs)
            head = f"{group.name if first == 0 else '':<{longest}} "
            lines.append((head + text, len(head) + len(glyphs) * wide))
    return lines


def _side_by_side(blocks: Sequence[Sequence[tuple[str, int]]], across: int) -> list[str]:
    """Blocks of lines side by side, each ``across`` columns wide, followed by an empty line."""
    lines = []
    for number in range(max(map(len, blocks))):
        line = ""
        for at, block in enumerate(blocks):
            text, length = block[number] if number < len(block) else ("", 0)
            last = at == len(blocks) - 1
            line += text if last else text + " " * (across + 2 - length)
        lines.append(line.rstrip())
    return [*lines, ""]

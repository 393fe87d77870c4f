"""Curves that visit every cell of a box so that cells close on the curve are close in the box."""

from collections.abc import Iterator

Cell = tuple[int, int, int]
Order = tuple[int, int, int]


def hilbert(sides: Cell, order: Order = (0, 1, 2)) -> Iterator[Cell]:
    """The Hilbert curve, generalised to boxes whose sides are not powers of two.

    ``order`` names the axes from the one the curve runs along to the one it folds last. Steps are between neighbours
    whenever the parts can be cut into even lengths; an odd side costs a few steps along a diagonal.

    Method: cut the box into five parts along the three axes, each run through in a turned order (as a Hilbert curve's
    eight octants, two and two joined), or into two or three where one side is much longer than the others.
    Source: J. Červený, "gilbert"; D. Hilbert, Math. Ann. 38 (1891).
    """
    spans = []
    # An axis with one cell has no extent along which the curve could run.
    for axis in sorted(order, key=lambda one: sides[one] == 1):
        span = [0, 0, 0]
        span[axis] = sides[axis]
        spans.append((span[0], span[1], span[2]))
    return _fold((0, 0, 0), *spans)


def snake(sides: Cell, order: Order) -> Iterator[Cell]:
    """Back and forth along ``order[0]``, then ``order[1]``, then ``order[2]``; every step goes to an adjacent cell."""
    first, second, third = order
    forth = [range(sides[axis]) for axis in range(3)]
    cell = [0, 0, 0]
    for over in forth[third]:
        cell[third] = over
        for across in forth[second]:
            cell[second] = across
            for along in forth[first]:
                cell[first] = along
                yield cell[0], cell[1], cell[2]
            forth[first] = forth[first][::-1]
        forth[second] = forth[second][::-1]


def _fold(at: Cell, along: Cell, across: Cell, over: Cell) -> Iterator[Cell]:
    """Visit the box from corner ``at`` spanned by three vectors along the axes; ends next to ``at`` + ``along``."""
    length, width, height = _length(along), _length(across), _length(over)
    if width == 1 and height == 1:
        yield from _line(at, along)
    elif length == 1 and height == 1:
        yield from _line(at, across)
    elif length == 1 and width == 1:
        yield from _line(at, over)
    else:
        for part in _parts(at, along, across, over, (length, width, height)):
            yield from _fold(*part)


Part = tuple[Cell, Cell, Cell, Cell]


def _parts(at: Cell, along: Cell, across: Cell, over: Cell, sides: Cell) -> list[Part]:
    length, width, height = sides
    near_b = _half(across)
    if length == 1:  # in a plane: one half there, the other half back
        back = _plus(at, near_b, _last(over))
        return [(at, over, near_b, along), (back, _minus(over), _less(across, near_b), along)]
    near_a, near_c = _half(along), _half(over)
    far_a, far_b, far_c = _less(along, near_a), _less(across, near_b), _less(over, near_c)
    if 2 * length > 3 * width and 2 * length > 3 * height:
        return [(at, near_a, across, over), (_plus(at, near_a), far_a, across, over)]
    if 3 * width > 4 * height:
        return [
            (at, near_b, over, near_a),
            (_plus(at, near_b), along, far_b, over),
            (_plus(at, _last(along), _last(near_b)), _minus(near_b), over, _minus(far_a)),
        ]
    if 3 * height > 4 * width:
        return [
            (at, near_c, near_a, across),
            (_plus(at, near_c), along, across, far_c),
            (_plus(at, _last(along), _last(near_c)), _minus(near_c), _minus(far_a), across),
        ]
    return [
        (at, near_b, near_c, near_a),
        (_plus(at, near_b), over, near_a, far_b),
        (_plus(at, _last(near_b), _last(over)), along, _minus(near_b), _minus(far_c)),
        (_plus(at, _last(along), near_b, _last(over)), _minus(over), _minus(far_a), far_b),
        (_plus(at, _last(along), _last(near_b)), _minus(near_b), near_c, _minus(far_a)),
    ]


def _line(at: Cell, span: Cell) -> Iterator[Cell]:
    x, y, z = at
    u, v, w = _unit(span)
    for _ in range(_length(span)):
        yield x, y, z
        x, y, z = x + u, y + v, z + w


def _length(span: Cell) -> int:
    return abs(span[0] + span[1] + span[2])


def _unit(span: Cell) -> Cell:
    length = _length(span)
    return span[0] // length, span[1] // length, span[2] // length


def _half(span: Cell) -> Cell:
    # With even halves the curve can end at a corner; a side of 2 cannot be divided further.
    length, unit = _length(span), _unit(span)
    half = length // 2
    if half % 2 and length > 2:
        half += 1
    return unit[0] * half, unit[1] * half, unit[2] * half


def _last(span: Cell) -> Cell:
    """The vector from the first cell of a span to its last."""
    return _less(span, _unit(span))


def _plus(cell: Cell, *steps: Cell) -> Cell:
    x, y, z = cell
    for u, v, w in steps:
        x, y, z = x + u, y + v, z + w
    return x, y, z


def _less(one: Cell, other: Cell) -> Cell:
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]


def _minus(cell: Cell) -> Cell:
    return -cell[0], -cell[1], -cell[2]

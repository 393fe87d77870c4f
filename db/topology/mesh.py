"""Cabinets in rows and columns whose routers form a mesh in x and y and a torus in z (rows A9, A10).

Source: the patent (US 7,454,595), its paragraphs on the cabinet array:

* **x** is the column of the cabinet; the routers of a row of cabinets stand in series.
* **y** runs through the routers of a board, then on to the next row: ``rows`` × ``routers`` in series.
* **z** is the board's place in its cabinet, ``cages`` × ``boards`` of them, closed to a torus.

Processors are numbered compute first, then service; each part by column, row, cage, board and router, so that
neighbouring ids sit on one board, then in one cage, then in one cabinet.
"""

from __future__ import annotations

from db.errors import TopologyError
from db.topology.config_section import MOST, Section

#: The x, y and z coordinates: lists indexed by processor id.
Coordinates = tuple[list[int], list[int], list[int]]

KEYS = (
    *("kind", "rows", "columns", "cages", "boards", "routers", "service_columns", "service_routers"),
    *("switches", "open", "compute_processors", "service_processors"),
)


class Switch:
    """A column of disconnect cabinets between cabinet column ``after`` and the next.

    Each of its cabinets makes and breaks the routers × cages × boards x-links between the two cabinets of its row.
    """

    __slots__ = ("after", "name")

    def __init__(self, name: str, after: int) -> None:
        self.name = name
        self.after = after


class Side:
    """Cabinet columns that are connected: no open switch lies between any two of them."""

    __slots__ = ("first", "last", "number")

    def __init__(self, number: int, first: int, last: int) -> None:
        self.number = number
        self.first = first
        self.last = last

    def __contains__(self, column: int) -> bool:
        return self.first <= column <= self.last

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Side) and (self.first, self.last) == (other.first, other.last)

    def __hash__(self) -> int:
        return hash((self.first, self.last))

    def __repr__(self) -> str:
        return f"Side({self.number}, columns {self.first}..{self.last})"


class Mesh:
    """A machine of cabinets. It is immutable; ``with_open`` makes another one."""

    kind = "mesh"

    def __init__(self, section: object) -> None:
        taken = Section(section, "topology")
        taken.text("kind", self.kind)
        self.rows = taken.whole("rows")
        self.columns = taken.whole("columns")
        self.cages = taken.whole("cages")
        self.boards = taken.whole("boards")
        self.routers = taken.whole("routers", 4)
        self.service_columns = taken.wholes("service_columns", (), below=self.columns)
        self.service_routers = taken.wholes("service_routers", _two_of(self.routers), below=self.routers)
        self.switches = tuple(_switches(taken.tables("switches"), self.columns))
        self.open = self._named(taken.texts("open"))
        self._derive()
        for key, is_there in (("compute_processors", self.compute), ("service_processors", self.service)):
            expected = taken.whole(key, is_there, least=0)
            if expected != is_there:
                raise TopologyError(
                    f"[topology] {key} is {expected}, but rows, columns, cages and boards make {is_there}"
                )
        taken.done(*KEYS)

    def _derive(self) -> None:
        self.height = self.rows * self.routers
        self.depth = self.cages * self.boards
        if self.columns * self.height * self.depth > MOST:
            raise TopologyError(f"[topology] describes more than {MOST} routers")
        self._nth_service = {column: index for index, column in enumerate(self.service_columns)}
        self.compute_columns = tuple(x for x in range(self.columns) if x not in self._nth_service)
        self._nth_compute = {column: index for index, column in enumerate(self.compute_columns)}
        a_column = self.rows * self.depth
        self.compute = len(self.compute_columns) * a_column * self.routers
        self.service = len(self.service_columns) * a_column * len(self.service_routers)
        self._coordinates: Coordinates | None = None

    def to_dict(self) -> dict[str, object]:
        """The section that this mesh was parsed from, with defaults filled in."""
        return {
            "kind": self.kind,
            "rows": self.rows,
            "columns": self.columns,
            "cages": self.cages,
            "boards": self.boards,
            "routers": self.routers,
            "service_columns": list(self.service_columns),
            "service_routers": list(self.service_routers),
            "switches": [{"name": switch.name, "after": switch.after} for switch in self.switches],
            "open": sorted(self.open),
            "compute_processors": self.compute,
            "service_processors": self.service,
        }

    @property
    def size(self) -> int:
        """The number of processors, compute and service."""
        return self.compute + self.service

    def is_service(self, processor: int) -> bool:
        """True for the processors of service boards."""
        return self.compute <= processor < self.size

    # positions ----------------------------------------------------------------------------------

    def place(self, processor: int) -> tuple[int, int, int]:
        """x, y and z of a processor. Raises TopologyError for an unknown number."""
        if 0 <= processor < self.compute:
            rest, router = divmod(processor, self.routers)
            columns = self.compute_columns
        elif self.compute <= processor < self.size:
            rest, seat = divmod(processor - self.compute, len(self.service_routers))
            router = self.service_routers[seat]
            columns = self.service_columns
        else:
            raise TopologyError(f"there is no processor {processor}", f"ids are from 0 to {self.size - 1}")
        rest, z = divmod(rest, self.depth)
        column, row = divmod(rest, self.rows)
        return columns[column], row * self.routers + router, z

    def at(self, x: int, y: int, z: int) -> int | None:
        """The processor on the router at (x, y, z); None where there is no processor, or no such router."""
        if not (0 <= x < self.columns and 0 <= y < self.height and 0 <= z < self.depth):
            return None
        row, router = divmod(y, self.routers)
        column = self._nth_compute.get(x)
        if column is not None:
            return ((column * self.rows + row) * self.depth + z) * self.routers + router
        if router not in self.service_routers:
            return None
        board = (self._nth_service[x] * self.rows + row) * self.depth + z
        return self.compute + board * len(self.service_routers) + self.service_routers.index(router)

    @property
    def coordinates(self) -> Coordinates:
        """x, y and z of every processor, computed once."""
        if self._coordinates is None:
            places = list(map(self.place, range(self.size)))
            xs, ys, zs = map(list, zip(*places, strict=True)) if places else ([], [], [])
            self._coordinates = xs, ys, zs
        return self._coordinates

    def name(self, processor: int) -> str:
        """The name of a processor's node as Cray's XT writes it: ``c3-1c0s7n2`` (column-row, cage, slot, node)."""
        x, y, z = self.place(processor)
        row, router = divmod(y, self.routers)
        cage, board = divmod(z, self.boards)
        return f"c{x}-{row}c{cage}s{board}n{router}"

    def named(self, name: str) -> int | None:
        """The processor whose node is called ``name``; None for a name of another form or place."""
        numbers: list[int] = []
        rest = name
        for mark in "c-csn":
            if not rest.startswith(mark):
                return None
            rest = rest[1:]
            digits = len(rest) - len(rest.lstrip("0123456789"))
            if not 0 < digits < 8:
                return None
            numbers.append(int(rest[:digits]))
            rest = rest[digits:]
        x, row, cage, board, router = numbers
        if rest or row >= self.rows or cage >= self.cages or board >= self.boards or router >= self.routers:
            return None
        processor = self.at(x, row * self.routers + router, cage * self.boards + board)
        return processor if processor is not None and self.name(processor) == name else None

    # distances and neighbours ------------------------------------------------------------------

    def hops(self, one: int, other: int) -> int | None:
        """The number of router-to-router links on the shortest path; None if an open switch is on it."""
        x, y, z = self.place(one)
        u, v, w = self.place(other)
        if self.open and self.side_of_column(x) != self.side_of_column(u):
            return None
        around = abs(z - w)
        return abs(x - u) + abs(y - v) + min(around, self.depth - around)

    def neighbours(self, processor: int) -> list[int]:
        """Processors on adjacent routers: x down, x up, y down, y up, z down, z up.

        Routers without a processor (service boards have more routers than processors) and cut links are left out.
        """
        x, y, z = self.place(processor)
        cut = {switch.after for switch in self.switches if switch.name in self.open}
        places = [
            None if x - 1 in cut else (x - 1, y, z),
            None if x in cut else (x + 1, y, z),
            (x, y - 1, z),
            (x, y + 1, z),
            (x, y, (z - 1) % self.depth),
            (x, y, (z + 1) % self.depth),
        ]
        found = [self.at(*place) for place in places if place is not None]
        # In a torus of one or two boards, both z neighbours are the same processor, or the processor itself.
        return list(dict.fromkeys(one for one in found if one is not None and one != processor))

    # sides ---------------------------------------------------------------------------------------

    def with_open(self, names: object) -> Mesh:
        """The same machine with exactly the switches ``names`` open. Raises TopologyError for an unknown name."""
        if not isinstance(names, (list, tuple, set, frozenset)):
            raise TopologyError(f"open must be a list of switches, not {names!r:.40}")
        other = Mesh.__new__(Mesh)
        other.__dict__.update(self.__dict__)  # nothing in it ever changes, so both may share the lists
        other.open = self._named(tuple(names))
        return other

    @property
    def sides(self) -> list[Side]:
        """The connected pieces, numbered from 1 at column 0.

        Links in y and z stay inside a column, and a switch cuts a whole column, so a piece is a run of columns.
        """
        ends = sorted(switch.after for switch in self.switches if switch.name in self.open)
        firsts = [0, *(end + 1 for end in ends)]
        lasts = [*ends, self.columns - 1]
        return [Side(number, first, last) for number, (first, last) in enumerate(zip(firsts, lasts, strict=True), 1)]

    def side_of_column(self, column: int) -> int:
        """The number of the side that cabinet column ``column`` is on."""
        return 1 + sum(switch.after < column for switch in self.switches if switch.name in self.open)

    def size_of_column(self, column: int) -> int:
        """How many processors cabinet column ``column`` has."""
        a_board = len(self.service_routers) if column in self._nth_service else self.routers
        return self.rows * self.depth * a_board

    def side_of(self, processor: int) -> int:
        """The number of the side that a processor is on."""
        return self.side_of_column(self.place(processor)[0])

    def only_side(self, seen: set[int]) -> Side | None:
        """The side of a viewer who sees only nodes of that side; None if the whole machine is visible."""
        if len(self.sides) < 2 or len(seen) != 1:
            return None
        return next((side for side in self.sides if side.number in seen), None)

    def on(self, side: Side) -> list[int]:
        """All processors of a side, ascending."""
        # The ids of a column are consecutive, so a side has at most two ranges a column.
        found: list[int] = []
        for columns, first, a_board in (
            (self.compute_columns, 0, self.routers),
            (self.service_columns, self.compute, len(self.service_routers)),
        ):
            a_column = self.rows * self.depth * a_board
            for index, column in enumerate(columns):
                if column in side:
                    found += range(first + index * a_column, first + (index + 1) * a_column)
        return found

    def links_cut(self, switch: Switch) -> int:
        """The number of x-links that opening a switch column cuts: routers × cages × boards in each row."""
        return self.height * self.depth

    def _named(self, names: tuple[str, ...]) -> frozenset[str]:
        known = [switch.name for switch in self.switches]
        for name in names:
            if name not in known:
                there = ", ".join(known) or "none at all"
                raise TopologyError(f"[topology] open names {name!r:.40}, which is not a switch", f"there are: {there}")
        return frozenset(names)


def _two_of(routers: int) -> tuple[int, ...]:
    # A service board has two processors and as many routers as any board. The source's paragraph on which routers they
    # use is missing, so they are spread evenly.
    return (0, routers // 2) if routers > 1 else (0,)


def _switches(tables: list[Section], columns: int) -> list[Switch]:
    found: dict[int, Switch] = {}
    names: set[str] = set()
    for table in tables:
        name, after = table.text("name"), table.whole("after", least=0)
        table.done("name", "after")
        if "=" in name or name != name.strip():
            raise TopologyError(
                f"[topology] switch {name!r:.40}: no command could name it",
                "mesh side set takes NAME=open; use a plain name",
            )
        if after >= columns - 1:
            raise TopologyError(f"[topology] switch {name!r:.40} stands after column {after}, where no column follows")
        if after in found or name in names:
            raise TopologyError(f"[topology] switch {name!r:.40}: another switch has the same name or the same column")
        found[after] = Switch(name, after)
        names.add(name)
    return [found[after] for after in sorted(found)]

"""Machines in the middle of their day: jobs came and went for a long time, and about half of it is free."""

import random
from collections.abc import Sequence

from agents.cpa.placement.registry import Geometry, Layout, Placement
from db.topology import Mesh, parse


def cabinets(rows: int, columns: int, cages: int, boards: int, routers: int = 4, **more: object) -> Mesh:
    """A mesh of cabinets."""
    section = {"kind": "mesh", "rows": rows, "columns": columns, "cages": cages, "boards": boards, "routers": routers}
    mesh = parse(section | more)
    assert isinstance(mesh, Mesh)
    return mesh


def box(x: int, y: int, z: int) -> Layout:
    """A plain box of compute processors, ``z`` a ring."""
    return Layout(cabinets(1, x, 1, z, y))


def job_size(chance: random.Random, largest: int) -> int:
    """Sizes as supercomputers see them: mostly powers of two, evenly spread over the magnitudes."""
    magnitude = chance.uniform(0, largest.bit_length() - 1)
    size = 2 ** round(magnitude) if chance.random() < 0.7 else int(2**magnitude)
    return min(max(size, 1), largest)


class Day:
    """Jobs that come while less than ``load`` of the machine is busy, and end by chance (no memory of their age)."""

    def __init__(self, place: Placement, geometry: Geometry, processors: Sequence[int], seed: int) -> None:
        self.chance = random.Random(seed)
        self.place, self.geometry = place, geometry
        self.size = len(processors)
        self.free = set(processors)
        self.jobs: list[list[int]] = []
        self.placed: list[list[int]] = []

    def go_on(self, steps: int, load: float = 0.5) -> None:
        """``steps`` times a job comes, or one ends; the jobs that came are added to ``placed``."""
        for _ in range(steps):
            count = job_size(self.chance, max(self.size // 10, 1))
            if self.size - len(self.free) + count // 2 <= load * self.size and count <= len(self.free):
                job = self.place(sorted(self.free), count, self.geometry)
                self.free.difference_update(job)
                self.jobs.append(job)
                self.placed.append(job)
            elif self.jobs:
                self.free.update(self.jobs.pop(self.chance.randrange(len(self.jobs))))

    def at(self, load: float) -> list[int]:
        """The free processors, ascending, once at most ``load`` of the machine is busy."""
        while self.jobs and self.size - len(self.free) > load * self.size:
            self.free.update(self.jobs.pop(self.chance.randrange(len(self.jobs))))
        return sorted(self.free)

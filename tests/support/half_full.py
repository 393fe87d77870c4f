"""Machines in steady use: many jobs have started and ended, and about half of the processors are free."""

import random
from collections.abc import Sequence

from agents.cpa.placement.registry import Geometry, Layout, Placement
from db.topology import Mesh, parse


def cabinets(rows: int, columns: int, cages: int, boards: int, routers: int = 4, **more: object) -> Mesh:
    """Return a mesh topology of cabinets."""
    section = {"kind": "mesh", "rows": rows, "columns": columns, "cages": cages, "boards": boards, "routers": routers}
    mesh = parse(section | more)
    assert isinstance(mesh, Mesh)
    return mesh


def box(x: int, y: int, z: int) -> Layout:
    """Return the layout of a box of ``x`` by ``y`` by ``z`` compute processors; its z direction is a ring."""
    return Layout(cabinets(1, x, 1, z, y))


def job_size(chance: random.Random, largest: int) -> int:
    """Return a random job size, as seen on supercomputers: 70 % are powers of two; the logarithm is uniform."""
    magnitude = chance.uniform(0, largest.bit_length() - 1)
    size = 2 ** round(magnitude) if chance.random() < 0.7 else int(2**magnitude)
    return min(max(size, 1), largest)


class Day:
    """A simulated sequence of jobs on one machine; which job ends next is random and does not depend on its age."""

    def __init__(self, place: Placement, geometry: Geometry, processors: Sequence[int], seed: int) -> None:
        self.chance = random.Random(seed)
        self.place, self.geometry = place, geometry
        self.size = len(processors)
        self.free = set(processors)
        self.jobs: list[list[int]] = []
        self.placed: list[list[int]] = []

    def go_on(self, steps: int, load: float = 0.5) -> None:
        """Do ``steps`` steps: start a job (added to ``placed``), or end one if the load would exceed ``load``."""
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
        """End jobs until at most the fraction ``load`` is busy; return the free processors in ascending order."""
        while self.jobs and self.size - len(self.free) > load * self.size:
            self.free.update(self.jobs.pop(self.chance.randrange(len(self.jobs))))
        return sorted(self.free)

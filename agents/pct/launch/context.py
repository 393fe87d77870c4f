"""The interface of a launch for its parts: images, staged files and files of the login processor."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable

    from agents.link.loop import Loop
    from agents.pct.errors import LoadFailed
    from agents.pct.launch.load import Load, Program
    from agents.pct.launch.tree import Tree


class LaunchContext:
    """A launch on a node; ``run`` is the directory of files that its ranks see; ``fail`` ends it before GO.

    ``out_of_memory(pid, peak, itself)``: the evidence, for people, that the kernel killed a process that a rank has
    reaped, or a child of it (not ``itself``); "" if there is none.
    """

    __slots__ = ("fail", "load", "loop", "node", "out_of_memory", "program", "run", "tree")

    def __init__(
        self, loop: Loop, run: str, load: Load, program: Program, tree: Tree, fail: Callable[[LoadFailed], None],
        out_of_memory: Callable[[int, int, bool], str],
    ) -> None:  # fmt: skip
        self.loop, self.run, self.node, self.load, self.program = loop, run, load.name, load, program
        self.tree, self.fail, self.out_of_memory = tree, fail, out_of_memory

"""The interface of a launch for its parts: images, staged files and files of the login processor."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable

    from agents.link.loop import Loop
    from agents.pct.errors import LoadFailed
    from agents.pct.launch.load import Load, Program
    from agents.pct.launch.tree import Tree
    from agents.pct.ranks.out_of_memory import LaunchMemory


class LaunchContext:
    """A launch on a node; ``run`` is the directory of files that its ranks see; ``fail`` ends it before GO."""

    __slots__ = ("fail", "load", "loop", "memory", "node", "program", "run", "tree")

    def __init__(
        self, loop: Loop, run: str, load: Load, program: Program, tree: Tree, fail: Callable[[LoadFailed], None],
        memory: LaunchMemory,
    ) -> None:  # fmt: skip
        self.loop, self.run, self.node, self.load, self.program = loop, run, load.name, load, program
        self.tree, self.fail, self.memory = tree, fail, memory

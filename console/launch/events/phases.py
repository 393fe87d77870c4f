"""``-D`` and ``-d TYPE``: the steps of a launch as they are taken, each with its time, and what was said in between.

A step has its number (rows B1 to B13: docs/yod.md); a line without one belongs to a type alone.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Steps:
    """Tells what ``topics`` ask for: types of -d, or ``all`` for every numbered step."""

    def __init__(self, line: Callable[[str], None], topics: frozenset[str], begun: float) -> None:
        self._line, self._topics, self._begun = line, topics, begun
        self.phase = "phase1"  # until GO

    def wants(self, *topics: str) -> bool:
        """Whether a line of one of these would be shown: for what is dear to find out."""
        return not self._topics.isdisjoint((*topics, "all"))

    def step(self, number: str, topic: str, text: str) -> None:
        """A step of the launch."""
        if not self._topics.isdisjoint((topic, self.phase, "all")):
            self._tell(f"{number:<4}{topic}", text)

    def note(self, topic: str, text: str) -> None:
        """What belongs to one type alone."""
        if topic in self._topics:
            self._tell(f"    {topic}", text)

    def _tell(self, what: str, text: str) -> None:
        self._line(f"yod: {time.monotonic() - self._begun:10.6f} {what}: {text}")


class Timing:
    """``-timing``: the seconds between a launch's states."""

    #: (phase, the state it begins with)
    PHASES = (
        ("allocation", "allocating"),
        ("load", "loading"),
        ("start", "confirming"),
        ("run", "running"),
        ("clean-up", "clearing"),
        ("freeing", "freeing"),
        ("last output", "draining"),
    )

    def __init__(self, begun: float) -> None:
        self._begun = begun
        self._entered = [("allocating", begun)]

    def entered(self, state: str, at: float) -> None:
        """The launch is in ``state`` since ``at`` (monotonic)."""
        self._entered.append((state, at))

    def row(self) -> str:
        """``allocation 0.002, load 0.031 …``: what was gone through, in order; a phase twice (a retry) in one sum."""
        now = time.monotonic()
        ends = [at for _, at in self._entered[1:]] + [now]
        spent: dict[str, float] = {}
        for (state, at), end in zip(self._entered, ends, strict=True):
            spent[state] = spent.get(state, 0.0) + end - at
        parts = [f"{name} {spent[state]:.6f}" for name, state in self.PHASES if state in spent]
        return ", ".join([*parts, f"all {now - self._begun:.6f}"])

"""A fact with the time at which it was true, and the boot of the mesh and of the node that it belongs to. No I/O.

Ids of nodes and launchers are used again after a change of the machine, so a fact that is kept by an id says whose it
is: a reader compares the identity first, and shows what is older than its interval as old, with its age.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from console.tui.format import elapsed

Value = TypeVar("Value")


@dataclass(frozen=True)
class Identity:
    """What a fact belongs to. ``node``: the boot of its node; empty for a fact of the whole mesh."""

    mesh: str
    node: str = ""


@dataclass(frozen=True)
class Observation(Generic[Value]):
    """A fact. ``at``: when it was true, by the monotonic clock. ``good_for_s``: when it is old without a newer one."""

    value: Value
    at: float
    of: Identity
    good_for_s: float

    def old(self, now: float) -> str:
        """Its age as ``40s ago`` if it is old; otherwise empty."""
        age = now - self.at
        return f"{elapsed(age)} ago" if age > self.good_for_s else ""

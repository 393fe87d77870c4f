"""Connections to nodes about state objects: with the certificate of this process, or with a pass of its user."""

from __future__ import annotations

from agents.link.client import Client

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, Dict, Optional

    Shown = Dict[str, str]
    Passes = Callable[[str], Shown]

#: The role in the hello of a connection about objects.
ROLE = "object"
_passes: Optional[Passes] = None


def use(passes: Optional[Passes]) -> None:
    """Use the pass that ``passes`` returns for a node, because this process has no certificate."""
    global _passes
    _passes = passes


def shown_to(node: str) -> Shown:
    """The pass for a node; empty if this process has a certificate. Raises AgentError."""
    return _passes(node) if _passes is not None else {}


def connect(address: str, timeout_s: float = 5.0, shown: Optional[Shown] = None) -> Client:
    """A connection to the node at ``address``. Raises AgentError."""
    return Client(address, ROLE, timeout_s, shown=shown or shown_to(address.rpartition("/")[2]))

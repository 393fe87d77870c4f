"""What a node says of itself: its PCT is asked while somebody looks at it.

On this machine by its socket; on another one over TLS, by those who may read the login processor's certificate (the
mesh's owner).
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, NamedTuple

from agents.link import trust
from agents.link.client import Client, Unreachable
from agents.wire.errors import AgentError
from console.tui.model.machine import Node
from redmesh.sanitise import clean

_ANSWER_S = 1.0
_AGAIN_S = 2.0


class Told(NamedTuple):
    """A PCT's answer. ``memory``: all and what is left, in bytes. ``processes``: rank and pid, by launcher."""

    load: tuple[float, ...] = ()
    memory: tuple[int, int] | None = None
    processes: dict[int, list[tuple[int, int]]] = {}
    trouble: str = ""


class Probe:
    """Asks one node at a time, not more often than it can change."""

    def __init__(self) -> None:
        self._far: bool | None = None  # whether other machines' PCTs hear us; None: nobody has looked
        self._node: Node | None = None
        self._told: Told | None = None
        self._asked_at = 0.0

    def told(self, node: Node) -> Told | None:
        """The last answer of that node; None when it has not been asked, or cannot be."""
        return self._told if self._node is not None and self._node.id == node.id else None

    def due(self, node: Node, mesh: str, state_dir: str) -> bool:
        """Whether it is time to ask. ``mesh`` and ``state_dir``: where our certificate would be."""
        if node.state == "down" or not node.address or not (node.address[0] == "/" or self._reaches(mesh, state_dir)):
            return False
        other = self._node is None or self._node.id != node.id
        return other or time.monotonic() - self._asked_at > _AGAIN_S

    def _reaches(self, mesh: str, state_dir: str) -> bool:
        if self._far is None:
            self._far = os.access(f"{state_dir}/trust/login.pem", os.R_OK)
            if self._far:
                trust.use_login(mesh, state_dir)
        return self._far

    async def ask(self, node: Node) -> bool:
        """Asks; True when the answer is another than before."""
        self._asked_at = time.monotonic()
        if self._node is None or self._node.id != node.id:
            self._node, self._told = node, None
        told = await asyncio.to_thread(_ask, node.address)
        if self._node is None or self._node.id != node.id or told == self._told:
            return False
        self._told = told
        return True


def _ask(path: str) -> Told:
    try:
        with Client(path, "admin" if path.startswith("/") else "cpa", _ANSWER_S) as client:
            reply = client.call({"op": "status"})
    except Unreachable:
        return Told(trouble="its PCT does not answer")
    except (AgentError, OSError) as error:
        return Told(trouble=clean(str(error))[:80])
    return read(reply)


def read(reply: dict[str, Any]) -> Told:
    """A status reply, whatever an older or newer PCT put into it."""
    try:
        load = tuple(float(one) for one in reply.get("load") or ())[:3]
        memory = reply.get("memory")
        pair = (int(memory[0]), int(memory[1])) if memory else None
        processes = {
            int(launch["launcher"]): [(int(rank), int(pid)) for rank, pid in launch.get("ranks") or ()]
            for launch in reply.get("launches") or ()
        }
    except (TypeError, ValueError, KeyError, IndexError):
        return Told(trouble="its PCT's answer makes no sense")
    return Told(load, pair, processes)

"""The status of a node: its PCT is queried while the node is on the screen.

On this machine through its socket; on another one over TLS, by users who may read the login processor's certificate
(the mesh's owner).
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from agents.link import trust
from agents.link.client import Client, Unreachable
from agents.wire.errors import AgentError
from console.tui.model.machine import Node, NodeStatus
from redmesh.sanitise import clean

_ANSWER_S = 1.0
_AGAIN_S = 2.0


class Probe:
    """Queries nodes, each at most as often as it can change; the answers go into ``statuses``, by the nodes' ids."""

    def __init__(self, statuses: dict[int, NodeStatus]) -> None:
        self._remote: bool | None = None  # whether this user may query PCTs on other machines; None: not known yet
        self._statuses = statuses
        self._asked_at: dict[int, float] = {}

    def due(self, node: Node, mesh: str, state_dir: str) -> bool:
        """True if a query is due. ``mesh`` and ``state_dir`` lead to the certificate that remote PCTs require."""
        if node.state == "down" or not node.address or not (node.address[0] == "/" or self._reaches(mesh, state_dir)):
            self._statuses.pop(node.id, None)  # its earlier status is out of date
            return False
        return time.monotonic() - self._asked_at.get(node.id, -_AGAIN_S) > _AGAIN_S

    def _reaches(self, mesh: str, state_dir: str) -> bool:
        if self._remote is None:
            self._remote = os.access(f"{state_dir}/trust/login.pem", os.R_OK)
            if self._remote:
                trust.use_login(mesh, state_dir)
        return self._remote

    async def ask(self, node: Node) -> bool:
        """Query a node; True if the answer has changed."""
        self._asked_at[node.id] = time.monotonic()
        told = await asyncio.to_thread(_ask, node.address, node.name)
        before, self._statuses[node.id] = self._statuses.get(node.id), told
        return told != before

    async def ask_all(self, nodes: list[Node]) -> None:
        """Query nodes in parallel."""
        await asyncio.gather(*map(self.ask, nodes))


def _ask(path: str, name: str) -> NodeStatus:
    """Query a PCT. ``name``: the node, because the PCTs of a simulated machine may share an address."""
    try:
        with Client(path, "admin" if path.startswith("/") else "cpa", _ANSWER_S) as client:
            reply = client.call({"op": "status", "node": name})
    except Unreachable:
        return NodeStatus(trouble="its PCT does not answer")
    except (AgentError, OSError) as error:
        return NodeStatus(trouble=clean(str(error))[:80])
    return read(reply)


def read(reply: dict[str, Any]) -> NodeStatus:
    """Parse a status reply of any version's PCT."""
    try:
        load = tuple(float(one) for one in reply.get("load") or ())[:3]
        memory = reply.get("memory")
        pair = (int(memory[0]), int(memory[1])) if memory else None
        processes = {
            int(launch["launcher"]): [(int(rank), int(pid)) for rank, pid in launch.get("ranks") or ()]
            for launch in reply.get("launches") or ()
        }
    except (TypeError, ValueError, KeyError, IndexError):
        return NodeStatus(trouble="its PCT's answer is not understood")
    return NodeStatus(load, pair, processes)

"""The status of a node: its PCT is queried while the node is on the screen.

On this machine through its socket; on another one over TLS, by users who may read the login processor's certificate
(the mesh's owner).
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, NamedTuple

from agents.link import trust
from agents.link.client import Client, Unreachable
from agents.wire.errors import AgentError
from console.tui.model.machine import Machine, Node, NodeStatus
from console.tui.model.observation import Identity, Observation
from redmesh.sanitise import clean

_ANSWER_S = 1.0
_AGAIN_S = 2.0
_MOST = 10_000  # nodes of which it is kept when they were asked
_OLD_S = 15.0  # within it a table on a high screen asks for all its nodes, a few at a time


class Answer(NamedTuple):
    """What a PCT has told. ``boot_id``: that of the node by the reply; empty if there was none."""

    status: NodeStatus | None = None
    boot_id: str = ""
    trouble: str = ""


class Probe:
    """Queries nodes, each at most as often as it can change; the answers go into the machine's ``statuses``."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._remote: bool | None = None  # whether this user may query PCTs on other machines; None: not known yet
        self._remote_of = ""  # the boot of the mesh for which that is known: another one has other certificates
        self._asked_at: dict[tuple[int, Identity], float] = {}

    def due(self, node: Node, mesh: str, state_dir: str) -> bool:
        """True if a query is due. ``mesh`` and ``state_dir`` lead to the certificate that remote PCTs require."""
        if node.state == "down" or not node.address or not (node.address[0] == "/" or self._reaches(mesh, state_dir)):
            return False
        asked_at = self._asked_at.get((node.id, self._machine.identity(node)))
        return asked_at is None or time.monotonic() - asked_at > _AGAIN_S

    def _reaches(self, mesh: str, state_dir: str) -> bool:
        if self._remote is None or self._remote_of != self._machine.boot_id:
            self._remote_of = self._machine.boot_id
            self._remote = os.access(f"{state_dir}/trust/login.pem", os.R_OK)
            if self._remote:
                trust.use_login(mesh, state_dir)
        return self._remote

    async def ask(self, node: Node) -> bool:
        """Query a node; True if its answer has changed."""
        machine, of = self._machine, self._machine.identity(node)
        if len(self._asked_at) > _MOST:
            self._asked_at.clear()
        self._asked_at[node.id, of] = time.monotonic()
        told = await asyncio.to_thread(_ask, node.address, node.name)
        now = time.monotonic()
        if told.status is None:
            known = machine.unanswered.get(node.id)
            machine.unanswered[node.id] = Observation(told.trouble, now, of, _OLD_S)
            return known is None or (known.value, known.of) != (told.trouble, of)
        of = Identity(of.mesh, told.boot_id or of.node)  # a PCT may be newer than its row in the database
        trouble, before = machine.unanswered.pop(node.id, None), machine.statuses.get(node.id)
        machine.statuses[node.id] = Observation(told.status, now, of, _OLD_S)
        return trouble is not None or before is None or (before.value, before.of) != (told.status, of)

    async def ask_all(self, nodes: list[Node]) -> bool:
        """Query nodes in parallel; True if an answer has changed."""
        return any(await asyncio.gather(*map(self.ask, nodes)))


def _ask(path: str, name: str) -> Answer:
    """Query a PCT. ``name``: the node, because the PCTs of a simulated machine may share an address."""
    try:
        with Client(path, "admin" if path.startswith("/") else "cpa", _ANSWER_S) as client:
            reply = client.call({"op": "status", "node": name})
    except Unreachable:
        return Answer(trouble="its PCT does not answer")
    except (AgentError, OSError) as error:
        return Answer(trouble=clean(str(error))[:80])
    return read(reply)


def read(reply: dict[str, Any]) -> Answer:
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
        return Answer(trouble="its PCT's answer is not understood")
    return Answer(NodeStatus(load, pair, processes), str(reply.get("boot_id") or ""))

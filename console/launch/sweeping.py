"""Ending a launch on nodes that do not say that it has ended: each PCT is told, nobody is waited for.

What a PCT that stands still has in its socket it reads when it goes on: it kills what it finds of the launch, and its
tombstone refuses a load that it had not read before.
"""

from __future__ import annotations

from agents.link.sockets import connect_now
from agents.wire.control import control
from agents.wire.errors import AgentError
from agents.wire.messages import hello

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agents.link.loop import Loop
    from console.launch.plan import PlacedNode, Plan


def sweep(loop: Loop, plan: Plan, reply: dict[str, Any]) -> None:
    """Tell every node of ``plan`` to kill the launcher of ``reply`` there.

    One whose PCT is gone has nobody left to be told.
    """
    for node in plan.nodes:
        _tell(loop, node, reply, {"op": "kill_launch", "id": 1, "launcher": reply["launcher"]})


def tell_failed(loop: Loop, plan: Plan, name: str, reply: dict[str, Any], reason: str) -> None:
    """Tell the PCT of node ``name`` that it was reported: if it lives, it registers again after a rest."""
    for node in plan.nodes:
        if node.name == name:
            _tell(loop, node, reply, {"op": "failed", "id": 1, "launcher": reply["launcher"], "reason": reason})


def _tell(loop: Loop, node: PlacedNode, reply: dict[str, Any], order: dict[str, Any]) -> None:
    try:
        sock = connect_now(node.address)
    except (OSError, AgentError):
        return
    if getattr(sock, "shaking", False):
        from console.launch.far import tell

        tell(loop, sock, reply, node.name, order)
        return
    try:
        sock.send(control(hello("yod")) + control(order))
    except OSError:
        pass
    finally:
        sock.close()

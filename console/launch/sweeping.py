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

    from console.launch.plan import Plan


def sweep(plan: Plan, launcher: int) -> None:
    """Tell every node of ``plan`` to kill ``launcher`` there. One whose PCT is gone has nobody left to be told."""
    for node in plan.nodes:
        _tell(node.address, {"op": "kill_launch", "id": 1, "launcher": launcher})


def tell_failed(plan: Plan, name: str, launcher: int, reason: str) -> None:
    """Tell the PCT of node ``name`` that it was reported: if it lives, it registers again after a rest."""
    for node in plan.nodes:
        if node.name == name:
            _tell(node.address, {"op": "failed", "id": 1, "launcher": launcher, "reason": reason})


def _tell(address: str, order: dict[str, Any]) -> None:
    try:
        sock = connect_now(address)
    except (OSError, AgentError):
        return
    try:
        sock.send(control(hello("yod")) + control(order))
    except OSError:
        pass
    finally:
        sock.close()

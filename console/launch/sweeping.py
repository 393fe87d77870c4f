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
    from console.launch.plan import Plan


def sweep(plan: Plan, launcher: int) -> None:
    """Tell every node of ``plan`` to kill ``launcher`` there. One whose PCT is gone has nobody left to be told."""
    order = control(hello("yod")) + control({"op": "kill_launch", "id": 1, "launcher": launcher})
    for node in plan.nodes:
        try:
            sock = connect_now(node.address)
        except (OSError, AgentError):
            continue
        try:
            sock.send(order)
        except OSError:
            pass
        finally:
            sock.close()

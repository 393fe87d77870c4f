"""A launch with its root on another machine: TLS to its PCT, and a credential from the CPA that admits the load.

The handshake and the request to the CPA run at the same time.
"""

from __future__ import annotations

import os

from agents.link import trust
from agents.link.link import Link
from agents.link.sockets import connect_now
from agents.pct.launch.deaths import ask, ask_if_up
from agents.wire.address import LAUNCH
from agents.wire.control import control
from agents.wire.credential import digest_of
from agents.wire.errors import AgentError
from agents.wire.frames import HEADER_SIZE
from agents.wire.messages import hello

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agents.link.loop import Loop
    from console.launch.daemons.root_link import RootLink
    from console.launch.plan import PlacedNode, Plan


#: Seconds for which CPAs are asked for a credential.
ASK_S = 10.0


def believe(run: str) -> None:
    """Trust the mesh that owns this run directory."""
    trust.use_run(os.path.basename(os.path.realpath(run)), run)


def load_far(
    root: RootLink,
    loop: Loop,
    load: dict[str, Any],
    common: bytes,
    ask: Callable[[dict[str, Any], Callable[..., None], float], None],
    sent: Callable[[dict[str, Any]], None],
    refused: Callable[[AgentError], None],
) -> None:
    """Connect ``root`` to a node on another machine; its load is sent after the credential; ``common`` is a frame.

    ``ask(members, then, seconds)`` asks a CPA for the credential. Calls ``sent(reply)`` when the load was sent, or
    ``refused(error)`` if the CPA gives none. Raises OSError or AgentError if the node is unreachable.
    """
    link = root.link = Link(loop, connect_now(load["nodes"][0]["address"], LAUNCH), root.on_frame, root.on_end)

    def granted(reply: dict[str, Any] | None, error: AgentError | None) -> None:
        if link.sock is None:
            return  # the link was closed meanwhile, and the launch knows
        if reply is None or error is not None:
            refused(error or AgentError("no answer"))
            return
        text, macs = reply["credential"], reply["macs"]
        greeting = {**hello("launcher"), "credential": text, "mac": macs.get(load["nodes"][0]["name"], "")}
        whole = {**load, "credential": text, "macs": macs, "members": reply["members"]}
        link.send_raw(control(greeting) + control(whole) + common)
        sent(reply)

    ask({"common": digest_of(common[HEADER_SIZE:])}, granted, ASK_S)


def tell(loop: Loop, sock: Any, reply: dict[str, Any], node: str, order: dict[str, Any]) -> None:
    """Send a message about our launch to a node on another machine, without waiting for it."""
    link = Link(loop, sock, lambda link, *_: None, lambda *_: None)
    link.send(acting(reply, node))
    link.send(order)
    loop.after(ASK_S, link.close)


def acting(reply: dict[str, Any], node: str) -> dict[str, Any]:
    """The hello of a client that sends a message about a launch to ``node``, without a load."""
    shown = {"credential": reply["credential"], "mac": reply["macs"].get(node, "")} if "credential" in reply else {}
    return {**hello("yod"), **shown}


# Ending a launch on nodes that do not confirm its end: a message is sent to each PCT, without waiting. A stopped PCT
# reads the message when it continues: it kills the processes of the launch, and its tombstone makes it refuse the load
# if it had not read it before.


def sweep(loop: Loop, plan: Plan, reply: dict[str, Any]) -> None:
    """Tell every node of ``plan`` to kill the launcher of ``reply``.

    A node without a PCT cannot be told.
    """
    for node in plan.nodes:
        _tell(loop, node, reply, {"op": "kill_launch", "id": 1, "launcher": reply["launcher"]})


def tell_failed(loop: Loop, plan: Plan, name: str, reply: dict[str, Any], reason: str) -> None:
    """Tell the PCT of node ``name`` that the node was reported as failed: if it runs, it registers again later."""
    for node in plan.nodes:
        if node.name == name:
            _tell(loop, node, reply, {"op": "failed", "id": 1, "launcher": reply["launcher"], "reason": reason})


def _tell(loop: Loop, node: PlacedNode, reply: dict[str, Any], order: dict[str, Any]) -> None:
    try:
        sock = connect_now(node.address)
    except (OSError, AgentError):
        return
    if getattr(sock, "shaking", False):
        tell(loop, sock, reply, node.name, order)
        return
    try:
        sock.send(control(hello("yod")) + control(order))
    except OSError:
        pass
    finally:
        sock.close()


# The exit of the root's launch child: the PCT of the root, if it runs, knows the cause.


def inquire(loop: Loop, root: PlacedNode, reply: dict[str, Any], then: Callable[[dict[str, Any] | None], None]) -> None:
    """Ask the root's PCT how the launch child ended; ``then`` gets its message and hint, or None if that is unknown."""

    ask(loop, root.address, acting(reply, root.name), reply["launcher"], then)


def inquire_if_up(loop: Loop, root: PlacedNode, reply: dict[str, Any], then: Callable[[bool], None]) -> None:
    """Ask the root's PCT whether it answers; its launch child is silent."""
    ask_if_up(loop, root.address, acting(reply, root.name), reply["launcher"], then)

"""Brings what a CPA posts back to a process of the requester, through its Unix socket, as the requester.

Used by a node's PCT and by the CPA's deliverer (agents/cpa/line/deliver.py), always in a process of its own.
"""

from __future__ import annotations

import os

from agents.link.client import Client
from agents.linux import prctl
from agents.pct.errors import LoadFailed
from agents.wire.control import control
from agents.wire.errors import AgentError
from agents.wire.messages import check_post_back

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    import socket
    from typing import NoReturn

    from agents.wire.control import Message

#: For connecting, and then for the answer.
ANSWER_S = 5.0


def hand_over(path: str, uid: int, post_back: Message, role: str, where: str) -> None:
    """Send a post-back to the socket at ``path``, and wait for the answer. Raises AgentError.

    Root becomes the user ``uid`` first, for good: nothing is opened that this user could not open. The listener must
    be a process of that user too.
    """
    check_post_back(post_back)
    if not path.startswith("/") or "\0" in path:
        raise AgentError("post_back: the path of a socket is absolute", code="invalid")
    if os.geteuid() == 0 and uid != 0:
        from agents.pct.multiuser.identity import look_up  # needed in system mode only

        try:
            look_up(uid, where).become_for_good()
        except LoadFailed as error:
            raise AgentError(error.message, error.hint, code="denied") from None
        prctl.forbid_tracing()  # keys of the daemon may be in this memory
    with Client(path, role, ANSWER_S, owner=uid) as client:
        client.call({"op": "post_back", "post_back": post_back})


def bring(line: socket.socket, request: Message, node: str) -> NoReturn:
    """The whole life of the PCT's child: bring the post-back of ``request``, and write the reply to ``line``."""
    reply: Message = {}
    try:
        hand_over(request["path"], request["uid"], request["post_back"], "pct", node)
    except AgentError as error:
        reply = {"error": error.as_message()}
    except OSError as error:
        told = f"nobody answers at {request['path']}: {error.strerror or error}"
        reply = {"error": AgentError(told, code="unreachable").as_message()}
    line.sendall(control(reply))
    os._exit(0)

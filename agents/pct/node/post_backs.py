"""Brings what a CPA posts back to a process of the requester on this node, through its Unix socket."""

from __future__ import annotations

from agents.link.link import Caller
from agents.link.sockets import connect_now
from agents.wire.errors import AgentError
from agents.wire.messages import check_post_back

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from agents.link.loop import Loop
    from agents.wire.control import Message

_LIMIT_S = 5.0


def hand_over(loop: Loop, request: Message, reply: Callable[[Message], None]) -> None:
    """Send the post-back in ``request`` to the socket that it names; ``reply`` says whether it was acknowledged.

    The listener must be a process of the user whom the CPA names. Raises AgentError.
    """
    path = request["path"]
    check_post_back(request["post_back"])
    if not path.startswith("/") or "\0" in path:
        raise AgentError("post_back: the path of a socket is absolute", code="invalid")
    try:
        sock = connect_now(path, owner=request["uid"])
    except OSError as error:
        raise AgentError(f"nobody answers at {path}: {error.strerror or error}", code="unreachable") from None
    done = False

    def answered(_reply: Optional[Message], error: Optional[AgentError]) -> None:
        nonlocal done
        if not done:
            done = True
            timer.cancel()
            loop.after(0, caller.close)
            reply({} if error is None else {"error": error.as_message()})

    def late() -> None:
        answered(None, AgentError(f"no answer at {path} in {_LIMIT_S:g} s", code="unreachable"))

    timer: Any = loop.after(_LIMIT_S, late)
    caller = Caller(loop, sock, "pct", lambda _caller, _reason: None)
    caller.call({"op": "post_back", "post_back": request["post_back"]}, answered)

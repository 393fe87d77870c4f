"""A launch from another machine, received by a launch child that waits for one: TLS from its first byte is the child's.

TLS cannot be handed from process to process, so the connection is handed over before it: its first message says in
the clear that it brings a launch (the server's name in it is LAUNCH). The PCT is asked, over the line to it,
whether the credential may come in: it alone knows which ones have been used.
"""

from __future__ import annotations

import os
import select
import time

from agents.link import tcp, tls
from agents.link.trust import ours
from agents.pct.launch_child.spares import ASK, END
from agents.pct.remote.listener import LONGEST, PATIENCE_S, first_message
from agents.wire.control import control, decode, encode
from agents.wire.credential import Pass, read
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import HEADER_SIZE
from agents.wire.messages import check_hello, hello

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    import socket
    from typing import Any, Callable, Optional, Tuple

    from agents.wire.control import Message

_LINGER_S = 0.5


def receive(line: socket.socket, sock: socket.socket) -> "Optional[Tuple[tls.Secured, str, Pass]]":
    """The connection, its role, and what it was let in with; None when it was refused, or went."""
    try:
        tcp.tune(sock)
        sock.setblocking(False)
        secured = tls.Secured(sock, ours(), server=True)
    except (OSError, AgentError):
        sock.close()
        return None
    until = time.monotonic() + PATIENCE_S
    try:
        return _received(line, secured, until)
    except AgentError as refusal:
        refuse(secured, refusal)
    except OSError as error:
        _ask(line, {"failed": error.strerror or str(error)})
    secured.close()
    return None


def _received(line: socket.socket, secured: tls.Secured, until: float) -> "Tuple[tls.Secured, str, Pass]":
    wait(secured, secured.shake, until)
    message, rest = next_message(secured, b"", until)
    role = check_hello(message)
    answer = _ask(line, {
        "role": role, "names": sorted(secured.peer.names),
        "credential": str(message.get("credential", "")), "mac": str(message.get("mac", "")),
    })  # fmt: skip
    if "error" in answer:
        raise AgentError.from_message(answer["error"])
    secured.unread(rest)
    return secured, role, Pass(read(str(message["credential"])), str(answer["parent"]), float(answer["lapses_at"]))


def next_message(secured: tls.Secured, data: bytes, until: float) -> "Tuple[Message, bytes]":
    """The message that ``data`` begins with, or will, and what has come behind it. OSError, WireError."""
    while True:
        message = first_message(data)
        if message is not None:
            return message, data[HEADER_SIZE + int.from_bytes(data[1:HEADER_SIZE], "big") :]
        more = wait(secured, lambda: secured.recv(LONGEST), until)
        if not more:
            raise OSError(0, "the connection ended before its hello")
        data += more


def wait(secured: tls.Secured, step: Callable[[], Any], until: float) -> Any:
    """What ``step`` returns once it need not wait any more. OSError when that is not ``until`` then."""
    while (left := until - time.monotonic()) > 0:  # also for who never pauses
        try:
            return step()
        except BlockingIOError:
            events = select.poll()
            events.register(secured.fileno(), secured.wants)
            events.poll(left * 1000)
    raise OSError(0, "it was too slow")


def _ask(line: socket.socket, question: Any) -> Any:
    # our PCT answers at once; when it is gone nobody may let a launch in
    line.sendall(ASK + encode(question) + END)
    answer = b""
    while not answer.endswith(END):
        data = line.recv(1 << 16)
        if not data:
            os._exit(0)
        answer += data
    return decode(answer)


def refuse(secured: tls.Secured, refusal: AgentError) -> None:
    """Say why, and wait until it has been read."""
    until = time.monotonic() + _LINGER_S
    try:
        secured.sendall(control(hello("pct")) + control({"re": 0, "error": refusal.as_message()}))
        while wait(secured, lambda: secured.recv(1 << 16), until):
            pass  # what is left unread would make our end a reset
    except OSError:
        pass


def answer(question: bytes, let_in: Callable[..., Pass], on_failure: Callable[[str], None]) -> bytes:
    """The PCT's part: a launch child's question, answered."""
    asked = decode(question[len(ASK) :])
    if "failed" in asked:
        on_failure(asked["failed"])
        return b"{}" + END
    try:
        let = let_in(asked["role"], frozenset(asked["names"]), asked["credential"], asked["mac"])
        reply: Any = {"parent": let.parent, "lapses_at": let.lapses_at}
    except (AgentError, WireError) as refusal:
        reply = {"error": refusal.as_message()}
    return encode(reply) + END

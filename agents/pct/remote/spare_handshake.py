"""A waiting launch child receives a launch from another machine, with TLS from its first byte.

A TLS connection cannot be passed between processes, so the connection is passed on before the handshake: its first
message says unencrypted that it brings a launch (the TLS server name is LAUNCH). The launch child asks the PCT whether
the credential is admitted, because only the PCT knows which ones have been used.
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
    """The connection, its role and admission data; None if it was refused, or disconnected."""
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
    """The next message, whose beginning is in ``data``, and the bytes after it. Raises OSError or WireError."""
    while True:
        message = first_message(data)
        if message is not None:
            return message, data[HEADER_SIZE + int.from_bytes(data[1:HEADER_SIZE], "big") :]
        more = wait(secured, lambda: secured.recv(LONGEST), until)
        if not more:
            raise OSError(0, "the connection ended before its hello")
        data += more


def wait(secured: tls.Secured, step: Callable[[], Any], until: float) -> Any:
    """Call ``step`` until it need not wait any more; returns its result. Raises OSError after ``until``."""
    while (left := until - time.monotonic()) > 0:  # also limits a peer that never pauses
        try:
            return step()
        except BlockingIOError:
            events = select.poll()
            events.register(secured.fileno(), secured.wants)
            events.poll(left * 1000)
    raise OSError(0, "it was too slow")


def _ask(line: socket.socket, question: Any) -> Any:
    # Our PCT answers at once; if it has exited, nobody may admit a launch.
    line.sendall(ASK + encode(question) + END)
    answer = b""
    while not answer.endswith(END):
        data = line.recv(1 << 16)
        if not data:
            os._exit(0)
        answer += data
    return decode(answer)


def refuse(secured: tls.Secured, refusal: AgentError) -> None:
    """Send the reason, and wait until it has been read."""
    until = time.monotonic() + _LINGER_S
    try:
        secured.sendall(control(hello("pct")) + control({"re": 0, "error": refusal.as_message()}))
        while wait(secured, lambda: secured.recv(1 << 16), until):
            pass  # unread data would turn our close into a reset
    except OSError:
        pass


def answer(question: bytes, let_in: Callable[..., Pass], on_failure: Callable[[str], None]) -> bytes:
    """The PCT's part: the answer to a launch child's question."""
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

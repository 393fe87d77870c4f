"""A process of its own between a launch child and a node that fetches an image from it.

The fetcher came to the PCT's port, and TLS cannot be handed to a process that lives already; so a fork of the PCT,
which has it, carries bytes from the launch child's socket to it. The PCT stays out of the way of gigabytes.
"""

from __future__ import annotations

import os
import select
import time

from agents.link.sockets import connect
from agents.pct import kernel
from agents.wire.control import control
from agents.wire.errors import AgentError
from agents.wire.messages import hello

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    import socket

    from agents.link.tls import Secured
    from agents.wire.control import Message

#: Seconds for which neither side may move (who fetches has gone to another node by then), for a launch child to appear.
STILL_S, APPEAR_S = 3.0, 1.0
_AGAIN_S = 0.01
_PIECE = 256 << 10


def carry(secured: Secured, path: str, request: Message) -> None:
    """Ask the launch child at ``path`` and pass on what it says, until either end goes. OSError, AgentError."""
    kernel.set_name(b"redmesh-courier")
    source = _reach(path)
    source.sendall(control(hello("child")) + control(request))
    secured.settimeout(STILL_S)
    waiting = select.poll()
    waiting.register(source, select.POLLIN)
    waiting.register(secured, select.POLLIN)
    while True:
        ready = [fd for fd, _ in waiting.poll(STILL_S * 1000)]
        if not ready or secured.fileno() in ready:
            return  # it has what it wanted, or wants no more: a fetcher says one thing only
        data = source.recv(_PIECE)
        if not data:
            return
        secured.sendall(data)


def _reach(path: str) -> socket.socket:
    until = time.monotonic() + APPEAR_S
    while True:
        try:
            return connect(path, STILL_S)
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > until:
                raise
            time.sleep(_AGAIN_S)  # a process that does nothing else


def be_courier(secured: Secured, path: str, request: Message) -> None:
    """In a forked process: carry, and leave."""
    status = 0
    try:
        carry(secured, path, request)
    except (OSError, AgentError):
        pass  # who fetches asks the next
    finally:
        os._exit(status)

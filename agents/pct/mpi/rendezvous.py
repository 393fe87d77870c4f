"""The address at which ranks without MPI may meet: MASTER_ADDR and MASTER_PORT, as PyTorch and others read them."""

from __future__ import annotations

import os

from agents.link.lean import Socket, socket
from agents.wire.address import parse

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, List


def choose_master(address: str, launcher: int) -> "List[Any]":
    """This node's address, a port that is free here now, and a random word that no earlier launch had.

    The port is below the kernel's ephemeral ports, and different for the next launches.
    """
    once = os.urandom(6).hex()
    host = "127.0.0.1" if address.startswith("/") else parse(address).host
    for turn in range(64):
        port = 20_000 + (launcher * 7 + turn * 97) % 12_000
        with Socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            try:
                sock.bind(("", port))
                return [host, port, once]
            except OSError:
                continue
    return [host, 0, once]

"""Loopback addresses and TCP ports that no other test process of this machine uses."""

import functools
import itertools
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

#: The networks to choose from: 127.1.0 to 127.254.255. Whatever is not ours uses 127.0.0.
_NETWORKS = 254 * 256
#: Keeps the name of our network: the kernel releases an abstract name when the process that has it ends.
_name = socket.socket(socket.AF_UNIX)


@functools.cache
def network() -> str:
    """Return the first three numbers of the loopback addresses that this process alone uses: ``127.3.17``."""
    for number in itertools.islice(itertools.count(os.getpid()), _NETWORKS):
        found = f"127.{number // 256 % 254 + 1}.{number % 256}"
        try:
            _name.bind(f"\0redmesh-tests-{found}")
            return found
        except OSError:
            continue  # another test process has it
    raise AssertionError("other test processes use every loopback network")


def address(number: int | str) -> str:
    """Return a loopback address of this process; ``[1-4]`` for a list of them."""
    return f"{network()}.{number}"


def free_port(host: str) -> int:
    """Return a TCP port that is free on ``host``, an address of this process: nobody else takes the port."""
    with socket.socket() as sock:
        sock.bind((host, 0))
        port: int = sock.getsockname()[1]
        return port


@contextmanager
def held_port() -> Iterator[int]:
    """Yield a free TCP port of 127.0.0.1, for a program that listens with SO_REUSEADDR.

    While a socket is bound to the port, the kernel gives the port to no process that asks for any.
    """
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]

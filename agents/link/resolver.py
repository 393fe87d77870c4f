"""Looks up host names in a child process, because the C library blocks, and a slow name server must not stop a
daemon.

The last answer is kept until there is another one. Numeric addresses need no look-up.
"""

from __future__ import annotations

import os
import time

from agents.link.lean import signal, socket
from agents.link.loop import READ
from agents.link.tcp import resolve
from agents.wire.heartbeat import split_address

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, NoReturn, Optional, Set, Tuple

    from agents.link.loop import Loop

    Place = Tuple[int, Any]

#: Seconds: until a name is looked up again; after a failure; and until a blocked child is given up.
AGAIN_S, RETRY_S, LONGEST_S = 60.0, 5.0, 30


class Names:
    """Resolves ``HOST:PORT`` for datagrams; ``on_answer()`` is called when a name has an address."""

    def __init__(self, loop: Loop, on_answer: Callable[[], None] = lambda: None) -> None:
        self._loop, self._on_answer = loop, on_answer
        self._known: Dict[Tuple[str, int], str] = {}  # (name, address family) -> address
        self._asking: Set[Tuple[str, int]] = set()
        self._due: Dict[Tuple[str, int], float] = {}
        self._closed = False

    def address(self, place: str, family: int = 0) -> Optional[Place]:
        """Family and address if known, otherwise None. Raises WireError for a malformed place."""
        host, port = split_address(place)
        at_once = _numeric(host, port, 0)
        if at_once is not None:  # looking up cannot find an address of another family
            return at_once if family in (0, at_once[0]) else None
        key = (host, family)
        if key not in self._asking and time.monotonic() >= self._due.get(key, 0.0):
            self._ask(key)
        found = self._known.get(key)
        return None if found is None else _numeric(found, port, family)

    def close(self) -> None:
        """Stop; pending answers are dropped."""
        self._closed = True

    def _ask(self, key: Tuple[str, int]) -> None:
        reader, writer = os.pipe()
        try:
            pid = os.fork()
        except OSError:  # no process can be created now: try again later
            os.close(reader)
            os.close(writer)
            self._due[key] = time.monotonic() + RETRY_S
            return
        if pid == 0:
            _look_up(key, writer)
        os.close(writer)
        self._asking.add(key)
        child = os.pidfd_open(pid)  # its pid could soon belong to another process
        self._loop.watch(reader, READ, lambda _events: self._answered(key, reader, child))

    def _answered(self, key: Tuple[str, int], reader: int, child: int) -> None:
        found = os.read(reader, 256).decode("ascii", "replace")
        self._loop.unwatch(reader)
        os.close(reader)
        try:
            os.waitid(os.P_PIDFD, child, os.WEXITED)  # it has written its answer and exits
        except ChildProcessError:
            pass  # another handler has already reaped the child
        os.close(child)
        self._asking.discard(key)
        self._due[key] = time.monotonic() + (AGAIN_S if found else RETRY_S)
        if found and self._known.get(key) != found:
            self._known[key] = found
            if not self._closed:
                self._on_answer()


def _numeric(host: str, port: int, family: int) -> Optional[Place]:
    try:
        # As bytes, because for a str Python would load its IDNA tables, a megabyte in every node's PCT.
        found = socket.getaddrinfo(host.encode("ascii"), port, family, socket.SOCK_DGRAM, 0, socket.AI_NUMERICHOST)
    except (OSError, UnicodeEncodeError):
        return None
    return found[0][0], found[0][4]


def _look_up(key: Tuple[str, int], writer: int) -> NoReturn:
    """In the child: close the parent's descriptors and reset its handlers."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        signal.alarm(LONGEST_S)
        os.dup2(writer, 3)
        os.closerange(4, _most_files())
        host, family = key
        os.write(3, str(resolve(host, 0, socket.SOCK_DGRAM, family)[1][0]).encode("ascii"))
    finally:
        os._exit(0)


def _most_files() -> int:
    try:
        return 1 + max(map(int, os.listdir("/proc/self/fd")))
    except OSError:
        return 4096

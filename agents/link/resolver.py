"""Host names looked up beside a loop: in a child, for the C library waits, and a slow server of names must stop nobody.

The last answer is kept for as long as there is no other one. An address needs no looking up.
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

#: Seconds between two look-ups of a name, after one that failed, and until a child that waits is given up.
AGAIN_S, RETRY_S, LONGEST_S = 60.0, 5.0, 30


class Names:
    """Where to send datagrams for ``HOST:PORT``; ``on_answer()`` is called when a name has got an address."""

    def __init__(self, loop: Loop, on_answer: Callable[[], None] = lambda: None) -> None:
        self._loop, self._on_answer = loop, on_answer
        self._known: Dict[Tuple[str, int], str] = {}  # a name and the family that is wanted
        self._asking: Set[Tuple[str, int]] = set()
        self._due: Dict[Tuple[str, int], float] = {}
        self._closed = False

    def address(self, place: str, family: int = 0) -> Optional[Place]:
        """Family and address, as they are known; None while they are not. WireError for what is not a place."""
        host, port = split_address(place)
        at_once = _numeric(host, port, 0)
        if at_once is not None:  # an address of another family is not found by looking it up either
            return at_once if family in (0, at_once[0]) else None
        key = (host, family)
        if key not in self._asking and time.monotonic() >= self._due.get(key, 0.0):
            self._ask(key)
        found = self._known.get(key)
        return None if found is None else _numeric(found, port, family)

    def close(self) -> None:
        """No answer is of use any more."""
        self._closed = True

    def _ask(self, key: Tuple[str, int]) -> None:
        reader, writer = os.pipe()
        try:
            pid = os.fork()
        except OSError:  # no room for another process: the next time
            os.close(reader)
            os.close(writer)
            self._due[key] = time.monotonic() + RETRY_S
            return
        if pid == 0:
            _look_up(key, writer)
        os.close(writer)
        self._asking.add(key)
        child = os.pidfd_open(pid)  # by its number it might be another one by then
        self._loop.watch(reader, READ, lambda _events: self._answered(key, reader, child))

    def _answered(self, key: Tuple[str, int], reader: int, child: int) -> None:
        found = os.read(reader, 256).decode("ascii", "replace")
        self._loop.unwatch(reader)
        os.close(reader)
        try:
            os.waitid(os.P_PIDFD, child, os.WEXITED)  # it has said what it had to say, and ends
        except ChildProcessError:
            pass  # whoever looks after children here was first
        os.close(child)
        self._asking.discard(key)
        self._due[key] = time.monotonic() + (AGAIN_S if found else RETRY_S)
        if found and self._known.get(key) != found:
            self._known[key] = found
            if not self._closed:
                self._on_answer()


def _numeric(host: str, port: int, family: int) -> Optional[Place]:
    try:
        # as bytes: for a text Python would load its tables of international names, a megabyte in every node's PCT
        found = socket.getaddrinfo(host.encode("ascii"), port, family, socket.SOCK_DGRAM, 0, socket.AI_NUMERICHOST)
    except (OSError, UnicodeEncodeError):
        return None
    return found[0][0], found[0][4]


def _look_up(key: Tuple[str, int], writer: int) -> NoReturn:
    """In the child: nothing of the parent's may be held open by it, nor its handlers run in it."""
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

"""Serves images to other nodes: passes the file itself, and then notices of how much has arrived.

The receiver is on this machine (for a node on another machine an image proxy is, agents/pct/remote/image_proxy.py), so
the bytes need not pass through a socket: the receiver reads them from the RAM disk, with one copy instead of two, and
one wake-up for each notice.
"""

from __future__ import annotations

import os
import struct

from agents.link.lean import socket
from agents.pct.images.chunks import notice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List

    from agents.link.server import Session

#: Bytes that must arrive before the next notice to an image proxy, whose network link should not idle.
FAR_GRAIN = 64 << 10


class Serving:
    """Serves image ``number``, of ``size`` bytes, to one node. ``available()`` bytes of the file ``fd`` are valid.

    A notice costs the receiver a wake-up, so there is one for each ``grain`` bytes, but more at first, so that lower
    nodes begin soon.
    """

    def __init__(
        self, session: Session, number: int, size: int, fd: int, available: Callable[[], int], grain: int
    ) -> None:
        self._session, self._number, self._size, self._fd = session, number, size, fd
        self._available, self._grain = available, grain
        # An image proxy is notified of each quarter more, so that its link does not idle; a node on this machine of
        # each half.
        self._share = 4 if grain <= FAR_GRAIN else 2
        self._told = 0
        session.link.on_drained = self.push

    def push(self) -> None:
        """Send a notice of new data if there is enough."""
        link, here = self._session.link, self._available()
        worth_it = here == self._size or here - self._told >= min(self._grain, here // self._share)
        if link.sock is None:
            self.close()
        elif link.out_bytes or here == self._told or not worth_it:
            return  # sent once the earlier ones have been accepted
        elif self._fd < 0:
            self._told = here
            link.send_raw(notice(self._number, here))
        else:
            self._hand_over(link.sock, here)

    def _hand_over(self, sock: socket.socket, here: int) -> None:
        handed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", self._fd))]
        try:
            sock.sendmsg([notice(self._number, here)], handed)
        except OSError:  # the socket is full: the receiver has exited, or does not read
            self.close()
            return
        self._told = here
        self._let_go()

    def _let_go(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        """Stop; the receiver asks another source for more."""
        self._let_go()
        self._session.forget()


class Servings:
    """All servings of a node, by image."""

    def __init__(self) -> None:
        self._servings: Dict[int, List[Serving]] = {}

    def add(self, number: int, serving: Serving) -> None:
        """Add a serving and send its first notice."""
        self._servings.setdefault(number, []).append(serving)
        serving.push()

    def push(self, number: int) -> None:
        """More data of an image has arrived."""
        for serving in self._servings.get(number, ()):
            serving.push()

    def stop(self, number: int) -> None:
        """An image will not come."""
        for serving in self._servings.pop(number, ()):
            serving.close()

    def close(self) -> None:
        """Stop all servings."""
        for number in list(self._servings):
            self.stop(number)

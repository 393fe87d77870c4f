"""Images that others fetch from this node: the file itself is handed over, and then how much of it has arrived.

Whoever fetches is on this machine (for another one's node an image proxy does it, agents/pct/remote/image_proxy.py), so
the bytes need not travel through a socket: it reads them out of the RAM disk, which costs one copy instead of two and
as many wake-ups as there are notices.
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

#: Bytes that have to arrive before an image proxy, whose machine's link shall not rest, has the next notice.
FAR_GRAIN = 64 << 10


class Serving:
    """Image ``number``, of ``size`` bytes, for one node. ``available()`` bytes of the file ``fd`` are good.

    A notice costs whoever fetches a wake-up, so there is one for each ``grain`` bytes; more at first, so that what is
    behind it begins soon.
    """

    def __init__(
        self, session: Session, number: int, size: int, fd: int, available: Callable[[], int], grain: int
    ) -> None:
        self._session, self._number, self._size, self._fd = session, number, size, fd
        self._available, self._grain = available, grain
        # Behind an image proxy a link would rest meanwhile: it is told of each quarter more, a node here of half.
        self._share = 4 if grain <= FAR_GRAIN else 2
        self._told = 0
        session.link.on_drained = self.push

    def push(self) -> None:
        """Tell of what has come since, once that is worth it."""
        link, here = self._session.link, self._available()
        worth_it = here == self._size or here - self._told >= min(self._grain, here // self._share)
        if link.sock is None:
            self.close()
        elif link.out_bytes or here == self._told or not worth_it:
            return  # once all is sent, it is told
        elif self._fd < 0:
            self._told = here
            link.send_raw(notice(self._number, here))
        else:
            self._hand_over(link.sock, here)

    def _hand_over(self, sock: socket.socket, here: int) -> None:
        handed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", self._fd))]
        try:
            sock.sendmsg([notice(self._number, here)], handed)
        except OSError:  # not even room for this: it has gone, or reads nothing
            self.close()
            return
        self._told = here
        self._let_go()

    def _let_go(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        """Tell no more; who waits for more asks somebody else."""
        self._let_go()
        self._session.link.on_drained = None
        self._session.link.close()


class Servings:
    """All servings of a node, by image."""

    def __init__(self) -> None:
        self._servings: Dict[int, List[Serving]] = {}

    def add(self, number: int, serving: Serving) -> None:
        """One more, and what it is told first."""
        self._servings.setdefault(number, []).append(serving)
        serving.push()

    def push(self, number: int) -> None:
        """More of an image has come."""
        for serving in self._servings.get(number, ()):
            serving.push()

    def stop(self, number: int) -> None:
        """An image will not come."""
        for serving in self._servings.pop(number, ()):
            serving.close()

    def close(self) -> None:
        """Everybody goes."""
        for number in list(self._servings):
            self.stop(number)

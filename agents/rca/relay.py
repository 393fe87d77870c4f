"""CPAs of other login processors, as if they were here: a socket for each, and TLS behind it (row A12).

Who connects is known to the kernel; each connection has one of its own to the CPA, and the first thing said there is
whose it is. So yod, pingd and the RCA itself need not know.
"""

import os

from agents.link.journal import Journal
from agents.link.lean import Socket
from agents.link.link import Link
from agents.link.loop import READ, Loop
from agents.link.sockets import connect_now, listen, peer
from agents.wire.control import decode
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import CONTROL, frame
from agents.wire.messages import check_hello

#: Bytes that may wait for one end before the other is read no more.
AHEAD = 1 << 20


class Passage:
    """One client and its connection to the CPA. OSError, AgentError when that is out of reach."""

    def __init__(self, loop: Loop, sock: Socket, address: str, journal: Journal) -> None:
        self._who, self._journal, self._address = peer(sock), journal, address
        self._greeted = False
        far = connect_now(address)
        self._near = Link(loop, sock, self._on_near, lambda _link, _reason: self._far.close(flush=True))
        self._far = Link(loop, far, self._on_far, self._on_far_end)
        self._near.on_drained, self._far.on_drained = self._far.resume, self._near.resume

    def _on_near(self, _link: Link, kind: int, payload: bytes) -> None:
        self._far.send_raw(frame(kind, payload))
        if not self._greeted:
            if kind != CONTROL:
                raise WireError("the first message on a connection is a hello")
            check_hello(decode(payload))
            self._greeted = True
            who = self._who
            self._far.send({"op": "vouch", "pid": who.pid, "uid": who.uid, "gid": who.gid})
        if self._far.out_bytes > AHEAD:
            self._near.pause()

    def _on_far(self, _link: Link, kind: int, payload: bytes) -> None:
        self._near.send_raw(frame(kind, payload))
        if self._near.out_bytes > AHEAD:
            self._far.pause()

    def _on_far_end(self, _link: Link, reason: str) -> None:
        self._journal.write("cpa_gone", address=self._address, reason=reason)
        self._near.close(flush=True)


class Relay:
    """The socket ``path`` is the CPA at ``address``."""

    def __init__(self, loop: Loop, path: str, address: str, journal: Journal, *, public: bool) -> None:
        self._loop, self._address, self._journal, self._path = loop, address, journal, path
        self._sock = listen(path)
        if public:
            os.chmod(path, 0o666)
        loop.watch(self._sock.fileno(), READ, self._on_accept)

    def _on_accept(self, _events: int) -> None:
        try:
            sock, _ = self._sock.accept()
        except OSError:
            return
        try:
            Passage(self._loop, sock, self._address, self._journal)
        except (OSError, AgentError) as error:
            self._journal.write("cpa_gone", address=self._address, reason=getattr(error, "message", None) or str(error))
            sock.close()

    def close(self) -> None:
        """No more clients; those that are here go with us."""
        self._loop.unwatch(self._sock.fileno())
        self._sock.close()
        try:
            os.unlink(self._path)
        except OSError:
            pass

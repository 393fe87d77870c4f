"""The PCTs of other meshes on this host: each PCT listens at an abstract Unix socket, and connects to those it finds.

Both ends of a connection send one message with what they say of themselves, and the kernel says which user the other
end is (SO_PEERCRED). What a peer says lasts as long as the connection. It is shown to people and decides nothing: any
process may listen there and say anything. A peer can therefore neither delay nor end this PCT, nor fill its log or the
mesh's history: the socket never blocks, connections are limited for each user, and so are reports. docs/protocol.md
has the name of the socket and the message.
"""

from __future__ import annotations

import os

from agents.link.lean import Socket, socket
from agents.link.loop import READ, Loop
from agents.link.sockets import peer
from agents.wire.control import decode, encode
from agents.wire.errors import WireError
from redmesh.sanitise import clean

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Tuple

    from agents.link.journal import Journal
    from agents.wire.control import Message

#: Names of the abstract sockets of all PCTs begin so; /proc/net/unix lists them with @ for the NUL.
PREFIX = "redmesh-pct-"
#: Bytes of a message, and characters of each name in it.
LONGEST, LONGEST_NAME = 1024, 64
#: Connections of one user, and of all.
MOST_OF_USER, MOST = 64, 256
#: Names in /proc/net/unix that are tried.
MOST_TRIED = 256
MOST_BYTES = 8 << 20
_AT_ONCE, _PAUSE_S = 32, 1.0  # connections that are accepted, and then the pause
_GATHER_S = 0.1  # between a change and the report, because peers come and go together
#: Reports of changes at once, and seconds until another may follow: a peer that comes and goes must not fill the
#: history.
_REPORTS, _REPORT_S = 8, 600.0
_NAMED = 3  # meshes in a report


class Introduction:
    """What a PCT says of itself. ``started_on`` is the login processor that brought the mesh up; ``listen`` is
    HOST:PORT, "" for a node that no other machine reaches."""

    __slots__ = ("listen", "mesh", "processors", "started_on")

    def __init__(self, mesh: str, started_on: str, processors: int, listen: str = "") -> None:
        self.mesh, self.started_on, self.processors, self.listen = mesh, started_on, processors, listen

    def as_message(self) -> Message:
        """The message to a peer."""
        return {
            "op": "neighbour",
            "mesh": self.mesh[:LONGEST_NAME],
            "started_on": self.started_on[:LONGEST_NAME],
            "processors": self.processors,
            "listen": self.listen[:LONGEST_NAME],
        }


def read_introduction(data: bytes) -> Introduction:
    """Parse a peer's message. Raises WireError."""
    message = decode(data)
    words = [message.get(key) for key in ("mesh", "started_on", "listen")]
    processors = message.get("processors")
    if not all(isinstance(word, str) and len(word) <= LONGEST_NAME for word in words) or not words[0]:
        raise WireError("a neighbour's message without its mesh")
    if type(processors) is not int or not 0 <= processors < 1 << 20:
        raise WireError("a neighbour's message without its processors")
    mesh, started_on, listen = (clean(str(word)) for word in words)
    return Introduction(mesh, started_on, processors, listen)


class Table:
    """What the peers of one PCT say: the facts, without sockets. Keys are descriptors, or anything else."""

    def __init__(self, uid: int, own: Introduction) -> None:
        self._uid, self._own = uid, own
        self._uids: Dict[int, int] = {}
        self._said: Dict[int, Introduction] = {}

    def admit(self, key: int, uid: int) -> bool:
        """Add a connection with a process of ``uid``; False if that user, or all together, have enough of them."""
        if len(self._uids) >= MOST or list(self._uids.values()).count(uid) >= MOST_OF_USER:
            return False
        self._uids[key] = uid
        return True

    def hear(self, key: int, said: Introduction) -> bool:
        """Record a connection's message; False if it has sent one before, or if its mesh need not be reported.

        A mesh of the same user, started on the same machine, is not reported: that user knows of both.
        """
        if key in self._said or (self._uids[key], said.started_on) == (self._uid, self._own.started_on):
            return False
        self._said[key] = said
        return True

    def forget(self, key: int) -> None:
        """Remove a connection."""
        self._uids.pop(key, None)
        self._said.pop(key, None)

    def meshes(self) -> List[Tuple[int, str, int]]:
        """The other meshes on this host: uid, name and number of processors."""
        found: Dict[Tuple[int, str], int] = {}
        for key, said in self._said.items():
            who = self._uids[key], said.mesh
            found[who] = found.get(who, 0) + said.processors
        return [(uid, mesh, processors) for (uid, mesh), processors in sorted(found.items())]


def told(meshes: List[Tuple[int, str, int]], name_of: Callable[[int], str]) -> str:
    """Other meshes in words: ``also used by mesh b of bob (4 processors)``; "" for none."""
    words = []
    for uid, mesh, processors in meshes[:_NAMED]:
        number = "1 processor" if processors == 1 else f"{processors} processors"
        words.append(f"mesh {mesh} of {name_of(uid)} ({number})")
    if len(meshes) > _NAMED:
        words.append(f"{len(meshes) - _NAMED} more")
    return "also used by " + ", ".join(words) if words else ""


def name_of(uid: int) -> str:
    """The name of a local account, else ``uid N``.

    /etc/passwd alone is read: a directory service may take seconds to answer, and the PCT's loop must not wait.
    """
    number = str(uid)
    try:
        with open("/etc/passwd", encoding="utf-8", errors="replace") as file:
            for line in file:
                words = line.split(":", 3)
                if len(words) == 4 and words[2] == number:
                    return clean(words[0][:LONGEST_NAME])
    except OSError:
        pass
    return f"uid {uid}"


def names_in(table: bytes, own: str) -> List[bytes]:
    """The abstract sockets of other meshes' PCTs in /proc/net/unix. ``own`` is the mesh in the names of this mesh."""
    begin, ours = b"@" + PREFIX.encode(), b"@" + PREFIX.encode() + own.encode() + b"-"
    found: List[bytes] = []
    for line in table.split(b"\n"):
        at = line.find(begin)
        if at > 0 and line[at : at + len(ours)] != ours and line[at + 1 :] not in found:
            found.append(line[at + 1 :])
            if len(found) == MOST_TRIED:
                break
    return found


class Neighbours:
    """Keeps the connections to other meshes' PCTs. :attr:`text` has those meshes in words, "" if there is none."""

    def __init__(self, loop: Loop, mesh_id: str, own: Introduction, log: Journal) -> None:
        self._loop, self._mesh_id, self._log = loop, mesh_id, log
        self._hello = encode(own.as_message())
        self._table = Table(os.geteuid(), own)
        self._links: Dict[int, Socket] = {}
        self._accepted = 0
        self._reports = _REPORTS
        self._gathering = False
        self.text = ""
        self._sock: Optional[Socket] = None
        if not own.started_on:
            return
        try:
            self._sock = _listen(mesh_id)
            self._loop.watch(self._sock.fileno(), READ, self._on_connections)
            self._find()
        except OSError as error:
            self._log.write("no neighbours", error=error.strerror)  # other meshes are not found; all else works

    def close(self) -> None:
        """Close every connection; in a forked child, the parent's stay open."""
        for fd, sock in self._links.items():
            self._loop.unwatch(fd)
            sock.close()
        self._links.clear()
        if self._sock is not None:
            self._loop.unwatch(self._sock.fileno())
            self._sock.close()
            self._sock = None

    def _find(self) -> None:
        # Once, after this PCT listens: of two PCTs that start at the same time, at least one finds the other.
        with open("/proc/net/unix", "rb") as file:
            table = file.read(MOST_BYTES)
        for name in names_in(table, self._mesh_id):
            sock = Socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            try:
                sock.connect(b"\0" + name)
            except OSError:  # it has ended, or does not accept
                sock.close()
                continue
            self._admit(sock)

    def _on_connections(self, _events: int) -> None:
        assert self._sock is not None
        while self._accepted < _AT_ONCE:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return
            self._accepted += 1
            sock.setblocking(False)
            self._admit(sock)
        # A process that connects again and again costs no more than a few connections a second.
        self._loop.unwatch(self._sock.fileno())
        self._loop.after(_PAUSE_S, self._accept_again)

    def _accept_again(self) -> None:
        self._accepted = 0
        if self._sock is not None:
            self._loop.watch(self._sock.fileno(), READ, self._on_connections)

    def _admit(self, sock: Socket) -> None:
        fd = sock.fileno()
        try:
            if self._table.admit(fd, peer(sock).uid):
                sock.send(self._hello)
                self._links[fd] = sock
                self._loop.watch(fd, READ, lambda _events: self._on_message(fd, sock))
                return
        except OSError:
            pass
        self._table.forget(fd)
        sock.close()

    def _on_message(self, fd: int, sock: Socket) -> None:
        try:
            data = sock.recv(LONGEST + 1)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            if data and len(data) <= LONGEST and self._table.hear(fd, read_introduction(data)):
                self._changed()
                return
        except WireError:
            pass
        self._loop.unwatch(fd)
        del self._links[fd]
        self._table.forget(fd)
        sock.close()
        self._changed()

    def _changed(self) -> None:
        if not self._gathering and self._reports > 0:
            self._gathering = True
            self._loop.after(_GATHER_S, self._report)

    def _report(self) -> None:
        self._gathering = False
        text = told(self._table.meshes(), name_of)
        if text == self.text:
            return
        self.text = text
        self._reports -= 1
        self._loop.after(_REPORT_S, self._may_report)
        self._log.write("neighbours", told=text)

    def _may_report(self) -> None:
        self._reports += 1
        self._changed()


def _listen(mesh_id: str) -> Socket:
    name = f"{PREFIX}{mesh_id}-{os.urandom(8).hex()}"
    sock = Socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        sock.bind(b"\0" + name.encode())
        sock.listen(64)
    except BaseException:
        sock.close()
        raise
    return sock

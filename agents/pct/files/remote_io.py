"""The ranks' access to files on the login processor: a socket on the node, requests up the tree, answers down (row
B9).

No file is opened here: yod opens files, below the directories it was given. A window limits the data in transit of each
node, so that ranks that write faster than yod, or that do not read answers, delay only themselves.
"""

from __future__ import annotations

import os
import struct

from agents.link.acceptor import Acceptor
from agents.link.lean import deque
from agents.link.link import Link
from agents.link.sockets import LOOK_S, file_of, listen, listen_again, peer
from agents.pct.launch.paths import file_socket
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Callable, Deque, Dict, Optional, Tuple

    from agents.pct.launch.context import LaunchContext
    from agents.pct.launch.tree import Child

    Answer = Callable[[int, int, memoryview], None]

#: The limit of data in transit for a whole launch, in bytes; each node has its share, at least the second value.
WINDOW, SMALLEST = 16 << 20, 64 << 10
#: Bytes of unread answers above which no more requests of the rank are read.
UNREAD = 2 << 20

(
    OPEN, READ_AT, WRITE_AT, CLOSE, STAT, LIST, TRUNCATE, GONE, STAGE_IN, STAGE_OUT, STAGE_FAILED,
) = range(1, 12)  # fmt: skip
#: A request to the owner of the launch's state object (agents/job/state_requests.py); ranks may send it too.
STATE = 12
#: Operations for mounted directories (agents/pct/files/mounted.py); only the launch child may send them.
(
    ATTRIBUTES, OPEN_FILE, CREATE_FILE, READ_FILE, WRITE_FILE, SYNC_FILE, RELEASE_FILE, READ_DIRECTORY,
    SET_ATTRIBUTES, MAKE, REMOVE, RENAME, LINK, READ_LINK, ACCESS, SPACE, RESERVE,
) = range(13, 30)  # fmt: skip
#: The wire form of stat(2): inode, size, blocks, mode, links, uid, gid, device, times in ns. OWN_ID: yod's uid or gid.
STATUS = struct.Struct("!QQQIIIIQqqq")
OWN_ID = 0xFFFFFFFF
#: What SET_ATTRIBUTES sets (bits of agents/pct/files/fuse.py): bits, handle, mode, uid, gid, size, times in ns.
CHANGES = struct.Struct("!IIIIIQqq")
#: The prefix of a request about a name: the index of the directory of ``--io``; of one about an open file: its handle.
PLACE, HANDLE = struct.Struct("!B"), struct.Struct("!I")
#: Files up to this size are sent with the answer to OPEN_FILE.
SMALL = 64 << 10
#: A question of a rank to its launch child: did the kernel kill a process that the rank has reaped, for lack of memory?
OUT_OF_MEMORY = 30
#: Channels from this number on belong to the launch child; ranks cannot name them.
OWN = 1 << 31

ROUTE = struct.Struct("!BIII")  # kind, length, node, channel
REQUEST = struct.Struct("!BIQI")  # operation, number, offset, length; then data
ANSWER = struct.Struct("!IiQ")  # number, errno, value; then data
_PID = struct.Struct("!I")
_PLACE = struct.Struct("!II")
_HEADER = struct.Struct("!BI")


class Channel:
    """A rank's connection, with one open file."""

    __slots__ = ("link", "number", "waiting")

    def __init__(self, number: int) -> None:
        self.number = number
        self.link: Optional[Link] = None
        self.waiting: Deque[bytes] = deque()


class Application:
    """Forwards requests of this node's ranks and of lower nodes up, and answers down."""

    def __init__(self, launch: LaunchContext) -> None:
        self._launch = launch
        self.path = file_socket(launch.run, launch.node, launch.load.launcher)
        self._begin(listen(self.path))
        launch.loop.after(LOOK_S, self._look_at_socket)
        self._channels: Dict[int, Channel] = {}
        self._next = 0
        self._next_own = OWN
        self._asked: Dict[Tuple[int, int], Answer] = {}
        self._costs: Dict[Tuple[int, int], int] = {}
        self._under_way = 0
        self._window = max(SMALLEST, WINDOW // max(1, launch.load.nnodes))
        self._below: Dict[int, Child] = {}

    # Requests of ranks

    def _begin(self, sock: socket.socket) -> None:
        self._sock, self._file = sock, file_of(self.path)
        self._acceptor = Acceptor(self._launch.loop, sock, self._on_accept)

    def _look_at_socket(self) -> None:
        self._launch.loop.after(LOOK_S, self._look_at_socket)
        try:
            sock = listen_again(self.path, self._file)
        except (OSError, AgentError):
            return  # the directory does not exist yet
        if sock is not None:
            self._acceptor.finish()
            self._sock.close()
            self._begin(sock)

    def _on_accept(self, sock: socket.socket, _address: object) -> None:
        if peer(sock).uid in (0, os.geteuid()):
            self._welcome(sock)
        else:
            sock.close()

    def _welcome(self, sock: socket.socket) -> None:
        self._next += 1
        channel = self._channels[self._next] = Channel(self._next)
        channel.link = Link(
            self._launch.loop, sock,
            lambda _link, kind, payload: self._on_request(channel, kind, payload),
            lambda _link, _reason: self._on_gone(channel),
        )  # fmt: skip
        channel.link.on_drained = self._serve

    def _on_request(self, channel: Channel, kind: int, payload: bytes) -> None:
        if kind != FILE or len(payload) < REQUEST.size:
            raise WireError("no request for a file")
        if payload[0] == OUT_OF_MEMORY:
            self._answer_memory(channel, payload)
            return
        if payload[0] >= GONE and payload[0] != STATE:
            raise WireError("an operation that ranks do not have")
        if channel.waiting or not self._fits(channel, _cost(payload)):
            channel.waiting.append(payload)
            if channel.link is not None:
                channel.link.pause()
        else:
            self._send(channel.number, payload)

    def _answer_memory(self, channel: Channel, payload: bytes) -> None:
        if len(payload) != REQUEST.size + _PID.size:
            raise WireError("no question about a process")
        _, number, peak, itself = REQUEST.unpack_from(payload)
        (pid,) = _PID.unpack_from(payload, REQUEST.size)
        text = self._launch.out_of_memory(pid, peak, bool(itself)).encode()
        if channel.link is not None:
            head = _HEADER.pack(FILE, ANSWER.size + len(text)) + ANSWER.pack(number, 0, len(text))
            channel.link.send_parts(head, text)

    def _fits(self, channel: Channel, cost: int) -> bool:
        if channel.link is None or channel.link.out_bytes > UNREAD:
            return False
        return not cost or not self._under_way or self._under_way + cost <= self._window

    def _send(self, number: int, payload: bytes) -> None:
        cost = _cost(payload)
        if cost:
            self._costs[number, int.from_bytes(payload[1:5], "big")] = cost
            self._under_way += cost
        self._up(number, payload)

    def _up(self, number: int, payload: bytes) -> None:
        head = ROUTE.pack(FILE, _PLACE.size + len(payload), self._launch.load.place, number)
        self._launch.tree.up.send(head + payload)

    def _serve(self) -> None:
        """Send waiting requests, one of every channel in turn."""
        moved = True
        while moved:
            moved = False
            for channel in list(self._channels.values()):
                if channel.waiting and self._fits(channel, _cost(channel.waiting[0])):
                    self._send(channel.number, channel.waiting.popleft())
                    moved = True
                    if not channel.waiting and channel.link is not None:
                        channel.link.resume()

    def _on_gone(self, channel: Channel) -> None:
        self._channels.pop(channel.number, None)
        channel.waiting.clear()
        self._up(channel.number, REQUEST.pack(GONE, 0, 0, 0))

    # Messages in the tree

    def pass_up(self, payload: bytes) -> None:
        """A request from a lower node."""
        self._launch.tree.up.send(_HEADER.pack(FILE, len(payload)) + payload)

    def on_answer(self, payload: bytes) -> None:
        """An answer from the launcher, for us or for a lower node."""
        if len(payload) < _PLACE.size + ANSWER.size:
            raise WireError("no answer to a request for a file")
        place, number = _PLACE.unpack_from(payload)
        if place != self._launch.load.place:
            child = self._child(place)
            if child is not None and child.link is not None:
                child.link.send_parts(_HEADER.pack(FILE, len(payload)), payload)
            return
        body = memoryview(payload)[_PLACE.size :]
        asked, code, value = ANSWER.unpack_from(body)
        self._under_way -= self._costs.pop((number, asked), 0)
        if number >= OWN:
            then = self._asked.pop((number, asked), None)
            if then is not None:
                then(code, value, body[ANSWER.size :])
        elif number in self._channels:
            link = self._channels[number].link
            assert link is not None
            link.send_parts(_HEADER.pack(FILE, len(body)), body)
        self._serve()

    def _child(self, place: int) -> Optional[Child]:
        if not self._below:
            self._below = {at: child for child in self._launch.tree.children for at, _ in child.nodes}
        child = self._below.get(place)
        return None if child is None or child.over else child

    # Requests of the launch child

    @property
    def window(self) -> int:
        """The limit of data in transit for this node, in bytes."""
        return self._window

    def channel(self) -> int:
        """A new channel for the launch child."""
        self._next_own += 1
        return self._next_own

    def ask(self, channel: int, number: int, op: int, offset: int, length: int, data: bytes, then: Answer) -> None:
        """Send a request of the launch child; ``then(errno, value, data)`` follows."""
        self._asked[channel, number] = then
        self._up(channel, REQUEST.pack(op, number, offset, length) + data)

    def let_go(self, channel: int) -> None:
        """Release a channel of the launch child."""
        self._up(channel, REQUEST.pack(GONE, 0, 0, 0))

    def close(self) -> None:
        """Stop."""
        self._acceptor.close()
        self._sock.close()
        try:
            os.unlink(self.path)
        except OSError:
            pass


def _cost(payload: bytes) -> int:
    op, _, _, length = REQUEST.unpack_from(payload)
    return int(length) if op == READ_AT else len(payload) - REQUEST.size if op == WRITE_AT else 0

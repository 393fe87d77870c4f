"""One standard input shared by the ranks of many nodes: the first reader gets it.

The input goes into the pipe of the root's node. If nobody there reads for a moment, all nodes are asked whether one of
their ranks waits to read. The first node that answers gets a piece, and more as long as it is read; unread bytes come
back. So only one node at a time has some of it, no node keeps what it does not read, and the order of the bytes is
preserved.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time

from agents.link.lean import Enum, deque
from agents.link.loop import WRITE, Loop
from agents.wire.control import Message, to_bytes, to_text

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, Deque, Dict, Iterable, List, Optional, Protocol, Sequence, Set, Tuple, Union

    from agents.link.loop import Loop, Timer
    from agents.pct.stdio.stdin import Inputs

    class Subtree(Protocol):
        """The link to a child and the nodes below it."""

        over: bool
        nodes: List[Tuple[int, List[int]]]

        def has(self, place: int) -> bool: ...

        def send(self, message: Message) -> None: ...


# A pipe that the ranks of a node share as standard input, and whose unread bytes can be taken back. The kernel does not
# tell whether a process waits to read a pipe, only how much is unread.


#: Seconds between checks of the unread bytes: the first after a change, and the longest; and after which it counts as
#: stalled.
_LOOK_S, _LONGEST_PAUSE_S, STALL_S = 0.002, 1.0, 0.05
_GROWS = 1.6
_FIONREAD = 0x541B
_WAITS_TO_READ, _WAITS_FOR_EVENTS = ("pipe_read", "pipe_wait"), ("poll", "select")


class CountedPipe:
    """``on_taken(bytes)``: that many more have been read; ``on_stall()``: nobody has read for a while, called
    repeatedly."""

    def __init__(self, loop: Loop, on_taken: Callable[[int], None], on_stall: Callable[[], None]) -> None:
        self._loop, self._on_taken, self._on_stall = loop, on_taken, on_stall
        self.reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        # A file description of our own, because O_NONBLOCK on the ranks' would affect them too.
        self._own = os.open(f"/proc/self/fd/{self.reader}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._queue: Deque[memoryview] = deque()
        self._in_pipe = 0  # written, and not known to be read
        self._quiet_s = self._delay_s = 0.0
        self._timer: Optional[Timer] = None

    @property
    def empty(self) -> bool:
        """True if everything has been read."""
        return not self._queue and not self._in_pipe

    def give(self, data: bytes) -> None:
        """More bytes to read."""
        self._queue.append(memoryview(data))
        self._push()
        self._moved()

    def _push(self) -> None:
        try:
            while self._queue:
                count = os.write(self._writer, self._queue[0])
                self._in_pipe += count
                if count == len(self._queue[0]):
                    self._queue.popleft()
                else:
                    self._queue[0] = self._queue[0][count:]
        except BlockingIOError:
            self._loop.watch(self._writer, WRITE, self._on_writable)

    def _on_writable(self, _events: int) -> None:
        self._loop.unwatch(self._writer)
        self._count()
        self._push()

    def _unread(self) -> int:
        return int(struct.unpack("i", fcntl.ioctl(self._own, _FIONREAD, bytes(4)))[0])

    def _count(self) -> bool:
        taken = self._in_pipe - self._unread()
        if taken <= 0:
            return False
        self._in_pipe -= taken
        self._on_taken(taken)
        return True

    def _moved(self) -> None:
        self._quiet_s, self._delay_s = 0.0, _LOOK_S
        if self._timer is None and self._writer >= 0 and not self.empty:
            self._timer = self._loop.after(_LOOK_S, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._writer < 0 or self.empty:
            return
        if self._count():
            self._push()
            self._moved()
            return
        self._quiet_s += self._delay_s
        self._delay_s = min(self._delay_s * _GROWS, _LONGEST_PAUSE_S)
        if self._quiet_s >= STALL_S:
            self._on_stall()
        if self._writer >= 0 and not self.empty and self._timer is None:
            self._timer = self._loop.after(self._delay_s, self._look)

    @property
    def held(self) -> int:
        """The number of bytes not known to be read."""
        return self._in_pipe + sum(map(len, self._queue))

    def take_back(self) -> bytes:
        """Take back the unread bytes; ``on_taken`` is not called for bytes read meanwhile."""
        self._loop.unwatch(self._writer)
        parts, left = [], self._in_pipe
        try:
            # No more than we wrote: a rank that writes to its own input could go on for ever.
            while left and (data := os.read(self._own, left)):
                parts.append(data)
                left -= len(data)
        except BlockingIOError:
            pass  # that was all, or a rank has just read the rest
        parts += [bytes(data) for data in self._queue]
        self._in_pipe = 0
        self._queue.clear()
        return b"".join(parts)

    def end(self) -> None:
        """No more bytes will come: further reads return the end."""
        if self._writer >= 0:
            self._loop.unwatch(self._writer)
            os.close(self._writer)
            os.close(self._own)
            self._writer = self._own = -1


def reads(pids: Iterable[int]) -> int:
    """2 if one of these processes, or a thread of theirs, waits for a pipe; 1 if one polls, for this or something
    else.

    /proc/PID/wchan names the kernel function in which it sleeps; if that is hidden, assume that it may be reading.
    """
    found = 0
    for pid in pids:
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/wchan", "rb", buffering=0) as file:
                    where = file.read(64).decode("ascii", "replace")
                if any(word in where for word in _WAITS_TO_READ):
                    return 2
                if where == "0" or any(word in where for word in _WAITS_FOR_EVENTS):
                    found = 1
        except OSError:
            continue
    return found


PIECE = 64 << 10  # the capacity of a pipe
_POLLS_S = 0.02
#: The longest pause between two searches. A process that sleeps in a poll, or reads another pipe, seems to wait and
#: takes nothing: after all have been tried in vain, searches become rarer.
_LONGEST_S = 1.0


class State(Enum):
    """Where the input is."""

    HERE = "here"  # in the pipe of the root's node
    AWAY = "away"  # another node has a piece, or had the last one
    OVER = "over"


class Event(Enum):
    """An event of the input."""

    STALLED = "stalled"  # nobody on the root's node reads
    WAITS = "waits"  # a rank on another node waits to read
    TAKEN = "taken"  # that node's piece has been read completely
    RETURNED = "returned"  # that node's piece has not been read completely
    LOST = "lost"  # that node is lost
    EXHAUSTED = "exhausted"  # the input has ended, and every byte has been read


class Action(Enum):
    """An action."""

    LOOK = "look"  # ask the nodes
    FETCH_AND_DEAL = "fetch and deal"  # take the bytes from the pipe here and send them to the waiting node
    DEAL = "deal"
    KEEP = "keep"  # put the bytes into the pipe here
    END = "end"


S, E, A = State, Event, Action

#: All transitions. An event that a state does not list changes nothing.
TRANSITIONS: Dict[Tuple[State, Event], Tuple[State, Action]] = {
    (S.HERE, E.STALLED): (S.HERE, A.LOOK),
    (S.HERE, E.WAITS): (S.AWAY, A.FETCH_AND_DEAL),
    (S.HERE, E.EXHAUSTED): (S.OVER, A.END),
    (S.AWAY, E.TAKEN): (S.AWAY, A.DEAL),
    (S.AWAY, E.RETURNED): (S.HERE, A.KEEP),
    (S.AWAY, E.LOST): (S.HERE, A.KEEP),
    (S.AWAY, E.EXHAUSTED): (S.OVER, A.END),
}


def tell(children: Sequence[Subtree], message: Message, node: Optional[int]) -> None:
    """Send a message to all children, or to the child with ``node`` in its subtree."""
    for child in children:
        if not child.over and (node is None or child.has(node)):
            child.send(message)


class InputDistributor:
    """The root's part. ``here`` is its own node's pipe; ``taken`` counts what has been read anywhere."""

    def __init__(self, loop: Loop, children: Sequence[Subtree], on_taken: Callable[[], None]) -> None:
        self.state = State.HERE
        self._on_taken = on_taken
        self.taken = 0
        self.gone = self._ending = False
        self.pipe = CountedPipe(loop, self._read, lambda: self._handle(Event.STALLED))
        self._children = children
        self._pending = b""  # input that arrived while another node has a piece
        self._holder, self._piece = -1, 0  # the index of the node with a piece, and the piece
        self._refused: Set[int] = set()  # nodes that seemed to wait and did not read
        self._all_refused = False  # True if the last search found no other node
        self._pause_s = self._not_before = 0.0

    def give(self, data: bytes) -> None:
        """More input."""
        if self.state is State.HERE:
            self.pipe.give(data)
        elif self.state is State.AWAY:
            self._pending += data
            if not self._piece:
                self._deal()

    def end(self) -> None:
        """No more input will come."""
        self._ending = True
        self._settle()

    def drop(self) -> None:
        """Nobody reads any more."""
        if not self.gone:
            self.pipe.end()
            self.gone = True
            self._on_taken()

    def waits(self, node: int) -> None:
        """A rank on that node waits to read."""
        if self.state is State.HERE and not self.pipe.empty:
            if node in self._refused:
                self._all_refused = True
                return
            self._all_refused = False
            self._holder = node
            self._handle(Event.WAITS)

    def on_message(self, message: Message) -> None:
        """Handle ``reader_waits`` or ``input_rest``."""
        if message["op"] == "reader_waits":
            self.waits(message["node"])
        else:
            self.dealt(message["node"], to_bytes(message["data"]))

    def dealt(self, node: int, rest: bytes) -> None:
        """That node's ranks have read their piece except ``rest``."""
        if node != self._holder or self.state is not State.AWAY:
            return
        taken, self._piece = self._piece - len(rest), 0
        self._pending = rest + self._pending
        if rest:
            self._refused.add(node)
        self._read(taken)
        self._handle(Event.RETURNED if rest else Event.TAKEN)

    def lost(self, nodes: List[int]) -> None:
        """These nodes are lost, with their input."""
        if self.state is State.AWAY and self._holder in nodes:
            taken, self._piece = self._piece, 0
            self._read(taken)
            self._handle(Event.LOST)

    def _read(self, count: int) -> None:
        if count > 0:
            self._refused.clear()
            self._all_refused, self._pause_s, self._not_before = False, 0.0, 0.0
            self.taken += count
            self._on_taken()
        self._settle()

    def _settle(self) -> None:
        here = self.state is State.HERE and self.pipe.empty
        away = self.state is State.AWAY and not self._piece and not self._pending
        if self._ending and (here or away):
            self._handle(Event.EXHAUSTED)

    def _handle(self, event: Event) -> None:
        entry = TRANSITIONS.get((self.state, event))
        if entry is not None:
            self.state, action = entry
            self._DO[action](self)

    def _look(self) -> None:
        now = time.monotonic()
        if now < self._not_before:
            return
        if self._all_refused:  # try all again, because they may read by now
            self._refused.clear()
            self._all_refused, self._pause_s = False, min(_LONGEST_S, 2 * self._pause_s or STALL_S)
        self._not_before = now + self._pause_s
        self._tell({"op": "seek_reader"}, None)

    def _fetch_and_deal(self) -> None:
        held = self.pipe.held
        self._pending = self.pipe.take_back()
        self._read(held - len(self._pending))
        if not self._piece:
            self._deal()

    def _deal(self) -> None:
        piece, self._pending = self._pending[:PIECE], self._pending[PIECE:]
        self._piece = len(piece)
        if piece:
            self._tell({"op": "input_piece", "node": self._holder, "data": to_text(piece)}, self._holder)
        else:
            self._settle()

    def _keep(self) -> None:
        pending, self._pending, self._holder = self._pending, b"", -1
        if pending:
            self.pipe.give(pending)
        self._settle()

    def _end(self) -> None:
        self._tell({"op": "eof"}, None)
        self.drop()

    def _tell(self, message: Message, node: Optional[int]) -> None:
        tell(self._children, message, node)

    _DO = {A.LOOK: _look, A.FETCH_AND_DEAL: _fetch_and_deal, A.DEAL: _deal, A.KEEP: _keep, A.END: _end}


class InputConsumer:
    """Another node's part: it has input only after a piece was sent to it. ``up(message)`` sends up the tree."""

    def __init__(
        self, loop: Loop, place: int, children: Sequence[Subtree], up: Callable[[Message], None],
        on_taken: Callable[[], None],
    ) -> None:  # fmt: skip
        self._on_taken = on_taken
        self.taken = 0
        self.gone = False
        self._loop, self._place, self._children, self._up = loop, place, children, up
        self.pipe = CountedPipe(loop, self._read, self._return)

    def give(self, data: bytes) -> None:
        """A piece for the local ranks."""
        self.pipe.give(data)

    def end(self) -> None:
        """No more input will come."""
        tell(self._children, {"op": "eof"}, None)
        self.drop()

    def drop(self) -> None:
        """No local rank reads any more."""
        if not self.gone:
            self.pipe.end()
            self.gone = True
            self._on_taken()

    def on_order(self, message: Message, pids: Callable[[], List[int]]) -> None:
        """Handle ``seek_reader`` or ``input_piece``, which may be for this node."""
        if message["op"] == "seek_reader":
            tell(self._children, message, None)
            surely = 0 if self.gone else reads(pids())
            if surely:
                # Nodes that only poll answer later than those that read.
                self._loop.after(
                    0 if surely > 1 else _POLLS_S, lambda: self._up({"op": "reader_waits", "node": self._place})
                )
        elif message["node"] != self._place:
            tell(self._children, message, message["node"])
        elif self.gone:
            self._answer(message["data"])
        else:
            self.give(to_bytes(message["data"]))

    def give_up(self) -> None:
        """Nobody here or below reads any more: send back what is left."""
        if not self.gone:
            self._return()
            self.drop()

    def _read(self, _count: int) -> None:
        if self.pipe.empty:
            self._answer("")

    def _return(self) -> None:
        rest = self.pipe.take_back()
        if rest:
            self._answer(to_text(rest))

    def _answer(self, rest: str) -> None:
        self._up({"op": "input_rest", "node": self._place, "data": rest})


class Sharing:
    """A launch child's part of a shared standard input; does nothing on one node, or with another kind of input.

    ``up(message)`` sends up the tree; ``pids()`` gives all processes of local ranks.
    """

    def __init__(
        self, inputs: Inputs, children: Sequence[Subtree], up: Callable[[Message], None], pids: Callable[[], List[int]]
    ) -> None:
        self._inputs, self._children, self._up, self._pids = inputs, children, up, pids
        self._made: Union[InputDistributor, InputConsumer, None] = None

    def begin(self, loop: Loop, place: int, is_root: bool) -> int:
        """The read end of a pipe for the standard input of all ranks here, on the ``place``-th node."""
        settle = self._inputs.settle
        if is_root:
            self._made = InputDistributor(loop, self._children, settle)
        else:
            self._made = InputConsumer(loop, place, self._children, self._up, settle)
        self._inputs.add(self._made)
        return self._made.pipe.reader

    def orders(self) -> Dict[str, Callable[[Message], None]]:
        return {"seek_reader": self._on_order, "input_piece": self._on_order}

    def reports(self) -> Dict[str, Callable[[Subtree, Message], None]]:
        return {"reader_waits": self._on_report, "input_rest": self._on_report}

    def _on_order(self, message: Message) -> None:
        if isinstance(self._made, InputConsumer):
            self._made.on_order(message, self._pids)

    def _on_report(self, _child: Subtree, message: Message) -> None:
        if isinstance(self._made, InputDistributor):
            self._made.on_message(message)
        else:
            self._up(message)

    def gone(self, child: Subtree) -> None:
        """Nobody below that child reads any more."""
        if isinstance(self._made, InputDistributor):
            self._made.lost([place for place, _ in child.nodes])

    def give_up(self) -> None:
        """Nobody here or below reads any more."""
        if isinstance(self._made, InputConsumer):
            self._made.give_up()

"""One standard input for the ranks of many nodes: who reads first gets it.

It goes into the pipe of the root's node. When nobody there reads for a moment, the nodes are asked whether somebody
of theirs waits to read; the first that answers gets a piece, and more as long as it takes them; what it does not take
comes back. So one node at a time has some of it, nobody keeps what he does not read, and the order of the bytes holds.
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
        """The link to a child and the nodes below it, as its launch child knows it."""

        over: bool
        nodes: List[Tuple[int, List[int]]]

        def has(self, place: int) -> bool: ...

        def send(self, message: Message) -> None: ...


# A pipe that the ranks of one node share as their standard input, whose unread bytes can be taken back.
#
# Nobody can ask a pipe whether somebody wants to read from it; how much of it is unread, the kernel tells.


#: Seconds between two looks at what is unread, the first after it moved and the longest; until it counts as stalled.
_LOOK_S, _LONGEST_PAUSE_S, STALL_S = 0.002, 1.0, 0.05
_GROWS = 1.6
_FIONREAD = 0x541B
_WAITS_TO_READ, _WAITS_FOR_EVENTS = ("pipe_read", "pipe_wait"), ("poll", "select")


class CountedPipe:
    """``on_taken(bytes)``: so many more have been read; ``on_stall()``: nobody has for a while; again and again."""

    def __init__(self, loop: Loop, on_taken: Callable[[int], None], on_stall: Callable[[], None]) -> None:
        self._loop, self._on_taken, self._on_stall = loop, on_taken, on_stall
        self.reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        # A description of our own: O_NONBLOCK on the ranks' would be theirs too.
        self._own = os.open(f"/proc/self/fd/{self.reader}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._queue: Deque[memoryview] = deque()
        self._in_pipe = 0  # written, and not known to be read
        self._quiet_s = self._delay_s = 0.0
        self._timer: Optional[Timer] = None

    @property
    def empty(self) -> bool:
        """Whether everything given has been read."""
        return not self._queue and not self._in_pipe

    def give(self, data: bytes) -> None:
        """More to read."""
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
        """Bytes given and not known to be read."""
        return self._in_pipe + sum(map(len, self._queue))

    def take_back(self) -> bytes:
        """What nobody has read; ``on_taken`` is not told of the rest of what was held."""
        self._loop.unwatch(self._writer)
        parts = []
        try:
            while self._in_pipe and (data := os.read(self._own, self._in_pipe)):
                parts.append(data)
        except BlockingIOError:
            pass  # that was all, or a rank was quicker with the last of it
        parts += [bytes(data) for data in self._queue]
        self._in_pipe = 0
        self._queue.clear()
        return b"".join(parts)

    def end(self) -> None:
        """Nothing more comes: who reads on reads an end."""
        if self._writer >= 0:
            self._loop.unwatch(self._writer)
            os.close(self._writer)
            os.close(self._own)
            self._writer = self._own = -1


def reads(pids: Iterable[int]) -> int:
    """2 when one of these processes, or a thread of its, waits for a pipe; 1 when it polls, for this or something else.

    /proc/PID/wchan names the function of the kernel in which it sleeps; where that is hidden, it may be reading too.
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


PIECE = 64 << 10  # what an empty pipe holds
_POLLS_S = 0.02
#: Between two looks at most. Who sleeps in a poll or reads a pipe of his own seems to wait and takes nothing: when all
#: have been tried in vain, looks become rarer, for nobody may ever read.
_LONGEST_S = 1.0


class State(Enum):
    """Where the input is."""

    HERE = "here"  # in the pipe of the root's node
    AWAY = "away"  # another node has a piece of it, or had the last one
    OVER = "over"


class Event(Enum):
    """What can happen to it."""

    STALLED = "stalled"  # nobody here reads
    WAITS = "waits"  # somebody there would
    TAKEN = "taken"  # all of the piece there has been read
    RETURNED = "returned"  # not all of it
    LOST = "lost"  # that node is gone
    EXHAUSTED = "exhausted"  # it has ended, and every byte of it has been read


class Action(Enum):
    """What is to be done."""

    LOOK = "look"  # ask the nodes
    FETCH_AND_DEAL = "fetch and deal"  # out of the pipe here, to the node that waits
    DEAL = "deal"
    KEEP = "keep"  # into the pipe here
    END = "end"


S, E, A = State, Event, Action

#: Every transition there is. An event that a state does not name changes nothing.
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
    """A message for all children, or for the one that has ``node`` below it."""
    for child in children:
        if not child.over and (node is None or child.has(node)):
            child.send(message)


class InputDistributor:
    """The root's. ``here`` is its own node's pipe; ``taken`` counts what has been read, anywhere."""

    def __init__(self, loop: Loop, children: Sequence[Subtree], on_taken: Callable[[], None]) -> None:
        self.state = State.HERE
        self._on_taken = on_taken
        self.taken = 0
        self.gone = self._ending = False
        self.pipe = CountedPipe(loop, self._read, lambda: self._handle(Event.STALLED))
        self._children = children
        self._pending = b""  # while it is away: what has come and was not dealt
        self._holder, self._piece = -1, 0  # the node that has a piece, by its index, and the piece's bytes
        self._refused: Set[int] = set()  # nodes that seemed to wait and did not take
        self._all_refused = False  # nobody else has answered the last look
        self._pause_s = self._not_before = 0.0

    def give(self, data: bytes) -> None:
        """More bytes for whoever reads first."""
        if self.state is State.HERE:
            self.pipe.give(data)
        elif self.state is State.AWAY:
            self._pending += data
            if not self._piece:
                self._deal()

    def end(self) -> None:
        """No more bytes will come."""
        self._ending = True
        self._settle()

    def drop(self) -> None:
        """Nobody reads any more."""
        if not self.gone:
            self.pipe.end()
            self.gone = True
            self._on_taken()

    def waits(self, node: int) -> None:
        """Somebody on that node would read."""
        if self.state is State.HERE and not self.pipe.empty:
            if node in self._refused:
                self._all_refused = True
                return
            self._all_refused = False
            self._holder = node
            self._handle(Event.WAITS)

    def on_message(self, message: Message) -> None:
        """``reader_waits`` or ``input_rest``."""
        if message["op"] == "reader_waits":
            self.waits(message["node"])
        else:
            self.dealt(message["node"], to_bytes(message["data"]))

    def dealt(self, node: int, rest: bytes) -> None:
        """That node's ranks have read their piece, but for ``rest``."""
        if node != self._holder or self.state is not State.AWAY:
            return
        taken, self._piece = self._piece - len(rest), 0
        self._pending = rest + self._pending
        if rest:
            self._refused.add(node)
        self._read(taken)
        self._handle(Event.RETURNED if rest else Event.TAKEN)

    def lost(self, nodes: List[int]) -> None:
        """These nodes are gone, with what they had."""
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
        if self._all_refused:  # from the first again, for by now they may read
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
    """Another node's: it has a piece only when it was dealt one. ``up(message)`` goes up the tree."""

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
        """A piece for the ranks here."""
        self.pipe.give(data)

    def end(self) -> None:
        """No more bytes will come."""
        tell(self._children, {"op": "eof"}, None)
        self.drop()

    def drop(self) -> None:
        """Nobody here reads any more."""
        if not self.gone:
            self.pipe.end()
            self.gone = True
            self._on_taken()

    def on_order(self, message: Message, pids: Callable[[], List[int]]) -> None:
        """``seek_reader`` or ``input_piece``, which may be for this node."""
        if message["op"] == "seek_reader":
            tell(self._children, message, None)
            surely = 0 if self.gone else reads(pids())
            if surely:
                # who merely polls lets those go first who read
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
        """Nobody here or below reads any more: what is left goes back."""
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
    """A launch child's part in it; nothing at all on one node, or when somebody else reads than whoever comes first.

    ``up(message)`` goes up the tree; ``pids()`` is every process of a rank here.
    """

    def __init__(
        self, inputs: Inputs, children: Sequence[Subtree], up: Callable[[Message], None], pids: Callable[[], List[int]]
    ) -> None:
        self._inputs, self._children, self._up, self._pids = inputs, children, up, pids
        self._made: Union[InputDistributor, InputConsumer, None] = None

    def begin(self, loop: Loop, place: int, is_root: bool) -> int:
        """The end of a pipe that all ranks here, on the ``place``-th node, get as their standard input."""
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

"""A link: a stream socket under a loop that sends and receives frames without blocking."""

from __future__ import annotations

from agents.link.lean import deque
from agents.link.loop import BROKEN, READ, WRITE, Loop
from agents.wire.control import Message, control, decode
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import CONTROL, Decoder, Frame
from agents.wire.messages import check_hello, hello

TYPE_CHECKING = False  # importing typing would cost every yod 3 ms
if TYPE_CHECKING:
    import socket
    from typing import Any, Callable, Deque, Dict, List, Optional, Union

    Buffer = Union[bytes, memoryview]
else:
    Buffer = bytes

CHUNK = 256 << 10
#: The most bytes that a process keeps for peers which have not taken the last data of a closed connection, and the
#: most such connections; then the oldest of the user with most are closed. There is no limit in seconds: a stopped peer
#: takes its data when it continues, and the kernel reports one that has exited (over TCP, also a host that answers
#: nothing for 9 s: tcp.py).
CLOSING_BYTES, CLOSING_LINKS = 32 << 20, 256


class Link:
    """Sends and receives frames over ``sock``, which it owns.

    ``on_frame(link, kind, payload)`` is called for every frame, ``on_end(link, reason)`` once, when the peer has
    disconnected or sent an invalid frame; never after :meth:`close` without ``flush``.
    """

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        on_frame: "Callable[[Link, int, bytes], None]",
        on_end: "Callable[[Link, str], None]",
        *,
        limit: Optional[int] = None,
    ) -> None:
        sock.setblocking(False)
        self.loop = loop
        self.sock: Optional[socket.socket] = sock
        self._fd = sock.fileno()
        self._on_frame = on_frame
        self._on_end = on_end
        self._decoder = Decoder() if limit is None else Decoder(limit)
        self._out: Deque[memoryview] = deque()
        self.out_bytes = 0  # bytes that wait to be sent
        self._reading = True
        self._parked = False
        self.hung_up = False  # the peer has closed its end; earlier data may still be unread
        #: In a daemon with many users: arriving frames wait for their user's turn (agents/link/user_limits.py).
        self.intake: Optional[Any] = None
        #: In a daemon with many users: the uid of the user whose data this is.
        self.owner: Optional[int] = None
        self._closing = False
        self._on_closed: Optional[Callable[[], None]] = None
        #: A connection to another machine, until its handshake is over.
        self._shaking: Optional[Any] = sock if getattr(sock, "shaking", False) else None
        self.failure: Optional[OSError] = None  # the failure of that handshake
        self._deaf = False  # the peer accepts no more data; earlier data of the peer may still be unread
        full_window = getattr(sock, "full_window", None)  # over TCP alone
        self._window: Optional[Any] = full_window(loop, self.end) if full_window is not None else None
        self.on_drained: Optional[Callable[[], None]] = None  # called when nothing waits to be sent any more
        self._watch()
        if getattr(sock, "pending", False):
            loop.after(0, self._read_pending)  # data that arrived earlier causes no event

    def send(self, message: Message) -> None:
        """Send a control message, now or as soon as the socket accepts it."""
        self.send_raw(control(message))

    def send_raw(self, data: bytes) -> None:
        """Send whole frames as bytes, now or as soon as the socket accepts them."""
        self.send_parts(data)

    def send_parts(self, *parts: Buffer) -> None:
        """Send parts that form whole frames, without joining them first."""
        if self.sock is None or self._closing or self._deaf:
            return
        sent = 0
        if not self._out:
            try:
                sent = self.sock.sendmsg(parts)
            except BlockingIOError:
                pass
            except OSError:
                self._turn_deaf()
                return
        if self._window is not None:
            self._window.sent()
        for part in parts:
            if sent >= len(part):
                sent -= len(part)
                continue
            view = memoryview(part)[sent:]
            sent = 0
            self._out.append(view)
            self.out_bytes += len(view)
        if self._out:
            self._watch()

    def _turn_deaf(self) -> None:
        # A peer that exits may have sent data before: read it first, then report the end from the loop.
        self._deaf = True
        self._out.clear()
        self.out_bytes = 0
        if self._closing:
            self.close()
            return
        self._watch()

    @property
    def silent_s(self) -> float:
        """Seconds since the peer's kernel was last heard; 0 on a Unix socket, where a disconnect is noticed at once."""
        silent_s: float = getattr(self.sock, "silent_s", 0.0)
        return silent_s

    @property
    def delivered(self) -> int:
        """Bytes that the peer's kernel has acknowledged while more are in transit; -1 if none are, or on a Unix
        socket."""
        delivered: int = getattr(self.sock, "delivered", -1)
        return delivered

    def pause(self) -> None:
        """Stop reading: the peer is blocked once the socket's buffers are full."""
        self._reading = False
        self._watch()

    def resume(self) -> None:
        """Read again."""
        self._reading = True
        self._read_on()
        if self.intake is not None:
            self.intake.on_resumed()

    @property
    def paused(self) -> bool:
        """True between :meth:`pause` and :meth:`resume`."""
        return not self._reading

    def park(self, *, parked: bool) -> None:
        """Stop reading until the turn of this link's user comes, independently of :meth:`pause`; or continue."""
        self._parked = parked
        if not parked:
            self._read_on()
        else:
            self._watch()

    def _read_on(self) -> None:
        self._watch()
        if getattr(self.sock, "pending", False):
            self.loop.after(0, self._read_pending)

    @property
    def _reads(self) -> bool:
        return self._reading and not self._parked

    def limit_frames(self, limit: int, larger: Dict[str, int]) -> None:
        """Refuse longer control frames from now on, except those whose first member is an ``op`` in ``larger``."""
        self._decoder.limit(limit, larger)

    @property
    def unfinished(self) -> int:
        """Buffered bytes of an incomplete frame."""
        return self._decoder.pending

    @property
    def missing(self) -> int:
        """How many bytes that frame still lacks, if known."""
        return self._decoder.missing

    def close(self, *, flush: bool = False, then: Optional[Callable[[], None]] = None) -> None:
        """Close the socket; with ``flush``, first send what waits, and then call ``then``: at once if nothing does, or
        when the peer has taken it or is gone (see CLOSING_BYTES)."""
        if self.sock is None:
            return
        if flush and self._out:
            self._closing, self._on_closed = True, then or self._on_closed
            self.loop.closing[self] = None
            _bound(self.loop)
            return
        self.loop.closing.pop(self, None)
        closed, self._on_closed = self._on_closed or then, None
        self.loop.unwatch(self._fd)
        self.sock.close()
        self.sock = None
        self._out.clear()
        self._decoder.clear()
        # No reference cycles remain: a daemon with a thousand connections a minute would keep megabytes of closed ones
        # until the garbage collector runs.
        self._on_frame, self._on_end = _ignore_frame, _ignore_end
        self.intake = self.on_drained = None
        if self._window is not None:
            self._window.close()
            self._window = None
        if closed is not None:
            closed()

    def _watch(self) -> None:
        if self.sock is not None:
            mask = (READ if self._reads else 0) | (WRITE if self._out else 0)
            if self._shaking is not None:
                mask = self._shaking.wants
            self.loop.watch(self._fd, mask, self._on_ready)

    def _on_ready(self, events: int) -> None:
        if self._shaking is not None:
            self._shake()
            return
        # After a disconnect of the peer, the kernel need not report WRITE (shutdown(SHUT_RDWR), or a close that has not
        # freed the peer's buffer yet): the attempt shows that the data can't be sent any more.
        if events & WRITE or (events & BROKEN and self._out):
            self._write()
        if events & BROKEN:
            self.hung_up = True
        if self.sock is not None and (events & READ or (events & BROKEN and self._reads)):
            self._read()
        elif self.sock is not None and events & BROKEN and not self._reads:
            self.loop.unwatch(self._fd)  # resume() reads the remaining data, then the end

    def _shake(self) -> None:
        assert self._shaking is not None
        try:
            self._shaking.shake()
        except BlockingIOError:
            self._watch()
        except OSError as error:
            self.failure = error
            self.end(error.strerror or str(error))
        else:
            self._shaking = None
            if self._out:
                self._write()
            self._watch()
            self._read_pending()

    def _read_pending(self) -> None:
        if self.sock is not None and self._reads and getattr(self.sock, "pending", False):
            self._read()

    def _write(self) -> None:
        assert self.sock is not None
        try:
            while self._out:
                sent = self.sock.sendmsg(list(self._out)[:64] if len(self._out) > 1 else [self._out[0]])
                if self._window is not None:
                    self._window.sent()
                self.out_bytes -= sent
                while sent and sent >= len(self._out[0]):
                    sent -= len(self._out.popleft())
                if sent:
                    self._out[0] = self._out[0][sent:]
        except BlockingIOError:
            return
        except OSError:
            self._turn_deaf()  # an owner that paused because of the waiting data reads on, to the end
        if self.sock is None:
            return
        if self._closing:
            self.close()
            return
        self._watch()
        if self.on_drained is not None:
            self.on_drained()
        if self.intake is not None:
            self.intake.on_drained()

    def _read(self) -> None:
        if self.intake is not None:
            self.intake.on_readable()
        else:
            self.deliver(self.receive(CHUNK))

    def receive(self, most: int) -> List[Frame]:
        """Read at most ``most`` bytes; returns complete frames. The link may end."""
        assert self.sock is not None
        try:
            data = self.sock.recv(most)
        except BlockingIOError:
            return []
        except OSError as error:
            self.end(error.strerror or str(error))
            return []
        if not data:
            self.end("the connection ended")
            return []
        try:
            return self._decoder.feed(data)
        except WireError as error:
            self.end(error.message)
            return []

    def deliver(self, frames: List[Frame]) -> None:
        """Pass frames to the owner until the link ends."""
        try:
            for at, (kind, payload) in enumerate(frames):
                if at and self.intake is not None:  # the first frame determined the user of the following requests
                    self.intake.take(frames[at:])
                    return
                self._on_frame(self, kind, payload)
                if self.sock is None:
                    return
        except WireError as error:
            self.end(error.message)

    def end(self, reason: str) -> None:
        """Close the connection as if the peer had done so, and tell the owner."""
        if self.sock is not None:
            on_end = self._on_end
            self.close()
            on_end(self, reason)


def _bound(loop: Loop) -> None:
    """Close connections whose peers have not taken the last data, if they are too many: each time the oldest of the
    user with most, so that no user's answers are lost because another user leaves some unread."""
    while len(loop.closing) > CLOSING_LINKS:
        _oldest_of_most(loop, lambda _link: 1).close()
    while sum(link.out_bytes for link in loop.closing) > CLOSING_BYTES:
        _oldest_of_most(loop, lambda link: link.out_bytes).close()


def _oldest_of_most(loop: Loop, weight: Callable[[Link], int]) -> Link:
    weights: Dict[Optional[int], int] = {}
    for link in loop.closing:
        weights[link.owner] = weights.get(link.owner, 0) + weight(link)
    most = max(weights, key=lambda owner: weights[owner])
    oldest: Link = next(link for link in loop.closing if link.owner == most)
    return oldest


def _ignore_frame(_link: Link, _kind: int, _payload: bytes) -> None:
    pass


def _ignore_end(_link: Link, _reason: str) -> None:
    pass


class Caller:
    """The client's side of requests and replies over a link: says hello, numbers requests, dispatches replies."""

    def __init__(self, loop: Loop, sock: socket.socket, role: str, on_end: "Callable[[Caller, str], None]") -> None:
        self._waiting: Dict[int, Callable[[Optional[Message], Optional[AgentError]], None]] = {}
        self._next = 0
        self._greeted = False
        self._on_end = on_end
        self.refusal: Optional[AgentError] = None  # the reason why the daemon refuses this connection
        self.on_notice: Callable[[str], None] = lambda text: None  # called with notices to a waiting request
        self.link = Link(loop, sock, self._on_frame, self._on_link_end)
        self.link.send(hello(role))

    def call(self, message: Message, then: Callable[[Optional[Message], Optional[AgentError]], None]) -> None:
        """Send a request; ``then(reply, None)`` or ``then(None, error)`` follows, also if the link ends."""
        self._next += 1
        self._waiting[self._next] = then
        self.link.send(dict(message, id=self._next))

    def tell(self, message: Message) -> None:
        """Send a message that has no reply."""
        self.link.send(message)

    def close(self) -> None:
        """Close the link; waiting calls are dropped."""
        self._waiting.clear()
        self.link.close()

    def _on_frame(self, _link: Link, kind: int, payload: bytes) -> None:
        if kind != CONTROL:
            raise WireError(f"a frame of kind {kind} where a reply was expected")
        message = decode(payload)
        if not self._greeted:
            check_hello(message)
            self._greeted = True
            return
        if message.get("re") == 0 and "error" in message:
            self.refusal = AgentError.from_message(message["error"])
            raise WireError(self.refusal.message)
        notice = message.get("notice")
        if isinstance(notice, str):
            self.on_notice(notice)
            return
        take_reply(self._waiting, message)

    def _on_link_end(self, _link: Link, reason: str) -> None:
        waiting, self._waiting = self._waiting, {}
        for then in waiting.values():
            then(None, AgentError(reason, code="gone"))
        self._on_end(self, reason)


def take_reply(
    waiting: Dict[int, Callable[[Optional[Message], Optional[AgentError]], None]], message: Dict[str, Any]
) -> None:
    """Pass a reply to the call that waits for it. Raises WireError for a reply to no request."""
    number = message.get("re")
    then = waiting.pop(number, None) if isinstance(number, int) else None
    if then is None:
        raise WireError("a reply to no request of ours")
    if "error" in message:
        then(None, AgentError.from_message(message["error"]))
    else:
        then(message, None)

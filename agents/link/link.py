"""A link: one stream socket under a loop, frames in, frames out, nothing ever blocking."""

from __future__ import annotations

from agents.link.lean import deque
from agents.link.loop import BROKEN, READ, WRITE, Loop
from agents.wire.control import Message, control, decode
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import CONTROL, Decoder
from agents.wire.messages import check_hello, hello

TYPE_CHECKING = False  # typing itself is not loaded: it would cost every yod 3 ms
if TYPE_CHECKING:
    import socket
    from typing import Any, Callable, Deque, Dict, Optional, Union

    Buffer = Union[bytes, memoryview]
else:
    Buffer = bytes

CHUNK = 256 << 10


class Link:
    """Frames over ``sock``, which it owns from now on.

    ``on_frame(link, kind, payload)`` is called for every frame, ``on_end(link, reason)`` once, when the
    peer has gone or sent what is no frame; never after :meth:`close`.
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
        self.out_bytes = 0  # what waits to be sent
        self._reading = True
        self._closing = False
        #: A connection to another machine, until its handshake is over.
        self._shaking: Optional[Any] = sock if getattr(sock, "shaking", False) else None
        self.failure: Optional[OSError] = None  # of that handshake
        self._deaf = False  # the peer takes nothing any more; what it sent is still to be read
        self.on_drained: Optional[Callable[[], None]] = None  # called when everything that waited has been sent
        self._watch()
        if getattr(sock, "pending", False):
            loop.after(0, self._read_pending)  # what came before us: no event will tell

    def send(self, message: Message) -> None:
        """A control message, now or as soon as the socket takes it."""
        self.send_raw(control(message))

    def send_raw(self, data: bytes) -> None:
        """Whole frames as bytes, now or as soon as the socket takes them."""
        self.send_parts(data)

    def send_parts(self, *parts: Buffer) -> None:
        """Bytes that make up whole frames, without copying them together first."""
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
        # A peer that ends may have sent its last words before: they are read, then the end is told from the loop.
        self._deaf = True
        self._out.clear()
        self.out_bytes = 0
        if self._closing:
            self.close()
        else:
            self._watch()

    @property
    def silent_s(self) -> float:
        """For how long nothing has come from the other end's kernel; 0 on a Unix socket, whose end is known at once."""
        silent_s: float = getattr(self.sock, "silent_s", 0.0)
        return silent_s

    def pause(self) -> None:
        """Stop reading: the peer will feel it when the socket's buffers are full."""
        self._reading = False
        self._watch()

    def resume(self) -> None:
        """Read again."""
        self._reading = True
        self._watch()
        if getattr(self.sock, "pending", False):
            self.loop.after(0, self._read_pending)

    def close(self, *, flush: bool = False) -> None:
        """Let go of the socket; with ``flush`` what waits is sent first."""
        if self.sock is None:
            return
        if flush and self._out:
            self._closing = True
            return
        self.loop.unwatch(self._fd)
        self.sock.close()
        self.sock = None
        self._out.clear()

    def _watch(self) -> None:
        if self.sock is not None:
            mask = (READ if self._reading else 0) | (WRITE if self._out else 0)
            if self._shaking is not None:
                mask = self._shaking.wants
            self.loop.watch(self._fd, mask, self._on_ready)

    def _on_ready(self, events: int) -> None:
        if self._shaking is not None:
            self._shake()
            return
        if events & WRITE:
            self._write()
        if self.sock is not None and (events & READ or (events & BROKEN and self._reading)):
            self._read()
        elif self.sock is not None and events & BROKEN and not self._reading:
            self.loop.unwatch(self._fd)  # resume() finds what is left, then the end

    def _shake(self) -> None:
        assert self._shaking is not None
        try:
            self._shaking.shake()
        except BlockingIOError:
            self._watch()
        except OSError as error:
            self.failure = error
            self._end(error.strerror or str(error))
        else:
            self._shaking = None
            if self._out:
                self._write()
            self._watch()
            self._read_pending()

    def _read_pending(self) -> None:
        if self.sock is not None and self._reading and getattr(self.sock, "pending", False):
            self._read()

    def _write(self) -> None:
        assert self.sock is not None
        try:
            while self._out:
                sent = self.sock.sendmsg(list(self._out)[:64] if len(self._out) > 1 else [self._out[0]])
                self.out_bytes -= sent
                while sent and sent >= len(self._out[0]):
                    sent -= len(self._out.popleft())
                if sent:
                    self._out[0] = self._out[0][sent:]
        except BlockingIOError:
            return
        except OSError:
            self._turn_deaf()
            return
        if self._closing:
            self.close()
            return
        self._watch()
        if self.on_drained is not None:
            self.on_drained()

    def _read(self) -> None:
        assert self.sock is not None
        try:
            data = self.sock.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error.strerror or str(error))
            return
        if not data:
            self._end("the connection ended")
            return
        try:
            for kind, payload in self._decoder.feed(data):
                self._on_frame(self, kind, payload)
                if self.sock is None:
                    return
        except WireError as error:
            self._end(error.message)

    def _end(self, reason: str) -> None:
        if self.sock is not None:
            self.close()
            self._on_end(self, reason)


class Caller:
    """The client's side of request and reply over a link: says hello, numbers requests, hands out replies."""

    def __init__(self, loop: Loop, sock: socket.socket, role: str, on_end: "Callable[[Caller, str], None]") -> None:
        self._waiting: Dict[int, Callable[[Optional[Message], Optional[AgentError]], None]] = {}
        self._next = 0
        self._greeted = False
        self._on_end = on_end
        self.on_notice: Callable[[str], None] = lambda text: None  # what a request that waits is told meanwhile
        self.link = Link(loop, sock, self._on_frame, self._on_link_end)
        self.link.send(hello(role))

    def call(self, message: Message, then: Callable[[Optional[Message], Optional[AgentError]], None]) -> None:
        """Send a request; ``then(reply, None)`` or ``then(None, error)`` follows, the latter too when the link ends."""
        self._next += 1
        self._waiting[self._next] = then
        self.link.send(dict(message, id=self._next))

    def tell(self, message: Message) -> None:
        """Send what has no reply."""
        self.link.send(message)

    def close(self) -> None:
        """Let go of the link; calls that wait are forgotten."""
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
    """Hand a reply to whoever waits for it. WireError for a reply to nothing."""
    number = message.get("re")
    then = waiting.pop(number, None) if isinstance(number, int) else None
    if then is None:
        raise WireError("a reply to no request of ours")
    if "error" in message:
        then(None, AgentError.from_message(message["error"]))
    else:
        then(message, None)

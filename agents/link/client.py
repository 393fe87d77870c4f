"""A blocking client for requests and replies: for commands, the clean-up executable and tests."""

from __future__ import annotations

from agents.link.lean import socket
from agents.link.sockets import connect
from agents.wire.control import Message, control, decode
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import CONTROL, Decoder, Frame
from agents.wire.messages import check_hello, hello

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional


class Unreachable(AgentError):
    """No daemon answers at the address."""

    code = "unreachable"


class Client:
    """A connection to a daemon at a Unix socket ``path``. Usable as a context manager.

    Raises Unreachable if nobody listens, the daemon disconnects, or it is silent for ``timeout_s``; AgentError as the
    daemon reports it.
    """

    def __init__(
        self, path: str, role: str, timeout_s: float = 5.0, owner: int = -1, shown: Optional[Message] = None
    ) -> None:
        self.path = path
        self._decoder = Decoder()
        self._frames: List[Frame] = []
        self._next = 0
        self._greeted = False
        try:
            self.sock = connect(path, timeout_s, owner)
        except OSError as error:
            raise Unreachable(f"nobody answers at {path}: {error.strerror or error}") from None
        self.tell({**hello(role), **(shown or {})})

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()

    def tell(self, message: Message) -> None:
        """Send a message that has no reply."""
        self.send(control(message))

    def send(self, data: bytes) -> None:
        """Send frames."""
        try:
            self.sock.sendall(data)
        except OSError as error:
            self._hear_refusal()
            raise Unreachable(f"{self.path}: {error.strerror or error}") from None

    def _hear_refusal(self) -> None:
        # A daemon that refuses this connection has sent the reason before closing.
        try:
            while True:
                self._take(self.receive(), 0)
        except Unreachable:
            pass

    def _take(self, reply: Message, number: int) -> Optional[Message]:
        if reply.get("re") not in (number, 0):
            return None
        if "error" in reply:
            raise AgentError.from_message(reply["error"])
        return reply

    def call(self, message: Message, timeout_s: Optional[float] = None) -> Message:
        """Send a request and return its reply."""
        if timeout_s is not None:
            self.sock.settimeout(timeout_s)
        self._next += 1
        self.tell(dict(message, id=self._next))
        while True:
            reply = self._take(self.receive(), self._next)
            if reply is not None:
                return reply

    def receive(self) -> Message:
        """The next control message that is not a hello."""
        while True:
            kind, payload = self.receive_frame()
            if kind != CONTROL:
                raise WireError(f"a frame of kind {kind} where a message was expected")
            message = decode(payload)
            if self._greeted:
                return message
            check_hello(message)
            self._greeted = True

    def receive_frame(self) -> Frame:
        """The next frame of any kind, including the peer's hello."""
        while not self._frames:
            try:
                data = self.sock.recv(256 << 10)
            except socket.timeout:
                raise Unreachable(f"{self.path}: no answer in time") from None
            except OSError as error:
                raise Unreachable(f"{self.path}: {error.strerror or error}") from None
            if not data:
                raise Unreachable(f"{self.path}: the connection ended")
            self._frames = self._decoder.feed(data)
        return self._frames.pop(0)

"""The link to the root of a launch's tree: the load goes down, messages and output come up."""

from __future__ import annotations

from agents.link.link import Link
from agents.link.sockets import connect
from agents.wire.control import control, decode
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import CONTROL, FILE, STDERR, STDOUT
from agents.wire.messages import UP, check, check_hello, hello

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from agents.link.loop import Loop

    class Receiver(Protocol):
        """Receives what comes up the tree."""

        def on_frame(self, kind: int, payload: bytes) -> None:
            """Note that a frame has arrived; one of the calls below follows."""

        def on_output(self, kind: int, payload: bytes) -> None:
            """A rank's output."""

        def on_file(self, payload: bytes) -> None:
            """A rank's file request."""

        def on_message(self, op: str, message: dict[str, Any]) -> None:
            """A message of a node."""

        def on_refused(self, error: AgentError) -> None:
            """Handle a refusal by the root's PCT."""

        def on_root_end(self, reason: str) -> None:
            """Handle the loss of the link."""


_CONNECT_S = 5.0


class RootLink:
    """A link for one load. ``heard``: data has arrived since the watchdog's last check."""

    def __init__(self, loop: Loop, receiver: Receiver) -> None:
        self._loop, self._receiver = loop, receiver
        self.link: Link | None = None
        self.heard = False
        self.answered = False  # True if the root has sent a message after its hello since this was last reset
        self._greeted = False

    def load(self, address: str, load: dict[str, Any], common: bytes) -> None:
        """Connect to a root on this machine and send the load; ``common`` is a frame. Raises OSError or AgentError."""
        sock = connect(address, _CONNECT_S)
        self.link = Link(self._loop, sock, self.on_frame, self.on_end)
        self.link.send_raw(control(hello("launcher")) + control(load) + common)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message down the tree."""
        if self.link is not None:
            self.link.send(message)

    def send_raw(self, data: bytes) -> None:
        """Send frames down the tree."""
        if self.link is not None:
            self.link.send_raw(data)

    @property
    def delivered(self) -> int:
        """Like Link.delivered; -1 without a link."""
        return -1 if self.link is None else self.link.delivered

    def close(self) -> None:
        """Close the link."""
        if self.link is not None:
            self.link.close()

    def on_end(self, _link: Link, reason: str) -> None:
        """The link was closed."""
        self._receiver.on_root_end(reason)

    def on_frame(self, _link: Link, kind: int, payload: bytes) -> None:
        """Handle a frame from the root. Raises WireError for an invalid one."""
        self.heard = True
        receiver = self._receiver
        receiver.on_frame(kind, payload)
        if kind in (STDOUT, STDERR):
            receiver.on_output(kind, payload)
            return
        if kind == FILE:
            receiver.on_file(payload)
            return
        if kind != CONTROL:
            raise WireError(f"a frame of kind {kind} where none is expected")
        message = decode(payload)
        try:
            if not self._greeted:
                check_hello(message)
                self._greeted = True
                return
            if message.get("re") == 0:
                receiver.on_refused(AgentError.from_message(message.get("error")))
                return
            op = check(UP, message)
            self.answered = True  # the root has read the load, because a launch child sends no message before that
            receiver.on_message(op, message)
        except (AgentError, ValueError, TypeError, KeyError, IndexError) as error:
            raise WireError(f"a message that is not understood: {error}") from None

"""What a PCT does for those whom it lets in from other machines (agents/pct/outside.py)."""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    import socket
    from typing import Callable, NoReturn, Optional, Tuple

    from agents.link.server import Session
    from agents.link.tls import Secured
    from agents.pct.network import Pass


class Inside:
    """The PCT, as its port sees it: an interface, whose one implementation is agents/pct/daemon.py's Pct.

    Declared here so that the port does not import the daemon, which imports the port.
    """

    def life(self) -> "Tuple[str, int]":
        """Boot id and incarnation, as they are now."""
        raise NotImplementedError

    def now(self) -> Optional[float]:
        """The mesh's time, where it is known."""
        raise NotImplementedError

    def hand_over(self, sock: socket.socket) -> bool:
        """Give the connection of a launch to a launch child that waits; False when there is none."""
        raise NotImplementedError

    def begin_far(self, secured: Secured, role: str, let_in: Pass) -> None:
        """Begin a launch."""
        raise NotImplementedError

    def welcome_far(self, secured: Secured, limit: int) -> Session:
        """Serve requests of ``limit`` bytes at most."""
        raise NotImplementedError

    def hand_to_courier(self, sock: socket.socket) -> bool:
        """Give the connection of a node that wants an image to a courier that waits; False when there is none."""
        raise NotImplementedError

    def fork_courier(self, work: Callable[[socket.socket], NoReturn]) -> None:
        """Do ``work`` in a process of its own; it has a line to the PCT, by which it says that it may do more."""
        raise NotImplementedError

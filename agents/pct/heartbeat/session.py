"""The PCT's session with its RCA: registers, sends a beat every second, and reconnects for ever."""

from __future__ import annotations

from agents.link.link import Caller
from agents.link.loop import Loop, Timer
from agents.link.sockets import connect_now
from agents.wire.control import Message
from agents.wire.errors import AgentError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, Optional

BEAT_S = 1.0
_AGAIN_S = (0.05, 0.1, 0.2, 0.5, 1.0)


class Beats:
    """Reports to the RCA at ``path`` that this node is alive. ``who()`` makes the register_node message."""

    def __init__(self, loop: Loop, path: str, who: Callable[[], Message], launches: Callable[[], int]) -> None:
        self._loop, self._path, self._who, self._launches = loop, path, who, launches
        self._caller: Optional[Caller] = None
        self._timer: Optional[Timer] = None
        self._failed = 0
        self._seq = 0
        self._shared = ""  # what the RCA knows of other meshes on this host
        self._connect()

    def _connect(self) -> None:
        try:
            sock = connect_now(self._path)
        except (OSError, AgentError):
            self._again()
            return
        self._caller = Caller(self._loop, sock, "pct", self._on_end)
        self._register(self._on_registered)

    def _register(self, then: Callable[[Optional[Message], Optional[AgentError]], None]) -> None:
        if self._caller is not None:
            who = self._who()
            self._shared = str(who.get("shared", ""))
            self._caller.call(who, then)

    def _again(self) -> None:
        delay = _AGAIN_S[min(self._failed, len(_AGAIN_S) - 1)]
        self._failed += 1
        self._timer = self._loop.after(delay, self._connect)

    def _on_registered(self, _reply: Optional[Message], error: Optional[AgentError]) -> None:
        if error is None:
            self._failed = 0
            self._timer = self._loop.after(BEAT_S, self._beat)
        elif error.code != "gone" and self._caller is not None:  # refused: try again later
            self._caller.close()
            self._caller = None
            self._again()

    def _beat(self) -> None:
        if self._caller is not None:
            self._seq += 1
            self._caller.tell({"op": "beat", "seq": self._seq, "launches": self._launches(), **self._news()})
            self._timer = self._loop.after(BEAT_S, self._beat)

    def _news(self) -> Message:
        shared = str(self._who().get("shared", ""))
        if shared == self._shared:
            return {}
        self._shared = shared
        return {"shared": shared}

    def _on_end(self, _caller: Caller, _reason: str) -> None:
        self._caller = None
        if self._timer is not None:
            self._timer.cancel()
        self._again()

    @property
    def accepts_launches(self) -> bool:
        """Always True: the decision is local."""
        return True

    def register_again(self) -> None:
        """Register again, because another process may have reported us down."""
        self._register(lambda _reply, _error: None)

    def close(self) -> None:
        """End the session."""
        if self._timer is not None:
            self._timer.cancel()
        if self._caller is not None:
            self._caller.close()
            self._caller = None

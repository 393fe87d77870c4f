"""yod's session with the RCA: it registers as long as yod runs, and retries every second after a lost connection."""

from __future__ import annotations

from agents.link.link import Caller
from agents.link.sockets import connect
from agents.wire.control import control
from agents.wire.errors import AgentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agents.link.loop import Loop

BEAT_S = 1.0
#: Seconds for an RCA to acknowledge a *finish* that no CPA accepted.
HAND_S = 2.0


class Registration:
    """Registers this process, sends a heartbeat every second, and reports the launcher's id when it is known."""

    def __init__(
        self, loop: Loop, path: str, pid: int, pid_started: int, launcher: int | None = None, login: str = ""
    ) -> None:
        self._login = login  # the launch's login processor, if it differs from the RCA's
        self._loop, self._path = loop, path
        self._pid, self._pid_started = pid, pid_started
        self._launcher = launcher
        self._caller: Caller | None = None
        self._seq = 0
        self._over = False
        self._connect()
        loop.after(BEAT_S, self._beat)

    def launcher(self, number: int) -> None:
        """Report the launcher's id, which a CPA has assigned."""
        self._launcher = number
        if self._caller is not None:
            self._caller.tell({"op": "launcher", "launcher": number})

    def hand(self, finish: dict[str, Any], then: Callable[[AgentError | None], None]) -> None:
        """Send a *finish* that no CPA accepted to the RCA; ``then`` gets None when it is acknowledged, or an error."""
        if self._caller is None:
            self._connect()
        if self._caller is None:
            then(AgentError("the RCA does not answer", code="unreachable"))
            return
        answered = False

        def once(_reply: dict[str, Any] | None, error: AgentError | None) -> None:
            nonlocal answered
            if not answered:
                answered = True
                then(error)

        self._caller.call(finish, once)
        self._loop.after(HAND_S, lambda: once(None, AgentError("the RCA does not answer", code="unreachable")))

    def unregister(self) -> None:
        """Unregister, so that the RCA does not have this launch cleaned up after yod's exit."""
        self._over = True
        if self._caller is not None:
            self._caller.call({"op": "unregister"}, lambda _reply, _error: None)

    def unregister_now(self) -> None:
        """Unregister in a process that exits at once, without the event loop; does nothing without a connection."""
        if self._caller is not None and self._caller.link.sock is not None:
            self._caller.link.sock.setblocking(True)
            try:
                self._caller.link.sock.sendall(control({"op": "unregister", "id": 1 << 30}))
            except OSError:
                pass

    def abandon(self) -> None:
        """Close the connection without unregistering: another process continues the session."""
        self._over = True
        if self._caller is not None:
            self._caller.close()

    def _connect(self) -> None:
        try:
            sock = connect(self._path, BEAT_S)
        except (OSError, AgentError):
            return
        self._caller = Caller(self._loop, sock, "launcher", self._on_end)
        message = {"op": "register", "pid": self._pid, "pid_started": self._pid_started, "launcher": self._launcher}
        self._caller.call(
            {**message, "login": self._login} if self._login else message,
            lambda _reply, _error: None,
        )

    def _beat(self) -> None:
        if self._over:
            return
        if self._caller is None:
            self._connect()
        else:
            self._seq += 1
            self._caller.tell({"op": "beat", "seq": self._seq})
        self._loop.after(BEAT_S, self._beat)

    def _on_end(self, caller: Caller, _reason: str) -> None:
        if self._caller is caller:
            self._caller = None

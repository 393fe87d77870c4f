"""Our session with the RCA: registered as long as we live, found again once a second when it was lost."""

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
#: Seconds an RCA has to acknowledge what no CPA would take.
HAND_S = 2.0


class Registration:
    """Registers this process, beats once a second, and tells the launcher's id when there is one."""

    def __init__(
        self, loop: Loop, path: str, pid: int, pid_started: int, launcher: int | None = None, login: str = ""
    ) -> None:
        self._login = login  # the login processor we are on, where that is not the RCA's own
        self._loop, self._path = loop, path
        self._pid, self._pid_started = pid, pid_started
        self._launcher = launcher
        self._caller: Caller | None = None
        self._seq = 0
        self._over = False
        self._connect()
        loop.after(BEAT_S, self._beat)

    def launcher(self, number: int) -> None:
        """The CPA has named us."""
        self._launcher = number
        if self._caller is not None:
            self._caller.tell({"op": "launcher", "launcher": number})

    def hand(self, finish: dict[str, Any], then: Callable[[AgentError | None], None]) -> None:
        """Leave a *finish* that no CPA takes with the RCA; ``then`` gets None when it is acknowledged."""
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
        """We leave in good order: nothing is to be cleaned up behind us."""
        self._over = True
        if self._caller is not None:
            self._caller.call({"op": "unregister"}, lambda _reply, _error: None)

    def unregister_now(self) -> None:
        """The same in a process that ends at once; where the RCA is away, it will not know of us."""
        if self._caller is not None and self._caller.link.sock is not None:
            self._caller.link.sock.setblocking(True)
            try:
                self._caller.link.sock.sendall(control({"op": "unregister", "id": 1 << 30}))
            except OSError:
                pass

    def abandon(self) -> None:
        """Let go of a session that goes on in another process."""
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

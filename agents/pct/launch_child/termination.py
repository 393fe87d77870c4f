"""Requests to kill a launch on this node, at once or with notice; each gets a reply."""

from __future__ import annotations

from agents.link.lean import signal

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, List, Optional, Tuple

    from agents.link.loop import Loop
    from agents.link.server import Session
    from agents.pct.ranks.supervisor import LocalRanks
    from agents.wire.control import Message

#: The longest notice, in seconds: an hour.
LONGEST_S = 3600.0


class KillTimer:
    """``terminate`` begins the killing; ``note(text, …)`` tells the launcher the reason."""

    def __init__(self, loop: Loop, terminate: Callable[[], None], note: Callable[..., None]) -> None:
        self._loop, self._terminate, self._note = loop, terminate, note
        self._waiting: List[Tuple[Session, Message]] = []
        self._notice = False

    def ask(self, session: Session, message: Message, local: Optional[LocalRanks], gone: bool, unclean: bool) -> None:
        """Handle a kill request; ``gone``: no process is left."""
        grace_s = min(float(message.get("grace_s", 0.0)), LONGEST_S)
        if grace_s > 0 and local is not None and not gone:
            self._give_notice(local, grace_s, message)
            session.reply(message, {"clean": False, "killed": 0})
            return
        self._waiting.append((session, message))
        self._terminate()
        if gone or local is None:
            self.answer(local.killed if local is not None else 0, unclean)

    def _give_notice(self, local: LocalRanks, grace_s: float, message: Message) -> None:
        # SIGTERM now, SIGKILL after the notice. A second notice does not extend the first.
        if self._notice:
            return
        self._notice = True
        reason = str(message.get("reason", ""))[:200]
        if reason:
            self._note(reason, preempted_by={"to": str(message.get("to", ""))[:200], "kill_in_s": grace_s})
        local.ranks.send_signal(signal.SIGTERM, None)
        local.ranks.send_signal(signal.SIGCONT, None)  # a stopped rank would not receive the SIGTERM
        self._loop.after(grace_s, self._terminate)

    def answer(self, killed: int, unclean: bool) -> None:
        """No process is left, or only some that cannot be killed: reply to all requests."""
        waiting, self._waiting = self._waiting, []
        for session, message in waiting:
            session.reply(message, {"clean": not unclean, "killed": killed})

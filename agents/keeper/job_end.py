"""A batch system's SIGTERM to all processes of a job: the keeper asks what it means, and leaves the ranks their time.

The ranks have the signal too, and some write a checkpoint then. If the job ends, the keeper waits until nothing runs,
but ends the mesh before the batch system kills it, so that no file is left. If the job goes on, the signal was a user's
(``scancel --signal=TERM``).
"""

from __future__ import annotations

import os
import time

from agents.keeper.manager_questions import EndQuestion
from agents.link.link import Caller
from agents.link.sockets import connect_now
from agents.linux.batch_signals import LAST_S
from agents.wire.errors import AgentError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, List, Optional, Sequence

    from agents.keeper.manager_questions import Answer
    from agents.link.journal import Journal
    from agents.link.lean import Socket
    from agents.link.loop import Loop

#: Seconds that the end of a mesh may take, but at most this part of the time until SIGKILL.
END_S, END_PART = 1.0, 0.2
#: Seconds between two looks, and until a node asks, which normally ends with the login processor's keeper before that.
LOOK_S, NODE_S = 0.1, 1.0
#: Seconds for the batch system to know that the job ends, after its script has exited, or a process was killed.
KNOWN_S = 1.0
#: Seconds for a CPA to answer.
ANSWER_S = 0.5
_ENDS, _ENDED = "the batch system ends the job", "the job has ended"


class Waiter:
    """Waits since ``since`` for the seconds until the mesh ends; an answer that the job goes on counts only if it was
    asked for at ``final_at`` or later (both monotonic)."""

    __slots__ = ("final_at", "reply", "since")

    def __init__(self, since: float, final_at: float, reply: Callable[[Optional[float]], None]) -> None:
        self.since, self.final_at, self.reply = since, final_at, reply

    def is_over(self, answer: Answer) -> bool:
        """True if the job goes on, or the manager did not answer for LAST_S."""
        if answer.known:
            return answer.asked_at >= self.final_at
        return time.monotonic() >= self.since + LAST_S


class JobEnd:
    """Calls ``end(reason)`` when the job of ``manager`` ends and nothing runs any more, or time is up.

    ``cpas``: the sockets of the CPAs here, which know what runs on all nodes; on a node without CPAs ``runs_here``
    counts.
    """

    def __init__(
        self, loop: Loop, log: Journal, manager: str, cpas: Sequence[str], runs_here: Callable[[], bool],
        end: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._loop, self._log, self._manager, self._cpas = loop, log, manager, cpas
        self._runs_here, self._end = runs_here, end
        self._question = EndQuestion(loop, log, manager)
        self._waiting: List[Waiter] = []
        self._since = 0.0  # monotonic: when the signal arrived, or the script ended
        self._deadline = 0.0  # monotonic; 0: the job does not end, as far as we know
        self._asking = self._script_over = False
        #: Monotonic: when the manager kills what is left of the job; 0: not known.
        self.killed_at = 0.0

    def signalled(self) -> None:
        """A signal has arrived."""
        if not self._asking and not self._deadline:
            self._asking, self._since = True, time.monotonic()
            waiter = Waiter(self._since, self._since, self._on_signal_answer)
            apart_s = os.getpid() % 100 / 100  # or thousands of nodes would ask at once
            self._loop.after(0.0 if self._cpas else NODE_S + apart_s, lambda: self._wait(waiter))

    def _on_signal_answer(self, _left_s: Optional[float]) -> None:
        self._asking = False

    def asked(self, reply: Callable[[Optional[float]], None]) -> None:
        """``reply`` gets the seconds until the mesh ends with its job; None: the job goes on, or nobody knows.

        A process of the job was killed, perhaps before the batch system's signal came here. A manager that cannot say
        whether the job ends is not asked: without its signal, nothing indicates that the job ends.
        """
        now = time.monotonic()
        if self._deadline or self._asking or self._question.manager_says_end:
            self._wait(Waiter(now, now + KNOWN_S, reply))
        else:
            reply(None)

    def script_ended(self) -> None:
        """The job's script has exited. What still runs has the batch system's notice, or is about to have it."""
        if not self._deadline:
            if not self._asking:
                self._since = time.monotonic()
            self._if_idle(self._on_script_end)

    def _on_script_end(self, idle: bool) -> None:
        if idle:
            self._end(_ENDED)
        else:
            self._script_over = True
            now = time.monotonic()
            self._wait(Waiter(now, now + KNOWN_S, lambda left_s: self._end(_ENDED) if left_s is None else None))

    def _wait(self, waiter: Waiter) -> None:
        if self._deadline:
            waiter.reply(max(0.0, self._deadline - time.monotonic()))
            return
        self._waiting.append(waiter)
        if len(self._waiting) == 1:
            self._question.ask(self._on_answer)

    def _on_answer(self, answer: Answer) -> None:
        if answer.left_s is not None:
            if not (self._asking or self._script_over):
                self._since = min(waiter.since for waiter in self._waiting)
            self._leave(answer.left_s)
            waiters, self._waiting = self._waiting, []
            for waiter in waiters:
                self._wait(waiter)
            return
        over = [waiter for waiter in self._waiting if waiter.is_over(answer)]
        self._waiting = [waiter for waiter in self._waiting if waiter not in over]
        if self._waiting:
            self._question.ask(self._on_answer)
        for waiter in over:
            waiter.reply(None)
        if self._script_over and self._waiting:
            self._if_idle(lambda idle: self._end(_ENDED) if idle else None)

    def _leave(self, left_s: float) -> None:
        if not self._deadline:
            self.killed_at = self._since + left_s
            self._deadline = self.killed_at - min(END_S, left_s * END_PART)
            self._look()

    def _look(self) -> None:
        if time.monotonic() >= self._deadline:
            self._end(_ENDS)
        else:
            self._if_idle(self._look_again)

    def _look_again(self, idle: bool) -> None:
        if idle:
            self._end(_ENDS)
        else:
            self._loop.after(LOOK_S, self._look)

    def _if_idle(self, then: Callable[[bool], None]) -> None:
        """Call ``then`` with True if no launch has processors or, where no CPA is, none runs on this node."""
        for path in self._cpas:
            try:
                sock = connect_now(path)
            except (OSError, AgentError):
                continue
            Question(self._loop, sock, then)
            return
        then(not self._runs_here())


class Question:
    """Asks a CPA once whether processors are in use; without an answer, as if they were."""

    def __init__(self, loop: Loop, sock: Socket, then: Callable[[bool], None]) -> None:
        self._then: Optional[Callable[[bool], None]] = then
        self._caller = Caller(loop, sock, "keeper", lambda *_: self._answered(False))
        self._timer = loop.after(ANSWER_S, lambda: self._answered(False))
        self._caller.call(
            {"op": "idle"}, lambda reply, _error: self._answered(reply is not None and not reply.get("partitions"))
        )

    def _answered(self, idle: bool) -> None:
        then, self._then = self._then, None
        if then is not None:
            self._timer.cancel()
            self._caller.close()
            then(idle)

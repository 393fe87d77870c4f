"""A batch system's SIGTERM to all processes of a job: the keeper asks what it means, and leaves the ranks their time.

The ranks have the signal too, and some write a checkpoint then. If the job ends, the keeper waits until nothing runs,
but ends the mesh before the batch system kills it, so that no file is left. If the job goes on, the signal was a user's
(``scancel --signal=TERM``).
"""

from __future__ import annotations

import os
import time

from agents.link.link import Caller
from agents.link.sockets import connect_now
from agents.managers import registry
from agents.wire.errors import AgentError
from redmesh.managers import ManagerError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, Optional, Sequence, Tuple

    from agents.link.journal import Journal
    from agents.link.lean import Socket
    from agents.link.loop import Loop

#: Seconds that the end of a mesh may take, but at most this part of the time until SIGKILL.
END_S, END_PART = 1.0, 0.2
#: Seconds between two looks, and until a node asks, which normally ends with the login processor's keeper before that.
LOOK_S, NODE_S = 0.1, 1.0
#: Seconds for the batch system to know that the job ends, after its script has exited.
KNOWN_S = 1.0
#: Seconds after which a manager that did not answer is asked again, and from the signal to the last question: KillWait
#: is 30 by default, and the manager may be slow just when jobs end.
AGAIN_S, LAST_S = 1.0, 60.0
#: Seconds for a CPA to answer.
ANSWER_S = 0.5
_ENDS = "the batch system ends the job"


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
        self._since = 0.0  # monotonic: when the signal arrived, or the script ended
        self._deadline = 0.0  # monotonic; 0: the job does not end, as far as we know
        self._asking = False
        #: Monotonic: when the manager kills what is left of the job; 0: not known.
        self.killed_at = 0.0

    def signalled(self) -> None:
        """A signal has arrived."""
        if not self._asking and not self._deadline:
            self._asking, self._since = True, time.monotonic()
            apart_s = os.getpid() % 100 / 100  # or thousands of nodes would ask at once
            self._loop.after(0.0 if self._cpas else NODE_S + apart_s, self._ask)

    def _ask(self) -> None:
        self._asking = False
        left_s, answered = self._left()
        if left_s is not None:
            self._leave(left_s)
        elif not answered and time.monotonic() < self._since + LAST_S:
            self._asking = True
            self._loop.after(AGAIN_S, self._ask)

    def asked(self, reply: Callable[[Optional[float]], None], until: float = 0.0) -> None:
        """``reply`` gets the seconds until the mesh ends with its job; None: the job goes on, or nobody knows.

        A process of the job was killed, perhaps before the batch system's signal came here.
        """
        now = time.monotonic()
        until = until or now + KNOWN_S
        left_s = None if self._deadline else self._left()[0]
        if left_s is not None and not self._deadline:
            self._since = self._since if self._asking else now
            self._leave(left_s)
        if self._deadline:
            reply(max(0.0, self._deadline - time.monotonic()))
        elif now >= until:
            reply(None)
        else:
            self._loop.after(2 * LOOK_S, lambda: self.asked(reply, until))

    def script_ended(self) -> None:
        """The job's script has exited. What still runs has the batch system's notice, or is about to have it."""
        if not self._deadline:
            self._since = time.monotonic()
            self._if_idle(lambda idle: self._on_script_end(idle, time.monotonic() + KNOWN_S))

    def _on_script_end(self, idle: bool, deadline: float) -> None:
        left_s = None if idle else self._left()[0]
        if left_s is not None:
            self._leave(left_s)
        elif idle or time.monotonic() >= deadline:
            self._end("the job has ended")
        else:
            self._loop.after(2 * LOOK_S, lambda: self._on_script_end(idle, deadline))

    def _left(self) -> Tuple[Optional[float], bool]:
        """Seconds from the signal to the manager's SIGKILL, or None; and whether the manager answered: then None means
        that the job goes on."""
        try:
            left_s = registry.kill_wait(registry.load(self._manager), os.environ)
        except ManagerError as error:
            self._log.write("the manager does not say whether the job ends", reason=error.message)
            return None, False
        self._log.write("signal of the manager", job_ends_in_s=left_s)
        return left_s, True

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

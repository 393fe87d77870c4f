"""Ranks that have lost their yod in a batch system's job: the batch system may have killed it because the job ends.

Slurm with ``proctrack/cgroup`` kills ``yod`` as soon as the job's script has died of SIGTERM, and leaves the ranks the
time of KillWait. The node's keeper knows how much of it is left (agents/keeper/job_end.py).
"""

from __future__ import annotations

import os

from agents.link.link import Caller
from agents.link.sockets import connect_now
from agents.linux.batch_signals import LAST_S
from agents.wire.errors import AgentError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable

    from agents.link.loop import Loop

#: Seconds for the keeper to answer. It asks the batch system until LAST_S; then it says that nobody knows.
ANSWER_S = LAST_S + 40.0


class Orphan:
    """Calls ``over`` when the ranks' time is up: as soon as the keeper says that the job goes on, or that nobody knows;
    at once if there is no keeper."""

    def __init__(self, loop: Loop, run: str, over: Callable[[], None]) -> None:
        self._loop, self._over = loop, over
        self._ended = False
        self._timer = loop.after(ANSWER_S, self._end)
        try:
            sock = connect_now(os.path.join(run, "keeper.sock"))
        except (OSError, AgentError):
            self._timer.cancel()
            self._end()
            return
        self._caller = Caller(loop, sock, "child", lambda *_: self._on_reply(None, None))
        self._caller.call({"op": "job_end"}, self._on_reply)

    def _on_reply(self, reply: Any, _error: Any) -> None:
        if self._ended:
            return
        left_s = reply.get("left_s") if reply is not None else None
        self._timer.cancel()
        self._caller.close()
        if isinstance(left_s, (int, float)):
            self._timer = self._loop.after(float(left_s), self._end)
        else:
            self._end()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._over()

"""Ends an unused mesh that was started automatically: after ``idle_s`` seconds without launches or partitions."""

from __future__ import annotations

import os

from agents.link.link import Caller
from agents.link.sockets import connect_now
from agents.linux import processes
from agents.pct.ranks.process_tracking import launchers_on_record
from agents.wire.errors import AgentError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, List, Optional, Sequence

    from agents.link.loop import Loop
    from agents.wire.control import Message

#: The longest pause in seconds between two checks.
CHECK_S = 60.0
_LONGEST_TITLE = 4096


class IdleEnd:
    """Asks a CPA now and then how long the mesh has been idle; calls ``end()`` after ``idle_s``.

    ``cpas`` are their sockets; ``may_end()``: no launch runs here, as far as the keeper knows.
    """

    def __init__(
        self, loop: Loop, idle_s: float, cpas: Sequence[str], may_end: Callable[[], bool], end: Callable[[], None]
    ) -> None:
        self._loop, self._idle_s, self._cpas, self._may_end, self._end = loop, idle_s, cpas, may_end, end
        self._pause_s = max(0.2, min(CHECK_S, idle_s / 4))
        loop.after(self._pause_s, self._look)

    def _look(self) -> None:
        self._loop.after(self._pause_s, self._look)
        for path in self._cpas:
            try:
                sock = connect_now(path)
            except (OSError, AgentError):
                continue
            self._ask(Caller(self._loop, sock, "keeper", lambda *_: None))
            return

    def _ask(self, caller: Caller) -> None:
        def answered(reply: Optional[Message], _error: Optional[AgentError]) -> None:
            caller.close()
            if reply is None or reply.get("partitions") or reply.get("idle_s", 0) < self._idle_s:
                return
            if self._may_end():
                self._end()

        caller.call({"op": "idle"}, answered)


def jobs_run(state: str) -> bool:
    """True if a job is queued or runs: its owner locks its state object, even while it has no processor."""
    directory = os.path.join(state, "jobs")
    try:
        names = os.listdir(directory)
    except OSError:
        return False
    locks = [name for name in names if name.endswith(".job.lock")]
    if not locks:
        return False
    from redmesh.state import owned  # imports SQLite, which a keeper without jobs does not need

    return any(owned(os.path.join(directory, name[: -len(".lock")])) for name in locks)


def job_owners(state: str) -> List[int]:
    """The owners of the jobs of the mesh with this STATE; each has the path of its object in its title."""
    found = []
    for pid in processes.pids():
        try:
            if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
                continue
            with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:
                mark, _, rest = file.read(_LONGEST_TITLE).partition(b" ")
        except OSError:
            continue
        place = os.path.dirname(os.fsdecode(rest.partition(b" ")[2]))  # the end of the title may be cut off
        if mark == b"redmesh-job" and place == os.path.join(state, "jobs") and processes.alive(pid):
            found.append(pid)
    return found


def running_launchers(run: str, state: str) -> List[int]:
    """The launchers that have a launch child here.

    The sockets of launch children show that they run, so no daemon is asked. If the sockets were removed with RUN a
    moment ago, the records in STATE are used.
    """
    found = set(launchers_on_record(state))
    try:
        names = os.listdir(run)
    except OSError:
        names = []
    for name in names:
        if name.startswith("launch-") and name.endswith(".sock"):
            try:
                connect_now(os.path.join(run, name)).close()
                found.add(int(name[:-5].rpartition("-")[2]))
            except (OSError, AgentError, ValueError):
                pass
    return sorted(found)

"""Replays a trace: allocates and frees its jobs through CPAs' sockets, as fast as possible.

The times in the trace only determine the order of events. Requests overlap, like those of many users, and are spread
over all CPAs. A job starts when all earlier jobs have started (first in, first out) and enough processors are free.
"""

from __future__ import annotations

import heapq
import os
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from agents.link.link import Caller
from agents.link.loop import Loop
from agents.link.sockets import connect
from agents.wire.errors import AgentError
from simulated.traces import Job

AT_ONCE = 16  # requests in transit
ANSWER_S = 60.0
#: Seconds after which a job that still has its processors reports *started*; otherwise its allocation would expire.
STARTED_S = 20.0
BEAT_S = 1.0


class Wrong(AgentError):
    """The machine made an error: a processor allocated twice, or a wrong number of processors."""

    code = "internal"


class Outcome(NamedTuple):
    """``span_s`` is in the trace's own time, from the first submission to the last end; so are the waits."""

    jobs: int
    too_large: int
    seconds: float
    span_s: float
    utilisation: float
    mean_wait_s: float
    longest_wait_s: float


class Running:
    """A job that has processors, or has requested them."""

    __slots__ = ("asked_at", "cookie", "job", "launcher", "processors", "started")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.launcher, self.cookie = 0, ""
        self.processors: list[int] = []
        self.asked_at = time.monotonic()
        self.started = False


class Player:
    """Replays jobs on a machine of ``processors`` that nobody else uses, through the sockets of CPAs and an RCA."""

    def __init__(
        self, sockets: Sequence[str], rca: str | None, login: str, processors: int, placement: str = "default"
    ) -> None:
        self._loop = Loop()
        self._login, self._total, self._placement = login, processors, placement
        self._pid = os.getpid()
        self._pid_started = _started(self._pid)
        self._cpas = [self._call_to(path) for path in sockets]
        self._rca = self._call_to(rca) if rca else None
        self._next = 0
        self._under_way = 0
        self._free = processors  # known to be free, and not requested yet
        self._owner: dict[int, int] = {}  # processor -> job
        self._trouble: AgentError | None = None
        self._live: set[Running] = set()
        self._beat_at = 0.0

    def run(self, jobs: Sequence[Job]) -> Outcome:
        """Replay all jobs. Raises Wrong, or a CPA's AgentError for an unexpected refusal."""
        began = time.monotonic()
        fit = sorted((job for job in jobs if job.size <= self._total), key=lambda job: (job.submit_s, job.number))
        waits, work, end_s = self._play(fit)
        self._until(lambda: not self._under_way)
        if self._owner:
            raise Wrong(f"processors that are still held at the end: {len(self._owner)}")
        span = max(1e-9, end_s - fit[0].submit_s) if fit else 0.0
        return Outcome(
            jobs=len(fit),
            too_large=len(jobs) - len(fit),
            seconds=time.monotonic() - began,
            span_s=span,
            utilisation=work / (span * self._total) if fit else 0.0,
            mean_wait_s=sum(waits) / len(waits) if waits else 0.0,
            longest_wait_s=max(waits, default=0.0),
        )

    def close(self) -> None:
        """Disconnect from the CPAs and the RCA."""
        if self._rca is not None and self._trouble is None and not self._live:
            gone: list[Any] = []  # not after an error: when the connection ends, the RCA has everything cleaned up
            self._rca.call({"op": "unregister"}, lambda *answer: gone.append(answer))
            self._until(lambda: bool(gone))
        if self._rca is not None:
            self._rca.close()
        for cpa in self._cpas:
            cpa.close()

    def register(self) -> None:
        """Register with the RCA as a launcher."""
        if self._rca is not None:
            known: list[Any] = []
            message = {"op": "register", "pid": self._pid, "pid_started": self._pid_started, "launcher": None}
            self._rca.call(message, lambda *answer: known.append(answer))
            self._until(lambda: bool(known))

    # The trace's own time

    def _play(self, jobs: Sequence[Job]) -> tuple[list[float], float, float]:
        waiting: deque[Job] = deque()
        ends: list[tuple[float, int, Running]] = []
        waits: list[float] = []
        idle, at, work, now = self._total, 0, 0.0, 0.0
        while at < len(jobs) or waiting or ends:
            submit = jobs[at].submit_s if at < len(jobs) else float("inf")
            end = ends[0][0] if ends else float("inf")
            if end <= submit:
                now, _, running = heapq.heappop(ends)
                idle += running.job.size
                self._finish(running)
            else:
                now = submit
                waiting.append(jobs[at])
                at += 1
            while waiting and waiting[0].size <= idle:
                job = waiting.popleft()
                idle -= job.size
                waits.append(now - job.submit_s)
                work += job.size * job.run_s
                heapq.heappush(ends, (now + job.run_s, job.number, self._begin(job)))
        return waits, work, now

    # Requests to CPAs

    def _begin(self, job: Job) -> Running:
        self._until(lambda: self._free >= job.size and self._under_way < AT_ONCE)
        self._free -= job.size
        running = Running(job)
        self._live.add(running)
        request = {
            "op": "allocate",
            "key": os.urandom(16).hex(),
            "size": job.size,
            "placement": self._placement,
            "login": self._login,
            "pid": self._pid,
            "pid_started": self._pid_started,
            "command": f"job {job.number}",
        }
        self._ask(request, lambda reply: self._got(running, reply))
        return running

    def _got(self, running: Running, reply: dict[str, Any]) -> None:
        running.launcher, running.cookie = reply["launcher"], reply["cookie"]
        running.processors = [one for node in reply["nodes"] for one in node["processors"]]
        job = running.job
        if len(running.processors) != job.size:
            raise Wrong(f"job {job.number} asked for {job.size} and got {len(running.processors)} (processors)")
        for one in running.processors:
            if one in self._owner:
                raise Wrong(f"processor {one} of job {self._owner[one]} was given to job {job.number} too")
            self._owner[one] = job.number

    def _finish(self, running: Running) -> None:
        self._until(lambda: bool(running.launcher) and self._under_way < AT_ONCE)
        # Before the request is sent: once it arrives, another job may get these processors.
        for one in running.processors:
            del self._owner[one]
        self._live.discard(running)
        request = {"op": "finish", "launcher": running.launcher, "cookie": running.cookie, "exit_status": 0}
        size = running.job.size
        if len(self._cpas) == 1:
            self._free += size  # a single CPA serves later requests after this one
            self._ask(request, lambda _reply: None)
        else:
            self._ask(request, lambda _reply: self._gave_back(size))

    def _gave_back(self, size: int) -> None:
        self._free += size

    def _ask(self, request: dict[str, Any], then: Any) -> None:
        cpa = self._cpas[self._next % len(self._cpas)]
        self._next += 1
        self._under_way += 1

        def answered(reply: dict[str, Any] | None, error: AgentError | None) -> None:
            self._under_way -= 1
            if error is not None and error.code == "gone":
                return  # ``ended`` is called next
            try:
                if reply is None:
                    raise error or AgentError("no answer")
                then(reply)
            except AgentError as trouble:
                self._trouble = self._trouble or trouble

        cpa.call(request, answered)

    def _until(self, true: Any) -> None:
        deadline = time.monotonic() + ANSWER_S
        while True:
            now = time.monotonic()
            if now - self._beat_at >= BEAT_S:
                self._beat(now)
            if self._trouble is not None:
                raise self._trouble
            if true():
                return
            if now > deadline:
                raise AgentError(f"no answer within {ANSWER_S:.0f} s", "mesh status shows the daemons")
            self._loop.run_once(0.2)

    def _beat(self, now: float) -> None:
        self._beat_at = now
        if self._rca is not None:
            self._rca.tell({"op": "beat", "seq": 0})
        for running in self._live:
            if running.launcher and not running.started and now - running.asked_at > STARTED_S:
                running.started = True
                request = {"op": "started", "launcher": running.launcher, "cookie": running.cookie}
                self._ask({**request, "ranks": running.processors}, lambda _reply: None)

    def _call_to(self, path: str) -> Caller:
        def ended(_caller: Caller, reason: str) -> None:
            name = os.path.basename(path).removesuffix(".sock")
            self._trouble = self._trouble or AgentError(
                f"{name} went away while jobs ran on it: {reason}", "mesh status shows the daemons"
            )

        return Caller(self._loop, connect(path), "launcher", ended)


def _started(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])

"""Records the processors of a job in its state object: requests, grants, and why there are none."""

from __future__ import annotations

import json

from agents.job.description import YODS
from agents.job.grants.failed_starts import FORGIVE_S
from agents.job.grants.processors import Processors
from agents.linux.processes import start_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Protocol

    from agents.job.grants.grant import Grant
    from agents.job.state_requests import Owner
    from agents.link.loop import Loop
    from agents.wire.launch_events import NodeCannotStart
    from redmesh.state import StateObject

    class GrantUser(Protocol):
        """Uses the processors: the owner of the job."""

        def on_grant_over(self) -> None:
            """Called when a launch is over, or its request."""

        def on_wanted(self) -> None:
            """Called when processors are to be given back."""

        def on_hopeless(self, reason: str) -> bool:
            """Called when no processor can ever be granted. Returns whether to ask again."""

        def on_unstartable(self, reason: str) -> None:
            """Called when no launch can start on any node."""


#: The most stopped workers and tasks in the job's object.
_MOST_STOPPED = 64


class RecordedProcessors:
    """The processors of a job, with their records in its object."""

    def __init__(self, loop: Loop, owner: Owner, user: GrantUser, words: List[str], limit: int, unit: int) -> None:
        self._owner, self._user = owner, user
        self._requests: List[int] = []  # rows of the object, by the numbers of the grants
        self.processors = Processors(loop, words, limit, self, unit=unit)

    def on_asked(self, count: int) -> None:
        """Record a request."""

        def record(job: StateObject) -> None:
            self._requests.append(job.requested(count, partial=False))
            job.set_meta(**{YODS: json.dumps([[pid, start_time(pid)] for pid in self.processors.pids])})

        self._owner.record(record)
        self._owner.commit()  # before a worker runs, so that a resumed job knows what to wait for

    def on_granted(self, grant: Grant) -> None:
        """Record the processors of a grant."""

        def record(job: StateObject) -> None:
            request = self._requests[grant.number - 1]
            job.answered(request, "acknowledged")
            job.set_meta(trouble=self.processors.trouble or None)
            for node in grant.nodes:
                numbers = sorted(node["processors"])
                job.granted(request, str(node["name"]), ",".join(map(str, numbers)), len(numbers))

        self._owner.record(record)

    def on_silence(self) -> None:
        """Record which nodes do not answer, and which workers and tasks are stopped."""
        nodes = ", ".join(self.processors.silent)[:500]
        stopped = [
            {"node": found.node, "pid": pid, "since": since}
            for found in self.processors.stopped
            for pid, since in zip(found.pids, found.since)  # noqa: B905  (strict needs Python 3.10)
        ]
        stopped += [
            {"node": found.node, "pid": found.pid, "since": found.since, "task": found.number}
            for found in self.processors.stopped_tasks
        ]
        told = json.dumps(stopped[:_MOST_STOPPED]) if stopped else None
        self._owner.record(lambda job: job.set_meta(silent=nodes or None, stopped=told))

    def on_trouble(self) -> None:
        """Record why no launch starts."""
        trouble = self.processors.trouble
        self._owner.record(lambda job: job.set_meta(trouble=trouble or None))

    def on_failed(self, grant: Grant, start: NodeCannotStart, again_s: float) -> None:
        """A node cannot start workers. While others run, nothing else says so but the log; while none runs, a line at
        the first failure is enough."""
        is_news = again_s <= FORGIVE_S or any(one.started for one in self.processors.grants.values())

        def record(job: StateObject) -> None:
            job.freed(request=self._requests[grant.number - 1])
            if is_news:
                why = start.text + (f" ({start.hint})" if start.hint else "")
                job.log(f"left out for {again_s / 60:.0f} min while others run: {why}", node=start.node)

        self._owner.record(record)

    def on_over(self, grant: Grant) -> None:
        """Record the end of a launch, or of its request."""
        if grant.silent or grant.stopped_ranks or grant.stopped_tasks:
            self.on_silence()
        self._owner.record(lambda job: self._record_end(job, grant))
        self._user.on_grant_over()

    def _record_end(self, job: StateObject, grant: Grant) -> None:
        why = "; ".join(grant.words)
        request = self._requests[grant.number - 1]
        if not grant.allocated:
            job.answered(request, why[:500] or "not granted")
            # That every other node is left out is no news beside the reason why they are.
            if grant.waits and not grant.stopping and not self.processors.trouble:
                job.set_meta(trouble=why[:500])  # asked again, because a node may come back
            return
        job.freed(request=request)
        if not (grant.started or grant.stopping):
            job.set_meta(trouble=why[:500])  # a load that failed; cleared by the next grant
        if grant.process.returncode and not self.processors.ending:
            job.log(f"launch {grant.launcher} ended with {grant.process.returncode}: {why}")

    def on_wanted(self) -> None:
        """Processors are to be given back."""
        self._user.on_wanted()

    def on_hopeless(self, reason: str) -> bool:
        """No processor can ever be granted."""
        return self._user.on_hopeless(reason)

    def on_unstartable(self, reason: str) -> None:
        """No launch can start on any node."""
        self._user.on_unstartable(reason)

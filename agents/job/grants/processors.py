"""The processors of a job: launches of yod whose ranks are workers, one launch for each grant.

No other module requests processors. A job begins with one processor, doubles its requests while they are granted at
once, and then waits in the CPA's line for one more, so nothing is polled. yod sends heartbeats to the RCA, loads the
workers, and frees the processors when its workers have exited.

A launch that cannot start is repeated: by yod on other nodes if its node has stated a lasting reason
(agents/job/grants/failed_starts.py), and after a pause if the reason may pass.
"""

from __future__ import annotations

import json
import os
import signal
import time

from agents.job.grants.failed_starts import FORGIVE_S, FailedStarts
from agents.job.grants.giving import Giving
from agents.job.grants.grant import Grant, StoppedTask
from agents.link.loop import READ
from agents.wire.launch_events import GiveBack, NodeCannotStart, NodeSilent, RanksStopped, read
from redmesh import answers
from redmesh.start_command import start_command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import FileIO
    from typing import Any, Dict, List, Optional, Protocol

    from agents.link.loop import Loop, Timer

    class GrantListener(Protocol):
        """Hears of the requests and grants of a job."""

        def on_asked(self, count: int) -> None:
            """Called for a request of ``count`` processors."""

        def on_granted(self, grant: Grant) -> None:
            """Called when a request is granted."""

        def on_over(self, grant: Grant) -> None:
            """Called when a launch is over, or its request."""

        def on_silence(self) -> None:
            """Called when ``silent`` or ``stopped`` has changed."""

        def on_trouble(self) -> None:
            """Called when ``trouble`` has changed."""

        def on_wanted(self) -> None:
            """Called when processors are to be given back: ``gives_back`` says which."""

        def on_failed(self, grant: Grant, start: NodeCannotStart, again_s: float) -> None:
            """Called for a node on which a launch could not start; it is tried again after ``again_s`` while others
            run."""

        def on_hopeless(self, reason: str) -> bool:
            """Called when no processor can ever be granted. Returns whether to ask again."""

        def on_unstartable(self, reason: str) -> None:
            """Called when no launch can start on any node. No processors are requested any more."""


#: The largest request; seconds in the CPA's line (a year); seconds until a failed request is repeated, at first and at
#: most.
_MOST, _WAIT_S, _AGAIN_S, _AGAIN_MOST_S = 256, 365 * 86400, 0.5, 60.0
#: Seconds until an impossible request is repeated for a job that wants so.
_HOPE_S = 5.0
#: Seconds for which a job asks for no more processors when another job is to catch up with it.
_CATCH_UP_S = 2.0
#: Exit statuses of yod that are permanent: invalid options, or a request that can never be granted.
HOPELESS = (2,)


class Processors:
    """The processors of a job: ``listener`` hears of requests and grants.

    ``unit``: processors of each launch, if all of its ranks work on one section.
    """

    def __init__(self, loop: Loop, words: List[str], limit: int, listener: GrantListener, *, unit: int = 1) -> None:
        self._loop, self._words, self._limit, self._listener = loop, words, limit, listener
        self.grants: Dict[int, Grant] = {}
        self._wanted, self._unit = 0, unit
        self._step = 1
        self._numbers = 0
        self._failures = 0
        self._waits_next = True
        self._again: Optional[Timer] = None
        self._probe: Optional[Timer] = None
        self._excluded: List[str] = []
        self._failed_starts = FailedStarts()
        self._giving = Giving()
        self._pause_s = 0.0  # of the pause between two rounds of tries
        #: True once no more processors are requested.
        self.ending = False

    @property
    def pids(self) -> List[int]:
        """The yods."""
        return [grant.process.pid for grant in self.grants.values()]

    def grant_of(self, pid: int) -> Optional[Grant]:
        """The grant whose yod is the process ``pid``."""
        return next((grant for grant in self.grants.values() if grant.process.pid == pid), None)

    @property
    def silent(self) -> List[str]:
        """Nodes that have workers and do not answer their yods: stopped, or overloaded."""
        return sorted(set().union(*(grant.silent for grant in self.grants.values())))

    @property
    def stopped(self) -> List[RanksStopped]:
        """Workers that are stopped (SIGSTOP), by node."""
        return [found for grant in self.grants.values() for _, found in sorted(grant.stopped_ranks.items())]

    @property
    def stopped_tasks(self) -> List[StoppedTask]:
        """Processes of tasks that are stopped (SIGSTOP)."""
        return [found for grant in self.grants.values() for _, found in sorted(grant.stopped_tasks.items())]

    @property
    def trouble(self) -> str:
        """Why no launch starts on any node, as far as nodes have stated it; "" while launches run."""
        return "" if any(grant.started for grant in self.grants.values()) else self._failed_starts.why(self._pause_s)

    def want(self, count: int) -> None:
        """Request processors until ``count`` are useful, within the job's limit."""
        self._wanted = min(count, self._limit) if self._limit else count
        self._grow()

    def exclude(self, nodes: List[str]) -> None:
        """Request no processors on these nodes from now on; existing grants stay."""
        if nodes == self._excluded:
            return
        self._excluded = nodes
        for grant in self.grants.values():
            if not grant.allocated:
                self._leave(grant)

    def _grow(self) -> None:
        if self.ending or self._again is not None:
            return
        asking = [grant for grant in self.grants.values() if not grant.allocated]
        kept = sum(one.size - one.stopped for one in self.grants.values() if one.allocated and not one.giving)
        missing = self._wanted - kept
        if missing <= 0:
            for grant in asking:
                self._leave(grant)
            return
        if not asking:
            size = 1 if self._waits_next else min(missing, self._step)
            self._ask(size if self._unit == 1 else self._unit, waits=self._waits_next, could_use=missing if kept else 0)

    def _ask(self, size: int, *, waits: bool, could_use: int) -> None:
        self._numbers += 1
        words = ["-wait-for-nodes", str(_WAIT_S)] if waits else ["-immediate"]
        words += ["-worker-grows", str(could_use)] if could_use else []
        useless = self._failed_starts.nodes
        if self._excluded or useless:
            words += ["-exclude", ",".join(sorted({*self._excluded, *useless}))]
        # pidfds and event loops are created after the fork, so that yod does not inherit them.
        said = answers.said_file()
        command = [*start_command("yod"), "-json", "-sz", str(size), *words, *self._words]
        process, events = answers.start(command, None, said, start_new_session=True)
        grant = Grant(self._numbers, size, process, said, waits=waits, grows=bool(could_use), excludes=useless)
        self.grants[self._numbers] = grant
        os.set_blocking(events.fileno(), False)
        pending = bytearray()
        self._loop.watch(events.fileno(), READ, lambda _ready: self._read(grant, events, pending))
        self._listener.on_asked(size)

    def _read(self, grant: Grant, events: FileIO, pending: bytearray) -> None:
        data = events.read(256 << 10)
        if data is None:
            return  # nothing has arrived
        pending += data
        *lines, rest = bytes(pending).split(b"\n")
        pending[:] = rest
        for line in lines:
            self._told(grant, line)
        if not data:
            self._loop.unwatch(events.fileno())
            events.close()
            grant.process.wait()  # it has closed its output, so it is exiting
            self._over(grant)

    def _told(self, grant: Grant, line: bytes) -> None:
        try:
            event = json.loads(line)
            kind = event["event"]
        except (ValueError, KeyError, TypeError):
            return
        if kind == "allocated":
            self._granted(grant, event)
        elif kind == "started":
            troubled, grant.started = bool(self.trouble), True
            self._failed_starts.started(str(node["name"]) for node in grant.nodes)
            if troubled:
                self._listener.on_trouble()
        elif kind == "refused":
            # A waiting request is refused as unavailable only if waiting cannot help. An excluded node that has left
            # the mesh makes the request invalid.
            invalid = event["code"] == "invalid"
            if invalid and grant.excludes:
                self._failed_starts.clear()
            hopeless = event["code"] == "unavailable" or (invalid and not (self._excluded or grant.excludes))
            grant.never = grant.waits and hopeless
            grant.words = []  # the line for people follows, with the hint
        elif kind in ("error", "lost"):
            grant.words = [*grant.words[-4:], str(event.get("message") or event.get("reason") or "")[:500]]
            grant.vanished += map(str, event.get("nodes") or ())
        else:
            self._take(grant, event)

    def _take(self, grant: Grant, event: Dict[str, Any]) -> None:
        """Handle an event that is a record (agents/wire/launch_events.py)."""
        try:
            record = read(event)
        except (KeyError, TypeError, ValueError):
            return
        if isinstance(record, NodeCannotStart):
            if record.lasting:
                self._cannot_start(grant, record)
        elif isinstance(record, NodeSilent):
            (grant.silent.discard if record.back else grant.silent.add)(record.node)
            self._listener.on_silence()
        elif isinstance(record, GiveBack):
            self._asked_back(record)
        elif isinstance(record, RanksStopped):
            grant.stopped_ranks.pop(record.node, None)
            if record.ranks:
                grant.stopped_ranks[record.node] = record
            self._listener.on_silence()

    def task_stopped(self, grant: Grant, rank: int, task: StoppedTask) -> None:
        """A worker's task was stopped, or continues (``pid`` is 0)."""
        grant.stopped_tasks.pop(rank, None)
        if task.pid:
            grant.stopped_tasks[rank] = task
        self._listener.on_silence()

    def _asked_back(self, wish: GiveBack) -> None:
        self._giving.ask(wish)
        if wish.pause and self._again is None and not self.ending:
            # The job that is to catch up asks for one processor after the other. What is given to it must not go to a
            # request of this one meanwhile.
            for grant in self.grants.values():
                if grant.grows and not grant.allocated:
                    self._leave(grant)
            self._again = self._loop.after(_CATCH_UP_S, self._ask_again)
        self._listener.on_wanted()

    def gives_back(self, grant: Optional[Grant]) -> bool:
        """True if a launch is given back, now that one of its workers has no task: the worker exits."""
        if grant is None or not self._giving.wishes:
            return grant is not None and grant.giving
        if not grant.giving and self._giving.chooses(grant, [one for one in self.grants.values() if one.allocated]):
            grant.giving = True
        return grant.giving

    def _cannot_start(self, grant: Grant, start: NodeCannotStart) -> None:
        """A node has stated a lasting reason: yod gives its processors back, and requests some of other nodes."""
        start.text, start.hint = start.text[:500], start.hint[:500]
        grant.failed.append(start.node)
        grant.allocated, grant.nodes = False, []
        again_s = self._failed_starts.failed(start, time.monotonic())
        self._probe_later()
        self._listener.on_failed(grant, start, again_s)
        self._listener.on_trouble()

    def _granted(self, grant: Grant, event: Dict[str, Any]) -> None:
        again = grant.allocated or grant.failed  # on other nodes, after a load that failed
        grant.allocated, grant.nodes, grant.launcher = True, event["nodes"], event["launcher"]
        self._listener.on_granted(grant)
        if not again:
            self._step = 1 if grant.waits else min(grant.size * 2, _MOST)
            self._waits_next = False
        self._grow()

    def _over(self, grant: Grant) -> None:
        del self.grants[grant.number]
        status = grant.process.returncode
        grant.read_words()
        self._listener.on_over(grant)
        if self.ending:
            return
        if not grant.allocated and not grant.stopping:
            if (grant.excludes or grant.failed) and grant.never:
                self._end_round()
                return
            if grant.never or (status in HOPELESS and grant.waits and not grant.excludes):
                if self._listener.on_hopeless("; ".join(grant.words) or f"yod exited with {status}"):
                    self._again = self._loop.after(_HOPE_S, self._ask_again)
                return
            if not grant.waits:  # that many are not free; a single one may be, and is granted at once
                self._waits_next = True
                self._grow()
                return
        if not grant.started and not grant.stopping:
            self._waits_next = True
            if not set(grant.failed) <= set(grant.excludes):
                # Its yod did not go on to other nodes: it was killed, or is of an earlier version. The next leaves out
                # what has failed, so that this happens once for each node in a round.
                self._grow()
                return
            self._failures += 1
            self._pause(self._failures)
            return
        self._failures = 0
        if not any(one.allocated for one in self.grants.values()):
            self._waits_next = True
            for one in self.grants.values():
                if one.grows:
                    self._leave(one)  # the job has none: its request is no longer behind all others
        self._grow()

    def _pause(self, failures: int) -> float:
        """Ask again after a while; returns the seconds."""
        pause_s = min(_AGAIN_S * 2.0 ** min(failures, 10), _AGAIN_MOST_S)
        if self._again is None:
            self._again = self._loop.after(pause_s, self._ask_again)
        return pause_s

    def _ask_again(self) -> None:
        self._again, self._pause_s = None, 0.0
        self._grow()

    def _end_round(self) -> None:
        """No node is left on which launches may start."""
        self._waits_next = True
        if any(one.allocated for one in self.grants.values()):
            return  # workers run; the nodes are tried again after a while, or when one of these launches is over
        why = self._failed_starts.end_round()
        if why:
            self._listener.on_unstartable(why)
        else:
            self._pause_s = self._pause(self._failed_starts.rounds)
            self._listener.on_trouble()

    def _try_again(self) -> None:
        """Try nodes again on which no launch could start a while ago. A request that waits in the line for others keeps
        its place."""
        self._probe = None
        if self.ending:
            return
        if self._failed_starts.forgive(time.monotonic()) and self._again is None:
            if any(not grant.allocated for grant in self.grants.values()):
                self._ask(self._unit, waits=False, could_use=self._wanted)
            else:
                self._grow()
        if self._failed_starts.nodes:
            self._probe_later()

    def _probe_later(self) -> None:
        if self._probe is None:
            self._probe = self._loop.after(FORGIVE_S, self._try_again)

    def _leave(self, grant: Grant) -> None:
        if not grant.stopping:
            grant.stopping = True
            grant.process.send_signal(signal.SIGTERM)

    def end(self, *, kill: bool) -> None:
        """Request no more; launches end with their workers, or at once with ``kill``."""
        self.ending = True
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._probe is not None:
            self._probe.cancel()
            self._probe = None
        for grant in list(self.grants.values()):
            if kill or not grant.allocated:
                grant.stopping = True
                grant.process.send_signal(signal.SIGTERM)

    def abandon(self) -> None:
        """Kill yods that have not ended; the RCA cleans up.

        A yod waits for a silent node until it answers, and its further messages are not needed.
        """
        for grant in self.grants.values():
            grant.process.kill()

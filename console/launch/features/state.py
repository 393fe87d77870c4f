"""``yod --state``: records a launch in a state object, which yod owns."""

from __future__ import annotations

import hashlib
import json
import os

from agents.job.start import start_dependents
from agents.job.state_requests import Owner
from agents.wire.launch_events import NodeSilent, RanksStopped, read
from console.errors import ConsoleError, UsageError
from console.jobs.objects import directory_of, make_directory, sweep
from console.launch.daemons.connect import user
from console.launch.events.completion_report import completion_rows
from console.launch.options.request import StateOptions
from redmesh.byte_text import from_bytes
from redmesh.idset import fold_ranks
from redmesh.sanitise import clean
from redmesh.state import (
    CANCELLED,
    DONE,
    FAILED,
    MAX_LINES,
    RUNNING,
    WAITING,
    StateError,
    StateObject,
    job_path,
    new_uuid,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agents.link.loop import Loop
    from console.launch.features.feature import LaunchContext
    from console.launch.options.request import Request
    from console.settings import Settings

#: Bytes of last lines kept in memory for all ranks together; each rank has a share of at most MAX_LINES.
_TAILS = 16 << 20
#: Events that become lines of the log.
_EVENTS_TOLD = frozenset(("note", "aborted", "silent", "back", "stopped", "signalled", "gives_way", "held", "released"))


def options(given: dict[str, Any]) -> StateOptions:
    """Read -state, -keep and -purge. Raises UsageError."""
    if "state" not in given:
        word = "keep" if "keep" in given else "purge"
        raise UsageError(f"-{word} is about a state object", f"yod -state -{word} …")
    if "keep" in given and "purge" in given:
        raise UsageError("-keep and -purge exclude each other", "leave one of them out")
    return StateOptions(new_uuid(), keep="keep" in given, purge="purge" in given)


def run_recorded(
    engine: LaunchContext, run: Callable[[], int], loop: Loop, request: Request, settings: Settings
) -> int:
    """Run the launch to its end and record its state; returns yod's exit status."""
    state = request.state
    assert state is not None
    directory = directory_of(settings.state_dir)
    make_directory(directory)
    try:
        # Commits need no fsync: a power failure that loses one also ends yod and the launch. An fsync in yod's loop
        # would delay the ranks' output.
        job = StateObject.create(job_path(directory, state.uuid), _meta(request, state, settings), durable=False)
    except StateError as error:
        raise ConsoleError(error.message, error.hint) from None
    state.owner = Owner(job, loop.after, lambda error: engine.front.complain(error.message, error.hint))
    engine.stream.listeners.append(Recorder(state.owner, engine))
    engine.front.status(f"job {state.uuid} (mesh job show {state.uuid[:8]})")
    try:
        status = run()
    finally:
        _close(state.owner)
    if state.purge and not status:
        os.unlink(job.path)
    start_dependents(job.path)
    try:
        sweep(directory, settings.job_days, settings.jobs_mb)
    except OSError:
        pass  # the next yod with a state object sweeps again
    return status


def _close(owner: Owner) -> None:
    owner.commit()
    try:
        if owner.job.meta("ended_at") is None:
            owner.job.finish(FAILED, "yod ended before the launch did")
        owner.job.close()
    except StateError:
        pass  # reported when it happened


def _meta(request: Request, state: StateOptions, settings: Settings) -> dict[str, Any]:
    environ = sorted(request.program.environ.items())
    return {
        "uuid": state.uuid,
        "kind": "launch",
        "user": user(),
        "uid": os.getuid(),
        "host": os.uname().nodename,
        "pid": os.getpid(),
        "command": json.dumps([from_bytes(word) for word in request.program.argv]),
        "cwd": from_bytes(request.program.cwd),
        "environment": hashlib.sha256(b"\0".join(name + b"=" + value for name, value in environ)).hexdigest(),
        "limit": settings.job_limit_mb << 20,
        "keep": int(state.keep),
    }


class Recorder:
    """Follows the events of a launch and records them."""

    def __init__(self, owner: Owner, engine: LaunchContext) -> None:
        self._owner, self._engine = owner, engine
        self._tails: dict[int, bytearray] = {}
        self._share = MAX_LINES
        self._size = 0

    def frame(self, _kind: int, payload: bytes) -> None:
        """Keep the end of a rank's output."""
        tail = self._tails.setdefault(int.from_bytes(payload[:4], "big"), bytearray())
        tail += payload[max(4, len(payload) - self._share) :]
        del tail[: -self._share]

    def event(self, event: dict[str, Any]) -> None:
        """Record an event."""
        record = getattr(self, f"_on_{event['event']}", None)
        if record is not None:
            self._owner.record(lambda job: record(job, event))
        elif event["event"] in _EVENTS_TOLD:
            self._owner.record(lambda job: job.log(_sentence(event), node=str(event.get("node", "")), at=event["at"]))

    def _on_allocated(self, job: StateObject, event: dict[str, Any]) -> None:
        job.freed()  # the processors of an earlier attempt that failed
        request = job.requested(event["size"], partial=False)
        job.answered(request, "acknowledged")
        for node in event["nodes"]:
            numbers = sorted(node["processors"])
            job.granted(request, str(node["name"]), fold_ranks(numbers), len(numbers))
        job.set_meta(launcher=event["launcher"], partition=event["partition"], size=event["size"])
        if not self._size:
            self._size = event["size"]
            self._share = max(256, min(MAX_LINES, _TAILS // self._size))
            job.add_array(0, self._size - 1)

    def _on_started(self, job: StateObject, event: dict[str, Any]) -> None:
        nodes = [str(node) for _, node in event["ranks"]]
        first = 0
        for rank in range(1, len(nodes) + 1):
            if rank == len(nodes) or nodes[rank] != nodes[first]:
                at = event["at"]
                job.change(first, rank - 1, RUNNING, node=nodes[first], at=at, started_at=at, attempt=1)
                first = rank
        job.set_state(RUNNING)

    def _on_exit(self, job: StateObject, event: dict[str, Any]) -> None:
        status, number = event["status"], event["signal"]
        state = CANCELLED if event["by_yod"] else FAILED if status or number else DONE
        cause = f"signal {number}" + (" from yod" if event["by_yod"] else "") if number else ""
        rank, at = event["rank"], event["at"]
        job.change(rank, rank, state, cause=cause, at=at, ended_at=at, exit=128 + number if number else status)

    def _on_lost(self, job: StateObject, event: dict[str, Any]) -> None:
        for rank in event["ranks"]:
            job.change(rank, rank, FAILED, cause=event["reason"], at=event["at"], ended_at=event["at"])
        job.log(_sentence(event), at=event["at"])

    def _on_end(self, job: StateObject, event: dict[str, Any]) -> None:
        for rank, tail in self._tails.items():
            job.last_lines(rank, from_bytes(bytes(tail)))
        counts = job.counts
        left = [state for state in (WAITING, RUNNING) if counts.get(state)]
        status = event["exit_status"]
        cause = "ranks were left: " + ", ".join(f"{counts[one]} {one}" for one in left) if left else ""
        job.freed()
        rows = "\n".join(map(clean, completion_rows(self._engine.launch.ranks, whole=True)))
        job.finish(FAILED if status else DONE, cause, exit_status=status, elapsed_s=event["elapsed_s"], report=rows)


def _sentence(event: dict[str, Any]) -> str:
    """An event as a line of the log."""
    kind = event["event"]
    if kind in ("note", "gives_way"):
        return clean(str(event["text"]))
    if kind == "aborted":
        return clean(f"rank {event['rank']} aborted: {event['text']}")
    if kind == "lost":
        return clean(f"lost: {', '.join(map(str, event['nodes']))}: {event['reason']}")
    record = read(event)
    if isinstance(record, NodeSilent):
        told = "answers again after" if record.back else "has been silent for"
        return clean(f"{record.node} {told} {record.seconds:.0f} s")
    if isinstance(record, RanksStopped):
        return f"stopped (SIGSTOP): rank {fold_ranks(record.ranks)}" if record.ranks else "no rank is stopped any more"
    if kind == "signalled":
        who = "every rank" if event["ranks"] is None else f"rank {fold_ranks(event['ranks'])}"
        return f"signal {event['signal']} to {who}"
    return str(kind)

"""Why jobs wait for processors, read from the system database without a CPA."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from console.jobs.foreign import job_of
from console.jobs.rows import FIRST
from console.settings import Settings
from db.allocation.limits import shares_of
from db.allocation.managers import Policy, read_policy
from db.errors import Invalid, StoreError
from db.views.viewer import open_viewer
from redmesh.text import counted


class Lines:
    """The requests that wait for processors, and the live launchers and the processors of the machine, as of one
    reading. ``processors``: those of nodes that are not drained."""

    def __init__(
        self, policy: Policy | None, waiting: Sequence[Any], live: Sequence[Any], processors: Sequence[Any]
    ) -> None:
        self._policy, self._waiting, self._live, self._processors = policy, waiting, live, processors
        self._by_process = {(row.pid, row.pid_started): row for row in waiting}

    def why(self, uuid: str, processes: Sequence[Sequence[int]], callers: Sequence[str] = ()) -> tuple[str, bool]:
        """Why a job with these launchers waits; "" if none of them waits. The second is true if it waits for ever,
        because the jobs ``callers``, which wait for this one, have all that it could get."""
        row = next((found for one in processes if (found := self._by_process.get((one[0], one[1])))), None)
        if row is None:
            return "", False
        limit = self._limit(uuid, row, self._live) if self._policy is not None and row.partition is None else ""
        if callers and len(processes) == 1:  # with further launches it has processors
            names = {caller[:8] for caller in callers}
            theirs = [one for one in self._live if one.uid == row.uid and job_of(one.command) in names]
            if limit and self._limit(uuid, row, theirs):
                return f"job {callers[0][:8]}, which waits for it, has all that its user may have ({limit})", True
            ids = {one.id for one in theirs}
            scope = [one for one in self._processors if row.partition is None or one.partition == row.partition]
            if theirs and all(one.launcher in ids for one in scope):
                whole = f"{'all ' if len(scope) > 1 else 'the '}{counted(len(scope), 'processor')}"
                return f"job {callers[0][:8]}, which waits for it, has {whole} of the mesh", True
        return limit or self._place(row), False

    def _place(self, row: Any) -> str:
        before = [
            one
            for one in self._waiting
            if (one.partition, one.part) == (row.partition, row.part)
            and (one.precedence, one.id) < (row.precedence, row.id)
        ]
        of_manager = f" of manager {row.manager}" if row.manager else ""
        if before:
            return f"{counted(len(before), 'request')} in front"
        return f"{FIRST}{of_manager}: {counted(row.size, 'processor')} not free yet"

    def _limit(self, uuid: str, row: Any, launchers: Sequence[Any]) -> str:
        assert self._policy is not None
        manager = next((one for one in self._policy.managers if one.name == row.manager), None)
        if manager is None:
            return ""
        live = [
            (one.user, one.command, one.size, one.login_processor, one.pid, one.pid_started)
            for one in launchers
            if one.uid == row.uid
        ]
        has, everywhere, jobs = shares_of(self._policy, manager, live)
        new_job = ("job", uuid[:8]) not in jobs
        return self._policy.refusal(manager, row.user, max(1, row.size), has, everywhere, new_job=new_job)[0]


def read_lines(settings: Settings) -> Lines | None:
    """Read the waiting requests; None if there are none, or if the database does not answer."""
    try:
        with open_viewer(settings.database, settings.login) as viewer:
            waiting = viewer.waiting()
            if not waiting:
                return None
            reading = viewer.read()
    except StoreError:
        return None
    batch = {one.id for one in reading.partitions if one.batch_job is not None}
    live = [one for one in reading.launchers if one.ended_at is None and one.partition not in batch]
    drained = {node.id for node in reading.nodes if node.state == "drained"}
    processors = [one for one in reading.processors if one.node not in drained]
    return Lines(_policy(settings), waiting, live, processors)


def _policy(settings: Settings) -> Policy | None:
    """The policy of the CPAs, or if it is unreadable, that of the configuration."""
    try:
        with open(f"{settings.state_dir}/keeper.json", encoding="utf-8") as file:
            return read_policy(json.load(file))
    except (OSError, ValueError, Invalid):
        given = {name: getattr(settings, name) for name in ("managers", "max_processors", "max_jobs")}
        try:
            return read_policy(given)
        except Invalid:
            return None

"""Why jobs wait for processors, read from the system database without a CPA."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from console.jobs.rows import FIRST
from console.settings import Settings
from db.allocation.limits import shares_of
from db.allocation.managers import Policy, read_policy
from db.errors import Invalid, StoreError
from db.views.viewer import open_viewer
from redmesh.text import counted


class Lines:
    """The requests that wait for processors, and the live launchers of the machine, as of one reading."""

    def __init__(self, policy: Policy | None, waiting: Sequence[Any], live: Sequence[Any]) -> None:
        self._policy, self._waiting, self._live = policy, waiting, live
        self._by_process = {(row.pid, row.pid_started): row for row in waiting}

    def why(self, uuid: str, processes: Sequence[Sequence[int]]) -> str:
        """Why a job with these launchers waits; "" if none of them waits."""
        found = [self._by_process[pid, started] for pid, started in processes if (pid, started) in self._by_process]
        return self._why(uuid, found[0]) if found else ""

    def _why(self, uuid: str, row: Any) -> str:
        limit = self._limit(uuid, row) if self._policy is not None and row.partition is None else ""
        if limit:
            return limit
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

    def _limit(self, uuid: str, row: Any) -> str:
        assert self._policy is not None
        manager = next((one for one in self._policy.managers if one.name == row.manager), None)
        if manager is None:
            return ""
        live = [
            (one.user, one.command, one.size, one.login_processor, one.pid, one.pid_started)
            for one in self._live
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
    return Lines(_policy(settings), waiting, live)


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

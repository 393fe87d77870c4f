"""A job or a launch, as its state object tells it at one moment (docs/state-object.md, table ``meta``)."""

from __future__ import annotations

import json

from agents.job.description import META, OPEN, YODS, parse
from redmesh.byte_text import from_system
from redmesh.state import HANDED_TO
from redmesh.state_reader import Resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from agents.job.description import Description

#: Final states of a job.
ENDED = ("done", "failed", "cancelled")


class JobRecord:
    """The summary of a job or launch, on this host or another.

    Times are seconds since 1970 (UTC), and 0.0 or None if there is none; texts are "" if there is none. ``trouble``,
    ``silent``, ``stopped`` and ``yods`` are as the owner last wrote them.
    """

    __slots__ = (
        "_described", "_description", "_entries", "begun_at", "calls_closed", "cause", "command", "counter", "counts",
        "created_at", "cwd", "ended_at", "exit_status", "handed_to", "held", "host", "keep", "kind", "launcher", "open",
        "owner_lost", "paced_at", "paced_from", "path", "pid", "progress", "proxied", "report", "silent", "state",
        "stopped", "trouble", "user", "uuid", "values", "waits_for", "why", "yods",
    )  # fmt: skip

    def __init__(self, entries: Mapping[str, Any], path: str, *, owner_lost: bool = False, proxied: str = "") -> None:
        """``entries``: those of ``meta``, and what a question about the job adds (agents/objects/http_query.py).

        ``owner_lost``: no process owns the object, although the job has not ended. ``proxied``: the login processor
        with the object, if these are entries of a copy.
        """
        self._entries, self.path, self.owner_lost, self.proxied = entries, path, owner_lost, proxied
        text = _Texts(entries)
        self.uuid, self.kind, self.state = text["uuid"], text["kind"], text["state"]
        self.user, self.host, self.cwd = text["user"], text["host"], text["cwd"]
        #: The arguments of a launch; of a job of tasks, those of the program that all tasks run.
        self.command: list[str] = entries.get("command") or []
        self._described = text[META]
        self._description: Description | None = None

        self.created_at = float(entries["created_at"])
        self.begun_at = float(entries.get("begun_at") or 0.0)  # when the first task began
        self.ended_at: float | None = entries.get("ended_at")
        #: Since when the rate counts, if not since the start, and how many tasks had run before.
        self.paced_at, self.paced_from = float(entries.get("paced_at") or 0.0), int(entries.get("paced_from") or 0)

        #: How many tasks or ranks there are of each state.
        self.counts: dict[str, int] = entries.get("counts") or {}
        self.progress: float | None = entries.get("progress")  # as the program says, 0.0 to 1.0
        self.exit_status: int | None = entries.get("exit_status")
        self.why, self.cause, self.report = text["why"], text["cause"], text["report"]  # of the end
        self.launcher: int | None = entries.get("launcher")

        self.held, self.keep = bool(entries.get("held")), bool(entries.get("keep"))
        self.open = bool(entries.get(OPEN)) and not self.has_ended
        self.calls_closed = bool(entries.get("calls_closed"))
        self.counter = int(entries.get("counter") or 0)  # of moves
        self.pid = int(entries.get("pid") or 0)  # of the last owner, on ``host``
        self.waits_for = text["waits_for"]  # what must end before a resumed job continues
        self.trouble = text["trouble"]  # why there are no processors
        self.silent = text["silent"]  # nodes that do not answer
        self.handed_to = text[HANDED_TO]  # the login processor to which it is on its way
        #: Process and start time of each yod of the owner.
        self.yods = [(int(pid), int(started or 0)) for pid, started in json.loads(text[YODS] or "[]")]
        #: Workers and tasks that somebody has stopped: ``node``, ``pid``, ``since``, ``task``.
        self.stopped: list[dict[str, Any]] = json.loads(text["stopped"] or "[]")
        self.values: dict[str, str] = entries.get("values") or {}  # the job's own values

    @property
    def has_tasks(self) -> bool:
        """True for a job of tasks, False for a launch."""
        return bool(self._described)

    @property
    def description(self) -> Description:
        """What was submitted. Raises StateError for a launch, and if no owner can have written it."""
        if self._description is None:
            self._description = parse(self._described, self.path)
        return self._description

    @property
    def resources(self) -> list[Resource]:
        """The processors that it has or had; none if they were not asked for (console/tracker/source.py asks)."""
        found = self._entries.get("resources") or ()
        return [Resource(one["node"], one["processors"], one["granted_at"], one["freed_at"]) for one in found]

    @property
    def has_ended(self) -> bool:
        """True if the job is done, failed or cancelled."""
        return self.state in ENDED

    @property
    def name(self) -> str:
        """The first digits of the UUID, as commands print them."""
        return self.uuid[:8]

    def as_json(self) -> dict[str, Any]:
        """All entries, as ``mesh job show --json`` prints them."""
        lost = {"owner_lost": True} if self.owner_lost else {}
        proxied = {"proxied": self.proxied} if self.proxied else {}
        return {**self._entries, "path": from_system(self.path), **proxied, **lost}


class _Texts:
    def __init__(self, entries: Mapping[str, Any]) -> None:
        self._entries = entries

    def __getitem__(self, key: str) -> str:
        return str(self._entries.get(key) or "")

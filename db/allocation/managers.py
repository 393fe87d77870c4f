"""Managers: parts of the machine with their users, applications, limits and priorities. No I/O.

A site defines them as ``[[manager]]`` in its configuration (docs/jobs.md). A request belongs to the first manager that
accepts its user and application. Otherwise it belongs to the manager without a name, which has every processor outside
all managers' parts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from db.allocation.free_ids import FreeIds
from db.errors import Invalid
from db.store.ranges import unfold
from redmesh.text import counted

MOST_PRIORITY = 1_000_000
LONGEST_NAME = 64
_LISTS = ("users", "applications", "nodes")
_NUMBERS = {"priority": MOST_PRIORITY, "max_processors": (1 << 31) - 1, "max_jobs": (1 << 31) - 1}
_KNOWN = ("name", "processors", *_LISTS, *_NUMBERS)
#: The command that the owner of a job gives its workers' launches (agents/job/job_owner.py): ``yodwork job UUID
#: program``.
_WORKER = "yodwork"
HINT = "docs/jobs.md has an example of [[manager]]"


class Manager(NamedTuple):
    """A part of the machine with its users and limits. A limit of 0 means no limit; empty lists admit everybody.

    ``nodes`` are names or patterns of names; ``processors`` is a folded list of ids. With neither, requests use the
    processors that are in no manager's part.
    """

    name: str
    users: tuple[str, ...] = ()
    applications: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    processors: str = ""
    priority: int = 0
    max_processors: int = 0
    max_jobs: int = 0

    @property
    def has_part(self) -> bool:
        """True if the manager has processors of its own."""
        return bool(self.nodes or self.processors)

    def takes(self, user: str, application: str) -> bool:
        """True if a request belongs to the manager."""
        of_users = not self.users or user in self.users
        return of_users and (not self.applications or any(fnmatchcase(application, one) for one in self.applications))


class Share(NamedTuple):
    """A user's usage of one manager's processors, or of the machine."""

    processors: int
    jobs: int


class Policy:
    """All managers of a mesh, the nameless one last, and the limits of a user on the whole machine."""

    def __init__(self, managers: Sequence[Manager], *, max_processors: int = 0, max_jobs: int = 0) -> None:
        self.managers = (*managers, Manager(""))
        self.max_processors, self.max_jobs = max_processors, max_jobs
        self._part_of: dict[str, str] = {}
        same: dict[tuple[Any, ...], str] = {}
        for one in self.managers:
            text = (tuple(sorted(one.nodes)), one.processors)
            self._part_of[one.name] = same.setdefault(text, one.name) if one.has_part else ""
        self.parts = tuple(dict.fromkeys(self._part_of.values()))
        self.limited = bool(max_processors or max_jobs) or any(
            one.max_processors or one.max_jobs for one in self.managers
        )
        self._masks: dict[str, bytes] = {}
        self._masked: Mapping[str, Sequence[int]] | None = None  # the processors for which the masks were built

    def manager_of(self, user: str, command: str) -> Manager:
        """The manager that a request belongs to."""
        application = application_of(command)
        return next(one for one in self.managers if one.takes(user, application))

    def part_of(self, manager: Manager) -> str:
        """The name of the manager's part: the first manager with the same part names it; "" for the rest of the
        machine."""
        return self._part_of[manager.name]

    def restrict(self, members: Mapping[str, Sequence[int]], free: Sequence[int], part: str) -> Sequence[int]:
        """The free ids that are in a part. ``members``: the processors of every node."""
        mask = self._mask(members, part)
        if isinstance(free, FreeIds):
            size = min(len(mask), len(free.flags))
            both = int.from_bytes(mask[:size], "little") & int.from_bytes(free.flags[:size], "little")
            return FreeIds(both.to_bytes(size, "little"))
        return [one for one in free if one < len(mask) and mask[one]]

    def has(self, members: Mapping[str, Sequence[int]], part: str, one: int) -> bool:
        """True if a processor is in a part."""
        mask = self._mask(members, part)
        return one < len(mask) and bool(mask[one])

    def _mask(self, members: Mapping[str, Sequence[int]], part: str) -> bytes:
        if self._masked is not members:
            self._masks, self._masked = self._make_masks(members), members
        return self._masks[part]

    def _make_masks(self, members: Mapping[str, Sequence[int]]) -> dict[str, bytes]:
        size = max((max(ids, default=-1) for ids in members.values()), default=-1) + 1
        rest = bytearray(size)
        for ids in members.values():
            for one in ids:
                rest[one] = 1
        masks: dict[str, bytes] = {}
        for manager in self.managers:
            if not manager.has_part or self.part_of(manager) != manager.name:
                continue
            mask = bytearray(size)
            for one in part_ids(manager, members):
                if rest[one]:  # a processor in two parts belongs to the first
                    mask[one], rest[one] = 1, 0
            masks[manager.name] = bytes(mask)
        return {**masks, "": bytes(rest)}

    def refusal(
        self, manager: Manager, user: str, asked: int, has: Share, everywhere: Share, *, new_job: bool
    ) -> tuple[str, bool]:
        """The limit that a request for ``asked`` more processors exceeds, in words ("" for none), and whether it
        always would.

        ``has``: the user's share of the manager's processors; ``everywhere``: of the machine.
        """
        told = f" of manager {manager.name}" if manager.name else ""
        for most, share, where in (
            (manager.max_processors, has, told),
            (self.max_processors, everywhere, " of this mesh"),
        ):
            if most and asked > most:
                return f"{counted(asked, 'processor')} asked for; the limit{where} is {most} for a user", True
            if most and share.processors + asked > most:
                return f"{user} uses {share.processors} of {counted(most, 'processor')}, the limit{where} for a user", (
                    False
                )
        for most, share, where in ((manager.max_jobs, has, told), (self.max_jobs, everywhere, " of this mesh")):
            if most and new_job and share.jobs >= most:
                return f"{user} runs {share.jobs} of {counted(most, 'job')}, the limit{where} for a user", False
        return "", False

    def left(self, manager: Manager, has: Share, everywhere: Share) -> int:
        """How many more processors a user may have."""
        most = (1 << 31) - 1
        if manager.max_processors:
            most = min(most, manager.max_processors - has.processors)
        if self.max_processors:
            most = min(most, self.max_processors - everywhere.processors)
        return max(0, most)


def application_of(command: str) -> str:
    """The program of a launch: its file name; for a job's workers, the program of the tasks."""
    words = command.split()
    if words and os.path.basename(words[0]) == _WORKER:
        words = words[3:]
    return os.path.basename(words[0]) if words else ""


def job_of(command: str, login: int, pid: int, pid_started: int) -> tuple[Any, ...]:
    """A key that launches of one job share: the job's first digits, or for a single launch its process. A process that
    nobody sees (pid 0, in a pid namespace of its own) has no other launches."""
    job = worker_of(command)
    return ("job", job) if job else (login, pid, pid_started) if pid else (object(),)


def worker_of(command: str) -> str:
    """The first digits of the job whose workers a launch starts; "" for other launches."""
    words = command.split(None, 3)
    return words[2] if len(words) > 2 and os.path.basename(words[0]) == _WORKER and words[1] == "job" else ""


def part_ids(manager: Manager, members: Mapping[str, Sequence[int]]) -> list[int]:
    """The existing processors that a manager's part names."""
    found = [
        one
        for name, ids in members.items()
        if any(fnmatchcase(name, pattern) for pattern in manager.nodes)
        for one in ids
    ]
    listed = set(unfold(manager.processors))
    return [*found, *(one for ids in members.values() for one in ids if one in listed)] if listed else found


def parse(tables: Any, where: str = "manager") -> list[Manager]:
    """Parse ``[[manager]]``. Raises Invalid, which names the manager and the key."""
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise Invalid(f"{where}: manager is a text, or tables that begin with [[manager]]", HINT)
    found: list[Manager] = []
    for number, table in enumerate(tables, 1):
        name = table.get("name")
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
            raise Invalid(f"{where}: [[manager]] number {number} needs a name of 1 to {LONGEST_NAME} characters", HINT)
        if any(one.name == name for one in found):
            raise Invalid(f"{where}: two managers are called {name!r}", "give each another name")
        found.append(_parse_one(table, f"{where}: manager {name!r}"))
    return found


def _parse_one(table: Mapping[str, Any], where: str) -> Manager:
    for key, value in table.items():
        if key not in _KNOWN:
            raise Invalid(f"{where}: no key is called {key!r}", f"known keys: {', '.join(_KNOWN)}")
        if key in _LISTS and not (isinstance(value, list) and value and all(isinstance(one, str) for one in value)):
            raise Invalid(f"{where}: {key} must be a list of names, not {value!r}", HINT)
        if key in _NUMBERS and (type(value) is not int or not 0 <= value <= _NUMBERS[key]):
            raise Invalid(f"{where}: {key} must be a whole number from 0 to {_NUMBERS[key]}, not {value!r}", HINT)
    processors = table.get("processors", "")
    try:
        ids = unfold(processors)
        right = all(one >= 0 for one in ids) and bool(ids or "processors" not in table)
    except (ValueError, AttributeError, TypeError):
        right = False
    if not right:
        raise Invalid(f'{where}: processors must be a list of ids such as "0..15,32", not {processors!r}', HINT)
    return Manager(
        table["name"],
        tuple(table.get("users", ())),
        tuple(table.get("applications", ())),
        tuple(table.get("nodes", ())),
        processors,
        table.get("priority", 0),
        table.get("max_processors", 0),
        table.get("max_jobs", 0),
    )


def check_parts(managers: Sequence[Manager], members: Mapping[str, Sequence[int]], where: str = "manager") -> None:
    """Raise Invalid if a part is empty on this machine, or overlaps a part that is not the same."""
    owner: dict[int, Manager] = {}
    for one in managers:
        ids = part_ids(one, members) if one.has_part else []
        if one.has_part and not ids:
            named = ", ".join(one.nodes) or f"processors {one.processors}"
            raise Invalid(
                f"{where}: manager {one.name!r} has no processor: no node of this mesh has {named}",
                f"nodes: {', '.join(list(members)[:8])}",
            )
        for processor in ids:
            other = owner.setdefault(processor, one)
            if (sorted(other.nodes), other.processors) != (sorted(one.nodes), one.processors):
                raise Invalid(
                    f"{where}: managers {other.name!r} and {one.name!r} both have processor {processor}",
                    "give them the same part, which they share by priority, or parts that do not overlap",
                )


def read_policy(tables: Sequence[dict[str, Any]], max_processors: int, max_jobs: int) -> Policy | None:
    """The managers in the tables ``[[manager]]``, with the limits; None if there are none. Raises Invalid."""
    managers = parse(list(tables))
    limited = managers or max_processors or max_jobs
    return Policy(managers, max_processors=max_processors, max_jobs=max_jobs) if limited else None

"""The processors that pingd handles: all of its selectors must match."""

import os
import sys

from console.cli.map.rows import side_seen
from console.errors import UsageError
from db.views.viewer import Picture
from redmesh.sanitise import clean

TYPE_CHECKING = False  # typing is slow to import; checkers know the name
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


def leading_number(batch_job: str) -> str:
    """The number of a batch job, as the original pingd prints it: the leading digits of its id, or the whole id."""
    digits = batch_job[: len(batch_job) - len(batch_job.lstrip("0123456789"))]
    return digits or batch_job


class Selection:
    """A selection of processors, evaluated for every picture. Raises UsageError for an invalid list."""

    def __init__(self, given: "Mapping[str, Any]", bare: "Sequence[str]") -> None:
        self._job: int | None = given.get("job")
        self._batch_job: str | None = given.get("pbsjob")
        self._mine = "mine" in given
        self._user: str | None = given.get("user")
        self._missing: set[str] = set()
        self._wanted: dict[str, Any] | None = None
        if bare and "list" in given:
            raise UsageError(f"-list and {bare[0]!r}: give one list", "separate its parts by commas")
        text = ",".join(bare) or given.get("list")
        if text is not None:
            from console.launch.options.lists import parse_list

            self._wanted = parse_list(text)
        chosen = (self._wanted, self._job, self._batch_job, self._user)
        self.is_all = not self._mine and all(one is None for one in chosen)

    def ids(self, picture: Picture) -> "set[int] | None":
        """The selected processors; None for all."""
        if self.is_all:
            return None
        ids = set(picture.processors) if self._wanted is None else self._listed(picture)
        return {one for one in ids if self._holds(picture, picture.processors[one])}

    def _holds(self, picture: Picture, row: "Any") -> bool:
        partition = picture.partitions.get(row.partition)
        if self._job is not None and row.launcher != self._job:
            return False
        if self._batch_job is not None:
            name = partition.batch_job if partition else None
            if name is None or self._batch_job not in (name, name.partition(".")[0], leading_number(name)):
                return False
        owner = picture.launchers.get(row.launcher) or partition
        if self._mine and (owner is None or owner.uid != os.getuid()):
            return False
        return self._user is None or (owner is not None and self._user in (owner.user, str(owner.uid)))

    def _listed(self, picture: Picture) -> "set[int]":
        assert self._wanted is not None
        ids: set[int] = set()
        for first, last in self._wanted["processors"]:
            there = [one for one in range(first, last + 1) if one in picture.processors] if last - first < 1e7 else []
            ids.update(there)
            if len(there) < last - first + 1:
                what = f"no processor {first}" if first == last else f"not all of the processors {first}..{last}"
                self._tell(picture, what)
        names = {node.name: node.id for node in picture.nodes.values()}
        for name in self._wanted["nodes"]:
            if name in names:
                ids.update(row.id for row in picture.processors.values() if row.node == names[name])
            else:
                self._tell(picture, f"no node {clean(name)}")
        return ids

    def _tell(self, picture: Picture, what: str) -> None:
        if what not in self._missing:  # print it once: --watch selects repeatedly
            self._missing.add(what)
            where = "this mesh" if side_seen(picture) is None else "this side of the machine"
            print(f"pingd: {where} has {what}", file=sys.stderr)

"""The nodes that came from a batch job by ``mesh grow``, and when they leave (console/deploy/mesh/growth.py)."""

from __future__ import annotations

import json
import os

from console.tui.format import clock
from redmesh.sanitise import clean


class GrownNodes:
    """Reads the record of grown jobs when it changes. Only the mesh's owner can read it; others see nothing."""

    def __init__(self, state_dir: str) -> None:
        self._path = f"{state_dir}/grown.json"
        self._seen: tuple[int, int] | None = None
        self._origins: dict[str, str] = {}

    def read(self) -> dict[str, str]:
        """``slurm job 12, until 14:05:00`` by the node's name."""
        try:
            status = os.stat(self._path)
            seen = status.st_mtime_ns, status.st_ino
            if seen != self._seen:
                self._seen, self._origins = seen, self._parse()
        except OSError:
            self._seen, self._origins = None, {}
        return self._origins

    def _parse(self) -> dict[str, str]:
        with open(self._path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        try:
            return {str(node): _origin(row) for row in json.loads(text) for node in row["nodes"]}
        except (ValueError, TypeError, KeyError, RecursionError):
            return {}  # `mesh grow` and `mesh shrink` say what is wrong with it


def _origin(row: dict[str, object]) -> str:
    ends_at = row.get("ends_at")
    until = f", until {clock(ends_at)}" if isinstance(ends_at, int | float) else ""
    return clean(f"{row['manager']} job {row['job']}") + until

"""The hosts that may have files or processes of ours, with their last known sizes: ``STATE/hosts.json``.

A host is recorded before anything is put there and removed when nothing is left, so that ``mesh down`` knows where to
go even after a crash, or after the configuration has changed.
"""

import json
from collections.abc import Iterable
from typing import Any

from console.deploy.hosts.description import Host
from console.deploy.trust.authority import write_private
from console.errors import ConsoleError


class HostStateFile:
    """The file, read once and written at every change. Raises ConsoleError if it is unreadable."""

    def __init__(self, state_dir: str) -> None:
        self._path = f"{state_dir}/hosts.json"
        self._rows: dict[str, dict[str, Any]] = {}
        try:
            with open(self._path, encoding="utf-8") as file:
                rows = json.load(file)
            self._rows = {name: dict(row) for name, row in rows.items()}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise ConsoleError(
                f"{self._path} cannot be read: {error}", "it says which hosts have an agent of this mesh"
            ) from None

    def size_of(self, name: str) -> tuple[int, int] | None:
        """The last known processors and GPUs of a host; None if unknown."""
        row = self._rows.get(name)
        return (int(row["counted"][0]), int(row["counted"][1])) if row and "counted" in row else None

    def has_ours(self) -> list[Host]:
        """Hosts that may have something of ours, as described at that time."""
        return [_host(row["host"]) for row in self._rows.values() if row.get("ours")]

    def put(self, host: Host, processors: int, gpus: int) -> None:
        """Record a host before something is put there; call :meth:`write` next."""
        self._rows[host.name] = {"host": host._asdict(), "counted": [processors, gpus], "ours": True}

    def clear(self, names: Iterable[str]) -> None:
        """Nothing of ours is left on these hosts."""
        for name in names:
            if name in self._rows:
                self._rows[name]["ours"] = False
        self.write()

    def write(self) -> None:
        """Write the file."""
        write_private(self._path, json.dumps(self._rows, indent=1).encode() + b"\n")


def _host(row: dict[str, Any]) -> Host:
    known = {key: value for key, value in row.items() if key in Host._fields}
    return Host(**{**known, "labels": tuple(known.get("labels", ()))})

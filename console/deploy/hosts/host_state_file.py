"""``STATE/hosts.json``: the hosts that may have files or processes of the mesh, with their last known sizes.

A host is marked before anything is installed on it, and unmarked when nothing is left there, so that ``mesh down``
knows all hosts even after a crash or a change of the configuration.
"""

import contextlib
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
        """Hosts that may have files or processes of the mesh, as they were described when these were installed."""
        return [_host(row["host"]) for row in self._rows.values() if row.get("ours")]

    def put(self, host: Host, processors: int, gpus: int) -> None:
        """Mark a host before something is installed on it; call :meth:`write` next."""
        self._rows[host.name] = {"host": host._asdict(), "counted": [processors, gpus], "ours": True}

    def clear(self, names: Iterable[str]) -> None:
        """Record that nothing of the mesh is left on these hosts; their sizes stay recorded."""
        for name in names:
            if name in self._rows:
                self._rows[name]["ours"] = False
        with contextlib.suppress(FileNotFoundError):  # the keeper of a job's mesh removes the whole directory
            self.write()

    def write(self) -> None:
        """Write the file."""
        write_private(self._path, json.dumps(self._rows, indent=1).encode() + b"\n")


def _host(row: dict[str, Any]) -> Host:
    known = {key: value for key, value in row.items() if key in Host._fields}
    return Host(**{**known, "labels": tuple(known.get("labels", ()))})

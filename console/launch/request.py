"""What somebody asked yod to do: one object, made by the command line or a library."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Request:
    """One launch as it was asked for. ``size`` counts ranks; ``input`` is ``shared``, ``all``, ``none`` or a rank."""

    __slots__ = (
        "argv",
        "batch",
        "cookie",
        "cpus_per_task",
        "cwd",
        "distribution",
        "environ",
        "fanout",
        "input",
        "json",
        "kill",
        "label",
        "overcommit",
        "partition",
        "path",
        "quiet",
        "size",
        "umask",
        "verbose",
        "wait_s",
        "wanted",
    )

    def __init__(
        self,
        path: bytes,
        argv: list[bytes],
        *,
        environ: Mapping[bytes, bytes],
        cwd: bytes,
        umask: int,
        size: int | None = None,
        wanted: dict[str, Any] | None = None,
        cpus_per_task: int = 1,
        overcommit: bool = False,
        distribution: str = "block",
        input: str | int = "shared",
        fanout: int = 32,
        wait_s: float = 0.0,
        partition: int | None = None,
        cookie: str | None = None,
        batch: bool = False,
        kill: bool = False,
        label: bool = False,
        json: bool = False,
        quiet: bool = False,
        verbose: bool = False,
    ) -> None:
        self.path, self.argv, self.environ, self.cwd, self.umask = path, argv, environ, cwd, umask
        self.size, self.wanted = size, wanted
        self.cpus_per_task, self.overcommit, self.distribution = cpus_per_task, overcommit, distribution
        self.input, self.fanout, self.wait_s = input, fanout, wait_s
        self.partition, self.cookie = partition, cookie  # set inside a batch job
        self.batch, self.kill = batch, kill
        self.label, self.json, self.quiet, self.verbose = label, json, quiet, verbose

    @property
    def command(self) -> str:
        """The command line for people: arguments joined, at most 200 characters."""
        return b" ".join(self.argv)[:600].decode("utf-8", "replace")[:200]

    def allocation(self, key: str, login: str, pid: int, pid_started: int) -> dict[str, Any]:
        """The CPA's ``allocate``."""
        return {
            "op": "allocate",
            "key": key,
            "size": self.size,
            "wanted": self.wanted,
            "exclude": None,
            "cpus_per_task": self.cpus_per_task,
            "overcommit": self.overcommit,
            "partition": self.partition,
            "cookie": self.cookie,
            "placement": "default",
            "wait_s": self.wait_s,
            "login": login,
            "pid": pid,
            "pid_started": pid_started,
            "command": self.command,
        }

"""Real meshes over namespace hosts: brought up by ``mesh up`` through ssh, commands run on the login processor."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.support.hosts import NamespaceHost, NamespaceHosts
from tests.support.mesh import PrivateMesh, Run
from tests.support.waiting import silence

ROOT = str(Path(__file__).resolve().parents[2])
#: Short times, so that a test of what follows a silence does not take a minute.
QUICK = {"suspect_s": 3.0, "down_s": 6.0, "failed_s": 2.0}


class FarMesh(PrivateMesh):
    """A mesh whose nodes are ``hosts``, with its state and configuration in directories of its own."""

    def __init__(self, hosts: NamespaceHosts, processors: int = 2, **settings: Any) -> None:
        super().__init__(processors * len(hosts), len(hosts))
        self.hosts = hosts
        ssh = self.home / ".ssh"
        ssh.mkdir(mode=0o700)
        shutil.copy(hosts.keys.config, ssh / "config")
        self.env["HOME"] = str(self.home)
        settings = {**QUICK, **settings}
        settings.update({key: silence(settings[key]) for key in ("suspect_s", "down_s")})
        lines = [f"{key} = {value!r}" for key, value in settings.items()]
        lines += ["", "[[hosts]]", f'name = "h[1-{len(hosts)}]"', f"processors = {processors}", ""]
        (self.home / "config" / "redmesh").mkdir()
        (self.home / "config" / "redmesh" / "mesh.toml").write_text("\n".join(lines))

    def run(
        self,
        *command: str,
        check: bool = False,
        timeout_s: float = 60.0,
        input: str | None = None,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Run:
        """As PrivateMesh has it, on the login processor; in the directory /, which every host has."""
        on_login = self.hosts.command(*command, cwd=cwd or "/")
        return super().run(*on_login, check=check, timeout_s=timeout_s, input=input, env=env, cwd=self.work)

    def start(self, *command: str, **options: Any) -> subprocess.Popen[Any]:
        """As PrivateMesh has it, on the login processor."""
        return super().start(*self.hosts.command(*command), **options)

    def up(self, *options: str) -> Run:
        """``mesh up`` of every host."""
        return self.run("mesh", "up", *options, check=True)

    def states(self) -> dict[str, str]:
        """The state of every node, as the system database has it."""
        return {node["name"]: node["state"] for node in self.json("showmesh")["nodes"]}

    def node_log(self, host: NamespaceHost, daemon: str = "pct") -> str:
        """The log of a host's daemon."""
        return "".join(path.read_text() for path in host.home.rglob(f"{daemon}*.jsonl"))

    def kill_on(self, host: NamespaceHost, word: str, number: int = signal.SIGKILL) -> list[int]:
        """Signal the processes of a host whose name (as the kernel has it) is ``word``; their pids."""
        victims = [pid for pid in host.processes() if _name(pid) == word]
        for pid in victims:
            os.kill(pid, number)
        return victims

    def pids_on(self, host: NamespaceHost, word: str) -> list[int]:
        """Processes of a host whose name is ``word``."""
        return [pid for pid in host.processes() if _name(pid) == word]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


class TlsMesh(PrivateMesh):
    """A mesh of this machine whose nodes are reached as if they were on others (tests/support/far_up.py)."""

    def __init__(self, processors: int, nodes: int) -> None:
        super().__init__(processors, nodes, PYTHONPATH=ROOT)

    def up(self, *options: str) -> Run:
        processors, nodes, _ = self.size
        size = ("--processors", str(processors), "--nodes", str(nodes))
        return self.run(sys.executable, "-P", "-m", "tests.support.far_up", *size, *options, check=True)


Mesh = TypeVar("Mesh", bound=PrivateMesh)


@contextmanager
def while_up(made: Mesh) -> Iterator[Mesh]:
    """The mesh, up, and down again afterwards; what it leaves behind is a failure."""
    try:
        made.up()
        yield made
    finally:
        left = made.close()
    assert not left, "left behind:\n" + "\n".join(left)

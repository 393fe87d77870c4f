"""Real meshes on namespace hosts: ``mesh up`` starts them over ssh, and commands run on the login processor."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.addresses import network
from tests.support.agent_archive import give_agent
from tests.support.hosts import NamespaceHost, NamespaceHosts
from tests.support.look import states
from tests.support.mesh import PrivateMesh, Run
from tests.support.waiting import PATIENCE_S, silence

ROOT = str(Path(__file__).resolve().parents[2])
#: Short limits, so that tests of silent nodes do not take a minute.
QUICK = {"suspect_s": 3.0, "down_s": 6.0, "failed_s": 2.0}


class FarMesh(PrivateMesh):
    """A mesh whose nodes are ``hosts``, with private state and configuration directories."""

    def __init__(self, hosts: NamespaceHosts, processors: int = 2, **settings: Any) -> None:
        super().__init__(processors * len(hosts), len(hosts))
        give_agent(self.state)
        self.hosts = hosts
        self._database = str(settings.get("database", ""))
        ssh = self.home / ".ssh"
        ssh.mkdir(mode=0o700)
        shutil.copy(hosts.keys.config, ssh / "config")
        settings = {**QUICK, **settings}
        settings.update({key: silence(settings[key]) for key in ("suspect_s", "down_s")})
        lines = [f"{key} = {value!r}" for key, value in settings.items()]
        lines += ["", "[[hosts]]", f'name = "h[1-{len(hosts)}]"', f"processors = {processors}", ""]
        (self.home / "config" / "redmesh").mkdir()
        (self.home / "config" / "redmesh" / "mesh.toml").write_text("\n".join(lines))

    @property
    def database(self) -> str:
        """The URL of the system database, as the configuration file has it."""
        return self._database or super().database

    def run(
        self,
        *command: str,
        check: bool = False,
        timeout_s: float = PATIENCE_S,
        input: str | None = None,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Run:
        """Like PrivateMesh.run, but on the login processor, and by default in /, a directory that every host has."""
        on_login = self.hosts.command(*command, cwd=cwd or "/")
        return super().run(*on_login, check=check, timeout_s=timeout_s, input=input, env=env, cwd=self.work)

    def start(self, *command: str, **options: Any) -> subprocess.Popen[Any]:
        """Like PrivateMesh.start, but on the login processor."""
        return super().start(*self.hosts.command(*command), **options)

    def up(self, *options: str) -> Run:
        """Run ``mesh up`` for every host."""
        return self.run("mesh", "up", *options, check=True)

    def states(self) -> dict[str, str]:
        """Return the state of every node in the system database."""
        return states(self)

    def node_log(self, host: NamespaceHost, daemon: str = "pct") -> str:
        """Return the log of a daemon on a host."""
        return "".join(path.read_text() for path in host.home.rglob(f"{daemon}*.jsonl"))

    def kill_on(self, host: NamespaceHost, word: str, number: int = signal.SIGKILL) -> list[int]:
        """Signal the processes of a host whose kernel name (comm) is ``word``; return their pids."""
        victims = [pid for pid in host.processes() if _name(pid) == word]
        for pid in victims:
            os.kill(pid, number)
        return victims

    def pids_on(self, host: NamespaceHost, word: str) -> list[int]:
        """Return the pids of a host's processes whose kernel name (comm) is ``word``."""
        return [pid for pid in host.processes() if _name(pid) == word]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


class TlsMesh(PrivateMesh):
    """A mesh of this machine whose nodes are reached over TLS, as if on other machines (tests/support/far_up.py)."""

    def __init__(self, processors: int, nodes: int) -> None:
        super().__init__(processors, nodes, PYTHONPATH=ROOT, FAR_NETWORK=network())

    def up(self, *options: str) -> Run:
        processors, nodes, _ = self.size
        size = ("--processors", str(processors), "--nodes", str(nodes))
        return self.run(sys.executable, "-P", "-m", "tests.support.far_up", *size, *options, check=True)

"""Real meshes over sshds on loopback: agents are deployed to this machine, into a private HOME."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.addresses import address, free_port
from tests.support.agent_archive import give_agent
from tests.support.hosts import LoopbackHosts
from tests.support.mesh import PrivateMesh, Run


class LoopbackMesh(PrivateMesh):
    """A mesh whose configuration has one ``[[hosts]]`` table for each of ``tables``."""

    def __init__(self, hosts: LoopbackHosts, *tables: Mapping[str, Any], **settings: Any) -> None:
        super().__init__(1, 1)
        give_agent(self.state)
        self.hosts = hosts
        self.port = free_port(address(1))  # the default port may be in use by agents of this machine
        self.env["REDMESH_CONFIG"] = str(self.home / "mesh.toml")
        self.file = self.home / "mesh.toml"
        self.describe(*tables, **settings)

    def up(self, *options: str) -> Run:
        """Run ``mesh up`` for every host."""
        return self.run("mesh", "up", *options, check=True)

    def close(self) -> list[str]:
        left = super().close()
        return self.left_on_hosts() + left

    def describe(self, *tables: Mapping[str, Any], **settings: Any) -> None:
        """Rewrite the configuration file."""
        top = {
            "ssh_config": str(self.hosts.keys.config),
            "login_address": address(200),
            "agent_port": self.port,
            "failed_s": 2.0,
            **settings,
        }
        lines = [f"{key} = {_toml(value)}" for key, value in top.items()]
        for table in tables:
            lines += ["", "[[hosts]]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
        self.file.write_text("\n".join(lines) + "\n")
        self.file.chmod(0o644)

    @property
    def name(self) -> str:
        """The name of the mesh: a checksum of its state directory's path."""
        import binascii

        return f"{binascii.crc32(os.fsencode(os.path.realpath(self.state))):08x}"

    @property
    def far_state(self) -> Path:
        """The state directory of the agents."""
        return self.hosts.home / ".local" / "state" / "redmesh"

    def outcome(self, *command: str) -> dict[str, dict[str, Any]]:
        """Run a command with ``--json``; return its row for each host, by name."""
        import json

        return {row["name"]: row for row in json.loads(self.run(*command, "--json").stdout)["hosts"]}

    def left_on_hosts(self) -> list[str]:
        """Return processes and files of this mesh that are on the hosts."""
        left = [str(path) for path in self.hosts.home.rglob("*") if self.name in path.name or path.suffix == ".pyz"]
        above = "/tmp" if os.geteuid() else "/run"
        left += [str(path) for path in Path(f"{above}/redmesh-{os.geteuid()}").glob(f"{self.name}-*")]
        return left + [f"process {pid}: {words}" for pid, words in self.agents().items()]

    def agents(self) -> dict[int, str]:
        """Map the pids of processes whose command line names this mesh to their command lines."""
        found = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    words = Path(f"/proc/{entry}/cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ")
                except OSError:
                    continue
                if f"nodes/{self.name}-" in words:
                    found[int(entry)] = words
        return found


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)

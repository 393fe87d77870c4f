"""The three settings of the storm: each a real mesh in directories of its own, and what of it can be reached."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.storm import world
from tests.storm.world import Process
from tests.support.far_mesh import FarMesh
from tests.support.hosts import NOT_ROOT, NamespaceHost, NamespaceHosts, can_have_namespaces
from tests.support.mariadb import Server, find_server
from tests.support.mesh import PrivateMesh
from tests.support.reaper import private_directory
from tests.support.stores import NO_SERVER

#: Sizes of the small disks; the largest thing in the state directory is a copy of the program, 5 MB.
STATE_SIZE, RUN_SIZE, RAM_DISK_SIZE = "48m", "4m", "32m"


class Unavailable(Exception):
    """A setting that cannot be had on this machine; says why."""


class Setting:
    """A personal mesh on SQLite; the others differ in what they override."""

    name = "sqlite"
    nodes: tuple[str, ...] = ("n0", "n1", "n2", "n3")
    slots = 2  # processors of a node
    cpas = 1

    def __init__(self, small_disks: bool) -> None:
        """``small_disks``: this process has a mount namespace of its own, in which it may mount some."""
        self.small_disks = small_disks
        self.mounted: list[Path] = []
        try:
            self.mesh = self.make_mesh()
        except BaseException:
            self.release()
            raise
        self.env = self.mesh.env

    @property
    def processors(self) -> int:
        return len(self.nodes) * self.slots

    def make_mesh(self) -> PrivateMesh:
        mesh = PrivateMesh(self.processors, len(self.nodes), self.cpas)
        self.configure(mesh, f"processors = {self.processors}\nnodes = {len(self.nodes)}\ncpas = {self.cpas}\n")
        self.mount_small_disks(mesh)
        return mesh

    @staticmethod
    def configure(mesh: PrivateMesh, text: str) -> None:
        # in a file, so that a yod which starts the mesh by itself starts the same one
        (mesh.home / "config" / "redmesh").mkdir()
        (mesh.home / "config" / "redmesh" / "mesh.toml").write_text(text)

    def mount_small_disks(self, mesh: PrivateMesh) -> None:
        if not self.small_disks:
            return
        for path, size in (
            (mesh.home / "state", STATE_SIZE),
            (mesh.home / "run", RUN_SIZE),
            (Path("/dev/shm"), RAM_DISK_SIZE),
        ):
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=700,size={size}", "storm", path], check=True)
            self.mounted.append(path)

    # What is where

    @property
    def state(self) -> Path:
        return self.mesh.state

    def run_directories(self) -> list[Path]:
        """What a machine removes when it tidies up runtime directories."""
        return [self.mesh.home / "run" / "redmesh"]

    def full_disks(self) -> dict[str, Path]:
        """Small file systems that can be filled, by what they are for."""
        if not self.small_disks:
            return {}
        return {
            "state": self.mesh.home / "state",
            "run": self.mesh.home / "run",
            "ram-disk": Path("/dev/shm"),
        }

    def argv(self, *words: str) -> list[str]:
        """The command line that runs a command where users type it."""
        return list(words)

    @property
    def cwd(self) -> Path:
        return self.mesh.work

    # Processes

    def owns(self, process: Process) -> str | None:
        """The host that a daemon of this mesh runs on, "" for the login processor; None for what is not ours."""
        return "" if any(str(self.state) in word for word in process.words) else None

    def daemons(self, found: list[Process]) -> dict[tuple[str, str], list[int]]:
        """The pids of this mesh's daemons and launch children, by role and node or name."""
        daemons: dict[tuple[str, str], list[int]] = {}
        for process in found:
            role, name = world.role(process)
            host = self.owns(process) if role else None
            if host is not None:
                daemons.setdefault((role, name or host), []).append(process.pid)
        return daemons

    # The database

    @property
    def database_is_file(self) -> bool:
        return True

    def release(self) -> None:
        pass

    # The end

    def heal(self) -> None:
        """Everything that a fault may have left changed, beyond the mesh's own processes."""

    def destroy(self) -> list[str]:
        """Take the mesh down and remove everything of it; what should not have been left."""
        try:
            left = self.mesh.close()
        except (AssertionError, subprocess.SubprocessError, OSError) as error:
            left = [f"the mesh could not be closed: {error!r}"]
        self._end_processes()
        for path in reversed(self.mounted):
            subprocess.run(["umount", "-l", path], check=False, capture_output=True)
        shutil.rmtree(self.mesh.home, ignore_errors=True)
        self.release()
        return left

    def _end_processes(self) -> None:
        # by force, for a storm may have left a mesh in any condition
        for _ in range(20):
            pids = [pid for some in self.daemons(list(world.processes())).values() for pid in some]
            if not pids:
                return
            world.kill_all(pids)


class MariadbSetting(Setting):
    """A personal mesh with 3 CPAs over a MariaDB server of its own, with the two accounts that a site has."""

    name = "mariadb"
    nodes = ("n0", "n1", "n2", "n3", "n4", "n5")
    slots = 1
    cpas = 3

    def __init__(self, small_disks: bool) -> None:
        if find_server() is None:
            raise Unavailable(NO_SERVER)
        self.server = Server(str(private_directory("rm-sql-")))
        self.server.install()
        self.server.start()
        super().__init__(small_disks)

    def make_mesh(self) -> PrivateMesh:
        mesh = super().make_mesh()
        url = self.server.new_database()
        accounts = ("--cpa-account", "storm_cpa@localhost", "--view-account", "storm_view@localhost")
        mesh.run("mesh", "db", "init", "--run", "--url", url, *accounts, check=True)
        # kept beside the configuration, as a site does: the state directory may be full
        for name in ("cpa", "view"):
            shutil.copy(mesh.state / f"{name}.url", mesh.home / "config" / f"{name}.url")
        mesh.env["REDMESH_DATABASE"] = (mesh.home / "config" / "view.url").read_text().strip()
        mesh.env["REDMESH_CPA_DATABASE_FILE"] = str(mesh.home / "config" / "cpa.url")
        return mesh

    @property
    def database_is_file(self) -> bool:
        return False

    def heal(self) -> None:
        if self.server.process is None or self.server.process.poll() is not None:
            self.server.start()
        self.server.signal(signal.SIGCONT)

    def release(self) -> None:
        self.server.stop()
        shutil.rmtree(self.server.directory, ignore_errors=True)


class SshSetting(Setting):
    """Four hosts in network namespaces, reached over SSH; the login processor's database is SQLite."""

    name = "ssh"
    nodes = ("h1", "h2", "h3", "h4")
    slots = 2

    def __init__(self, small_disks: bool) -> None:
        if not can_have_namespaces():
            raise Unavailable(NOT_ROOT)
        self.hosts = NamespaceHosts(len(self.nodes))
        super().__init__(small_disks)

    def make_mesh(self) -> PrivateMesh:
        # the times that a site has, for the storm's stops are shorter
        mesh = FarMesh(self.hosts, self.slots, suspect_s=5.0, down_s=15.0, failed_s=2.0)
        self.mount_small_disks(mesh)
        return mesh

    def host(self, name: str) -> NamespaceHost:
        return self.hosts[self.nodes.index(name)]

    def owns(self, process: Process) -> str | None:
        try:
            space = os.readlink(f"/proc/{process.pid}/ns/pid")
            for host in self.hosts:
                if host.init and os.readlink(f"/proc/{host.init}/ns/pid") == space:
                    return host.name
        except OSError:
            return None
        return super().owns(process)

    def run_directories(self) -> list[Path]:
        there = [Path(f"/proc/{host.init}/root/run/redmesh-0") for host in self.hosts if host.init]
        return super().run_directories() + [path for path in there if path.exists()]

    def full_disks(self) -> dict[str, Path]:
        disks = super().full_disks()
        for host in self.hosts:
            if host.init:
                disks[f"{host.name}'s run"] = Path(f"/proc/{host.init}/root/run")
                disks[f"{host.name}'s ram-disk"] = Path(f"/proc/{host.init}/root/dev/shm")
        return disks

    def argv(self, *words: str) -> list[str]:
        return self.hosts.command(*words)

    def heal(self) -> None:
        for host in self.hosts:
            if not host.init:
                host.start()
            host.heal()

    def release(self) -> None:
        self.hosts.close()


SETTINGS: dict[str, Callable[[bool], Any]] = {
    "sqlite": Setting,
    "mariadb": MariadbSetting,
    "ssh": SshSetting,
}

"""A mesh in system mode (run by root for every user) on namespace hosts and MariaDB, with its users."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from db.schema.accounts import Account
from db.schema.grants import grants, run_grants
from db.schema.migrate import migrate
from db.store.url import WHOLE, mysql_options
from tests.support.agent_archive import give_agent
from tests.support.far_mesh import FarMesh
from tests.support.hosts import NamespaceHosts
from tests.support.mariadb import Server
from tests.support.mesh import Run
from tests.support.others import commands_for_others
from tests.support.waiting import PATIENCE_S, wait_until

ATTACK = Path(__file__).with_name("attack.py")
USERS = {"ada": 21001, "bob": 21002, "cyn": 21003}
SITE = """
system = "{home}/system"
system_run = "{home}/run/redmesh"
database = "{viewers_url}"
cpa_database_file = "{home}/cpa.url"
ssh_config = "{home}/.ssh/config"
"""


class SystemMesh(FarMesh):
    """``mesh up`` in system mode; ``as_user`` runs a command as one of ``USERS`` on the login processor."""

    def __init__(self, hosts: NamespaceHosts, server: Server, processors: int = 2, **site: Any) -> None:
        super().__init__(hosts, processors)
        self.home.chmod(0o755)
        (self.home / "run").chmod(0o755)
        url = server.new_database()
        name = str(mysql_options(url)["database"])
        migrate(url)
        run_grants(url, grants(name, Account("cpa", "localhost", "c"), Account("viewer", "localhost", "v", 100)))
        (self.home / "cpa.url").write_text(server.url(name, "cpa", "c") + "\n")
        (self.home / "cpa.url").chmod(0o600)
        old = (self.home / "config" / "redmesh" / "mesh.toml").read_text()
        lines = SITE.format(home=self.home, viewers_url=server.url(f"{name}{WHOLE}", "viewer", "v"))
        lines += "".join(f"{key} = {value!r}\n" for key, value in site.items()).replace("'", '"')
        self.site = self.home / "mesh.toml"
        self.site.write_text(lines + old)
        self.env["REDMESH_CONFIG"] = str(self.site)
        self.state = self.home / "system"
        give_agent(self.state)
        self.bin = commands_for_others(self.home / "bin")
        shutil.copy(ATTACK, self.bin)  # other users may not be allowed to read the source tree
        for user, uid in USERS.items():
            (self.home / user).mkdir(mode=0o700)
            os.chown(self.home / user, uid, uid)

    def up(self, *options: str) -> Run:
        return super().up("--system", *options)

    @property
    def database(self) -> str:
        return (self.home / "cpa.url").read_text().strip()

    @property
    def viewers_url(self) -> str:
        """The database's URL in the site's mesh.toml, which every user can read."""
        with open(self.site, "rb") as file:
            return str(tomllib.load(file)["database"])

    def as_user(self, user: str, *command: str, **options: Any) -> Run:
        """Run a command as one of ``USERS``, in that user's own HOME."""
        return self.run(*self._user_words(user), *command, env=self.user_env(user), **options)

    def start_as(self, user: str, *command: str, **options: Any) -> subprocess.Popen[Any]:
        """Start a command as one of ``USERS``."""
        more = [f"{name}={value}" for name, value in self.user_env(user).items()]
        return self.start(*self._user_words(user), "env", *more, *command, **options)

    def attack(self, user: str, seconds: float, *options: str) -> subprocess.Popen[str]:
        """Start attack.py as one of ``USERS``; it prints a JSON line of its processes, then their results."""
        words = ["python", str(self.bin / ATTACK.name), str(self.run_dir), str(seconds), *options]
        process: subprocess.Popen[str] = self.start_as(user, *words, stdout=subprocess.PIPE, text=True)
        return process

    def memory_mb(self) -> dict[str, float]:
        """Return the peak resident memory (VmHWM) of the CPA and the RCA in MiB."""
        found = {}
        for daemon in ("cpa-0", "rca"):
            status = Path(f"/proc/{self.pid_of(daemon)}/status").read_text()
            (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
            found[daemon] = int(line.split()[1]) / 1024
        return found

    def _user_words(self, user: str) -> list[str]:
        uid = str(USERS[user])
        return ["setpriv", "--reuid", uid, "--regid", uid, "--init-groups", "--"]

    def user_env(self, user: str) -> dict[str, str]:
        """The environment of one of ``USERS``."""
        home = str(self.home / user)
        return {
            "HOME": home,
            "USER": user,
            "XDG_STATE_HOME": f"{home}/state",
            "XDG_CONFIG_HOME": f"{home}/config",
            "XDG_RUNTIME_DIR": "",
            "PATH": f"{self.bin}:/usr/bin:/bin",
        }

    def close(self) -> list[str]:
        left = super().close()
        shutil.rmtree(self.home, ignore_errors=True)
        return left


class Attacked:
    """Measures bob's launches while ada attacks for ``seconds`` or more, or runs as many spinning processes."""

    def __init__(self, mesh: SystemMesh, seconds: float) -> None:
        self.mesh, self.seconds = mesh, seconds
        self.said = ""  # the output of the last attack: its results

    def launches(self, *options: str, enough: Callable[[], bool] = lambda: True) -> list[float]:
        """Return the seconds that each ``yod -sz 1 true`` took beside the attack, after a quarter of ``seconds``.

        The attack goes on until three launches have ended and ``enough()`` is true. Every launch must succeed.
        """
        attack = self.mesh.attack("ada", self.seconds + PATIENCE_S, *options)
        try:
            assert attack.stdout is not None
            attack.stdout.readline()  # printed when its processes have started
            until = time.perf_counter() + self.seconds
            time.sleep(self.seconds / 4)  # the attack grows
            taken: list[float] = []
            while time.perf_counter() < until or len(taken) < 3 or not enough():
                began = time.perf_counter()
                self.mesh.as_user("bob", "yod", "-sz", "1", "true", check=True)
                taken.append(time.perf_counter() - began)
                assert attack.poll() is None, "the attack has ended before the launch"
            return taken
        finally:
            attack.terminate()
            self.said = attack.communicate()[0]

    def normal_after(self) -> float:
        """Return the seconds until the attack's connections are closed (60 at most) and both users can launch again."""
        began = time.perf_counter()
        wait_until(lambda: max(self.descriptors().values()) < 64, "its connections are gone")
        for user in ("ada", "bob"):
            self.mesh.as_user(user, "yod", "-sz", "1", "true", check=True)
        assert set(self.mesh.states().values()) == {"up"}
        return time.perf_counter() - began

    def descriptors(self) -> dict[str, int]:
        """Return how many descriptors the CPA and the RCA have open."""
        return {name: len(os.listdir(f"/proc/{self.mesh.pid_of(name)}/fd")) for name in ("cpa-0", "rca")}

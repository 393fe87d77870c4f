"""A mesh over SSH that one ordinary user runs on namespace hosts, beside the meshes of other users."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.far_mesh import FarMesh
from tests.support.hosts import NamespaceHosts
from tests.support.mesh import Run
from tests.support.others import LIBRARIES, commands_for_others
from tests.support.system_mesh import USERS


class UserMesh(FarMesh):
    """``mesh up`` of one of ``USERS``, who has an account of that name on every host, without system mode."""

    def __init__(self, hosts: NamespaceHosts, user: str, processors: int = 2, **settings: Any) -> None:
        super().__init__(hosts, processors, **settings)
        self.user, self.uid = user, USERS[user]
        self.file = self.home / "config" / "redmesh" / "mesh.toml"
        with self.file.open("a") as file:
            file.write(f'user = "{user}"\n')
        self.bin = commands_for_others(self.home / "bin")
        keys = self.home / ".ssh"
        for name in ("id", "known_hosts"):
            shutil.copy(hosts.keys.directory / name, keys / name)
        (keys / "config").write_text((keys / "config").read_text().replace(str(hosts.keys.directory), str(keys)))
        # the daemons run the Python of the commands, which has no packages of its own
        self.env.update(USER=user, PATH=f"{self.bin}:/usr/bin:/bin", PYTHONPATH=":".join(LIBRARIES))
        for path in (self.home, *self.home.rglob("*")):
            os.chown(path, self.uid, self.uid, follow_symlinks=False)

    def run(self, *command: str, **options: Any) -> Run:
        return super().run(*self._as_user(command), **options)

    def start(self, *command: str, **options: Any) -> subprocess.Popen[Any]:
        return super().start(*self._as_user(command), **options)

    def home_on(self, number: int) -> Path:
        """The user's HOME on the host of that index."""
        return self.hosts[number].directory / f"home-{self.user}"

    def set(self, key: str, value: Any) -> None:
        """Set a key at the top of mesh.toml."""
        lines = [line for line in self.file.read_text().splitlines() if not line.startswith(f"{key} =")]
        self.file.write_text("\n".join([f"{key} = {value!r}", *lines]) + "\n")

    def _as_user(self, command: Sequence[str]) -> list[str]:
        uid = str(self.uid)
        return ["setpriv", "--reuid", uid, "--regid", uid, "--init-groups", "--", *command]

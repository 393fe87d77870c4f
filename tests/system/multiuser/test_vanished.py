"""Clients that get processors and exit without a word: their processors come back. Launches that run keep theirs."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import vanishing
from tests.support.hosts import MakeHosts
from tests.support.look import look, processors
from tests.support.mariadb import Server
from tests.support.mesh import while_up
from tests.support.others import python_for_others
from tests.support.system_mesh import SystemMesh
from tests.support.waiting import PATIENCE_S, wait_until

VARIANTS = ("other-login", "never", "unregisters", "other-process")


@pytest.fixture(scope="module")
def mesh(netns_hosts: MakeHosts, sql_server: Server) -> Iterator[SystemMesh]:
    python_for_others()
    os.chmod(sql_server.directory, 0o755)
    made = SystemMesh(netns_hosts(1, users=("ada", "bob")), sql_server)
    shutil.copy(vanishing.__file__, made.bin)
    with while_up(made):
        yield made


def vanish(mesh: SystemMesh, variant: str) -> int:
    """Return the launcher of a client of ada's that has exited."""
    login = (mesh.run_dir / "login").read_text().strip()
    script = str(mesh.bin / Path(vanishing.__file__).name)
    done = mesh.as_user("ada", "python", script, str(mesh.run_dir), login, variant, check=True)
    print(variant, done.stderr)
    return int(done.stdout)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_processors_of_a_client_that_vanished_are_free_again(mesh: SystemMesh, variant: str) -> None:
    launcher = vanish(mesh, variant)
    wait_until(lambda: processors(mesh, "free") == 2, lambda: f"launcher {launcher} has ended: {look(mesh)['launchers']}")

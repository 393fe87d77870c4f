"""``mesh down`` while the keeper ends the mesh by itself, as it does when the script of its batch job exits."""

import os
import shutil
import signal
from subprocess import PIPE

from tests.support.mesh import MakeMesh
from tests.support.waiting import freeze, wait_until


def test_down_of_a_mesh_that_ends_meanwhile_makes_nothing_again(mesh: MakeMesh) -> None:
    """Its keeper has removed RUN, then STATE; ``mesh down`` looks between the two."""
    private = mesh(1, 1)
    keeper, run = private.pid_of("keeper"), private.run_dir
    freeze(keeper)
    for pid in private.processes():
        if pid != keeper:
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(run)
    down = private.start("mesh", "down", "--force", stdout=PIPE, text=True)
    wait_until((run / "login").exists, "mesh down has made RUN again")
    shutil.rmtree(private.state)
    os.kill(keeper, signal.SIGKILL)
    said, _ = down.communicate()
    assert (down.returncode, said) == (0, "mesh down\n")
    assert not run.exists()

"""One mesh for several tests: each leaves it as it was."""

import contextlib
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from agents.link.client import Unreachable
from agents.linux import processes
from tests.support.look import processors
from tests.support.mesh import PrivateMesh, restarted_on_failure, while_up
from tests.support.waiting import wait_until
from tests.support.yods import NODES, PROCESSORS, ranks_left

Mesh = TypeVar("Mesh", bound=PrivateMesh)


@pytest.fixture(scope="session")
def mesh_of_all_modules() -> Iterator[PrivateMesh]:
    """Eight processors on four nodes, up from the first module that borrows it until the end of the run."""
    with while_up(PrivateMesh(PROCESSORS, NODES)) as private:
        yield private


@pytest.fixture(scope="module")
def borrowed_mesh(mesh_of_all_modules: PrivateMesh) -> Iterator[PrivateMesh]:
    """The mesh of all modules, with an empty directory to work in, and afterwards without a command of this module."""
    shared = mesh_of_all_modules
    shared.work = Path(tempfile.mkdtemp(prefix="work-", dir=shared.home))
    yield shared
    shared.end_commands()
    with restarted_on_failure(shared):
        wait_until(lambda: is_whole(shared), lambda: f"the mesh is as before the module: {shared.logs()}")


def boot_id(mesh: PrivateMesh) -> str:
    """Return the boot id of a mesh that is up."""
    return str(json.loads((mesh.state / "keeper.json").read_text())["boot_id"])


def is_in_use(mesh: PrivateMesh, size: int) -> bool:
    """Return whether launches run on so many processors."""
    return processors(mesh, "busy") == size


@contextlib.contextmanager
def borrowed(mesh: Mesh) -> Iterator[Mesh]:
    """Yield a mesh that is up; then end its launches and wait until it is whole.

    If it is not as before, also of the same boot, it is started again for later tests, and this one fails.
    """
    boot = boot_id(mesh)
    yield mesh
    with restarted_on_failure(mesh):
        for pid in ranks_left(mesh):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: is_whole(mesh), lambda: f"the mesh is as before the test: {mesh.logs()}")
        assert boot_id(mesh) == boot


def is_whole(mesh: PrivateMesh) -> bool:
    """Whether every daemon answers, none is frozen, and every processor is free."""
    try:
        daemons = mesh.keeper()["daemons"]
    except (OSError, Unreachable):
        return False
    if any(processes.state(int(one["pid"])) in ("", "T", "t") for one in daemons):
        return False  # a frozen one accepts connections too
    return all(mesh.answers(one["name"]) for one in daemons) and processors(mesh, "free") == mesh.size[0]

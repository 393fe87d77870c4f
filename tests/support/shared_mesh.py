"""One mesh for several tests: each leaves it as it was."""

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support.look import processors
from tests.support.mesh import PrivateMesh, restarted_on_failure, while_up
from tests.support.waiting import wait_until
from tests.support.whole import boot_id, is_whole, left_as_found
from tests.support.yods import NODES, PROCESSORS, ranks_left

__all__ = ["boot_id", "borrowed", "borrowed_mesh", "is_in_use", "is_whole", "mesh_of_all_modules"]

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


def is_in_use(mesh: PrivateMesh, size: int) -> bool:
    """Return whether launches run on so many processors."""
    return processors(mesh, "busy") == size


@contextlib.contextmanager
def borrowed(mesh: Mesh) -> Iterator[Mesh]:
    """Yield a mesh that is up; then end its launches and wait until it is as before (`left_as_found`).

    If it is not, or the caller's own clean-up fails, it is started again for later tests, and this one fails.
    """
    with left_as_found(mesh):
        yield mesh
        for pid in ranks_left(mesh):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

"""One mesh for all yod tests of a module, or of all modules; after each test it must be free again.

A module whose tests need another mesh has a fixture ``one_mesh`` of its own. One whose tests leave the mesh as it was
says ``from tests.support.shared_mesh import borrowed_mesh as one_mesh``.
"""

import os
from collections.abc import Iterator

import pytest

from tests.support.look import processors
from tests.support.mesh import PrivateMesh, restarted_on_failure, while_up
from tests.support.waiting import wait_until
from tests.support.whole import left_as_found

PROCESSORS, NODES = 8, 4


@pytest.fixture(scope="module")
def one_mesh() -> Iterator[PrivateMesh]:
    """Eight processors on four nodes, up for the whole module."""
    with while_up(PrivateMesh(PROCESSORS, NODES)) as private:
        yield private


@pytest.fixture
def yods(one_mesh: PrivateMesh, request: pytest.FixtureRequest) -> Iterator[PrivateMesh]:
    """The module's mesh; afterwards every processor is free again and no process of a launch is left.

    A mesh of all modules is then also as it was: its daemons, boot and ``env``.
    """
    if "mesh_of_all_modules" in request.fixturenames:
        with left_as_found(one_mesh):
            yield one_mesh
            wait_until_nothing_is_left(one_mesh)
        return
    yield one_mesh
    with restarted_on_failure(one_mesh):
        wait_until_nothing_is_left(one_mesh)


def wait_until_nothing_is_left(mesh: PrivateMesh) -> None:
    """Wait until every processor is free, and neither a process nor a file of a launch is left."""
    wait_until(lambda: free(mesh) == mesh.size[0], "every processor is free again, on every node")
    wait_until(
        lambda: not files_left(mesh),
        lambda: f"no file of a launch is left: {files_left(mesh)}, and of processes {mesh.processes()}",
    )
    wait_until(lambda: not ranks_left(mesh), "no process of a launch is left")


def files_left(mesh: PrivateMesh) -> list[str]:
    """Return the names of launches' sockets and files in the mesh's run directory."""
    return [name for name in os.listdir(mesh.run_dir) if name.startswith(("yod-", "launch-"))]


def free(mesh: PrivateMesh) -> int:
    """Return how many processors are free according to the database."""
    return processors(mesh, "free")


def ranks_left(mesh: PrivateMesh) -> dict[int, str]:
    """Return ranks and processes started by ranks: pid → command line."""
    found = {}
    for pid, command in mesh.processes().items():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if b"\0YOD_RANK=" in b"\0" + file.read():
                    found[pid] = command
        except OSError:
            pass
    return found

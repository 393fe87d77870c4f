"""One mesh for all yod tests of a module; after each test it must be free again."""

import os
from collections.abc import Iterator

import pytest

from tests.support.mesh import PrivateMesh, while_up
from tests.support.waiting import wait_until

PROCESSORS, NODES = 8, 4


@pytest.fixture(scope="module")
def one_mesh() -> Iterator[PrivateMesh]:
    """Eight processors on four nodes, up for the whole module."""
    with while_up(PrivateMesh(PROCESSORS, NODES)) as private:
        yield private


@pytest.fixture
def yods(one_mesh: PrivateMesh) -> Iterator[PrivateMesh]:
    """The module's mesh; afterwards every processor is free again and no process of a launch is left."""
    yield one_mesh
    try:
        _wait_until_nothing_is_left(one_mesh)
    except AssertionError:
        one_mesh.down()  # restart the mesh, so that later tests do not meet this test's launches
        one_mesh.up()
        raise


def _wait_until_nothing_is_left(mesh: PrivateMesh) -> None:
    wait_until(lambda: free(mesh) == PROCESSORS, "every processor is free again")
    wait_until(lambda: not ranks_left(mesh), "no process of a launch is left")
    wait_until(
        lambda: not _files_left(mesh),
        lambda: f"no file of a launch is left: {_files_left(mesh)}, and of processes {mesh.processes()}",
    )


def _files_left(mesh: PrivateMesh) -> list[str]:
    return [name for name in os.listdir(mesh.run_dir) if name.startswith(("yod-", "launch-"))]


def free(mesh: PrivateMesh) -> int:
    """Return how many processors are free according to the database."""
    return int(mesh.json("showmesh")["states"]["free"])


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

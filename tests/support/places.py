"""Launches whose ranks wait in known functions, for tests of stacks."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from console.errors import ConsoleError
from console.launch.attach.client import send_signal
from redmesh import idset
from tests.support.mesh import PrivateMesh
from tests.support.waiting import wait_until

PROGRAM = """
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) static void compute(int spins) { for (volatile long n = 0;; n++) if (!spins) pause(); }
__attribute__((noinline)) static void wait_here(void) { for (;;) pause(); }
static void *helper(void *unused) { wait_here(); return unused; }
int main(int argc, char **argv)
{
    int rank = atoi(getenv("YOD_RANK"));
    pthread_t thread;
    if (rank == 0)
        pthread_create(&thread, NULL, helper, NULL);
    if (rank == 3)
        return 0;
    if (rank % 2)
        compute(argc > 1 && atoi(argv[1]) == rank);
    wait_here();
}
"""

Begin = Callable[..., str]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program whose even ranks are in ``wait_here`` and odd ones in ``compute``, where the rank argv[1] never pauses.

    Rank 0 has a second thread, rank 3 ends at once.
    """
    folder = tmp_path_factory.mktemp("places")
    (folder / "places.c").write_text(PROGRAM)
    command = ["gcc", "-g", "-O1", "-pthread", "-o", str(folder / "places"), str(folder / "places.c")]
    subprocess.run(command, check=True)
    return str(folder / "places")


@pytest.fixture
def begin(yods: PrivateMesh) -> Iterator[Begin]:
    """``begin(…)`` starts a detached launch and returns its launcher id once it can be observed; killed afterwards."""
    begun: list[str] = []

    def launch(*command: str) -> str:
        begun.append(yods.run("yod", "-detach", *command, check=True).stdout.strip())
        wait_until(lambda: (yods.run_dir / f"yod-{begun[-1]}.sock").exists(), "it can be observed")
        return begun[-1]

    yield launch
    for launcher in begun:
        with suppress(ConsoleError):  # it has ended
            send_signal(str(yods.run_dir), int(launcher), signal.SIGKILL)


def paths(tree: list[dict[str, object]]) -> dict[str, str]:
    """Map the path of every call in a stack tree (``main/wait_here``) to its ranks."""
    found: dict[str, int] = {}

    def go(level: list[dict[str, object]], above: str) -> None:
        for one in level:
            path = f"{above}/{one['function']}" if above else str(one["function"])
            found[path] = found.get(path, 0) | idset.read(str(one["ranks"]))
            go(one["children"], path)  # type: ignore[arg-type]

    go(tree, "")
    return {path: idset.text(ranks) for path, ranks in found.items()}


def pid_of(mesh: PrivateMesh, launcher: str, rank: int) -> int:
    """Return the pid of a rank, found by the environment it was started with."""
    wanted = {f"YOD_RANK={rank}".encode(), f"YOD_LAUNCHER_ID={launcher}".encode()}
    for pid in mesh.processes():
        try:
            if wanted <= set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")):
                return pid
        except OSError:
            pass  # the process has exited meanwhile
    raise AssertionError(f"no process is rank {rank} of launcher {launcher}")

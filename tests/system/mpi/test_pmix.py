"""Open MPI's programs under plain yod: PMIx, served by a process of its own for each machine."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from agents.link.client import Client
from tests.support.far_mesh import FarMesh
from tests.support.hosts import MakeHosts
from tests.support.mesh import PrivateMesh, while_up
from tests.support.mpis import MPICC, OPEN_MPICC, compiled, needs_open_mpi
from tests.support.shared_mesh import borrowed_mesh as one_mesh
from tests.support.waiting import wait_until
from tests.support.yods import free, yods

__all__ = ["one_mesh", "yods"]
pytestmark = needs_open_mpi


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled("tests/system/mpi/ranks.c", tmp_path_factory.mktemp("mpi"), compiler=OPEN_MPICC)


def told(size: int) -> list[str]:
    """What every rank of ``ranks.c`` says."""
    total = size * (size - 1) // 2
    return sorted(
        f"{rank} of {size}: sum {total}, token {(rank - 1) % size}, {size} share memory" for rank in range(size)
    )


@pytest.mark.parametrize("size", [1, 4])
def test_a_program_of_open_mpi_without_a_flag(yods: PrivateMesh, ranks: str, size: int) -> None:
    done = yods.run("yod", "-sz", str(size), ranks, check=True)
    assert sorted(done.stdout.splitlines()) == told(size)
    wait_until(lambda: not list(yods.run_dir.glob("pmix/*")), "the server's files are gone")


def test_it_is_offered_to_who_asks_and_never_with_pmi(yods: PrivateMesh) -> None:
    script = "echo $(env | grep -c ^PMIX_RANK=$YOD_RANK) $(env | grep -c ^PMI_)"
    for kind, expected in (("pmix", ["1", "0"]), ("auto", ["0", "3"]), ("none", ["0", "0"])):
        done = yods.run("yod", "-sz", "2", f"--mpi={kind}", "sh", "-c", script, check=True)
        assert done.stdout.split() == expected * 2, kind


def test_published_names_are_looked_up_by_other_ranks(yods: PrivateMesh, ranks: str) -> None:
    done = yods.run("yod", "-sz", "4", ranks, "publish", check=True)
    assert sorted(done.stdout.splitlines()) == told(4)


def test_a_spawn_is_refused_in_words(yods: PrivateMesh, ranks: str) -> None:
    process = yods.start(
        "yod", "-sz", "4", ranks, "spawn", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert "asked for more processes (MPI_Comm_spawn)" in process.stderr.readline()
    process.terminate()  # Open MPI 4 tells the rank that asked, and lets the others wait for ever
    process.wait()


@pytest.mark.parametrize(
    ("when", "status", "cause"),
    [
        ("before 5", 5, "rank 1 ended before MPI_Init, in which the others wait"),
        ("before s9", 137, "rank 1 ended before MPI_Init, in which the others wait"),
        ("in 6", 6, "rank 1 on n0 ended with 6 between MPI_Init and MPI_Finalize"),
        ("in s9", 137, "rank 1 on n0 died of SIGKILL between MPI_Init and MPI_Finalize"),
        ("abort 7", 7, "rank 2 on n1 called MPI_Abort with 7"),
        ("after 4", 4, ""),
    ],
)
def test_a_rank_that_dies_ends_the_launch_with_its_cause(
    yods: PrivateMesh, ranks: str, when: str, status: int, cause: str
) -> None:
    done = yods.run("yod", "-sz", "3", ranks, *when.split())
    assert done.returncode == status, done.stderr
    if cause:
        assert f"yod: {cause}" in done.stderr.splitlines()
    else:
        assert "SIGTERM" not in done.stderr, "who has finalised holds nobody up"


def shared(mesh: PrivateMesh) -> set[str]:
    """Segments in the directories of this mesh's launch children in the RAM disk."""
    places = f"redmesh-{os.geteuid()}/launch-*-{mesh.run_dir.name}-*-memory/*_segment.*"
    return {str(path) for path in Path("/dev/shm").glob(places)}


def mapped(mesh: PrivateMesh) -> set[str]:
    """Segments that the processes of this mesh share, wherever they are; other meshes have theirs in the RAM disk."""
    found = set()
    for pid in mesh.processes():
        with suppress(OSError):  # it has exited meanwhile
            lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
            found |= {line.split(maxsplit=5)[5] for line in lines if "_segment." in line}
    return found


@pytest.mark.parametrize("end", ["a rank is killed", "launch children are killed", "yod is killed"])
def test_shared_memory_goes_with_its_launch(yods: PrivateMesh, ranks: str, end: str) -> None:
    process = yods.start("yod", "-sz", "4", ranks, "spawn", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    segments = wait_until(lambda: len(found := shared(yods)) == 4 and found, "every rank has its segment")
    wait_until(lambda: len(mapped(yods)) == 4, "every rank shares its segment")
    assert mapped(yods) == segments
    if end == "yod is killed":
        process.kill()
    elif end == "a rank is killed":
        with Client(str(yods.run_dir / "n1.sock"), "admin") as client:
            os.kill(client.call({"op": "status"})["launches"][0]["ranks"][0][1], signal.SIGKILL)
    else:
        for pid in {int(segment.split("launch-")[1].split("-")[1]) for segment in segments}:
            with suppress(ProcessLookupError):  # one that lost its parent has ended by itself
                os.kill(pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: not shared(yods), "nothing of it stays")
    wait_until(lambda: free(yods) == 8, "its processors are free")
    wait_until(lambda: not os.listdir(yods.run_dir / "pmix"), "its PMIx server's files are gone")
    wait_until(lambda: not any("pmix" in command for command in yods.processes().values()), "and so is the server")


def test_where_the_user_wants_shared_memory_it_is(yods: PrivateMesh, tmp_path: Path) -> None:
    (tmp_path / ".openmpi").mkdir()
    (tmp_path / ".openmpi" / "mca-params.conf").write_text("osc_sm_backing_directory = /mine\n")
    said = {"HOME": str(tmp_path), "OMPI_MCA_btl_vader_backing_directory": "/dev/shm/mine"}
    script = "env | grep _backing_directory | sort"
    done = yods.run("yod", "--mpi", "pmix", "sh", "-c", script, env=said, check=True)
    told = dict(line.removeprefix("OMPI_MCA_").split("=") for line in done.stdout.splitlines())
    assert told.pop("btl_vader_backing_directory") == "/dev/shm/mine"
    assert sorted(told) == ["btl_sm_backing_directory", "osc_rdma_backing_directory"]
    assert all(place.endswith("-memory") and not os.path.exists(place) for place in told.values())


def test_over_two_hosts(netns_hosts: MakeHosts, ranks: str) -> None:
    with while_up(FarMesh(netns_hosts(2), processors=4)) as mesh:
        done = mesh.run("yod", "-sz", "4", "-nodes", "2", "--bcast=always", ranks, check=True)
        assert sorted(done.stdout.splitlines()) == [line.replace("4 share", "2 share") for line in told(4)]
        died = mesh.run("yod", "-sz", "4", "-nodes", "2", "--bcast=always", ranks, "in", "s9")
        assert died.returncode == 137
        assert "yod: rank 1 on h1 died of SIGKILL between MPI_Init and MPI_Finalize" in died.stderr.splitlines()


def test_what_the_site_says_of_scripts(yods: PrivateMesh, ranks: str) -> None:
    script = "env | grep -c ^PMIX_RANK; true"
    told_by_site = yods.run("yod", "-sz", "2", "sh", "-c", script, env={"REDMESH_MPI": "pmix"}, check=True)
    assert told_by_site.stdout.split() == ["1", "1"]


def test_a_load_file_is_one_world(yods: PrivateMesh, ranks: str, tmp_path: Path) -> None:
    load = tmp_path / "load"
    load.write_text(f"-sz 1 {ranks}\n-sz 2 {ranks}\n")
    assert sorted(yods.run("yod", str(load), check=True).stdout.splitlines()) == told(3)


def test_without_the_library_it_says_what_to_install(tmp_path: Path, ranks: str) -> None:
    with while_up(PrivateMesh(2, 2, REDMESH_PMIX_LIBRARY="/nowhere/libpmix.so.2")) as private:
        refused = private.run("yod", "-sz", "2", ranks)
        assert refused.returncode == 125 and refused.stdout == ""
        assert "no libpmix is there" in refused.stderr and "libpmix2" in refused.stderr
        private.run("yod", "-sz", "2", "--mpi=none", "true", check=True)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def test_a_killed_server_ends_the_program(yods: PrivateMesh, ranks: str) -> None:
    def servers() -> list[int]:
        return [pid for pid in yods.processes() if _name(pid) == "redmesh-pmix"]

    process = yods.start(
        "yod", "-sz", "4", ranks, "spawn", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: len(shared(yods)) == 4, "every rank has its segment")
    [server] = servers()
    os.kill(server, signal.SIGKILL)
    _, told = process.communicate()
    # Open MPI 4 ends its ranks with a status of its own, 5 lets them wait
    assert process.returncode not in (0, -signal.SIGKILL)
    assert "after the PMIx server there had ended" in told or "the PMIx server on n0 is gone" in told, told


def test_what_cannot_find_the_others_is_told(yods: PrivateMesh, ranks: str, tmp_path: Path) -> None:
    """N silent programs of one rank look like one that has worked."""
    # Every program of one rank removes this directory at its end if it is empty, also when another is about to use it.
    temporary = yods.home / "tmp"
    (temporary / f"ompi.{os.uname().nodename}.{os.geteuid()}" / "kept").mkdir(mode=0o700, parents=True)
    own = {"TMPDIR": str(temporary)}
    for options in (["--mpi=pmi1"], ["--mpi=pmi2", "-batch"]):
        done = yods.run("yod", "-sz", "2", *options, ranks, check=True, env=own)
        assert done.stdout.splitlines() == ["0 of 1: sum 0, token 0, 1 share memory"] * 2
        assert "yod: ranks is linked against Open MPI, which needs PMIx: with --mpi=pm" in done.stderr
    assert "linked" not in yods.run("yod", "-sz", "2", "--mpi=none", ranks, check=True, env=own).stderr
    if MPICC:
        other = compiled("tests/system/mpi/ranks.c", tmp_path)
        assert "is linked against MPICH, which needs PMI" in yods.run("yod", "-sz", "2", "--mpi=pmix", other).stderr


def test_what_loads_open_mpi_later_is_told(yods: PrivateMesh) -> None:
    library = next(
        (path for path in ("/usr/lib/x86_64-linux-gnu/libmpi.so.40",) if os.path.exists(path)), ""
    ) or pytest.skip("libmpi.so.40 is elsewhere")
    script = f"import ctypes, time; ctypes.CDLL('{library}'); time.sleep(1.6)"
    for options in ([], ["--mpi=pmi1"]):
        done = yods.run("yod", "-sz", "2", *options, "/usr/bin/env", "python3", "-c", script, check=True)
        assert "rank 0 has loaded Open MPI, which needs PMIx and was offered PMI" in done.stderr

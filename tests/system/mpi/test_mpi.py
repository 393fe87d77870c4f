"""MPI programs under plain yod: they find each other, share memory, and end together, whatever one of them does."""

import ctypes.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agents.link.client import Client
from agents.linux import processes
from tests.support.mesh import PrivateMesh
from tests.support.mpis import MPICC, ROOT, compiled, needs_mpich, with_mpi4py
from tests.support.shared_mesh import borrowed_mesh as one_mesh
from tests.support.waiting import wait_until
from tests.support.yods import yods

__all__ = ["one_mesh", "yods"]

CLIENT = [sys.executable, str(ROOT / "tests" / "system" / "mpi" / "pmi_client.py")]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled("tests/system/mpi/ranks.c", tmp_path_factory.mktemp("mpi"))


@needs_mpich
@pytest.mark.parametrize("size", [1, 4])
def test_an_mpi_program_without_a_flag(yods: PrivateMesh, ranks: str, size: int) -> None:
    done = yods.run("yod", "-sz", str(size), ranks, check=True)
    assert sorted(done.stdout.splitlines()) == [
        f"{rank} of {size}: sum {size * (size - 1) // 2}, token {(rank - 1) % size}, {size} share memory"
        for rank in range(size)
    ]
    assert done.stderr == ""


@needs_mpich
def test_over_four_nodes_in_any_order_and_with_a_narrow_tree(yods: PrivateMesh, ranks: str) -> None:
    for size, options in (
        (4, ["-fanout", "2", "-list", "7,0,3..4"]),
        (5, ["-overcommit", "-distribution", "cyclic", "-list", "n1,n2", "-sz", "5"]),
    ):
        assert len(yods.run("yod", *options, ranks, check=True).stdout.splitlines()) == size
    aborted = yods.run("yod", "-fanout", "2", "-nodes", "4", ranks, "abort", "7")
    assert aborted.returncode == 7 and "yod: rank 3 on n3 called MPI_Abort with 7" in aborted.stderr


HOW: list[list[str]] = [[], ["-batch"], ["-kill"]]
WHEN = [
    ("before 5", 5, "rank 1 ended before MPI_Init, in which the others wait"),
    ("before s9", 137, "rank 1 ended before MPI_Init, in which the others wait"),
    ("before 0", 1, "rank 1 ended before MPI_Init, in which the others wait"),
    ("in 6", 6, "rank 1 on n0 ended with 6 between MPI_Init and MPI_Finalize"),
    ("in s9", 137, "rank 1 on n0 died of SIGKILL between MPI_Init and MPI_Finalize"),
    ("abort 7", 7, "rank 2 on n1 called MPI_Abort with 7"),
    ("after 4", 4, ""),
    ("after s9", 137, ""),
]
#: -batch and -kill end a launch by the same switch (Engine's bad_exit_ends): each of them has every other row, and both
#: have the abort, whose cause -batch tells although it has no status lines.
ENDS = [([], *row) for row in WHEN] + [(HOW[1 + at % 2], *row) for at, row in enumerate(WHEN)]
ENDS += [(["-batch"], *row) for row in WHEN if row[0] == "abort 7"]


@needs_mpich
@pytest.mark.parametrize(("how", "when", "status", "cause"), ENDS)
def test_a_rank_that_dies_ends_the_launch_with_its_cause(
    yods: PrivateMesh, ranks: str, how: list[str], when: str, status: int, cause: str
) -> None:
    done = yods.run("yod", "-sz", "3", *how, ranks, *when.split())
    assert done.returncode == status, done.stderr
    # -batch and -kill end the job for the bad exit itself; the table behind it says whose it was
    ended_for_its_exit = bool(how) and when not in ("before 0", "abort 7")
    if cause and not ended_for_its_exit:
        assert f"yod: {cause}" in done.stderr.splitlines()
    elif when.startswith(("before", "in")):
        assert "rank 1 on n0: " in done.stderr
    if not cause and not how:
        assert "SIGTERM" not in done.stderr, "who has finalised holds nobody up"


@needs_mpich
def test_a_rank_that_leaves_finalize_out_ends_the_launch_after_a_while(yods: PrivateMesh, ranks: str) -> None:
    """Meanwhile the others spin, both launches on one core."""
    core = ("-cpu-bind", f"map:{min(os.sched_getaffinity(0))}")
    launches = [
        yods.start("yod", "-sz", "2", *core, *how, ranks, "in", "0", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for how in HOW[:2]
    ]
    for launch in launches:
        told = launch.communicate()[1].decode()
        assert launch.returncode == 1, told
        assert re.search(r"^yod: rank 1 on n\d ended with 0 between MPI_Init and MPI_Finalize$", told, re.MULTILINE)


@needs_mpich
@pytest.mark.parametrize("when", ["publish", "spawn"])
def test_names_and_a_refused_spawn(yods: PrivateMesh, ranks: str, when: str) -> None:
    assert len(yods.run("yod", "-sz", "3", ranks, when, check=True).stdout.splitlines()) == 3


@needs_mpich
def test_a_shell_between_and_a_load_file(yods: PrivateMesh, ranks: str) -> None:
    done = yods.run("yod", "-sz", "2", "sh", "-c", f"exec 3</dev/null; {ranks} x; echo $?", check=True)
    assert done.stdout.split().count("0") >= 2 and "0 of 2: sum 1" in done.stdout
    (yods.work / "both").write_text(f"-sz 1 {ranks}\n-sz 2 {ranks}\n")
    assert "2 of 3: sum 3, token 1, 3 share memory" in yods.run("yod", "both", check=True).stdout


@needs_mpich
def test_mpi_none_is_n_programs(yods: PrivateMesh, ranks: str) -> None:
    done = yods.run("yod", "-sz", "3", "--mpi=none", ranks, check=True)
    assert done.stdout.splitlines() == ["0 of 1: sum 0, token 0, 1 share memory"] * 3


def test_python_with_mpi4py(yods: PrivateMesh) -> None:
    script = (
        "import os; from mpi4py import MPI; c = MPI.COMM_WORLD;"
        " os.write(1, b'%d %d %d\\n' % (c.rank, c.size, c.allreduce(c.rank)))"
    )
    done = yods.run("yod", "-sz", "4", *with_mpi4py(), "-c", script, check=True)
    assert sorted(done.stdout.splitlines()) == [f"{rank} 4 6" for rank in range(4)]


@pytest.mark.skipif(not Path("/usr/include/slurm/pmi2.h").exists(), reason="no libpmi2 here (Debian: libpmi2-0-dev)")
def test_pmi_2_by_slurms_library(yods: PrivateMesh, tmp_path: Path) -> None:
    program, source = str(tmp_path / "pmi2"), str(ROOT / "tests" / "system" / "mpi" / "pmi2.c")
    subprocess.run(["gcc", "-Wall", "-o", program, source, "-lpmi2"], check=True)
    for options in ([], ["--mpi=pmi2"]):
        done = yods.run("yod", "-sz", "8", *options, program, check=True)
        assert done.stdout.splitlines()[-1] == "fine" and "mapping (vector,(0,1,8))" in done.stdout
    aborted = yods.run("yod", "-sz", "8", program, "abort")
    assert aborted.returncode == 1 and "called MPI_Abort with 1: no more" in aborted.stderr
    refused = yods.run("yod", "-sz", "2", "--mpi=pmi1", program)
    assert refused.returncode == 3 and "asks for PMI-2, which this launch refuses" in refused.stderr


# By hand, where no MPI goes


def test_many_keys_and_long_values_over_a_deep_tree(yods: PrivateMesh) -> None:
    yods.run("yod", "-sz", "12", "-overcommit", "--fanout", "2", *CLIENT, "fences", "1000", "3", check=True)
    yods.run("yod", "-sz", "4", *CLIENT, "fences", "70000", "0", check=True)


def test_names_are_the_launchs(yods: PrivateMesh) -> None:
    yods.run("yod", "-sz", "4", *CLIENT, "names", check=True)


def test_a_spawn_is_refused_in_words(yods: PrivateMesh) -> None:
    done = yods.run("yod", "-sz", "2", *CLIENT, "spawn", check=True)
    assert done.stdout == "cmd=spawn_result rc=-1 msg=spawn_is_not_supported\n"
    assert "rank 0 asked for more processes (MPI_Comm_spawn): yod starts all at once, with -sz" in done.stderr


def test_a_rank_that_ends_while_the_others_wait(yods: PrivateMesh) -> None:
    done = yods.run("yod", "-sz", "5", "-nodes", "4", *CLIENT, "absent")
    assert done.returncode == 1 and done.stdout == "waits\n" * 4
    assert "yod: rank 4 ended before MPI_Init, in which the others wait" in done.stderr.splitlines()


def test_a_rank_that_ends_while_the_others_wait_in_no_fence(yods: PrivateMesh) -> None:
    for options in ([], ["--fanout", "2"]):
        done = yods.run("yod", "-sz", "5", "-nodes", "4", *options, *CLIENT, "memory")
        assert done.returncode == 1 and done.stdout == "waits\n" * 4
        assert "yod: rank 1 ended before MPI_Init, in which the others wait" in done.stderr.splitlines()


@pytest.mark.parametrize("end", ["abort", "a rank is killed", "the launch child is killed"])
def test_memory_that_mpich_5_leaves_goes_with_its_launch(yods: PrivateMesh, end: str) -> None:
    """Of others, whoever they are, nothing is touched."""
    others = Path(f"/dev/shm/mpich_shm_0_{os.getpid()}")
    words = [*CLIENT, "segment", *(["abort"] if end == "abort" else [])]
    process = yods.start(
        "yod", "-sz", "2", "-list", "n0", *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        others.touch()
        assert process.stdout is not None
        segment = process.stdout.readline().strip()
        assert re.fullmatch("/dev/shm/mpich_shm_[0-9a-f]+_0", segment)
        if end != "abort":
            assert os.path.exists(segment)
            with Client(str(yods.run_dir / "n0.sock"), "admin") as client:
                rank = client.call({"op": "status"})["launches"][0]["ranks"][0][1]
            os.kill(rank if end == "a rank is killed" else processes.parent(rank), signal.SIGKILL)
        process.communicate()
        assert process.returncode == (7 if end == "abort" else 137)
        wait_until(lambda: not os.path.exists(segment), "it is gone")
        assert others.exists()
    finally:
        others.unlink()


def test_who_speaks_something_else_ends_its_launch(yods: PrivateMesh) -> None:
    done = yods.run("yod", "-sz", "2", *CLIENT, "nonsense")
    assert done.returncode == 125
    assert "rank 0 on n0: its PMI is not understood: an unknown command: 'GET / HTTP/1.0'" in done.stderr


def test_a_lost_node_ends_an_mpi_program_and_no_other(yods: PrivateMesh) -> None:
    def lose(*command: str) -> tuple[int, str]:
        words = ("yod", "-sz", "5", "-nodes", "4", *command)
        process = yods.start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(5):
            assert process.stdout.readline() == "waits\n"
        launch = next(iter(_launches(yods, "n2")))
        subprocess.run(["kill", "-9", str(launch)], check=True)
        return process.wait(), process.stderr.read()

    status, told = lose(*CLIENT, "lost")
    assert status != 0 and "lost n2 with ranks of an MPI program" in told
    status, told = lose("sh", "-c", "echo waits; sleep 1")
    assert "MPI" not in told


def _launches(yods: PrivateMesh, node: str) -> list[int]:
    from agents.link.client import Client

    with Client(str(yods.run_dir / f"{node}.sock"), "admin") as client:
        return [int(launch["pid"]) for launch in client.call({"op": "status"})["launches"]]


# What a plain program sees


def test_the_variables_of_a_rendezvous(yods: PrivateMesh) -> None:
    names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT"
    script = "echo " + ",".join(f"${name}" for name in names.split())  # in one write: ranks' lines do not mix
    theirs = {"RANK": "mine", "MASTER_PORT": "1"}
    rows = sorted(row.split(",") for row in yods.run("yod", "-sz", "4", "sh", "-c", script, env=theirs).stdout.split())
    assert [row[:5] for row in rows] == [[str(rank), "4", str(rank % 2), "2", str(rank // 2)] for rank in range(4)]
    assert {row[5] for row in rows} == {"127.0.0.1"} and len({row[6] for row in rows}) == 1
    assert 20_000 <= int(rows[0][6]) < 32_000
    plain = yods.run("yod", "-sz", "1", "--rendezvous=none", "--mpi=none", "env", env=theirs, check=True).stdout
    assert "RANK=mine\n" in plain and "MASTER_PORT=1\n" in plain and "PMI" not in plain and "WORLD_SIZE" not in plain


def test_ranks_meet_at_the_rendezvous(yods: PrivateMesh) -> None:
    script = (
        "import os, socket, time\n"
        "place = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])\n"
        "if os.environ['RANK'] == '0':\n"
        "    s = socket.create_server(place)\n"
        "    print(sorted(int(s.accept()[0].recv(9)) for _ in range(int(os.environ['WORLD_SIZE']) - 1)))\n"
        "else:\n"
        "    for _ in range(500):\n"
        "        try: s = socket.create_connection(place); break\n"
        "        except OSError: time.sleep(0.02)\n"
        "    s.send(os.environ['RANK'].encode())\n"
    )
    words = ("yod", "-sz", "5", "-nodes", "4", sys.executable, "-c", script)
    assert yods.run(*words, check=True).stdout == "[1, 2, 3, 4]\n"


def test_no_rank_holds_anothers_descriptor(yods: PrivateMesh) -> None:
    done = yods.run("yod", "-sz", "6", "sh", "-c", "ls -l /proc/$$/fd | grep -c socket:; echo fd", check=True)
    assert done.stdout.split().count("1") == 6
    none = yods.run(
        "yod", "-sz", "2", "--mpi=none", "sh", "-c", "ls -l /proc/$$/fd | grep -c socket:; true", check=True
    )
    assert none.stdout.split() == ["0", "0"]


@needs_mpich
def test_the_event_stream_names_the_cause(yods: PrivateMesh, ranks: str) -> None:
    done = yods.run("yod", "-json", "-sz", "2", ranks, "abort", "3")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (told,) = [event for event in events if event["event"] == "aborted"]
    assert told["rank"] == 1 and told["node"] == "n0" and "MPI_Abort with 3" in told["text"]
    assert events[-1]["event"] == "end" and events[-1]["exit_status"] == 3 == done.returncode


@needs_mpich
def test_ranks_are_spared_what_their_node_knows(yods: PrivateMesh, tmp_path: Path) -> None:
    """hwloc's topology is found out once for a node, not by every rank; whoever has said otherwise is left alone."""
    if not shutil.which("gcc") or not ctypes.util.find_library("hwloc"):
        pytest.skip("no hwloc here")
    (tmp_path / "says.c").write_text(
        "#include <mpi.h>\n#include <stdio.h>\n#include <stdlib.h>\n"
        'int main(void) { MPI_Init(0, 0); char *file = getenv("HWLOC_XMLFILE");\n'
        'dprintf(1, "%s\\n", file ? file : "none"); MPI_Finalize(); return 0; }\n'  # printf would write in pieces
    )
    says = str(tmp_path / "says")
    subprocess.run([MPICC, "-o", says, f"{says}.c"], check=True)

    def told(*words: str, **env: str) -> set[str]:
        return set(yods.run("yod", "-sz", "2", *words, env=env, check=True).stdout.split())

    file = yods.run_dir / "hwloc.xml"
    file.unlink(missing_ok=True)
    assert told(says) == {"none"}, "nobody waits for it"
    wait_until(file.exists, "the node has it")
    assert told(says) == {str(file)}
    assert told(says, HWLOC_THISSYSTEM="1") == {"none"} and told("sh", "-c", "echo ${HWLOC_XMLFILE-none}") == {"none"}
    assert told("--mpi", "none", says) == {"none"}
    whole = file.read_bytes()
    assert whole.startswith(b"<?xml") and b"PU" in whole
    file.write_bytes(b"damaged")
    assert told(says) == {str(file)}, "hwloc looks itself then"
    file.write_bytes(whole)

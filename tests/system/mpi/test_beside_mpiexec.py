"""Under yod an MPI program says and returns what it does under its own mpiexec."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.mesh import PrivateMesh
from tests.support.mpis import OPEN_MPICC, compiled, needs_mpich, needs_open_mpi
from tests.support.shared_mesh import borrowed_mesh as one_mesh
from tests.support.waiting import PATIENCE_S
from tests.support.yods import yods

__all__ = ["one_mesh", "yods"]

MPIS = [
    pytest.param("mpich", "", marks=needs_mpich),
    pytest.param("openmpi", OPEN_MPICC, marks=needs_open_mpi),
]


@pytest.mark.parametrize(("mpi", "compiler"), MPIS)
def test_status_and_output_are_its_own_mpiexecs(yods: PrivateMesh, tmp_path: Path, mpi: str, compiler: str) -> None:
    mpiexec = shutil.which(f"mpiexec.{mpi}") or pytest.skip(f"no mpiexec.{mpi} here")
    program = compiled("tests/system/mpi/programs.c", tmp_path, compiler=compiler)
    oversubscribed = ["--oversubscribe"] if mpi == "openmpi" else []
    root = dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1")
    for size, words in ((2, ("exit",)), (3, ("abort",)), (4, ())):  # ranks that wait in MPICH need whole processors
        theirs = subprocess.run(
            [mpiexec, *oversubscribed, "-n", str(size), program, *words], capture_output=True, text=True,
            env={**os.environ, **root}, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        ours = yods.run("yod", "-sz", str(size), program, *words)
        told = [line for line in theirs.stdout.splitlines() if line.startswith(("ring", "any", "large", "coll", "tot"))]
        assert sorted(ours.stdout.splitlines()) == sorted(told), (mpi, size, words)
        # of two bad exits MPICH's mpiexec makes one number by or, Open MPI's takes the first
        status = {"exit": 2, "abort": 7}[words[0]] if words else 0
        assert ours.returncode == status and (theirs.returncode == status or words == ("exit",))


@pytest.mark.parametrize(("mpi", "compiler"), MPIS)
def test_ranks_that_leave_finalize_out(yods: PrivateMesh, tmp_path: Path, mpi: str, compiler: str) -> None:
    (tmp_path / "left.c").write_text(
        "#include <mpi.h>\n#include <unistd.h>\n#include <stdlib.h>\n"
        "int main(int argc, char **argv) { int rank; MPI_Init(&argc, &argv); MPI_Comm_rank(MPI_COMM_WORLD, &rank);\n"
        "MPI_Barrier(MPI_COMM_WORLD); usleep(argc > 1 && rank ? atoi(argv[1]) * 1000000 : 0); _exit(0); }\n"
    )
    program = str(tmp_path / "left")
    subprocess.run([shutil.which(f"mpicc.{mpi}") or "mpicc", "-o", program, f"{program}.c"], check=True)
    done = yods.run("yod", "-sz", "3", program)
    assert done.returncode == 0 and done.stderr.count("between MPI_Init and MPI_Finalize; this is no error") == 1
    strict = yods.run("yod", "-sz", "3", "-mpi-strict", program)
    assert strict.returncode == 1 and "ended with 0 between MPI_Init and MPI_Finalize" in strict.stderr
    if mpi == "mpich":  # others that run on are in vain: the job is ended
        late = yods.run("yod", "-sz", "3", program, "300")
        assert late.returncode == 1 and "yod: rank 0 on n0 ended with 0 between" in late.stderr


def test_what_follows_an_abort_does_not_hide_it(yods: PrivateMesh) -> None:
    """MPICH 5's race: a fence, or anything, in the same packet as the abort."""
    for more in ("cmd=barrier_in\\n", "cmd=finalize\\n", "GET / HTTP/1.0\\n"):
        script = f"printf 'cmd=init pmi_version=1 pmi_subversion=1\\ncmd=abort exitcode=7\\n{more}' >&$PMI_FD; sleep 60"
        done = yods.run("yod", "-sz", "2", "bash", "-c", script)
        assert done.returncode == 7 and "called MPI_Abort with 7" in done.stderr, done.stderr
        assert "not understood" not in done.stderr


@needs_open_mpi
def test_open_mpis_ranks_yield_where_they_outnumber_processors(yods: PrivateMesh) -> None:
    cores = len(os.sched_getaffinity(0))
    script = "echo ${OMPI_MCA_mpi_yield_when_idle-no}"
    many = yods.run("yod", "-overcommit", "-sz", str(cores + 1), "--mpi=pmix", "sh", "-c", script, check=True)
    assert set(many.stdout.split()) == {"1"}
    few = yods.run("yod", "-sz", str(min(cores, 8)), "--mpi=pmix", "sh", "-c", script, check=True)
    assert set(few.stdout.split()) == {"no"}
    said = {"OMPI_MCA_mpi_yield_when_idle": "0"}
    own = yods.run("yod", "-overcommit", "-sz", str(cores + 1), "--mpi=pmix", "sh", "-c", script, env=said, check=True)
    assert set(own.stdout.split()) == {"0"}


@needs_open_mpi
def test_ranks_that_yield_are_of_one_session_and_get_signals_alone(yods: PrivateMesh) -> None:
    """The scheduler lets a rank give way within its session only; a signal reaches one rank's processes as ever."""
    size = str(len(os.sched_getaffinity(0)) + 2)
    script = "read -r line < /proc/self/stat; set -- $line; echo $5 $6"
    options = ["-overcommit", "-list", "n0", "-sz", size]
    for more, sessions in (["--mpi=pmix"], 1), ([], int(size)):
        done = yods.run("yod", *options, *more, "bash", "-c", script, check=True)
        groups, leaders = zip(*(line.split() for line in done.stdout.splitlines()), strict=True)
        assert len(set(groups)) == int(size) and len(set(leaders)) == sessions
    kills = "test $YOD_RANK = 1 && { sleep 300 & kill -TERM 0; }; test $YOD_RANK != 1 && sleep 0.2 && echo lives"
    done = yods.run("yod", *options, "--mpi=pmix", "-interactive", "bash", "-c", kills)
    assert done.returncode == 128 + signal.SIGTERM and done.stdout.split() == ["lives"] * (int(size) - 1)

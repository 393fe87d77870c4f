"""MPI programs beside MPICH's own launcher, and a fence beside the tree's bare barrier."""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.meshes import mesh
from tests.bench.ratios import Bar, Row, in_turn, seconds
from tests.support.mesh import BIN
from tests.support.mpis import MPICC, ROOT, compiled

YOD = str(BIN / "yod")
FENCES = 20


def mpi() -> list[Row]:
    """MPI_Init, Allreduce, Finalize of 32 ranks over 16 PCTs beside mpiexec.hydra on this machine."""
    if not MPICC:
        print("no MPICH here", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as folder, mesh(32, 16) as one:
        program = compiled("tests/bench/allreduce.c", Path(folder))
        mine, other = in_turn(
            lambda: seconds([YOD, "-sz", "32", program], one.env),
            lambda: seconds(["mpiexec.hydra", "-n", "32", program], one.env),
        )
    return [Row("MPI_Init, Allreduce, Finalize: 32 ranks (s)", "mpiexec.hydra -n 32", mine, other, Bar(1.2, 0.9))]


def fence() -> list[Row]:
    """A fence of 256 ranks that put 64 bytes each beside one in which nothing is put."""
    with tempfile.TemporaryDirectory() as folder, mesh(256, 16) as one:
        program = str(Path(folder) / "fences")
        subprocess.run(["gcc", "-O1", "-o", program, str(ROOT / "tests/bench/fences.c")], check=True)

        def once(length: int) -> float:
            command = [YOD, "-sz", "256", program, str(length), str(FENCES)]
            told = subprocess.run(command, env=one.env, capture_output=True, text=True, check=True, timeout=120).stdout
            return statistics.median(float(word) for word in told.split())

        mine, other = in_turn(lambda: once(64), lambda: once(0))
    return [Row("PMI fence of 256 ranks, 64 bytes each (s)", "the tree's bare barrier", mine, other, Bar(4.0, 2.0))]

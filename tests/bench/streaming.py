"""Output of many ranks into a pipe, and launches one after another, beside srun's."""

import os
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence

from tests.bench.launching import TRUE, YOD
from tests.bench.meshes import mesh, slurm, wait_completing
from tests.bench.ratios import Bar, Row, in_turn, seconds

RANKS, EACH = 16, 64 << 20
PIECE = 1 << 20
LAUNCHES = 50
_RUNS = 5


def _rate(command: Sequence[str], env: Mapping[str, str] | None, size: int) -> float:
    """MiB a second of a command's standard output through a pipe, from its start to its end."""
    began = time.perf_counter()
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    fd, got = process.stdout.fileno(), 0
    while piece := len(os.read(fd, PIECE)):
        got += piece
    status = process.wait()
    took = time.perf_counter() - began
    process.stdout.close()
    if status or got != size:
        raise RuntimeError(f"{command[0]} ended with {status} after {got} of {size} bytes")
    return size / took / (1 << 20)


def output() -> list[Row]:
    """1 GiB from 16 ranks into a pipe: the rate beside srun's and beside one cat's."""
    size, write = RANKS * EACH, ["head", "-c", str(EACH), "/dev/zero"]
    cat = statistics.median(_rate(["head", "-c", str(size), "/dev/zero"], None, size) for _ in range(_RUNS))
    with slurm(RANKS) as peer, mesh(RANKS, RANKS) as one:

        def theirs() -> float:
            rate = _rate(["srun", f"-N{RANKS}", *write], peer, size)
            assert peer is not None
            wait_completing(peer)
            return rate

        def ours() -> float:
            return _rate([YOD, "-sz", str(RANKS), *write], one.env, size)

        mine, other = in_turn(ours, theirs if peer is not None else None, runs=_RUNS)
    against = f"srun -N{RANKS} (one process into a pipe: {cat:.0f} MiB/s)"
    return [Row(f"1 GiB from {RANKS} ranks into a pipe (MiB/s)", against, mine, other, Bar(1.5, 3.0, at_least=True))]


def in_sequence() -> list[Row]:
    """50 launches of one process, one after another, beside 50 of srun."""
    loop = f"for i in $(seq {LAUNCHES}); do %s || exit 1; done"
    with slurm(64) as peer, mesh(64, 64) as one:

        def theirs() -> float:
            took = seconds(["sh", "-c", loop % f"srun -N1 {TRUE}"], peer)
            assert peer is not None
            wait_completing(peer)
            return took

        def ours() -> float:
            return seconds(["sh", "-c", loop % f"{YOD} {TRUE}"], one.env)

        mine, other = in_turn(ours, theirs if peer is not None else None, runs=_RUNS)
    what = f"{LAUNCHES} launches one after another (s)"
    return [Row(what, f"{LAUNCHES} srun -N1 {TRUE}", mine, other, Bar(0.7, 0.5))]

"""yod inside a job of Slurm: beside a step of the same job, and beside Hydra in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

from tests.bench.imaging import held
from tests.bench.meshes import slurm
from tests.bench.ratios import Bar, Row, in_turn, seconds
from tests.support.mesh import BIN

HOSTS, FIRST_RUNS = 16, 3
PROGRAM = "/bin/true"
YOD = [sys.executable, "-P", str(BIN / "yod")]
MESH = [sys.executable, "-P", str(BIN / "mesh")]


def managers() -> list[Row]:
    """16 nodes of real Slurm; needs root, for Slurm."""
    with slurm(HOSTS) as peer:
        if peer is None:
            return []
        with held(peer, HOSTS) as step:
            job = step[1].partition("=")[2]
            environ = {
                **peer, "SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": f"n[1-{HOSTS}]", "SLURM_CLUSTER_NAME": "bench",
                "SLURM_NTASKS": str(HOSTS), "SLURM_TASKS_PER_NODE": f"1(x{HOSTS})",
            }  # fmt: skip
            # the mesh ends with the process that has the job's variables: this one stands for the job's script
            words = [sys.executable, "-m", "tests.bench.managers", *step]
            done = subprocess.run(words, env=environ, check=True, stdout=subprocess.PIPE, timeout=600)
    figures = json.loads(done.stdout)
    bars = {"later": Bar(0.5, 0.3), "rank": Bar(1.8, 1.3), "hydra": Bar(0.5, 0.25), "first": Bar(5.0, 2.5)}
    names = {
        "later": ("later yod of a Slurm job, 16 nodes (s)", "srun --overlap -N16 in the same job"),
        "rank": ("yod --parent=rank in a Slurm job, 16 nodes (s)", "srun --overlap -N16 in the same job"),
        "hydra": ("later yod of a Slurm job, 16 nodes (s)", "mpiexec.hydra in the same job"),
        "first": ("first yod of a Slurm job, mesh and all, 16 nodes (s)", "srun --overlap -N16 in the same job"),
    }
    return [Row(*names[key], mine, other, bars[key]) for key, (mine, other) in figures.items()]


def main() -> int:
    """Inside the job: print the figures as JSON."""
    step = sys.argv[1:]

    def yod() -> float:
        return seconds([*YOD, "-sz", str(HOSTS), PROGRAM], os.environ)

    def first() -> float:
        seconds([*MESH, "down"], os.environ)
        return yod()

    def rank() -> float:
        return seconds([*YOD, "--parent=rank", "-sz", str(HOSTS), PROGRAM], os.environ)

    def srun() -> float:
        return seconds([*step, PROGRAM], os.environ)

    def hydra() -> float:
        return seconds(
            [
                "mpiexec.hydra",
                "-launcher",
                "slurm",
                "-hosts",
                ",".join(f"n{i + 1}" for i in range(HOSTS)),
                "-ppn",
                "1",
                "-n",
                str(HOSTS),
                PROGRAM,
            ],
            os.environ,
        )

    figures = {"first": in_turn(first, srun, FIRST_RUNS), "later": in_turn(yod, srun), "rank": in_turn(rank, srun)}
    if shutil.which("mpiexec.hydra"):
        figures["hydra"] = in_turn(yod, hydra)
    seconds([*MESH, "down"], os.environ)
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())

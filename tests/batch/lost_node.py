"""A node that Slurm loses: its slurmd and the slurmstepds of a job there are killed. Afterwards Slurm gets it again."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path
from signal import SIGKILL

from tests.batch.slurm_job import PATIENCE_S, Job, setting


class Node:
    """A node of ``job``, which has it for itself."""

    def __init__(self, job: Job, name: str) -> None:
        self._job, self._name = job, name

    def kill(self) -> None:
        """Kill slurmd, and the job's slurmstepds on this node."""
        pids = [int(Path(setting("SlurmdPidFile").replace("%n", self._name)).read_text())]
        pids += {parent for pid in self._job.processes(self._name) if (parent := _supervisor(pid))}
        for pid in pids:
            os.kill(pid, SIGKILL)

    def restore(self) -> None:
        """Start slurmd again; it finds the job's steps gone."""
        words = ["slurmd", "-f", os.environ["SLURM_CONF"], "-N", self._name]
        subprocess.run(words, check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _supervisor(pid: int) -> int:
    """The parent of a process if it is a slurmstepd, else 0."""
    with contextlib.suppress(OSError):
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return parent if Path(f"/proc/{parent}/comm").read_text() == "slurmstepd\n" else 0
    return 0

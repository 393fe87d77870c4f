"""Which process is the job's script: the mesh of a job ends with it."""

import os

from agents.linux import processes
from console.settings import JOB_MARKS


def job_process() -> tuple[int, int]:
    """Pid and start time of our uppermost ancestor that has the job's variables: the script, or the job's shell."""
    marks = {name: os.environ[name] for name in JOB_MARKS if name in os.environ}
    found = pid = os.getppid()
    while pid > 1 and _is_of_job(pid, marks):
        found, pid = pid, processes.parent(pid)
    return found, processes.start_time(found)


def _is_of_job(pid: int, marks: dict[str, str]) -> bool:
    variables = processes.environment(pid)  # none of another account's: the manager's daemon
    return any(variables.get(name) == value for name, value in marks.items())

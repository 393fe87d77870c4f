"""Which process is the job's script: the mesh of a job ends with it."""

import os
from typing import Any

from agents.linux import processes
from redmesh.managers import ManagerError


def job_process(manager: Any) -> tuple[int, int]:
    """Pid and start time of our uppermost ancestor that is in the same job: its script, or its shell."""
    job = manager.job_id(os.environ)
    found = pid = os.getppid()
    while pid > 1 and _is_in(pid, manager, job):
        found, pid = pid, processes.parent(pid)
    return found, processes.start_time(found)


def _is_in(pid: int, manager: Any, job: str) -> bool:
    environ = processes.environment(pid)  # none of another account's: the manager's daemon
    try:
        return bool(manager.detect(environ) and manager.job_id(environ) == job)
    except ManagerError:
        return False

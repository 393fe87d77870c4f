"""Finds the process of a batch job's script, with which the job's mesh ends."""

import os
from typing import Any

from agents.linux import processes
from redmesh.managers import ManagerError


def job_process(manager: Any) -> tuple[int, int]:
    """Pid and start time of this process's topmost ancestor in the same job: the job's script, or its shell."""
    job = manager.job_id(os.environ)
    found = pid = os.getppid()
    while pid > 1 and _is_in(pid, manager, job):
        found, pid = pid, processes.parent(pid)
    return found, processes.start_time(found)


def _is_in(pid: int, manager: Any, job: str) -> bool:
    environ = processes.environment(pid)  # a process of another account is the manager's daemon
    try:
        return bool(manager.detect(environ) and manager.job_id(environ) == job)
    except ManagerError:
        return False

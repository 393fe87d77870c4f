"""Grid Engine (Sun, Son of, Open, Univa): ``qrsh -inherit`` starts our processes, from any host of the job.

Source: the manual pages qrsh(1), sge_pe(5) (control_slaves), submit(1) (ENVIRONMENTAL VARIABLES) of 8.1.9.
"""

from __future__ import annotations

import os

from redmesh.managers import ManagerError, client, find_on_path, read_lines, with_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Dict, Mapping, Sequence

    from redmesh.managers import Hosts

distributed = True
#: sge_qmaster: "tightly integrated parallel task failed - killing job" (seen with 8.1.9 after SIGTERM and SIGKILL).
signal_fails_job = True
#: One for the job's script, and for each task of qrsh. It continues when sge_execd is restarted.
supervisor = "sge_shepherd"


def detect(environ: Mapping[str, str]) -> bool:
    """True inside a job of a parallel environment."""
    return "PE_HOSTFILE" in environ and "JOB_ID" in environ


def hosts(environ: Mapping[str, str]) -> Hosts:
    """The hosts of PE_HOSTFILE: ``host slots queue processors``; a host may have a line for each of its queues."""
    return _hosts(environ)


def _hosts(environ: Mapping[str, str]) -> Hosts:
    found: Dict[str, int] = {}
    for line in read_lines(environ, "PE_HOSTFILE"):
        words = line.split()
        if len(words) < 2 or not words[1].isdigit():
            raise ManagerError(f"PE_HOSTFILE has a line that cannot be read: {line[:80]!r}", "sge_pe(5) describes it")
        found[words[0]] = found.get(words[0], 0) + int(words[1])
    return list(found.items())


def job_id(environ: Mapping[str, str]) -> str:
    """The job's number, with the task's number for an array job."""
    task = environ.get("SGE_TASK_ID", "undefined")
    return environ["JOB_ID"] if task == "undefined" else f"{environ['JOB_ID']}.{task}"


def spawn(
    environ: Mapping[str, str], host: str, argv: Sequence[str], env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a task of the job on ``host``. Raises ManagerError if qrsh is not installed."""
    # qrsh passes its arguments to the account's shell, so every word is quoted.
    words = with_environment(argv, env)
    return client([starts_by(environ), "-inherit", "-noshell", host, *words], environ)


def check_ranks(environ: Mapping[str, str], hosts: Sequence[str]) -> None:
    """A host runs as many tasks as it has slots: the node's agent is one, and one starts all ranks there."""
    slots = dict(_hosts(environ))
    small = [name for name in hosts if slots.get(name, 2) < 2]
    if small:
        others = f" and {len(small) - 1} more" if len(small) > 1 else ""
        raise ManagerError(
            f"{small[0]}{others}: Grid Engine gives this host one slot, which the node's agent has; ranks need another",
            "--parent=daemon; or request two slots on each host (allocation_rule of the parallel environment)",
        )


def starts_by(environ: Mapping[str, str]) -> str:
    """The path of qrsh. Raises ManagerError if it is not installed."""
    folders = (
        os.path.join(environ["SGE_ROOT"], "bin", environ.get("ARC", environ.get("SGE_ARCH", "lx-amd64")))
        if environ.get("SGE_ROOT")
        else ""
    )
    qrsh = find_on_path("qrsh", environ, folders)
    if qrsh is None:
        raise ManagerError("qrsh is not found", "PATH, or bin/ARCH below SGE_ROOT, must have it")
    return qrsh


def signal(handle: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to qrsh: after SIGTERM its task gets SIGKILL, and then the whole job ends (seen with 8.1.9)."""
    os.kill(handle.pid, number)


def alive(handle: subprocess.Popen[bytes]) -> bool:
    """qrsh runs as long as its task."""
    return handle.poll() is None

"""LSF: ``blaunch`` starts our processes under the remote execution server of each host.

Source: "blaunch" and "Environment variables set for job execution" in the reference of IBM Spectrum LSF 10.1.
"""

from __future__ import annotations

import os

from redmesh.managers import ManagerError, client, counted, need_on_path, with_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Mapping, Sequence

    from redmesh.managers import Hosts

distributed = True
#: Seconds from SIGTERM to SIGKILL: the default of JOB_TERMINATE_INTERVAL in lsb.params.
kill_delay_s = 10.0


def detect(environ: Mapping[str, str]) -> bool:
    """True inside a job whose hosts are listed."""
    return "LSB_JOBID" in environ and ("LSB_MCPU_HOSTS" in environ or "LSB_HOSTS" in environ)


def hosts(environ: Mapping[str, str]) -> Hosts:
    """LSB_MCPU_HOSTS (``hostA 4 hostB 2``); if it is not set, LSB_HOSTS, which lists a host for each slot."""
    if "LSB_MCPU_HOSTS" not in environ:
        return counted(environ["LSB_HOSTS"].split())
    words = environ["LSB_MCPU_HOSTS"].split()
    if len(words) % 2 or not all(word.isdigit() for word in words[1::2]):
        raise ManagerError(f"LSB_MCPU_HOSTS cannot be read: {' '.join(words)[:80]!r}", "it is: host slots host slots …")
    return list(zip(words[::2], map(int, words[1::2])))


def job_id(environ: Mapping[str, str]) -> str:
    """The job's number, with its index for an array job."""
    index = environ.get("LSB_JOBINDEX", "0")
    return environ["LSB_JOBID"] if index in ("", "0") else f"{environ['LSB_JOBID']}.{index}"


def starts_by(environ: Mapping[str, str]) -> str:
    """The path of blaunch. Raises ManagerError if it is not on PATH."""
    return need_on_path("blaunch", environ)


def spawn(
    environ: Mapping[str, str], host: str, argv: Sequence[str], env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a task of the job on ``host`` without a login shell."""
    return client(["blaunch", "-no-shell", host, *with_environment(argv, env)], environ)


def signal(handle: subprocess.Popen[bytes], number: int) -> None:
    """blaunch forwards signals to its task."""
    os.kill(handle.pid, number)


def alive(handle: subprocess.Popen[bytes]) -> bool:
    """blaunch runs as long as its task."""
    return handle.poll() is None

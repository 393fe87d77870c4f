"""PBS (OpenPBS, PBS Professional, Torque): ``tm_spawn`` starts our processes under pbs_mom.

By the library (libpbs or libtorque, through agents/managers/tm.py) where it is found, else by the commands
``pbs_tmrsh`` (OpenPBS) or ``pbsdsh`` (both). None of them gives the process a standard input.

Source: tm(3) and pbs_tmrsh(8) of OpenPBS 20, pbsdsh(1) of OpenPBS and of Torque 6; "PBS_NODEFILE" in their guides.
"""

from __future__ import annotations

import os
import sys

from redmesh.managers import ManagerError, client, counted, find_on_path, read_lines, with_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Mapping, Optional, Sequence

    from redmesh.managers import Hosts

_PREFIX = "/opt/pbs"
#: The client of the library: a program of its own, because a call of the library may block.
_CLIENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tm.py")
_LIBRARIES = ("libpbs.so.0", "libpbs.so", "libtorque.so.2", "libtorque.so")
#: The variables that tm_init reads. pbs_mom sets them for every task of a job.
_VARIABLES = ("PBS_JOBID", "PBS_JOBCOOKIE", "PBS_NODENUM", "PBS_TASKNUM", "PBS_MOMPORT")

distributed = False  # the TM interface uses the pbs_mom of the job's first host
streams = False
#: Seconds from SIGTERM to SIGKILL: the default of the queue attribute ``kill_delay``.
kill_delay_s = 10.0


def detect(environ: Mapping[str, str]) -> bool:
    """True inside a job whose hosts are listed."""
    return "PBS_JOBID" in environ and "PBS_NODEFILE" in environ


def hosts(environ: Mapping[str, str]) -> Hosts:
    """The hosts in PBS_NODEFILE, which has a line for each slot."""
    return counted(read_lines(environ, "PBS_NODEFILE"))


def job_id(environ: Mapping[str, str]) -> str:
    """The job's identifier: ``1234.server``, or ``1234[7].server`` for an array job."""
    return environ["PBS_JOBID"]


def spawn(
    environ: Mapping[str, str], host: str, argv: Sequence[str], env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a task of the job on ``host``. Raises ManagerError if PBS has neither library nor command for it here."""
    words = with_environment(argv, env)
    library = _library(environ)
    if library is not None:
        node = str(_first_line(environ, host))
        return client([sys.executable, "-I", "-S", _CLIENT, library, node, *words], environ, streams=False)
    prefix = environ.get("PBS_EXEC", _PREFIX)
    tmrsh = find_on_path("pbs_tmrsh", environ, os.path.join(prefix, "bin"), os.path.join(prefix, "sbin"))
    if tmrsh is not None:
        return client([tmrsh, host, *words], environ, streams=False)
    pbsdsh = find_on_path("pbsdsh", environ, os.path.join(prefix, "bin"))
    if pbsdsh is None:
        raise ManagerError(
            "neither libpbs, libtorque, pbs_tmrsh nor pbsdsh is found",
            "PATH, or bin or lib below PBS_EXEC, must have one of them",
        )
    if "PBS_VERSION" in environ and environ["PBS_VERSION"].upper().startswith("TORQUE"):
        return client([pbsdsh, "-h", host, *words], environ, streams=False)
    return client([pbsdsh, "-n", str(_first_line(environ, host)), "--", *words], environ, streams=False)


def _first_line(environ: Mapping[str, str], host: str) -> int:
    """The TM node of ``host``: the number of its first line in PBS_NODEFILE, from 0."""
    return read_lines(environ, "PBS_NODEFILE").index(host)


def _library(environ: Mapping[str, str]) -> Optional[str]:
    """The path of the TM library, or None if there is none, or if this process is no task of a job."""
    if not os.path.isfile(_CLIENT) or any(name not in environ for name in _VARIABLES):
        return None
    prefix = environ.get("PBS_EXEC", _PREFIX)
    folders = [os.path.join(prefix, "lib"), os.path.join(prefix, "lib64")]
    folders += [one for one in environ.get("LD_LIBRARY_PATH", "").split(":") if one]
    folders += ["/usr/local/lib", "/usr/lib64", "/usr/lib", f"/usr/lib/{os.uname().machine}-linux-gnu"]
    paths = (os.path.join(folder, name) for folder in folders for name in _LIBRARIES)
    return next((path for path in paths if os.path.isfile(path)), None)


def signal(handle: subprocess.Popen[bytes], number: int) -> None:
    """The library's client forwards signals; the commands end their task when they are terminated."""
    os.kill(handle.pid, number)


def alive(handle: subprocess.Popen[bytes]) -> bool:
    """Client and commands wait for their task."""
    return handle.poll() is None

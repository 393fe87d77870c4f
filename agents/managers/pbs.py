"""PBS (OpenPBS, PBS Professional, Torque): ``tm_spawn`` starts our processes under pbs_mom.

By the library (libpbs or libtorque, through ctypes) where it can be loaded, else by the commands ``pbs_tmrsh``
(OpenPBS) or ``pbsdsh`` (both). None of them gives the process a standard input.

Source: tm(3) and pbs_tmrsh(8) of OpenPBS 20, pbsdsh(1) of OpenPBS and of Torque 6; "PBS_NODEFILE" in their guides.
"""

from __future__ import annotations

import os

from redmesh.managers import ManagerError, client, counted, find_on_path, read_lines, with_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Mapping, Sequence

    from redmesh.managers import Hosts

distributed = False  # the TM interface uses the pbs_mom of the job's first host
streams = False


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
    """Start a task of the job on ``host``. Raises ManagerError if PBS has no command for it here."""
    words = with_environment(argv, env)
    prefix = environ.get("PBS_EXEC", "/opt/pbs")
    tmrsh = find_on_path("pbs_tmrsh", environ, os.path.join(prefix, "bin"), os.path.join(prefix, "sbin"))
    if tmrsh is not None:
        return client([tmrsh, host, *words], environ, streams=False)
    pbsdsh = find_on_path("pbsdsh", environ, os.path.join(prefix, "bin"))
    if pbsdsh is None:
        raise ManagerError("neither pbs_tmrsh nor pbsdsh is found", "PATH, or bin below PBS_EXEC, must have one")
    if "PBS_VERSION" in environ and environ["PBS_VERSION"].upper().startswith("TORQUE"):
        return client([pbsdsh, "-h", host, *words], environ, streams=False)
    number = [name for name, _slots in hosts(environ)].index(host)
    first = sum(slots for _name, slots in hosts(environ)[:number])
    return client([pbsdsh, "-n", str(first), "--", *words], environ, streams=False)


def signal(handle: subprocess.Popen[bytes], number: int) -> None:
    """The commands end their task when they are terminated."""
    os.kill(handle.pid, number)


def alive(handle: subprocess.Popen[bytes]) -> bool:
    """The commands wait for their task."""
    return handle.poll() is None

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

#: Where PBS is installed if neither PBS_EXEC nor its configuration file says so (pbs.conf(5)).
_PREFIX, _CONFIGURATION = "/opt/pbs", "/etc/pbs.conf"
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
    command = _command(environ)
    if os.path.basename(command) == "pbs_tmrsh":
        return client([command, host, *words], environ, streams=False)
    pbsdsh = command
    if "PBS_VERSION" in environ and environ["PBS_VERSION"].upper().startswith("TORQUE"):
        return client([pbsdsh, "-h", host, *words], environ, streams=False)
    return client([pbsdsh, "-n", str(_first_line(environ, host)), "--", *words], environ, streams=False)


def starts_by(environ: Mapping[str, str]) -> str:
    """The library or the command by which ``spawn`` starts tasks. Raises ManagerError if there is none."""
    return _library(environ) or _command(environ)


def _command(environ: Mapping[str, str]) -> str:
    prefix = _prefix(environ)
    folders = os.path.join(prefix, "bin"), os.path.join(prefix, "sbin")
    found = find_on_path("pbs_tmrsh", environ, *folders) or find_on_path("pbsdsh", environ, *folders)
    if found is None:
        raise ManagerError(
            "neither libpbs, libtorque, pbs_tmrsh nor pbsdsh is found",
            f"PATH, or bin or lib below {prefix} (PBS_EXEC), must have one of them",
        )
    return found


def _prefix(environ: Mapping[str, str]) -> str:
    """PBS_EXEC of the environment, or of PBS's configuration file."""
    if environ.get("PBS_EXEC"):
        return environ["PBS_EXEC"]
    try:
        with open(environ.get("PBS_CONF_FILE", _CONFIGURATION), encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition("=")
                if name.strip() == "PBS_EXEC" and value.strip():
                    return value.strip().strip("\"'")
    except OSError:
        pass
    return _PREFIX


def _first_line(environ: Mapping[str, str], host: str) -> int:
    """The TM node of ``host``: the number of its first line in PBS_NODEFILE, from 0."""
    return read_lines(environ, "PBS_NODEFILE").index(host)


def _library(environ: Mapping[str, str]) -> Optional[str]:
    """The path of the TM library, or None if there is none, or if this process is no task of a job."""
    if not os.path.isfile(_CLIENT) or any(name not in environ for name in _VARIABLES):
        return None
    prefix = _prefix(environ)
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

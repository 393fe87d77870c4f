"""A manager of one's own: hosts that a file lists, reached by any command that runs another one there.

LISTED_HOSTS names a file with a line ``host slots`` each, LISTED_RUN the command (default ``ssh``), LISTED_JOB the job.
Installed with ``pip install examples/manager``; used with ``REDMESH_MANAGER=listed_hosts yod …``.
The interface: ``python -m pydoc redmesh.managers``.
"""

import os
import shlex

from redmesh.managers import ManagerError, client, read_lines

distributed = True


def detect(environ):
    """Whether a list of hosts is named."""
    return "LISTED_HOSTS" in environ


def hosts(environ):
    """Each host and its slots."""
    try:
        return [(name, int(slots)) for name, slots in (line.split() for line in read_lines(environ, "LISTED_HOSTS"))]
    except ValueError:
        raise ManagerError("a line of LISTED_HOSTS is not `host slots`", "write it like: node07 4") from None


def job_id(environ):
    """The name of the mesh."""
    return environ.get("LISTED_JOB", "1")


def spawn(environ, host, argv, env):
    """Run ``argv`` on ``host``. The remote shell reads one line, so each word is quoted."""
    words = ["env", *(f"{name}={value}" for name, value in env.items()), *argv]
    line = " ".join(shlex.quote(word) for word in words)
    return client([*shlex.split(environ.get("LISTED_RUN", "ssh")), host, line], environ)


def signal(handle, number):
    """The command passes signals on, or ends what it has started when it ends."""
    os.kill(handle.pid, number)

"""Files that are made once in a run of the tests, for all its processes and for the test programs that they start."""

import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.support.reaper import private_directory

#: The variable with the directory that the processes of a run share; not set outside pytest, and until it is needed.
#: PrivateMesh takes it out of the environment of commands.
SHARED = "REDMESH_TESTS_SHARED"


def share(directory: Path) -> None:
    """Use ``directory``, like all processes of this run of the tests."""
    os.environ[SHARED] = str(directory)


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return the directory ``name`` of the run; the first process that asks for it lets ``make`` fill it."""
    if SHARED not in os.environ:
        share(private_directory("rm-once-"))
    directory = Path(os.environ[SHARED])
    path = directory / name
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            being_made = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=directory))
            make(being_made)
            being_made.rename(path)  # so that nothing that was made in part is found
    return path

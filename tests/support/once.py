"""Files that are made once in a run of the tests and serve all its processes."""

import fcntl
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.support.reaper import private_directory

#: The directory that the processes of this run share; empty outside pytest, and until it is needed.
_shared: list[Path] = []


def share(directory: Path) -> None:
    """Use ``directory``, like all processes of this run of the tests."""
    _shared[:] = [directory]


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return the directory ``name`` of the run; the first process that asks for it lets ``make`` fill it."""
    if not _shared:
        share(private_directory("rm-once-"))
    path = _shared[0] / name
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            being_made = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=_shared[0]))
            make(being_made)
            being_made.rename(path)  # so that nothing that was made in part is found
    return path

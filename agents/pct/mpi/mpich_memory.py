"""The shared memory of MPICH 5's ranks on one machine: two names in the RAM disk, derived from the launch's PMI
name.

MPICH unlinks them only in MPI_Finalize: an abort or a kill left 4 MB a launch in /dev/shm, under its own mpiexec too.
The PMI name is unique to this launch, so a file with its hash in the name belongs to this launch. Links in a directory
of the launch child tell its PCT what to remove if the launch child itself is killed (agents/pct/images/store.py).
"""

from __future__ import annotations

import os
import shutil

from agents.pct.images.ram_disk import RAM_DISK
from agents.pct.images.store import ImageError, launch_directory, own_place, remove_segment

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import List


def segments(pmi_name: str, host: int) -> "List[str]":
    """The names that the ranks on the ``host``-th machine of a launch use (MPICH: src/mpid/ch4/shm/posix)."""
    number = 2166136261
    for byte in pmi_name.encode():
        number = (number ^ byte) * 16777619 & 0xFFFFFFFF  # FNV-1a
    return [f"mpich_{kind}_{number:x}_{host}" for kind in ("shm", "vci")]


class MpichMemory:
    """The segments of one launch child. ``name``: for people, in the directory's name."""

    def __init__(self, pmi_name: str, host: int, name: str, ram_disk: str = RAM_DISK) -> None:
        self._paths = [os.path.join(ram_disk, segment) for segment in segments(pmi_name, host)]
        self._directory = launch_directory(name, ram_disk)
        try:
            own_place(self._directory)
            for path in self._paths:
                os.symlink(path, os.path.join(self._directory, os.path.basename(path)))
        except (ImageError, OSError):
            pass  # no usable RAM disk: MPICH itself cannot create its segments, which it keeps nowhere else

    def remove(self) -> None:
        """Remove what is left after the ranks' end."""
        for path in self._paths:
            remove_segment(path)
        shutil.rmtree(self._directory, ignore_errors=True)

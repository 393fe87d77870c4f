"""Where Open MPI keeps the memory that its ranks share: a directory of the launch's own in the RAM disk.

By itself it takes /dev/shm, and what a killed rank had there stays until the machine boots. This one goes with the
launch child: removed when its ranks are gone, or swept up by its PCT when it was killed itself (agents/pct/image.py).
"""

from __future__ import annotations

import os
import shutil

from agents.pct.image import RAM_DISK, ImageError, launch_directory, own_directory

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, List

#: Parameters that name such a place: of messages (Open MPI 4, 5) and of windows (both).
PARAMETERS = (
    "btl_vader_backing_directory", "btl_sm_backing_directory", "osc_sm_backing_directory",
    "osc_rdma_backing_directory",
)  # fmt: skip
_OWN_FILE = ".openmpi/mca-params.conf"
_LONGEST = 1 << 20


class SharedMemory:
    """One launch child's; ``name`` says whose, for people."""

    def __init__(self, name: str, ram_disk: str = RAM_DISK) -> None:
        self._directory = ""
        self._path, self._base = launch_directory(name, ram_disk), os.path.join(ram_disk, f"redmesh-{os.geteuid()}")

    def variables(self, environments: List[Dict[bytes, bytes]]) -> Dict[str, str]:
        """What tells Open MPI, but for what its user has said: the ranks' ``environments``, the first for all."""
        told = _told_in_file(os.fsdecode(environments[0].get(b"HOME", b"")))
        names = [
            name for name in PARAMETERS
            if name not in told and not any(f"OMPI_MCA_{name}".encode() in one for one in environments)
        ]  # fmt: skip
        if not names:
            return {}
        try:
            own_directory(self._base)
            own_directory(self._path)
        except ImageError:
            return {}  # no RAM disk, or none for us: it goes on as without us
        self._directory = self._path
        return {f"OMPI_MCA_{name}": self._path for name in names}

    def remove(self) -> None:
        """The ranks are gone."""
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = ""


def _told_in_file(home: str) -> str:
    try:
        fd = os.open(os.path.join(home, _OWN_FILE), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    with open(fd, encoding="utf-8", errors="replace") as file:
        try:
            lines = file.read(_LONGEST).splitlines()
        except OSError:
            return ""
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))

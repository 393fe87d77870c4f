"""Which MPI a program was linked against, as far as that decides whether its ranks can find each other here."""

from __future__ import annotations

import os

from console.errors import ConsoleError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from console.launch.request import Request

#: ``--mpi``: PMI-1 or PMI-2 as the program begins to speak, one of them alone, or no process manager at all.
KINDS = ("auto", "pmi1", "pmi2", "none")
_OPEN_MPI = (b"libmpi.so.40", b"libmpi.so.20")
#: The names of libraries stand before the code where a linker put them, at the end where a packager moved them.
_HEAD, _TAIL = 1 << 20, 256 << 10


def misfit(request: Request) -> ConsoleError | None:
    """Why several ranks of this request would each believe to be alone; None when nothing is known against them.

    Only with ``auto``: who names a kind knows. Open MPI speaks PMIx alone, and says nothing when it finds none.
    """
    if request.mpi != "auto":
        return None
    paths = {one.path for one in request.segments} if request.segments is not None else {request.path}
    for path in sorted(paths):
        if _mentions_open_mpi(path) and _links_open_mpi(path):
            name = os.fsdecode(os.path.basename(path))
            return ConsoleError(
                f"{name} is linked against Open MPI, which needs PMIx, and yod speaks PMI-1 and PMI-2:"
                " each rank would believe that it is alone",
                "build it with MPICH or a library like it (Debian: libmpich-dev, mpicc.mpich), or start it with"
                " Open MPI's mpiexec; --mpi=none starts the ranks as they are",
            )
    return None


def _mentions_open_mpi(path: bytes) -> bool:
    try:
        with open(path, "rb", buffering=0) as file:
            data = file.read(_HEAD) or b""
            if len(data) == _HEAD:
                file.seek(max(_HEAD, os.fstat(file.fileno()).st_size - _TAIL))
                data += file.read(_TAIL) or b""
    except OSError:
        return False  # it may be run without being read
    return data.startswith(b"\x7fELF") and any(name in data for name in _OPEN_MPI)


def _links_open_mpi(path: bytes) -> bool:
    from console.launch.libraries import NotElf, read_elf

    try:
        needed = read_elf(os.fsdecode(path)).needed
    except (NotElf, OSError):
        return False
    return any(name.encode() in _OPEN_MPI for name in needed)

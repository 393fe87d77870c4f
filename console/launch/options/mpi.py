"""Finds out which MPI library a program was linked with, to choose how its ranks are started."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from console.launch.options.request import Request

_OPEN_MPI = (b"libmpi.so.40", b"libmpi.so.20")
#: MPI libraries that read the node's topology by hwloc in each rank; nodes read it once (agents/pct/mpi/hwloc.py).
_MPICH = (b"libmpich.so.", b"libmpi.so.12")
#: Names of libraries are before the code, as linkers write them, or at the end, where packaging tools move them.
_HEAD, _TAIL = 1 << 20, 256 << 10


def choose(request: Request, default: str) -> str:
    """Choose the process manager interface if the user did not: PMIx for programs linked with Open MPI.

    Returns an error about the user's choice, or "". ``default``: the site's choice, for scripts, interpreters and
    programs without MPI. PMI and PMIx are never offered together, because a program that finds both uses the wrong one.
    Libraries that Python or a plug-in loads later are not detected.
    """
    if request.mpi.kind == "none":
        return ""
    for path in sorted(set(request.program.paths)):
        names = _names(path)
        request.mpi.hwloc = request.mpi.hwloc or any(name in names for name in _MPICH)
        if request.mpi.kind != "pmix" and any(name in names for name in _OPEN_MPI) and _links(path, _OPEN_MPI):
            if request.mpi.kind != "auto":
                return _alone(path, "Open MPI, which needs PMIx", request.mpi.kind)
            request.mpi.kind = "open-mpi"
            request.mpi.pmix_library = _library_of(os.fsdecode(path), request)
            return ""
        if request.mpi.kind == "pmix" and any(name in names for name in _MPICH) and _links(path, _MPICH):
            request.mpi.hwloc = False
            return _alone(path, "MPICH, which needs PMI as a rule", request.mpi.kind)
    if request.mpi.kind == "auto" and not request.mpi.hwloc:
        request.mpi.kind = default
    return ""


def kind_for(path: str) -> str:
    """``pmix`` for a program linked with Open MPI, otherwise ``auto``: for programs that workers start."""
    name = os.fsencode(path)
    return "pmix" if any(one in _names(name) for one in _OPEN_MPI) and _links(name, _OPEN_MPI) else "auto"


def _alone(path: bytes, what: str, said: str) -> str:
    name = os.path.basename(os.fsdecode(path))
    return f"{name} is linked against {what}: with --mpi={said} its ranks do not find each other; --mpi=auto does it"


def told(request: Request, size: int) -> dict[str, Any]:
    """The MPI part of the load. A single rank of Open MPI gets no PMIx server, because the node may lack libpmix."""
    if request.mpi.kind == "open-mpi":
        kind = "pmix" if size > 1 else "none"
        return {"mpi": kind, "library": request.mpi.pmix_library} if request.mpi.pmix_library else {"mpi": kind}
    return {"mpi": request.mpi.kind, "hwloc": True} if request.mpi.hwloc else {"mpi": request.mpi.kind}


def _library_of(path: str, request: Request) -> str:
    # The libpmix that the program was linked with fits it; the system's libpmix need not be named.
    from console.launch.elf import NotElf, needed

    try:
        environ = {os.fsdecode(key): os.fsdecode(value) for key, value in request.program.environ.items()}
        return dict(needed(path, environ).shipped).get("libpmix.so.2", "")
    except (NotElf, OSError):
        return ""


def _names(path: bytes) -> bytes:
    """The part of a program with its library names; empty for a file that is no program."""
    try:
        with open(path, "rb", buffering=0) as file:
            data = file.read(_HEAD) or b""
            if len(data) == _HEAD:
                file.seek(max(_HEAD, os.fstat(file.fileno()).st_size - _TAIL))
                data += file.read(_TAIL) or b""
    except OSError:
        return b""  # it may be executable without being readable
    return data if data.startswith(b"\x7fELF") else b""


def _links(path: bytes, names: tuple[bytes, ...]) -> bool:
    from console.launch.elf import NotElf, read_elf

    try:
        needed = read_elf(os.fsdecode(path)).needed
    except (NotElf, OSError):
        return False
    return any(name.encode().startswith(names) for name in needed)

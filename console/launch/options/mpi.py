"""Which MPI a program was linked against, as far as that decides how its ranks can find each other."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from console.launch.options.request import Request

_OPEN_MPI = (b"libmpi.so.40", b"libmpi.so.20")
#: Those that ask hwloc what the node looks like, each rank for itself; nodes spare them that (agents/pct/mpi/hwloc.py).
_MPICH = (b"libmpich.so.", b"libmpi.so.12")
#: The names of libraries stand before the code where a linker put them, at the end where a packager moved them.
_HEAD, _TAIL = 1 << 20, 256 << 10


def choose(request: Request, default: str) -> str:
    """Which process manager the ranks are offered, where nobody said: PMIx to who is linked against Open MPI.

    Returned is what is wrong with what somebody said; empty when nothing is. ``default``: the site's, for scripts,
    interpreters and whatever names no MPI.
    Never both: a program that finds two takes the wrong one. What Python or a plug-in loads later is not seen.
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
    """``pmix`` for a program that is linked against Open MPI, else ``auto``: for programs that workers start."""
    name = os.fsencode(path)
    return "pmix" if any(one in _names(name) for one in _OPEN_MPI) and _links(name, _OPEN_MPI) else "auto"


def _alone(path: bytes, what: str, said: str) -> str:
    name = os.path.basename(os.fsdecode(path))
    return f"{name} is linked against {what}: with --mpi={said} its ranks do not find each other; --mpi=auto does it"


def told(request: Request, size: int) -> dict[str, Any]:
    """What the load says of it. A single rank of Open MPI's needs nobody, and a library that may be missing."""
    if request.mpi.kind == "open-mpi":
        kind = "pmix" if size > 1 else "none"
        return {"mpi": kind, "library": request.mpi.pmix_library} if request.mpi.pmix_library else {"mpi": kind}
    return {"mpi": request.mpi.kind, "hwloc": True} if request.mpi.hwloc else {"mpi": request.mpi.kind}


def _library_of(path: str, request: Request) -> str:
    # The one that the program itself will load speaks what it speaks; no other is asked for where it is the system's.
    from console.launch.elf import NotElf, needed

    try:
        environ = {os.fsdecode(key): os.fsdecode(value) for key, value in request.program.environ.items()}
        return dict(needed(path, environ).shipped).get("libpmix.so.2", "")
    except (NotElf, OSError):
        return ""


def _names(path: bytes) -> bytes:
    """Where a program names its libraries; nothing of a file that is none."""
    try:
        with open(path, "rb", buffering=0) as file:
            data = file.read(_HEAD) or b""
            if len(data) == _HEAD:
                file.seek(max(_HEAD, os.fstat(file.fileno()).st_size - _TAIL))
                data += file.read(_TAIL) or b""
    except OSError:
        return b""  # it may be run without being read
    return data if data.startswith(b"\x7fELF") else b""


def _links(path: bytes, names: tuple[bytes, ...]) -> bool:
    from console.launch.elf import NotElf, read_elf

    try:
        needed = read_elf(os.fsdecode(path)).needed
    except (NotElf, OSError):
        return False
    return any(name.encode().startswith(names) for name in needed)

"""The resource limits of ranks (setrlimit(2)): the launcher's soft limits, as far as the node's hard limits allow.

A hard limit is never changed: it is the launch child's own, which is what its PCT was started with. So a launcher that
claims to have no limits gets no more than that, in system mode too.
"""

from __future__ import annotations

from agents.linux.libc import Unsigned
from agents.linux.prctl import descriptor_limit, limits_here
from redmesh.text import size_text

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Sequence, Tuple

_UNLIMITED = Unsigned(-1).value
_CPU, _FSIZE, _DATA, _STACK, _CORE, _RSS, _NPROC, _NOFILE, _MEMLOCK, _AS = range(10)

#: The resources that a launch takes along (getrlimit(2)): what each is called, the option of ulimit, and the unit.
RESOURCES = {
    _CPU: ("CPU time", "-t", "s"),
    _FSIZE: ("file size", "-f", "B"),
    _DATA: ("data segment", "-d", "B"),
    _STACK: ("stack", "-s", "B"),
    _CORE: ("core file size", "-c", "B"),
    _RSS: ("resident memory", "-m", "B"),
    _NPROC: ("processes of the user", "-u", ""),
    _NOFILE: ("open files", "-n", ""),
    _MEMLOCK: ("locked memory", "-l", "B"),
    _AS: ("address space", "-v", "B"),
}  # fmt: skip
#: Limits that can keep a program from being loaded.
_FOR_LOADING = (_DATA, _STACK, _AS)


class RankLimits:
    """The limits of the ranks of one launch on this node.

    ``calls``: arguments for setrlimit(2), where a limit differs from the launch child's own. ``lowered``: resource,
    soft limit that the launcher has, and the node's hard limit, where that is lower.
    """

    __slots__ = ("_wanted", "calls", "lowered")

    def __init__(self, wanted: "Sequence[Tuple[int, int]]") -> None:
        """``wanted``: numbers of resources, and the launcher's soft limits (-1: unlimited)."""
        self.calls: List[Tuple[int, Any]] = []
        self.lowered: List[Tuple[int, int, int]] = []
        self._wanted: Dict[int, int] = {
            number: Unsigned(soft).value for number, soft in wanted if number in RESOURCES and soft >= -1
        }
        for number, soft in self._wanted.items():
            own = limits_here(number)
            if own is None:
                continue
            hard = descriptor_limit[1] if number == _NOFILE and descriptor_limit[1] else own[1]
            if soft > hard:
                self.lowered.append((number, soft, hard))
            if (min(soft, hard), hard) != own:
                self.calls.append((number, (Unsigned * 2)(min(soft, hard), hard)))
        if descriptor_limit[1] and _NOFILE not in self._wanted:  # a launcher of an earlier version on this machine
            self.calls.append((_NOFILE, descriptor_limit))

    def as_text(self) -> str:
        """The limits for a rank's starter: ``NUMBER:SOFT``, separated by commas, with -1 for unlimited."""
        pairs = ((number, -1 if soft == _UNLIMITED else soft) for number, soft in self._wanted.items())
        return ",".join(f"{number}:{soft}" for number, soft in pairs)

    def lowered_text(self) -> str:
        """What the node's hard limits keep from the ranks; "" if they have what the launcher has."""
        lowered = [one for one in self.lowered if one[0] != _NPROC or one[2] != _processes_by_default()]
        if not lowered:
            return ""
        parts = [f"{_name(number)} {_value(number, hard)} instead of {_value(number, soft)}"
                 for number, soft, hard in lowered]  # fmt: skip
        if len(parts) == 1:
            return f"{parts[0]}: the hard limit there (start the mesh under a higher one)"
        return f"{', '.join(parts)}: the hard limits there (start the mesh under higher ones)"

    def loading_text(self) -> str:
        """The launcher's limits that can keep a program from being loaded; "" for none."""
        low = [number for number in _FOR_LOADING if self._wanted.get(number, _UNLIMITED) != _UNLIMITED]
        return ", ".join(f"{_name(number)} {_value(number, self._wanted[number])}" for number in low)


def _name(number: int) -> str:
    what, option, _unit = RESOURCES[number]
    return f"{what} (ulimit {option})"


def _value(number: int, limit: int) -> str:
    unit = RESOURCES[number][2]
    if limit == _UNLIMITED:
        return "unlimited"
    return size_text(limit) if unit == "B" else f"{limit} {unit}".rstrip()


def _processes_by_default() -> int:
    """The hard limit of processes that the kernel gives by its memory: nobody has set it, so nobody is told."""
    try:
        with open("/proc/sys/kernel/threads-max", "rb", buffering=0) as file:
            return int(file.read(32)) // 2
    except (OSError, ValueError):
        return 0

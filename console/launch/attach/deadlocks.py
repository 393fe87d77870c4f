"""Derives hints, with reasons, why a program does not progress, from a merged stack tree. No I/O.

A snapshot cannot prove a deadlock; it shows which ranks wait where, and which are missing there.
"""

from __future__ import annotations

from agents.pct.debug import stack_tree
from redmesh import idset
from redmesh.text import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

#: MPI calls that return when every rank (or enough of them) of the communicator has made them.
_COLLECTIVE = (
    "Barrier", "Bcast", "Reduce", "Allreduce", "Gather", "Gatherv", "Allgather", "Allgatherv", "Scatter", "Scatterv",
    "Alltoall", "Alltoallv", "Alltoallw", "Scan", "Exscan", "Reduce_scatter", "Reduce_scatter_block", "Finalize",
    "Comm_dup", "Comm_split", "Comm_create", "Win_fence", "Win_create", "File_open", "Init", "Init_thread",
)  # fmt: skip
_RECEIVING = ("Recv", "Probe", "Mrecv", "Mprobe")
_SENDING = ("Send", "Ssend", "Rsend")
_WAITING = ("Wait", "Waitall", "Waitany", "Waitsome", "Sendrecv", "Sendrecv_replace")
#: Other calls that wait for all: by function, and if the name is ambiguous, by the end of the file name.
_BARRIERS = {"pthread_barrier_wait": "", "___pthread_barrier_wait": "", "GOMP_barrier": ""}
#: The beginnings of functions that wait for a lock without a time limit (a lock of Python is a semaphore of libc).
_LOCKS = ("new_sem_wait", "sem_wait", "lll_lock_wait", "pthread_mutex_lock", "pthread_rwlock_")
_TORCH = "distributed/distributed_c10d.py"
_TORCH_CALLS = frozenset(
    ("barrier", "monitored_barrier", "all_reduce", "all_gather", "broadcast", "reduce", "all_to_all", "reduce_scatter",
     "all_gather_into_tensor", "reduce_scatter_tensor", "gather", "scatter", "recv", "send")
)  # fmt: skip
#: The ends of the reasons for ranks that are missing because they have exited (agents/pct/debug/snapshot.py,
#: stacks.py).
_ENDED = ("it has ended", "its process has ended")


class Wait:
    """Ranks that wait in the same call from the same place."""

    __slots__ = ("kind", "name", "place", "ranks")

    def __init__(self, name: str, kind: str, place: str, ranks: int) -> None:
        self.name, self.kind, self.place, self.ranks = name, kind, place, ranks

    def __str__(self) -> str:
        return f"{_ranks(self.ranks)} in {self.name}" + (f" ({self.place})" if self.place else "")


def hints(
    tree: stack_tree.Tree, everybody: int, missing: list[dict[str, Any]], *, asked: int = -1
) -> list[dict[str, str]]:
    """Return hints as ``{"kind", "text", "ranks"}``.

    ``everybody``: all ranks of the launch. ``asked``: those whose stacks were requested (-1: all). A rank whose stack
    was not requested or could not be read may be in any call, for example in the matching send.
    """
    waits = list(_waits(tree))
    if not waits:
        return [{"kind": kind, "text": text, "ranks": idset.text(ranks)} for kind, text, ranks in _locked(tree)]
    unknown, ended = everybody & ~asked, 0
    for one in missing:
        if one["why"].endswith(_ENDED):
            ended |= idset.read(one["ranks"])
        else:
            unknown |= idset.read(one["ranks"])
    waiting = _all_of(waits)
    unknown &= ~waiting  # a rank whose stack is only partly known still counts as waiting if a call shows it
    looked_at = everybody & ~unknown & ~ended
    elsewhere = looked_at & ~waiting
    told = [*_different(waits, elsewhere | unknown), *_never_came(tree, waits, elsewhere, ended)]
    if not told and not (elsewhere | unknown):
        told = list(_nobody_sends(waits, ended))
    about = _about(looked_at, everybody & ~ended) if unknown else ""
    return [{"kind": kind, "text": about + text, "ranks": idset.text(ranks)} for kind, text, ranks in told]


def _about(looked_at: int, running: int) -> str:
    """The ranks of a hint, in words, if not every rank was examined."""
    return f"of the {counted(idset.count(looked_at), 'rank')} looked at (of {idset.count(running)} that run): "


def _all_of(waits: list[Wait]) -> int:
    return _union(wait.ranks for wait in waits)


def _union(several: Iterable[int]) -> int:
    ranks = 0
    for one in several:
        ranks |= one
    return ranks


def _different(waits: list[Wait], others: int) -> Iterator[tuple[str, str, int]]:
    """Yield a hint if some ranks wait in a collective call, and others in a different blocking call."""
    collective = [wait for wait in waits if wait.kind == "collective"]
    names = {wait.name for wait in waits}
    if not collective or len(names) < 2:
        return
    ranks = _all_of(waits)
    text = "; ".join(str(wait) for wait in waits)
    who = collective[0]
    if others:
        yield "different-calls", f"{text}: {who.name} returns only when all of its communicator are in it", ranks
    else:
        why = f"nobody computes, and {who.name} returns only when all of its communicator are in it"
        yield "deadlock", f"{text}: {why}", ranks


def _never_came(tree: stack_tree.Tree, waits: list[Wait], elsewhere: int, ended: int) -> Iterator[tuple[str, str, int]]:
    """Yield hints about ranks that are in no collective call while others wait in one."""
    collective = [wait for wait in waits if wait.kind == "collective"]
    if not collective:
        return
    there = "; ".join(str(wait) for wait in collective)
    if elsewhere:
        places = "; ".join(f"{_ranks(ranks)} in {name}" for name, ranks in _stand(tree, elsewhere)[:4])
        yield "not-arrived", f"{there}; not there: {places or _ranks(elsewhere)}", elsewhere
    if ended:
        verb = "have" if idset.count(ended) > 1 else "has"
        yield "not-arrived", f"{there}; {_ranks(ended)} {verb} ended and will not come", ended


def _nobody_sends(waits: list[Wait], ended: int) -> Iterator[tuple[str, str, int]]:
    """Yield a hint if all running ranks wait in point-to-point calls of one direction: all receive, or all send."""
    for kind, verb in (("receive", "nobody sends"), ("send", "nobody receives")):
        if all(wait.kind == kind for wait in waits):
            ranks = _all_of(waits)
            gone = f" ({_ranks(ended)} ended)" if ended else ""
            if kind == "receive" or idset.count(ranks) > 1:
                yield "deadlock", "; ".join(str(wait) for wait in waits) + f": {verb}{gone}", ranks


def _locked(tree: stack_tree.Tree) -> Iterator[tuple[str, str, int]]:
    """Yield a hint if every thread of some ranks waits for a lock."""
    held: dict[str, int] = {}  # ranks with a thread that waits for a lock, by its place in the program
    others = 0  # ranks with a thread that does anything else
    ahead: list[tuple[stack_tree.Tree, str]] = [(tree, "")]
    while ahead:
        level, at = ahead.pop()
        for call, node in level.items():
            if call[3] != "python" and call[0].lstrip("_").startswith(_LOCKS):
                held[at] = held.get(at, 0) | node.ranks
                continue
            below = _union(each.ranks for each in node.below.values())
            others |= node.ranks & ~below
            ahead.append((node.below, f"{call[0]} ({_place(call)})" if _place(call) else at))
    held = {at: ranks & ~others for at, ranks in held.items() if ranks & ~others}
    if held:
        ranks = _union(held.values())
        places = "; ".join(f"{_ranks(there)} in {at or 'a library'}" for at, there in sorted(held.items()))
        yield "locked", f"every thread waits for a lock: {places}", ranks


def _waits(tree: stack_tree.Tree) -> list[Wait]:
    found: dict[tuple[str, str, str], Wait] = {}
    ahead: list[tuple[stack_tree.Tree, str]] = [(tree, "")]
    while ahead:
        level, place = ahead.pop()
        for call, node in level.items():
            name, kind = blocking(call)
            if kind:
                wait = found.setdefault((name, kind, place), Wait(name, kind, place, 0))
                wait.ranks |= node.ranks
            else:
                ahead.append((node.below, _place(call) or place))
    return sorted(found.values(), key=lambda wait: (-idset.count(wait.ranks), idset.lowest(wait.ranks)))


def blocking(call: stack_tree.Call) -> tuple[str, str]:
    """The name and kind (collective, receive, send, wait) of a call that waits for other ranks; "" for other calls."""
    function, file, _, language = call
    if language == "python":
        if file.endswith(_TORCH) and function in _TORCH_CALLS:
            return function, {"recv": "receive", "send": "send"}.get(function, "collective")
        return "", ""
    name = function[1:] if function.startswith("PMPI_") else function
    if name.startswith("MPI_"):
        rest = name[4:].removesuffix("_c")
        if rest in _COLLECTIVE or rest.startswith("Neighbor_"):
            return name, "collective"
        for kind, names in (("receive", _RECEIVING), ("send", _SENDING), ("wait", _WAITING)):
            if rest in names:
                return name, kind
        return "", ""
    return (function.lstrip("_"), "collective") if function in _BARRIERS else ("", "")


def _place(call: stack_tree.Call) -> str:
    """The place of the program's own call, without a library's wrappers."""
    function, file, line, language = call
    if not line or "mpi4py" in file or file.endswith(_TORCH) or "torch/" in file:
        return ""
    if language == "c" and function.startswith(("__pyx", "Py", "_Py")):
        return ""
    return f"{file}:{line}"


def _stand(tree: stack_tree.Tree, ranks: int) -> list[tuple[str, int]]:
    """The innermost source lines in the program's own code of ranks that wait for no rank."""
    found: dict[str, int] = {}
    known = 0  # ranks with a known source line; library threads without one add nothing
    ahead: list[tuple[stack_tree.Tree, str]] = [(tree, "")]
    while ahead:
        level, place = ahead.pop()
        for call, node in level.items():
            here = node.ranks & ranks
            if not here:
                continue
            at = f"{call[0]} ({_place(call)})" if _place(call) else place or call[0]
            known |= here if at.endswith(")") else 0
            below = _union(each.ranks for each in node.below.values())
            if here & ~below:
                found[at] = found.get(at, 0) | here & ~below
            ahead.append((node.below, at))
    told = {at: stand if at.endswith(")") else stand & ~known for at, stand in found.items()}
    return sorted(((at, stand) for at, stand in told.items() if stand), key=lambda item: -idset.count(item[1]))


def _ranks(ranks: int) -> str:
    return f"rank{'s' if idset.count(ranks) > 1 else ''} {idset.text(ranks)}"

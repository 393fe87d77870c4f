"""The ranks of each machine, whatever their PCTs: ``[[host, ranks], …]`` in rank order. No I/O."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, List

#: The limit of a PMI-1 client; without a mapping it finds its neighbours by itself, more slowly.
MAPPING_MAX = 1023


def mapping(runs: "List[Any]") -> str:
    """``(vector,(first host,hosts,ranks on each),…)`` in the format of PMI_process_mapping; "" if too long."""
    blocks: "List[List[int]]" = []
    for host, ranks in runs:
        last = blocks[-1] if blocks else None
        if last is not None and last[0] + last[1] == host and last[2] == ranks:
            last[1] += 1
        else:
            blocks.append([host, 1, ranks])
    text = "(vector," + ",".join("(%d,%d,%d)" % tuple(block) for block in blocks) + ")"
    return text if len(text) <= MAPPING_MAX else ""


def host_of(runs: "List[Any]", rank: int) -> int:
    """The number of the machine of ``rank``."""
    for host, ranks in runs:
        if rank < ranks:
            return int(host)
        rank -= ranks
    return -1


def first_rank(runs: "List[Any]", wanted: int) -> int:
    """The first rank of a machine."""
    first = 0
    for host, ranks in runs:
        if host == wanted:
            break
        first += ranks
    return first

"""The rows that viewers read, without the columns that only the CPA may see, and the state word of a processor.

Uses collections.namedtuple, because importing typing costs a viewer a quarter of its start-up.
"""

from __future__ import annotations

from collections import namedtuple
from itertools import repeat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

#: The prefix of the address in a login processor's row. Its RCA receives heartbeats there.
UDP = "udp://"

MeshRow = namedtuple("MeshRow", "boot_id name topology schema_version counter trimmed_to booted_at")
NodeRow = namedtuple(
    "NodeRow",
    "id name role address state reason by boot_id incarnation agent state_at side drain_at drain_reason changed",
)
ProcessorRow = namedtuple("ProcessorRow", "id node slot alloc_mode reserved_for partition launcher changed")
PartitionRow = namedtuple(
    "PartitionRow",
    "id user uid batch_job size processors created_at max_in_use batch_job_error ended_at changed",
)
LauncherRow = namedtuple(
    "LauncherRow",
    "id partition login_processor pid pid_started user uid command size processors ranks root state created_at"
    " pending_until started_at ended_at exit_status abnormal reason resources changed",
)
WaitingRow = namedtuple(
    "WaitingRow",
    "id partition uid user login_processor pid pid_started size created_at deadline_at changed manager part precedence",
)
ResourceRow = namedtuple("ResourceRow", "node name total in_use changed")
EventRow = namedtuple("EventRow", "id at kind node launcher partition text")

#: A viewer's reading. ``whole``: it is complete, and replaces what the viewer held; otherwise it has only what changed,
#: including ended launchers and partitions. ``now`` and all instants are seconds since the epoch by the database's
#: clock.
Reading = namedtuple("Reading", "whole counter now mesh nodes processors launchers partitions")


def typed(kind: type[Any], rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """The rows as named tuples of that kind; three times as fast as ``kind._make``, for thousands of rows."""
    return list(map(tuple.__new__, repeat(kind), rows))


STATES = ("free", "pending", "busy", "stale", "down", "drained", "reserved")


def processor_state(
    node_state: str, alloc_mode: str, reserved_for: str | None, launcher_state: str | None = None
) -> str:
    """The state of a processor for display, one of STATES.

    ``launcher_state`` is the state of the launcher that has the processor, or None. In a partition without a launcher,
    a processor is free for that partition only.
    """
    if node_state == "down":
        return "down"
    if node_state == "drained" or (node_state == "draining" and launcher_state is None):
        return "drained"
    if node_state == "suspect":
        return "stale"
    if launcher_state is not None:
        return "pending" if launcher_state == "pending" else "busy"
    if alloc_mode == "reserved" or reserved_for is not None:
        return "reserved"
    return "free"

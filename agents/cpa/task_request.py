"""Checks the tasks, nodes, GPUs and load-file lines of an allocate, and converts them to a Shape for the database."""

from collections import Counter
from collections.abc import Mapping, Sequence

from agents.wire.control import Message
from agents.wire.errors import AgentError
from db.allocation.free import Machine
from db.allocation.tasks_and_nodes import Segment, Shape
from db.errors import Invalid

#: A load file with more lines than any machine has processors is an error.
MOST_SEGMENTS = 1 << 20
MAX_SOURCE = 300


def shape_of(machine: Machine, message: Message) -> Shape | None:
    """The Shape; None for a plain request (a number, or a list). Raises AgentError with code ``invalid``."""
    each, nodes = message.get("cpus_per_task", 1), message.get("nodes")
    overcommit = bool(message.get("overcommit"))
    plain = each == 1 or overcommit
    if plain and nodes is None and not any(message.get(key) for key in ("most", "per_task", "segments")):
        return None
    if nodes is not None and nodes < 1:
        raise AgentError("nodes is at least 1", code="invalid")
    if any(name in message.get("resources", {}) for name in message.get("per_task") or {}):
        raise AgentError("a device is asked for by node or by task, not both", code="invalid")
    if overcommit and (message.get("per_task") or message.get("segments")):
        raise AgentError("overcommit goes neither with per_task nor with segments", code="invalid")
    return Shape(
        each=1 if overcommit else max(1, each),
        nodes=nodes,
        most={machine.node_id(name): count for name, count in _counts(message, "most").items()},
        per_task=_counts(message, "per_task"),
        segments=_segments(machine, message, max(1, each)),
    )


def size_of(machine: Machine, message: Message, wanted: Sequence[int] | None, shape: Shape | None) -> int:
    """The number of tasks: as stated, as in the segments, or as many as the list has room for."""
    if shape is not None and shape.segments:
        return sum(segment.tasks for segment in shape.segments)
    size: int | None = message.get("size")
    if size is not None:
        return size
    return room_in(machine, wanted or (), max(1, message.get("cpus_per_task", 1)), shape.most if shape else {})


def room_in(machine: Machine, wanted: Sequence[int], each: int, most: Mapping[int, int]) -> int:
    """How many tasks of ``each`` processors fit on the listed processors if they are free, each task on one node. At
    least 1."""
    on_node = Counter(map(machine.node_of, wanted))
    return max(1, sum(min(count // each, most.get(node, count)) for node, count in on_node.items()))


def _counts(message: Message, key: str) -> dict[str, int]:
    counts: dict[str, int] = message.get(key) or {}
    if any(type(count) is not int or not 0 < count < 1 << 31 for count in counts.values()):
        raise AgentError(f"{key}: numbers from 1 on", code="invalid")
    return counts


def _segments(machine: Machine, message: Message, each: int) -> list[Segment]:
    """The lines of a load file; a line without a size has as many tasks as its list has room for."""
    items = message.get("segments") or []
    if len(items) > MOST_SEGMENTS:
        raise AgentError(f"more than {MOST_SEGMENTS} segments", code="invalid")
    out = set(machine.resolve(message.get("exclude")) or ())
    segments = []
    for item in items:
        size = item.get("size") if isinstance(item, dict) else None
        source = str(item.get("source", ""))[:MAX_SOURCE] if isinstance(item, dict) else ""
        enough = size * each if type(size) is int else None
        wanted = _resolve(machine, item.get("wanted"), source, enough) if isinstance(item, dict) else None
        if size is None and wanted is not None:
            size = room_in(machine, [one for one in wanted if one not in out], each, {})
        if type(size) is not int or not 0 < size < 1 << 31:
            raise AgentError("a segment has a size from 1 on, or a list", code="invalid")
        segments.append(Segment(size, wanted, source))
    return segments


def _resolve(machine: Machine, wanted: object, source: str, enough: int | None) -> list[int] | None:
    try:
        return machine.resolve(wanted, enough)
    except Invalid as error:
        raise Invalid(f"{source}: {error.message}", error.hint) if source else error from None

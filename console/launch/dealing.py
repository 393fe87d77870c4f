"""What few launches have: the lines of a load file dealt over one allocation, and GPUs dealt to ranks."""

from __future__ import annotations

from console.counted import counted
from console.errors import ConsoleError, UsageError
from console.launch.plan import PlacedNode, Plan, place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from console.launch.request import Request


def place_lines(reply: Mapping[str, Any], request: Request) -> Plan:
    """Deal the ranks of a load file; lines that did not say how many get what the CPA made of their lists."""
    lines = request.segments or []
    for line, size in zip(lines, reply.get("segments", ()), strict=False):
        line.size = size
    sizes = [line.size for line in lines]
    if not all(sizes):
        raise ConsoleError("this mesh's CPA is older than yod: a list with nodes' names needs -sz", "mesh upgrade")
    if request.size not in (None, sum(sizes)):
        hint = "its lines have their own -sz, or as many as their lists have room for"
        raise UsageError(f"-sz {request.size}, but the load file has {counted(sum(sizes), 'rank')}", hint)
    return place_segments(reply["nodes"], sizes, request.cpus_per_task, request.distribution)


def place_segments(given: list[dict[str, Any]], sizes: Sequence[int], cpus_per_task: int, distribution: str) -> Plan:
    """Deal each line's ranks over its own part of the allocation, which holds the lines' processors in their order.

    ConsoleError when a rank would have to be cut in two.
    """
    parts = _cut(given, [size * cpus_per_task for size in sizes])
    nodes: list[PlacedNode] = []
    index: dict[str, int] = {}
    node_of: list[int] = []
    for part, size in zip(parts, sizes, strict=True):
        plan = place(part, size, cpus_per_task, distribution, overcommit=False)
        first = len(node_of)
        for one in plan.nodes:
            at = index.setdefault(one.name, len(nodes))
            if at == len(nodes):
                nodes.append(PlacedNode({"id": one.id, "name": one.name, "address": one.address}))
            nodes[at].processors += one.processors
            nodes[at].ranks += [first + rank for rank in one.ranks]
        node_of += [index[plan.nodes[at].name] for at in plan.node_of]
    return Plan(len(node_of), nodes, node_of, cpus_per_task)


def _cut(given: list[dict[str, Any]], counts: Sequence[int]) -> list[list[dict[str, Any]]]:
    """``given`` in runs of so many processors; a node on the border is in both."""
    flat = [(part, processor) for part in given for processor in part["processors"]]
    if len(flat) != sum(counts):
        raise ConsoleError(
            f"{counted(len(flat), 'processor')} came for {sum(counts)}", "this is a bug in the CPA; its log tells"
        )
    parts: list[list[dict[str, Any]]] = []
    at = 0
    for count in counts:
        run: list[dict[str, Any]] = []
        for part, processor in flat[at : at + count]:
            if not run or run[-1]["name"] != part["name"]:
                run.append(dict(part, processors=[]))
            run[-1]["processors"].append(processor)
        parts.append(run)
        at += count
    return parts


def deal_gpus(plan: Plan, reply: Mapping[str, Any], per_task: int) -> None:
    """Give every rank its devices. ConsoleError when too few came."""
    resources: Mapping[str, Mapping[str, list[int]]] = reply.get("resources", {})
    for node in plan.nodes:
        devices = resources.get(node.name, {}).get("gpu", [])
        if len(devices) < per_task * len(node.ranks):
            raise ConsoleError(
                f"{node.name}: {counted(len(devices), 'GPU')} came for {counted(len(node.ranks), 'rank')}",
                "the mesh's CPA is older than this yod: mesh down, mesh up",
            )
        node.gpus = [devices[at * per_task : (at + 1) * per_task] for at in range(len(node.ranks))]

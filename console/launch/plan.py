"""The plan of a launch: its ranks placed on the allocated nodes, and the load message."""

from __future__ import annotations

import os

from agents.wire.renames import old_names
from console.errors import ConsoleError, UsageError
from console.launch.options.request import forwarded
from redmesh.text import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from console.launch.options.output import OutputOptions
    from console.launch.options.request import Request


#: Bytes of output that may be in transit to yod. With labels, what yod holds may grow six times, as JSON objects eighty
#: times; with these windows yod stays under 64 MiB.
WINDOW = 16 << 20
WINDOW_LABELLED = 2 << 20
WINDOW_JSON = 256 << 10


class PlacedNode:
    """A node of the launch with its processors and ranks, each in rank order."""

    __slots__ = ("address", "gpus", "id", "name", "processors", "ranks")

    def __init__(self, node: Mapping[str, Any]) -> None:
        self.id: int = node["id"]
        self.name: str = node["name"]
        self.address: str = node["address"]
        self.processors: list[int] = []
        self.ranks: list[int] = []
        self.gpus: list[list[int]] = []  # the GPUs of each rank, if requested


class Plan:
    """The placement. ``nodes[0]`` has rank 0; ``node_of[r]`` is the index of rank r's node."""

    __slots__ = ("first_processor", "node_of", "nodes", "size")

    def __init__(self, size: int, nodes: list[PlacedNode], node_of: list[int], cpus_per_task: int) -> None:
        self.size, self.nodes, self.node_of = size, nodes, node_of
        self.first_processor = [0] * size
        for node in nodes:
            for position, rank in enumerate(node.ranks):
                self.first_processor[rank] = node.processors[position * cpus_per_task % len(node.processors)]


def place(
    given: list[dict[str, Any]], size: int | None, cpus_per_task: int, distribution: str, *, overcommit: bool
) -> Plan:
    """Place ``size`` ranks (None: as many as fit) on the nodes of an allocation.

    Raises ConsoleError if a rank's processors would be on two nodes.
    """
    # A place is room for one rank: cpus_per_task processors of one node.
    places: list[tuple[int, list[int]]] = []  # index into nodes, processors
    nodes: list[PlacedNode] = []
    index: dict[str, int] = {}
    for part in given:
        at = index.setdefault(part["name"], len(nodes))
        if at == len(nodes):
            nodes.append(PlacedNode(part))
        processors: list[int] = part["processors"]
        nodes[at].processors += processors
        whole = len(processors) // cpus_per_task or int(overcommit and bool(processors))
        places += [(at, processors[k * cpus_per_task : (k + 1) * cpus_per_task]) for k in range(whole)]
    if size is None:
        size = len(places)
    if not size or (size > len(places) and not overcommit):
        raise ConsoleError(
            f"room for {len(places)} of {size}: the processors of a rank ({cpus_per_task}) are on one node",
            "ask for fewer -cpus-per-task, or other nodes with -list",
        )
    if distribution == "cyclic":
        places = _round_robin(places, len(nodes))
    if size <= len(places):
        chosen = places[:size]
    elif distribution == "cyclic":
        chosen = [places[rank % len(places)] for rank in range(size)]
    else:
        chosen = [places[rank * len(places) // size] for rank in range(size)]
    return _dealt(nodes, chosen, size, cpus_per_task, overcommit=overcommit)


def _round_robin(places: list[tuple[int, list[int]]], nodes: int) -> list[tuple[int, list[int]]]:
    columns: list[list[tuple[int, list[int]]]] = [[] for _ in range(nodes)]
    for place_ in places:
        columns[place_[0]].append(place_)
    longest = max(map(len, columns))
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def _dealt(
    nodes: list[PlacedNode],
    chosen: list[tuple[int, list[int]]],
    size: int,
    cpus_per_task: int,
    *,
    overcommit: bool,
) -> Plan:
    dealt: list[list[int]] = [[] for _ in nodes]
    for rank, (at, processors) in enumerate(chosen):
        nodes[at].ranks.append(rank)
        dealt[at] += processors
    if not overcommit:
        # The PCT assigns a node's processors to its ranks in this order, so unused processors are last.
        for node, first in zip(nodes, dealt, strict=True):
            taken = set(first)
            node.processors = first + [processor for processor in node.processors if processor not in taken]
    used = [node for node in nodes if node.ranks]
    number = {node.name: at for at, node in enumerate(used)}
    return Plan(size, used, [number[nodes[at].name] for at, _ in chosen], cpus_per_task)


def place_request(reply: Mapping[str, Any], request: Request) -> Plan:
    """Place the ranks of a request on its allocation. Raises ConsoleError."""
    cpus, distribution = request.where.cpus_per_task, request.where.distribution
    if request.program.segments is not None and not request.where.overcommit:
        plan = place_lines(reply, request)
    else:
        plan = place(reply["nodes"], request.where.size, cpus, distribution, overcommit=request.where.overcommit)
    if request.where.gpus_per_task:
        deal_gpus(plan, reply, request.where.gpus_per_task)
    return plan


def load_message(plan: Plan, reply: Mapping[str, Any], request: Request) -> dict[str, Any]:
    """The ``load`` for the root PCT."""
    message: dict[str, Any] = {
        "op": "load",
        "launcher": reply["launcher"],
        "partition": reply["partition"],
        "mesh": reply["mesh"],
        "size": plan.size,
        "nnodes": len(plan.nodes),
        "fanout": request.transfer.fanout,
        "window": window(request),
        "pending_s": reply["pending_s"],
        "input": request.stdio.input,
        "nodes": [
            {
                "id": node.id,
                "name": node.name,
                "index": at,
                "address": node.address,
                "processors": node.processors,
                "ranks": node.ranks,
            }
            for at, node in enumerate(plan.nodes)
        ],
    }
    if request.stdio.unbuffered:
        message["unbuffered"] = True
    if request.output is not None:
        mark_stdin(message, request.output, request.program.cwd)
    if request.where.gpus_per_task:
        for entry, node in zip(message["nodes"], plan.nodes, strict=True):
            entry["gpus"] = node.gpus
    return message


def mark_stdin(message: dict[str, Any], options: OutputOptions, cwd: bytes) -> None:
    """Add to a load the file that each rank reads, if ``-stdin`` names several files."""
    pattern = options.stdin_each
    if pattern is None:
        return
    for node in message["nodes"]:
        names = [
            os.path.join(cwd, os.fsencode(pattern.fill(rank, node["name"], message["launcher"], local)))
            for local, rank in enumerate(node["ranks"])
        ]
        node["stdin"] = [name.decode("latin-1") for name in names]


def hosts(plan: Plan, *, apart: bool = False) -> list[list[int]]:
    """Return ``[[machine, number of ranks], …]``: runs of ranks on the same machine, in rank order.

    Nodes with the same address are one machine. ``apart``: each node counts as a machine of its own.
    """
    numbers: dict[str, int] = {}
    # A PCT that listens on a path is on this machine.
    places = [
        node.name if apart else "" if node.address.startswith("/") else node.address.rpartition(":")[0]
        for node in plan.nodes
    ]
    machines = [numbers.setdefault(place_, len(numbers)) for place_ in places]
    if len(numbers) == 1:
        return [[0, plan.size]]
    runs: list[list[int]] = []
    for at in plan.node_of:
        if runs and runs[-1][0] == machines[at]:
            runs[-1][1] += 1
        else:
            runs.append([machines[at], 1])
    return runs


def common_message(request: Request, size: int, hosts: list[list[int]] | None = None) -> dict[str, Any]:
    """The part of the load that is the same on every node; ``hosts`` if the ranks are told about each other."""
    message = _common(request, size)
    if hosts and (request.mpi.kind != "none" or request.mpi.rendezvous):
        from console.launch.options.mpi import told

        message["parallel"] = {**told(request, size), "hosts": hosts, "rendezvous": request.mpi.rendezvous}
        if request.mpi.strict:
            message["parallel"]["strict"] = True
    if request.run is not None and request.run.message:
        message["run_options"] = request.run.message
    return old_names(load_cargo(message, request))


def load_cargo(message: dict[str, Any], request: Request) -> dict[str, Any]:
    """Add the description of the payload to the common part (docs/protocol.md).

    For a plain launch it is the program's stat data, which nodes compare with their own file.
    """
    cargo: dict[str, Any] = {}
    if request.transfer.bcast == "always" or (request.transfer.bcast_libs and request.transfer.bcast != "never"):
        cargo["bcast"] = "told"
        if request.transfer.bcast_libs:
            cargo["libs"] = True
    elif request.transfer.bcast == "auto":
        cargo["bcast"] = "ask"
        for segment in message["segments"]:
            segment["file"] = identity(segment["path"].encode("latin-1"))
    if request.transfer.io or request.transfer.stage_in or request.transfer.stage_out or request.state:
        cargo["files"] = bool(request.transfer.io or request.state)
        if request.state:
            message["env"].append(f"YOD_JOB={request.state.uuid}")
        if request.transfer.io:
            cargo["mounts"] = _mounts(request.transfer.io)
        cargo["stage_in"], cargo["stage_out"] = len(request.transfer.stage_in), len(request.transfer.stage_out)
        if request.transfer.stage_in:
            # The package of a job is unpacked beside itself (agents/yodio/yodpackage.py).
            copies = 2 if request.state and request.state.socket else 1
            cargo["stage_bytes"] = copies * _bytes_of(request.transfer.stage_in)
    if cargo:
        message["payload"] = cargo
    return message


def _bytes_of(texts: Sequence[str]) -> int:
    """The size of the files for ``$YOD_STAGE``, without those whose names depend on the rank: a node chooses a place
    that can hold them."""
    from console.launch.options.transfer import stage_in  # a plain launch does not need it

    total = 0
    for pattern, target in map(stage_in, texts):
        if target is None and not pattern.fields:
            try:
                total += os.stat(pattern.fill(0, "", 0, 0)).st_size
            except OSError:
                pass  # reported when it is to be sent
    return total


def _mounts(texts: Sequence[str]) -> dict[str, Any]:
    """The directories that nodes mount for their ranks, with the host and inode by which a node sees that it has the
    same directory."""
    from console.launch.options.transfer import io_directory  # a plain launch does not need it

    directories = []
    for path, writable in map(io_directory, texts):
        dev, ino, *_ = identity(os.fsencode(path)) or [0, 0]
        directories.append([os.fsencode(path).decode("latin-1"), writable, dev, ino])
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            host = file.read().strip()
    except OSError:
        host = ""
    return {"host": host, "directories": directories}


def identity(path: bytes) -> list[int]:
    """Data that identifies a file without reading it (agents/pct/images/digests.py); empty if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return []
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def allocated_event(plan: Plan, reply: Mapping[str, Any], command: str) -> dict[str, Any]:
    """The event with the launch's placement, for observers."""
    return {
        "event": "allocated",
        "launcher": reply["launcher"],
        "partition": reply["partition"],
        "command": command,
        "size": plan.size,
        "nodes": [{"name": node.name, "processors": node.processors} for node in plan.nodes],
    }


def _common(request: Request, size: int) -> dict[str, Any]:
    environ = request.program.environ.items() if request.program.exported else forwarded(request.program.environ)
    message: dict[str, Any] = {
        "segments": [_segment(0, size, request.program.path, request.program.argv)],
        "env": [(name + b"=" + value).decode("latin-1") for name, value in environ],
        "cwd": request.program.cwd.decode("latin-1"),
        "umask": request.program.umask,
        "limits": request.program.limits,
        "cpus_per_task": request.where.cpus_per_task,
        "hold": "exec",
    }
    if request.program.segments is not None:
        first, segments = 0, []
        for one in request.program.segments:
            segments.append(_segment(first, one.size, one.path, one.argv))
            if one.env:
                segments[-1]["env"] = [entry.decode("latin-1") for entry in one.env]
            first += one.size
        message["segments"], message["subgroups"] = segments, True
    return message


def _segment(first: int, count: int, path: bytes, argv: list[bytes]) -> dict[str, Any]:
    return {
        "first": first,
        "count": count,
        "path": path.decode("latin-1"),
        "argv": [argument.decode("latin-1") for argument in argv],
    }


def window(request: Request) -> int:
    """Bytes of output that the tree may have in transit to yod."""
    if request.stdio.json:
        return WINDOW_JSON
    return WINDOW_LABELLED if request.stdio.label else WINDOW


# Rare features: the lines of a load file placed on one allocation, and GPUs of ranks.


def place_lines(reply: Mapping[str, Any], request: Request) -> Plan:
    """Place the ranks of a load file; lines without a size get what the CPA determined from their lists."""
    lines = request.program.segments or []
    for line, size in zip(lines, reply.get("segments", ()), strict=False):
        line.size = size
    sizes = [line.size for line in lines]
    if not all(sizes):
        raise ConsoleError("this mesh's CPA is older than yod: a list with nodes' names needs -sz", "mesh upgrade")
    if request.where.size not in (None, sum(sizes)):
        hint = "its lines have their own -sz, or as many as their lists have room for"
        raise UsageError(f"-sz {request.where.size}, but the load file has {counted(sum(sizes), 'rank')}", hint)
    return place_segments(reply["nodes"], sizes, request.where.cpus_per_task, request.where.distribution)


def place_segments(given: list[dict[str, Any]], sizes: Sequence[int], cpus_per_task: int, distribution: str) -> Plan:
    """Place each line's ranks on its own part of the allocation, which has the lines' processors in order.

    Raises ConsoleError if a rank's processors would be on two nodes.
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
    """Cut ``given`` into parts with these numbers of processors; a node at a border is in both parts."""
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
    """Assign devices to every rank. Raises ConsoleError if there are too few."""
    resources: Mapping[str, Mapping[str, list[int]]] = reply.get("resources", {})
    for node in plan.nodes:
        devices = resources.get(node.name, {}).get("gpu", [])
        if len(devices) < per_task * len(node.ranks):
            raise ConsoleError(
                f"{node.name}: {counted(len(devices), 'GPU')} came for {counted(len(node.ranks), 'rank')}",
                "the mesh's CPA is older than this yod: mesh down, mesh up",
            )
        node.gpus = [devices[at * per_task : (at + 1) * per_task] for at in range(len(node.ranks))]

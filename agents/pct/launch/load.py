"""The contents of a load message, and how the rest of the tree is divided. No I/O."""

from __future__ import annotations

import os

from agents.pct.errors import LoadFailed
from agents.wire.control import Message, decode, to_bytes
from agents.wire.errors import AgentError
from agents.wire.messages import DOWN, check
from agents.wire.renames import new_names

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

SMALLEST_WINDOW = 64 << 10


#: Variables that are never forwarded, because each rank has its own.
OWN = (b"REDMESH_LAUNCH", b"YOD_RANK", b"YOD_LOCAL_RANK")
#: Variables of a batch system that describe a node: ranks get their node's, from the agent there, and never yod's.
OF_THE_NODE = (b"SLURMD_NODENAME", b"SLURM_TOPOLOGY_ADDR", b"SLURM_CPUS_ON_NODE", b"SLURM_GPUS_ON_NODE")


class Segment:
    """One command line of a load and the ranks that run it."""

    __slots__ = ("argv", "env", "file", "first", "path", "size")

    def __init__(self, first: int, size: int, path: bytes, argv: List[bytes], file: Any = None) -> None:
        self.first, self.size, self.path, self.argv = first, size, path, argv
        self.env: Dict[bytes, bytes] = {}  # only for these ranks
        self.file = file  # the identity of the launcher's file at ``path`` (agents/pct/images/digests.py)


class Program:
    """The part of a load that is equal on all nodes."""

    __slots__ = (
        "cwd", "env", "hold", "limits", "options", "parallel", "payload", "segments", "subgroups", "umask",
    )  # fmt: skip

    def __init__(self, segments: List[Segment], env: Dict[bytes, bytes], cwd: bytes, umask: int, hold: str) -> None:
        self.segments, self.env, self.cwd, self.umask, self.hold = segments, env, cwd, umask, hold
        self.subgroups = False  # the segments are a load file's lines, and every rank gets its line's variables
        self.payload: Dict[str, Any] = {}  # what travels with the launch (agents/pct/launch_child/payload.py)
        self.parallel: Dict[str, Any] = {}  # settings for parallel programs (agents/pct/mpi/pmi_server.py)
        self.limits: List[Tuple[int, int]] = []  # resource number (setrlimit(2)) and soft limit; -1 for none
        self.options: Dict[str, Any] = {}  # run options (agents/pct/launch/options.py)

    def segment_of(self, rank: int) -> Segment:
        """The command line of ``rank``."""
        for segment in self.segments:
            if segment.first <= rank < segment.first + segment.size:
                return segment
        raise LoadFailed(f"the load has no command line for rank {rank}", "launch", rank=rank)


class Load:
    """The part of a load for this node and its subtree. ``nodes[0]`` is this node."""

    __slots__ = (
        "fanout", "input", "lapses_at", "launcher", "master", "mesh", "nnodes", "nodes", "partition", "pending_s",
        "size", "unbuffered", "window",
    )  # fmt: skip

    def __init__(self, message: Message) -> None:
        self.launcher: int = message["launcher"]
        self.partition: int = message["partition"]
        self.mesh: str = message["mesh"]
        self.size: int = message["size"]
        self.nnodes: int = message["nnodes"]
        self.fanout: int = message["fanout"]
        self.window: int = max(SMALLEST_WINDOW, message["window"])
        self.pending_s = float(message["pending_s"])
        # by the monotonic clock, if the launcher is on this machine
        self.lapses_at = float(message.get("lapses_at", 0.0))
        self.input: Any = message["input"]
        self.unbuffered: bool = message.get("unbuffered", False)  # forward incomplete lines at once
        self.nodes: List[Dict[str, Any]] = message["nodes"]
        self.master: Optional[List[Any]] = message.get("master")  # address and port, chosen by the root

    @property
    def name(self) -> str:
        """This node's name."""
        return str(self.nodes[0]["name"])

    @property
    def place(self) -> int:
        """This node's index in rank order."""
        return int(self.nodes[0]["index"])

    @property
    def ranks(self) -> List[int]:
        """The ranks of this node."""
        ranks: List[int] = self.nodes[0]["ranks"]
        return ranks


_NODE_TYPES = (("name", str), ("index", int), ("address", str), ("ranks", list))


def read_load(message: Message) -> Load:
    """Parse a load message. Raises LoadFailed."""
    try:
        if check(DOWN, message) != "load":
            raise LoadFailed("the first message of a launch is its load", "launch")
    except LoadFailed:
        raise
    except AgentError as error:
        raise LoadFailed(error.message, "launch") from None
    nodes = message["nodes"]
    for node in nodes:
        if not isinstance(node, dict) or any(not isinstance(node.get(key), kind) for key, kind in _NODE_TYPES):
            raise LoadFailed("a node of the load has no name, index, address or ranks", "launch")
    if not nodes or message["fanout"] < 1:
        raise LoadFailed("the load names no nodes, or a fan-out under 1", "launch")
    return Load(message)


def read_program(payload: bytes) -> Program:
    """Parse a common frame. Raises LoadFailed."""
    try:
        common = new_names(decode(payload))
        segments = [
            Segment(
                int(item["first"]),
                int(item["count"]),
                to_bytes(item["path"]),
                [to_bytes(a) for a in item["argv"]],
                item.get("file"),
            )
            for item in common["segments"]
        ]
        for item, segment in zip(common["segments"], segments):  # noqa: B905  (strict needs Python 3.10)
            if "env" in item:
                segment.env = clean_environment([to_bytes(entry) for entry in item["env"]])
        env = clean_environment([to_bytes(entry) for entry in common["env"]])
        program = Program(segments, env, to_bytes(common["cwd"]), int(common["umask"]), str(common.get("hold", "exec")))
        program.payload = dict(common.get("payload", {}))
        program.subgroups = bool(common.get("subgroups", False))
        program.options = dict(common.get("run_options", {}))
        program.limits = [(int(number), int(soft)) for number, soft in common.get("limits", ())]
        program.parallel = dict(common.get("parallel", {}))
        return program
    except AgentError as error:
        raise LoadFailed(error.message, "launch") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LoadFailed(f"the common part of the load is wrong: {error!r:.80}", "launch") from None


def clean_environment(entries: List[bytes]) -> Dict[bytes, bytes]:
    """The environment that the launcher forwards; the launcher has already applied --export.

    Removes each rank's own variables and its node's, which are added later, and the mark of a surrounding launch.
    """
    kept: Dict[bytes, bytes] = {}
    for entry in entries:
        name, equals, value = entry.partition(b"=")
        if equals and name and name not in OWN and name not in OF_THE_NODE:
            kept[name] = value
    return kept


def node_environment(load: Load, rank_map: bytes) -> Dict[bytes, bytes]:
    """The variables of every rank of this node, besides each rank's own."""
    return {
        b"YOD_SIZE": b"%d" % load.size,
        b"YOD_LOCAL_SIZE": b"%d" % len(load.ranks),
        b"YOD_NODE": load.name.encode("latin-1", "replace"),
        b"YOD_NNODES": b"%d" % load.nnodes,
        b"YOD_LAUNCHER_ID": b"%d" % load.launcher,
        b"YOD_PARTITION_ID": b"%d" % load.partition,
        b"YOD_RANK_MAP": rank_map,
        b"REDMESH_LAUNCH": mark(load).encode("latin-1", "replace"),
        **{name: os.environb[name] for name in OF_THE_NODE if name in os.environb},
    }


def mark(load: Load) -> str:
    """The mark in the environment of all processes of this launch on this node."""
    return f"{load.mesh}/{load.name}/{load.launcher}"


def runs(nodes: List[Dict[str, Any]], fanout: int) -> List[List[Dict[str, Any]]]:
    """Divide ``nodes`` into at most ``fanout`` consecutive runs of about equal length."""
    count = min(fanout, len(nodes))
    cuts = [len(nodes) * i // count for i in range(count + 1)] if count else []
    return [nodes[cuts[i] : cuts[i + 1]] for i in range(count)]


def child_window(window: int, children: int) -> int:
    """The initial credit of each of ``children`` links, in bytes."""
    return max(SMALLEST_WINDOW, window // max(1, children))


def rank_map(ranks: List[Any], names: Dict[int, str]) -> str:
    """The text of the rank map file: a line ``rank node pid`` for every rank."""
    return "".join(f"{rank} {names.get(index, '?')} {pid}\n" for rank, (pid, index) in enumerate(ranks))


def child_load(message: Message, run: List[Dict[str, Any]], window: int) -> Message:
    """The load message for the first node of ``run``."""
    return dict(message, nodes=run, window=window)


def subtree_of(run: List[Dict[str, Any]]) -> List[Tuple[int, List[int]]]:
    """Index and ranks of every node of a run."""
    return [(int(node["index"]), list(node["ranks"])) for node in run]


def stdin_goes(load: Load, is_root: bool) -> Optional[List[int]]:
    """The local ranks that read standard input: None if all share one pipe, otherwise a list (one pipe each)."""
    if load.input == "shared":
        return None if is_root and load.ranks else []
    if load.input == "all":
        return list(load.ranks)
    return [load.input] if load.input in load.ranks else []


# Whether the programs of a load may run in place: every plain launch checks this with one stat for each.


def identity(path: bytes) -> List[int]:
    """Data that identifies a file without reading it; empty if the file does not exist.

    ctime cannot be set by users: two files that agree in all five values are the same file, or on copies of one disk.
    """
    try:
        found = os.stat(path)
    except OSError:
        return []
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def plain(program: Program, ranks: List[int]) -> bool:
    """True if nothing travels with this launch: the programs of ``ranks`` run in place, and no files are served."""
    if not program.payload:
        return True
    return program.payload.keys() == {"bcast"} and runs_in_place(program, ranks)


def runs_in_place(program: Program, ranks: List[int]) -> bool:
    """True if every program of ``ranks`` is identical to the launcher's, and executable here."""
    if program.payload["bcast"] != "ask":
        return False
    segments = {segment.first: segment for segment in map(program.segment_of, ranks)}
    return all(segment.file == identity(segment.path) for segment in segments.values())

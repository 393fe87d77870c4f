"""Rare options of yod: imported only if given; checked and put into the request."""

from __future__ import annotations

import os
import sys

from console.errors import UsageError
from redmesh.sanitise import clean
from redmesh.text import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from console.launch.options.request import Program, Request


def extend(request: Request, given: dict[str, Any], programs: list[Program] | None) -> None:
    """Put the rare options of ``given`` into ``request``. Raises UsageError or ConsoleError."""
    _refuse_pairs(given)
    request.program.segments = programs
    if "YODRETRYCOUNT" in os.environ:
        request.where.retries = retries(os.environ["YODRETRYCOUNT"])
    request.where.cpa, request.where.cpa_pid = given.get("nid", ""), given.get("pid", 0)
    if "exclude" in given:
        from console.launch.options.lists import parse_list

        if "=" in given["exclude"]:  # mpiexec's -x NAME=VALUE
            told = f"-x {clean(given['exclude'])}: -x excludes nodes, it sets no variable"
            raise UsageError(told, f"-export ALL,{clean(given['exclude'])}")
        request.where.exclude = parse_list(given["exclude"])
    if "service" in given and (programs is None or request.where.overcommit):  # otherwise each line has it
        from console.launch.options.load_file import SERVICE

        request.where.wanted = dict(SERVICE)
    if "hostfile" in given:
        _hosts(request, given["hostfile"], sized="sz" in given)
    if "het-group" in given:
        _het_group(request, given)
    if "nodes" in given or "tasks-per-node" in given:
        _spread(request, given)
    if "placement" in given or "shape" in given:
        _place(request, given)
    request.mpi.kind, request.mpi.rendezvous = given.get("mpi", "auto"), given.get("rendezvous") != "none"
    request.mpi.strict = "mpi-strict" in given
    request.where.gpus_per_task = given.get("gpus-per-task", 0)
    request.stdio.unbuffered = "N" in given or "NOBUF" in given
    if "export" in given:
        _export(request, given["export"])
    if "chdir" in given:
        request.program.cwd = os.path.join(request.program.cwd, os.fsencode(given["chdir"]))
    if "umask" in given:
        request.program.umask = _mask(given["umask"])
    if "worker-of" in given:
        from console.launch.features.workers import options as worker_options

        request.state = worker_options(given)
    elif not {"state", "keep", "purge"}.isdisjoint(given):
        from console.launch.features.state import options

        request.state = options(given)


def _refuse_pairs(given: dict[str, Any]) -> None:
    for one, other in (
        ("immediate", "wait-for-nodes"),
        ("hostfile", "list"),
        ("gpus-per-task", "overcommit"),
        ("placement", "shape"),
        ("het-group", "list"),
        ("het-group", "hostfile"),
        ("het-group", "service"),
        ("het-group", "shape"),
        ("het-group", "load"),
        ("service", "list"),
        ("service", "hostfile"),
        ("service", "shape"),
        ("shape", "list"),
        ("shape", "hostfile"),
        ("shape", "nodes"),
        ("shape", "tasks-per-node"),
        ("shape", "overcommit"),
    ):
        if one in given and other in given:
            raise UsageError(f"-{one} and -{other} exclude each other", "leave one of them out")
    if "shape" in given and given.get("cpus-per-task", 1) > 1:
        raise UsageError("-shape and -cpus-per-task exclude each other", "a block's processors each have a rank")
    for word in ("nodes", "tasks-per-node"):
        if given.get(word) == 0:
            raise UsageError(f"-{word} is at least 1", "leave it out, or give a larger number")


def _hosts(request: Request, path: str, *, sized: bool) -> None:
    from console.launch.options.hostfile import read

    hosts = read(path)
    request.where.wanted = {"processors": [], "nodes": list(hosts)}
    request.where.most = {name: ranks for name, ranks in hosts.items() if ranks is not None}
    if not sized:
        request.where.size = sum(request.where.most.values()) if len(request.where.most) == len(hosts) else None


def _het_group(request: Request, given: dict[str, Any]) -> None:
    """The nodes of some components of Slurm's heterogeneous job, as a list of nodes."""
    from agents.managers import het_jobs
    from console.deploy.hosts.allocation import short_names
    from console.launch.options.lists import parse_list

    text, count = given["het-group"], het_jobs.components(os.environ)
    if not count:
        raise UsageError("-het-group is for a heterogeneous job of Slurm, and this is none", "-list NODES")
    if request.program.segments is not None:
        raise UsageError("-het-group cannot be used with several programs", "-list NODES in each part")
    groups = [group for first, last in parse_list(text)["processors"] for group in range(first, min(last, count) + 1)]
    if not groups or max(groups) >= count:
        raise UsageError(
            f"-het-group takes the components 0 to {count - 1} of this job, such as 0,1, not {clean(text)}"
        )
    every = [name for name, _slots in het_jobs.hosts(os.environ)]
    nodes = dict(zip(every, short_names(every), strict=True))
    names = [name for group in groups for name, _slots in het_jobs.job_hosts(os.environ, f"_HET_GROUP_{group}")]
    request.where.wanted = {"processors": [], "nodes": [nodes[name] for name in dict.fromkeys(names)]}
    request.where.size = given.get("sz")


def _spread(request: Request, given: dict[str, Any]) -> None:
    """Nodes and ranks from -nodes, -tasks-per-node and -sz."""
    nodes, each = given.get("nodes"), given.get("tasks-per-node")
    size: int | None = given.get("sz")
    if request.program.segments is not None:
        raise UsageError(
            "-nodes and -tasks-per-node cannot be used with a load file, whose lines say where the programs run"
        )
    if size is None:
        if nodes is None:
            if request.where.wanted is None:
                raise UsageError("-tasks-per-node needs to know how many: with -nodes or -sz", "-n 8 -tasks-per-node 2")
            raise UsageError("-tasks-per-node with a list needs -nodes or -sz", "-n 8 -tasks-per-node 2 -list LIST")
        size = nodes * (each or 1)
    elif nodes is None:
        assert each is not None  # one of the two was given
        nodes = -(-size // each)
    elif size < nodes:
        raise UsageError(f"{counted(size, 'rank')} cannot reach {nodes} nodes", "every node gets at least one")
    elif each is not None and size > nodes * each:
        raise UsageError(
            f"{size} ranks are more than {each} on each of {counted(nodes, 'node')}",
            "use more nodes, or more ranks on each",
        )
    request.where.size, request.where.nodes = size, nodes


def _place(request: Request, given: dict[str, Any]) -> None:
    """The placement's name, or a block; a block's shape gives the number of ranks if nothing else does."""
    request.where.placement = f"block:{given['shape']}" if "shape" in given else given["placement"]
    sides = given.get("shape", "").split("x")
    fixed = "sz" in given or request.where.nodes is not None or request.program.segments is not None
    if not fixed and all(side.isascii() and side.isdigit() and 0 < len(side) < 5 for side in sides):
        room = 1
        for side in sides:
            room *= int(side)
        request.where.size = max(1, room)


def _export(request: Request, text: str) -> None:
    from console.launch.options.environment import parse

    rules = parse(text)
    missing = rules.missing(request.program.environ)
    if missing and not (request.stdio.quiet or request.stdio.batch):
        names = clean(os.fsdecode(b", ".join(missing)))
        print(f"yod: --export: not set here, so not handed on: {names}", file=sys.stderr)
    request.program.environ, request.program.exported = rules.apply(request.program.environ), True


def _mask(text: str) -> int:
    if text and len(text) <= 4 and set(text) <= set("01234567") and int(text, 8) <= 0o777:
        return int(text, 8)
    raise UsageError(f"-umask takes an octal mask like 022, not {text!r}", "-umask 022")


def retries(text: str) -> int:
    """The value of YODRETRYCOUNT. Raises UsageError unless it is a number."""
    if text.isascii() and text.isdigit() and len(text) < 4:
        return int(text)
    raise UsageError(
        f"YODRETRYCOUNT is {text!r}, which is not a number of tries", "0 gives up at the first node that fails"
    )

"""Output of yod without a launch: -show, --dry-run, and the additional text of -vhelp."""

from __future__ import annotations

import os
import sys

from console.errors import ConsoleError
from console.launch.options.lists import fold
from console.launch.options.request import forwarded
from redmesh.sanitise import clean
from redmesh.text import counted
from redmesh.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agents.wire.errors import AgentError
    from console.launch.options.request import Program, ProgramOptions, Request
    from console.launch.plan import Plan
    from console.settings import Settings

ENVIRONMENT = """
Load files: several programs in one launch and one rank space, one program on each line; ranks follow the
order of the lines.
  # a comment
  -sz 16 ./solver input.nml       16 ranks (default: 1, or all processors of the line's -list)
  -sz 2 -list n3 ./monitor        on these processors (default: those of the command line's -list, or any)
  BUFFER=2g ./writer "run 7"      variables and quotes as in a shell, without expansion
  A text file that is not executable is read as a load file if every line can be read so; -load FILE always
  reads FILE as one. -sz on the command line is ignored.

Environment variables that yod reads:
  YODRETRYCOUNT                   how often a load that fails because of a node is tried on other nodes (3)
  REDMESH_PARTITION, REDMESH_ALLOCATION_COOKIE
                                  the partition of the batch job that yod runs in
  REDMESH_CONFIG, REDMESH_...     the configuration file, and every key of it (docs/configuration.md)
  PARALLEL_FILE_SYSTEM            a directory for programs that do not fit on a node
  PATH                            the directories that are searched for programs

Exit status: the highest of the ranks; 128+N for signal N; 2 wrong command line, 124 time limit, 125 refused or
failed to launch, 126 not executable, 127 not found, 141 the reader of standard output has closed it; 1 for this
help.
"""
_BCAST = {
    "auto": "in place on nodes that have the same file, otherwise from the node's RAM disk",
    "always": "from the nodes' RAM disks",
    "never": "in place, even if the file differs",
}
_ANSWER_S = 12.0


def show(settings: Settings, request: Request) -> int:
    """Print how the program would be loaded, without asking a daemon."""
    rows = [("yod", f"Redmesh {VERSION}, CPAs in {clean(settings.run_dir)}")]
    for one in request.program.segments or ():
        ranks = counted(one.size, "rank") if one.size else "as many ranks as there is room for"
        rows.append((f"line {one.line}", f"{ranks}{_where(one.wanted)}: {_program(one)}"))
    if request.program.segments is None:
        rows.append(("program", _program(request.program)))
    lists = "the list has" if request.program.segments is None else "the lines have"
    size = f"as many as {lists} room for" if request.where.size is None else str(request.where.size)
    each = f", {counted(request.where.cpus_per_task, 'processor')} each" if request.where.cpus_per_task > 1 else ""
    gpus = f", {counted(request.where.gpus_per_task, 'GPU')} each" if request.where.gpus_per_task else ""
    spread = f", over {counted(request.where.nodes, 'node')}" if request.where.nodes else ""
    rows.append(("ranks", f"{size}{each}{gpus}{spread}, {request.where.distribution}{_where(request.where.wanted)}"))
    rows.append(("loaded", f"{_BCAST[request.transfer.bcast]}; {request.transfer.fanout} children a node in the tree"))
    program = request.program
    count = len(program.environ if program.exported else forwarded(program.environ))
    cwd = clean(os.fsdecode(program.cwd))
    rows.append(("ranks get", f"{count} variables, directory {cwd}, umask {program.umask:03o}"))
    rows.append(("retries", f"{request.where.retries} when a load fails because of a node"))
    for name, text in rows:
        print(f"{name + ':':<11}{text}")
    return 0


def _program(one: Program | ProgramOptions) -> str:
    size = os.stat(one.path).st_size
    shown = f"{size / 1024:.0f} KiB" if size < 1 << 20 else f"{size / (1 << 20):.1f} MiB"
    try:
        with open(one.path, "rb", buffering=0) as file:
            kind = "a script" if file.read(2) == b"#!" else "a binary"
    except OSError:
        kind = "not readable"
    arguments = b" ".join(one.argv[1:])
    after = f" {clean(arguments.decode('utf-8', 'replace'))}" if arguments else ""
    return f"{clean(os.fsdecode(one.path))}{after} ({kind}, {shown})"


def _where(wanted: dict[str, Any] | None) -> str:
    if wanted is None:
        return ""
    numbers = [str(first) if first == last else f"{first}..{last}" for first, last in wanted["processors"]]
    return " on " + ",".join([*numbers, *wanted["nodes"]])


def dry_run(settings: Settings, request: Request) -> int:
    """Ask a CPA for the placement, and print it. Raises ConsoleError or AgentError if it is impossible."""
    from console.launch.plan import place_request

    reply = _ask(settings, request)
    plan = place_request(reply, request)
    if request.stdio.json:
        from agents.wire.control import encode

        sys.stdout.write(encode(_as_event(plan, request)).decode() + "\n")
    else:
        for row in _rows(plan, request):
            print(row)
    return 0


def _ask(settings: Settings, request: Request) -> dict[str, Any]:
    """Send the allocation request as ``would_allocate``, which allocates nothing; return the reply."""
    from agents.link.loop import Loop
    from console.launch.daemons.connect import login_name, reach
    from console.launch.daemons.cpa import Authority

    status = (lambda _text: None) if request.stdio.quiet else (lambda text: print(f"yod: {text}", file=sys.stderr))
    if request.where.cpa or request.where.cpa_pid:
        from console.launch.daemons.connect import reach_named

        run, sock = reach_named(settings, request)
    else:
        run, sock = reach(settings, os.getpid(), status)
    message = request.allocation("", login_name(settings), os.getpid(), 0)
    message["op"] = "would_allocate"
    for key in ("key", "pid", "pid_started", "command", "wait_s"):
        del message[key]
    loop = Loop()
    answers: list[Any] = []
    authority = Authority(loop, run, os.getpid(), sock)

    def answered(reply: dict[str, Any] | None, error: AgentError | None) -> None:
        answers.append((reply, error))
        loop.stop()

    authority.ask(message, answered, _ANSWER_S)
    loop.run()
    authority.close()
    reply, error = answers[0]
    if error is not None:
        raise ConsoleError(error.message, error.hint, exit_status=error.exit_status)
    assert isinstance(reply, dict)
    return reply


def _runs(plan: Plan, request: Request) -> list[tuple[int, int, int]]:
    """Runs of consecutive ranks on one node and of one program: (first rank, last rank, index of the node)."""
    starts: set[int] = set()
    first = 0
    for one in request.program.segments or ():
        starts.add(first)
        first += one.size
    runs: list[tuple[int, int, int]] = []
    for rank, at in enumerate(plan.node_of):
        if runs and runs[-1][2] == at and rank not in starts:
            runs[-1] = (runs[-1][0], rank, at)
        else:
            runs.append((rank, rank, at))
    return runs


def _rows(plan: Plan, request: Request) -> list[str]:
    rows = []
    for first, last, at in _runs(plan, request):
        node = plan.nodes[at]
        ids = _processors(plan, at, first, last, request.where.cpus_per_task)
        shown = f"rank {first}" if first == last else f"rank {first}-{last}"
        row = f"{shown} on {node.name}: processor{'s' if len(ids) > 1 else ''} {fold(ids)}"
        if request.where.gpus_per_task:
            begin, end = node.ranks.index(first), node.ranks.index(last) + 1
            row += f", GPU {fold([device for devices in node.gpus[begin:end] for device in devices])}"
        for one in (request.program.segments or ())[_line_of(request, first) :][:1]:
            row += f" (line {one.line})"
        rows.append(row)
    return rows


def _line_of(request: Request, rank: int) -> int:
    end = 0
    for number, one in enumerate(request.program.segments or ()):
        end += one.size
        if rank < end:
            return number
    return 0


def _processors(plan: Plan, at: int, first: int, last: int, each: int) -> list[int]:
    node = plan.nodes[at]
    begin, end = node.ranks.index(first), node.ranks.index(last) + 1
    ids = node.processors[begin * each : end * each]
    return ids or list(dict.fromkeys(plan.first_processor[first : last + 1]))  # more ranks than processors


def _as_event(plan: Plan, request: Request) -> dict[str, Any]:
    nodes: list[dict[str, Any]] = []
    for node in plan.nodes:
        nodes.append({"name": node.name, "processors": node.processors, "ranks": node.ranks})
        if request.where.gpus_per_task:
            nodes[-1]["gpus"] = node.gpus
    return {"event": "dry run", "size": plan.size, "nodes": nodes}

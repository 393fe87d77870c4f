"""``yod``: launches a parallel program and connects it to the terminal. Options: arguments.py, docs/yod.md."""

from __future__ import annotations

import gc
import os
import sys

from console.cli.exits import leave_interrupts, open_standard_descriptors, refused, take_interrupts
from console.cli.options.parser import OptionError, complain, help_text, parse, short_help
from console.cli.yod.arguments import ABOUT, EXAMPLES, EXTRAS, FEW, MORE, OUTPUT, RUN, TRANSFER, USAGE, WORDS
from console.errors import ConsoleError, UsageError
from redmesh.resource_limits import limit_hint
from redmesh.sanitise import clean
from redmesh.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from socket import socket
    from typing import Any

    from console.cli.options.parser import Parsed
    from console.launch.features.feature import Feature
    from console.launch.options.request import Program, Request
    from console.settings import Settings


_NULL_DEVICE = os.makedev(1, 3)
#: Options with which ranks get yodio and its neighbours.
_YODIO = {"io", "state", "worker-of"}
#: The resource limits that ranks get; NPROC counts a user's processes on each machine separately.
_LIMITS = ("CORE", "STACK", "DATA", "FSIZE", "NOFILE", "MEMLOCK", "AS", "RSS", "CPU", "NPROC")
#: Options that are attributes of StdioOptions.
_PRINTING = ("batch", "label", "json", "quiet", "verbose")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run yod; returns its exit status. Without ``arguments`` (as a command), end the process by ``os._exit``."""
    if arguments is not None:
        return _guarded(arguments)
    gc.disable()  # imports create no garbage; the engine enables it for longer launches
    status = _guarded(sys.argv[1:])
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        pass  # the reader of standard output has exited
    os._exit(status)


def _guarded(arguments: Sequence[str]) -> int:
    taken = False
    try:
        taken = take_interrupts()
        open_standard_descriptors()
        return _run(arguments)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141
    except MemoryError:
        raise  # redmesh/start_command.py says so without any more memory
    except Exception as error:
        # ConsoleError and AgentError; the latter's module is imported only where it can occur.
        if hasattr(error, "hint") and hasattr(error, "exit_status"):
            return complain("yod", error)
        if isinstance(error, OSError):
            return complain("yod", refused(error))
        if limit_hint(error):
            return complain("yod", ConsoleError(str(error), limit_hint(error)))
        if "REDMESH_DEBUG" in os.environ:
            raise
        told = f"this is a bug in yod: {type(error).__name__}: {error}"
        return complain("yod", ConsoleError(told, "REDMESH_DEBUG=1 shows where; the RCA cleans up"))
    finally:
        if taken:
            leave_interrupts()


def _help(asked: set[str], words: Sequence[str]) -> int:
    """Print what ``words`` ask for. Returns 1 for -help and -vhelp, as the original does: scripts may check it."""
    if asked == {"help"}:
        text = short_help(USAGE, EXAMPLES, [word for word in WORDS if word.name in FEW], MORE)
    else:
        text = help_text(USAGE, ABOUT, WORDS)
    if "vhelp" in asked:
        from console.cli.yod.show import ENVIRONMENT

        text += ENVIRONMENT
    print(text, end="", flush=True)
    return 0 if "-h" in words or any(word.startswith("--") for word in words) else 1


def _run(arguments: Sequence[str]) -> int:
    parsed = _parsed(arguments)
    given: dict[str, Any] = dict(parsed.values)
    rest = parsed.rest
    asked = {"help", "help-all", "vhelp"} & given.keys()
    if asked:
        return _help(asked, arguments[: len(arguments) - len(rest)])
    if "version" in given:
        print(f"yod (Redmesh) {VERSION}")
        return 0
    from console.settings import load

    settings = load({"fanout": given.get("fanout"), "manager": given.get("manager")}, config=given.get("config", ""))
    if "signal" in given and "@" not in given["signal"]:  # -signal SIG@T is a warning signal before -time's limit
        return _signal(settings, given["signal"], rest)
    if "release" in given:
        return _release(settings, given["release"], rest)
    if "feed" in given:
        return _feed(settings, given["feed"], rest)
    if "reattach" in given:
        return _attach(settings, given, rest)
    try:
        request = request_of(given, rest, settings.fanout, ended=parsed.ended)
    except ConsoleError as error:
        from console.cli.yod.other_launchers import explain_program

        explain_program(error, parsed)
        raise
    if not (settings.hosts or settings.system or settings.allocation):
        _rename_this_host(request, settings)
    if request.output is not None:
        request.output.command_line = ["yod", *arguments]
    if "show" in given or "dry-run" in given:
        from console.cli.yod import show

        return show.dry_run(settings, request) if "dry-run" in given else show.show(settings, request)
    return _launch(settings, request, detached="detach" in given)


def _rename_this_host(request: Request, settings: Settings) -> None:
    where = request.where
    lists = [where.wanted, where.exclude, *(one.wanted for one in request.program.segments or ())]
    if any(one.get("nodes") for one in lists if one is not None):
        from console.cli.yod.this_host import rename

        rename(request, settings.run_dir)


def _parsed(arguments: Sequence[str]) -> Parsed:
    try:
        return parse(WORDS, arguments, stop=True)
    except OptionError as error:
        from console.cli.yod.other_launchers import explain

        explain(error)
        raise


def request_of(given: dict[str, Any], rest: list[str], fanout: int, *, ended: bool = False) -> Request:
    """The request of the command line, checked as far as possible without a mesh. Raises UsageError or ProgramError.

    ``ended``: the options ended with ``--``, after which a colon separates nothing.
    """
    from console.launch.options.request import ProgramOptions, Request

    _refuse_nonsense(given, rest)
    wanted, size = None, given.get("sz")
    if "list" in given:
        from console.launch.options.lists import parse_list

        wanted = parse_list(given["list"])
    program, programs = _programs(rest, given, wanted, ended=ended)
    if programs is not None:
        sizes = [one.size for one in programs]
        size = sum(sizes) if all(sizes) else None
        wanted = wanted if "overcommit" in given else None
    elif size is None and "list" not in given:
        size = 1
    umask = os.umask(0o022)
    os.umask(umask)
    arguments = [os.fsencode(argument) for argument in rest]
    cwd = _current_directory(given.get("chdir", ""))
    request = Request(ProgramOptions(program, arguments or [program], os.environb, cwd, umask))
    request.program.limits = _limits()
    where, stdio = request.where, request.stdio
    where.size, where.wanted, where.overcommit = size, wanted, "overcommit" in given
    where.cpus_per_task = given.get("cpus-per-task", 1)
    where.distribution = given.get("distribution", "block")
    where.wait_s = given.get("wait-for-nodes", 0.0)
    where.partition = _partition()
    where.cookie = _cookie(where.partition)
    for word in _PRINTING:
        setattr(stdio, word, word in given)
    request.kill = "kill" in given
    request.transfer.fanout = fanout
    if not TRANSFER.isdisjoint(given):
        from console.launch.options.transfer import read

        read(given, request.transfer)
    _refine(request, given, programs)
    return request


def _refine(request: Request, given: dict[str, Any], programs: list[Program] | None) -> None:
    """Rare options, each parsed by a module that is imported for it."""
    if "YODRETRYCOUNT" in os.environ or programs is not None or not EXTRAS.isdisjoint(given):
        from console.cli.yod.nodes_and_ranks import extend

        extend(request, given, programs)
    if not OUTPUT.isdisjoint(given):
        from console.launch.options.output import read

        request.output = read(given)
    if not RUN.isdisjoint(given):
        from console.launch.options.run import read as read_run

        request.run = read_run(given, request.where.size, request.program.cwd)
    request.stdio.input = _input(given.get("input") or _who_reads(given, request), request.where.size)


def _programs(
    rest: list[str], given: dict[str, Any], wanted: dict[str, Any] | None, *, ended: bool
) -> tuple[bytes, list[Program] | None]:
    """Return the path of the (first) program, and the list of programs if there are several."""
    from console.launch.options.program import find

    programs: list[Program] | None = None
    if "load" in given:
        from console.cli.yod.several_programs import load_file

        programs = load_file(given["load"], rest, given, wanted)
    elif not ended and ":" in rest:
        from console.cli.yod.several_programs import joined, programs_of

        programs = programs_of(rest, given, wanted) if joined(rest) else None
    if programs is not None:
        return programs[0].path, programs
    environ = _with_yodio() if _YODIO & given.keys() else os.environb
    try:
        return find(rest[0], environ, quiet="quiet" in given or "batch" in given), None
    except ConsoleError as error:
        if "attach" in given and rest[0].isdigit():  # the original yod's -attach takes no number
            error.hint = f"to follow launcher {rest[0]}: yod --attach {rest[0]}; -attach holds a new launch"
            raise
        from console.cli.yod.several_programs import implied_load_file

        programs = implied_load_file(rest, given, wanted, error)
        return programs[0].path, programs


def _with_yodio() -> dict[bytes, bytes]:
    from console.launch.options.transfer import with_yodio

    return with_yodio(os.environb)


def _refuse_nonsense(given: dict[str, Any], rest: list[str]) -> None:
    if not rest and "load" not in given:
        raise UsageError("no program to launch", f"usage: {USAGE}; -help lists the options")
    if given.get("sz") == 0 or given.get("cpus-per-task") == 0:
        raise UsageError("-sz and -cpus-per-task are at least 1", "leave them out, or give a larger number")
    if "batch" in given and "interactive" in given:
        raise UsageError("-batch and -interactive exclude each other", "leave one of them out")


def _limits() -> list[list[int]]:
    """The soft limits of yod's caller, before yod raises any of its own (getrlimit(2))."""
    import resource  # before any connection: under a low limit of open files the import would fail later

    numbers = (getattr(resource, f"RLIMIT_{name}") for name in _LIMITS)
    return [[number, resource.getrlimit(number)[0]] for number in numbers]


def _current_directory(chdir: str) -> bytes:
    """The current directory; empty if it does not matter because ``chdir`` is absolute."""
    try:
        return os.getcwdb()
    except FileNotFoundError:
        if chdir.startswith("/"):
            return b"/"
        try:
            name = os.readlink("/proc/self/cwd").removesuffix(" (deleted)")
        except OSError:
            name = ""
        told = f"the current directory{' ' if name else ''}{clean(name)} has been removed"
        raise ConsoleError(told, "cd to one that exists, or -chdir /DIR says where the ranks run") from None


def _who_reads(given: dict[str, Any], request: Request) -> str:
    if request.run is not None and request.run.pty is not None:
        return str(request.run.pty)
    if request.output is not None and request.output.stdin is not None:
        return "none" if request.output.stdin_each is not None else "all"
    # /dev/null has nothing to share: no pipe, no message.
    return "none" if "detach" in given or os.fstat(0).st_rdev == _NULL_DEVICE else "shared"


def _input(text: str, size: int | None) -> str | int:
    if text in ("shared", "all", "none"):
        return text
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UsageError(f"-input takes shared, all, none or a rank, not {text!r}", "a file is read by -stdin FILE")
    if size is not None and int(text) >= size:
        raise UsageError(f"-input {text}: the launch has no such rank", f"ranks are 0 to {size - 1}")
    return int(text)


def _partition() -> int | None:
    """The partition of the surrounding batch job, if there is one."""
    text = os.environ.get("REDMESH_PARTITION")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise UsageError(f"REDMESH_PARTITION is {text!r}, which is not a partition", "mesh partition create prints one")
    return int(text)


def _cookie(partition: int | None) -> str | None:
    """The cookie for allocating in a batch job's partition: its script has it; ranks have it only if exported."""
    if partition is None:
        return None
    cookie = os.environ.get("REDMESH_ALLOCATION_COOKIE")
    if cookie is None or not cookie.isascii():
        told = f"this is in partition {partition}, but without the right to launch in it (REDMESH_ALLOCATION_COOKIE)"
        raise ConsoleError(
            told,
            "ranks that are to launch get it by yod -export ALL,REDMESH_ALLOCATION_COOKIE;"
            " to launch outside the partition: unset REDMESH_PARTITION",
        )
    return cookie


def _launch(settings: Settings, request: Request, *, detached: bool) -> int:
    if not detached:
        status = _engine(settings, request, None)
        if settings.allocation:
            from console.launch.daemons.task_mesh import wait_for_others

            wait_for_others(settings)
        return status
    from console.launch.attach.detach import detach

    return detach(lambda on_running: _complaining(lambda: _engine(settings, request, on_running)))


def _complaining(run: Callable[[], int]) -> int:
    try:
        return run()
    except Exception as error:
        if hasattr(error, "hint"):
            return complain("yod", error)
        raise


def _engine(settings: Settings, request: Request, on_running: Callable[[int], None] | None) -> int:
    from agents.link.loop import Loop
    from console.launch.daemons.connect import login_name, start_time
    from console.launch.daemons.cpa import ALLOCATE_S, Authority
    from console.launch.daemons.rca import Registration

    managed = request.run is not None and request.run.parent == "rank"
    if managed and not settings.allocation:
        raise UsageError(
            "--parent=rank needs a batch system that starts the ranks, and this is not a job of one",
            "run it in the job's script (docs/managers.md), or leave --parent out",
        )
    if request.output is not None:
        request.output.begin()
    if request.transfer.bcast == "always":
        from console.launch.transfer.images import read_large

        read_large(request)
    pid = os.getpid()
    began = start_time(pid)
    run, sock = _reached(settings, request, pid)
    loop = Loop()
    rca = Registration(loop, f"{run}/rca.sock", pid, began, login=settings.login)
    cpa = Authority(loop, run, pid, sock)
    allocation = request.allocation(os.urandom(16).hex(), login_name(settings), pid, began)
    wait_s = request.where.wait_s
    cpa.ask(allocation, lambda reply, error: engine.allocated(reply, error), ALLOCATE_S + wait_s, patient=wait_s > 0)
    # The CPA works while we import the rest.
    from console.launch.daemons.allocation import Daemons
    from console.launch.engine import Engine

    _choose_mpi(settings, request)
    # Each node of a job has its own RUN, so its PCTs cannot share a server or memory, even on one machine.
    request.mpi.apart = bool(settings.allocation)
    make, on_running = _front(settings, request, on_running)
    features: list[Feature] = []
    if request.run is not None or request.output is not None:
        from console.launch.features.selection import features_of

        features = features_of(request)
        if managed:
            features.append(_managed_parent(settings))
    daemons = Daemons(run, settings.state_dir, rca, cpa, bool(settings.allocation))
    engine = Engine(loop, request, daemons, allocation, make, on_running, features)
    if request.state is None:
        return engine.run()
    if request.state.socket:
        from console.launch.features.workers import run_for_job

        return run_for_job(engine, engine.run, request.state)
    from console.launch.features.state import run_recorded

    return run_recorded(engine, engine.run, loop, request, settings)


def _front(
    settings: Settings, request: Request, on_running: Callable[[int], None] | None
) -> tuple[Callable[..., Any], Callable[[int], None] | None]:
    """Return the factory of the launch's frontend, and the function to call once the launch runs."""
    from console.launch.stdio.frontend import Front, JsonFront

    make: Callable[..., Any] = JsonFront if request.stdio.json else Front
    if on_running is not None:
        make, on_running = _spooled(settings, request, on_running)
    if request.output is not None:
        from console.launch.features.files import front_maker

        make = front_maker(make, request.output)
    return make, on_running


def _managed_parent(settings: Settings) -> Feature:
    """The feature for launches whose ranks the batch system starts."""
    from agents.linux import ending
    from console.deploy.hosts.allocation import find_manager, job_hosts
    from console.launch.features.managed import ManagedParent

    # Do not ask the manager at every launch: it may be slow, or its commands may be missing on this host.
    reach = ending.known_reach(settings.state_dir)
    return ManagedParent(find_manager(settings), {node: host for node, host, _slots in job_hosts(settings)}, reach)


def _reached(settings: Settings, request: Request, pid: int) -> tuple[str, socket]:
    """Return RUN of the mesh and a connection to the named CPA, or to any; start a personal mesh if necessary."""
    if request.where.cpa or request.where.cpa_pid:
        from console.launch.daemons.connect import reach_named

        return reach_named(settings, request)
    from console.launch.daemons.connect import reach

    silent = request.stdio.quiet or request.stdio.batch
    return reach(settings, pid, lambda text: None if silent else print(f"yod: {text}", file=sys.stderr, flush=True))


def _choose_mpi(settings: Settings, request: Request) -> None:
    from console.launch.options.mpi import choose

    wrong = choose(request, settings.mpi)
    if wrong and not request.stdio.quiet and request.where.size != 1:
        print(f"yod: {wrong}", file=sys.stderr, flush=True)


def _spooled(
    settings: Settings, request: Request, on_running: Callable[[int], None]
) -> tuple[Callable[..., Any], Callable[[int], None]]:
    """Return the factory of a detached launch's frontend, and the function to call once the launch runs."""
    from console.launch.daemons.connect import user
    from console.launch.events.spool import LIMIT, SpoolFront

    limit, drops = LIMIT, False
    if request.output is not None:
        limit, drops = request.output.spool_limit or LIMIT, request.output.spool_drops
    hello = {
        "command": request.command,
        "size": request.where.size,
        "user": user(),
        "state": "allocating",
        "input": request.stdio.input != "none",
    }
    fronts: list[SpoolFront] = []

    def make(_loop: Any, _request: Any, on_passed: Any, on_broken: Any) -> SpoolFront:
        fronts.append(SpoolFront(settings.state_dir, hello, on_passed, on_broken, limit, drops=drops))
        return fronts[0]

    def running(launcher: int) -> None:
        on_running(launcher)
        fronts[0].let_go()

    return make, running


def _attach(settings: Settings, given: dict[str, Any], rest: list[str]) -> int:
    from console.launch.attach.client import Attached
    from console.launch.options.request import ProgramOptions, Request
    from console.launch.stdio.frontend import Front, JsonFront

    if rest:
        raise UsageError("--attach takes a launcher's id and no program", "yod --attach 7")
    request = Request(ProgramOptions(b"", [], {}, b"", 0))
    for word in ("label", "json", "quiet"):
        setattr(request.stdio, word, word in given)
    make = JsonFront if request.stdio.json else Front
    gc.enable()
    _stay(settings, given["reattach"])
    return Attached(settings.run_dir, settings.state_dir, given["reattach"], request, make).run()


def _signal(settings: Settings, name: str, rest: list[str]) -> int:
    from console.launch.attach.client import send_signal
    from console.launch.options.signal_names import signal_number

    if not 1 <= len(rest) <= 2 or not rest[0].isdigit():
        raise UsageError(
            "-signal takes a signal, a launcher's id and, where only some are meant, ranks", "yod -signal TERM 7 0-3,8"
        )
    ranks = None
    if len(rest) == 2:
        from console.launch.attach.stacks import read_ranks
        from redmesh import idset

        ranks = idset.members(read_ranks(rest[1]))
    _stay(settings, int(rest[0]))
    send_signal(settings.run_dir, int(rest[0]), signal_number(name), ranks)
    return 0


def _release(settings: Settings, launcher: int, rest: list[str]) -> int:
    from console.launch.attach.client import release

    if rest:
        raise UsageError("-release takes a launcher's id and no program", "yod -release 7")
    _stay(settings, launcher)
    release(settings.run_dir, launcher)
    return 0


def _feed(settings: Settings, launcher: int, rest: list[str]) -> int:
    from console.launch.attach.client import feed

    if rest:
        raise UsageError("-feed takes a launcher's id and no program", "yod -feed 7")
    _stay(settings, launcher)
    feed(settings.run_dir, launcher, 0)
    return 0


def _stay(settings: Settings, launcher: int) -> None:
    if settings.login:  # one of several login processors on this host
        from console.launch.daemons.connect import stay_on_side

        stay_on_side(settings, launcher)

"""``yod``: launch a parallel program, and be its terminal. Words and meanings: WORDS below, docs/yod.md."""

from __future__ import annotations

import gc
import os
import sys

from console.cli.words import Word, complain, help_text, parse
from console.errors import ConsoleError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from console.launch.request import Request
    from console.settings import Settings

USAGE = "yod [options] program [arguments]"
ABOUT = "Launches a program on the processors of a mesh and is its terminal: input, output, signals, exit status."
_OTHER, _OUTPUT = "Running launches", "Input and output"

WORDS = (
    Word("sz", "int", "how many ranks; without it 1, or as many as -list has room for", "size", "n", "N", True),
    Word(
        "list", "text", "processors by number (0..3,8), or all those of nodes by name (node[01-04])", original=True,
        metavar="L",
    ),
    Word("batch", "flag", "no questions, no status lines; a bad exit ends the whole job", original=True),
    Word("interactive", "flag", "the opposite of -batch; the default", original=True),
    Word("kill", "flag", "a rank that exits badly ends the whole job", original=True),
    Word("distribution", "block|cyclic", "ranks fill node after node, or go round the nodes", metavar="block|cyclic"),
    Word("overcommit", "flag", "more ranks than processors is fine"),
    Word("cpus-per-task", "int", "processors for each rank", letter="c", metavar="N"),
    Word("wait-for-nodes", "seconds", "wait so long for processors that are not free", metavar="S"),
    Word("label", "flag", "put the rank in front of every line", group=_OUTPUT),
    Word(
        "input", "text", "who reads standard input: shared (which of the first node's ranks reads first; default),"
        " all, none, or a rank", metavar="WHO", group=_OUTPUT,
    ),
    Word("json", "flag", "print what happens as JSON, an object a line, output as base64", group=_OUTPUT),
    Word("quiet", "flag", "say nothing but errors", original=True, group=_OUTPUT),
    Word("verbose", "flag", "tell how every rank ended, also when all went well", group=_OUTPUT),
    Word("detach", "flag", "let it run without this terminal; prints the launcher's id", group=_OTHER),
    Word(
        "reattach", "int", "follow a launch's output, from its beginning if it was detached; ^C leaves it running",
        "attach", metavar="ID", group=_OTHER,
    ),
    Word(
        "signal", "text", "send a signal to the ranks of the launch named next: -signal TERM 7", metavar="SIG",
        group=_OTHER,
    ),
    Word("config", "text", "the configuration file to read", metavar="FILE", group="Others"),
    Word("fanout", "int", "children of a node in the tree of the launch", metavar="K", group="Others"),
    Word("version", "flag", "print the version", group="Others"),
    Word("help", "flag", "print this", original=True, group="Others"),
)  # fmt: skip

_FLAGS_LATER = ("alloc", "attach", "bt", "g", "D", "Log", "N", "NOBUF", "nice", "show", "timing", "vhelp")
_TEXTS_LATER = ("d", "file", "nid", "pid", "sleep", "strace", "straceoptions", "stracenodes")
#: Words of the original, and letters of srun, that this version does not have yet. They keep their prefixes,
#: so that what somebody writes today means the same tomorrow.
LATER = (
    *(Word(name, "flag", "", f"original-{name}", original=True) for name in _FLAGS_LATER),
    *(Word(name, "text", "", f"original-{name}", original=True) for name in _TEXTS_LATER),
    Word("nodelist", "text", "", letter="w"),
    Word("exclude", "text", "", letter="x"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run yod; its exit status. As a command it ends the process, without tearing down what nobody needs any more."""
    if arguments is not None:
        return _guarded(arguments)
    gc.disable()  # nothing that we load is ever garbage; the engine enables it for launches that last
    status = _guarded(sys.argv[1:])
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        pass  # whoever read us has gone
    os._exit(status)


def _guarded(arguments: Sequence[str]) -> int:
    try:
        _open_standard_descriptors()
        return _run(arguments)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141
    except Exception as error:
        # ConsoleError and AgentError; the latter's module is loaded only where it can happen
        if hasattr(error, "hint") and hasattr(error, "exit_status"):
            return complain("yod", error)
        if isinstance(error, OSError):
            return complain("yod", ConsoleError(f"{error.filename or 'system'}: {error.strerror}"))
        if "REDMESH_DEBUG" in os.environ:
            raise
        told = f"this is a bug in yod: {type(error).__name__}: {error}"
        return complain("yod", ConsoleError(told, "REDMESH_DEBUG=1 shows where; the RCA cleans up"))


def _open_standard_descriptors() -> None:
    # A socket that got number 1 because stdout was closed would be written to.
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    # Python has None for what was closed, and print() would then write errors to stdout
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _run(arguments: Sequence[str]) -> int:
    parsed = parse(WORDS + LATER, arguments, stop=True)
    given: dict[str, Any] = dict(parsed.values)
    rest = parsed.rest
    if "help" in given or "vhelp" in given:
        print(help_text(USAGE, ABOUT, WORDS), end="")
        # -help ended with 1 in the original, and scripts may look at it
        return 0 if any(word.startswith("--") for word in arguments[: len(arguments) - len(rest)]) else 1
    for word in LATER:
        if word.name in given:
            raise UsageError(f"-{word.name} comes with a later version", "-help lists what there is")
    if "version" in given:
        return _version()
    from console.settings import load

    settings = load({"fanout": given.get("fanout")}, config=given.get("config", ""))
    if "signal" in given:
        return _signal(settings, given["signal"], rest)
    if "reattach" in given:
        return _attach(settings, given, rest)
    return _launch(settings, request_of(given, rest, settings.fanout), detached="detach" in given)


def request_of(given: dict[str, Any], rest: list[str], fanout: int) -> Request:
    """What the command line asks for, checked as far as that goes without a mesh. UsageError, ProgramError."""
    from console.launch.program import find
    from console.launch.request import Request

    _refuse_nonsense(given, rest)
    wanted, size, partition = None, given.get("sz"), None
    if "list" in given:
        from console.launch.lists import parse_list

        wanted = parse_list(given["list"])
    elif size is None:
        size = 1
    if "REDMESH_PARTITION" in os.environ:
        partition = _partition(os.environ["REDMESH_PARTITION"])
    umask = os.umask(0o022)
    os.umask(umask)
    return Request(
        find(rest[0], os.environb),
        [os.fsencode(argument) for argument in rest],
        environ=os.environb,
        cwd=_current_directory(),
        umask=umask,
        size=size,
        wanted=wanted,
        cpus_per_task=given.get("cpus-per-task", 1),
        overcommit="overcommit" in given,
        distribution=given.get("distribution", "block"),
        input=_input(given.get("input", "none" if "detach" in given else "shared"), size),
        fanout=fanout,
        wait_s=given.get("wait-for-nodes", 0.0),
        partition=partition,
        cookie=os.environ.get("REDMESH_ALLOCATION_COOKIE") if partition is not None else None,
        batch="batch" in given,
        kill="kill" in given,
        label="label" in given,
        json="json" in given,
        quiet="quiet" in given,
        verbose="verbose" in given,
    )


def _refuse_nonsense(given: dict[str, Any], rest: list[str]) -> None:
    if not rest:
        raise UsageError("no program to launch", f"usage: {USAGE}; -help lists the options")
    if given.get("sz") == 0 or given.get("cpus-per-task") == 0:
        raise UsageError("-sz and -cpus-per-task are at least 1")
    if "batch" in given and "interactive" in given:
        raise UsageError("-batch and -interactive exclude each other")


def _current_directory() -> bytes:
    try:
        return os.getcwdb()
    except FileNotFoundError:
        raise ConsoleError("the current directory has been removed", "cd to one that exists") from None


def _input(text: str, size: int | None) -> str | int:
    if text in ("shared", "all", "none"):
        return text
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UsageError(f"-input takes shared, all, none or a rank, not {text!r}")
    if size is not None and int(text) >= size:
        raise UsageError(f"-input {text}: there is no such rank", f"ranks are 0 to {size - 1}")
    return int(text)


def _partition(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise UsageError(f"REDMESH_PARTITION is {text!r}, which is no partition", "mesh partition create prints one")
    return int(text)


def _launch(settings: Settings, request: Request, *, detached: bool) -> int:
    if not detached:
        return _engine(settings, request, None)
    from console.launch.detach import detach

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
    from console.launch.access import login_name, reach, start_time
    from console.launch.authority import ALLOCATE_S, Authority
    from console.launch.registration import Registration

    pid = os.getpid()
    began = start_time(pid)
    silent = request.quiet or request.batch
    run, sock = reach(
        settings, pid, lambda text: None if silent else print(f"yod: {text}", file=sys.stderr, flush=True)
    )
    loop = Loop()
    rca = Registration(loop, f"{run}/rca.sock", pid, began)
    cpa = Authority(loop, run, pid, sock)
    allocation = request.allocation(os.urandom(16).hex(), login_name(settings), pid, began)
    cpa.ask(allocation, lambda reply, error: engine.allocated(reply, error), ALLOCATE_S + request.wait_s)
    # the CPA works while we load the rest
    from console.launch.engine import Engine
    from console.launch.front import Front, JsonFront

    make: Any = JsonFront if request.json else Front
    if on_running is not None:
        make, on_running = _spooled(settings, request, on_running)
    engine = Engine(
        loop,
        request,
        run=run,
        rca=rca,
        cpa=cpa,
        state_dir=settings.state_dir,
        make_front=make,
        on_running=on_running,
    )
    return engine.run()


def _spooled(
    settings: Settings, request: Request, on_running: Callable[[int], None]
) -> tuple[Callable[..., Any], Callable[[int], None]]:
    """How a detached launch makes its front, and what it does as soon as it runs."""
    from console.launch.engine import user
    from console.launch.spool import SpoolFront

    hello = {"command": request.command, "size": request.size, "user": user(), "state": "allocating"}
    fronts: list[SpoolFront] = []

    def make(_loop: Any, _request: Any, on_passed: Any, on_broken: Any) -> SpoolFront:
        fronts.append(SpoolFront(settings.state_dir, hello, on_passed, on_broken))
        return fronts[0]

    def running(launcher: int) -> None:
        on_running(launcher)
        fronts[0].let_go()

    return make, running


def _attach(settings: Settings, given: dict[str, Any], rest: list[str]) -> int:
    from console.launch.attach import Attached
    from console.launch.front import Front, JsonFront
    from console.launch.request import Request

    if rest:
        raise UsageError("--attach takes a launcher's id and no program")
    request = Request(
        b"", [], environ={}, cwd=b"", umask=0, label="label" in given, json="json" in given, quiet="quiet" in given
    )
    make = JsonFront if request.json else Front
    gc.enable()
    return Attached(settings.run_dir, settings.state_dir, given["reattach"], request, make).run()


def _signal(settings: Settings, name: str, rest: list[str]) -> int:
    from console.launch.attach import send_signal

    if len(rest) != 1 or not rest[0].isdigit():
        raise UsageError("-signal takes a signal and a launcher's id", "yod -signal TERM 7")
    send_signal(settings.run_dir, int(rest[0]), _signal_number(name))
    return 0


def _signal_number(name: str) -> int:
    import signal

    if name.isdigit() and 0 < int(name) < signal.NSIG:
        return int(name)
    try:
        return int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
    except KeyError:
        raise UsageError(f"no signal is called {name!r}", "TERM, KILL, USR1 … or a number") from None


def _version() -> int:
    from importlib.metadata import version

    print(f"yod (Redmesh) {version('redmesh')}")
    return 0


if __name__ == "__main__":
    main()

"""``mesh``: brings a mesh up and down and administers it. Each subcommand is in a file of its own."""

import argparse
import codecs
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from console.cli.exits import guarded
from console.errors import UsageError
from console.settings import Settings, as_root, load
from redmesh.version import VERSION

Command = Callable[[Settings, argparse.Namespace], int]


#: Options that set keys of the configuration.
_SETTINGS = ("processors", "nodes", "cpas", "service_nodes", "database", "manager")


_TIME_HELP = "time limit of each {}: minutes, M:S, H:M:S, or a number with s, m, h or d"
_VERSION = f"mesh (Redmesh) {VERSION}"
_CONFIG, _QUIET = "the configuration file to read", "print only errors; the exit status tells success"


class _Formatter(argparse.HelpFormatter):
    """argparse's formatter without shutil, which costs 4 ms: a parser makes one for each option that it is given."""

    def __init__(self, prog: str, **options: Any) -> None:
        options.setdefault("width", _columns() - 2)
        super().__init__(prog, **options)


def _columns() -> int:
    """The width of the terminal, as in shutil.get_terminal_size."""
    try:
        asked = int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        asked = 0
    if asked <= 0:
        try:
            asked = os.get_terminal_size(sys.__stdout__.fileno()).columns  # type: ignore[union-attr]
        except (AttributeError, ValueError, OSError):
            asked = 0
    return asked or 80


class _Parser(argparse.ArgumentParser):
    #: The command line that is parsed, for messages.
    words: Sequence[str] = ()

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": _Formatter, **options})

    def error(self, message: str) -> "None":  # type: ignore[override]
        from console.cli.mesh.other_words import explained

        raise explained(self, message, self.words)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action.choices, dict) and value not in action.choices:  # a command
            from console.cli.mesh.other_words import unknown_command

            raise unknown_command(self.prog, str(value), action.choices)
        super()._check_value(action, value)

    def _print_message(self, message: str, file: Any = None) -> None:
        # In some versions, argparse's own code ignores a full disk and exits with 0.
        if message:
            print(message, end="", file=file or sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    return guarded("mesh", lambda: _run(arguments))


def _bytes_of(error: UnicodeError) -> tuple[bytes, int]:
    """For output that its encoding lacks: paths are printed with the bytes that they have, other characters as ?."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = [ord(one) for one in error.object[error.start : error.end]]
    return bytes(code - 0xDC00 if 0xDC80 <= code <= 0xDCFF else ord("?") for code in found), error.end


def _run(arguments: Sequence[str] | None) -> int:
    given_words = sys.argv[1:] if arguments is None else arguments
    _Parser.words = given_words
    top = parser(given_words[0] if given_words else "")
    options, unknown = top.parse_known_args(given_words)
    if unknown:
        from console.cli.mesh.other_words import unknown_words

        raise unknown_words(getattr(options, "of_command", top), unknown)
    if options.help or not hasattr(options, "command"):
        from console.cli.mesh.overview import overview

        print(overview(parser()), file=sys.stdout if options.help else sys.stderr)
        return 0 if options.help else UsageError.exit_status
    if options.quiet and not getattr(options, "own_quiet", False):
        if getattr(options, "result", False):
            raise UsageError("--quiet does not fit: this command's output is its result", "write it into a file")
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        codecs.register_error("redmesh", _bytes_of)
        sys.stdout.reconfigure(errors="redmesh")
    given = {key: getattr(options, key, None) for key in _SETTINGS}
    settings = load(given, config=options.config or "")
    if settings.system and os.geteuid() and getattr(options, "of_root", False):
        from console.errors import ConsoleError

        file = settings.file or "REDMESH_SYSTEM"
        raise ConsoleError(
            f"{options.of_command.prog} is for root: mesh {settings.mesh} is root's, for all users ({file})",
            f"ask an administrator, or {as_root(settings, options.of_command.prog)}",
            exit_status=1,
        )
    command: Command = options.command
    return command(settings, options)


def _add_help(commands: "argparse._SubParsersAction[_Parser]") -> None:
    shown = commands.add_parser("help", help="print what a command does, or the commands")
    shown.add_argument("words", metavar="COMMAND", nargs="*", help="the command, and its own command")
    shown.add_argument("--all", action="store_true", help="every command")
    shown.set_defaults(command=_show_help, result=True)
    version = commands.add_parser("version", help="print the version")
    version.set_defaults(command=_show_version, result=True)


def _show_help(_settings: Settings, options: argparse.Namespace) -> int:
    from console.cli.mesh.overview import asked

    print(asked(parser(), options.words, every=options.all))
    return 0


def _show_version(_settings: Settings, _options: argparse.Namespace) -> int:
    print(_VERSION)
    return 0


def _how_many(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 31):
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 0 to {(1 << 31) - 1}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.01 <= seconds < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")
    return seconds


def parser(only: str = "") -> argparse.ArgumentParser:
    """The parser of the whole command line; with ``only`` of that command and few others, which is built sooner."""
    known = any(only in words.split() for words, _ in _GROUPS)
    top = _Parser(
        prog="mesh", description="Bring a mesh up and down, and administer it.", allow_abbrev=False, add_help=False
    )
    top.add_argument("-h", "--help", action="store_true", help="print the commands that people use")
    top.add_argument("--config", metavar="FILE", help=_CONFIG)
    top.add_argument("--quiet", action="store_true", help=_QUIET)
    top.add_argument(
        "-v", "-V", "--version", action="version", version=f"mesh (Redmesh) {VERSION}", help="print the version"
    )
    commands = top.add_subparsers(metavar="COMMAND", parser_class=_Parser)
    for words, add in _GROUPS:
        if only in words.split() or not known:
            add(commands)
    _add_common(top)
    return top


def _add_common(above: argparse.ArgumentParser) -> None:
    """Accept --config and --quiet after every subcommand too. An option given before it stays in force."""
    for action in above._actions:  # argparse has no other way to ask it
        if isinstance(action, argparse._SubParsersAction):
            for below in dict.fromkeys(action.choices.values()):
                below.set_defaults(of_command=below)
                below.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help=_CONFIG)
                own = [one for one in below._actions if "--quiet" in one.option_strings]
                for one in own:  # it has another meaning there
                    one.default = argparse.SUPPRESS
                    below.set_defaults(own_quiet=True)
                if not own:
                    below.add_argument("--quiet", action="store_true", default=argparse.SUPPRESS, help=_QUIET)
                _add_common(below)


def _add_completion(commands: "argparse._SubParsersAction[_Parser]") -> None:
    told = 'print the completion script for a shell: eval "$(mesh completion bash)"'
    completion = commands.add_parser("completion", help=told, description=told)
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    completion.add_argument("of", nargs="?", choices=("yod", "pingd", "showmesh", "mesh"), help="only this command")
    completion.set_defaults(command=_lazily("completion", "completion"), result=True)


def _add_demo(commands: "argparse._SubParsersAction[_Parser]") -> None:
    about = "try a parallel program on a temporary mesh"
    demo = commands.add_parser("demo", help=about, description=f"{about.capitalize()}.")
    demo.set_defaults(command=_lazily("demo", "demo"), result=True)
    about = "open the documentation in a browser; nothing is fetched"
    docs = commands.add_parser("docs", help=about, description=f"{about.capitalize()}.")
    docs.add_argument(
        "page", metavar="PAGE", nargs="?", default="index", help="a page: tutorial, yod, troubleshooting …"
    )
    docs.add_argument("--print", dest="print_only", action="store_true", help="only print the address")
    docs.set_defaults(command=_lazily("docs", "docs"), result=True)


def _add_life(commands: "argparse._SubParsersAction[_Parser]") -> None:
    about = "start a mesh, here or on the hosts of the configuration"
    up = commands.add_parser("up", help=about, description=f"{about.capitalize()}.")
    up.add_argument("--processors", metavar="N", help="how many processors (default: as many as there are cores)")
    up.add_argument("--nodes", metavar="M", help="how many nodes the processors are spread over (default: 1)")
    up.add_argument("--cpas", metavar="K", help="how many CPAs (default: 1)")
    up.add_argument("--service-nodes", metavar="N", help="how many of the nodes are service nodes (default: none)")
    up.add_argument("--manager", metavar="NAME", help="the batch system whose job is used, or none (docs/managers.md)")
    up.add_argument(
        "--auto", action="store_true", help="end the mesh after idle_minutes without use (yod starts a mesh this way)"
    )
    up.add_argument("--simulate", metavar="FILE", help="simulate the machine that [topology] of this file describes")
    up.add_argument("--system", action="store_true", help="start a system mesh for all users, as root (docs/system.md)")
    up.add_argument(
        "--accept-new", action="store_true", help="accept and store the SSH keys of hosts that have none in known_hosts"
    )
    up.add_argument("--only", metavar="LIST", default="", help="only these hosts, for example node[001-004]")
    up.add_argument("--label", metavar="WORD", action="append", default=[], help="only hosts with this label")
    up.set_defaults(command=_lazily("up", "up"))
    simulate = commands.add_parser("simulate", help="start a simulated machine", description="As mesh up --simulate.")
    simulate.add_argument("simulate", metavar="FILE", help="a file whose [topology] describes the machine")
    simulate.add_argument("--cpas", metavar="K", help="how many CPAs (default: 1)")
    for one in (up, simulate):
        one.add_argument("--boards", action="store_true", help="make each board of a simulated machine a node")
        one.add_argument(
            "--each",
            metavar="N",
            type=int,
            default=1,
            help="processors of each node of a simulated cluster (default: 1)",
        )
    alone = {"processors": None, "nodes": None, "service_nodes": None, "auto": False, "system": False}
    simulate.set_defaults(command=_lazily("up", "up"), **alone)
    down = commands.add_parser("down", help="end the mesh", description="End the mesh, and every launch on it.")
    down.add_argument("--force", action="store_true", help="do not ask, even if launches run")
    down.add_argument("--keep-agent", action="store_true", help="leave the agent's file on the hosts")
    down.set_defaults(command=_lazily("down", "down"), of_root=True)
    for one in (up, down, simulate):
        one.add_argument("--json", action="store_true", help="print JSON: the result for each host")


def _add_hosts(commands: "argparse._SubParsersAction[_Parser]") -> None:
    init = commands.add_parser("init", help="write a configuration with hosts", description="Write a configuration.")
    init.add_argument(
        "file", nargs="?", metavar="FILE", default="mesh.toml", help="the file to write (default: mesh.toml)"
    )
    told = "a host, or several equal hosts such as node[001-064]; may be repeated"
    init.add_argument("--host", metavar="NAME", action="append", default=[], help=told)
    told = "the hosts of an MPI host file: `host`, `host:slots` or `host slots=N`; slots become processors"
    init.add_argument("--hostfile", metavar="HOSTS", help=told)
    init.set_defaults(command=_lazily("init", "init"))
    nodes = commands.add_parser("nodes", help="list and edit the hosts in the configuration", description="The hosts.")
    which = nodes.add_subparsers(metavar="WHAT", required=True, parser_class=_Parser)
    show = which.add_parser("list", help="list the hosts and the states of their nodes")
    add = which.add_parser("add", help="add hosts: NAME [key=value …]")
    add.add_argument("name", metavar="NAME", help="for example node[001-064]")
    remove = which.add_parser("remove", help="remove hosts from the configuration")
    change = which.add_parser("set", help="change keys of hosts: LIST key=value …")
    for one in (remove, change):
        one.add_argument("names", metavar="LIST", help="for example node[001-004],login1")
    for one in (add, change):
        one.add_argument(
            "value", nargs="*", metavar="KEY=VALUE", help="for example processors=16; KEY= removes the key"
        )
    for one, name in ((show, "show"), (add, "add"), (remove, "remove"), (change, "change")):
        one.set_defaults(command=_lazily("nodes", name))
    doctor = commands.add_parser(
        "doctor", help="check every host, and say how to mend what is wrong", description="Check every host."
    )
    doctor.set_defaults(command=_lazily("doctor", "examine"), of_root=True)
    told = "install this version on a mesh that is up"
    upgrade = commands.add_parser("upgrade", help=told, description=f"{told.capitalize()}.")
    upgrade.set_defaults(command=_lazily("upgrade", "upgrade"), of_root=True)
    for one in (show, doctor, upgrade):
        one.add_argument("--only", metavar="LIST", default="", help="only these hosts, for example node[001-004]")
        one.add_argument("--label", metavar="WORD", action="append", default=[], help="only hosts with this label")
        one.add_argument("--json", action="store_true", help="print JSON")


def _add_trust(commands: "argparse._SubParsersAction[_Parser]") -> None:
    about = "the certificates and keys of a mesh over many hosts"
    trust = commands.add_parser("trust", help=about, description=f"{about.capitalize()} (docs/security.md).")
    which = trust.add_subparsers(metavar="WHAT", required=True, parser_class=_Parser)
    show = which.add_parser("show", help="show the certificates and their expiry")
    rotate = which.add_parser("rotate", help="replace CA and keys; launches continue")
    for one, name in ((show, "show"), (rotate, "rotate")):
        one.add_argument("--json", action="store_true", help="print JSON")
        one.set_defaults(command=_lazily("trust", name), of_root=name != "show")


def _add_logins(commands: "argparse._SubParsersAction[_Parser]") -> None:
    about = "further login processors of a mesh"
    login = commands.add_parser("login", help=about, description=f"{about.capitalize()} (docs/deployment.md).")
    which = login.add_subparsers(metavar="WHAT", required=True, parser_class=_Parser)
    grant = which.add_parser("grant", help="write the file by which another machine becomes a login processor")
    grant.add_argument("name", metavar="NAME", help="the name of the login processor")
    told = "how many CPAs it runs, if it can reach the system database (default: 0; it uses the CPAs here)"
    # Not `cpas`, which is the number of CPAs here.
    grant.add_argument("--cpas", dest="own_cpas", metavar="N", type=_how_many, default=0, help=told)
    join = which.add_parser("join", help="on that machine: become the login processor of the file")
    for one, name in ((grant, "grant"), (join, "join")):
        one.add_argument("file", metavar="FILE", help="the file; it contains private keys (join: - is standard input)")
        one.set_defaults(command=_lazily("login", name), of_root=True)
    revoke = which.add_parser("revoke", help="remove a login processor, and replace all keys that it knew")
    revoke.add_argument("name", metavar="NAME", help="the login processor")
    revoke.add_argument("--force", action="store_true", help="do not ask, even if launches run from there")
    revoke.add_argument("--json", action="store_true", help="print JSON")
    revoke.set_defaults(command=_lazily("login", "revoke"), of_root=True)


def _add_looks(commands: "argparse._SubParsersAction[_Parser]") -> None:
    status = commands.add_parser(
        "status", help="show the state of daemons, nodes and launches", description="Show the state of the mesh."
    )
    status.set_defaults(command=_lazily("status", "status"))
    history = commands.add_parser("history", help="list ended launches", description="List ended launches.")
    history.add_argument("-n", "--last", metavar="N", type=_how_many, default=20, help="how many (default: 20)")
    history.set_defaults(command=_lazily("history", "history"))
    for one in (status, history):
        one.add_argument("--json", action="store_true", help="print JSON")
    console = commands.add_parser(
        "console", help="watch, launch and debug in a full-screen console", description="The console."
    )
    console.add_argument("--read-only", action="store_true", help="allow no changes (ctrl+r switches)")
    console.add_argument("--theme", metavar="NAME", help="dark, light, contrast or mono")
    console.add_argument("--replay", metavar="FILE", help="show a recording of mesh record")
    console.add_argument(
        "--speed", metavar="X", type=float, default=1.0, help="the speed of the recording (default: 1)"
    )
    console.set_defaults(command=_lazily("console", "console"), result=True)
    record = commands.add_parser("record", help="record all changes to a file", description="Record the mesh.")
    record.add_argument("file", metavar="FILE", help="a new file; - for standard output")
    record.add_argument(
        "--every", metavar="S", type=_seconds, default=0.25, help="seconds between readings (default: 0.25)"
    )
    record.add_argument("--seconds", metavar="S", type=_seconds, help="how long to record (default: until ^C)")
    record.set_defaults(command=_lazily("record", "record"), result=True)
    serve = commands.add_parser(
        "serve", help="serve the console to a browser", description="Serve the console to a browser."
    )
    serve.add_argument("--port", metavar="N", type=int, default=8000, help="the port on 127.0.0.1 (default: 8000)")
    serve.add_argument("--read-only", action="store_true", help="allow no changes")
    serve.set_defaults(command=_lazily("serve", "serve"))


def _add_inspection(commands: "argparse._SubParsersAction[_Parser]") -> None:
    told = "show the stacks of all ranks of a launch as one tree"
    stacks = commands.add_parser("stacks", help=told, description=told)
    which = "the launch (default: your only running one)"
    stacks.add_argument("launcher", metavar="LAUNCHER", type=int, nargs="?", help=which)
    stacks.add_argument("--ranks", metavar="LIST", help="only these ranks, for example 0-3,7")
    kinds = stacks.add_mutually_exclusive_group()
    kinds.add_argument("--native", action="store_true", help="only calls of C, C++ and Fortran")
    kinds.add_argument("--python", action="store_true", help="only calls of Python")
    stacks.add_argument("--whole", action="store_true", help="also calls inside MPI")
    stacks.add_argument("--limit", metavar="S", type=float, default=10.0, help="time limit in seconds (default: 10)")
    stacks.add_argument("--json", action="store_true", help="print JSON")
    stacks.set_defaults(command=_lazily("stacks", "stacks"))
    told = "list the processes of a running launch: rank, host, process, program"
    procs = commands.add_parser("procs", help=told, description=told)
    procs.add_argument("launcher", metavar="LAUNCHER", type=int, nargs="?", help=which)
    kinds = procs.add_mutually_exclusive_group()
    kinds.add_argument("--mpir", action="store_true", help="print MPIR_proctable as JSON, for debuggers")
    kinds.add_argument(
        "--mpir-stub", action="store_true", help="run as a process that contains MPIR_proctable, for debuggers"
    )
    kinds.add_argument("--json", action="store_true", help="print JSON")
    procs.set_defaults(command=_lazily("procs", "procs"))
    told = "debug one rank of a running launch in this terminal"
    debug = commands.add_parser("debug", help=told, description=told)
    debug.add_argument("launcher", metavar="LAUNCHER", type=int)
    debug.add_argument("rank", metavar="RANK", type=int)
    debug.add_argument(
        "words", metavar="gdb|pdb|strace|py-spy|COMMAND", nargs=argparse.REMAINDER,
        help="the tool to run on the rank's node (default: gdb); {pid} in a command is the rank's process",
    )  # fmt: skip
    debug.set_defaults(command=_lazily("debug", "debug"), result=True)


def _add_partitions(commands: "argparse._SubParsersAction[_Parser]") -> None:
    partition = commands.add_parser(
        "partition", help="create and destroy partitions for a batch system", description="Partitions."
    )
    which = partition.add_subparsers(metavar="WHAT", required=True, parser_class=_Parser)
    create = which.add_parser("create", help="create a partition; prints variables for the job's environment")
    create.add_argument("--batch-job", metavar="ID", required=True, help="the job's id in the batch system")
    create.add_argument("-sz", "--size", metavar="N", type=int, help="how many processors")
    create.add_argument("--list", metavar="LIST", help="the processors or nodes")
    create.add_argument("--user", help="the owner of the job (default: the caller)")
    create.add_argument("--json", action="store_true", help="print JSON")
    create.set_defaults(command=_lazily("partition", "create"), result=True)
    destroy = which.add_parser("destroy", help="destroy a partition and free its processors")
    destroy.add_argument("partition", type=int)
    destroy.add_argument("--force", action="store_true", help="end launches in the partition")
    destroy.set_defaults(command=_lazily("partition", "destroy"))
    show = which.add_parser("list", help="list the partitions")
    show.add_argument("--json", action="store_true", help="print JSON")
    show.set_defaults(command=_lazily("partition", "show"))


def _add_administration(commands: "argparse._SubParsersAction[_Parser]") -> None:
    mode = commands.add_parser("mode", help="set the allocation mode of processors", description="Set the mode.")
    mode.add_argument("mode", choices=("batch", "interactive", "reserved"))
    mode.add_argument("list", metavar="LIST", help="processors or nodes, for example 0..15,n3")
    mode.set_defaults(command=_lazily("reserve", "mode"))
    reserve = commands.add_parser("reserve", help="reserve processors for one user", description="Reserve processors.")
    reserve.add_argument("user")
    reserve.add_argument("list", metavar="LIST")
    reserve.add_argument("--reason", metavar="TEXT", default="", help="a reason, shown in the event")
    reserve.set_defaults(command=_lazily("reserve", "reserve"))
    unreserve = commands.add_parser("unreserve", help="end a reservation", description="End a reservation.")
    unreserve.add_argument("list", metavar="LIST")
    unreserve.set_defaults(command=_lazily("reserve", "reserve"), user=None, reason="")
    about = "take nodes out of service; launches on them continue"
    drain = commands.add_parser("drain", help=about, description=f"{about.capitalize()}.")
    drain.add_argument("list", metavar="NODES", help="for example n[0-3],n7")
    drain.add_argument("--reason", metavar="TEXT", default="", help="a reason, shown to all users")
    drain.add_argument("--at", metavar="WHEN", help="later: +1:30:00, now+2hours, 22:00, 2030-12-24T18:00")
    drain.set_defaults(command=_lazily("drain", "drain"))
    about = "put nodes back into service, or keep them (drain --at)"
    resume = commands.add_parser("resume", help=about, description=f"{about.capitalize()}.")
    resume.add_argument("list", metavar="NODES", help="for example n[0-3],n7")
    resume.set_defaults(command=_lazily("drain", "resume"))


def _add_managers(commands: "argparse._SubParsersAction[_Parser]") -> None:
    about = "add the nodes of a batch job to the mesh that is up"
    grow = commands.add_parser("grow", help=about, description=f"{about.capitalize()} (docs/managers.md).")
    told = "the batch system (default: slurm)"
    grow.add_argument("--manager", metavar="NAME", default="slurm", dest="batch_system", help=told)
    grow.add_argument("-N", "--nodes", metavar="N", default="1", dest="count", help="how many nodes (default: 1)")
    grow.add_argument("--time", metavar="T", default="", help="the time limit, in the batch system's syntax")
    grow.add_argument("--list", action="store_true", help="list the jobs whose nodes belong to the mesh")
    grow.add_argument("--json", action="store_true", help="print JSON")
    grow.add_argument("option", nargs="*", metavar="OPTION", help="after --: options of the batch system's command")
    grow.set_defaults(command=_lazily("grow", "grow"))
    about = "drain the nodes of a batch job and end the job"
    shrink = commands.add_parser("shrink", help=about, description=f"{about.capitalize()} (docs/managers.md).")
    shrink.add_argument("job", metavar="JOB", help="the job, as `mesh grow --list` prints it")
    shrink.add_argument("--force", action="store_true", help="do not wait for launches on the nodes")
    shrink.add_argument("--when-due", action="store_true", help="do so when the nodes are drained")
    shrink.set_defaults(command=_lazily("grow", "shrink"))
    told = "the batch system that this command runs in"
    manager = commands.add_parser("manager", help=told, description=f"{told.capitalize()} (docs/managers.md).")
    which = manager.add_subparsers(metavar="WHAT", required=True, parser_class=_Parser)
    for name, about in (
        ("list", "list the known batch systems and the detected one"),
        ("check", "try every call of the detected batch system"),
    ):
        one = which.add_parser(name, help=about)
        one.add_argument("--json", action="store_true", help="print JSON")
        one.set_defaults(command=_lazily("manager", f"{name}_managers" if name == "list" else name))
    told = "prolog and epilog scripts that give each batch job a partition of a system mesh"
    install = which.add_parser("install", help=told, description=f"Print {told}.")
    install.add_argument("batch_system", choices=("slurm", "pbs", "sge"))
    install.add_argument("--print", action="store_true", required=True, help="print the scripts; no file is written")
    install.add_argument(
        "--directory",
        metavar="DIR",
        default="/etc/redmesh",
        help="the directory that the scripts will be in (default: %(default)s)",
    )
    about = "a directory that all hosts share, for records of partitions (default: %(default)s)"
    install.add_argument("--jobs", metavar="DIR", default="/var/lib/redmesh/jobs", help=about)
    install.add_argument("--json", action="store_true", help="print JSON")
    install.set_defaults(command=_lazily("manager", "install"))


def _add_database(commands: "argparse._SubParsersAction[_Parser]") -> None:
    db = commands.add_parser("db", help="set up and migrate the system database", description="The system database.")
    what = db.add_subparsers(metavar="WHAT", required=True, parser_class=_Parser)
    init = what.add_parser("init", help="create the schema, and print or run the grants")
    init.add_argument("--url", help="the URL of an account with CREATE rights (default: the CPAs' URL)")
    init.add_argument("--run", action="store_true", help="run the grants instead of printing them")
    init.add_argument("--cpa-account", metavar="ACCOUNT", default="redmesh_cpa", help="USER or USER@HOST")
    init.add_argument("--view-account", metavar="ACCOUNT", default="redmesh_view", help="USER or USER@HOST")
    told = "create a view of this login processor's side, and an account for the view; may be repeated"
    init.add_argument("--view-login", metavar="NAME", action="append", default=[], help=told)
    told = "create an account for this user that can read the whole machine; may be repeated"
    init.add_argument("--view-user", metavar="NAME", action="append", default=[], help=told)
    told = "connection limit of a shared account (default: 100; the limit of one user's account is 10)"
    init.add_argument("--view-connections", metavar="N", type=int, default=100, help=told)
    init.set_defaults(command=_lazily("database", "init"), result=True)
    migrate = what.add_parser("migrate", help="migrate an older schema to this version")
    migrate.add_argument("--url", help="the URL of an account with ALTER rights (default: the CPAs' URL)")
    migrate.set_defaults(command=_lazily("database", "bring_up_to_date"))
    release = what.add_parser("release", help="release the database from a mesh that is lost")
    release.add_argument("mesh", metavar="MESH", help="the name of the lost mesh, as mesh up prints it")
    told = (
        "even if the mesh may still use the database: its processes continue, and their processors are allocated again"
    )
    release.add_argument("--force", action="store_true", help=told)
    release.set_defaults(command=_lazily("database", "release"))


def _add_machine(commands: "argparse._SubParsersAction[_Parser]") -> None:
    topology = commands.add_parser(
        "topology", help="show and check the topology of the machine", description="The topology."
    )
    which = topology.add_subparsers(metavar="WHAT", required=True, parser_class=_Parser)
    for name, told in (("show", "print the topology"), ("check", "compare the topology with the nodes")):
        one = which.add_parser(name, help=told)
        one.add_argument("file", nargs="?", metavar="FILE", help="a TOML file with [topology] (default: the mesh's)")
        one.add_argument("--json", action="store_true", help="print JSON")
        one.set_defaults(command=_lazily("topology", name))


def _add_sides(commands: "argparse._SubParsersAction[_Parser]") -> None:
    side = commands.add_parser("side", help="show and set switch columns and sides", description="Sides.")
    which = side.add_subparsers(metavar="WHAT", required=True, parser_class=_Parser)
    show = which.add_parser("show", help="show the open switches, and the sides with their nodes")
    show.add_argument("--json", action="store_true", help="print JSON")
    show.set_defaults(command=_lazily("side", "show"))
    change = which.add_parser("set", help="open and close switches, in one transaction")
    change.add_argument("switch", nargs="+", metavar="SWITCH=open|closed")
    change.add_argument(
        "--wait", metavar="S", type=float, help="allocate nothing new there, and wait for running launches"
    )
    both = "when sides are joined, also wipe the larger one (default: only the smaller one, which changes sides)"
    change.add_argument("--wipe-both", action="store_true", help=both)
    change.set_defaults(command=_lazily("side", "set_switches"))


def _add_replay(commands: "argparse._SubParsersAction[_Parser]") -> None:
    replay = commands.add_parser(
        "replay", help="replay a trace of jobs, much faster than real time", description="Replay jobs."
    )
    replay.add_argument(
        "trace", nargs="?", metavar="FILE", help="a file in Standard Workload Format (default: generated jobs)"
    )
    replay.add_argument("--jobs", metavar="N", type=int, default=1000, help="how many jobs to generate (default: 1000)")
    replay.add_argument("--days", metavar="D", type=float, default=0, help="generate the jobs of D days instead")
    replay.add_argument(
        "--load", metavar="L", type=float, default=0.8, help="the load of the machine, 0 to 1 (default: 0.8)"
    )
    replay.add_argument("--seed", metavar="S", type=int, default=1, help="the random seed (default: 1)")
    replay.add_argument(
        "--placement", metavar="NAME", default="default", help="the placement algorithm (docs/placement.md)"
    )
    replay.add_argument("--json", action="store_true", help="print JSON")
    replay.set_defaults(command=_lazily("replay", "replay"))


def _add_jobs(commands: "argparse._SubParsersAction[_Parser]") -> None:
    told = "read and move what is kept of jobs, and of yod -state"
    jobs = commands.add_parser("job", help=told, description=f"{told.capitalize()} (docs/state-object.md).")
    which = jobs.add_subparsers(metavar="WHAT", required=True, parser_class=_Parser)
    made = {
        name: which.add_parser(name, help=about)
        for name, about in (
            ("list", "list all jobs and launches whose objects are here (mesh queue: jobs that have not ended)"),
            ("show", "show a job and its progress"),
            ("log", "print a job's log"),
            ("tasks", "list a job's tasks, or ranks"),
            ("watch", "show progress until the job ends"),
            ("sql", "query a job's object in SQL"),
            ("fetch", "copy a job's object to a file"),
            ("add", "add tasks to an open job"),
            ("close", "add no more tasks to an open job: it ends after those that it has"),
            ("move", "move a job's object to another node"),
            ("serve", "serve the status of jobs over HTTP on loopback"),
            ("purge", "delete the objects of ended jobs, as mesh purge does"),
            ("resume", "resume jobs that lost their owner (default: all of this host)"),
        )
    }
    made["standby"] = which.add_parser("standby")  # started by the owner of a job
    made["take-over"] = which.add_parser("take-over")  # started by a CPA
    made["follow"] = which.add_parser("follow")  # what the owner of a job becomes that waits for one elsewhere
    for name, one in made.items():
        _add_job_arguments(name, one)
        ours = {"standby": "stand_by", "take-over": "go_on", "follow": "follow", "move": "move"}
        adds = {"add": "job_add", "close": "job_add"}
        command = {"list": "show_list", "log": "show_log", "tasks": "show_tasks", **ours}.get(name, name)
        module = {"resume": "queue", **adds}.get(name, "job_move" if name in ours else "job")
        one.set_defaults(command=_lazily(module, command))


def _add_job_arguments(name: str, one: argparse.ArgumentParser) -> None:
    if name == "purge":
        _add_purge(one)
    elif name == "serve":
        one.add_argument("jobs", metavar="JOB", nargs="*", help="print the address of this job's page")
        one.add_argument("--port", metavar="N", type=int, default=0, help="the port (default: any free one)")
    elif name == "take-over":
        one.add_argument("jobs", metavar="JOB", nargs="+")
    elif name == "resume":
        one.add_argument("jobs", metavar="JOB", nargs="*", help="a UUID, or its beginning")
        one.add_argument("--json", action="store_true", help="print JSON: the UUIDs")
    elif name != "list":
        one.add_argument("job", metavar="JOB", help="a UUID, its beginning, or the path of an object")
    if name in ("list", "show", "log", "tasks", "sql"):
        one.add_argument("--json", action="store_true", help="print JSON")
    if name in ("show", "log", "tasks", "watch", "move"):
        told = "ask this node instead of the tracker; works without CPA and database"
        one.add_argument("--at", metavar="NODE", help=told)
    if name == "tasks":
        one.add_argument("task", metavar="TASK", nargs="?", type=_how_many, help="only this task")
        told = "print GNU parallel's job log: a line for each ended attempt"
        one.add_argument("--joblog", action="store_true", help=told)
        one.add_argument(
            "--state", metavar="STATE", help="only tasks in this state: waiting, running, done, failed, cancelled"
        )
    elif name == "sql":
        one.add_argument("query", metavar="QUERY")
        told = "end the query after so many seconds (default: 60)"
        one.add_argument("--limit", metavar="SECONDS", type=_seconds, default=60.0, help=told)
    elif name == "move":
        one.add_argument("node", metavar="NODE")
    elif name == "add":
        _add_new_tasks(one)
        one.add_argument(
            "words", metavar="-- PROGRAM", nargs=argparse.REMAINDER, action=_BehindJob, help="program and arguments of"
            " one task, of a job that has no program for all tasks",
        )  # fmt: skip
    elif name == "fetch":
        one.add_argument("file", metavar="FILE")


class _BehindJob(argparse.Action):
    """The options behind JOB, and the program behind ``--``: what follows a positional argument is one list."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, _option: str | None = None
    ) -> None:
        options = _Parser(prog=parser.prog, add_help=False)
        _add_new_tasks(options)
        options.add_argument("words", nargs=argparse.REMAINDER)
        options.parse_args(values, namespace)


def _add_new_tasks(one: argparse.ArgumentParser) -> None:
    one.add_argument("--array", metavar="LIST", default="", help="the numbers of the tasks, larger than those so far")
    one.add_argument("--tasks", metavar="FILE", default="", help="a task for each line of FILE (-: standard input)")
    one.add_argument("--graph", metavar="FILE", default="", help="tasks that come after others, as in mesh submit")
    one.add_argument("--id", metavar="ID", default="", help="the id of the one task, for others that come after it")
    told = "the one task comes after the task with this id or number; may be repeated"
    one.add_argument("--after", metavar="ID", action="append", default=[], help=told)
    one.add_argument("--json", action="store_true", help="print JSON: the numbers of the first and last task")


def _add_purge(purge: argparse.ArgumentParser) -> None:
    purge.add_argument("jobs", metavar="JOB", nargs="*", help="a UUID, or its beginning")
    purge.add_argument("--all", action="store_true", help="all jobs of this account on this host that have ended")
    purge.add_argument("--yes", action="store_true", help="with --all: do not ask")
    purge.add_argument("--force", action="store_true", help="also delete jobs that have not ended and lost their owner")


def _add_queue(commands: "argparse._SubParsersAction[_Parser]") -> None:
    told = "run many independent tasks, each on its own processor"
    submit = commands.add_parser("submit", help=told, description=f"{told.capitalize()} (docs/jobs.md).")
    _add_tasks(submit)
    submit.add_argument("--file", metavar="PATH", action="append", default=[], dest="files", help="package a file, a"
                        " directory, or (DIR/) what is in it: each task begins in a directory that has them; may be"
                        " repeated")  # fmt: skip
    submit.add_argument("--limit", metavar="N", type=_positive, default=0, help="at most N processors at a time")
    submit.add_argument("--after", metavar="JOB", action="append", default=[], help="start after JOB has succeeded;"
                        " JOB:any: after it has ended; may be repeated")  # fmt: skip
    submit.add_argument("--open", action="store_true", help="the job takes further tasks (mesh job add) until mesh job"
                        " close")  # fmt: skip
    submit.add_argument("--hold", action="store_true", help="do not start before mesh release")
    submit.add_argument("--hold-processors", action="store_true", help="give no processors back to other requests that"
                        " wait while tasks are left")  # fmt: skip
    submit.add_argument("--no-standby", action="store_true", help="keep no copy of the job's object on a second host")
    submit.add_argument("--name", metavar="NAME", default="", help="the job's name in mesh queue")
    submit.add_argument("--functions", metavar="JSON", default="", help=argparse.SUPPRESS)  # redmesh.Executor
    submit.add_argument("--wait", action="store_true", help="wait for the end of the job and return its exit status")
    submit.add_argument("--quiet", action="store_true", help="with --wait: print no summary")
    submit.add_argument("--json", action="store_true", help="print JSON")
    submit.add_argument("words", metavar="-- PROGRAM", nargs=argparse.REMAINDER, help="program and arguments of each"
                        " task; {} is the task's line or number")  # fmt: skip
    submit.set_defaults(command=_lazily("queue", "submit_job"))
    queue = commands.add_parser(
        "queue", help="list jobs that have not ended (mesh job list: all)", description="List jobs that have not ended."
    )
    queue.add_argument("--all", action="store_true", help="also jobs that have ended")
    queue.add_argument("--json", action="store_true", help="print JSON")
    queue.set_defaults(command=_lazily("queue", "show_queue"), result=True)
    for name, about in (
        ("wait", "wait for jobs to end; status 0 if every task is done"),
        ("cancel", "cancel jobs"),
        ("hold", "start no further tasks of jobs"),
        ("release", "release held jobs"),
        ("retry", "run failed and cancelled tasks of jobs again"),
        ("purge", "delete the objects of ended jobs"),
    ):
        one = commands.add_parser(name, help=about, description=f"{about.capitalize()} (docs/jobs.md).")
        if name == "purge":
            _add_purge(one)
        else:
            one.add_argument("jobs", metavar="JOB", nargs="+", help="a UUID, or its beginning")
        if name == "retry":
            one.add_argument("--max-fails", metavar="N", type=_how_many, help="end the job if more than N tasks fail")
        if name == "wait":
            one.add_argument("--quiet", action="store_true", help="print no summary")
        if name == "wait":
            one.add_argument("--json", action="store_true", help="print JSON: each job as in mesh queue")
        one.set_defaults(command=_lazily({"purge": "job", "wait": "job_wait"}.get(name, "queue"), name))


def _add_tasks(submit: _Parser) -> None:
    for word, metavar, about in (
        ("--array", "LIST", "the numbers of the tasks: 1-10000, 1-9:2,20; a final %%N: at most N at a time"),
        ("--tasks", "FILE", "a task for each line of FILE (-: standard input): the program's input, or a shell command"
         " if no program is given"),
        ("--graph", "FILE", "tasks that come after others: lines of the form 'id: after, after: command' (-: standard"
         " input), or FILE.toml"),
        ("--time", "LIMIT", _TIME_HELP.format("task")),
        ("--cwd", "DIR", "the tasks' working directory (default: this one)"),
        ("--stdin", "FILE", "the tasks' standard input; {} in its name is the task's line or number"),
        ("--output", "FILE", "files for the tasks' output; {} in the name is the task's line or number, {#} is its"
         " number"),
        ("--error", "FILE", "files for standard error alone; {} and {#} as in --output"),
    ):  # fmt: skip
        default = None if word == "--cwd" else ""
        submit.add_argument(word, metavar=metavar, default=default, help=about)
    submit.add_argument("--env", metavar="NAME=VALUE", action="append", default=[], help="a variable of the tasks")
    submit.add_argument(
        "--retries", metavar="N", type=_how_many, default=0, help="run a failed task up to N more times"
    )
    submit.add_argument("--max-fails", metavar="N", type=_how_many, help="end the job if more than N tasks fail")
    submit.add_argument("--cpus-per-task", metavar="N", type=_positive, default=1, help="processors for each task")
    submit.add_argument("--gpus-per-task", metavar="N", type=_how_many, default=0, help="GPUs for each task")


def _add_sections(commands: "argparse._SubParsersAction[_Parser]") -> None:
    told = "run a program over lists or parts of files, and combine"
    sections = commands.add_parser("sections", help=told, description=f"{told.capitalize()} (docs/sections.md).")
    within = sections.add_subparsers(metavar="COMMAND", required=True)
    made = {
        name: within.add_parser(name, help=about, description=f"{about.capitalize()} (docs/sections.md).")
        for name, about in (
            ("init", "write an example job file"),
            ("run", "run a job to its end, and combine its outputs"),
            ("status", "show a job's progress, and its running and failed sections"),
            ("watch", "follow a running job to its end"),
            ("resume", "run what is missing, and combine the outputs"),
            ("retry", "run failed sections again, even with changed inputs, and combine the outputs"),
            ("report", "write an HTML file with the times and places of all sections"),
            ("cancel", "cancel a job"),
        )
    }
    for name, one in made.items():
        one.set_defaults(command=_lazily("sections", name))
        if name not in ("init", "run"):
            one.add_argument("job", metavar="JOB", nargs="?", help="UUID, or its beginning (default: the newest)")
    made["init"].add_argument("file", metavar="FILE")
    _add_sections_run(made["run"])
    made["status"].add_argument("--all", action="store_true", help="also sections that wait or have finished")
    made["status"].add_argument("--json", action="store_true", help="print JSON")
    made["resume"].add_argument(
        "--anyway", action="store_true", help="even if the command, an input or a part has changed"
    )
    made["resume"].add_argument("--file", metavar="JOB.toml", help="also compare the job with this file")
    made["retry"].add_argument("--section", metavar="ID", action="append", help="only this section; may be repeated")
    made["report"].add_argument("--joblog", action="store_true", help="write GNU parallel's job log instead")
    made["report"].add_argument(
        "--file", metavar="FILE", default="-", help="the file to write (default: standard output)"
    )


def _add_sections_run(run: argparse.ArgumentParser) -> None:
    run.add_argument("--limit", metavar="N", type=_positive, help="at most N processors at a time")
    run.add_argument(
        "--retries", metavar="N", type=_how_many, help="run a failed section up to N more times (default: 3)"
    )
    run.add_argument(
        "--size",
        metavar="N",
        type=_positive,
        help="ranks of each section, which is then one launch, for example of MPI",
    )
    run.add_argument(
        "--mpi", choices=("auto", "pmi1", "pmi2", "pmix", "none"), help="the process manager interface for these ranks"
    )
    run.add_argument(
        "--same-node", action="store_true", default=None, help="also retry a section on a node where it has failed"
    )
    run.add_argument(
        "--hold-processors", action="store_true", help="give no processors back to other requests that wait"
    )
    run.add_argument("--time", metavar="LIMIT", default="", help=_TIME_HELP.format("section"))
    run.add_argument("--max-fails", metavar="N", type=_how_many, help="end the job if more than N sections fail")
    run.add_argument(
        "--output", metavar="FILE", default="", help="files for what the sections print, named by replacement strings"
    )
    run.add_argument(
        "--colsep", metavar="TEXT", help="split every line of a list into columns: {1}, {2}, …; \\t is a tab"
    )
    run.add_argument("--digests", action="store_true", help="compare inputs by SHA-256 instead of size and time")
    run.add_argument(
        "--detach", action="store_true", help="return at once; mesh sections watch then combines the outputs"
    )
    run.add_argument("--json", action="store_true", help="print JSON")
    run.add_argument("words", metavar="JOB.toml | -- PROGRAM", nargs=argparse.REMAINDER)


def _positive(text: str) -> int:
    number = _how_many(text)
    if not number:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


#: The commands that each function adds.
_GROUPS: "tuple[tuple[str, Callable[[argparse._SubParsersAction[_Parser]], None]], ...]" = (
    ("up simulate down", _add_life),
    ("grow shrink manager", _add_managers),
    ("init nodes doctor upgrade", _add_hosts),
    ("trust", _add_trust),
    ("login", _add_logins),
    ("status history console record serve", _add_looks),
    ("stacks procs debug", _add_inspection),
    ("job", _add_jobs),
    ("submit queue wait cancel hold release retry purge", _add_queue),
    ("sections", _add_sections),
    ("partition", _add_partitions),
    ("mode reserve unreserve drain resume", _add_administration),
    ("db", _add_database),
    ("topology", _add_machine),
    ("side", _add_sides),
    ("replay", _add_replay),
    ("completion", _add_completion),
    ("demo docs", _add_demo),
    ("help version", _add_help),
)


def _lazily(module: str, name: str) -> Command:
    """The function ``name`` of ``console.cli.module``, imported only if it is called."""

    def command(settings: Settings, options: argparse.Namespace) -> int:
        from importlib import import_module

        run: Command = getattr(import_module(f"console.cli.mesh.{module}"), name)
        return run(settings, options)

    return command

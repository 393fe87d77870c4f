"""redmesh.managers - how Redmesh uses another system's allocation (Slurm, Grid Engine, PBS, LSF, Flux).

SYNOPSIS
    A manager is one module of standard-library Python 3.9 with these names:

    detect(environ) -> bool            whether this process runs inside an allocation of that system; no I/O
    hosts(environ) -> [(name, slots)]  the hosts of the allocation in its order, each once, and the processors on each
    job_id(environ) -> str             the allocation's name, unique among those that live: it names the job's mesh
    spawn(environ, host, argv, env) -> handle
                                       start ``argv`` on ``host`` under the manager's control, with ``env`` added to its
                                       environment; ``handle`` is a subprocess.Popen of the manager's local client
    distributed: bool                  whether ``spawn`` may be called on every host of the job, by many at once

    and, where the system can:

    streams: bool = True               whether standard input and output of ``spawn`` reach the process on the host
    spawn_all(environ, hosts, argv, env) -> handle
                                       start ``argv`` once on each of ``hosts`` by one client; every process gets the
                                       client's whole standard input; each line of its output begins with ``N: ``
                                       (``labelled = True``) or not, and is never mixed with another host's
    groups(environ, hosts) -> [[name]] ``hosts`` in parts each of which one client of ``spawn_all`` or ``spawn_ranks``
                                       can serve, if one cannot serve all of them
    spawn_ranks(environ, hosts, argv, env) -> handle
                                       start ``argv`` as often on each of ``hosts``, [(name, count)], as it says, by one
                                       client, without standard input
    check_ranks(environ, hosts) -> None
                                       ManagerError if the manager has no room for processes of ranks (--parent=rank) on
                                       one of ``hosts`` beside the node's agent
    host_variable: str                 with spawn_all and spawn_ranks: the variable that names its host to each process
    signal_fails_job: bool             whether the manager ends the whole allocation if a process that ``spawn`` started
                                       dies of a signal: a starter then stays as the parent of its rank
    supervisor: str                    the command name (/proc/PID/comm, at most 15 characters) of the process on each
                                       host that is an ancestor of what ``spawn`` started there, and exits after it:
                                       if it has exited, the manager has lost the host, and what runs there is ended.
                                       Not a daemon that an administrator may restart while jobs run
    signal(handle, number) -> None     send a signal to what ``spawn`` or ``spawn_all`` started
    alive(handle) -> bool              whether that still runs
    settled(handle) -> None            called once, when everything that the client had to start runs
    in_task(environ) -> bool           whether this process is one of several that the manager started (srun) in a job,
                                       and may end before the others
    starts_by(environ) -> str          the path of the command or library that ``spawn`` uses here, for
                                       ``mesh manager check``; ManagerError if there is none
    time_left(environ) -> float|None   seconds until the manager ends the allocation; None: unknown, or no limit
    signals_reach(environ) -> str      which processes a signal of the manager to the job reaches: "task", the process
                                       that it started; "group", the process group or session of that ("group" if
                                       there is no such function); "all", every descendant
    ending(environ) -> float|None
                                       after SIGTERM to the job: seconds from that signal until the manager kills
                                       its processes; None: the job goes on, the signal was a user's
    kill_delay_s: float = 5.0          where ``ending`` is not defined: these seconds
    submit(environ, count, limit, options) -> str
                                       submit a job of ``count`` nodes that only waits; return its name
    allocation(environ, job) -> {str: str}|None
                                       the variables by which ``detect`` and ``hosts`` know the job; None: not yet
    cancel(environ, job) -> None       end a submitted job; ``mesh grow`` needs these three

DESCRIPTION
    Redmesh finds the manager by ``detect`` (those that it brings), or by the key ``manager`` of the configuration,
    ``--manager NAME`` or ``REDMESH_MANAGER``: the name of an entry point of the group ``redmesh.managers``, which names
    the module. It travels to the hosts that have to call it as the text of its one file.

ERRORS
    Each function may raise ManagerError; its message and hint reach the user as they are. Other exceptions are shown
    with the manager's name.

EXAMPLE
    examples/manager is a complete one, for hosts that are listed in a file.

SOURCE
    Row C1 of the seeds: list the allocated hosts, launch a process under the manager's control, name the job.
"""

from __future__ import annotations

import os
import subprocess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

    Hosts = List[Tuple[str, int]]

ENTRY_POINTS = "redmesh.managers"
#: Names that a manager must define, and names that it may define.
REQUIRED = ("detect", "hosts", "job_id", "spawn", "distributed")
OPTIONAL = ("streams", "spawn_all", "groups", "spawn_ranks", "check_ranks", "labelled", "host_variable",
            "signal_fails_job", "supervisor", "signal", "alive", "starts_by", "time_left", "signals_reach", "settled",
            "in_task",
            "ending", "kill_delay_s", "submit", "allocation", "cancel")  # fmt: skip
#: A manager that reports more hosts or slots than this is at fault.
MOST = 1 << 20


class ManagerError(Exception):
    """A manager failed: ``message`` says what failed and why, ``hint`` what to do next."""

    exit_status = 125
    code = "manager"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


def client(
    argv: Sequence[str], environ: Mapping[str, str], drop: Sequence[str] = (), streams: bool = True
) -> subprocess.Popen[bytes]:
    """Start a manager's client in its own session, without the variables ``drop``.

    With ``streams``, its standard input and output are pipes; otherwise they are /dev/null. Raises ManagerError if the
    client is not installed.
    """
    pipe = subprocess.PIPE if streams else subprocess.DEVNULL
    kept = {name: value for name, value in environ.items() if name not in drop}
    try:
        return subprocess.Popen(
            list(argv), stdin=pipe, stdout=pipe, stderr=subprocess.PIPE, env=kept, start_new_session=True
        )
    except OSError as error:
        raise ManagerError(f"{argv[0]} cannot be run: {error.strerror}", f"is {argv[0]} on PATH?") from None


def ask(argv: Sequence[str], environ: Mapping[str, str], timeout_s: float = 10.0) -> str:
    """Run a manager's command and return its standard output. Raises ManagerError if the command is not installed,
    fails, or takes longer than ``timeout_s`` seconds."""
    try:
        done = subprocess.run(
            list(argv), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s,
            env=dict(environ), errors="replace",
        )  # fmt: skip
    except OSError as error:
        raise ManagerError(f"{argv[0]} cannot be run: {error.strerror}", f"is {argv[0]} on PATH?") from None
    except subprocess.TimeoutExpired:
        raise ManagerError(f"{' '.join(argv)} does not answer within {timeout_s:g} s", "is the manager up?") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ManagerError(f"{' '.join(argv)} ended with status {done.returncode}: {said}", "")
    return done.stdout


def read_lines(environ: Mapping[str, str], variable: str) -> List[str]:
    """The non-empty lines of the file that ``variable`` names. Raises ManagerError."""
    path = environ.get(variable, "")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return [line.strip() for line in file if line.strip()]
    except OSError as error:
        what = f"{variable} names {path}: {error.strerror}" if path else f"{variable} is not set"
        raise ManagerError(what, "run yod in the job's script, or --manager none") from None


def counted(names: Sequence[str]) -> Hosts:
    """Each host once, in the order of first appearance, with the number of its lines."""
    slots: Dict[str, int] = {}
    for name in names:
        slots[name] = slots.get(name, 0) + 1
    return list(slots.items())


def with_environment(argv: Sequence[str], env: Mapping[str, str]) -> List[str]:
    """The command ``env NAME=VALUE … argv``, for clients that do not forward an environment."""
    return ["env", *(f"{name}={value}" for name, value in env.items()), *argv] if env else list(argv)


def expand(text: str) -> List[str]:
    """The hosts of a compressed list such as ``n[1-3,07],login`` (Slurm, Flux). Raises ManagerError.

    Source: Slurm's documentation of SLURM_JOB_NODELIST; RFC 29 of Flux.
    """
    found: List[str] = []
    for part in _split(text):
        _expand(part, found)
    return found


def _split(text: str) -> List[str]:
    """Split at the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        if letter == "[":
            depth += 1
        elif letter == "]":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    if depth:
        raise ManagerError(f"a list of hosts has brackets that do not match: {text[:100]!r}", "")
    return [part for part in (*parts, text[start:]) if part]


def _expand(part: str, found: List[str]) -> None:
    head, bracket, rest = part.partition("[")
    if not bracket:
        found.append(part)
        return
    inside, _, tail = rest.partition("]")
    for piece in inside.split(","):
        first, dash, last = piece.partition("-")
        if not (first.isascii() and first.isdigit() and (last.isascii() and last.isdigit() if dash else True)):
            raise ManagerError(f"a list of hosts cannot be read: {part[:100]!r}", "")
        if int(last or first) - int(first) > MOST:
            raise ManagerError(f"a list of hosts is too long: {part[:100]!r}", "")
        for number in range(int(first), int(last or first) + 1):
            _expand(f"{head}{number:0{len(first)}d}{tail}", found)


def repeated(text: str) -> List[int]:
    """The numbers of a compressed list: ``4(x2),3`` gives 4, 4, 3 (Slurm). Raises ManagerError."""
    numbers: List[int] = []
    for part in text.split(","):
        number, _, times = part.rstrip(")").partition("(x")
        try:
            if int(times or 1) > MOST:
                raise ValueError
            numbers += [int(number)] * int(times or 1)
        except ValueError:
            raise ManagerError(f"a list of counts cannot be read: {text[:100]!r}", "") from None
    return numbers


def find_on_path(name: str, environ: Mapping[str, str], *folders: str) -> Optional[str]:
    """The path of the command ``name`` on PATH of ``environ`` or in ``folders``; None if it is not found."""
    for folder in (*environ.get("PATH", os.defpath).split(os.pathsep), *folders):
        path = os.path.join(folder or ".", name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def need_on_path(name: str, environ: Mapping[str, str]) -> str:
    """The path of the command ``name`` on PATH of ``environ``. Raises ManagerError."""
    path = find_on_path(name, environ)
    if path is None:
        raise ManagerError(f"{name} is not on PATH", "load the module of the batch system, or ask its administrator")
    return path


def problems(manager: Any) -> List[str]:
    """The parts of the interface that a manager lacks; an empty list if it is complete."""
    missing = [f"it has no {name}" for name in REQUIRED if not hasattr(manager, name)]
    wrong = [
        f"{name} is not a function"
        for name in (*REQUIRED, *OPTIONAL)
        if name not in ("distributed", "streams", "labelled", "host_variable", "signal_fails_job", "supervisor",
                        "kill_delay_s")
        and hasattr(manager, name) and not callable(getattr(manager, name))
    ]  # fmt: skip
    return missing + wrong

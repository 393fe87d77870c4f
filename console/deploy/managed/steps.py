"""Starts processes on a job's hosts by its manager, and exchanges requests and answers with them over pipes.

The manager's client (srun, for example) runs on the login processor. One client serves all hosts if the manager
supports it (``spawn_all``), otherwise there is one for each host. The clients run as long as the mesh;
``STATE/steps.json`` lists them, so that ``mesh down`` ends them.
"""

import contextlib
import json
import marshal
import os
import queue
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from importlib.util import MAGIC_NUMBER
from typing import IO, Any

from agents.link.sockets import own_directory
from agents.linux import processes
from agents.linux.batch_signals import ROWS, TRAPPED, Reach
from agents.managers import registry
from console.deploy.agent import build
from console.deploy.hosts.allocation import find_manager, job_hosts
from console.deploy.hosts.description import Host
from console.deploy.hosts.host_states import HostFailed
from console.deploy.ssh.remote import PYTHONS, understood
from console.deploy.trust.authority import write_private
from console.errors import ConsoleError
from console.settings import Settings, state_directory
from redmesh.managers import ManagerError
from redmesh.sanitise import clean
from redmesh.settings.keeper_file import KeeperFile

#: The most seconds for a manager to start the process on a host, and for its clients to end.
SPAWN_S, END_S = 60.0, 15.0
_POLL_S = 0.01
#: Reads the program for the hosts; compiling its source takes as long as Python's start. Without quotes: see remote.py.
_FIRST = (
    # Handlers, because what this process forks must not ignore signals in place of the ranks.
    f"import _signal;[_signal.signal(n,lambda*_:None) for n in {tuple(row.number for row in ROWS)}];"
    "import sys;import _frozen_importlib_external as e,marshal;w=sys.argv[1];"
    "print(chr(10)+w,e.MAGIC_NUMBER.hex(),flush=True);i=sys.stdin.buffer;m,n,k=i.readline().split();c=i.read(int(n));s=i.read(int(k));"
    'exec(marshal.loads(c) if e.MAGIC_NUMBER.hex()==m.decode() else compile(s,"redmesh","exec"));serve(w,i)'
)
#: From here on no signal that a batch system sends ends the task; Grid Engine kills a job if a task dies of a signal.
_DEAF = f"trap '' {TRAPPED};"
#: Becomes the first Python that is new enough: a shell in front of it would get the signals that are for this process.
_BECOME_PYTHON = (
    'w=$1;b=$2;shift 2;for p in "$@";do case $p in "~/"*)p=$HOME/${p#"~/"};;esac;'
    'command -v "$p" >/dev/null 2>&1||continue;'
    '"$p" -I -S -c "import sys;sys.exit(sys.version_info<(3,9))" 2>/dev/null&&exec "$p" -I -S -c "$b" "$w";'
    't="$t $p";done;echo;echo "$w none$t";exit 96'
)
#: Bytes that a host's shell and a manager's client may print before an answer.
_MOST_NOISE = 1 << 20


class Steps:
    """The clients of a manager, for ``WorkerPool``: ``reach`` gives a host that answers requests."""

    def __init__(self, settings: Settings, login: str = "", place: str = "") -> None:
        """``login``: the address that the hosts report to. ``place``: the directory for their state on each host."""
        self._login, self._place = login, place or settings.state_dir
        self._settings, self._manager = settings, find_manager(settings)
        self._names = {node: name for node, name, _slots in job_hosts(settings)}
        self._streams: dict[str, _Stream] = {}

    def prepare(self, hosts: Sequence[Host]) -> None:
        """Start the process (starter.py) on each of these hosts. Raises ConsoleError if the manager refuses."""
        names = [self._names[host.name] for host in hosts]
        try:
            if not hasattr(self._manager, "spawn_all"):
                parts = [[name] for name in names]
            else:
                parts = self._manager.groups(os.environ, names) if hasattr(self._manager, "groups") else [names]
                parts = parts if names else []
            for part in parts:
                self._begin(part)
        except ManagerError as error:
            raise ConsoleError(error.message, error.hint) from None
        record(self._settings, [stream.process.pid for stream in self._streams.values()])

    def _begin(self, names: Sequence[str]) -> None:
        word = secrets.token_hex(8)
        # Try this process's interpreter first, because python3 may be a script that takes 90 ms to find one (pyenv).
        own = os.path.realpath(sys.executable)
        script = ["sh", "-c", f"{_DEAF}{_BECOME_PYTHON}", "redmesh", word, _FIRST, own, *PYTHONS]
        files: _SharedFiles | None = None
        if not getattr(self._manager, "streams", True):
            files = _SharedFiles(f"{state_directory(os.environ)}/jobs/{self._settings.allocation}", word)
            script = files.wrapped(script)
        env = {
            "REDMESH_MESH": self._settings.mesh,
            "REDMESH_LOGIN": self._login or ",".join(own_addresses()),
            "REDMESH_JOB_STATE": self._place,
            "REDMESH_AGENT": build.path_for(sys.implementation.cache_tag, build.archives(self._settings)),
            "REDMESH_HOST": names[0],
            # Nodes by which a mesh over SSH has grown are no job's own mesh, and end by the signal.
            # If the manager does not answer, this process passes signals on, and launch children drop second copies.
            "REDMESH_SIGNALS_REACH": "" if self._login else signals_reach(self._manager) or Reach.TASK,
            "REDMESH_HOST_VARIABLE": getattr(self._manager, "host_variable", "") if len(names) > 1 else "",
        }
        if len(names) > 1:
            process = self._manager.spawn_all(os.environ, names, script, env)
        else:
            process = self._manager.spawn(os.environ, names[0], script, env)
        stream = _Stream(process, names, word, files)
        for name in names:
            self._streams[name] = stream

    def lifelines(self) -> list[int]:
        """Descriptors that the login processor's keeper keeps open until it ends; with it the nodes end.

        For managers whose client does not forward SIGTERM. Other clients are signalled.
        """
        if not end_with_input(self._manager):
            return []
        return [stream.lifeline() for stream in self._streams.values()]

    def reach(self, host: Host) -> "StepHost":
        """Return a host on which :meth:`prepare` started the process. Raises HostFailed."""
        name = self._names[host.name]
        if name not in self._streams:
            raise HostFailed("manager", "this host was not requested from the manager", "mesh up")
        return StepHost(self._streams[name], name)

    def close(self) -> None:
        """Release the clients: they, and the processes on the hosts, continue."""
        for stream in set(self._streams.values()):
            if hasattr(self._manager, "settled"):
                self._manager.settled(stream.process)
            stream.let_go()


def end_with_input(manager: Any) -> bool:
    """True if a node ends with its client's input, because a signalled client would have the node killed.

    After SIGTERM to a qrsh, Grid Engine kills its task, and then the job; srun kills the tasks of its step. SIGTERM to
    the task itself does not end a node where Slurm may have sent it (agents/linux/ending.py).
    """
    return getattr(manager, "signal_fails_job", False) or hasattr(manager, "ending")


def job_ends_with_input(settings: Settings, config: KeeperFile | None) -> bool:
    """True if the nodes of a job's mesh end when its keeper closes their clients' input; also for a shell outside of
    the job, which knows the manager from ``config``."""
    if settings.allocation:
        return end_with_input(find_manager(settings))
    if not settings.job or config is None or not config.signalled_by:
        return False
    with contextlib.suppress(ManagerError):  # a plug-in that is not installed here
        return end_with_input(registry.load(config.signalled_by))
    return False


def signals_reach(manager: Any) -> str:
    """Which processes of a job the manager signals (Reach); UNKNOWN if it does not answer: keepers ask it again."""
    try:
        return registry.signals_reach(manager, os.environ)
    except ManagerError:
        return Reach.UNKNOWN


def own_addresses() -> list[str]:
    """Names and addresses by which other hosts may reach this one, the most likely first."""
    name = socket.gethostname()
    found = [name]
    with contextlib.suppress(OSError):
        found += [str(place[4][0]) for place in socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)]
    return list(dict.fromkeys(found))


class _Stream:
    """A client of the manager: its standard input, and its output separated by host."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", names: Sequence[str], word: str, files: "_SharedFiles | None"
    ) -> None:
        self._files = files
        self.process, self._names, self._word = process, list(names), word.encode()
        self._lock = threading.Lock()
        self._answers: dict[str, queue.SimpleQueue[bytes | None]] = {name: queue.SimpleQueue() for name in names}
        self._said: list[str] = []
        self._agents: set[str] = set()
        self._held = False  # another process keeps the input open
        # A client of one host is given nothing before the host's process runs: Grid Engine's qrsh forwards what comes
        # earlier before it has told the host to start the process, which then never starts (seen with 8.1.9).
        self._waiting: list[bytes] | None = [] if files is None and len(names) == 1 else None
        code, source = _program()
        self._write(f"{MAGIC_NUMBER.hex()} {len(code)} {len(source)}\n".encode() + code + source)
        for target in (self._read, self._listen):
            threading.Thread(target=target, daemon=True).start()

    def _write(self, data: bytes) -> None:
        if self._waiting is not None:
            self._waiting.append(data)
            return
        # If the client has exited, waiting for its answer fails and reports that.
        with contextlib.suppress(OSError, ValueError):
            self._input().write(data)
            self._input().flush()

    def _begin(self) -> None:
        """The process on the only host runs: write what has waited for that."""
        with self._lock:
            waiting, self._waiting = self._waiting or [], None
            for data in waiting:
                self._write(data)

    def _input(self) -> IO[bytes]:
        if self._files is not None:
            return self._files.source
        assert self.process.stdin is not None
        return self.process.stdin

    def send(self, name: str, content: bytes, agent: tuple[str, bytes] | None) -> None:
        """Send ``content`` to a host; first send ``agent`` to all hosts of the client if they do not have it yet."""
        with self._lock:
            if agent is not None and agent[0] not in self._agents:
                self._agents.add(agent[0])
                self._write(f"!agent {agent[0]} {len(agent[1])}\n".encode() + agent[1])
            self._write(f"{name} {len(content)}\n".encode() + content)

    def answer(self, name: str, timeout_s: float) -> bytes:
        """The host's next answer. Raises HostFailed if the client exits, or after a time-out."""
        try:
            found = self._answers[name].get(timeout=timeout_s)
        except queue.Empty:
            raise HostFailed("timeout", "it does not answer in time", "is it overloaded?") from None
        if found is None:
            self._answers[name].put(None)
            said = f": {self._said[-1]}" if self._said else ""
            raise HostFailed("manager", f"the manager's client ended without an answer{said}", "mesh manager check")
        return found

    def _read(self) -> None:
        assert self._files is not None or self.process.stdout is not None
        noise = 0
        begun: dict[str, bytes] = {}  # of answers, by host: what came in earlier lines
        for line in self._files.lines(self.process) if self._files is not None else self.process.stdout or ():
            label, colon, rest = line.partition(b": ")
            text = rest if colon and label.strip().isdigit() else line
            if not text.startswith(self._word):
                noise += len(line)
                if noise > _MOST_NOISE:
                    break
                continue
            who, _, answer = text[len(self._word) :].partition(b" ")
            name = who[1:].rstrip(b"+").decode("utf-8", "replace") if who.startswith(b"@") else ""
            if who.endswith(b"+"):
                begun[name] = begun.get(name, b"") + answer.rstrip(b"\r\n")
                continue
            answer = begun.pop(name, b"") + answer
            if not who and self._waiting is not None and not answer.startswith(b"none"):
                self._begin()
            if name in self._answers:
                self._answers[name].put(answer)
            elif answer.startswith(b"none") and len(self._names) == 1:
                self._said.append("no Python of 3.9 or newer is found there")
        for waiting in self._answers.values():
            waiting.put(None)

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._said = [*self._said[-3:], clean(line.decode("utf-8", "replace").strip())[:300]]

    def lifeline(self) -> int:
        """Have the processes on the hosts end with their input, from ``let_go`` on; return its descriptor."""
        self._held = True
        return self._input().fileno()

    def let_go(self) -> None:
        """Close the pipes. The processes on the hosts exit, unless they started keepers, for which they wait."""
        if self._held:
            self._write(b"!lifeline\n")
        with contextlib.suppress(OSError, ValueError):
            if self._files is not None:
                self._write(b"\n")  # a frame without a host marks the end
            self._input().close()
        if self._files is not None:
            self._files.remove()
        self.process.returncode = 0  # it continues to run; this prevents a ResourceWarning of Popen


class _SharedFiles:
    """Standard input and output of a process whose manager provides none: two files on a shared file system."""

    def __init__(self, directory: str, word: str) -> None:
        own_directory(directory)
        self._paths = [f"{directory}/{word}.{kind}" for kind in ("in", "out")]
        for path in self._paths:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        self.source = open(self._paths[0], "ab")  # noqa: SIM115 - closed by let_go
        self._ended = False

    def wrapped(self, script: Sequence[str]) -> list[str]:
        """A command that runs ``script`` with the two files."""
        pipe = _DEAF + 'i=$1;o=$2;shift 2;tail -c +1 -s 0.05 -f "$i"|"$@">>"$o" 2>/dev/null'
        return ["sh", "-c", pipe, "redmesh", *self._paths, *script]

    def lines(self, process: "subprocess.Popen[bytes]") -> Iterator[bytes]:
        """The lines of the output as they appear, until the process has exited."""
        with open(self._paths[1], "rb") as file:
            rest = b""
            while not self._ended:
                over = process.poll() is not None
                data = file.read()
                *whole, rest = (rest + data).split(b"\n")
                yield from whole
                if over and not data:
                    return
                time.sleep(_POLL_S)  # poll: a file on a shared disk does not report growth

    def remove(self) -> None:
        """Remove the files."""
        self._ended = True
        for path in self._paths:
            with contextlib.suppress(OSError):
                os.unlink(path)
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(self._paths[0]))


class StepHost:
    """A host of the job that answers requests, like ``Remote`` over SSH. Every method raises HostFailed."""

    def __init__(self, stream: _Stream, name: str) -> None:
        self._stream, self._name = stream, name

    def ask(
        self, op: str, blobs: Mapping[str, bytes] | None = None, timeout_s: float | None = None, **options: Any
    ) -> dict[str, Any]:
        """Send a request and return the answer; the blob ``agent`` is sent once for all hosts of the client."""
        blobs = dict(blobs or {})
        content = blobs.pop("agent", None)
        agent = None if content is None else (str(options["sha"]), content)
        sizes = [(name, len(data)) for name, data in blobs.items()]
        line = f"{(op, options, sizes)!r}\n".encode("utf-8", "surrogateescape")
        self._stream.send(self._name, b"".join([line, *blobs.values()]), agent)
        return understood(self._stream.answer(self._name, timeout_s or SPAWN_S))

    def run(self, words: Sequence[str], given: bytes, timeout_s: float) -> tuple[int, str]:
        """Not supported: hosts of a job are no login processors. Raises HostFailed."""
        raise HostFailed("login", "a host of a batch job cannot be a login processor", "mesh up outside of the job")

    def close(self) -> None:
        """Does nothing, because the client serves other hosts too."""


def _program() -> tuple[bytes, bytes]:
    """The program for the hosts, as byte-code of this Python and as source."""
    first = resources.files("console.deploy.ssh").joinpath("bootstrap.py").read_bytes()
    second = resources.files("console.deploy.managed").joinpath("starter.py").read_bytes()
    source = first + second.replace(b"from __future__ import annotations\n", b"")
    return marshal.dumps(compile(source, "redmesh", "exec", dont_inherit=True)), source


def record(settings: Settings, pids: Sequence[int]) -> None:
    """Add clients to the recorded ones."""
    rows = [[pid, processes.start_time(pid)] for pid in dict.fromkeys(pids)]
    rows = [*([pid, began] for pid, began in recorded(settings)), *rows]
    write_private(f"{settings.state_dir}/steps.json", json.dumps(rows).encode() + b"\n")


def recorded(settings: Settings) -> list[tuple[int, int]]:
    """The recorded clients that still run: pid and start time."""
    try:
        with open(f"{settings.state_dir}/steps.json", encoding="utf-8") as file:
            rows = [(int(pid), int(began)) for pid, began in json.load(file)]
    except (OSError, ValueError, TypeError):
        return []
    return [(pid, began) for pid, began in rows if processes.alive(pid, began)]


def end(there: list[tuple[int, int]], *, patient: bool = False) -> int:
    """End every client, and with it the processes on its hosts; returns how many clients did not exit in time.

    ``patient``: first wait, because their input has ended.
    """
    import signal

    for number in (0, signal.SIGTERM, signal.SIGKILL) if patient else (signal.SIGTERM, signal.SIGKILL):
        for pid, _began in there:
            with contextlib.suppress(OSError):
                os.killpg(pid, number)  # a client has its own session, with the processes that it runs here
        deadline = time.monotonic() + END_S
        while there and time.monotonic() < deadline:
            there = [one for one in there if processes.alive(*one)]
            time.sleep(_POLL_S)  # poll: clients of an earlier command are no children
        if not there:
            break
    return len(there)


def job_process(manager: Any) -> tuple[int, int]:
    """Pid and start time of this process's topmost ancestor in the same job: the job's script, or its shell."""
    job = manager.job_id(os.environ)
    found = pid = os.getppid()
    while pid > 1 and _is_in(pid, manager, job):
        found, pid = pid, processes.parent(pid)
    return found, processes.start_time(found)


def _is_in(pid: int, manager: Any, job: str) -> bool:
    environ = processes.environment(pid)  # a process of another account is the manager's daemon
    try:
        return bool(manager.detect(environ) and manager.job_id(environ) == job)
    except ManagerError:
        return False

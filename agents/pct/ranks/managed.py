"""Ranks that the batch system starts one by one (``--parent=rank``): the launch child's side of starter.py.

A starter is seized when it has connected (PTRACE_SEIZE), so that its exec stops before the first instruction as a
forked rank's does. It is not our child; the batch system reaps it. So its exit status comes from its pidfd if the
kernel provides it (6.15 and newer); otherwise we stay its tracer until it exits.
"""

from __future__ import annotations

import array
import os
import struct
import sys

from agents.link.lean import Socket, signal, socket
from agents.link.loop import READ
from agents.linux import prctl, processes
from agents.linux.batch_signals import TRAPPED
from agents.pct.errors import LoadFailed, advice
from agents.pct.launch.load import mark
from agents.pct.ranks.process_tracking import Session, now
from redmesh.sanitise import clean

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Protocol, Tuple

    from agents.link.loop import Loop
    from agents.linux.process_ends import SupervisorEnds
    from agents.linux.processes import Families
    from agents.pct.launch.load import Load, Program

    class Owner(Protocol):
        """Receives the events of managed ranks (agents/pct/ranks/ranks.py)."""

        def adopted(self, number: int, pid: int) -> None:
            """Process ``pid`` is about to become rank ``number``."""

        def exec_refused(self, number: int, step: int, code: int) -> None:
            """The rank's exec failed."""

        def ended_elsewhere(self, pid: int, status: int) -> None:
            """The rank has exited, with that wait(2) status."""


TOKEN_BYTES = 32
#: The number of retries, and seconds between them, if a batch system does not start a rank.
RETRIES, RETRY_S = 8, 0.5
#: Seconds in which a waiting starter must accept its rank's data.
SEND_S = 5.0
_PIDFD_GET_INFO, _INFO_EXIT = 0xC040FF0B, 1 << 3  # linux/pidfd.h
_INFO = struct.Struct("=QQ11Ii")  # mask, cgroup id, ids, exit code
_AGAIN_S = 0.002
#: Seconds after which a process that exited and that nobody has reaped is reported as killed.
_UNREAPED_S = 5.0


class Start:
    """The start data of one rank. Its descriptors are ours until the starter has them."""

    __slots__ = ("argv", "env", "fds", "kept", "number", "path", "terminal")

    def __init__(
        self, number: int, path: bytes, argv: List[bytes], env: List[bytes], fds: List[int], kept: int, terminal: bool
    ) -> None:
        self.number, self.path, self.argv, self.env = number, path, argv, env
        self.kept, self.terminal = kept, terminal
        self.fds = [os.dup(fd) for fd in (*fds, *([kept] if kept >= 0 else []))]

    def message(self, program: Program) -> bytes:
        """The message to the starter: its length, then fields separated by NUL."""
        numbers = b"%d %d %d %d" % (program.umask, self.terminal, self.kept, len(self.argv))
        data = b"\0".join((self.path, program.cwd, numbers, *self.argv, *self.env))
        return len(data).to_bytes(4, "big") + data

    def close(self) -> None:
        """Close the descriptors."""
        for fd in self.fds:
            os.close(fd)
        self.fds = []


class ManagedRanks:
    """The starters of a launch on this node. ``wanted`` is the run option ``parent``. Raises LoadFailed if it is
    invalid."""

    def __init__(
        self, loop: Loop, wanted: Dict[str, Any], load: Load, program: Program, owner: Owner,
        prepare: "Callable[[int, int], None]", fail: "Callable[[LoadFailed], None]", note: "Callable[[str], None]",
    ) -> None:  # fmt: skip
        self._loop, self._load, self._program, self._owner = loop, load, program, owner
        self._prepare, self._fail, self._note = prepare, fail, note
        self._waiting: List[Start] = []
        self._since = now()
        self._expected = len(load.ranks)
        self._connections: Dict[int, Any] = {}  # query sockets, by pid
        self._pidfds: Dict[int, int] = {}
        self._sessions: Dict[int, Session] = {}
        self._clients: List[Any] = []
        self._starts: Dict[int, int] = {}  # pid of a client -> the ranks that it starts
        self._said, self._retries = "", RETRIES
        self._tells_exit: Optional[bool] = None
        self._ranks: Dict[int, Tuple[int, int]] = {}  # pid -> the rank's number, and the process's start time
        self._supervisors: Optional[SupervisorEnds] = None
        try:
            self._token = str(wanted["token"]).encode("ascii")
            self._name, self._manager = str(wanted["name"]), str(wanted.get("manager", ""))
            self._host = str(wanted["hosts"][load.name])
            self._supervisor = str(wanted.get("supervisor", ""))
            self._command = [str(word) for word in wanted["command"]]
            if len(self._token) != TOKEN_BYTES:
                raise ValueError("token")
        except (KeyError, TypeError, ValueError) as error:
            raise LoadFailed(f"the run options of the load are wrong: {error!r:.80}", "launch") from None
        self._listener: Any = Socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            self._listener.bind(f"\0redmesh-{self._name}-{self._host}".encode())
        except OSError as error:
            why = f"{load.name}: no socket for the starters: {error.strerror}"
            raise LoadFailed(why, "launch", hint=advice(error.errno or 0)) from None
        self._listener.listen(self._expected + 8)
        loop.watch(self._listener.fileno(), READ, self._on_connect)

    def begin(self, starts: List[Start]) -> None:
        """The ranks for the next starters; if every node calls its own manager, request them now."""
        self._waiting += starts
        if self._manager and len(self._waiting) == self._expected:  # the last batch of them
            self._spawn(len(self._waiting))

    def _spawn(self, count: int) -> None:
        """Request ``count`` ranks; if starters stay, one process of the batch system starts all of them, because each
        takes a slot of the job (Grid Engine), and the node's agent has one already."""
        from agents.managers import registry

        env = {"REDMESH_STARTER": f"{self._name} {self._token.decode()} {self._host}"}
        try:
            manager = registry.load(self._manager)
            each = count if getattr(manager, "signal_fails_job", False) else 1
            if getattr(manager, "signal_fails_job", False):
                env["REDMESH_STARTER_STAYS"] = str(count)
            for _ in range(0, count, each):
                client = manager.spawn(os.environ, self._host, self._command, env)
                if client.stdin is not None:
                    client.stdin.close()
                self._clients.append(client)
                self._starts[client.pid] = each
                self._listen_to(client)
        except Exception as error:  # ManagerError, and other exceptions of a manager
            told = f"{self._load.name}: {self._manager}: {getattr(error, 'message', error)}"
            self._fail(LoadFailed(told, "launch", hint=getattr(error, "hint", "")))

    def _lacks(self) -> int:
        """How many of the ranks that wait have no client that may still start them."""
        requested = sum(self._starts[client.pid] for client in self._clients)
        return len(self._waiting) - max(0, requested - len(self._ranks))

    def _listen_to(self, client: Any) -> None:
        self._loop.watch(client.stderr.fileno(), READ, lambda _events: self._on_said(client))

    def _on_said(self, client: Any) -> None:
        # The last text before the client's exit has the reason why it started no rank.
        data = os.read(client.stderr.fileno(), 4096)
        if data:
            lines = data.decode("utf-8", "replace").strip().splitlines()
            self._said = clean(lines[-1])[:300] if lines else self._said
            return
        self._loop.unwatch(client.stderr.fileno())
        self._clients.remove(client)
        client.returncode = 0  # the launch child reaps it with its other children
        if self._waiting and self._lacks() > 0:
            if self._retries:  # Grid Engine counts a task that has just ended: "didn't accept task"
                self._retries -= 1
                self._loop.after(RETRY_S, self._spawn_again)
                return
            told = f"{self._load.name}: {self._manager} did not start rank {self._waiting[0].number}: "
            self._fail(LoadFailed(told + (self._said or "its client ended"), "launch", hint="mesh manager check"))

    def _spawn_again(self) -> None:
        if self._waiting and self._listener is not None and self._lacks() > 0:
            self._spawn(self._lacks())

    # Starters

    def _on_connect(self, _events: int) -> None:
        try:
            sock, _address = self._listener.accept()
        except OSError:
            return
        pid, uid, _gid = struct.unpack("=iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid != os.geteuid():
            sock.close()
            return
        sock.setblocking(False)
        self._loop.watch(sock.fileno(), READ, lambda _events: self._on_token(sock, pid))

    def _on_token(self, sock: Any, pid: int) -> None:
        self._loop.unwatch(sock.fileno())
        try:
            token = sock.recv(TOKEN_BYTES)
        except OSError:
            token = b""
        if token != self._token or not self._waiting or pid in self._connections:
            sock.close()
            return
        start = self._waiting.pop(0)
        self._connections[pid] = sock
        self._expected -= 1
        if not self._expected:
            self._stop_listening()  # the token is used up
        try:
            prctl.seize(pid)
            leads = os.getsid(pid) == pid
        except OSError as error:
            self._refuse(start, pid, f"the batch system's process {pid} cannot be traced: {error.strerror}")
            return
        if not leads:  # only a session of the launch's own may be killed as a whole
            self._refuse(start, pid, f"the batch system's process {pid} can have no session of its own")
            return
        self._sessions[pid] = Session.of(pid)
        self._owner.adopted(start.number, pid)
        self._ranks[pid] = start.number, processes.start_time(pid)
        self._watch_supervisor(pid)
        try:
            self._prepare(start.number, pid)
            sock.settimeout(SEND_S)
            rights = array.array("i", start.fds).tobytes()
            data = memoryview(start.message(self._program))
            sent = sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            sock.sendall(data[sent:])
            sock.setblocking(False)
        except OSError as error:
            self._refuse(start, pid, f"the starter of rank {start.number} cannot be told: {error.strerror}")
            return
        start.close()
        self._loop.watch(sock.fileno(), READ, lambda _events: self._on_query(sock, start.number))

    def _refuse(self, start: Start, pid: int, why: str) -> None:
        start.close()
        self._connections[pid].close()  # the starter exits when this closes
        del self._connections[pid]
        hint = "--parent=daemon lets the launch child start the ranks"
        self._fail(LoadFailed(f"{self._load.name}: {why}", "launch", 125, start.number, hint))

    def _on_query(self, sock: Any, number: int) -> None:
        # The starter reports a failed exec on it; the exit of a rank closes it.
        try:
            data = sock.recv(64)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if len(data) == 5:
            self._owner.exec_refused(number, data[0], int.from_bytes(data[1:], "big"))
        elif not data:
            self._loop.unwatch(sock.fileno())

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._loop.unwatch(self._listener.fileno())
            self._listener.close()
            self._listener = None

    # Ranks

    def _watch_supervisor(self, pid: int) -> None:
        """Kill the rank when the batch system's process above it has exited: nobody else would end it."""
        if self._supervisor:
            from agents.linux.process_ends import SupervisorEnds

            self._supervisors = self._supervisors or SupervisorEnds(
                self._loop, self._supervisor, self._on_supervisor_end
            )
            self._supervisors.watch(pid)

    def _on_supervisor_end(self, supervisor: int, pids: List[int]) -> None:
        # A supervisor that exits in order has reaped the process by which it started the rank.
        living = [pid for pid in pids if processes.alive(pid, self._ranks[pid][1])]
        if living:
            numbers = ", ".join(str(number) for number, _started in sorted(self._ranks[pid] for pid in living))
            self._note(
                f"{self._supervisor} (process {supervisor}) has exited: the batch system no longer"
                f" supervises rank {numbers}, so it is killed"
            )
        for pid in living:
            try:
                os.killpg(pid, signal.SIGKILL)  # the leader of a session of its own
            except OSError:
                pass

    def release(self, pid: int, stopped: bool) -> None:
        """GO for a rank that is stopped at its exec. Raises OSError if it does not exist."""
        if self._tells_exit is None:
            self._tells_exit = exits_are_told()
        if stopped:
            os.kill(pid, signal.SIGSTOP)  # a detach from this stop delivers no signal (ptrace(2))
        if not self._tells_exit:
            prctl.resume(pid, 0)
            return
        fd = self._pidfds[pid] = os.pidfd_open(pid)
        self._loop.watch(fd, READ, lambda _events: self._on_exit(pid))
        prctl.release(pid)

    def _on_exit(self, pid: int, waited_s: float = 0.0) -> None:
        fd = self._pidfds.get(pid)
        if fd is None:
            return
        # An unreaped process has its status in /proc: Slurm's daemons reap up to 0.1 s later.
        status = processes.exit_code(pid)
        if status is None:
            status = exit_status(fd)
        if not waited_s:
            self._loop.unwatch(fd)
        if status is None and waited_s < _UNREAPED_S:  # the batch system has not reaped it yet
            self._loop.after(_AGAIN_S, lambda: self._on_exit(pid, waited_s + _AGAIN_S))
            return
        del self._pidfds[pid]
        os.close(fd)
        self._owner.ended_elsewhere(pid, signal.SIGKILL if status is None else status)

    def processes(self, pids: List[int], table: Families) -> List[int]:
        """All processes of the launch on this node, found by parents, sessions and the mark in their environment."""
        # A rank's starter may be older than this object; but what it starts as a rank is not.
        young = [pid for pid, (_parent, _session, started) in table.items() if started >= self._since]
        found = set(pids) | set(processes.marked(mark(self._load), young))
        for pid, (_parent, session, started) in table.items():
            # The id of a session whose leader has exited may be in use again.
            if session in self._sessions and (session in pids or self._sessions[session].has(pid, started)):
                found.add(pid)
        for pid in list(found):
            found.update(processes.descendants(pid))
        found.discard(os.getpid())
        return [pid for pid in found if processes.state(pid) not in ("Z", "")]

    def clients(self) -> List[int]:
        """The manager's clients that may still run. They exit with their tasks, and must not be signalled: a qrsh
        forwards SIGTERM to its task, and Grid Engine 8.1.9 kills the whole job if a task dies of a signal."""
        return [client.pid for client in self._clients]

    def give_up(self) -> None:
        """Start no further ranks; their starters exit, and with them the clients."""
        if not self._clients:  # otherwise a starter that is still to come must hear that it is not wanted
            self._stop_listening()
        self._retries = 0
        for start in self._waiting:
            start.close()
        self._waiting = []

    def close(self) -> None:
        """Release everything, when no process is left."""
        self.give_up()
        self._stop_listening()
        for client in self._clients:
            self._loop.unwatch(client.stderr.fileno())
        self._clients = []
        for pidfd in self._pidfds.values():
            self._loop.unwatch(pidfd)
            os.close(pidfd)
        self._pidfds = {}
        for sock in self._connections.values():
            try:
                self._loop.unwatch(sock.fileno())
            except (KeyError, OSError):
                pass  # its rank has closed it
            sock.close()
        self._connections = {}
        if self._supervisors is not None:
            self._supervisors.close()


def command() -> List[str]:
    """The command line by which a batch system starts a rank.

    Our own interpreter comes first, because "python3" may be a shell script that takes 90 ms to find it (pyenv).
    """
    # What ignores a signal here keeps ignoring it until the starter becomes the rank, with default actions.
    script = (
        f'trap \'\' {TRAPPED}; for p in "$@"; do command -v "$p" >/dev/null && exec "$p" -I -S -c "$0"; done; exit 97'
    )
    own = os.path.realpath(sys.executable)
    return ["sh", "-c", script, source(), own, "python3", "/usr/bin/python3", "/usr/local/bin/python3"]


def source() -> str:
    """The source of the starter without comments and docstrings."""
    import pkgutil

    text = (pkgutil.get_data("agents.pct.ranks", "starter.py") or b"").decode()
    return text.partition('"""\n\n')[2]


def exit_status(pidfd: int) -> Optional[int]:
    """The status of a process that has exited and was reaped; None: not yet, or not provided by this kernel."""
    import fcntl

    info = bytearray(_INFO.size)
    info[:8] = _INFO_EXIT.to_bytes(8, sys.byteorder)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    fields = _INFO.unpack(info)
    return fields[-1] if fields[0] & _INFO_EXIT else None


def exits_are_told() -> bool:
    """True if this kernel reports exit statuses to processes other than the parent; tested with a child of ours."""
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    try:
        pidfd = os.pidfd_open(pid)
    except (OSError, AttributeError):
        os.waitpid(pid, 0)
        return False
    os.waitpid(pid, 0)
    told = exit_status(pidfd)
    os.close(pidfd)
    return told == 3 << 8

"""The ranks of a node: forked under hold, released, reaped.

The hold is a ptrace stop at exec: the exec has succeeded, and no instruction of the program has run. If tracing is not
permitted, or would remove a setuid program's privilege, a rank waits at a pipe before its exec instead (the gate).
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import time

from agents.link.lean import signal
from agents.linux import prctl, processes
from agents.linux.controllers import full_of_processes
from agents.pct.errors import LoadFailed, advice
from agents.pct.launch.load import Load, Program, Segment
from agents.pct.ranks.fork import AT_GATE, CHDIR, SETUP, Spawner
from agents.pct.ranks.limits import RankLimits

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Protocol, Tuple

    from agents.linux.processes import Families
    from agents.pct.launch.line_and_gpu_variables import OwnVariables
    from agents.pct.launch.options import RunOptions
    from agents.pct.ranks.managed import ManagedRanks

    class RankEvents(Protocol):
        """The events of ranks."""

        def held(self, rank: "Rank") -> None:
            """``rank`` is stopped before its first instruction."""

        def failed(self, error: LoadFailed) -> None:
            """A rank cannot start."""

        def ended(self, rank: "Rank", seconds: float) -> None:
            """``rank`` has been reaped."""

        def stopped(self, rank: "Rank", *, stopped: bool) -> None:
            """``rank`` was stopped after GO, or continues."""

        def exec_failed(self, rank: "Rank", message: str) -> None:
            """The exec of a gated rank failed after GO."""

    class FaultWatch(Protocol):
        """Reads the stacks of ranks that die of a signal (agents/pct/debug/crash_queue.py)."""

        def know(self, pid: int) -> None: ...

        def ended(self, tid: int) -> None: ...

        def stopped(self, tid: int, status: int) -> None: ...

        def cancel(self) -> None: ...

    class MpiRanks(Protocol):
        """What ranks of a parallel program inherit (agents/pct/mpi)."""

        def environment(self) -> Dict[bytes, bytes]:
            """Variables that are equal for all ranks of this node."""

        def names(self) -> List[bytes]:
            """The names of variables that differ from rank to rank."""

        def plan(self, rank: int, local: int) -> Tuple[int, List[bytes]]:
            """The descriptor that ``rank`` keeps over its exec (or -1), and its own variables. Raises OSError."""

        def forked(self) -> None:
            """The ranks have been forked, with their ends."""


_RECORD = struct.Struct("!IBI")  # rank, step, errno
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_WALL = 0x40000000  # wait for threads too (wait(2)); the os module has no name for it


class Rank:
    """One process of the launch."""

    __slots__ = ("at_gate", "held", "killed", "number", "path", "peak", "pid", "released_at", "status")

    def __init__(self, number: int, pid: int, path: bytes) -> None:
        self.number = number
        self.pid = pid
        self.path = path
        self.held = False
        self.at_gate = False
        self.released_at = 0.0
        self.status: Optional[int] = None  # as wait(2) has it
        self.killed = False  # we have sent SIGKILL
        self.peak = 0  # bytes of memory that it had at most, or the largest of its children; 0: unknown

    @property
    def killed_by_others(self) -> bool:
        """True if SIGKILL has ended it, or a child of the shell that it is, and the SIGKILL was not ours."""
        status = self.status or 0
        ended = status & 0x7F == signal.SIGKILL or status == (128 + signal.SIGKILL) << 8
        return ended and not self.killed


class Ranks:
    """All ranks of this node. ``own``: variables that differ from rank to rank; ``mpi``: what MPI ranks inherit."""

    def __init__(
        self,
        load: Load,
        program: Program,
        env: Dict[bytes, bytes],
        events: RankEvents,
        own: Optional[OwnVariables] = None,
        mpi: Optional[MpiRanks] = None,
    ) -> None:
        self._load = load
        self._program = program
        self._events = events
        self.by_number: Dict[int, Rank] = {}
        self._by_pid: Dict[int, Rank] = {}
        self.error_fd, self._error_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._gate_reader, self._gate_writer = os.pipe2(os.O_CLOEXEC)
        self._commands: Dict[int, Tuple[Any, bool]] = {}
        self._options: Optional[RunOptions] = None
        self._faults: Optional[FaultWatch] = None
        self._wait = os.WNOHANG
        self._given_up = False
        self._own, self._mpi = own, mpi
        self._managed: Optional[ManagedRanks] = None
        names = self._own.names() if self._own is not None else []
        if self._mpi is not None:
            names = names + self._mpi.names()
            env = {**env, **self._mpi.environment()}
        forwarded = {name: value for name, value in program.env.items() if name not in names} if names else program.env
        self._env = {**forwarded, **env}
        self.limits = RankLimits(program.limits)
        self._spawner = Spawner(
            self._env, program.cwd, program.umask,
            self._error_writer, self._gate_reader, self._gate_writer, len(names),
            self.limits.calls,
        )  # fmt: skip

    def with_options(
        self, options: RunOptions, faults: Optional[FaultWatch], after: Callable[[float, Callable[[], None]], Any]
    ) -> None:
        """Set run options; call this before ``begin``."""
        self._options, self._faults, self._after = options, faults, after
        self._spawner.options = options
        if faults is not None:
            self._wait = os.WNOHANG | _WALL

    def managed_by(self, managed: ManagedRanks) -> None:
        """Have the batch system start the ranks; call this before ``begin``."""
        self._managed = managed

    def in_group(self, group: int) -> None:
        """Start the ranks in the control group with this descriptor, if permitted; call this before ``begin``."""
        if self._managed is None:  # managed ranks stay in the batch system's group
            self._spawner.into_group(group)

    def enter(self, namespaces: "List[Tuple[int, int]]") -> None:
        """Have the ranks enter these namespaces (descriptor and kind) first; call this before ``begin``."""
        self._spawner.namespaces = namespaces

    def share_session(self) -> None:
        """Keep the ranks in this process's session; call this before ``begin``."""
        if self._managed is None:
            self._spawner.share_session()

    @property
    def sessions(self) -> List[int]:
        """The sessions of unreaped ranks, by their leaders."""
        return [os.getpid()] if self._spawner.shares_session else [rank.pid for rank in self.living]

    @property
    def grouped(self) -> bool:
        """True if every rank was started in the control group."""
        return self._spawner.grouped and self._managed is None

    @property
    def slow_to_begin(self) -> bool:
        """True if a rank's exec may be slow, because its program is on a remote file system."""
        return bool(self._spawner.slow or self._spawner.namespaces)

    def number_of(self, pid: int) -> Optional[int]:
        """The number of the rank with process ``pid``."""
        rank = self._by_pid.get(pid)
        return None if rank is None else rank.number

    @property
    def living(self) -> List[Rank]:
        """Unreaped ranks."""
        return list(self._by_pid.values())

    def begin(self, plans: List[Tuple[int, int, int, int, int]]) -> None:
        """Fork ranks under hold: number, index on this node, and the descriptors that become 0, 1, 2 of each.

        Raises LoadFailed.
        """
        prepared = []
        for number, local, stdin, out, err in plans:
            command, gated = self._command(self._program.segment_of(number))
            if self._options is not None:
                another = self._options.command(number, self._program.segment_of(number))
                if another is not None:
                    command = self._spawner.command(another[0], another)
            more, kept = self._own.entries(number) if self._own is not None else [], -1
            if self._mpi is not None:
                kept, theirs = self._mpi.plan(number, local)
                more = more + theirs
            prepared.append(self._spawner.plan(number, local, command, gated, stdin, out, err, more, kept))
        if self._managed is not None:
            self._begin_managed(self._managed, prepared)
            return
        failure = None
        try:
            pids = self._spawner.begin_all(prepared)
        except OSError as error:
            pids = getattr(error, "pids", [])
            failure = _too_many(f"{self._load.name}: cannot fork", plans[len(pids)][0], error.errno or 0)
        if self._mpi is not None:
            self._mpi.forked()
        for plan, pid in zip(plans, pids):  # noqa: B905  (strict needs Python 3.10; a failed fork leaves fewer)
            rank = Rank(plan[0], pid, self._program.segment_of(plan[0]).path)
            self.by_number[plan[0]] = rank
            self._by_pid[pid] = rank
        if failure is not None:
            raise failure

    def _begin_managed(self, managed: ManagedRanks, plans: List[Any]) -> None:
        from agents.pct.ranks.managed import Start

        starts, shared = [], [name + b"=" + value for name, value in self._env.items()]
        if self._program.limits:
            shared.append(b"REDMESH_RANK_LIMITS=" + self.limits.as_text().encode("ascii"))
        pty = self._options.pty if self._options is not None else None
        for rank_entry, local_entry, number, path, argv, gated, stdin, out, err, more, kept in plans:
            if gated:
                why = "the program gets privilege at its exec, which the batch system's process may not give it"
                hint = "--parent=daemon starts it"
                raise LoadFailed(f"{self._load.name}: rank {number}: {why}", "program", 126, number, hint)
            env = [*shared, rank_entry, local_entry, *more]
            starts.append(Start(number, path.value, list(argv)[:-1], env, [stdin, out, err], kept, number == pty))
            self.by_number[number] = Rank(number, 0, self._program.segment_of(number).path)
        if self._mpi is not None:
            self._mpi.forked()
        managed.begin(starts)

    def adopted(self, number: int, pid: int) -> None:
        """Process ``pid``, started by the batch system, is about to become rank ``number``."""
        rank = self.by_number[number]
        rank.pid = pid
        self._by_pid[pid] = rank

    def exec_refused(self, number: int, step: int, code: int) -> None:
        """The exec of a rank started by the batch system failed."""
        if self.by_number[number].held:
            return  # the program itself writes there
        self._events.failed(self._failure(self.by_number[number], step, code))

    def _failure(self, rank: Rank, step: int, code: int) -> LoadFailed:
        return _failure(self._load.name, rank, self._program, step, code, self.limits.loading_text())

    def ended_elsewhere(self, pid: int, status: int) -> None:
        """A rank that another process reaps has exited."""
        rank = self._by_pid.get(pid)
        if rank is not None:
            self._on_exit(rank, status)

    def processes(self, table: Optional[Families] = None) -> List[int]:
        """Every process of the ranks, and of those being started; not the manager's clients.

        ``table`` is what processes.families() returned a moment ago.
        """
        found = processes.descendants(os.getpid())
        if self._managed is not None:
            table = processes.families() if table is None else table
            clients = self._managed.clients()
            # A starter that stays is a child of its client under some managers, and must not be signalled either.
            spared = {pid for client in clients for pid in (client, *processes.descendants(client))}
            found = [pid for pid in found if pid not in spared]
            ours = self._managed.processes(list(self._by_pid), table)
            found += [pid for pid in ours if pid not in found and pid not in clients]
        return found

    @property
    def elsewhere(self) -> bool:
        """True if the ranks are another process's children."""
        return self._managed is not None

    def tracked(self) -> List[int]:
        """The descendants of the ranks, including those that became our children."""
        if self._managed is None:
            return processes.descendants(os.getpid())
        return [pid for rank in self.living for pid in (rank.pid, *processes.descendants(rank.pid))]

    def give_up(self) -> None:
        """Everything is being killed: start no further ranks."""
        self._given_up = True
        if self._managed is not None:
            self._managed.give_up()

    def _command(self, segment: Segment) -> Tuple[Any, bool]:
        known = self._commands.get(segment.first)
        if known is None:
            gated = self._program.hold == "gate" or has_privilege(segment.path)
            known = self._spawner.command(segment.path, segment.argv), gated
            self._commands[segment.first] = known
        return known

    def close(self) -> None:
        """Close the pipes of ranks before their exec, when no rank is left."""
        if self._managed is not None:
            self._managed.close()
        for fd in (self.error_fd, self._error_writer, self._gate_reader, self._gate_writer):
            os.close(fd)

    def on_records(self) -> None:
        """Read the ranks' records from before their exec."""
        try:
            data = os.read(self.error_fd, _RECORD.size * 4096)
        except BlockingIOError:
            return
        for number, step, code in _RECORD.iter_unpack(data):
            rank = self.by_number[number]
            if step == AT_GATE:
                rank.at_gate = True
                self._hold(rank)
            elif rank.released_at:
                self._events.exec_failed(rank, self._failure(rank, step, code).message)
            else:
                self._events.failed(self._failure(rank, step, code))

    def _hold(self, rank: Rank) -> None:
        if not rank.held:
            rank.held = True
            self._events.held(rank)

    def reap(self) -> Tuple[int, bool]:
        """Handle all pending changes of children. Returns (children other than exited ranks, whether any child is
        left)."""
        others = 0
        while True:
            try:
                pid, status, used = os.wait4(-1, self._wait)
            except ChildProcessError:
                return others, self._managed is not None and bool(self._by_pid)
            if pid == 0:
                return others, True
            rank = self._by_pid.get(pid)
            if os.WIFCONTINUED(status) or (self._wait & os.WUNTRACED and os.WIFSTOPPED(status)):
                if rank is not None:
                    self._events.stopped(rank, stopped=os.WIFSTOPPED(status))
            elif os.WIFSTOPPED(status):
                if self._faults is not None and (rank is None or rank.held):
                    self._faults.stopped(pid, status)
                elif rank is not None:
                    number = os.WSTOPSIG(status)
                    if rank.held and status >> 16 and number != signal.SIGTRAP:
                        prctl.stay_stopped(pid)  # the stop that SIGSTOP causes in a seized process (ptrace(2))
                    else:  # after the first stop, an event is not a signal for the rank
                        self._on_stop(rank, 0 if rank.held and status >> 16 else number)
            elif rank is None:
                others += 1
                if self._faults is not None:
                    self._faults.ended(pid)
            else:
                self._on_exit(rank, status, used.ru_maxrss << 10)

    def _on_stop(self, rank: Rank, number: int) -> None:
        if number == signal.SIGTRAP and not rank.held:
            if self._options is None:
                prctl.kill_with_tracer(rank.pid)
                self._hold(rank)
            else:
                self._hold_with_options(rank, self._options)
        else:
            prctl.resume(rank.pid, number)  # a signal from outside, before its exec

    def _hold_with_options(self, rank: Rank, options: RunOptions) -> None:
        options.keep(rank.pid)
        if self._faults is not None:
            self._faults.know(rank.pid)
        if options.after_exec_s:
            self._after(options.after_exec_s, lambda: self._hold(rank) if rank.pid in self._by_pid else None)
        else:
            self._hold(rank)

    def _on_exit(self, rank: Rank, status: int, peak: int = 0) -> None:
        self.on_records()
        del self._by_pid[rank.pid]
        rank.status, rank.peak = status, peak
        rank.killed = rank.killed or self._given_up
        if not rank.held:
            self._events.failed(_died_unheld(self._load.name, rank.number, status, self.limits.loading_text()))
        self._events.ended(rank, time.monotonic() - rank.released_at if rank.released_at else 0.0)

    def release(self) -> None:
        """GO: every rank runs."""
        gated = 0
        if self._faults is None:  # from now on no rank is traced by us, so that a stop is a stop
            self._wait |= os.WUNTRACED | os.WCONTINUED
        for rank in self._by_pid.values():
            rank.released_at = time.monotonic()
            if rank.at_gate:
                gated += 1
            else:
                try:
                    if self._managed is not None:
                        self._managed.release(rank.pid, self._options is not None and self._options.hold)
                    elif self._options is None:
                        prctl.release(rank.pid)
                    else:
                        self._options.release(rank.pid)
                except OSError:
                    pass  # killed meanwhile, which reaping reports
        if gated:
            os.write(self._gate_writer, b"g" * gated)

    def send_signal(self, number: int, wanted: Optional[List[int]]) -> List[str]:
        """Signal the process groups of these ranks (None: all). Returns failures, in words."""
        refused = []
        for rank in self.living:
            if wanted is not None and rank.number not in wanted:
                continue
            rank.killed = rank.killed or number == signal.SIGKILL
            try:
                os.killpg(rank.pid, number)
            except ProcessLookupError:
                pass
            except OSError as error:
                refused.append(f"rank {rank.number} (pid {rank.pid}): {error.strerror}")
        return refused


def has_privilege(path: bytes, depth: int = 0) -> bool:
    """True if an exec of ``path`` gives privilege (setuid, setgid, capabilities), which tracing would remove."""
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            return False
        if mode & (stat.S_ISUID | stat.S_ISGID):
            return True
        try:
            os.getxattr(path, "security.capability")
            return True
        except OSError:
            pass
        with open(path, "rb", buffering=0) as file:
            first = file.read(256)
    except OSError:
        return False  # the exec will report what is wrong
    interpreter = first[2:].split(b"\n", 1)[0].split() if first.startswith(b"#!") else []
    return bool(interpreter) and depth == 0 and has_privilege(interpreter[0], 1)


def _failure(node: str, rank: Rank, program: Program, step: int, code: int, limits: str) -> LoadFailed:
    """The error of a rank that failed at ``step``; ``limits``: the launcher's limits that can keep it from loading."""
    reason = os.strerror(code)
    if step == CHDIR:
        where = os.fsdecode(program.cwd)
        hint = "the directory has to exist on the node; -chdir /tmp names another, -io DIR takes one along"
        return LoadFailed(f"{node}: cannot enter {where}: {reason}", "program", 125, rank.number, hint)
    if step == SETUP:
        why = f"{node}: cannot prepare rank {rank.number}: {reason}"
        return LoadFailed(why, "launch", 125, rank.number, advice(code))
    path = os.fsdecode(rank.path)
    missing = code in (errno.ENOENT, errno.ENOTDIR)
    hint = ""
    if missing and os.path.exists(path):
        hint = "the file is there: its interpreter (the #! line, or the dynamic loader) is not"
    elif missing:
        hint = "the node does not have the file; -bcast always sends it there"
    elif code == errno.EACCES:
        hint = "chmod +x makes it a program; ls -ld shows whether all its directories may be entered"
    elif code == errno.ENOEXEC:
        hint = "it is neither a program for this machine nor a script that begins with #!"
    elif code in (errno.E2BIG, errno.ENOMEM) and limits:
        return LoadFailed(f"{node}: {path}: {reason}", "launch", 125, rank.number, _raise(limits))
    elif code in (errno.EAGAIN, errno.ENOMEM):
        return _too_many(f"{node}: {path}", rank.number, code)
    return LoadFailed(
        f"{node}: {path}: {reason}", "program", _NOT_FOUND if missing else _NOT_EXECUTABLE, rank.number, hint
    )


def _raise(limits: str) -> str:
    return f"yod's own limits are {limits}; its ranks have the same"


def _died_unheld(node: str, rank: int, status: int, limits: str) -> LoadFailed:
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if number in (signal.SIGSEGV, signal.SIGBUS):
        # The kernel kills an exec that it cannot complete (a truncated binary). Other nodes have the same file.
        name = "SIGBUS" if number == signal.SIGBUS else "SIGSEGV"
        text = f"{node}: rank {rank}: the kernel cannot load the program ({name} at its exec)"
        hint = f"is the file whole? {_raise(limits)}" if limits else "is the file whole?"
        return LoadFailed(text, "program", _NOT_EXECUTABLE, rank, hint)
    what = f"died of signal {number}" if number else "ended"
    # its user killed it, or a limit of the user did
    hint = _raise(limits) if limits and number else "see who or what killed it there: dmesg, ulimit -a"
    return LoadFailed(f"{node}: rank {rank} {what} before it could begin", "launch", rank=rank, hint=hint)


def _processes_hint() -> str:
    """Whose limit of processes was met: fork(2) says EAGAIN for all of them."""
    full = full_of_processes()
    if full:
        return f"its control group has as many processes and threads as it may: {full}"
    if os.geteuid() == 0:  # ulimit -u is not for root
        return "the node has as many processes as it may: sysctl kernel.pid_max, kernel.threads-max"
    return "its user has as many processes there as may be (ulimit -u)"


def _too_many(what: str, rank: int, code: int) -> LoadFailed:
    hint = _processes_hint() if code == errno.EAGAIN else advice(code)
    return LoadFailed(f"{what}: {os.strerror(code)}", "launch", 125, rank, hint)

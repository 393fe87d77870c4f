"""Forks and executes ranks while touching as little memory as possible.

Every page that parent or child writes after a fork is copied: with os.fork and os.execve, and the Python code around
them, a rank costs about 240 page faults before its program begins; this way about 90. So everything is laid out in C
form before the fork, and the child makes only C calls. Only for a process without threads that execs or exits, because
Python's own after-fork work is skipped.
"""

from __future__ import annotations

import ctypes
import errno
import os

from agents.link.lean import signal
from agents.linux import prctl
from agents.pct.ranks import vfork

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, NoReturn, Optional, Sequence, Tuple

    from agents.pct.launch.options import RunOptions

    Plan = Tuple[Any, ...]

_PR_SET_PDEATHSIG, _PR_SET_PTRACER, _PTRACE_TRACEME = 1, 0x59616D61, 0

_libc = ctypes.PyDLL(None, use_errno=True)  # PyDLL keeps the interpreter's lock, which no other thread needs
_fork, _execve, _exit = _libc.fork, _libc.execve, _libc._exit
_setsid, _setpgid, _prctl, _ptrace, _getppid = (
    _libc.setsid, _libc.setpgid, _libc.prctl, _libc.ptrace, _libc.getppid,
)  # fmt: skip
_fcntl, _F_SETFD = _libc.fcntl, 2
_setrlimit = _libc.setrlimit
_dup2, _chdir, _umask, _close, _read, _write = (
    _libc.dup2, _libc.chdir, _libc.umask, _libc.close, _libc.read, _libc.write,
)  # fmt: skip
_sigprocmask = _libc.sigprocmask
_setns, _setresuid = _libc.setns, _libc.setresuid
_get_errno = ctypes.get_errno
_set_wakeup_fd = signal.set_wakeup_fd
_ZERO, _ON_DEATH = ctypes.c_ulong(0), ctypes.c_ulong(_PR_SET_PDEATHSIG)
_KILL = ctypes.c_ulong(signal.SIGKILL)
_TRACEME = ctypes.c_ulong(_PTRACE_TRACEME)

_statfs = ctypes.CDLL(None).statfs
#: Magic numbers of statfs(2): AFS, BeeGFS, Ceph, CIFS, FUSE, GPFS, Lustre, NFS, SMB 2, 9P, OCFS2, GFS2.
_REMOTE = frozenset(
    (0x5346414F, 0x19830326, 0x00C36400, 0xFF534D42, 0x65735546, 0x47504653, 0x0BD00BD0, 0x6969, 0xFE534D42)
    + (0x01021997, 0x7461636F, 0x01161970)
)

#: Steps before the exec; a record names one of the last three as the step that failed.
AT_GATE, SETUP, CHDIR, EXEC = range(4)
#: The indices of the three dup2 and the fcntl in the syscall list; and the step of a failed call (all others: SETUP).
_FIRST_DUP2 = 2
_STEPS = {vfork.CHDIR: CHDIR, vfork.EXECVE: EXEC}
#: Signals without their default action, and those that are ignored, determined once, because a launch child sets all
#: handlers before its first rank.
_changed: List[int] = []
_ignored: List[int] = []


def _address(text: Any) -> int:
    return ctypes.cast(text, ctypes.c_void_p).value or 0


def _vector(items: List[bytes]) -> Any:
    return (ctypes.c_char_p * (len(items) + 1))(*items, None)


def file_system(path: bytes) -> int:
    """The type of the file system of ``path``, as in statfs(2); 0 if unknown."""
    found = (ctypes.c_ulong * 64)()  # struct statfs, whose first member is the type
    return found[0] & 0xFFFFFFFF if _statfs(path, found) == 0 else 0


def is_remote(path: bytes) -> bool:
    """True if other machines or processes serve the file, so that access may be slow; False if unknown."""
    return file_system(path) in _REMOTE


class Spawner:
    """What all ranks of a node share: environment, directory, signal mask, pipe for records, gate.

    A record on ``records`` is rank (4 bytes), step (1 byte), errno (4 bytes), big-endian. Plain ranks are started by
    vfork if possible. Ranks that wait at the gate, that have run options, or whose program is on a remote file system
    are forked: an exec there may take longer than a launch child may be silent.
    """

    def __init__(
        self,
        env: Dict[bytes, bytes],
        cwd: bytes,
        umask: int,
        records: int,
        gate: int,
        gate_writer: int,
        more: int = 0,
        limits: "Sequence[Tuple[int, Any]]" = (),
    ) -> None:
        self._own = len(env)
        entries = [name + b"=" + value for name, value in env.items()]
        self._env = _vector([*entries, b"", b"", *[b""] * more])
        self._cwd = ctypes.c_char_p(cwd)
        self._umask = umask
        self._records, self._gate, self._gate_writer = records, gate, gate_writer
        self._pid = os.getpid()
        # Stack tools and debuggers are our children, not ancestors of the rank, so the rank must permit them
        # (prctl(2)).
        self._named = prctl.tracers_are_named()
        self._byte = ctypes.create_string_buffer(1)
        self.options: Optional[RunOptions] = None  # run options, which are applied by Python code
        self._limits = limits  # arguments for setrlimit(2)
        self._into: Optional[vfork.IntoGroup] = None
        self._outside = False  # True if a rank could not be started in the control group
        #: True if ranks stay in the session of this process.
        self.shares_session = False
        if not _changed:
            _changed.extend(vfork.changed_signals())
            _ignored.extend(number for number in _changed if signal.getsignal(number) == signal.SIG_IGN)
        self._syscalls = self._plain_syscalls() if vfork.RUN_SYSCALLS is not None else None
        #: Descriptors and kinds of namespaces that a rank enters first. This process may serve the mounts in them, so
        #: ranks are forked: with vfork we would wait for ourselves.
        self.namespaces: List[Tuple[int, int]] = []
        self.slow: List[int] = []  # programs that are forked: with vfork we would be blocked until their exec is done

    def _plain_syscalls(self) -> vfork.SyscallList:
        # As _become, for a rank without gate and run options. None of our handlers may run in it: all signals are
        # blocked around it and reset to default before the mask is restored.
        address = ctypes.addressof
        self._mask, self._every = (ctypes.c_ulong * 16)(), (ctypes.c_ulong * 16)(*[ctypes.c_ulong(-1).value] * 16)
        self._default = (ctypes.c_long * 4)()
        user = self._into.user if self._into is not None else -1
        calls: List[Tuple[int, ...]] = [(vfork.SETFSUID, user)] if user >= 0 else []
        calls += [
            (vfork.SETPGID, 0, 0) if self.shares_session else (vfork.SETSID,),
            (vfork.PRCTL, _PR_SET_PDEATHSIG, signal.SIGKILL),
            *[(vfork.DUP2, 0, fd) for fd in range(3)],
            (vfork.FCNTL, 0, _F_SETFD, 0),
        ]
        calls += [(vfork.CHDIR, _address(self._cwd)), (vfork.UMASK, self._umask)]
        if self._named:
            calls.append((vfork.PRCTL, _PR_SET_PTRACER, self._pid))
        calls += [(vfork.SETRLIMIT, number, address(limit)) for number, limit in self._limits]
        calls += [(vfork.RT_SIGACTION, number, address(self._default), 0, 8) for number in _changed]
        calls += [
            (vfork.RT_SIGPROCMASK, signal.SIG_SETMASK, address(self._mask), 0, 8),
            (vfork.PTRACE, _PTRACE_TRACEME),
        ]
        calls.append((vfork.EXECVE, 0, 0, address(self._env)))
        return vfork.SyscallList(calls)

    def command(self, path: bytes, argv: List[bytes]) -> "tuple[Any, Any]":
        """A command line in the form that exec needs; built once and used for many ranks."""
        made = ctypes.c_char_p(path)
        if is_remote(path):
            self.slow.append(_address(made))
        return made, _vector(argv)

    def into_group(self, group: int) -> None:
        """Start ranks in the control group with this descriptor."""
        self._into = vfork.IntoGroup(group)
        if self._syscalls is not None and self._into.user >= 0:
            self._syscalls = self._plain_syscalls()

    def share_session(self) -> None:
        """Keep ranks in this process's session, which it leads from now on; each rank has its own process group.

        The scheduler gives each session a share of the processors (autogroup), and a rank that yields gives way only to
        its own session: ranks of one session that wait for each other take 15 us, those of two sessions 200 to 4,500
        us.
        """
        if os.getsid(0) != self._pid:
            os.setsid()
        self.shares_session = True
        if self._syscalls is not None:
            self._syscalls = self._plain_syscalls()

    @property
    def grouped(self) -> bool:
        """True if all ranks were started in the control group."""
        return self._into is not None and not self._outside

    def begin_all(self, plans: List[Plan]) -> List[int]:
        """Fork a process for each plan; they exec under hold. Returns their pids.

        A refused fork raises OSError with the pids of those before it as ``pids``.
        """
        pids: List[int] = []
        env, own = self._env, self._own
        for plan in plans:
            env[own], env[own + 1] = plan[0], plan[1]
            for place, entry in enumerate(plan[9], own + 2):
                env[place] = entry
            env[own + 2 + len(plan[9])] = None  # ranks with fewer variables must not inherit another rank's
            pid = self._start(plan)
            if pid < 0 and self._into is not None and -pid not in (errno.EAGAIN, errno.ENOMEM):
                self._into, self._outside = None, True  # not permitted, or not supported by the kernel
                self._syscalls = self._plain_syscalls() if self._syscalls is not None else None
                pid = self._start(plan)
            if pid < 0:
                error = OSError(-pid, os.strerror(-pid))
                error.pids = pids  # type: ignore[attr-defined]
                raise error
            pids.append(pid)
        return pids

    def _start(self, plan: Plan) -> int:
        if self._into is None:
            return self._by_vfork(plan) or self._by_fork(plan)
        self._into.borrow()
        try:
            return self._by_vfork(plan) or self._by_fork(plan)
        finally:
            self._into.give_back()

    def _by_fork(self, plan: Plan) -> int:
        into = self._into
        pid: int = _fork() if into is None else into.fork()
        if pid == 0:
            if into is not None:
                into.give_back()
            self._become(plan)
        return -_get_errno() if pid == -1 and into is None else pid

    def _by_vfork(self, plan: Plan) -> int:
        """The pid of a plain rank, or -errno; 0 if it must be forked."""
        calls, (_, _, rank, path, argv, gated, stdin, out, err, _, kept) = self._syscalls, plan
        if calls is None or gated or self.options is not None or self.namespaces or _address(path) in self.slow:
            return 0
        first = _FIRST_DUP2 + int(self._into is not None and self._into.user >= 0)
        for at, fd in enumerate((stdin, out, err), first):
            calls.put(at, 1, fd)
        calls.put(first + 3, 1, max(kept, 0))  # descriptor 0 is kept anyway
        calls.put(-1, 1, _address(path))
        calls.put(-1, 2, ctypes.addressof(argv))
        _sigprocmask(signal.SIG_SETMASK, self._every, self._mask)
        pid, failed, number = calls.run(self._into)
        _sigprocmask(signal.SIG_SETMASK, self._mask, None)
        if failed == vfork.PTRACE:
            self._syscalls = None  # not permitted: ranks wait at the gate
            return 0
        if failed >= 0:
            self._record(rank, _STEPS.get(failed, SETUP), number)
        return pid

    def plan(
        self,
        rank: int,
        local: int,
        command: "tuple[Any, Any]",
        gated: bool,
        stdin: int,
        out: int,
        err: int,
        more: "Sequence[bytes]" = (),
        kept: int = -1,
    ) -> Plan:
        """Prepare the process of ``rank``, the ``local``-th on this node.

        ``more``: variables of its own; ``kept``: a descriptor that it keeps over its exec.
        """
        return b"YOD_RANK=%d" % rank, b"YOD_LOCAL_RANK=%d" % local, rank, *command, gated, stdin, out, err, more, kept

    def _become(self, plan: Plan) -> NoReturn:
        _, _, rank, path, argv, gated, stdin, out, err, _, kept = plan
        _set_wakeup_fd(-1)
        # A change of ids clears the signal for the parent's death, so change ids before setting it.
        if (
            (_setpgid(0, 0) if self.shares_session else _setsid()) < 0
            or (self.namespaces and not self._enter())
            or _prctl(_ON_DEATH, _KILL, _ZERO, _ZERO, _ZERO) < 0
        ):
            self._fail(rank, SETUP)
        if _getppid() != self._pid:
            _exit(126)
        if self._named:
            _prctl(ctypes.c_ulong(_PR_SET_PTRACER), ctypes.c_ulong(self._pid), _ZERO, _ZERO, _ZERO)
        options = self.options
        if options is not None:
            options.born()
        if _dup2(stdin, 0) < 0 or _dup2(out, 1) < 0 or _dup2(err, 2) < 0:
            self._fail(rank, SETUP)
        if kept >= 0:
            _fcntl(kept, _F_SETFD, 0)
        if _chdir(self._cwd) < 0:
            self._fail(rank, CHDIR)
        _umask(self._umask)
        if options is not None:
            self._prepare(options, rank)
        for number, limit in self._limits:  # last, because Python code needs files and memory
            _setrlimit(number, limit)
        if gated or _ptrace(_TRACEME, _ZERO, _ZERO, _ZERO) < 0:
            self._wait_at_gate(rank)
            if options is not None:
                options.after_gate()
        for number in _ignored:  # exec resets handlers only
            signal.signal(number, signal.SIG_DFL)
        _execve(path, argv, self._env)
        self._fail(rank, EXEC)

    def _enter(self) -> bool:
        _real, acting, kept = os.getresuid()
        lends = acting and not kept  # system mode: only root may enter; afterwards the ids are the user's again
        if lends and _setresuid(-1, 0, -1) < 0:
            return False
        entered = all(_setns(fd, kind) == 0 for fd, kind in self.namespaces)
        return not (lends and _setresuid(-1, acting, -1) < 0) and entered

    def _prepare(self, options: RunOptions, rank: int) -> None:
        try:
            options.before_exec(rank)
        except OSError as error:
            self._record(rank, SETUP, error.errno or 0)
            _exit(126)
        except BaseException:  # no code of ours may continue in a rank
            _exit(126)

    def _fail(self, rank: int, step: int) -> NoReturn:
        number = _get_errno()
        self._record(rank, step, number)
        while True:
            _exit(127 if number == errno.ENOENT else 126)

    def _record(self, rank: int, step: int, number: int) -> None:
        _write(self._records, rank.to_bytes(4, "big") + bytes((step,)) + number.to_bytes(4, "big"), 9)

    def _wait_at_gate(self, rank: int) -> None:
        _close(self._gate_writer)  # so that the launch child's end is the last one
        self._record(rank, AT_GATE, 0)
        if _read(self._gate, self._byte, 1) != 1:
            _exit(126)

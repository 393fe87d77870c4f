"""From fork to exec, touching as little memory as possible.

Every page that parent or child writes after a fork is copied: through os.fork and os.execve, with Python's work around
them, a rank costs about 240 page faults before its program begins, this way about 90. So everything is laid
out as C has it before the fork, and in the child nothing but C's own calls is made. Only for a process without
threads that goes on to exec or leaves: Python's own after-fork work is left out.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal

from agents.pct import kernel

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, NoReturn, Optional, Sequence, Tuple

    from agents.pct.manner import Manner

    Birth = Tuple[Any, ...]

_PR_SET_PDEATHSIG, _PTRACE_TRACEME = 1, 0

_libc = ctypes.PyDLL(None, use_errno=True)  # PyDLL: the lock of the interpreter is kept, there is nobody to give it to
_fork, _execve, _exit = _libc.fork, _libc.execve, _libc._exit
_setsid, _prctl, _ptrace, _getppid = _libc.setsid, _libc.prctl, _libc.ptrace, _libc.getppid
_fcntl, _F_SETFD = _libc.fcntl, 2
_setrlimit, _RLIMIT_NOFILE, _descriptors = _libc.setrlimit, 7, kernel.descriptor_limit
_dup2, _chdir, _umask, _close, _read, _write = (
    _libc.dup2, _libc.chdir, _libc.umask, _libc.close, _libc.read, _libc.write,
)  # fmt: skip
_get_errno = ctypes.get_errno
_set_wakeup_fd = signal.set_wakeup_fd
_ZERO, _ON_DEATH = ctypes.c_ulong(0), ctypes.c_ulong(_PR_SET_PDEATHSIG)
_KILL = ctypes.c_ulong(signal.SIGKILL)
_TRACEME = ctypes.c_ulong(_PTRACE_TRACEME)

#: Steps before the exec; the last three are where a record says that it failed.
AT_GATE, SETUP, CHDIR, EXEC = range(4)


def _vector(items: List[bytes]) -> Any:
    return (ctypes.c_char_p * (len(items) + 1))(*items, None)


class Nursery:
    """What all ranks of a node are born with: environment, directory, mask, the way to report, the gate.

    A record is rank (4 bytes), step (1 byte), errno (4 bytes), big-endian, on ``records``.
    """

    def __init__(
        self, env: Dict[bytes, bytes], cwd: bytes, umask: int, records: int, gate: int, gate_writer: int, more: int = 0
    ) -> None:
        self._own = len(env)
        entries = [name + b"=" + value for name, value in env.items()]
        self._env = _vector([*entries, b"", b"", *[b""] * more])
        self._cwd = ctypes.c_char_p(cwd)
        self._umask = umask
        self._records, self._gate, self._gate_writer = records, gate, gate_writer
        self._pid = os.getpid()
        self._byte = ctypes.create_string_buffer(1)
        self.manner: Optional[Manner] = None  # what is asked for beyond the plain way; Python's own work then

    def command(self, path: bytes, argv: List[bytes]) -> "tuple[Any, Any]":
        """A command line as exec wants it; made once and used for many ranks."""
        return ctypes.c_char_p(path), _vector(argv)

    def begin_all(self, births: List[Birth]) -> List[int]:
        """Fork a process for each, that execs under hold: their pids. What the fork refused raises OSError, with
        the pids of those before it as ``pids``.
        """
        pids: List[int] = []
        env, own, fork = self._env, self._own, _fork
        for birth in births:
            env[own], env[own + 1] = birth[0], birth[1]
            for place, entry in enumerate(birth[9], own + 2):
                env[place] = entry
            pid = fork()
            if pid == 0:
                self._become(birth)
            elif pid < 0:
                number = _get_errno()
                error = OSError(number, os.strerror(number))
                error.pids = pids  # type: ignore[attr-defined]
                raise error
            pids.append(pid)
        return pids

    def birth(
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
    ) -> Birth:
        """Everything that the process of ``rank``, the ``local``-th here, is to be; ``more``: variables of its own;
        ``kept``: a descriptor that it keeps over its exec.
        """
        return b"YOD_RANK=%d" % rank, b"YOD_LOCAL_RANK=%d" % local, rank, *command, gated, stdin, out, err, more, kept

    def _become(self, birth: Birth) -> NoReturn:
        _, _, rank, path, argv, gated, stdin, out, err, _, kept = birth
        _set_wakeup_fd(-1)
        if _setsid() < 0 or _prctl(_ON_DEATH, _KILL, _ZERO, _ZERO, _ZERO) < 0:
            self._fail(rank, SETUP)
        if _getppid() != self._pid:
            _exit(126)
        manner = self.manner
        if manner is not None:
            manner.born()
        if _dup2(stdin, 0) < 0 or _dup2(out, 1) < 0 or _dup2(err, 2) < 0:
            self._fail(rank, SETUP)
        if kept >= 0:
            _fcntl(kept, _F_SETFD, 0)
        if _chdir(self._cwd) < 0:
            self._fail(rank, CHDIR)
        _umask(self._umask)
        if _descriptors[1]:
            _setrlimit(_RLIMIT_NOFILE, _descriptors)
        if manner is not None:
            self._prepare(manner, rank)
        if gated or _ptrace(_TRACEME, _ZERO, _ZERO, _ZERO) < 0:
            self._wait_at_gate(rank)
            if manner is not None:
                manner.after_gate()
        _execve(path, argv, self._env)
        self._fail(rank, EXEC)

    def _prepare(self, manner: Manner, rank: int) -> None:
        try:
            manner.before_exec(rank)
        except OSError as error:
            self._record(rank, SETUP, error.errno or 0)
            _exit(126)
        except BaseException:  # nothing of ours may go on in a rank
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

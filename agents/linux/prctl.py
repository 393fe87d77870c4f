"""Calls that the standard library lacks: prctl and ptrace, through agents/linux/libc.py."""

from __future__ import annotations

import gc
import os

from agents.link.lean import signal
from agents.linux.libc import Char, Int, Long, Pointer, Unsigned, addressof, function, get_errno

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Optional, Tuple

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 4, 15, 36
_PTRACE_TRACEME, _PTRACE_CONT, _PTRACE_DETACH, _PTRACE_SETOPTIONS = 0, 7, 17, 0x4200
_PTRACE_SEIZE, _PTRACE_LISTEN = 0x4206, 0x4208
_PTRACE_O_EXITKILL = 0x100000
_PTRACE_O_TRACECLONE, _PTRACE_O_TRACEEXEC = 8, 16

_prctl = function("prctl", Int, Int, Unsigned, Unsigned, Unsigned, Unsigned)
_ptrace = function("ptrace", Long, Long, Long, Pointer, Pointer)
_getrlimit = function("getrlimit", Int, Int, Pointer)
_setrlimit = function("setrlimit", Int, Int, Pointer)
_memmove = function("memmove", Pointer, Pointer, Pointer, Unsigned)

_RLIMIT_CORE = 4
_RLIMIT_NOFILE = 7

#: Soft and hard limit of open files with which the node was started; ranks get them back.
descriptor_limit = (Unsigned * 2)()


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to the hard limit: a rank takes four of its launch child's."""
    if _getrlimit(_RLIMIT_NOFILE, addressof(descriptor_limit)) == 0:
        most = (Unsigned * 2)(descriptor_limit[1], descriptor_limit[1])
        _setrlimit(_RLIMIT_NOFILE, addressof(most))


def forbid_core() -> None:
    """Forbid core dumps of this process: its memory, with keys in it, must not be written to a file."""
    none = (Unsigned * 2)(0, 0)
    _setrlimit(_RLIMIT_CORE, addressof(none))


def forbid_tracing() -> None:
    """Forbid other processes of this uid to trace this one and to read its memory."""
    _prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def limits_here(number: int) -> Optional[Tuple[int, int]]:
    """This process's soft and hard limit of a resource (setrlimit(2)); None if the kernel has no such resource."""
    there = (Unsigned * 2)()
    return None if _getrlimit(number, addressof(there)) != 0 else (there[0], there[1])


def settle_memory() -> None:
    """After start-up: return memory left by imports, and freeze objects so that the collector does not touch (and
    copy) them."""
    gc.enable()
    gc.collect()
    try:
        function("malloc_trim", Int, Unsigned)(0)
    except OSError:
        pass  # a C library other than glibc
    gc.freeze()


def _fail() -> None:
    number = get_errno()
    raise OSError(number, os.strerror(number))


def become_subreaper() -> None:
    """Become the parent of orphaned descendants (see prctl(2))."""
    if _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        _fail()


def die_with_parent() -> None:
    """Have the kernel send SIGKILL when the parent dies; the caller must check getppid afterwards. Cleared by a setuid
    exec."""
    if _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        _fail()


def set_name(name: bytes) -> None:
    """Set the process name shown by ps and top (15 bytes)."""
    buffer = (Char * 16)(*[bytes((byte,)) for byte in name[:15]])
    _prctl(_PR_SET_NAME, addressof(buffer), 0, 0, 0)


def set_title(text: str) -> None:
    """Set the command line shown by ``ps -f``: the arguments are overwritten as far as there is room."""
    try:
        with open("/proc/self/stat", "rb", buffering=0) as file:
            fields = file.read(1024).rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end of proc(5), its fields 48 and 49
    except (OSError, IndexError, ValueError):
        return
    if 0 < start < end:
        title = text.encode("utf-8", "surrogateescape")[: end - start - 1]
        _memmove(start, title.ljust(end - start, b"\0"), end - start)


def trace_me() -> None:
    """Let the parent trace us: the next exec stops before its first instruction. Raises OSError if that is not
    allowed."""
    if _ptrace(_PTRACE_TRACEME, 0, None, None):
        _fail()


def tracers_are_named() -> bool:
    """True if a process may be traced only by its ancestors and a tracer that it names (Yama's ptrace_scope 1)."""
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", "rb", buffering=0) as file:
            return file.read(8).strip() == b"1"
    except OSError:
        return False


def kill_with_tracer(pid: int) -> None:
    """Kill a stopped tracee with us, instead of letting it run on (when a tracer exits, its tracees continue)."""
    _ptrace(_PTRACE_SETOPTIONS, pid, None, _PTRACE_O_EXITKILL)


def keep_watch(pid: int) -> None:
    """Keep tracing a stopped tracee with all its future threads; an exec is reported as an event, not by SIGTRAP."""
    _ptrace(_PTRACE_SETOPTIONS, pid, None, _PTRACE_O_EXITKILL | _PTRACE_O_TRACECLONE | _PTRACE_O_TRACEEXEC)


def seize(pid: int) -> None:
    """Trace a process that is not our child without stopping it; its next exec stops, and it dies with us. Raises
    OSError."""
    if _ptrace(_PTRACE_SEIZE, pid, None, _PTRACE_O_EXITKILL | _PTRACE_O_TRACEEXEC):
        _fail()


def stay_stopped(pid: int) -> None:
    """Leave a seized tracee that SIGSTOP or the like has stopped in that state until SIGCONT."""
    _ptrace(_PTRACE_LISTEN, pid, None, None)


def resume(pid: int, number: int) -> None:
    """Deliver the signal for which a tracee stopped, and let it continue, still traced."""
    _ptrace(_PTRACE_CONT, pid, None, number)


def release(pid: int, number: int = 0) -> None:
    """Let a stopped tracee continue untraced, with an initial signal (SIGSTOP: it stays stopped).

    Raises OSError (ESRCH) if it does not exist.
    """
    if _ptrace(_PTRACE_DETACH, pid, None, number):
        _fail()

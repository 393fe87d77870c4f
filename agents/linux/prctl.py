"""What the standard library has no name for: prctl and ptrace, by agents/linux/libc.py."""

from __future__ import annotations

import gc
import os

from agents.link.lean import signal
from agents.linux.libc import Char, Int, Long, Pointer, Unsigned, addressof, function, get_errno

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36
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

#: Soft and hard limit of open files that the node was started with: what ranks get back.
descriptor_limit = (Unsigned * 2)()


def raise_descriptor_limit() -> None:
    """As many open files as the hard limit allows: a rank takes four of its launch child's."""
    if _getrlimit(_RLIMIT_NOFILE, addressof(descriptor_limit)) == 0:
        most = (Unsigned * 2)(descriptor_limit[1], descriptor_limit[1])
        _setrlimit(_RLIMIT_NOFILE, addressof(most))


def forbid_core() -> None:
    """Whatever this process dies of: its memory, with keys in it, is written to no file."""
    none = (Unsigned * 2)(0, 0)
    _setrlimit(_RLIMIT_CORE, addressof(none))


def limit_of(number: int, soft: int) -> Any:
    """The soft limit ``soft`` (-1: none) and our hard limit as setrlimit(2) has them; the hard one where it is less."""
    there = (Unsigned * 2)()
    if number == _RLIMIT_NOFILE and descriptor_limit[1]:
        there[1] = descriptor_limit[1]
    elif _getrlimit(number, addressof(there)) != 0:
        return None
    return (Unsigned * 2)(min(Unsigned(soft).value, there[1]), there[1])


def settle_memory() -> None:
    """After start-up: give back what importing left, and let no collector touch (and so copy) the rest."""
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
    """Orphans among our descendants become our children from now on (see prctl(2))."""
    if _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        _fail()


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Be sent ``number`` when the parent dies; the caller checks getppid afterwards. Cleared by a setuid exec."""
    if _prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0):
        _fail()


def set_name(name: bytes) -> None:
    """What ps and top call this process (15 bytes)."""
    buffer = (Char * 16)(*[bytes((byte,)) for byte in name[:15]])
    _prctl(_PR_SET_NAME, addressof(buffer), 0, 0, 0)


def set_title(text: str) -> None:
    """What ``ps -f`` shows of this process: its arguments are overwritten, as far as there is room."""
    try:
        with open("/proc/self/stat", "rb", buffering=0) as file:
            fields = file.read(1024).rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end of proc(5), its fields 48 and 49
    except (OSError, IndexError, ValueError):
        return
    if 0 < start < end:
        _memmove(start, text.encode("utf-8", "replace")[: end - start - 1].ljust(end - start, b"\0"), end - start)


def trace_me() -> None:
    """Let the parent trace us: the next exec stops before its first instruction. OSError where that is not allowed."""
    if _ptrace(_PTRACE_TRACEME, 0, None, None):
        _fail()


def tracers_are_named() -> bool:
    """Whether a process is traced only by its ancestors and whom it names (Yama's ptrace_scope 1)."""
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", "rb", buffering=0) as file:
            return file.read(8).strip() == b"1"
    except OSError:
        return False


def kill_with_tracer(pid: int) -> None:
    """A stopped tracee dies with us instead of running on (a tracer's end lets its tracees go)."""
    _ptrace(_PTRACE_SETOPTIONS, pid, None, _PTRACE_O_EXITKILL)


def keep_watch(pid: int) -> None:
    """A stopped tracee stays traced with all threads it makes; a further exec is told as an event, not by SIGTRAP."""
    _ptrace(_PTRACE_SETOPTIONS, pid, None, _PTRACE_O_EXITKILL | _PTRACE_O_TRACECLONE | _PTRACE_O_TRACEEXEC)


def seize(pid: int) -> None:
    """Trace a process that is not our child, without stopping it: its next exec stops, and it dies with us. OSError."""
    if _ptrace(_PTRACE_SEIZE, pid, None, _PTRACE_O_EXITKILL | _PTRACE_O_TRACEEXEC):
        _fail()


def stay_stopped(pid: int) -> None:
    """Leave a seized tracee, which SIGSTOP or the like has stopped, stopped until SIGCONT."""
    _ptrace(_PTRACE_LISTEN, pid, None, None)


def resume(pid: int, number: int) -> None:
    """Let a tracee that stopped for a signal have it and go on, still traced."""
    _ptrace(_PTRACE_CONT, pid, None, number)


def release(pid: int, number: int = 0) -> None:
    """Let a stopped tracee run, untraced, with a signal to begin with (SIGSTOP: it stays stopped).

    OSError (ESRCH) when it is gone.
    """
    if _ptrace(_PTRACE_DETACH, pid, None, number):
        _fail()

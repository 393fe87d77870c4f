"""Starts a process by vfork (or clone3 in the same way): it executes a list of system calls, the last of which is
its exec.

After a fork, every page that parent or child writes is copied. After vfork(2) they share all memory, and the parent
waits until the exec, so nothing is copied. In between, no Python code may run, because it would corrupt the parent's
memory. So the child's work is a prepared list of system calls, executed by 76 bytes of machine code
(docs/decisions/0008-ranks-by-vfork.md). If these cannot run (another processor, no executable memory), RUN_SYSCALLS is
None, and ranks are forked as in agents/pct/ranks/fork.py.

Measured (``python -m tests.bench.handwork``): 256 processes over 64 PCTs start in 271 ms with it, 456 ms without.
"""

from __future__ import annotations

import ctypes
import os
from _signal import getsignal  # type: ignore[import-not-found]  # signal's own makes enums, slowly

from agents.link.lean import signal

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, List, Optional, Sequence, Tuple

#: x86-64. Input: rdi, the list; rsi, the call that creates the child; rdx, rcx, its arguments. Output: the child's pid,
#: or -errno. A failed call leaves -errno in place of its number.
_CODE = bytes.fromhex(
    "f30f1efa"  # endbr64
    "4989f9"  # mov r9, rdi         no system call here has a sixth argument, and none changes r9
    "4889f0"  # mov rax, rsi        vfork or clone3
    "4889d7"  # mov rdi, rdx
    "4889ce"  # mov rsi, rcx
    "0f05"  # syscall
    "4885c0"  # test rax, rax
    "7401"  # jz next
    "c3"  # ret                     the parent; the child never returns, nor writes to the stack they share
    "498b01"  # next: mov rax, [r9]
    "498b7908"  # mov rdi, [r9+8]
    "498b7110"  # mov rsi, [r9+16]
    "498b5118"  # mov rdx, [r9+24]
    "4d8b5120"  # mov r10, [r9+32]
    "4d8b4128"  # mov r8, [r9+40]
    "0f05"  # syscall
    "4885c0"  # test rax, rax
    "7806"  # js failed
    "4983c130"  # add r9, 48
    "ebdc"  # jmp next
    "498901"  # failed: mov [r9], rax
    "bf7e000000"  # mov edi, 126
    "b8e7000000"  # mov eax, 231    exit_group
    "0f05"  # syscall
    "f4"  # hlt
)
_WORDS = 6  # of an entry: number and five arguments

RT_SIGACTION, RT_SIGPROCMASK, DUP2, EXECVE, FCNTL, CHDIR, UMASK = 13, 14, 33, 59, 72, 80, 95
PTRACE, SETPGID, SETSID, SETFSUID, PRCTL, SETRLIMIT = 101, 109, 112, 122, 157, 160
VFORK, CLONE3 = 58, 435  # clone3 has one number on all processors
CLONE_VM, CLONE_VFORK, CLONE_INTO_CGROUP = 0x100, 0x4000, 0x200000000

_libc = ctypes.PyDLL(None, use_errno=True)
_syscall, _setfsuid = _libc.syscall, _libc.setfsuid
_syscall.restype = ctypes.c_long

_PROT_RW, _PROT_RX, _MAP_PRIVATE_ANONYMOUS, _PAGE = 3, 5, 0x22, 4096


def _walker() -> "Optional[Any]":
    if os.uname().machine != "x86_64" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, *[ctypes.c_size_t] * 4, ctypes.c_long)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    place = libc.mmap(None, _PAGE, _PROT_RW, _MAP_PRIVATE_ANONYMOUS, ctypes.c_size_t(-1).value, 0)
    if place in (None, ctypes.c_size_t(-1).value):
        return None
    ctypes.memmove(place, _CODE, len(_CODE))
    if libc.mprotect(place, _PAGE, _PROT_RX) != 0:
        return None
    # PYFUNCTYPE keeps the interpreter's lock, which no other thread needs.
    arguments = (ctypes.c_void_p, ctypes.c_long, ctypes.c_void_p, ctypes.c_size_t)
    return ctypes.PYFUNCTYPE(ctypes.c_long, *arguments)(place)


RUN_SYSCALLS = _walker()


class IntoGroup:
    """Starts processes in a control group with clone3(2). A process that moves itself there waits 7 ms and more.

    ``group`` is the group's descriptor. In system mode only root may do this: a launch child that acts as a user takes
    root's file rights for the call, and its children drop them first.
    """

    def __init__(self, group: int) -> None:
        _real, acting, kept = os.getresuid()
        #: The user whose file rights the child takes again; -1 if they are its own anyway.
        self.user = acting if acting and not kept else -1
        self._copied = self._arguments(CLONE_INTO_CGROUP, group)
        self._shared = self._arguments(CLONE_INTO_CGROUP | CLONE_VM | CLONE_VFORK, group)
        #: The call and its arguments by which SyscallList.run starts a child that shares our memory until its exec.
        self.shared = CLONE3, ctypes.addressof(self._shared), ctypes.sizeof(self._shared)

    @staticmethod
    def _arguments(flags: int, group: int) -> "Any":
        # struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
        # set_tid_size, cgroup
        return (ctypes.c_uint64 * 11)(flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, group)

    def fork(self) -> int:
        """As fork(2), without the C library's own work: the pid, or -errno."""
        pid: int = _syscall(ctypes.c_long(CLONE3), self._copied, ctypes.c_size_t(ctypes.sizeof(self._copied)))
        return pid if pid >= 0 else -ctypes.get_errno()

    def borrow(self) -> None:
        """Take root's file rights, before a child is started."""
        if self.user >= 0:
            _setfsuid(0)

    def give_back(self) -> None:
        """Drop them again: in the parent, and first thing in a forked child."""
        if self.user >= 0:
            _setfsuid(self.user)


class SyscallList:
    """A list of system calls, each a number and up to five arguments (integers or addresses)."""

    def __init__(self, calls: "Sequence[Tuple[int, ...]]") -> None:
        self._numbers = [call[0] for call in calls]
        self._words = (ctypes.c_long * (_WORDS * len(calls)))()
        for at, call in enumerate(calls):
            self._words[at * _WORDS : at * _WORDS + len(call)] = list(call)

    def put(self, at: int, argument: int, value: int) -> None:
        """Set argument number ``argument`` (from 1) of the call at ``at`` (-1: the last)."""
        self._words[at % len(self._numbers) * _WORDS + argument] = value

    def run(self, into: "Optional[IntoGroup]" = None) -> "Tuple[int, int, int]":
        """Start a process; returns its pid (or -errno), and the index and errno of the call that failed in it, else
        -1 and 0."""
        assert RUN_SYSCALLS is not None
        maker, place, size = (VFORK, 0, 0) if into is None else into.shared
        pid: int = RUN_SYSCALLS(ctypes.addressof(self._words), maker, place, size)
        words = self._words
        for at, number in enumerate(self._numbers):
            if words[at * _WORDS] != number:
                code = -words[at * _WORDS]
                words[at * _WORDS] = number
                return pid, number, code
        return pid, -1, 0


def changed_signals() -> "List[int]":
    """Signals that have a handler, which a child must not run before its exec, or are ignored, as its program would
    then ignore them too."""
    return [number for number in range(1, signal.NSIG) if getsignal(number) not in (signal.SIG_DFL, None)]

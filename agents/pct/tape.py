"""A new process by vfork: it makes the system calls of a list, the last of which is its exec.

After fork every page that parent or child writes is copied; after vfork(2) they share all memory and the parent stands
still until the exec, so nothing is. Between the two no code of ours may run, for it would spoil the parent's memory: so
what the child does is laid out before as a list of system calls, and 72 bytes of machine code walk it
(docs/decisions/0008-ranks-by-vfork.md). Where they cannot run (another processor, no executable memory) WALK is None,
and ranks are forked as agents/pct/birth.py has it.
"""

from __future__ import annotations

import ctypes
import os
from _signal import getsignal  # type: ignore[import-not-found]  # signal's own makes enums, slowly

from agents.link.lean import signal

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, List, Optional, Sequence, Tuple

#: x86-64. In: rdi, the list. Out: the child's pid, or -errno. A call that fails leaves -errno in place of its number.
_CODE = bytes.fromhex(
    "f30f1efa"  # endbr64
    "4989f9"  # mov r9, rdi         no system call here has a sixth argument, and none changes r9
    "b83a000000"  # mov eax, 58     vfork
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
PTRACE, SETSID, PRCTL, SETRLIMIT = 101, 112, 157, 160

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
    # PYFUNCTYPE: the lock of the interpreter is kept, there is nobody to give it to
    return ctypes.PYFUNCTYPE(ctypes.c_long, ctypes.c_void_p)(place)


WALK = _walker()


class Tape:
    """A list of system calls, each a number and up to five arguments (integers or addresses)."""

    def __init__(self, calls: "Sequence[Tuple[int, ...]]") -> None:
        self._numbers = [call[0] for call in calls]
        self._words = (ctypes.c_long * (_WORDS * len(calls)))()
        for at, call in enumerate(calls):
            self._words[at * _WORDS : at * _WORDS + len(call)] = list(call)

    def put(self, at: int, argument: int, value: int) -> None:
        """Argument number ``argument`` (from 1) of the call at ``at`` (-1: the last)."""
        self._words[at % len(self._numbers) * _WORDS + argument] = value

    def run(self) -> "Tuple[int, int, int]":
        """Pid of a new process (or -errno); the number and errno of the call that failed in it, else -1 and 0."""
        assert WALK is not None
        pid: int = WALK(ctypes.addressof(self._words))
        words = self._words
        for at, number in enumerate(self._numbers):
            if words[at * _WORDS] != number:
                code = -words[at * _WORDS]
                words[at * _WORDS] = number
                return pid, number, code
        return pid, -1, 0


def handled_signals() -> "List[int]":
    """Signals that have a handler here, which a child must not run before its exec."""
    return [number for number in range(1, signal.NSIG) if callable(getsignal(number))]

"""Stacks of many processes by libdw (elfutils) in one forked helper: like eu-stack, without its start for each
process.

Starting eu-stack costs ten times as much as reading a stack. The helper may crash or be killed without harm to the
launch child. Because it is a copy of the launch child and reads files of the user, it is not used in system mode, where
a launch child has secrets in memory (``may_help``); there, tools are started instead.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal

from agents.link.loop import READ
from agents.linux import prctl, processes
from agents.pct.debug.parsers import Frame, Thread
from redmesh.byte_text import from_bytes

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple

    from agents.link.loop import Loop

LIBRARY = "libdw.so.1"
_FRAMES = 64
_THREADS = 1024
_pointer = ctypes.c_void_p
_visit = ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _pointer)


def may_help() -> bool:
    """True if this process has only its user's rights, unlike a launch child in system mode."""
    _, user, saved = os.getresuid()
    return user == saved


class Unwinder:
    """Reads the stacks of ``pids``, one after the other, each within ``limit_s``.

    Calls ``told(pid, threads)`` for each, without threads if it is unreadable, and ``over(left, late)`` at the end: the
    pids that were not reported, and whether the first of them timed out.
    """

    def __init__(
        self,
        loop: Loop,
        pids: List[int],
        limit_s: float,
        told: Callable[[int, List[Thread]], None],
        over: Callable[[List[int], bool], None],
    ) -> None:
        self._loop, self._left, self._limit_s, self._told, self._over = loop, list(pids), limit_s, told, over
        self._data = bytearray()
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self._helper = os.fork()
        except OSError:
            os.close(reader)
            os.close(writer)
            raise
        if self._helper == 0:
            _help(pids, writer)
        os.close(writer)
        self._fd = reader
        self._timer = loop.after(limit_s, self._late)
        loop.watch(reader, READ, self._on_data)

    def _on_data(self, _events: int) -> None:
        try:
            data = os.read(self._fd, 1 << 18)
        except BlockingIOError:
            return
        if not data:
            self._let_go()
            self._over(self._left, False)
            return
        self._data += data
        while b"\n" in self._data and self._fd >= 0:
            line, _, rest = self._data.partition(b"\n")
            self._data = rest
            self._take(bytes(line))

    def _take(self, line: bytes) -> None:
        try:
            pid, rows = json.loads(line)
            threads = [Thread(tid, [Frame(f, "", m, a) for f, m, a in frames]) for tid, frames in rows]
        except (ValueError, TypeError):
            return
        if pid in self._left:
            self._left.remove(pid)
            self._timer.cancel()
            self._timer = self._loop.after(self._limit_s, self._late)
            self._told(pid, threads)

    def _late(self) -> None:
        self.cancel()
        self._over(self._left, True)

    def _let_go(self) -> None:
        self._timer.cancel()
        if self._fd >= 0:
            self._loop.unwatch(self._fd)
            os.close(self._fd)
            self._fd = -1

    def cancel(self) -> None:
        """Stop waiting."""
        self._let_go()
        if processes.parent(self._helper) == os.getpid():
            processes.send_signal(self._helper, signal.SIGKILL)


def _help(pids: List[int], writer: int) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_DFL)
        # Close the caller's sockets and pipes here: peers notice an exit only when all copies are closed.
        os.dup2(writer, 3)
        os.closerange(4, 1 << 16)
        os.set_blocking(3, True)
        prctl.die_with_parent()
        stacks = _Stacks()
        for pid in pids:
            line = json.dumps([pid, stacks.of(pid)]).encode("ascii") + b"\n"
            while line:
                line = line[os.write(3, line) :]
    finally:
        os._exit(0)


class _Callbacks(ctypes.Structure):
    _fields_ = [
        ("find_elf", _pointer), ("find_debuginfo", _pointer), ("section_address", _pointer),
        ("debuginfo_path", _pointer),
    ]  # fmt: skip


class _Stacks:
    """The functions of libdwfl. Raises OSError if it is not installed."""

    def __init__(self) -> None:
        lib = self._lib = ctypes.CDLL(LIBRARY)
        for name in ("dwfl_begin", "dwfl_addrmodule"):
            getattr(lib, name).restype = _pointer
        for name in ("dwfl_module_addrname", "dwfl_module_info"):
            getattr(lib, name).restype = ctypes.c_char_p
        lib.dwfl_getthreads.argtypes = (_pointer, _visit, _pointer)
        lib.dwfl_thread_getframes.argtypes = (_pointer, _visit, _pointer)

        def address(function: Any) -> Optional[int]:
            return ctypes.cast(function, _pointer).value

        self._callbacks = _Callbacks(
            address(lib.dwfl_linux_proc_find_elf), address(lib.dwfl_standard_find_debuginfo), 0, 0
        )
        self._counter, self._innermost = ctypes.c_uint64(), ctypes.c_bool()
        self._threads: List[Tuple[int, List[int]]] = []
        self._on_frame, self._on_thread = _visit(self._frame), _visit(self._thread)
        self._known: Dict[Tuple[bytes, int], Tuple[str, str]] = {}
        self._demangle = _demangler()

    def _thread(self, thread: int, _argument: int) -> int:
        self._threads.append((self._lib.dwfl_thread_tid(_pointer(thread)), []))
        self._lib.dwfl_thread_getframes(_pointer(thread), self._on_frame, None)
        return int(len(self._threads) >= _THREADS)

    def _frame(self, state: int, _argument: int) -> int:
        frames = self._threads[-1][1]
        if self._lib.dwfl_frame_pc(_pointer(state), ctypes.byref(self._counter), ctypes.byref(self._innermost)):
            # The return address is behind the call; one byte before it certainly belongs to the call.
            frames.append(self._counter.value if self._innermost.value else -self._counter.value)
        return int(len(frames) >= _FRAMES)

    def of(self, pid: int) -> List[Any]:
        """[thread, [[function, module, address] …]] of each thread, the innermost call first."""
        lib = self._lib
        self._threads = []
        session = _pointer(lib.dwfl_begin(ctypes.byref(self._callbacks)))
        try:
            if lib.dwfl_linux_proc_report(session, pid) or lib.dwfl_report_end(session, None, None):
                return []
            if lib.dwfl_linux_proc_attach(session, pid, ctypes.c_bool(False)):
                return []
            lib.dwfl_getthreads(session, self._on_thread, None)
            return [[tid, [self._named(session, frame) for frame in frames]] for tid, frames in self._threads if frames]
        finally:
            lib.dwfl_end(session)

    def _named(self, session: Any, frame: int) -> List[Any]:
        address = abs(frame)
        inside = ctypes.c_uint64(address - (frame < 0))
        module = _pointer(self._lib.dwfl_addrmodule(session, inside))
        if not module:
            return ["", "", address]
        begin = ctypes.c_uint64()
        nothing = [None] * 5
        path = self._lib.dwfl_module_info(module, None, ctypes.byref(begin), *nothing) or b""
        key = (path, inside.value - begin.value)
        if key not in self._known:
            name = self._lib.dwfl_module_addrname(module, inside) or b""
            self._known[key] = self._demangle(name), from_bytes(path)
        return [*self._known[key], address]


def _demangler() -> Callable[[bytes], str]:
    """Demangles C++ names if the C++ library is installed."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return from_bytes
    demangle, free = library.__cxa_demangle, library.free
    demangle.restype = _pointer

    def readable(name: bytes) -> str:
        if name.startswith(b"_Z"):
            status = ctypes.c_int(-1)
            found = demangle(name, None, None, ctypes.byref(status))
            if found and status.value == 0:
                name = ctypes.string_at(found)
                free(_pointer(found))
        return from_bytes(name)

    return readable

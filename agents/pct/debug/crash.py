"""The stack of a process that dies of a signal (``yod -g``).

The tracer (a launch child) sees a fatal signal before it is delivered. ``park`` leaves the process stopped and
untraced, so that eu-stack or gdb can read it. ``begin`` reads it in a separate process, because a launch child has
output to relay meanwhile. ``deliver`` then delivers the signal, so that the exit status is unchanged.

All of this runs tools on files of the user: as the user, never as root (``as_user``), with an environment of our own,
no start-up files, no downloads, and limits on time and output.
"""

import json
import os
import select
import signal
import time
from typing import Dict, List, Optional, Tuple

from agents.linux import prctl, processes
from agents.pct.debug.parsers import (
    Backtrace,
    Frame,
    Thread,
    parse_eu_stack,
    parse_gdb,
    parse_maps,
    parse_py_spy,
    parse_syscall,
    place,
)
from redmesh.byte_text import from_bytes

#: Signals that show a fault of the program; others (TERM, KILL, PIPE …) come from outside.
FAULTS = frozenset(
    (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSYS, signal.SIGTRAP)
)

LIMIT_S = 10.0
_FRAMES = 64
_MOST = 1 << 20  # bytes of a tool's output: 64 frames of some thousand threads
_STOP_S = 1.0
_WALL = 0x40000000  # wait for threads, not only processes (wait(2)); the os module has no name for it
_HINT = "install elfutils (eu-stack) or gdb on the node"

As = Optional[Tuple[int, int, List[int]]]  # uid, gid, groups

_PATHS = ("/usr/bin", "/bin", "/usr/local/bin")
ENVIRONMENT = {
    "PATH": ":".join(_PATHS),
    "LC_ALL": "C.UTF-8",
    "HOME": "/nonexistent",
    "DEBUGINFOD_URLS": "",
    "PYTHONNOUSERSITE": "1",
}


def fatal(pid: int, number: int) -> bool:
    """True if signal ``number`` is a fault for which ``pid`` has no handler (a handler runs first)."""
    if number not in FAULTS:
        return False
    return not any(int(field(pid, name) or "0", 16) >> (number - 1) & 1 for name in ("SigCgt", "SigIgn"))


def decide(tid: int, status: int, *, known: bool) -> Tuple[bool, int]:
    """Decide what to do at a stop of a watched thread (kernel.keep_watch): whether to read its stack, and the
    signal.

    If the stack is not read, continue with kernel.resume(tid, signal). A thread that is not ``known`` begins with a
    SIGSTOP of the kernel's, which is not delivered. Threads are reaped with ``__WALL``.
    """
    number = os.WSTOPSIG(status)
    if status >> 16 or (number == signal.SIGSTOP and not known):
        return False, 0
    return fatal(tid, number), number


def park(tid: int) -> int:
    """Leave a process whose thread ``tid`` has stopped for a signal stopped and untraced; returns the process's id.

    Only its tracer can do this. Raises OSError if the process does not exist.
    """
    pid = _process_of(tid)
    prctl.release(tid, signal.SIGSTOP)
    # This stops the other threads too; as tracees they report the stop, and when they are detached in it they stay
    # stopped.
    until = time.monotonic() + _STOP_S
    for name in _names(f"/proc/{pid}/task"):
        other = int(name)
        while other != tid and _tracer(other) == os.getpid() and time.monotonic() < until:
            try:
                waited, status = os.waitpid(other, _WALL | os.WNOHANG)
                if waited and os.WIFSTOPPED(status):
                    prctl.release(other)
                elif not waited:
                    time.sleep(0.0005)  # waitpid has no time-out
            except OSError:
                break  # it has exited
    return pid


def deliver(pid: int, number: int, started: int = 0) -> None:
    """Deliver to a parked process the signal for which it was stopped."""
    for each in (number, signal.SIGCONT):
        try:
            processes.send_signal(pid, each, started)
        except PermissionError:
            return


def collect(tid: int, number: int, limit_s: float = LIMIT_S, as_user: As = None) -> Backtrace:
    """Park, read and deliver, for a tracer that has nothing else to do. Blocks for at most ``limit_s``."""
    pid = park(tid)
    try:
        return take(pid, limit_s, as_user, parked=True, first=tid)
    finally:
        deliver(pid, number)


class Looking:
    """A helper process that reads a parked process: whenever ``fd`` is readable, call ``result`` until it is not
    None."""

    __slots__ = ("_data", "fd", "helper", "number", "pid", "started")

    def __init__(self, pid: int, number: int, started: int, helper: int, fd: int) -> None:
        self.pid, self.number, self.started = pid, number, started
        self.helper, self.fd = helper, fd
        self._data = bytearray()

    def result(self) -> Optional[Backtrace]:
        """The backtrace when it is complete. The signal has then been delivered, even if the helper failed."""
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return None
        if data:
            self._data += data
            return None
        os.close(self.fd)
        self.fd = -1
        deliver(self.pid, self.number, self.started)
        try:
            return Backtrace.from_message(json.loads(self._data))
        except (ValueError, KeyError, TypeError):
            return Backtrace(self.pid, "", [], "no stack trace: its helper ended before it was done")

    def cancel(self) -> None:
        """Stop the helper, and deliver the signal at once."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        processes.send_signal(self.helper, signal.SIGKILL)
        deliver(self.pid, self.number, self.started)


def begin(tid: int, number: int, limit_s: float = LIMIT_S, as_user: As = None) -> Looking:
    """Park the process of ``tid`` and read it in a forked helper, which the caller reaps with its other children."""
    pid = park(tid)
    started = processes.start_time(pid)
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        helper = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        deliver(pid, number, started)
        raise
    if helper == 0:
        _help(pid, tid, writer, limit_s, as_user)
    os.close(writer)
    return Looking(pid, number, started, helper, reader)


def _help(pid: int, tid: int, writer: int, limit_s: float, as_user: As) -> None:
    try:
        signal.set_wakeup_fd(-1)
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(each, signal.SIG_DFL)
        prctl.die_with_parent()
        # Close the caller's sockets and pipes here: peers notice an exit only when all copies are closed.
        os.dup2(writer, 3)
        os.closerange(4, 1 << 16)
        os.set_blocking(3, True)
        view = memoryview(json.dumps(take(pid, limit_s, as_user, parked=True, first=tid).as_message()).encode("ascii"))
        while view:
            view = view[os.write(3, view) :]
    finally:
        os._exit(0)


def take(pid: int, limit_s: float = LIMIT_S, as_user: As = None, *, parked: bool = False, first: int = 0) -> Backtrace:
    """The stack of ``pid``, which runs or is stopped, by the best available tool. Does not raise if no tool is
    available.

    Thread ``first`` (the one at fault; otherwise the main thread) is the first in the result.
    """
    until = time.monotonic() + limit_s
    if parked:
        _wait_until_stopped(pid, until)
    threads, tool, failed = _native(pid, until, as_user)
    note = "" if threads else f"symbols are missing ({failed or 'neither eu-stack nor gdb is here'}): {_HINT}"
    if not threads:
        threads, tool = without_tools(pid), "proc"
    if is_python(pid):
        python, why = _python(pid, until, as_user)
        if python:
            threads, tool = python + threads, f"py-spy and {tool}"
        else:
            note = "; ".join(filter(None, (note, f"Python's own frames: {why}")))
    elif _dies_in_go(threads):
        note = "; ".join(filter(None, (note, "what Go called is in its traceback on the program's stderr")))
    return Backtrace(pid, tool, _first(threads, first or pid), note)


def _dies_in_go(threads: List[Thread]) -> bool:
    # Go raises the signal in its handler, on a separate stack that no tool can unwind.
    return any(frame.function.startswith("runtime.sigtramp") for thread in threads for frame in thread.frames)


def _first(threads: List[Thread], tid: int) -> List[Thread]:
    # A stable sort keeps Python's frames before the interpreter's.
    return sorted(threads, key=lambda thread: thread.tid != tid)


def _native(pid: int, until: float, as_user: As) -> Tuple[List[Thread], str, str]:
    failed = []
    tools = (
        ("eu-stack", ["-m", "-s", "-n", str(_FRAMES), "-p", str(pid)], parse_eu_stack),
        ("gdb", [*GDB, "-p", str(pid), "-ex", f"thread apply all backtrace {_FRAMES}"], parse_gdb),
    )
    for name, arguments, parse in tools:
        program = find(name)
        if not program:
            continue
        text, why = run([program, *arguments], until, as_user)
        threads = parse(text)
        if threads:
            return threads, name, ""
        failed.append(f"{name}: {why or 'it found no frames'}")
    return [], "", "; ".join(failed)


GDB = ["-nx", "-nh", "-batch", "-iex", "set auto-load off", "-iex", "set debuginfod enabled off"]
GDB += ["-iex", "set python print-stack none", "-iex", "set width 0", "-iex", "set print frame-arguments none"]


def _python(pid: int, until: float, as_user: As) -> Tuple[List[Thread], str]:
    program = find("py-spy")
    if not program:
        return [], "on the program's stderr if PYTHONFAULTHANDLER was set; else install py-spy on the node"
    text, why = run([program, "dump", "--nonblocking", "--pid", str(pid)], until, as_user)
    threads = parse_py_spy(text)
    return threads, why or "py-spy found no frames"


def without_tools(pid: int) -> List[Thread]:
    """What /proc alone shows for each thread: state, kernel function, system call, and the program counter's module."""
    maps = parse_maps(read(f"/proc/{pid}/maps"))
    threads = []
    for name in sorted(_names(f"/proc/{pid}/task"), key=int):
        base = f"/proc/{pid}/task/{name}"
        call, _, counter = parse_syscall(read(f"{base}/syscall"))
        frames = []
        waiting = read(f"{base}/wchan").strip()
        if call is not None:
            frames.append(Frame(f"system call {call}" + (f" ({waiting})" if waiting not in ("", "0") else "")))
        if counter:
            frames.append(place(counter, maps))
        if not frames:
            frames.append(Frame(f"state {processes.state(int(name)) or 'gone'}"))
        threads.append(Thread(int(name), frames, read(f"{base}/comm").strip()))
    return threads


def find(name: str) -> str:
    """The tool's path in system directories, never in the user's PATH; empty if it is not installed."""
    for folder in _PATHS:
        path = f"{folder}/{name}"
        if os.access(path, os.X_OK):
            return path
    return ""


def run(command: List[str], until: float, as_user: As) -> Tuple[str, str]:
    """The standard output of ``command``, and the reason if it is incomplete (empty if it exited normally and in
    time)."""
    import subprocess

    options: Dict[str, object] = {}
    if as_user is not None:
        options = {"user": as_user[0], "group": as_user[1], "extra_groups": as_user[2]}
    try:
        process = subprocess.Popen(  # type: ignore[call-overload]
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=ENVIRONMENT, cwd="/", start_new_session=True, **options,
        )  # fmt: skip
    except OSError as error:
        return "", f"cannot be started: {error.strerror}"
    try:
        out, err, in_time = _drain(process.stdout.fileno(), process.stderr.fileno(), until)
        if not in_time:
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
    finally:
        process.stdout.close()
        process.stderr.close()
    text = from_bytes(out)
    if not in_time:
        return text, "it was not done in time"
    last = err.decode("utf-8", "replace").strip().splitlines()
    return text, (last[-1][:200] if last else f"status {status}") if status else ""


def _drain(out: int, err: int, until: float) -> Tuple[bytes, bytes, bool]:
    taken = {out: bytearray(), err: bytearray()}
    waiting = select.poll()
    for fd in taken:
        waiting.register(fd, select.POLLIN)
    left = len(taken)
    while left:
        left_s = until - time.monotonic()
        events = waiting.poll(left_s * 1000) if left_s > 0 else []
        if not events:  # also if the output never pauses
            return bytes(taken[out]), bytes(taken[err]), False
        for fd, _ in events:
            data = os.read(fd, 65536)
            if not data:
                waiting.unregister(fd)
                left -= 1
            elif len(taken[fd]) < _MOST:
                taken[fd] += data
    return bytes(taken[out]), bytes(taken[err]), True


def _wait_until_stopped(pid: int, until: float) -> None:
    # After PTRACE_DETACH with SIGSTOP, the stop comes a moment later.
    until = min(until, time.monotonic() + _STOP_S)
    while (
        any(processes.state(int(name)) in ("R", "t") for name in _names(f"/proc/{pid}/task"))
        and time.monotonic() < until
    ):
        time.sleep(0.001)  # the stop of a process that is not our tracee causes no event


def _process_of(tid: int) -> int:
    return int(field(tid, "Tgid") or tid)


def _tracer(tid: int) -> int:
    return int(field(tid, "TracerPid") or 0)


def field(tid: int, wanted: str) -> str:
    """A field of /proc/TID/status; empty if it does not exist."""
    for line in read(f"/proc/{tid}/status").splitlines():
        name, _, value = line.partition(":")
        if name == wanted:
            return value.strip()
    return ""


def is_python(pid: int, maps: Optional[str] = None) -> bool:
    """True if ``pid`` is, or contains, a Python interpreter; ``maps``: its /proc/PID/maps, if already read."""
    try:
        name = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False
    return name.startswith(("python", "pypy")) or "libpython3" in (read(f"/proc/{pid}/maps") if maps is None else maps)


def read(path: str) -> str:
    """A file of /proc as text (redmesh/byte_text.py); empty if it is unreadable."""
    try:
        with open(path, "rb", buffering=0) as file:
            return from_bytes(file.readall() or b"")
    except OSError:
        return ""


def _names(path: str) -> List[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []

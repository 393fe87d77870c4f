"""A worker's side of the process that runs functions (yodcall.py): starts it, sends calls, and restarts it after a
function has killed it. Standard library only, Python 3.9."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import operator
import os
import select
import signal
import socket
import struct
import time
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Container, Deque, Dict, List, NamedTuple, Optional, Tuple

    from agents.yodio import yodio

    class Call(NamedTuple):
        """A call on its way to the process: ``text`` is its data as base64, ``size`` the bytes under way."""

        number: int
        attempt: int
        text: str
        size: int

else:
    from collections import namedtuple

    import yodio

    Call = namedtuple("Call", "number attempt text size")

_CALL = struct.Struct("!II")
_RESULT = struct.Struct("!IBddII")
#: The most bytes of calls in transit, and of a packet of a larger call.
_UNDER_WAY, _PIECE = 48 << 10, 32 << 10
#: The size of the socket's buffer, as far as the kernel allows it: a small packet takes 800 bytes of it.
_ROOM = 1 << 20
#: Milliseconds between looks at a process that takes nothing of a large call.
_LOOK_MS = 100
#: Seconds before another process is started after one that has exited before it ran anything.
_PAUSE_S = 0.2
#: Results above this size are sent as files (docs/protocol.md).
_INLINE = 128 << 10
INLINE, FILE = b"\0", b"\1"


class Caller:
    """A process that runs functions for one worker, and its successors.

    Each call is a packet of a socket, of which both this worker and the process have the reading end: the kernel gives
    a packet to one of them, so what the worker takes back was never begun.
    """

    def __init__(self, job: Dict[str, Any], env: Dict[str, str]) -> None:
        self._functions = job["functions"]
        # An Executor in a call knows by this that its callers wait for it.
        callers = [job["uuid"], *self._functions.get("callers", ())]
        self._env = {**env, "REDMESH_JOB_CALLERS": ",".join(callers)}
        self._waiting: Deque[Call] = deque()
        self._called: Dict[int, Call] = {}  # sent, in the order of sending
        self._bytes = 0
        self._buffer = bytearray()
        self._calls, self._reading = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._calls.setblocking(False)
        self._calls.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM)
        self._full = False  # the socket takes no more packets before the process has taken one
        self.broken = ""  # why no process can run calls: the initializer failed
        self.error = ""  # its exception and traceback, pickled, as base64
        self.results = self._initializer = -1
        self.restarted = False  # True if ``results`` is another descriptor, perhaps with the same number
        if self._functions.get("initializer"):
            try:
                self._keep_initializer(os.path.join(self._functions["directory"], self._functions["initializer"]))
            except OSError as error:
                self._break(f"it cannot be read: {error.strerror or error}", b"")
                return
        self._start()

    def _keep_initializer(self, path: str) -> None:
        """Keep the file with what is called first, for each process that is started."""
        self._initializer = os.memfd_create("initializer")
        with open(self._initializer, "wb", closefd=False) as file:
            file.write(_read(path))

    def _start(self) -> None:
        self.results, sink = os.pipe2(os.O_CLOEXEC)
        told = self._functions
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "yodcall.py")
        command = [told["python"], script, "3", told["minor"], told["cloudpickle"], "\n".join(told["path"])]
        command += [str(told.get("max_tasks") or 0), "-1" if self._initializer < 0 else "4"]
        given = [self._reading.fileno(), sink, *([self._initializer] if self._initializer >= 0 else [])]
        # Numbers above those that the process gets: no descriptor overwrites another.
        copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 5) for fd in given]
        actions = [(os.POSIX_SPAWN_DUP2, fd, (0, 3, 4)[place]) for place, fd in enumerate(copies)]
        try:
            self.pid = os.posix_spawnp(
                command[0], command, self._env, file_actions=actions, setpgroup=0,
                setsigdef=[signal.SIGPIPE, signal.SIGINT],
            )  # fmt: skip
        except OSError:
            os.close(self.results)
            self.results = -1
            raise
        finally:
            for fd in (sink, *copies):
                os.close(fd)
        self._served = False  # the process has run its initializer, or a call
        self._began = time.time()

    def give(self, number: int, attempt: int, data: str) -> None:
        """Run a function."""
        self._waiting.append(Call(number, attempt, data, 0))
        self._send()

    @property
    def busy(self) -> bool:
        """True if a call is running or waits."""
        return bool(self._called or self._waiting)

    def _send(self) -> None:
        while self._waiting and not (self.broken or self._full) and (not self._called or self._bytes < _UNDER_WAY):
            call = self._waiting[0]
            data = base64.b64decode(call.text)
            data = data[1:] if data[:1] == INLINE else _read(os.fsdecode(data[1:]))
            call = call._replace(size=len(data) + _CALL.size)
            if self._called and self._bytes + call.size > _UNDER_WAY:
                return
            packet = _CALL.pack(call.number, len(data)) + data
            if call.size <= _UNDER_WAY:
                try:
                    self._calls.send(packet)
                except BlockingIOError:
                    self._full = True  # a result makes room
                    return
            self._waiting.popleft()
            self._called[call.number] = call
            self._bytes += call.size
            if call.size > _UNDER_WAY:
                self._send_large(memoryview(packet))

    def _send_large(self, packet: memoryview) -> None:
        """Send a call that is alone under way, unless the process exits: :meth:`take` reports that."""
        poll = select.poll()
        poll.register(self._calls, select.POLLOUT)
        while packet:
            if not poll.poll(_LOOK_MS) and self._exited():
                return
            with contextlib.suppress(BlockingIOError):
                packet = packet[self._calls.send(packet[:_PIECE]) :]

    def _exited(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def take(self) -> List[List[Any]]:
        """Results that have arrived, as rows for the owner; call this when ``results`` is readable."""
        data = os.read(self.results, 256 << 10)
        self._full = False
        rows = []
        self._buffer += data
        while len(self._buffer) >= _RESULT.size:
            number, failed, began, ended, short, length = _RESULT.unpack_from(self._buffer)
            start, end = _RESULT.size + short, _RESULT.size + short + length
            if len(self._buffer) < end:
                break
            why = self._buffer[_RESULT.size : start].decode("utf-8", "replace")
            told = bytes(self._buffer[start:end])
            del self._buffer[:end]
            self._served = True
            if not number:
                if failed:
                    self._break(why, told)
                continue
            call = self._called.pop(number, None)
            if call is None:
                continue  # dropped meanwhile
            self._bytes -= call.size
            try:
                rows.append([number, call.attempt, failed, began, ended, why, "", self._packed(number, told)])
            except OSError as error:
                why = f"its result of {len(told):,} bytes cannot be written: {error.strerror or error}"
                rows.append([number, call.attempt, 1, began, ended, why, why, ""])
        if not data:
            rows += self._again()
        self._send()
        return rows

    def _break(self, why: str, error: bytes) -> None:
        """The initializer has failed: no process can run calls. ``error``: its exception and traceback, pickled."""
        self.broken = f"the initializer failed on {os.uname().nodename}: {why}"
        self.error = base64.b64encode(error).decode() if len(error) <= _INLINE else ""

    def _again(self) -> List[List[Any]]:
        """The process has exited: its present call has failed, a new process runs the others."""
        _, told = os.waitpid(self.pid, 0)
        why = f"signal {os.WTERMSIG(told)}" if os.WIFSIGNALED(told) else f"status {os.WEXITSTATUS(told)}"
        status = 128 + os.WTERMSIG(told) if os.WIFSIGNALED(told) else os.WEXITSTATUS(told) or 1
        os.close(self.results)
        self.results, self.restarted = -1, True
        self._buffer.clear()
        self._take_back()
        rows: List[List[Any]] = []
        if self._initializer >= 0 and not self._served:
            self._break(f"its process ended with {why}", b"")
        if self.broken:
            self._waiting.extendleft(reversed(self._called.values()))
            self._called.clear()
            return rows
        if not self._called and not self._served and self._waiting:
            call = self._waiting.popleft()  # no process can begin it
            self._called[call.number] = call
        for call in self._called.values():
            why = f"its process ended with {why}"
            rows.append([call.number, call.attempt, status, self._began, time.time(), why, why, ""])
        self._called.clear()
        self._bytes = 0
        if not self._served:
            time.sleep(_PAUSE_S)
        self._start()
        return rows

    def _take_back(self) -> None:
        """Take back the calls that no process has begun."""
        large = self._bytes > _UNDER_WAY  # the packets are pieces of the one call under way: the first has its number
        heads = {_CALL.pack(call.number, call.size - _CALL.size): call.number for call in self._called.values()}
        first = True
        while True:
            try:
                packet = self._reading.recv(_CALL.size, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            call = self._called.pop(heads.get(packet, 0), None) if first or not large else None
            first = False
            if call is not None:
                self._bytes -= call.size
                self._waiting.append(call)
        self._full = False
        self._waiting = deque(sorted(self._waiting, key=operator.attrgetter("number")))

    def _packed(self, number: int, data: bytes) -> str:
        if len(data) <= _INLINE:
            return base64.b64encode(INLINE + data).decode()
        path = os.path.join(self._functions["directory"], f"result-{number}")
        try:
            with yodio.open(path, "wb") as file:
                file.write(data)
        except OSError:
            with contextlib.suppress(OSError):
                yodio.open(path, "wb").close()  # gives back what a full disk had taken
            raise
        return base64.b64encode(FILE + os.fsencode(path)).decode()

    def give_back(self, only: Optional[Container[int]] = None) -> List[Tuple[int, int]]:
        """Number and attempt of each call that no process has begun; none will. ``only``: these numbers, or all."""
        if self._bytes <= _UNDER_WAY:
            self._take_back()
        back = [call for call in self._waiting if only is None or call.number in only]
        numbers = {call.number for call in back}
        self._waiting = deque(call for call in self._waiting if call.number not in numbers)
        self._send()
        return [(call.number, call.attempt) for call in back]

    def drop(self) -> List[Tuple[int, int]]:
        """Kill the process; returns number and attempt of every call."""
        numbers = [(call.number, call.attempt) for call in (*self._called.values(), *self._waiting)]
        self._waiting.clear()
        self._called.clear()
        if self.results >= 0:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        return numbers

    def close(self) -> None:
        """Close the process's standard input, with which it exits."""
        self._calls.close()
        self._reading.close()
        if self.results >= 0:
            os.close(self.results)


def _read(path: str) -> bytes:
    with yodio.open(path, "rb") as file:
        return bytes(file.read())

"""A worker's side of the process that runs functions (yodcall.py): starts it, sends calls, and restarts it after a
function has killed it. Standard library only, Python 3.9."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import signal
import struct
import time
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Container, Deque, Dict, Iterable, List, Optional, Tuple

    from agents.yodio import yodio
    from agents.yodio.yodbegun import Begun
    from agents.yodio.yodmemory import out_of_memory
else:
    import yodio
    from yodbegun import Begun
    from yodmemory import out_of_memory

_CALL = struct.Struct("!II")
_RESULT = struct.Struct("!IBddII")
#: Bytes of calls in transit: less than a pipe holds, so that writing never blocks on a process that is itself writing.
_UNDER_WAY = 48 << 10
#: Seconds before another process is started after one that has exited before it ran anything.
_PAUSE_S = 0.2
#: Results above this size are sent as files (docs/protocol.md).
_INLINE = 128 << 10
INLINE, FILE = b"\0", b"\1"


class Call:
    """A call that has no result yet."""

    __slots__ = ("attempt", "number", "place", "size", "text")

    def __init__(self, number: int, attempt: int, text: str) -> None:
        self.number, self.attempt = number, attempt
        self.text = text  # its data as base64
        self.place = self.size = 0  # once it is sent: the count of calls that the process was sent, and its bytes


class Caller:
    """A process that runs functions for one worker, and its successors.

    A process gets calls when it is ready, at most ``max_tasks`` of them, and is followed by another when it exits.
    """

    def __init__(self, job: Dict[str, Any], env: Dict[str, str]) -> None:
        self._functions = job["functions"]
        # An Executor in a call knows by this that its callers wait for it.
        callers = [f"{job['uuid']}:{os.environ.get('YOD_LAUNCHER_ID', '')}", *self._functions.get("callers", ())]
        self._env = {**env, "REDMESH_JOB_CALLERS": ",".join(callers)}
        self._most = int(self._functions.get("max_tasks") or 0)
        self._waiting: Deque[Call] = deque()
        self._called: Dict[int, Call] = {}  # sent, in the order of sending
        self._bytes = 0
        self._buffer = bytearray()
        self._dropped = False
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
        reader, self._calls = os.pipe2(os.O_CLOEXEC)
        self.results, sink = os.pipe2(os.O_CLOEXEC)
        page, self._begun = Begun.create()
        told = self._functions
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "yodcall.py")
        command = [told["python"], script, "3", told["minor"], told["cloudpickle"], "\n".join(told["path"])]
        command += [str(self._most), "4", "-1" if self._initializer < 0 else "5"]
        given = {0: reader, 3: sink, 4: page}
        if self._initializer >= 0:
            given[5] = self._initializer
        # Numbers above those that the process gets: no descriptor overwrites another.
        copies = {place: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 6) for place, fd in given.items()}
        actions = [(os.POSIX_SPAWN_DUP2, fd, place) for place, fd in copies.items()]
        try:
            self.pid = os.posix_spawnp(
                command[0], command, self._env, file_actions=actions, setpgroup=0,
                setsigdef=[signal.SIGPIPE, signal.SIGINT],
            )  # fmt: skip
        except OSError:
            self._close()
            raise
        finally:
            for fd in (reader, sink, page, *copies.values()):
                os.close(fd)
        self._ready = False
        #: Calls that were taken back take room in the pipe until the process has ended those that it has begun.
        self._passes = False
        self._sent = self._left = 0  # calls sent to the process; those of them that were not taken back
        self._began = time.time()

    def give(self, calls: Iterable[List[Any]]) -> None:
        """Run functions: each call's number, attempt and data."""
        self._waiting.extend(Call(*one) for one in calls)
        self._send()

    @property
    def busy(self) -> bool:
        """True if a call is running or waits."""
        return bool(self._called or self._waiting)

    def _send(self) -> None:
        """Send calls that wait, as many as may be under way; a larger one alone."""
        self._passes = self._passes and bool(self._called)
        if not self._ready or self._passes or self.broken:
            return
        pieces: List[bytes] = []
        while self._waiting and self._bytes < _UNDER_WAY and (not self._most or self._left < self._most):
            call = self._waiting[0]
            data = base64.b64decode(call.text)
            if data[:1] == FILE and self._called:
                break
            data = data[1:] if data[:1] == INLINE else _read(os.fsdecode(data[1:]))
            call.size = len(data) + _CALL.size
            if self._called and self._bytes + call.size > _UNDER_WAY:
                break
            self._waiting.popleft()
            self._sent += 1
            self._left += 1
            call.place = self._sent
            self._called[call.number] = call
            self._bytes += call.size
            pieces += (_CALL.pack(call.number, len(data)), data)
        view = memoryview(b"".join(pieces))
        with contextlib.suppress(BrokenPipeError):  # take() reports its exit
            while view:
                view = view[os.write(self._calls, view) :]

    def take(self) -> List[List[Any]]:
        """Results that have arrived, as rows for the owner; call this when ``results`` is readable."""
        data = os.read(self.results, 256 << 10)
        rows: List[List[Any]] = []
        buffer, at = self._buffer, 0
        buffer += data
        while len(buffer) >= at + _RESULT.size:
            number, failed, began, ended, short, length = _RESULT.unpack_from(buffer, at)
            start = at + _RESULT.size + short
            if len(buffer) < start + length:
                break
            why = buffer[at + _RESULT.size : start].decode("utf-8", "replace")
            told = bytes(memoryview(buffer)[start : start + length])
            at = start + length
            if not number:
                self._ready = not failed
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
        del buffer[:at]
        if not data:
            rows += self._again()
        self._send()
        return rows

    def _break(self, why: str, error: bytes) -> None:
        """The initializer has failed: no process can run calls. ``error``: its exception and traceback, pickled."""
        self.broken = f"the initializer failed on {os.uname().nodename}: {why}"
        self.error = base64.b64encode(error).decode() if len(error) <= _INLINE else ""

    def _again(self) -> List[List[Any]]:
        """The process has exited: the call that it had begun has failed, a new process runs the others."""
        _, told, used = os.wait4(self.pid, 0)
        why = f"signal {os.WTERMSIG(told)}" if os.WIFSIGNALED(told) else f"status {os.WEXITSTATUS(told)}"
        lack = "" if self._dropped else out_of_memory(self.pid, told, used)
        why = f"its process ended: {lack}" if lack else f"its process ended with {why}"
        status = 128 + os.WTERMSIG(told) if os.WIFSIGNALED(told) else os.WEXITSTATUS(told) or 1
        self._close()
        self.restarted = True
        self._buffer.clear()
        begun = self._begun.begun()
        failed = [call for call in self._called.values() if call.place <= begun]
        self._waiting.extendleft(reversed([call for call in self._called.values() if call.place > begun]))
        self._called.clear()
        self._bytes = 0
        if self._dropped:
            return []
        if self._initializer >= 0 and not (self._ready or self.broken):
            self._break(why, b"")
        if self.broken:
            self._waiting.extendleft(reversed(failed))  # the job ends
            return []
        if not begun:
            if self._waiting:
                failed = [self._waiting.popleft()]  # no process begins it
            time.sleep(_PAUSE_S)
        rows = [[call.number, call.attempt, status, self._began, time.time(), why, why, ""] for call in failed]
        self._start()
        return rows

    def _take_back(self) -> None:
        """Let calls that were sent, and that the process has not begun, wait again."""
        begun = self._begun.take_back(self._sent)
        taken = [call for call in self._called.values() if call.place > begun]
        for call in taken:
            del self._called[call.number]
            self._bytes -= call.size
        self._left -= len(taken)
        self._waiting.extendleft(reversed(taken))
        self._passes = self._passes or bool(taken)

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
        if any(only is None or number in only for number in self._called):
            self._take_back()
        back = [call for call in self._waiting if only is None or call.number in only]
        self._waiting = deque(call for call in self._waiting if not (only is None or call.number in only))
        self._send()
        return [(call.number, call.attempt) for call in back]

    def drop(self) -> List[Tuple[int, int]]:
        """Kill the process, the last one; returns number and attempt of every call."""
        self._dropped = True
        numbers = [(call.number, call.attempt) for call in (*self._called.values(), *self._waiting)]
        self._waiting.clear()
        self._called.clear()
        if self.results >= 0:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        return numbers

    def close(self) -> None:
        """Close the process's standard input, with which it exits."""
        if self.results >= 0:
            self._close()

    def _close(self) -> None:
        os.close(self._calls)
        os.close(self.results)
        self.results = -1


def _read(path: str) -> bytes:
    with yodio.open(path, "rb") as file:
        return bytes(file.read())

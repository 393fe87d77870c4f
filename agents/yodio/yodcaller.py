"""A worker's side of the process that runs functions (yodcall.py): starts it, sends calls, and restarts it after a
function has killed it. Standard library only, Python 3.9."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import struct
import time
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Deque, Dict, List, Tuple

    from agents.yodio import yodio
else:
    import yodio

_CALL = struct.Struct("!II")
_RESULT = struct.Struct("!IBddII")
#: Bytes of calls in transit: less than a pipe holds, so that writing never blocks on a process that is itself writing.
_UNDER_WAY = 48 << 10
#: Results above this size are sent as files (docs/protocol.md).
_INLINE = 128 << 10
INLINE, FILE = b"\0", b"\1"


class Caller:
    """A process that runs functions for one worker."""

    def __init__(self, job: Dict[str, Any], env: Dict[str, str]) -> None:
        self._functions = job["functions"]
        # An Executor in a call knows by this that its callers wait for it.
        callers = [job["uuid"], *self._functions.get("callers", ())]
        self._env = {**env, "REDMESH_JOB_CALLERS": ",".join(callers)}
        self._waiting: Deque[Tuple[int, int, str]] = deque()  # number, attempt, data as base64
        self._called: Deque[Tuple[int, int, int, str]] = deque()  # the same with the size in bytes
        self._bytes = 0
        self._buffer = bytearray()
        self.restarted = False  # True if ``results`` is another descriptor, perhaps with the same number
        self._start()

    def _start(self) -> None:
        reader, calls = os.pipe2(os.O_CLOEXEC)
        self.results, sink = os.pipe2(os.O_CLOEXEC)
        told = self._functions
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "yodcall.py")
        command = [told["python"], script, "3", told["minor"], told["cloudpickle"], "\n".join(told["path"])]
        actions: List[Tuple[Any, ...]] = [(os.POSIX_SPAWN_DUP2, reader, 0)]
        if sink == 3:
            os.set_inheritable(sink, True)
        else:
            actions.append((os.POSIX_SPAWN_DUP2, sink, 3))
        try:
            self.pid = os.posix_spawnp(
                command[0], command, self._env, file_actions=actions, setpgroup=0,
                setsigdef=[signal.SIGPIPE, signal.SIGINT],
            )  # fmt: skip
        finally:
            os.close(reader)
            os.close(sink)
        self._calls = calls
        self._began = time.time()

    def give(self, number: int, attempt: int, data: str) -> None:
        """Run a function."""
        self._waiting.append((number, attempt, data))
        self._send()

    @property
    def busy(self) -> bool:
        """True if a call is running or waits."""
        return bool(self._called or self._waiting)

    def _send(self) -> None:
        while self._waiting and (not self._called or self._bytes < _UNDER_WAY):
            number, attempt, text = self._waiting[0]
            data = base64.b64decode(text)
            data = data[1:] if data[:1] == INLINE else _read(os.fsdecode(data[1:]))
            if self._called and self._bytes + len(data) + _CALL.size > _UNDER_WAY:
                return
            self._waiting.popleft()
            self._called.append((number, attempt, len(data), text))
            self._bytes += len(data) + _CALL.size
            view = memoryview(_CALL.pack(number, len(data)) + data)
            try:
                while view:
                    view = view[os.write(self._calls, view) :]
            except BrokenPipeError:
                return  # take() reports its exit

    def take(self) -> List[List[Any]]:
        """Results that have arrived, as rows for the owner; call this when ``results`` is readable."""
        data = os.read(self.results, 256 << 10)
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
            _, attempt, size, _ = self._called.popleft()
            self._bytes -= size + _CALL.size
            try:
                rows.append([number, attempt, failed, began, ended, why, "", self._packed(number, told)])
            except OSError as error:
                why = f"its result of {len(told):,} bytes cannot be written: {error.strerror or error}"
                rows.append([number, attempt, 1, began, ended, why, why, ""])
        if not data:
            rows += self._again()
        self._send()
        return rows

    def _again(self) -> List[List[Any]]:
        """The process has exited: its present call has failed, the other calls go to a new process."""
        _, told = os.waitpid(self.pid, 0)
        why = f"signal {os.WTERMSIG(told)}" if os.WIFSIGNALED(told) else f"status {os.WEXITSTATUS(told)}"
        status = 128 + os.WTERMSIG(told) if os.WIFSIGNALED(told) else os.WEXITSTATUS(told) or 1
        self.close()
        self._buffer.clear()
        rows = []
        if self._called:
            number, attempt, _, _ = self._called.popleft()
            why = f"its process ended with {why}"
            rows.append([number, attempt, status, self._began, time.time(), why, why, ""])
        self._waiting.extendleft((one[0], one[1], one[3]) for one in reversed(self._called))
        self._called.clear()
        self._bytes = 0
        self._start()
        self.restarted = True
        return rows

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

    def give_back(self) -> List[Tuple[int, int]]:
        """Number and attempt of each call that the process has not got; it will not get them."""
        numbers = [(one[0], one[1]) for one in self._waiting]
        self._waiting.clear()
        return numbers

    def drop(self) -> List[Tuple[int, int]]:
        """Kill the process; returns number and attempt of every call."""
        numbers = [(one[0], one[1]) for one in self._called] + [(one[0], one[1]) for one in self._waiting]
        self._called.clear()
        self._waiting.clear()
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return numbers

    def close(self) -> None:
        """Close the process's standard input, with which it exits."""
        os.close(self._calls)
        os.close(self.results)


def _read(path: str) -> bytes:
    with yodio.open(path, "rb") as file:
        return bytes(file.read())

"""``redmesh.Executor``: a ``concurrent.futures.Executor`` on the processors of a mesh (docs/python.md).

Calls are tasks of a job (docs/jobs.md). A thread sends calls to the owner of the job and receives results. Only this
process and the workers unpickle data.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import pickle
import select
import socket
import struct
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor as _Base
from concurrent.futures import Future
from concurrent.futures._base import PENDING
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from redmesh.answers import ask
from redmesh.byte_text import each_from_system, each_to_system
from redmesh.errors import RedmeshError
from redmesh.future_arguments import Arguments, futures_in
from redmesh.start_command import start_command

_CONTROL, _FILE = 0, 6
_FRAME, _CALL, _RESULT = struct.Struct("!BI"), struct.Struct("!II"), struct.Struct("!IBI")
_RETURNED, _RAISED = 0, 1
_INLINE, _IN_FILE = b"\0", b"\1"
#: Bytes of a call or a result above which it is sent as a file; bytes of calls in one frame.
_LARGE, _MOST = 128 << 10, 512 << 10
#: How many calls are sent ahead of results: at first, at most, and for how many seconds of work.
_FIRST, _AHEAD, _AHEAD_S = 64, 8192, 0.5
_BEGIN_S = 60.0
#: Seconds within which the owner says whether a call that was sent can be cancelled.
_CANCEL_S = 5.0
#: Seconds after the last call of ``cancel`` for a call that was sent in which no further calls are sent: a program that
#: cancels one call after the other would run behind the calls that are sent meanwhile, and cancel few of them.
_HOLD_S = 0.05
#: The most numbers in one message that cancels calls.
_ASKED = 10_000
#: The file in the directory of calls with what each worker calls first.
_INITIALIZER = "initializer"
#: Seconds between messages that tell the owner how many calls there are, while some wait here.
_TELL_S = 0.1
#: The jobs in whose calls this process runs, the innermost first (agents/yodio/yodcaller.py).
_CALLERS = "REDMESH_JOB_CALLERS"
#: How the state begins in ``mesh queue`` of a job that cannot get any (console/jobs/rows.py).
_NO_PROCESSORS = "no processors"
#: Seconds after which an Executor checks why it has no processors, at first and at most; in a call of another Executor
#: at most, and until it checks again that it can never have any, because one look may see two moments.
_LOOK_S, _LOOK_MOST_S, _LOOK_NESTED_S, _LOOK_AGAIN_S = 2.0, 60.0, 8.0, 1.0
_BUFFER = 256 << 10
#: Why a job ends whose Executor was not made.
_GAVE_UP = "the program gave up before its first call"


class RemoteTraceback(Exception):
    """The traceback of a remote exception as text; it becomes the ``__cause__`` of the exception."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class _Call(Future[Any]):
    """A call. It can be cancelled until a worker begins it."""

    def __init__(self, executor: Executor) -> None:
        super().__init__()
        self._executor = executor
        self.number = 0  # once it is sent

    def __reduce__(self) -> Any:
        raise TypeError(
            "a future cannot be sent to a call: a call waits for futures that are arguments, or stand in lists, tuples,"
            " sets or as values of dictionaries, but not in other objects"
        )

    def cancel(self) -> bool:
        """As :meth:`Future.cancel`. For a call that was sent, the answer of the job's owner is awaited."""
        if super().cancel():
            self._executor._unblock(self)
            return True
        return self.running() and self._executor._withdrawn(self)

    def withdraw(self) -> None:
        """The owner has withdrawn it, so it never ran, though it was sent."""
        with self._condition:
            self._state = PENDING
        super().cancel()
        self.set_running_or_notify_cancel()

    def disown(self, error: BaseException) -> None:
        """Fail with ``error`` in a forked process. Callbacks and waiters of the program are not called there."""
        self._condition = threading.Condition()
        self._done_callbacks.clear()  # type: ignore[attr-defined]
        self._waiters.clear()
        if not self.done():
            self.set_exception(error)


class _Frames:
    """Frames of the owner, read by the thread that takes results."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._buffer, self._later = sock, bytearray(), deque[tuple[int, bytes]]()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def next(self) -> tuple[int, bytes] | None:
        """The next frame: kind and payload; None at the end."""
        return self._later.popleft() if self._later else self.read()

    def read(self, until: float | None = None) -> tuple[int, bytes] | None:
        """The next frame that arrives, at the latest at ``until``; None at the end, or then."""
        while True:
            if len(self._buffer) >= _FRAME.size:
                kind, length = _FRAME.unpack_from(self._buffer)
                end = _FRAME.size + length
                if len(self._buffer) >= end:
                    payload = bytes(memoryview(self._buffer)[_FRAME.size : end])
                    del self._buffer[:end]
                    return kind, payload
            if until is not None and not self._poll.poll(max(0.0, until - time.monotonic()) * 1000):
                return None
            data = self._sock.recv(_BUFFER)
            if not data:
                return None
            self._buffer += data

    def put_off(self, frame: tuple[int, bytes]) -> None:
        """Have :meth:`next` return a frame later."""
        self._later.append(frame)


class Executor(_Base):
    """Run functions on at most ``max_workers`` processors of the mesh (None: as many as are needed and exist).

    Starts a personal mesh if there is none. ``initializer``, ``initargs`` and ``max_tasks_per_child`` are those of
    ``ProcessPoolExecutor``. ``hold_processors``: idle workers are not given to requests that wait. ``options`` are
    further options of ``mesh submit``.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        name: str = "",
        retries: int = 0,
        env: Mapping[str, str] | None = None,
        options: Iterable[str] = (),
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        max_tasks_per_child: int | None = None,
        hold_processors: bool = False,
    ) -> None:
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if max_tasks_per_child is not None:
            if not isinstance(max_tasks_per_child, int):
                raise TypeError("max_tasks_per_child must be an integer")
            if max_tasks_per_child <= 0:
                raise ValueError("max_tasks_per_child must be >= 1")
        try:
            import cloudpickle  # type: ignore[import-untyped]
        except ImportError:
            raise RedmeshError("redmesh.Executor needs cloudpickle: pip install cloudpickle") from None
        self._dumps: Callable[[Any], bytes] = cloudpickle.dumps
        told = {
            "python": sys.executable,
            "minor": f"{sys.version_info[0]}.{sys.version_info[1]}",
            "cloudpickle": cloudpickle.__version__,
            "path": [os.path.abspath(entry) for entry in sys.path],
            "program": os.getpid(),  # its end ends the job
            "initializer": _INITIALIZER if initializer is not None else "",
            "max_tasks": max_tasks_per_child or 0,
        }
        callers = [uuid for uuid in os.environ.get(_CALLERS, "").split(",") if uuid]
        if callers:
            told["callers"] = callers
        words = ["--functions", json.dumps(each_from_system(told)), "--name", name or "redmesh.Executor"]
        words += ["--retries", str(retries)]
        if max_workers is not None:
            if max_workers < 1:
                raise ValueError("max_workers is at least 1")
            words += ["--limit", str(max_workers)]
        if hold_processors:
            words.append("--hold-processors")
        first = cloudpickle.dumps((initializer, initargs)) if initializer is not None else b""
        job = _submitted([*words, *options], env)
        self.uuid: str = job["uuid"]
        self._directory: str = job["directory"]
        self._lock = threading.RLock()  # the garbage collector closes iterators of map anywhere
        self._more = threading.Condition(self._lock)
        self._decided = threading.Condition(self._lock)
        self._waiting: deque[tuple[_Call, bytes]] = deque()
        self._blocked: set[_Call] = set()  # calls that wait for futures among their arguments
        self._sent: dict[int, _Call] = {}
        self._unwanted: set[int] = set()  # the numbers of calls of which the owner is to say if they can be cancelled
        self._to_withdraw: list[int] = []  # those of which it has not been asked yet
        self._last = self._told = 0  # the number of the last call sent; how many calls the owner knows of
        self._told_at = self._held_until = 0.0
        self._window = _FIRST
        self._closed = self._drops = self._told_drop = self._told_end = self._over = False
        self._broken = ""
        self._cause: BaseException | None = None  # the exception of the initializer
        self._served = threading.Event()  # a call has ended, or none will
        self._socket = str(job["socket"])
        try:
            if initializer is not None:
                _write(os.path.join(self._directory, _INITIALIZER), first)
            self._sock = _connected(self._socket)
        except BaseException:
            _end_job(self._socket, _GAVE_UP)
            raise
        self._frames = _Frames(self._sock)
        try:
            self._send_control({"op": "functions", "id": 1})
            _tell_of_machine(job, max_workers)
        except BaseException:
            self._sock.close()  # this ends the job
            raise
        _open.add(self)
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._send_calls, self._take_results)]
        for thread in self._threads:
            thread.start()
        threading.Thread(target=self._watch_line, args=(callers,), daemon=True).start()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a redmesh.Executor cannot be sent to a call: submit from the program itself, or open another Executor in"
            " the call"
        )

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Schedule ``fn(*args, **kwargs)``. Raises RuntimeError after :meth:`shutdown`.

        The call waits for futures among its arguments, also in lists, tuples, sets and dictionaries, and gets their
        results. If one fails or is cancelled, the call fails with the same exception, or is cancelled.
        """
        return self._submit(self._dumps(fn), args, kwargs, chunk=False)

    def _submit(self, function: bytes, args: Any, kwargs: Any, *, chunk: bool) -> _Call:
        futures = futures_in((args, kwargs))
        data = b"" if futures else self._packed_call(function, args, kwargs, chunk=chunk)
        future = _Call(self)
        with self._lock:
            if self._broken:
                raise self._failure(self._broken)
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if futures:
                self._blocked.add(future)
            else:
                self._waiting.append((future, data))
                self._more.notify()
        if futures:
            Arguments(args, kwargs, futures).when_known(
                lambda args, kwargs: self._release(future, function, args, kwargs, chunk=chunk),
                lambda lost: self._fail_after(future, lost),
            )
        return future

    def _packed_call(self, function: bytes, args: Any, kwargs: Any, *, chunk: bool) -> bytes:
        return pickle.dumps((function, self._dumped(args), self._dumped(kwargs) if kwargs else b"", chunk), 5)

    # Calls that wait for futures

    def _release(self, call: _Call, function: bytes, args: Any, kwargs: Any, *, chunk: bool) -> None:
        """The arguments of a call are known."""
        try:
            data = self._packed_call(function, args, kwargs, chunk=chunk)
        except Exception as error:
            if self._unblock(call):
                call.set_exception(error)
            return
        with self._lock:
            if call in self._blocked:
                self._blocked.remove(call)
                self._waiting.append((call, data))
                self._more.notify_all()

    def _fail_after(self, call: _Call, lost: Future[Any]) -> None:
        """A future among the arguments has no result."""
        if lost.cancelled():
            call.cancel()
        elif self._unblock(call):
            call.set_exception(lost.exception())

    def _unblock(self, call: _Call) -> bool:
        """A call has ended that waits for futures. False if it does not wait for any."""
        with self._lock:
            if call not in self._blocked:
                return False
            self._blocked.remove(call)
            self._more.notify_all()  # the thread that sends calls may have waited for the last one
        return call.set_running_or_notify_cancel()

    def _dumped(self, value: Any) -> bytes:
        try:
            return pickle.dumps(value, pickle.HIGHEST_PROTOCOL) if _plain(value) else self._dumps(value)
        except Exception:
            return self._dumps(value)

    def map(
        self, fn: Callable[..., Any], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[Any]:
        """Yield results of ``fn`` in the order of the arguments; ``chunksize`` calls form one task."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        until = None if timeout is None else time.monotonic() + timeout
        function = self._dumps(fn)
        arguments = zip(*iterables, strict=False)
        futures: deque[_Call] = deque()
        while chunk := tuple(itertools.islice(arguments, chunksize)):
            futures.append(self._submit(function, chunk, {}, chunk=True))
        return self._results(futures, until)

    def _results(self, futures: deque[_Call], until: float | None) -> Iterator[Any]:
        try:
            while futures:
                left = None if until is None else until - time.monotonic()
                yield from futures[0].result(left)
                futures.popleft()
        finally:
            with self._lock:
                begun = [future.number for future in futures if not Future.cancel(future)]
                for future in futures:
                    if future.cancelled():
                        self._unblock(future)  # what it waits for may never end
                self._to_withdraw += [number for number in begun if number in self._sent]
                self._more.notify_all()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the job after all calls have finished. ``cancel_futures`` cancels the calls that no worker has begun."""
        with self._lock:
            self._closed = True
            waiting = [future for future, _ in self._waiting] if cancel_futures else []
            blocked = list(self._blocked) if cancel_futures else []
            self._more.notify_all()
        for future in waiting:
            Future.cancel(future)  # not under the lock: callbacks of the program run now
        for future in blocked:
            future.cancel()
        with self._lock:
            self._drops = self._drops or cancel_futures
            self._more.notify_all()
        if wait:
            if threading.current_thread() in self._threads:  # they wait for each other too
                raise RuntimeError("shutdown in a callback of a call cannot wait for the calls: shutdown(wait=False)")
            for thread in self._threads:
                thread.join()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            left = len(self._sent) + len(self._waiting) + len(self._blocked)
            if left:
                print(
                    f"\nredmesh: ^C: waiting for {left:,} calls that are left; another ^C ends the program, and with it"
                    f" the job (mesh cancel {self.uuid[:8]} ends it too)", file=sys.stderr, flush=True,
                )  # fmt: skip
        self.shutdown(wait=True)

    # Threads

    def _send_calls(self) -> None:
        try:
            while True:
                with self._lock:
                    while not self._broken:
                        pause = self._untold_s()
                        if self._may_send() or self._to_withdraw or self._over or pause == 0.0:
                            break
                        if not self._waiting and self._drops > self._told_drop:
                            break
                        if not (self._waiting or self._blocked) and self._closed > self._told_end:
                            break
                        self._more.wait(min(filter(None, (pause, self._held_s())), default=None))
                    if self._broken:
                        return
                    batch, failed = self._batch()
                    count = self._last + len(self._waiting)
                    unwanted = self._to_withdraw[:_ASKED]
                    del self._to_withdraw[: len(unwanted)]
                    drops = self._drops > self._told_drop and not self._waiting
                    ends = self._closed > self._told_end and not (self._waiting or self._blocked)
                    self._told_drop, self._told_end = self._told_drop or drops, self._told_end or ends
                for future, error in failed:
                    future.set_exception(error)
                if batch:
                    self._sock.sendall(_FRAME.pack(_FILE, len(batch)) + batch)
                if pause == 0.0:
                    self._told, self._told_at = count, time.monotonic()
                    self._send_control({"op": "submitted", "count": count})
                if unwanted:
                    self._send_control({"op": "withdraw", "numbers": unwanted})
                if drops:
                    self._send_control({"op": "drop"})
                if ends:
                    self._send_control({"op": "close", "id": 2})
                if self._over and self._told_end:
                    return
        except OSError as error:
            self._break(f"the job's owner has exited: {error}")

    def _may_send(self) -> bool:
        """True if a call waits here that may be sent now. Cancelled calls need no place in the window."""
        return bool(self._waiting) and (self._drops or (len(self._sent) < self._window and not self._held_s()))

    def _held_s(self) -> float:
        """Seconds in which no calls are sent, because the program cancels calls."""
        return max(0.0, self._held_until - time.monotonic())

    def _untold_s(self) -> float | None:
        """Seconds until the owner is told of further calls that wait here; None if it knows of all."""
        if not self._waiting or self._last + len(self._waiting) <= self._told:
            return None
        return max(0.0, self._told_at + _TELL_S - time.monotonic())

    def _batch(self) -> tuple[bytes, list[tuple[_Call, OSError]]]:
        """The calls of the next frame, and those that cannot be sent."""
        parts, size = [], 0
        failed: list[tuple[_Call, OSError]] = []
        while self._may_send() and size < _MOST:
            future, data = self._waiting.popleft()
            self._last += 1
            size += _CALL.size  # of cancelled calls too: a frame has a limit
            if not future.set_running_or_notify_cancel():
                parts.append(_CALL.pack(self._last, 0))
                continue
            try:
                told = self._packed(self._last, data)
            except OSError as error:  # a full disk, for example: this call alone has failed
                _remove(self._call_file(self._last))
                failed.append((future, error))
                parts.append(_CALL.pack(self._last, 0))
                continue
            future.number = self._last
            self._sent[self._last] = future
            parts.append(_CALL.pack(self._last, len(told)) + told)
            size += len(told)
        return b"".join(parts), failed

    def _packed(self, number: int, data: bytes) -> bytes:
        if len(data) <= _LARGE:
            return _INLINE + data
        path = self._call_file(number)
        _write(path, data)
        return _IN_FILE + os.fsencode(path)

    def _call_file(self, number: int) -> str:
        return os.path.join(self._directory, f"call-{number}")

    def _take_results(self) -> None:
        began, count, why = time.monotonic(), 0, "the job's owner has exited: mesh job log says more"
        try:
            while frame := self._frames.next():
                kind, payload = frame
                if kind != _FILE:
                    message = json.loads(payload)
                    if message.get("op") == "cancelled":
                        why = str(message["reason"])
                        self._cause = _unpickled_error(message.get("error"))
                    self._take_decision(message)
                    if message.get("re") == 2 and not self._sent:
                        break
                    continue
                self._served.set()
                for number, how, data in _results(payload):
                    self._ended(number, how, data)
                    count += 1
                with self._lock:
                    rate = count / max(time.monotonic() - began, 1e-3)
                    self._window = int(min(max(rate * _AHEAD_S, self._window, _FIRST), _AHEAD))
                    self._more.notify()
                    if self._closed and not (self._waiting or self._sent or self._blocked):
                        break
        except (OSError, struct.error, ValueError):
            pass
        if self._sent or self._waiting or self._blocked or not self._closed:
            self._break(why)
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
        self._served.set()
        with self._lock:
            self._over = True
            self._more.notify_all()
        self._threads[0].join()  # it may still have to tell the owner that there are no more calls
        self._sock.close()

    def _withdrawn(self, call: _Call) -> bool:
        """Ask the owner to withdraw a call that was sent; True once it has. False if the call has begun."""
        number, until = call.number, time.monotonic() + _CANCEL_S
        with self._lock:
            if number not in self._sent:
                return call.cancelled()
            self._unwanted.add(number)
            self._to_withdraw.append(number)
            self._held_until = time.monotonic() + _HOLD_S
            self._more.notify_all()
            if threading.current_thread() is not self._threads[1]:
                self._decided.wait_for(lambda: number not in self._unwanted, _CANCEL_S)
                return call.cancelled()
        # A callback of a result, in the thread that takes results.
        with contextlib.suppress(OSError):
            while number in self._unwanted and (frame := self._frames.read(until)):
                kind, payload = frame
                if kind == _FILE or not self._take_decision(json.loads(payload)):
                    self._frames.put_off(frame)
        return call.cancelled()

    def _take_decision(self, message: dict[str, Any]) -> bool:
        """Take the owner's message that calls were withdrawn, or cannot be; False if it is another message."""
        op = message.get("op")
        if op == "dropped":
            for first, last in message["ranges"]:
                for number in range(first, last + 1):
                    self._drop(number)
        elif op == "kept":
            self._decide(message["numbers"])
        return op in ("dropped", "kept")

    def _decide(self, numbers: Iterable[int]) -> None:
        with self._lock:
            self._unwanted.difference_update(numbers)
            self._decided.notify_all()

    def _watch_line(self, callers: list[str]) -> None:
        """Say why no call runs. In a call of another Executor: end this job if it can never have a processor, because
        calls that wait for it, or in the same way, have them all."""
        pause, told, stuck = _LOOK_S if callers else 2 * _LOOK_S, "", False
        while not self._served.wait(_LOOK_AGAIN_S if stuck else pause):
            pause = min(2 * pause, _LOOK_NESTED_S if callers else _LOOK_MOST_S)
            row = _row(self.uuid) if self._sent else {}
            why, before = str(row.get("why") or ""), stuck
            stuck = bool(callers and row.get("stuck"))
            if not stuck:
                reason = str(row["state"]) if str(row.get("state", "")).startswith(_NO_PROCESSORS) else why
                if reason and reason != told and not row["running"]:
                    print(f"redmesh: job {self.uuid[:8]}: {reason}", file=sys.stderr, flush=True)
                    told = reason
            if not (stuck and before):
                continue
            reason = (
                f"an Executor in a call of job {callers[0][:8]} can never run: {why}. A job keeps its processors until"
                " its Executor is shut down: open that one with a smaller max_workers, start a larger mesh (mesh up"
                " --processors N), or call the function in the call itself"
            )
            if _end_job(self._socket, reason):
                return

    def _drop(self, number: int) -> None:
        """Cancel a call that the owner had, and that no worker has begun."""
        future = self._sent.pop(number, None)
        if future is not None:
            _remove(self._call_file(number))
            future.withdraw()
        self._decide((number,))

    def _ended(self, number: int, how: int, data: bytes) -> None:
        future = self._sent.pop(number)
        if number in self._unwanted:
            self._decide((number,))
        _remove(self._call_file(number))
        if how not in (_RETURNED, _RAISED):
            future.set_exception(self._failure(data.decode("utf-8", "replace")))
            return
        try:
            if data[:1] == _IN_FILE:
                path = os.fsdecode(data[1:])
                with open(path, "rb") as file:
                    data = b"\0" + file.read()
                _remove(path)
            value = pickle.loads(memoryview(data)[1:])
        except Exception as error:
            future.set_exception(error)
            return
        if how == _RETURNED:
            future.set_result(value)
        else:
            raised, text = value
            raised.__cause__ = RemoteTraceback(text)
            future.set_exception(raised)

    def _break(self, reason: str) -> None:
        with self._lock:
            if self._broken:
                return
            self._broken = reason
            left = [*self._sent.values(), *(future for future, _ in self._waiting), *self._blocked]
            self._sent.clear()
            self._waiting.clear()
            self._blocked.clear()
            self._unwanted.clear()
            self._more.notify_all()
        for future in left:
            if not future.done():
                future.set_exception(self._failure(reason))
        with self._lock:
            self._decided.notify_all()

    def disown(self) -> None:
        """This process is a fork of the one that made the Executor, and has none of its threads: calls here fail."""
        # Another thread may have held these locks in the moment of the fork.
        self._lock = threading.RLock()
        self._more, self._decided = threading.Condition(self._lock), threading.Condition(self._lock)
        left = [*self._sent.values(), *(future for future, _ in self._waiting), *self._blocked]
        self._sent.clear()
        self._waiting.clear()
        self._blocked.clear()
        self._broken = (
            "this redmesh.Executor belongs to the process from which this one was forked: open another Executor here"
        )
        for future in left:
            future.disown(self._failure(self._broken))

    def _failure(self, reason: str) -> BrokenProcessPool:
        error = BrokenProcessPool(reason)
        error.__cause__ = self._cause
        return error

    def _send_control(self, message: dict[str, Any]) -> None:
        payload = json.dumps(message).encode()
        self._sock.sendall(_FRAME.pack(_CONTROL, len(payload)) + payload)


#: The Executors of this process.
_open: weakref.WeakSet[Executor] = weakref.WeakSet()


def _disown_all() -> None:
    for executor in list(_open):
        executor.disown()
    _open.clear()


os.register_at_fork(after_in_child=_disown_all)


def _plain(value: Any, depth: int = 4) -> bool:
    """True if the standard pickle is enough: numbers, strings and containers of them, which most arguments are.
    ``depth``: of containers, which may contain themselves."""
    return isinstance(value, (int, float, str, bytes, type(None))) or (
        type(value) in (tuple, list)
        and len(value) < 10_000
        and depth > 0
        and all(_plain(one, depth - 1) for one in value)
    )


def _results(payload: bytes) -> Iterator[tuple[int, int, bytes]]:
    at = 0
    while at < len(payload):
        number, how, length = _RESULT.unpack_from(payload, at)
        at += _RESULT.size
        yield number, how, payload[at : at + length]
        at += length


def _submitted(words: list[str], env: Mapping[str, str] | None) -> dict[str, Any]:
    def undo(answer: str) -> None:
        if answer:
            _end_job(each_to_system(json.loads(answer))["socket"], _GAVE_UP)

    command = [*start_command("mesh"), "submit", "--json", *words]
    answered = ask(command, {**os.environ, **env} if env else None, undo)
    if answered.status:
        message = answered.complaint("mesh") or f"mesh submit exited with {answered.status}"
        raise RedmeshError(message, exit_status=answered.status)
    told: dict[str, Any] = each_to_system(json.loads(answered.out))
    return told


def _tell_of_machine(job: dict[str, Any], max_workers: int | None) -> None:
    """Say that a mesh is started, to a user who looks, and that it has fewer processors than were asked for."""
    count = job.get("processors")
    if count is None:
        return
    mesh = f"{count:,} processor{'s' * (count != 1)}"
    if job.get("starts") and (sys.stderr.isatty() or "ipykernel" in sys.modules):
        print(f"redmesh: no mesh is up: starting a personal mesh of {mesh} (mesh down ends it)", file=sys.stderr)
    if max_workers is not None and max_workers > count:
        warnings.warn(f"max_workers is {max_workers:,}, but the mesh has {mesh}", stacklevel=3)


def _row(uuid: str) -> dict[str, Any]:
    """The job's row of ``mesh queue``; {} if there is none."""
    try:
        rows = json.loads(ask([*start_command("mesh"), "queue", "--json"]).out)
        return next((row for row in rows if row["uuid"] == uuid), {})
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _connected(path: str) -> socket.socket:
    deadline = time.monotonic() + _BEGIN_S
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        while True:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.connect(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
                return sock
            except OSError as error:
                sock.close()
                if time.monotonic() > deadline:
                    raise RedmeshError(f"the owner of the job does not answer at {path}: {error}") from None
                time.sleep(0.01)  # the job's owner is still starting
    finally:
        os.close(directory)


def _end_job(path: str, reason: str) -> bool:
    """Have the owner that listens at ``path`` cancel its job; False if it does not answer."""
    payload = json.dumps({"op": "cancel", "id": 1, "reason": reason}).encode()
    try:
        with _connected(path) as sock:
            sock.sendall(_FRAME.pack(_CONTROL, len(payload)) + payload)
            sock.recv(1)
    except (OSError, RedmeshError):
        return False
    return True


def _unpickled_error(text: object) -> BaseException | None:
    """The exception of an initializer, with its traceback as the cause."""
    try:
        error, told = pickle.loads(base64.b64decode(str(text)))
        error.__cause__ = RemoteTraceback(told)
    except Exception:
        return None
    return error if isinstance(error, BaseException) else None


def _write(path: str, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass

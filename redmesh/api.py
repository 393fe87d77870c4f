"""``redmesh.launch``: a launch as an object. It starts a yod process and reads its event stream (docs/python.md)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import IO, Any, Self

from redmesh.answers import ask, said_file, start
from redmesh.errors import LaunchFailed, NotLaunched, RedmeshError
from redmesh.events import Allocated, Event, Exit, Output, Result, Started, read_event
from redmesh.start_command import start_command

PIPE = subprocess.PIPE
_PIECE = 256 << 10
_STACKS_S = 10.0  # how long nodes may take to collect the stacks of their ranks
_LEAVE_S = 10.0  # how long yod may take to end its ranks before it is killed; the RCA then ends them


class Launch:
    """A running launch. Iterate over it with ``for`` or ``async for`` to get its events, or call only ``wait``.

    Used as a context manager (``with`` or ``async with``), it kills the launch if it still runs at the end of the
    block.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None, stdin: bytes | int | None) -> None:
        self._follows = "--attach" in command
        self._env = {**os.environ, **env} if env else None
        self._said = said_file()
        given: IO[bytes] | int = (
            subprocess.DEVNULL if stdin is None else stdin if isinstance(stdin, int) else _file(stdin)
        )
        # read without buffering, so that blocking and asynchronous readers may mix
        self._process, self._events = start([*_yod(), *command], self._env, self._said, stdin=given)
        if not isinstance(given, int):
            given.close()
        self._exits: dict[int, Exit] = {}
        self._early: list[Event] = []  # events that signal() has read and that the iterator has not yet returned
        self._buffer, self._searched = bytearray(), 0
        self._words = ""
        self.launcher = 0  # the launcher id; 0 until processors have been allocated
        self.started = False

    # Events

    def __iter__(self) -> Iterator[Event]:
        """Yield events as they arrive, until the launch ends."""
        while True:
            event = self._early.pop(0) if self._early else self._read()
            if event is None:
                return
            yield event

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yield events as they arrive, until the launch ends, without blocking the event loop."""
        while True:
            event = self._early.pop(0) if self._early else await self._read_later()
            if event is None:
                return
            yield event

    def _read(self) -> Event | None:
        while not self._events.closed:
            line = self._line()
            if line:
                return self._take(line)
            if not self._more():
                self._process.wait()
                self._over()
        return None

    async def _read_later(self) -> Event | None:
        while not self._events.closed:
            line = self._line()
            if line:
                return self._take(line)
            await _readable(self._events.fileno())
            if not self._more():
                await asyncio.to_thread(self._process.wait)
                self._over()
        return None

    def _line(self) -> bytes:
        end = self._buffer.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._buffer)
            return b""
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        self._searched = 0
        return line

    def _more(self) -> bool:
        data = os.read(self._events.fileno(), _PIECE)
        self._buffer += data
        return bool(data)

    def _take(self, line: bytes) -> Event:
        event = read_event(json.loads(line))
        if isinstance(event, Exit):
            self._exits[event.rank] = event
        elif isinstance(event, Allocated):
            self.launcher = event.launcher
        elif isinstance(event, Started):
            self.started = True
        return event

    def _over(self) -> None:
        if not self._said.closed:
            self._said.seek(0)
            self._words = self._said.read().decode("utf-8", "replace")
            self._said.close()
        self._events.close()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    # The end of the launch

    def wait(self, *, check: bool = True) -> Result:
        """Wait for the end of the launch and return its result.

        Raises NotLaunched if no rank ever ran, and LaunchFailed if the launch failed and ``check`` is true.
        """
        return self._result([event for event in self if isinstance(event, Output)], check)

    async def finished(self, *, check: bool = True) -> Result:
        """Wait for the end of the launch without blocking the event loop; same result and errors as :meth:`wait`."""
        return self._result([event async for event in self if isinstance(event, Output)], check)

    def _result(self, outputs: list[Output], check: bool) -> Result:
        by_rank: dict[int, bytearray] = {}
        streams = {"stdout": bytearray(), "stderr": bytearray()}
        for event in outputs:
            streams[event.stream] += event.data
            if event.stream == "stdout":
                by_rank.setdefault(event.rank, bytearray()).extend(event.data)
        status = self._process.returncode
        status = 128 - status if status < 0 else status
        result = Result(
            status, self.launcher, dict(sorted(self._exits.items())), bytes(streams["stdout"]),
            bytes(streams["stderr"]), {rank: bytes(by_rank[rank]) for rank in sorted(by_rank)}, self._words,
        )  # fmt: skip
        if check and status:
            self._complain(result)
        return result

    def _complain(self, result: Result) -> None:
        lines = [line.removeprefix("yod: ") for line in result.said.splitlines() if line.startswith("yod: ")]
        bad = [line for line in lines if ": exit 0, " not in line]  # the table lists all ranks, successful ones too
        told = bad[0] if bad else f"yod ended with {result.exit_status}"
        if self.started or self._follows:
            raise LaunchFailed(told, result)
        raise NotLaunched(told, exit_status=result.exit_status)

    # Control

    def write(self, data: bytes) -> None:
        """Write to the standard input of the ranks; needs ``stdin=redmesh.PIPE``."""
        if self._process.stdin is None:
            raise RedmeshError(
                "standard input of this launch is not a pipe from here", "launch(…, stdin=redmesh.PIPE)", exit_status=2
            )
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def close_stdin(self) -> None:
        """Close the standard input of the ranks."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def signal(self, number: int, ranks: Sequence[int] | None = None) -> None:
        """Wait until the ranks run, then send a signal to ``ranks`` (None: all). Raises RedmeshError if the launch
        is over."""
        self._await_start()
        if not self.launcher:
            raise RedmeshError("the launch has no running process to signal")
        words = ["--signal", str(int(signal.Signals(number))), str(self.launcher)]
        if ranks is not None:
            words.append(",".join(map(str, sorted(set(map(int, ranks))))))
        _ask("yod", words, self._env)

    def stacks(self, ranks: str | None = None, *, which: str = "all", limit_s: float = _STACKS_S) -> dict[str, Any]:
        """Wait until the ranks run, then return their stacks merged into one tree (docs/stacks.md). Raises
        RedmeshError."""
        self._await_start()
        return stacks(self.launcher, ranks=ranks, which=which, limit_s=limit_s, env=self._env)

    def _await_start(self) -> None:
        while not self.started and not self._follows:
            event = self._read()
            if event is None:
                break
            self._early.append(event)

    def terminate(self) -> None:
        """Send SIGTERM to every rank, and SIGKILL five seconds later."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill every rank and wait for the end of the launch. A launch from :func:`attach` is left running; only our
        connection to it is closed."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT if self._follows else signal.SIGTERM)
            self._kill_again()
            try:
                self._events.close()  # yod must not block on output that nobody reads
                self._process.wait(_LEAVE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._over()

    def _kill_again(self) -> None:
        # yod kills its ranks at the second SIGTERM. Two signals that arrive together count as one, so wait between
        # them.
        if not self._follows:
            try:
                self._process.wait(0.2)
            except subprocess.TimeoutExpired:
                self._process.terminate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.kill()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await asyncio.to_thread(self.kill)


def launch(
    program: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    size: int | None = None,
    processors: str | None = None,
    cpus_per_task: int | None = None,
    overcommit: bool = False,
    kill_on_bad_exit: bool = False,
    wait_for_nodes_s: float | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | int | None = None,
    options: Sequence[str] = (),
) -> Launch:
    """Start a parallel program: its command line, as ``size`` ranks or on ``processors`` (``0..3,8`` or node names).

    ``env`` is added to the environment of this process. ``stdin`` is bytes, ``redmesh.PIPE`` (see ``write``) or None.
    ``options`` are further options of yod (docs/yod.md). Returns while the program is still being loaded.
    """
    words: list[str] = ["--json"]
    for name, value in (
        ("--size", size), ("--list", processors), ("--cpus-per-task", cpus_per_task),
        ("--wait-for-nodes", wait_for_nodes_s), ("--chdir", os.path.abspath(cwd) if cwd is not None else None),
    ):  # fmt: skip
        if value is not None:
            words += [name, str(value)]
    words += [name for name, on in (("--overcommit", overcommit), ("--kill", kill_on_bad_exit)) if on]
    command = [program] if isinstance(program, (str, os.PathLike)) else list(program)
    return Launch([*words, *options, *(os.fspath(word) for word in command)], env, stdin)


def run(
    program: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, check: bool = True, **options: Any
) -> Result:
    """Start a program with :func:`launch` and wait for its end."""
    with launch(program, **options) as running:
        return running.wait(check=check)


def attach(launcher: int, *, env: Mapping[str, str] | None = None) -> Launch:
    """Follow a launch that another process started. A detached launch gives its events from its beginning, others
    from now."""
    running = Launch(["--json", "--attach", str(launcher)], env, None)
    running.launcher = launcher
    return running


def stacks(
    launcher: int,
    *,
    ranks: str | None = None,
    which: str = "all",
    limit_s: float = _STACKS_S,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the stacks of all ranks of a running launch, merged into one tree (docs/stacks.md).

    ``ranks`` is a list such as ``0-3,7``; ``which`` is ``all``, ``native`` or ``python``. Raises RedmeshError if the
    launch does not exist.
    """
    words = ["stacks", str(launcher), "--json", "--limit", str(limit_s)]
    if ranks is not None:
        words += ["--ranks", ranks]
    if which != "all":
        words.append(f"--{which}")
    found: dict[str, Any] = json.loads(_ask("mesh", words, {**os.environ, **env} if env else None))
    return found


def _ask(name: str, words: list[str], env: Mapping[str, str] | None) -> str:
    """Return the standard output of one of our commands. If it is empty, raises RedmeshError with the text from
    stderr."""
    answered = ask([*start_command(name), *words], env)
    if answered.status and not answered.out:
        message = answered.complaint(name) or f"{name} exited with {answered.status}"
        raise RedmeshError(message, exit_status=answered.status)
    return answered.out


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(fd, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def _yod() -> list[str]:
    return start_command("yod")


def _file(data: bytes) -> IO[bytes]:
    file = tempfile.TemporaryFile()  # noqa: SIM115 (the child gets the file, then we close it)
    file.write(data)
    file.seek(0)
    return file

r"""Detaches launches: a running one (``^\``), which then continues without the terminal, or a new one (``-detach``).

The shell waits for the process of the running yod, and a launcher is identified by its process. So a child process
takes over the launch: it tells a CPA its process id, registers with the RCA, and writes further output to a spool. Then
the first process exits. If no CPA answers, nothing changes.
"""

from __future__ import annotations

import os
import signal
import sys

from console.launch.daemons.connect import start_time
from console.launch.daemons.rca import Registration
from console.launch.events.spool import SpoolFront

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn, Protocol

    from agents.link.loop import Loop
    from console.launch.daemons.allocation import Allocation, Daemons
    from console.launch.events.stream import Stream
    from console.launch.options.request import Request
    from console.launch.states import Launch
    from console.launch.stdio.frontend import Front
    from console.launch.stdio.sink import Sink

    class Detachable(Protocol):
        """The interface of a running launch for the process that takes it over."""

        loop: Loop
        request: Request
        daemons: Daemons
        allocation: Allocation
        launch: Launch
        front: Front
        stream: Stream

        @property
        def reads_input(self) -> bool:
            """True if standard input goes to the ranks."""

        def end_input(self) -> None:
            """End the ranks' standard input."""

        def observe(self) -> None:
            """Open the socket for observers."""

        def replace_front(self, front: SpoolFront) -> None:
            """Send further output and events to ``front``."""

        def on_output_written(self, amount: int) -> None:
            """Return credit: ``amount`` bytes of output were written."""

        def on_output_broken(self, message: str, exit_status: int) -> None:
            """Handle the loss of the output's reader."""


_ANSWER_S = 3.0
_PATIENCE_S = 60.0


def leave(engine: Detachable) -> None:
    """Detach the launch. On success it returns only in the child, where the launch continues."""
    from console.launch.stdio.gather import GatherFront

    front, run = engine.front, engine.request.run
    if engine.launch.state.value != "running":
        front.status("nothing runs that could be detached")
        return
    if isinstance(front, GatherFront) or (run is not None and (run.hold or run.pty is not None)):
        front.status("a launch that is held, gathered or on a terminal of its own cannot be detached")
        return
    reader, writer = os.pipe()
    wakeup = signal.set_wakeup_fd(-1)  # the child shares this pipe: a ^C in the parent must not wake the child
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        _take_over(engine, writer)
        return
    os.close(writer)
    taken = os.read(reader, 1)
    os.close(reader)
    if taken:
        _go(engine)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    os.waitpid(child, 0)
    # A CPA may have recorded the child although the answer was lost, so record this process again.
    again = engine.allocation.cookied("moved", pid=os.getpid(), pid_started=start_time(os.getpid()))
    engine.daemons.cpa.ask(again, lambda _reply, _error: None, _PATIENCE_S, patient=True)
    front.status("not detached: no CPA has taken note of it")


def _go(engine: Detachable) -> NoReturn:
    """In the first process: unregister, print the message, write the remaining output, and exit."""
    number = engine.launch.launcher
    engine.daemons.rca.unregister_now()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    front = engine.front
    front.output_ended()
    told = f"yod --attach {number} follows it, yod -signal TERM {number} ends it"
    front.line(f"yod: detached; launcher {number} goes on ({told})")
    for sink in (front.out, front.err):
        sink.write_out()
    os._exit(0)


def _take_over(engine: Detachable, writer: int) -> None:
    from agents.link.client import Client
    from agents.wire.errors import AgentError
    from console.launch.daemons.cpa import cpa_sockets

    pid = os.getpid()
    began = start_time(pid)
    moved = engine.allocation.cookied("moved", pid=pid, pid_started=began)
    for path in cpa_sockets(engine.daemons.run_dir):
        try:
            with Client(path, "launcher", _ANSWER_S) as client:
                client.call(moved)
            break
        except AgentError:
            continue
    else:
        os._exit(1)
    os.setsid()
    os.write(writer, b"1")
    os.close(writer)
    signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    _register(engine, pid, began)
    _spool(engine)
    engine.observe()


def _register(engine: Detachable, pid: int, began: int) -> None:
    daemons = engine.daemons
    daemons.rca.abandon()  # the connection belongs to the first process, which unregisters
    daemons.rca = Registration(engine.loop, f"{daemons.run_dir}/rca.sock", pid, began, engine.launch.launcher)


def _spool(engine: Detachable) -> None:
    """Replace the frontend by a spool. Standard input is still read, unless it is a terminal."""
    from console.launch.daemons.connect import user

    hello = {"command": engine.request.command, "size": engine.launch.ranks.size, "user": user(), "state": "running"}
    spool = SpoolFront(engine.daemons.state_dir, hello, engine.on_output_written, engine.on_output_broken)
    for event in engine.stream.past:
        spool.event(event)
    sinks: list[Sink] = [engine.front.out, engine.front.err]
    engine.replace_front(spool)
    engine.stream.emit({"event": "note", "node": "", "text": "detached: what came before went to a terminal"})
    for sink in sinks:
        engine.on_output_written(sink.abandon())
    if os.isatty(0):
        engine.end_input()
        keep_input = False
    else:
        keep_input = engine.reads_input
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2)[keep_input:]:
        os.dup2(null, fd)
    os.close(null)
    spool.let_go_of_terminal()


# ``-detach``: the launch runs in its own session, and only its launcher id is printed here.


def detach(launch: Callable[[Callable[[int], None]], int]) -> int:
    """Run ``launch(on_running)`` in a child with its own session; return its exit status if it fails.

    Once the launch runs, print its launcher id and return 0. Call this before connecting to any daemon, because a
    launcher is identified by its process.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _be_child(launch, writer)
    os.close(writer)
    try:
        told = _read_all(reader)
        if told:
            sys.stdout.write(told.decode("ascii"))
            sys.stdout.flush()
            return 0
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except KeyboardInterrupt:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        return 128 + signal.SIGINT


def _be_child(launch: Callable[[Callable[[int], None]], int], writer: int) -> None:
    status = 125
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)

        def on_running(launcher: int) -> None:
            os.write(writer, b"%d\n" % launcher)
            os.close(writer)

        status = launch(on_running)
    finally:
        os._exit(status)


def _read_all(fd: int) -> bytes:
    told = b""
    while piece := os.read(fd, 64):
        told += piece
        if told.endswith(b"\n"):
            break
    os.close(fd)
    return told

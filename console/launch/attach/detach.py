"""^\\ at a running launch: it goes on as a detached one, and the terminal is free.

The shell waits for our process, and a launcher is known by its process. So a child takes the launch over: it tells
the CPA its process id, registers with the RCA, and keeps the output from now on in a spool. Only then we go; when the
CPA does not answer, everything stays as it was.
"""

from __future__ import annotations

import os
import signal
import sys

from agents.wire.control import control
from console.launch.daemons.connect import start_time
from console.launch.daemons.rca import Registration
from console.launch.events.spool import SpoolFront
from console.launch.states import Do

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from console.launch.engine import Engine
    from console.launch.stdio.sink import Sink

_ANSWER_S = 3.0
_PATIENCE_S = 60.0


def leave(engine: Engine) -> None:
    """Detach the launch; does not return when it worked. In the child it returns, and the launch goes on there."""
    from console.launch.stdio.gather import GatherFront

    front, manner = engine.front, engine._request.manner
    if engine.launch.state.value != "running":
        front.status("nothing runs that could be detached")
        return
    if isinstance(front, GatherFront) or (manner is not None and (manner.hold or manner.pty is not None)):
        front.status("a launch that is held, gathered or on a terminal of its own cannot be detached")
        return
    reader, writer = os.pipe()
    wakeup = signal.set_wakeup_fd(-1)  # ours and the child's are one pipe: a ^C here is not for the child
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
    # a CPA may have taken note all the same, and its answer been lost
    again = engine._cookied("moved", pid=os.getpid(), pid_started=start_time(os.getpid()))
    engine._cpa.ask(again, lambda _reply, _error: None, _PATIENCE_S, patient=True)
    front.status("not detached: no CPA has taken note of it")


def _go(engine: Engine) -> NoReturn:
    """In the old process: unregister, tell, and leave when the terminal has what was on its way to it."""
    number = engine.launch.launcher
    caller = engine._rca._caller
    if caller is not None and caller.link.sock is not None:
        caller.link.sock.setblocking(True)
        try:
            caller.link.sock.sendall(control({"op": "unregister", "id": 1 << 30}))
        except OSError:
            pass  # the RCA is away, and will not know of us
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    front = engine.front
    labeller = getattr(front, "_labeller", None)
    if labeller is not None:
        front.output_ended()
    told = f"yod --attach {number} follows it, yod -signal TERM {number} ends it"
    front.line(f"yod: detached; launcher {number} goes on ({told})")
    for sink in (front.out, front.err):
        sink.write_out()
    os._exit(0)


def _take_over(engine: Engine, writer: int) -> None:
    from agents.link.client import Client
    from agents.wire.errors import AgentError
    from console.launch.daemons.cpa import cpa_sockets

    pid = os.getpid()
    began = start_time(pid)
    moved = engine._cookied("moved", pid=pid, pid_started=began)
    for path in cpa_sockets(engine._run_dir):
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
    engine._observe()


def _register(engine: Engine, pid: int, began: int) -> None:
    old = engine._rca
    old._over = True
    if old._caller is not None:
        old._caller.close()  # the socket lives on in the old process, which unregisters
    new = Registration(engine._loop, f"{engine._run_dir}/rca.sock", pid, began, engine.launch.launcher)
    engine._rca = new
    engine._doing[Do.UNREGISTER] = new.unregister


def _spool(engine: Engine) -> None:
    """From here on a spool is our front; standard input goes on if it is no terminal."""
    from console.launch.daemons.connect import user
    from console.launch.stdio.files import FilesFront

    hello = {"command": engine._request.command, "size": engine.launch.ranks.size, "user": user(), "state": "running"}
    spool = SpoolFront(engine._state_dir, hello, engine._passed, engine._output_broken)
    for event in engine.stream.past:
        spool.event(event)
    sinks: list[Sink] = [engine.front.out, engine.front.err]
    if isinstance(engine.front, FilesFront):
        engine.front.take_inner(spool)
    else:
        engine.front = spool  # type: ignore[assignment]
    engine.stream.front = spool.event
    engine._doing[Do.STATUS] = spool.status
    engine.stream.emit({"event": "note", "node": "", "text": "detached: what came before went to a terminal"})
    for sink in sinks:
        engine._passed(sink.abandon())
    if os.isatty(0):
        engine.end_input()
        keep_input = False
    else:
        keep_input = engine._feeder is not None
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2)[keep_input:]:
        os.dup2(null, fd)
    os.close(null)
    spool.let_go_of_terminal()


# ``-detach``: the launch goes on in a session of its own, and its launcher id is all that is left here.


def detach(launch: Callable[[Callable[[int], None]], int]) -> int:
    """Run ``launch(on_running)`` in a child of its own session; returns when it runs (0, its id on stdout) or failed.

    Nothing may have been connected before: a launcher is known by its process.
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

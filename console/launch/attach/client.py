"""Follows or controls a running launch from another process: yod --attach, --signal, --release and --feed."""

from __future__ import annotations

import codecs
import os
import signal
import time

from agents.link.link import Link
from agents.link.loop import Loop
from agents.link.sockets import LOOK_S, connect
from agents.wire.control import decode
from agents.wire.errors import WireError
from agents.wire.frames import CONTROL, STDERR, STDOUT, Decoder
from agents.wire.messages import check_hello, hello
from console.errors import ConsoleError
from console.launch.daemons.connect import Whereabouts, whereabouts, yod_owner, yod_socket
from console.launch.events.spool import is_held, spool_path
from redmesh.sanitise import clean
from redmesh.text import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import Any

    from agents.link.client import Client
    from console.launch.events.crashes import Traces
    from console.launch.options.request import Request
    from console.launch.stdio.frontend import Front

_HELD = 4 << 20  # bytes that may wait for the reader of standard output before reading of the stream pauses
_SOCKET_S = 1.0  # a launch opens its socket a moment after its start
# if RUN was removed, it opens the socket again a moment after the keeper has created RUN again
_BACK_S = 2 * LOOK_S + 1
#: Seconds more for a launch that runs according to a CPA.
_BUSY_S = 10.0
_ANSWER_S = 5.0
_PIECE = 256 << 10
_TYPED = 16 << 10  # bytes of input sent at once


class Attached:
    """Prints a launch's event stream through a frontend. ``run`` returns the launch's exit status, or 130 on ^C."""

    def __init__(
        self,
        run_dir: str,
        state_dir: str,
        launcher: int,
        request: Request,
        make_front: Callable[[Loop, Request, Callable[[int], None], Callable[[str, int], None]], Front],
    ) -> None:
        self._launcher = launcher
        self._spool = spool_path(state_dir, launcher)
        self._loop = Loop()
        self._front = make_front(self._loop, request, self._passed, self._broken)
        self._link: Link | None = None
        self._file = -1
        self._received = 0
        self._inode = 0  # of the spool in which ``_received`` counts; 0: the first one
        self._status: int | None = None
        self._told = ""
        self._traces: Traces | None = None
        self._paused = False
        self._greeted = False
        self._live = reach_launch(run_dir, launcher, self._spool)

    def run(self) -> int:
        """Follow the launch to its end."""
        self._loop.on_signal(signal.SIGINT, self._detach)
        if self._live is not None:
            self._link = Link(self._loop, self._live, self._on_frame, self._on_end)
            self._link.send(hello("observer"))
            self._link.send({"op": "attach", "replay": True, "output": True})
        else:
            self._read_file()
        while self._status is None or not self._front.drained:
            self._loop.run_once(None)
            if self._status is not None and self._status in (130, 141):
                break
        return self._status

    def _on_frame(self, _link: Link, kind: int, payload: bytes) -> None:
        if not self._greeted:
            check_hello(decode(payload))
            self._greeted = True
            return
        self._received += 5 + len(payload)
        self._take(kind, payload)
        if self._waiting > _HELD and self._link is not None and not self._paused:
            self._paused = True
            self._link.pause()

    @property
    def _waiting(self) -> int:
        return self._front.out.waiting + self._front.err.waiting

    def _take(self, kind: int, payload: bytes) -> None:
        if kind in (STDOUT, STDERR):
            view = memoryview(payload)
            self._front.output(kind, int.from_bytes(view[:4], "big"), view[4:])
        elif kind == CONTROL:
            self._event(decode(payload))
        else:
            raise WireError(f"a frame of kind {kind} in an event stream")

    def _event(self, event: dict[str, Any]) -> None:
        name = event.get("event")
        if name == "moved":  # the spool was rewritten: count from here
            self._received, self._inode = int(event["offset"]), int(event["file"])
            return
        self._front.event(event)
        if name == "hello" or name == "allocated":
            self._front.planned(int(event.get("size", 1)))
        elif name == "skipped":
            why = "dropped from the spool, the oldest first" if event.get("dropped") else "the reader was too slow"
            self._front.status(f"{counted(int(event.get('bytes', 0)), 'byte was', 'bytes were')} skipped: {why}")
        elif name in ("note", "lost", "aborted", "gives_way"):
            text = str(event.get("text") or event.get("reason"))
            if text != self._told:  # yod's messages are also in a spool, beside the event that caused them
                self._front.status(text)
            self._told = text
        elif name == "bad_exit":
            self._tell_bad_exit(event)
        elif name == "held":
            self._front.status(f"held at its first instruction; yod --release {self._launcher} lets it run")
        elif name == "backtrace":
            self._stack(event)
        elif name == "end":
            self._front.output_ended()
            self._tell_stacks()
            self._status = int(event["exit_status"]) & 0xFF

    def _tell_bad_exit(self, event: dict[str, Any]) -> None:
        from console.launch.events.bad_exits import lines

        for line in lines(event, str(event["stop"]) if self._live is not None else ""):
            self._front.status(line)

    def _stack(self, event: dict[str, Any]) -> None:
        if self._traces is None:
            from console.launch.events.crashes import Traces

            self._traces = Traces()
        self._traces.add(event["rank"], event["node"], event)

    def _tell_stacks(self) -> None:
        for row in self._traces.rows() if self._traces is not None else ():
            self._front.line(f"yod: {row}")

    def _passed(self, _amount: int) -> None:
        if self._paused and self._link is not None and self._waiting < _HELD // 2:
            self._paused = False
            self._loop.after(0, self._link.resume)

    def _broken(self, message: str, exit_status: int) -> None:
        if message:
            self._front.complain(message)
        self._status = exit_status

    def _detach(self) -> None:
        number = self._launcher
        self._front.status(
            f"detached; launcher {number} goes on (yod --attach {number} follows it, yod -signal TERM {number} ends it)"
        )
        self._status = 130

    def _on_end(self, _link: Link, _reason: str) -> None:
        self._link = None
        if self._status is None:
            self._read_file()

    def _read_file(self) -> None:
        """Read the rest from the spool, because the launch has ended."""
        try:
            self._file = os.open(self._spool, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._front.complain(
                f"launcher {self._launcher} has gone without a word", "mesh history tells how it ended"
            )
            self._status = 125
            return
        if self._inode and os.fstat(self._file).st_ino != self._inode:
            self._front.status("the reader was too slow: what is still kept of the output follows")
            self._received = 0
        self._decoder = Decoder()
        self._read_piece()

    def _read_piece(self) -> None:
        if self._waiting > _HELD:
            self._loop.after(0.02, self._read_piece)
            return
        data = os.pread(self._file, _PIECE, self._received)
        self._received += len(data)
        for kind, payload in self._decoder.feed(data):
            self._take(kind, payload)
        if data and self._status is None:
            self._loop.after(0, self._read_piece)
        elif self._status is None:
            self._front.complain(f"launcher {self._launcher} ended without a word", "mesh history tells more")
            self._status = 125


def reach_launch(run_dir: str, launcher: int, spool: str = "") -> socket.socket | None:
    """Connect to the yod of ``launcher``; return None if it has left a ``spool`` and ended. Raises ConsoleError.

    A yod holds its spool: if it does, it runs, even if its socket is missing. So does one that a CPA knows; on a busy
    machine it takes longer to make a removed socket again.
    """
    held, known = is_held(spool), False
    deadline = time.monotonic() + (_BACK_S if held or _was_removed(run_dir) else _SOCKET_S)
    while True:
        try:
            path = yod_socket(run_dir, launcher)
            return connect(path, _ANSWER_S, yod_owner(path))
        except OSError:
            held = is_held(spool)  # it may have ended just now
            if not held and os.path.exists(spool):
                return None
        if time.monotonic() > deadline:
            found = Whereabouts(here=True) if held else whereabouts(run_dir, launcher)
            if held or (known and found.here):
                raise ConsoleError(
                    f"launcher {launcher} runs, but nobody answers at {yod_socket(run_dir, launcher)}",
                    "mesh status tells whether the directory of its socket was removed",
                )
            if found.here:
                known, deadline = True, time.monotonic() + _BUSY_S
                continue
            if found.login:
                raise ConsoleError(f"launcher {launcher} is on login processor {clean(found.login)}", "say it there")
            if found.ended:
                told = f"launcher {launcher} does not run: it has ended, or no launch had this number"
                raise ConsoleError(told, "showmesh and pingd list those that run, mesh history those that have ended")
            raise ConsoleError(
                f"no launcher {launcher} of yours runs on this login processor", "showmesh and pingd list the launchers"
            )
        time.sleep(0.02)  # poll: a socket does not report its creation


def _was_removed(run_dir: str) -> bool:
    """True if RUN was removed recently, so that daemons are creating their sockets again (agents/link/sockets.py)."""
    try:
        return time.time() - os.stat(f"{run_dir}/login").st_mtime < _BACK_S  # the keeper writes it again
    except OSError:
        return True  # RUN is missing, or another daemon has created it before the keeper's check


def _observer(run_dir: str, launcher: int) -> Client:
    """A connection to the yod of ``launcher``, which sends events from now on. Raises ConsoleError and Unreachable."""
    from agents.link.client import Client

    reach = reach_launch(run_dir, launcher)
    if reach is not None:
        reach.close()
    path = yod_socket(run_dir, launcher)
    client = Client(path, "observer", _ANSWER_S, yod_owner(path))
    client.tell({"op": "attach", "replay": False, "output": False})
    return client


def _await(client: Client, event: str) -> dict[str, Any]:
    while (message := client.receive()).get("event") != event:
        pass
    return message


def send_signal(run_dir: str, launcher: int, number: int, ranks: list[int] | None = None) -> None:
    """Have the yod of ``launcher`` signal ``ranks`` (ascending; None: all); wait until it has. Raises ConsoleError."""
    from agents.link.client import Unreachable

    try:
        with _observer(run_dir, launcher) as client:
            size = int(_await(client, "hello")["size"])
            if ranks and ranks[-1] >= size:
                raise ConsoleError(f"launcher {launcher} has no rank {ranks[-1]}", f"its ranks are 0 to {size - 1}")
            client.tell({"op": "signal", "signal": number, "ranks": ranks})
            _await(client, "signalled")
    except Unreachable:
        raise ConsoleError(f"launcher {launcher} did not confirm the signal", "it may have ended meanwhile") from None


def release(run_dir: str, launcher: int) -> None:
    """Have the yod of ``launcher`` release its held ranks. Raises ConsoleError if they are not held."""
    from agents.link.client import Unreachable

    try:
        with _observer(run_dir, launcher) as client:
            client.tell({"op": "release"})
            _await(client, "released")
    except Unreachable:
        raise ConsoleError(f"launcher {launcher} is not held", "yod --hold holds one") from None


def feed(run_dir: str, launcher: int, file: int) -> None:
    """Send the contents of a descriptor as UTF-8, then its end. Raises ConsoleError if the launch accepts no input."""
    from agents.link.client import Unreachable

    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        with _observer(run_dir, launcher) as client:
            while data := os.read(file, _TYPED):
                client.tell({"op": "input", "data": decoder.decode(data)})
                _await(client, "typed")
            client.tell({"op": "eof"})
    except Unreachable:
        raise ConsoleError(
            f"launcher {launcher} takes no input",
            "only what began with yod --detach --input=all (or shared, or a rank) does",
        ) from None

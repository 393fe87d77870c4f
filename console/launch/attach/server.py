"""Serves observers of a running launch over its socket. The launch never waits for an observer."""

from __future__ import annotations

import os
import time

from agents.link.acceptor import Acceptor
from agents.link.link import Link
from agents.link.sockets import LOOK_S, file_of, listen, listen_again, peer
from agents.wire.control import control, decode
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import CONTROL, frame
from agents.wire.messages import YOD, check, check_hello, hello
from console.launch.attach.tool_transfer import ToolTransfer
from console.launch.events.stream import stamped
from console.launch.states import Event, State
from redmesh import idset

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any, Protocol

    from agents.link.loop import Loop
    from console.launch.events.stream import Stream
    from console.launch.states import Launch
    from console.launch.stdio.frontend import Front

    class Observed(Protocol):
        """The interface of the launch for observers."""

        launch: Launch
        front: Front
        stream: Stream

        @property
        def spool_path(self) -> str:
            """The spool of a detached launch; "" for others."""

        def hello_event(self) -> dict[str, Any]:
            """The first event for an observer."""

        def handle(self, event: Event, *facts: Any) -> None:
            """Pass an event to the state machine and carry out its actions."""

        def type_input(self, data: bytes) -> None:
            """Send an observer's input to the ranks."""

        def end_input(self) -> None:
            """End the ranks' standard input."""

        def release(self) -> None:
            """Release a held launch."""

        def send(self, message: dict[str, Any]) -> None:
            """Send a message down the tree."""

        def processes(self) -> list[dict[str, Any]]:
            """Host, program and process of every rank."""


#: Bytes queued for an observer that does not read. Above this limit output is skipped, above four times the limit also
#: events.
HELD = 1 << 20
_LONGEST_REQUEST = 64 << 10
_PUMP = 256 << 10
_LOOK_S = 0.02
_BACKLOG = 64


class Observers:
    """The socket ``yod-LAUNCHER.sock`` and all observers connected to it."""

    def __init__(self, loop: Loop, path: str, engine: Observed) -> None:
        self.loop, self.path, self.engine = loop, path, engine
        self.connected: list[Observer] = []
        self._inspecting: Inspecting | None = None
        self._begin(listen(path, _BACKLOG))
        loop.after(LOOK_S, self._look_at_socket)

    def _begin(self, sock: socket.socket) -> None:
        self._sock, self._file = sock, file_of(self.path)
        self._acceptor = Acceptor(self.loop, sock, self._on_accept)

    def _look_at_socket(self) -> None:
        # Logind may have removed RUN with this socket at the last logout; make it again for new observers.
        if self._sock.fileno() < 0:
            return
        self.loop.after(LOOK_S, self._look_at_socket)
        try:
            sock = listen_again(self.path, self._file, _BACKLOG)
        except (OSError, AgentError):
            return  # the directory does not exist yet
        if sock is not None:
            self._acceptor.finish()
            self._sock.close()
            self._begin(sock)

    def _on_accept(self, sock: socket.socket, _address: object) -> None:
        if peer(sock).uid in (os.geteuid(), 0):
            self.connected.append(Observer(self, sock))
        else:
            sock.close()

    @property
    def inspecting(self) -> Inspecting:
        """The inspections (stacks, source, debuggers) that observers of this launch requested."""
        if self._inspecting is None:
            self._inspecting = Inspecting(self.engine, self.loop)
        return self._inspecting

    def forget(self, observer: Observer) -> None:
        """Handle the end of an observer's connection."""
        if self._inspecting is not None:
            self._inspecting.forget(observer)

    @property
    def behind(self) -> bool:
        """True if data waits to be sent to an observer."""
        return any(observer.behind for observer in self.connected)

    def finish(self, seconds: float) -> None:
        """Send waiting data to observers for at most ``seconds``, then :meth:`close`."""
        deadline = time.monotonic() + seconds
        while self.behind and time.monotonic() < deadline:
            self.loop.run_once(deadline - time.monotonic())
        self.close()

    def close(self) -> None:
        """Disconnect all observers without waiting; data that the kernel does not accept at once is lost."""
        self._acceptor.close()
        self._sock.close()
        try:
            os.unlink(self.path)
        except OSError:
            pass
        for observer in list(self.connected):
            observer.close()


def observe(loop: Loop, path: str, engine: Observed) -> Observers | None:
    """Open the launch's socket; if that fails, tell the user and return None."""
    try:
        return Observers(loop, path, engine)
    except (OSError, AgentError) as error:
        engine.front.status(f"nobody can observe this launch: {error}")
        return None


class Observer:
    """A connection of an observer. It gets the contents of the spool if there is one, otherwise live events."""

    def __init__(self, observers: Observers, sock: socket.socket) -> None:
        self._all = observers
        self._engine = observers.engine
        self._greeted = False
        self._output = False
        self._skipped = 0
        self._spool = -1
        self._offset = self._file = 0
        self._pumping = False
        self._link = Link(observers.loop, sock, self._on_frame, self._on_end, limit=_LONGEST_REQUEST)
        self._link.send(hello("yod"))

    def event(self, event: dict[str, Any]) -> None:
        """Send an event."""
        if self._spool >= 0:
            self._pump()
        elif self._caught_up(4 * HELD):
            self._link.send(event)
        else:
            self._skipped += 1

    def tell(self, event: dict[str, Any]) -> None:
        """Send a reply to this observer only."""
        self._link.send(event)

    def frame(self, kind: int, payload: bytes) -> None:
        """Send a rank's output."""
        if self._spool >= 0:
            self._pump()
        elif self._output:
            if self._caught_up(HELD):
                self._link.send_raw(frame(kind, payload))
            else:
                self._skipped += len(payload) - 4

    @property
    def behind(self) -> bool:
        """True if data waits to be sent."""
        return self._link.out_bytes > 0 or self._pumping

    def close(self) -> None:
        """Disconnect."""
        if self._spool >= 0:
            os.close(self._spool)
            self._spool = -1
        self._forget()
        self._link.close()

    def _caught_up(self, limit: int) -> bool:
        if self._link.out_bytes > limit:
            return False
        if self._skipped and self._link.out_bytes < limit // 2:
            self._link.send(stamped({"event": "skipped", "bytes": self._skipped}))
            self._skipped = 0
        return True

    def _on_frame(self, _link: Link, kind: int, payload: bytes) -> None:
        if kind != CONTROL:
            raise WireError(f"a frame of kind {kind} where a request was expected")
        message = decode(payload)
        if not self._greeted:
            check_hello(message)
            self._greeted = True
            return
        try:
            op = check(YOD, message)
        except AgentError as error:
            raise WireError(error.message) from None
        if op == "attach":
            self._attach(replay=message.get("replay", True), output=message.get("output", True))
        elif op == "signal":
            self._signal(message["signal"], message.get("ranks"))
        elif op == "kill":
            self._engine.handle(Event.KILL)
        elif op == "input":
            self._engine.type_input(message["data"].encode())
        elif op == "eof":
            self._engine.end_input()
        elif op == "release":
            self._engine.release()
        else:
            self._all.inspecting.ask(self, op, message)

    def _signal(self, number: int, ranks: Any) -> None:
        if not 0 < number < 65 or not (ranks is None or all(type(rank) is int for rank in ranks)):
            raise WireError("no such signal or ranks")
        self._engine.handle(Event.SIGNAL, number, ranks)

    def _attach(self, *, replay: bool, output: bool) -> None:
        stream = self._engine.stream
        if self in stream.listeners:
            raise WireError("attached already")
        self._output = output
        stream.listeners.append(self)
        path = self._engine.spool_path
        if output and path:
            self._spool = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            dropping = self._engine.front.dropping
            self._file = len(dropping.moves) if dropping is not None else 0
            self._offset = 0 if replay else os.fstat(self._spool).st_size
            self._pump()
            return
        self._link.send(self._engine.hello_event())
        if replay:
            for event in stream.past:
                self._link.send_raw(control(event))

    def _pump(self) -> None:
        # The spool has all data, so a slow observer needs a descriptor and no memory.
        while self._link.out_bytes < _PUMP and self._link.sock is not None:
            data = os.pread(self._spool, _PUMP, self._offset)
            if not data and self._next_file():
                continue
            if not data:
                return
            self._offset += len(data)
            self._link.send_raw(data)
        if not self._pumping and self._link.sock is not None:
            self._pumping = True
            self._all.loop.after(_LOOK_S, self._pump_again)

    def _next_file(self) -> bool:
        """If the spool was rewritten without its oldest output, continue at the same place in the new file.

        Returns False if it was not rewritten.
        """
        dropping = self._engine.front.dropping
        if dropping is None or self._file == len(dropping.moves):
            return False
        offset, lost = self._offset, 0
        for move in dropping.moves[self._file :]:
            offset, more = move.follow(offset)
            lost += more
        self._file, self._offset = len(dropping.moves), offset
        os.close(self._spool)
        self._spool = os.open(self._engine.spool_path, os.O_RDONLY | os.O_CLOEXEC)
        if lost:
            self._link.send(stamped({"event": "skipped", "bytes": lost}))
        self._link.send(stamped({"event": "moved", "offset": offset, "file": os.fstat(self._spool).st_ino}))
        return True

    def _pump_again(self) -> None:
        self._pumping = False
        if self._spool >= 0:
            self._pump()

    def _on_end(self, _link: Link, _reason: str) -> None:
        if self._spool >= 0:
            os.close(self._spool)
            self._spool = -1
        self._forget()

    def _forget(self) -> None:
        if self in self._engine.stream.listeners:
            self._engine.stream.listeners.remove(self)
        if self in self._all.connected:
            self._all.connected.remove(self)
            self._all.forget(self)


# Inspections: yod forwards them between observers and the tree without parsing the results, so the stacks of a thousand
# ranks cost no more than those of ten.


#: The most collections in progress for one launch; each reads every rank's stack.
MOST = 4
#: The most seconds that an observer may allow, and how much longer than the tree yod waits.
LONGEST_S, LATER_S = 120.0, 1.0
SOURCE_S = 5.0  # seconds for a node to read lines of a source file
_USUAL_S = 10.0


class Asked:
    """A request for stacks or source lines that the tree has not answered yet."""

    __slots__ = ("at", "began", "observer")

    def __init__(self, observer: Observer) -> None:
        self.observer, self.began, self.at = observer, time.monotonic(), time.time()


class Inspecting:
    """The inspections of all observers of a launch."""

    def __init__(self, engine: Observed, loop: Loop) -> None:
        self._engine, self._loop = engine, loop
        self._asked: dict[int, Asked] = {}
        self._debugging: dict[Observer, int] = {}
        self._lending = ToolTransfer(loop, engine.send)
        self._next = 0

    def ask(self, observer: Observer, op: str, message: dict[str, Any]) -> None:
        """Handle ``stacks``, ``source``, or an operation of ``debug``. Raises WireError for an invalid request."""
        if op in ("stacks", "debug"):
            given = message.get("tools") or {}
            self._lending.paths.update({str(name): str(path) for name, path in given.items()})
        if op == "stacks":
            self._collect(observer, message)
        elif op == "source":
            self._read_source(observer, message)
        elif op == "debug":
            self._begin(observer, message)
        elif op == "procs":
            self._tell_processes(observer)
        elif observer in self._debugging:
            self._engine.send(dict(message, session=self._debugging[observer]))

    def _begin(self, observer: Observer, message: dict[str, Any]) -> None:
        if observer in self._debugging:
            raise WireError("one debugger on a connection")
        why = self._refusal(1 << max(0, min(message["rank"], idset.MOST)))
        if why or message["rank"] < 0:
            observer.tell(stamped({"event": "refused", "op": "debug", "text": why or "no such rank"}))
            return
        self._next += 1
        self._debugging[observer] = self._next
        self._engine.send(dict(message, session=self._next))

    def _read_source(self, observer: Observer, message: dict[str, Any]) -> None:
        """Read lines of a file on the node of a rank."""
        why = "no such rank" if message["rank"] < 0 else self._refusal(1 << min(message["rank"], idset.MOST))
        if why:
            observer.tell(stamped({"event": "refused", "op": "source", "text": why}))
            return
        self._next += 1
        number = self._next
        self._asked[number] = Asked(observer)
        self._engine.send(dict(message, number=number))
        late = {"number": number, "node": "", "lines": [], "why": "no answer in time"}
        self._loop.after(SOURCE_S + LATER_S, lambda: self.told("source", late))

    def _tell_processes(self, observer: Observer) -> None:
        why = self._refusal(0)
        if why:
            observer.tell(stamped({"event": "refused", "op": "procs", "text": why}))
            return
        rows = [[one["host_name"], one["executable_name"], one["pid"]] for one in self._engine.processes()]
        observer.tell(stamped({"event": "procs", "launcher": self._engine.launch.launcher, "table": rows}))

    def forget(self, observer: Observer) -> None:
        """Handle the end of an observer's connection: end its debug session."""
        session = self._debugging.pop(observer, None)
        if session is not None:
            self._engine.send({"op": "debug_leave", "session": session})

    def _said(self, op: str, message: dict[str, Any]) -> None:
        for observer, session in list(self._debugging.items()):
            if session == message["session"]:
                if op == "debug_over":
                    del self._debugging[observer]
                told = {key: value for key, value in message.items() if key not in ("op", "session")}
                observer.tell(stamped({"event": op, **told}))

    def _collect(self, observer: Observer, message: dict[str, Any]) -> None:
        which, limit_s = message.get("which", "all"), float(message.get("limit_s", _USUAL_S))
        wanted = message.get("ranks")
        try:
            ranks = -1 if wanted is None else idset.read(wanted)
        except ValueError as error:
            raise WireError(f"stacks: {error}") from None
        if which not in ("all", "native", "python") or not 0 <= limit_s <= LONGEST_S:
            raise WireError("stacks: which is all, native or python; limit_s at most 120")
        why = self._refusal(ranks)
        if why:
            observer.tell(stamped({"event": "refused", "op": "stacks", "text": why}))
            return
        self._next += 1
        number = self._next
        self._asked[number] = Asked(observer)
        request = {"op": "stacks", "number": number, "which": which, "limit_s": limit_s}
        self._engine.send({**request, "ranks": wanted, "tools": message.get("tools") or {}})
        late = {"calls": [], "missing": [[wanted or self._all, "", "no answer in time"]], "number": number}
        self._loop.after(limit_s + LATER_S, lambda: self.told("stacks", late))

    @property
    def _all(self) -> str:
        return idset.text((1 << self._engine.launch.ranks.size) - 1)

    def _refusal(self, ranks: int) -> str:
        launch = self._engine.launch
        if launch.state is not State.RUNNING:
            return f"launcher {launch.launcher} does not run ({launch.state.value})"
        if ranks >> launch.ranks.size not in (0, -1):
            return f"launcher {launch.launcher} has ranks 0 to {launch.ranks.size - 1}"
        if len(self._asked) >= MOST:
            return f"{MOST} collections of launcher {launch.launcher} are under way; try again"
        return ""

    def told(self, op: str, message: dict[str, Any]) -> None:
        """Forward an answer of the tree to its observer; discard late answers."""
        if op == "want_tool":
            self._lending.wanted(message["name"])
            return
        if op not in ("stacks", "source"):
            self._said(op, message)
            return
        asked = self._asked.pop(message["number"], None)
        if asked is None:
            return
        if op == "source":
            asked.observer.tell(stamped({"event": op, **{key: message[key] for key in ("node", "lines", "why")}}))
            return
        launch = self._engine.launch
        event = {"event": "stacks", "launcher": launch.launcher, "ranks": launch.ranks.size, "taken_at": asked.at}
        event["took_s"] = round(time.monotonic() - asked.began, 4)
        event |= {"calls": message["calls"], "missing": message["missing"]}
        more = {"paths": message.get("paths", []), "lacks": message.get("lacks", [])}
        asked.observer.tell(stamped({**event, **more}))

"""Whoever follows a running launch through its socket: they are served, never waited for."""

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
from console.launch.forming import Event
from console.launch.stream import stamped

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

    from agents.link.loop import Loop
    from console.launch.engine import Engine
    from console.launch.inspecting import Inspecting

#: Bytes held for an observer that does not read; then output, and at four times as much events too, are skipped.
HELD = 1 << 20
_LONGEST_REQUEST = 64 << 10
_PUMP = 256 << 10
_LOOK_S = 0.02
_BACKLOG = 64


class Observers:
    """The socket ``yod-LAUNCHER.sock`` and everybody connected to it."""

    def __init__(self, loop: Loop, path: str, engine: Engine) -> None:
        self.loop, self.path, self.engine = loop, path, engine
        self.connected: list[Observer] = []
        self._inspecting: Inspecting | None = None
        self._begin(listen(path, _BACKLOG))
        loop.after(LOOK_S, self._look_at_socket)

    def _begin(self, sock: socket.socket) -> None:
        self._sock, self._file = sock, file_of(self.path)
        self._acceptor = Acceptor(self.loop, sock, self._on_accept)

    def _look_at_socket(self) -> None:
        # RUN may have been removed below us, at the last logout: whoever attaches looks for us there
        if self._sock.fileno() < 0:
            return
        self.loop.after(LOOK_S, self._look_at_socket)
        try:
            sock = listen_again(self.path, self._file, _BACKLOG)
        except (OSError, AgentError):
            return  # there is no place for it yet
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
        """Those who want to see into the launch."""
        if self._inspecting is None:
            from console.launch.inspecting import Inspecting

            self._inspecting = Inspecting(self.engine, self.loop)
        return self._inspecting

    def forget(self, observer: Observer) -> None:
        """One has gone."""
        if self._inspecting is not None:
            self._inspecting.forget(observer)

    @property
    def behind(self) -> bool:
        """Whether somebody has not got everything yet."""
        return any(observer.behind for observer in self.connected)

    def finish(self, seconds: float) -> None:
        """Serve those that are behind for so long at most, then :meth:`close`."""
        deadline = time.monotonic() + seconds
        while self.behind and time.monotonic() < deadline:
            self.loop.run_once(deadline - time.monotonic())
        self.close()

    def close(self) -> None:
        """No more observers; those there are get what the kernel takes at once."""
        self._acceptor.close()
        self._sock.close()
        try:
            os.unlink(self.path)
        except OSError:
            pass
        for observer in list(self.connected):
            observer.close()


def observe(loop: Loop, path: str, engine: Engine) -> Observers | None:
    """Open the launch's socket; None, and the user is told, when that cannot be."""
    try:
        return Observers(loop, path, engine)
    except (OSError, AgentError) as error:
        engine.front.status(f"nobody can observe this launch: {error}")
        return None


class Observer:
    """One connection. Follows the spool where there is one, else lives from now on."""

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
        """Something happened."""
        if self._spool >= 0:
            self._pump()
        elif self._caught_up(4 * HELD):
            self._link.send(event)
        else:
            self._skipped += 1

    def tell(self, event: dict[str, Any]) -> None:
        """An answer to this observer alone."""
        self._link.send(event)

    def frame(self, kind: int, payload: bytes) -> None:
        """A rank wrote something."""
        if self._spool >= 0:
            self._pump()
        elif self._output:
            if self._caught_up(HELD):
                self._link.send_raw(frame(kind, payload))
            else:
                self._skipped += len(payload) - 4

    @property
    def behind(self) -> bool:
        """Whether something waits to be sent."""
        return self._link.out_bytes > 0 or self._pumping

    def close(self) -> None:
        """Let it go."""
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
            from console.launch.typed import typed

            typed(self._engine, message["data"].encode())
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
        # The file has everything: a slow reader costs a descriptor, not memory.
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
        """The file was written anew without its oldest output: go on in the new one, where this one ended."""
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

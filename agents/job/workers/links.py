"""Connections to the owner of a job: yods that relay the requests of workers, and commands."""

from __future__ import annotations

import contextlib
import os
import struct

from agents.job.workers.commands import Command
from agents.job.workers.messages import Work, parse_request
from agents.job.workers.relay_frames import HELLO, OVER, pack_answer, parse
from agents.job.workers.worker import Connection
from agents.link.acceptor import Acceptor
from agents.link.link import Link
from agents.link.sockets import listen
from agents.wire.control import decode
from agents.wire.errors import WireError
from agents.wire.frames import CONTROL, FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Optional, Protocol

    from agents.job.grants.grant import Grant
    from agents.job.workers.messages import Request
    from agents.job.workers.worker import Reply, Worker
    from agents.link.loop import Loop

    class Served(Protocol):
        """Handles what arrives: the owner of the job."""

        def grant_of(self, pid: int) -> Optional[Grant]:
            """The grant whose yod is the process ``pid``."""

        def on_worker(self, connection: Connection, node: str, rank: int) -> Worker:
            """Called for the first request of a worker, which becomes known."""

        def on_request(self, worker: Worker, request: Request, reply: Reply) -> None:
            """Called for a request of a worker."""

        def on_program(self, data: bytes, node: str, reply: Reply) -> None:
            """Called for a request of a program of the job on ``node``."""

        def on_command(self, connection: Connection, command: Command) -> None:
            """Called for a command."""

        def on_data(self, connection: Connection, payload: bytes) -> bool:
            """Called for data on a connection that relays no workers. Returns False if they are not expected."""

        def on_command_end(self, connection: Connection) -> None:
            """Called when a connection that relays no workers has ended."""

        def on_workers_end(self, connection: Connection) -> None:
            """Called when the ranks of a launch have ended, or its yod was killed some time ago."""


#: Seconds after which the nodes have ended the ranks of a yod that was killed.
_LOST_S = 5.0


class Links:
    """The owner's socket at ``path``, and its connections."""

    def __init__(self, loop: Loop, path: str, served: Served) -> None:
        self._loop, self._path, self._served = loop, path, served
        self._sock: Optional[socket.socket] = None
        self._acceptor: Optional[Acceptor] = None

    def listen(self) -> None:
        """Accept connections. Raises OSError."""
        self._sock = listen(self._path)
        self._acceptor = Acceptor(self._loop, self._sock, self._on_accept)

    def close(self) -> None:
        """Accept no more connections; existing ones stay."""
        if self._acceptor is not None and self._sock is not None:
            self._acceptor.close()
            self._sock.close()
            with contextlib.suppress(OSError):  # a directory that is read-only now keeps no dependent from starting
                os.unlink(self._path)

    def _on_accept(self, sock: socket.socket, _address: object) -> None:
        connection = Connection()
        connection.link = Link(
            self._loop, sock,
            lambda _link, kind, payload: self._on_frame(connection, kind, payload),
            lambda _link, _reason: self._on_end(connection),
        )  # fmt: skip

    def _on_frame(self, connection: Connection, kind: int, payload: bytes) -> None:
        if kind == FILE and connection.relays:
            self._on_request(connection, payload)
            return
        if kind == FILE and self._served.on_data(connection, payload):
            return
        if kind != CONTROL:
            raise WireError("a connection to a job's owner begins with a control message")
        message = decode(payload)
        op = message.get("op")
        if op == HELLO:
            connection.relays = True
            connection.grant = self._served.grant_of(message.get("pid", 0))
        elif op == OVER:
            connection.over = True
        else:
            self._served.on_command(connection, Command(message))

    def _on_request(self, connection: Connection, payload: bytes) -> None:
        try:
            asked = parse(payload)
        except (struct.error, UnicodeDecodeError):
            raise WireError("not a worker's request") from None

        def reply(data: bytes) -> None:
            if connection.link is not None:
                connection.link.send_raw(pack_answer(asked.number, data))

        worker = connection.workers.get(asked.channel)
        if not asked.number:
            if worker is not None:
                worker.reply = None  # its tasks are returned when its launch has ended
            return
        request = parse_request(asked.data)
        if request is None:
            self._served.on_program(asked.data, asked.node, reply)
            return
        if worker is None:
            worker = connection.workers[asked.channel] = self._served.on_worker(
                connection, asked.node, request.rank if isinstance(request, Work) else 0
            )
        self._served.on_request(worker, request, reply)

    def _on_end(self, connection: Connection) -> None:
        connection.link = None
        if not connection.relays:
            self._served.on_command_end(connection)
            return
        for worker in connection.workers.values():
            worker.reply = None
        if connection.over:
            self._served.on_workers_end(connection)
        else:
            # This yod was killed: its nodes end its ranks, which takes a moment.
            self._loop.after(_LOST_S, lambda: self._served.on_workers_end(connection))

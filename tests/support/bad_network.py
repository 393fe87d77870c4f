"""A TCP proxy that delays connections, cuts them at random bytes, and discards what one side sends."""

from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import suppress

_GULP = 64 << 10


class BadNetwork:
    """A proxy on loopback for ``target`` (host, port). ``bad``: percentage of connections that get faults."""

    def __init__(self, target: tuple[str, int], seed: int) -> None:
        self._target, self._chance = target, random.Random(seed)
        self.bad = 0
        self._sock = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._sock.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(sock,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        chance, suffers = self._chance, self._chance.randrange(100) < self.bad
        # A limit of bytes for each direction. A TLS handshake has about 3,000 bytes, an object at least 50,000.
        limits = [chance.choice((10, 2000, 4000, 30000, 60000, 1 << 40)) if suffers else 1 << 60 for _ in range(2)]
        swallows = suffers and chance.random() < 0.1
        if suffers:
            time.sleep(chance.random() * 0.2)
        with near, suppress(OSError), socket.create_connection(self._target) as far:
            back = threading.Thread(target=_pipe, args=(far, near, limits[1], swallows), daemon=True)
            back.start()
            _pipe(near, far, limits[0], swallows=False)
            back.join()

    def close(self) -> None:
        """Stop listening."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


def _pipe(source: socket.socket, sink: socket.socket, limit: int, swallows: bool) -> None:
    """Forward ``limit`` bytes; then close both directions, or (``swallows``) discard the rest."""
    with suppress(OSError):
        while data := source.recv(_GULP):
            if limit > 0:
                sink.sendall(data[:limit])
            limit -= len(data)
            if limit <= 0 and not swallows:
                break
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

"""HTTP on a node's port: a peer that sends a byte now and then does not hold a process."""

import socket
import threading
from pathlib import Path

import pytest

from agents.objects import http
from agents.objects.holder import Holder
from tests.support.waiting import patience


def test_a_request_has_to_come_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_REQUEST_S", 0.2)
    peer, served = socket.socketpair()
    over = threading.Event()

    def drip() -> None:
        while not over.wait(0.02):
            peer.send(b"G")

    dripping = threading.Thread(target=drip)

    def serve() -> None:
        with pytest.raises(TimeoutError):
            http.serve(Holder(str(tmp_path), "n0"), served)

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    dripping.start()
    serving.join(patience(2))
    over.set()
    dripping.join()
    assert not serving.is_alive()
    peer.close()
    served.close()

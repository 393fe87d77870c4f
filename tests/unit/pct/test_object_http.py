"""HTTP on a node's port: a peer that sends a byte now and then, or nothing, does not hold a process."""

import socket
import time

import pytest

from agents.objects import http
from agents.objects.holder import Holder


class Dripping:
    """A connection whose peer has always sent one more byte. No machine is too busy for it, as for a thread."""

    def __init__(self) -> None:
        self.received = 0
        self.limits_s: list[float] = []

    def settimeout(self, seconds: float) -> None:
        """Keep the limit; no byte is late."""
        self.limits_s.append(seconds)

    def recv(self, _size: int) -> bytes:
        time.sleep(0.001)
        self.received += 1
        return b"G"


def choose(_uuid: str) -> Holder:
    raise AssertionError("no request is complete")


def test_a_request_has_to_come_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_REQUEST_S", 0.2)
    dripping = Dripping()
    http.serve(choose, dripping)
    # the longest request would take 8 s
    assert 0 < dripping.received < http._LONGEST, "it waits for the whole request, not for each byte"
    assert all(0 < limit_s <= 0.2 for limit_s in dripping.limits_s)


def test_a_peer_that_sends_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_REQUEST_S", 0.2)
    peer, served = socket.socketpair()
    with peer, served, pytest.raises(TimeoutError):
        http.serve(choose, served)

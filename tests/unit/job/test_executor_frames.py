"""The frames of calls that a redmesh.Executor sends to its job's owner."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from agents.wire.frames import FILE, LIMITS
from redmesh.executor import _CALL, Executor


class Cancelled:
    """A call that was cancelled before it was sent; a hundred thousand futures take seconds to make."""

    def set_running_or_notify_cancel(self) -> bool:
        """Like Future's."""
        return False


class Waiting(Executor):
    """An Executor without a job: calls wait in it, and its frames are made by hand."""

    def __init__(self, waiting: list[tuple[Any, bytes]]) -> None:
        self._waiting = deque(waiting)
        self._sent, self._window, self._last, self._drops = {}, 64, 0, False
        self._held_until = 0.0


def test_cancelled_calls_are_sent_in_frames_that_the_owner_takes() -> None:
    """``map`` cancels what nobody reads: 8 bytes each, which were one frame above its limit of 1 MiB."""
    executor = Waiting([(Cancelled(), b"a call")] * 150_000)
    told: list[tuple[int, int]] = []
    while frame := executor._batch()[0]:
        assert len(frame) <= LIMITS[FILE]
        told += _CALL.iter_unpack(frame)
    assert told == [(number, 0) for number in range(1, 150_001)] and not executor._sent


def test_calls_that_follow_wait_while_the_program_cancels_calls() -> None:
    """Sent meanwhile, they ran before the program had come to them: of 15,000 calls it cancelled 41."""
    executor = Waiting([(Cancelled(), b"a call")])
    assert executor._may_send()
    executor._held_until = time.monotonic() + 1e6
    assert not executor._may_send()
    executor._drops = True  # all are cancelled
    assert executor._may_send()

"""Peers that answer slowly: the console waits for them on threads that its end does not wait for."""

import asyncio
import threading

import pytest

from console.tui.sources.unawaited import unawaited


def test_the_end_does_not_wait_for_a_silent_peer() -> None:
    answered, asked = threading.Event(), threading.Event()

    def ask() -> None:
        asked.set()
        answered.wait()

    async def main() -> None:
        task = asyncio.ensure_future(unawaited(ask))
        while not asked.is_set():
            await asyncio.sleep(0)
        assert not task.done()

    asyncio.run(main())  # with asyncio.to_thread it would never return
    assert not answered.is_set()
    answered.set()


def test_results_and_errors_come_back() -> None:
    assert asyncio.run(unawaited(divmod, 7, 2)) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(unawaited(divmod, 1, 0))

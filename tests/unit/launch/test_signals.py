"""Which signals yod takes, and which of them the ranks of a batch system's job may have got already."""

from __future__ import annotations

import signal
from collections.abc import Callable

from console.launch.engine import is_passed_on, take_signals
from console.launch.states import Event


class Taken:
    """A loop that notes for which signals it is asked."""

    def __init__(self) -> None:
        self.numbers: dict[int, Callable[[], None]] = {}

    def on_signal(self, number: int, callback: Callable[[], None]) -> None:
        self.numbers[number] = callback


def test_only_what_reaches_the_ranks_as_itself_is_passed_on() -> None:
    handled: list[tuple[Event, tuple[object, ...]]] = []
    taken = Taken()
    take_signals(taken, lambda event, *facts: handled.append((event, facts)), None, in_job=True)  # type: ignore[arg-type]
    passed = set()
    for number, callback in taken.numbers.items():
        callback()
        event, facts = handled.pop()
        if is_passed_on(event, *facts):
            passed.add(number)
    assert passed == {signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU}
    assert {signal.SIGINT, signal.SIGHUP} <= set(taken.numbers) - passed


def test_yod_s_own_limit_of_cpu_time_is_not_the_ranks() -> None:
    taken = Taken()
    take_signals(taken, lambda *_: None, None)  # type: ignore[arg-type]
    assert signal.SIGXCPU not in taken.numbers and signal.SIGUSR1 in taken.numbers

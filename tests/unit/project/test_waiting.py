"""The waits of the tests: one patience, measured once; a wait that fails says for what."""

import inspect
import time
from collections.abc import Callable

import pytest

from tests.support import slowness
from tests.support.waiting import PATIENCE_S, SLOWNESS, Process, silence, wait_until


def test_the_patience_is_a_minute_times_the_slowness_of_the_machine() -> None:
    assert 1.0 <= SLOWNESS <= 5.0
    assert PATIENCE_S == 60.0 * SLOWNESS
    assert silence(2.0) == round(2.0 * SLOWNESS, 1)


@pytest.mark.parametrize(
    ("start_s", "load", "at_once", "factor"),
    [
        (0.01, 0.0, 1, 1.0),
        (0.06, 0.0, 1, 4.0),
        (0.01, 3.0, 1, 3.0),
        (0.06, 3.0, 8, 4.0),
        (0.01, 40.0, 1, 5.0),
        (9.0, 0.0, 1, 5.0),
        (0.01, 0.0, 4, 1.0),
        (0.01, 0.0, 8, 2.0),
        (0.01, 3.0, 64, 5.0),
    ],
)
def test_slow_is_who_starts_slowly_or_has_much_to_do(
    monkeypatch: pytest.MonkeyPatch, start_s: float, load: float, at_once: int, factor: float
) -> None:
    now = [0.0]

    def start(*_words: object, **_options: object) -> None:
        now[0] += start_s

    monkeypatch.setattr(slowness.subprocess, "run", start)
    monkeypatch.setattr(slowness.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(slowness.os, "getloadavg", lambda: (2 * load, 0.0, 0.0))
    monkeypatch.setattr(slowness.os, "sched_getaffinity", lambda _pid: {0, 1})
    assert slowness.slowness(at_once) == pytest.approx(factor)


def test_a_wait_returns_the_fact_and_its_failure_says_what_was_waited_for() -> None:
    looks = iter([0, "", "there"])
    assert wait_until(lambda: next(looks), "it is there") == "there"
    with pytest.raises(AssertionError, match=r"^not within 0\.\d s: it is there \(last: 0\)$"):
        wait_until(lambda: 0, "it is there", patience_s=0.05)
    with pytest.raises(AssertionError, match=": nothing came but rain"):
        wait_until(lambda: False, lambda: "nothing came but rain", patience_s=0.0)


def test_a_fact_that_comes_with_the_end_of_the_patience_counts() -> None:
    """The last look is after it, so that a process that did not run meanwhile has looked."""
    ends = time.monotonic() + 0.05
    assert wait_until(lambda: time.monotonic() > ends, "the end", patience_s=0.05, step_s=0.06)


def test_a_step_cannot_be_taken_for_a_time_limit() -> None:
    with pytest.raises(TypeError):
        wait_until(lambda: True, "it is there", 20.0)  # type: ignore[misc]


@pytest.mark.parametrize("wait", [Process.wait, Process.communicate])
def test_processes_have_the_patience_too(wait: Callable[..., object]) -> None:
    assert inspect.signature(wait).parameters["timeout"].default == PATIENCE_S

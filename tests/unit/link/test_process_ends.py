"""The exit of processes that are not children of the watcher: by descriptors, and without any left."""

import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from agents.link.loop import Loop
from agents.linux.process_ends import ProcessEnds
from agents.linux.processes import start_time
from tests.support.waiting import PATIENCE_S, freeze


@pytest.fixture
def naps() -> Iterator[list["subprocess.Popen[bytes]"]]:
    made = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
    yield made
    for process in made:
        process.kill()
        process.wait()


def until(loop: Loop, probe: Callable[[], bool]) -> None:
    """Run the loop until ``probe()``."""
    deadline = time.monotonic() + PATIENCE_S

    def look() -> None:
        if probe() or time.monotonic() > deadline:
            loop.stop()
        else:
            loop.after(0.01, look)

    loop.after(0, look)
    loop.run()
    assert probe()


@pytest.mark.parametrize("most", [0, 1, 3])
def test_every_exit_is_told_once_however_few_descriptors_there_are(
    naps: list["subprocess.Popen[bytes]"], most: int
) -> None:
    loop, told = Loop(), []  # type: ignore[var-annotated]
    ends = ProcessEnds(loop, lambda pid, started: told.append((pid, started)), most, look_s=0.02)
    who = [(process.pid, start_time(process.pid)) for process in naps]
    ends.watch(who[2][0], who[2][1] + 1)  # its pid has been used again
    until(loop, lambda: len(told) == 1)
    for pid, started in who * 2:
        ends.watch(pid, started)
    freeze(naps[2].pid)
    for process in naps[:2]:
        process.kill()
    until(loop, lambda: len(told) >= 3)
    assert sorted(told[1:]) == sorted(who[:2]), "a zombie has exited, and a stopped process has not"
    naps[2].kill()
    until(loop, lambda: len(told) >= 4)
    assert told[3:] == [who[2]]

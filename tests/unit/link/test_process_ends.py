"""The exit of processes that are not children of the watcher: by descriptors, and without any left."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.link.loop import Loop
from agents.linux.process_ends import ProcessEnds, SupervisorEnds
from agents.linux.processes import nearest_ancestor, start_time
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


def test_the_nearest_ancestor_of_a_name_is_watched_and_its_exit_names_whom_it_supervised(tmp_path: Path) -> None:
    (tmp_path / "shepherd").symlink_to("/bin/sh")
    script = "sh -c 'sleep 600 & echo $!; wait'; :"
    supervisor = subprocess.Popen([tmp_path / "shepherd", "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    assert supervisor.stdout is not None
    with supervisor.stdout:
        pid = int(supervisor.stdout.readline())
    try:
        assert nearest_ancestor(pid, "shepherd") == (supervisor.pid, start_time(supervisor.pid))
        assert nearest_ancestor(pid, "nobody") == (0, 0)
        loop, told = Loop(), list[tuple[int, list[int]]]()
        ends = SupervisorEnds(loop, "shepherd", lambda *what: told.append(what))
        assert ends.watch(pid) and not SupervisorEnds(loop, "nobody", lambda *_: None).watch(pid)
        supervisor.kill()
        until(loop, lambda: bool(told))
        assert told == [(supervisor.pid, [pid])]
        assert nearest_ancestor(pid, "shepherd") == (0, 0), "its children have another parent"
        ends.close()
        loop.close()
    finally:
        os.killpg(supervisor.pid, signal.SIGKILL)
        supervisor.wait()

"""The clean-up executable: id as argument, nodes on standard input, status 0 means clean; killed after a time."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.cpa.cleanup.runner import AT_ONCE, Cleanups
from agents.link.loop import Loop
from agents.linux.processes import alive
from tests.support.waiting import PATIENCE_S, silence, wait_until

#: A process that runs one clean-up, as a CPA does.
CPA = """
import sys
from agents.cpa.cleanup.runner import Cleanups
from agents.link.loop import Loop
loop = Loop()
Cleanups(loop, sys.argv[1:], 600.0).run(7, [], lambda clean, said: loop.stop())
loop.run()
"""
NODES = [{"name": "n0", "address": "/run/n0.sock"}, {"name": "n1", "address": "/run/n1.sock"}]
Script = Callable[[str], list[str]]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    def make(body: str) -> list[str]:
        path = tmp_path / "cleanup"
        path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return [str(path)]

    return make


@pytest.fixture(autouse=True)
def no_wakeup_left() -> Iterator[None]:
    """The next test's loop has a descriptor of its own; the handler, which does nothing, may stay."""
    yield
    signal.set_wakeup_fd(-1)


def run_until(loop: Loop, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline
        loop.run_once(0.1)


def run_one(command: list[str], limit_s: float = PATIENCE_S) -> tuple[bool, str]:
    loop, told = Loop(), list[tuple[bool, str]]()
    Cleanups(loop, command, limit_s).run(7, NODES, lambda clean, said: told.append((clean, said)))
    run_until(loop, lambda: bool(told))
    return told[0]


def test_it_gets_the_launcher_and_the_nodes(script: Script, tmp_path: Path) -> None:
    out = tmp_path / "out"
    clean, _ = run_one(script(f"json.dump([sys.argv[1:], json.load(sys.stdin)], open({str(out)!r}, 'w'))"))
    assert clean
    assert json.loads(out.read_text()) == [["7"], NODES]


def test_a_status_other_than_0_is_unclean_and_says_why(script: Script) -> None:
    clean, said = run_one(script("sys.exit('n1: its PCT does not answer')"))
    assert not clean and said == "the clean-up ended with 1: n1: its PCT does not answer"


def test_one_that_does_not_end_is_killed_with_what_it_started(script: Script, tmp_path: Path) -> None:
    out = tmp_path / "child"
    clean, said = run_one(
        script(f"child = os.fork()\nif child: open({str(out)!r}, 'w').write(str(child))\ntime.sleep(3600)"),
        limit_s=silence(0.7),
    )
    assert not clean and "signal 9" in said
    child = int(out.read_text())
    wait_until(lambda: not alive(child), "what it started is dead too")


def test_it_ends_with_the_cpa_that_is_killed_and_so_does_what_it_started(script: Script, tmp_path: Path) -> None:
    out = tmp_path / "pids"
    pids = f"open({str(out)!r}, 'a').write(f'{{os.getpid()}} ')"
    command = script(f"if not os.fork(): os.setsid()\n{pids}\ntime.sleep(600)")
    words = [sys.executable, "-c", CPA, *command]
    with subprocess.Popen(words, env={**os.environ, "PYTHONPATH": os.getcwd()}) as cpa:
        wait_until(lambda: out.exists() and out.read_text().count(" ") == 2, "both processes run")
        os.kill(cpa.pid, signal.SIGKILL)
    for pid in map(int, out.read_text().split()):
        wait_until(lambda pid=pid: not alive(pid), "it has ended")  # type: ignore[misc]


def test_one_that_is_not_there_is_unclean(tmp_path: Path) -> None:
    clean, said = run_one([str(tmp_path / "nothing")])
    assert not clean and "No such file" in said


def test_a_second_word_about_the_same_launcher_joins_the_clean_up_under_way(script: Script, tmp_path: Path) -> None:
    out, told, loop = tmp_path / "runs", list[bool](), Loop()
    cleanups = Cleanups(loop, script(f"open({str(out)!r}, 'a').write('x'); time.sleep(0.2)"))
    for _ in range(3):
        cleanups.run(7, NODES, lambda clean, _said: told.append(clean))
    run_until(loop, lambda: len(told) == 3)
    assert told == [True] * 3 and out.read_text() == "x"


def test_many_at_once_are_run_a_few_at_a_time_and_all_of_them(script: Script, tmp_path: Path) -> None:
    started, told, loop = tmp_path / "started", list[bool](), Loop()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    command = script(f"open({str(started)!r}, 'a').write('x'); open({str(gate)!r}).read()")
    cleanups = Cleanups(loop, command)
    for launcher in range(AT_ONCE + 3):
        cleanups.run(launcher, NODES, lambda clean, _said: told.append(clean))
    run_until(loop, lambda: started.exists() and len(started.read_text()) == AT_ONCE)
    assert told == []
    while len(told) < AT_ONCE + 3:
        try:
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            pass  # nobody reads yet
        loop.run_once(0.05)
    assert told == [True] * (AT_ONCE + 3) and len(started.read_text()) == AT_ONCE + 3


def test_a_list_of_nodes_longer_than_any_pipe_arrives(script: Script) -> None:
    nodes = [{"name": f"n{n}", "address": "/run/user/1000/redmesh/1f2e3d4c/" + "x" * 60} for n in range(10_000)]
    loop, told = Loop(), list[bool]()
    command = script("sys.exit(0 if len(json.load(sys.stdin)) == 10000 else 1)")
    Cleanups(loop, command).run(7, nodes, lambda clean, _said: told.append(clean))
    run_until(loop, lambda: bool(told))
    assert told == [True]

"""Limits of a node's control group: the kernel's kill for lack of memory, and a fork that is refused."""

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from agents.linux import processes
from agents.linux.controllers import MemoryGroup
from agents.pct.ranks.out_of_memory import LaunchMemory
from agents.pct.ranks.ranks import Rank
from tests.support.groups import inside, limited_group
from tests.support.pcts import Launcher, Machine, run
from tests.support.waiting import wait_until

LIMIT = 300 << 20
HOG = "import os\nif os.environ['YOD_RANK'] != '0': x = b'x' * (1 << 30)\n"


def _log_is_read() -> bool:
    """Whether the kernel's log, with the pids that we see, can be read."""
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return os.stat("/proc/self/ns/pid").st_ino == 0xEFFFFFFC


def _notes(launcher: Launcher) -> list[dict[str, Any]]:
    return [message for message in launcher.messages if message["op"] == "note"]


def test_a_rank_that_runs_out_of_memory_is_named_and_one_that_is_killed_is_not() -> None:
    with limited_group("memory", LIMIT) as group, Machine(1, group=group) as machine:
        statuses, launcher = run(machine, ["sh", "-c", "kill -9 $$"])
        assert statuses == {0: signal.SIGKILL} and not _notes(launcher), "a signal is no evidence"
        statuses, launcher = run(machine, [sys.executable, "-c", HOG], per_node=2)
        assert statuses == {0: 0, 1: signal.SIGKILL}
        [note] = _notes(launcher)
        report = note["out_of_memory"]
        assert (note["node"], report["rank"], report["limit"]) == ("n0", 1, LIMIT)
        assert LIMIT // 2 < report["had"] <= LIMIT
        assert note["message"].startswith("rank 1 ran out of memory") and "300 MiB" in note["message"]
        [exit_] = (m for m in launcher.messages if m["op"] == "exits" and 1 in [rank for rank, *_ in m["ranks"]])
        assert launcher.messages.index(note) < launcher.messages.index(exit_), "the exit's line has it"

        statuses, launcher = run(machine, ["sh", "-c", f'YOD_RANK=1 {sys.executable} -c "$0"; exit $?', HOG])
        assert os.waitstatus_to_exitcode(statuses[0]) == 128 + signal.SIGKILL
        assert [note["out_of_memory"]["rank"] for note in _notes(launcher)] == [0], "the shell's child was killed"

        launcher = Launcher(machine, ["sleep", "1000"])
        launcher.go()
        launcher.send({"op": "signal", "signal": signal.SIGKILL, "ranks": None})
        assert launcher.finish() == {0: signal.SIGKILL} and not _notes(launcher)


@pytest.mark.skipif(not _log_is_read(), reason="the kernel's log cannot be read here")
def test_a_kill_soon_after_another_process_of_the_group_ran_out_of_memory_is_not_its_cause() -> None:
    with limited_group("memory", LIMIT) as group, Machine(1, group=group) as machine:
        script = f'YOD_RANK=1 {sys.executable} -c "$0"; test $? = 137 && kill -9 $$'
        statuses, launcher = run(machine, ["sh", "-c", script, HOG])
        assert statuses == {0: signal.SIGKILL} and not _notes(launcher)


def test_a_rank_that_a_batch_system_started_has_a_group_of_its_own() -> None:
    with limited_group("memory", LIMIT) as group:
        memory = LaunchMemory("n0", MemoryGroup())
        hog = subprocess.Popen(inside(group, sys.executable, "-c", f"input()\n{HOG}"), stdin=-1, env={"YOD_RANK": "1"})
        wait_until(lambda: str(hog.pid) in (group / "cgroup.procs").read_text().split(), "it is in its group")
        rank = Rank(3, hog.pid, b"python")
        memory.adopt(rank.pid)
        memory.look()
        hog.communicate(b"\n")
        rank.status = -hog.returncode
        assert rank.killed_by_others
        found = memory.killed(rank)
        assert (
            found is not None and found.limit == LIMIT and LIMIT // 2 < found.had < 2 * LIMIT
        )  # with libraries that others have, too
        other = Rank(4, os.getpid(), b"python")
        other.status = rank.status
        assert memory.killed(other) is None, "the counter of another group is no evidence"


def test_a_fork_that_the_control_group_refuses_is_not_blamed_on_the_user() -> None:
    with limited_group("pids", 24) as group, Machine(1, slots=64, group=group) as machine:
        launcher = Launcher(machine, ["sleep", "1000"], per_node=48)
        failed = launcher.until("failed")
        assert failed["fault"] == "launch" and "pids.max is 24" in failed["hint"] and "ulimit" not in failed["hint"]
        launcher.send({"op": "kill"})
        launcher.finish()
        statuses, _ = run(machine, ["true"], per_node=2)
        assert statuses == {0: 0, 1: 0}, "the node serves launches that fit"
        assert not [pid for pid in machine.marked() if processes.alive(pid)]

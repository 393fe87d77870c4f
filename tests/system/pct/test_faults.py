"""Whatever is killed, at whatever moment: nothing of a launch stays behind, and what may live on does."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agents.linux import processes
from tests.support.pcts import MESH, Launcher, Machine, kill_hard, run
from tests.support.waiting import SLOWNESS, freeze, wait_until
from tests.system.pct.test_spares import one_each


@pytest.fixture(scope="module")
def machines() -> Iterator[list[Machine]]:
    """The machine that the tests of this module have, one after the other."""
    made = [Machine(3, spare_s=0)]
    yield made
    made[0].close()


@pytest.fixture
def machine(machines: list[Machine]) -> Iterator[Machine]:
    """Three PCTs that run; afterwards nothing of a launch is left. After a failure the next test has others."""
    made = machines[0]
    for name, pct in made.pcts.items():
        if pct.poll() is not None:
            made.start(name)
        made.await_pct(name)
    yield made
    try:
        _clean(made)
        wait_until(lambda: not any(map(made.launch_children, made.pcts)), "launch children have gone")
        wait_until(lambda: not _sleepers(made), "what ranks left has gone, the unmarked ones too")
    except AssertionError:
        with suppress(AssertionError):
            made.close()
        machines[0] = Machine(3, spare_s=0)
        raise


def _clean(machine: Machine) -> None:
    wait_until(lambda: not machine.marked(), "no process of the launch is left")
    wait_until(lambda: not machine.leftovers(), "no file of the launch is left")


# What ranks do to stay: leave the session, fork twice, ignore TERM, forget the mark.
STUBBORN = """
trap '' TERM INT HUP
setsid sleep 300 &
(setsid sh -c 'trap "" TERM; sleep 300' &) &
env -i PATH=$PATH setsid sh -c '(sleep 300 &); exec sleep 300' &
nohup sleep 300 >/dev/null 2>&1 &
"""


def _sleepers(machine: Machine) -> list[int]:
    """Every sleep below this machine's PCTs, marked or not."""
    found = []
    for pct in machine.pcts.values():
        found += [pid for pid in processes.descendants(pct.pid) if _name(pid) == "sleep"]
    return found


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def test_what_ranks_leave_is_killed_before_finished(machine: Machine, tmp_path: Path) -> None:
    ends = tmp_path / "ends"
    script = f"{STUBBORN} until [ -e {ends} ]; do sleep 0.05; done"
    launcher = Launcher(machine, ["bash", "-c", script], per_node=2)
    launcher.go()
    wait_until(lambda: len(_sleepers(machine)) >= 24, "they are there")
    ends.touch()
    launcher.until("finished")
    assert not _sleepers(machine) and not machine.marked()
    launcher.send({"op": "done"})


def test_a_kill_reaches_all_of_them(machine: Machine) -> None:
    launcher = Launcher(machine, ["bash", "-c", STUBBORN + "sleep 300"], fanout=1)
    launcher.go()
    wait_until(lambda: len(_sleepers(machine)) >= 15, "they are there")
    launcher.send({"op": "kill"})
    launcher.until("finished")
    assert not _sleepers(machine)


def test_a_fork_bomb_ends(machine: Machine) -> None:
    bomb = (
        "import os, time\n"
        "for _ in range(40):\n"
        "    try: os.fork()\n"
        "    except OSError: pass\n"
        "    time.sleep(0.05)\n"
        "    if len(os.listdir('/proc')) > 600: time.sleep(100)\n"
    )
    launcher = Launcher(machine, ["python3", "-c", bomb], nodes=1)
    launcher.go()
    time.sleep(0.3)
    launcher.send({"op": "kill"})
    launcher.until("finished")
    assert not machine.marked()


def _at_load(launcher: Launcher) -> None:
    pass


def _at_held(launcher: Launcher) -> None:
    launcher.ready()


def _at_running(launcher: Launcher) -> None:
    launcher.go()
    while len(launcher.output) < launcher.size:
        launcher.read()


def _at_draining(launcher: Launcher) -> None:
    _at_running(launcher)
    launcher.send({"op": "signal", "signal": signal.SIGUSR1, "ranks": None})


MOMENTS = [_at_load, _at_held, _at_running, _at_draining]
PROGRAM = ["bash", "-c", "trap 'exit 0' USR1; echo up; sleep 300 & wait"]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("fanout", [1, 32])
def test_the_launcher_vanishes(machine: Machine, moment: Callable[[Launcher], None], fanout: int) -> None:
    launcher = Launcher(machine, PROGRAM, per_node=2, fanout=fanout)
    moment(launcher)
    launcher.sock.close()


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("victim", ["n0", "n1"])
def test_a_launch_child_is_killed(machine: Machine, moment: Callable[[Launcher], None], victim: str) -> None:
    launcher = Launcher(machine, ["bash", "-c", STUBBORN + PROGRAM[2]], per_node=2, fanout=1)
    moment(launcher)
    child = wait_until(lambda: machine.launch_children(victim), "it has a launch child")[0]
    kill_hard(child)
    if victim == "n1":
        message = launcher.until("lost", "failed")
        if message["op"] == "lost":
            assert message["nodes"][0][0] == 1 and message["nodes"][1][0] == 2, "its subtree goes with it"
            assert message["reason"].startswith("n1: ")
        else:
            assert (message["node"], message["fault"]) == ("n1", "launch"), "its PCT lives: the node is well"
        assert "SIGKILL" in (message.get("reason") or message["message"])
    launcher.sock.close()


@pytest.mark.parametrize("moment", [_at_held, _at_running, _at_draining])
def test_a_pct_is_killed_and_its_successor_adopts(machine: Machine, moment: Callable[[Launcher], None]) -> None:
    launcher = Launcher(machine, PROGRAM, per_node=2, fanout=1)
    moment(launcher)
    before = machine.ask("n1", {"op": "status"})["incarnation"]
    kill_hard(machine.pcts["n1"].pid)
    machine.pcts["n1"].wait()
    machine.start("n1")
    machine.await_pct("n1")
    status = machine.ask("n1", {"op": "status"})
    assert status["incarnation"] == before + 1
    if moment is not _at_draining:
        assert [launch["launcher"] for launch in status["launches"]] == [launcher.number]
    if moment is _at_held:
        _at_running(_gone_ahead(launcher))
    launcher.send({"op": "signal", "signal": signal.SIGUSR1, "ranks": None})
    statuses = launcher.finish()
    assert len(statuses) == 6 and set(statuses.values()) == {0}


def _gone_ahead(launcher: Launcher) -> Launcher:
    # ready has been taken already: what go() waits for is said again
    ranks = [[0, 0]] * launcher.size
    launcher.send({"op": "go", "ranks": ranks})
    launcher.go = lambda: ranks  # type: ignore[method-assign]
    return launcher


@pytest.mark.parametrize(("number", "hint"), [(signal.SIGSEGV, "pct-n2.jsonl"), (signal.SIGBUS, "cut short")])
def test_what_a_launch_child_dies_of_is_told(machine: Machine, number: signal.Signals, hint: str) -> None:
    launcher = Launcher(machine, PROGRAM, per_node=2, fanout=1)
    launcher.ready()
    os.kill(machine.launch_children("n2")[0], number)
    failed = launcher.until("failed")
    assert (failed["node"], failed["fault"]) == ("n2", "launch")
    assert failed["message"] == f"n2: its launch child died of {number.name}" and hint in failed["hint"]
    launcher.sock.close()


def test_a_fault_of_a_launch_child_is_told_with_its_first_line(machine: Machine) -> None:
    launcher = Launcher(machine, PROGRAM, nodes=1)
    launcher.ready()
    launcher.send({"op": "go", "ranks": [["no pid"]]})  # no launcher says so: it is not looked for
    wait_until(lambda: not machine.launch_children("n0"), "the launch child has gone")
    fate = machine.ask("n0", {"op": "death", "launcher": launcher.number})
    assert "fault of its own: ValueError: " in fate["message"] and "pct-n0.jsonl" in fate["hint"]
    assert "internal" in {line["event"] for line in machine.log("n0")}
    assert not [name for name in os.listdir(machine.run) if name.startswith("fault-")]
    launcher.sock.close()


def test_an_adopted_launch_child_that_dies_is_cleared(machine: Machine) -> None:
    launcher = Launcher(machine, ["bash", "-c", "setsid sleep 300 & echo up; sleep 300"], nodes=1)
    _at_running(launcher)
    [child] = machine.launch_children("n0")
    kill_hard(machine.pcts["n0"].pid)
    machine.pcts["n0"].wait()
    machine.start("n0")
    machine.await_pct("n0")
    assert len(machine.marked()) >= 2
    kill_hard(child)


def test_strays_of_a_node_that_lost_everything_are_cleared_at_the_start(machine: Machine) -> None:
    launcher = Launcher(machine, ["bash", "-c", "setsid sleep 300 & echo up; sleep 300"], nodes=1)
    _at_running(launcher)
    [child] = machine.launch_children("n0")
    machine.pcts["n0"].kill()
    machine.pcts["n0"].wait()
    kill_hard(child)
    machine.start("n0")


def test_kill_launch_answers_when_all_is_gone(machine: Machine) -> None:
    launcher = Launcher(machine, ["bash", "-c", STUBBORN + "echo up; sleep 300"], nodes=1)
    _at_running(launcher)
    reply = machine.ask("n0", {"op": "kill_launch", "launcher": launcher.number})
    assert not _sleepers(machine) and not machine.marked()
    assert reply["clean"] is True and reply["killed"] >= 5
    assert launcher.until("exits")["ranks"][0][1] == signal.SIGKILL
    launcher.until("finished")
    _clean(machine)
    again = machine.ask("n0", {"op": "kill_launch", "launcher": launcher.number})
    assert (again["clean"], again["killed"]) == (True, 0)


def test_a_killed_launch_is_refused_when_its_load_comes_late(machine: Machine) -> None:
    machine.ask("n1", {"op": "kill_launch", "launcher": 777})
    launcher = Launcher(machine, ["true"], number=777)
    failed = launcher.until("failed")
    assert (failed["node"], failed["fault"]) == ("n1", "launch") and "killed" in failed["message"]
    launcher.until("finished")
    launcher.sock.close()


def test_no_go(machine: Machine) -> None:
    launcher = Launcher(machine, ["true"], per_node=2, pending_s=0.5)
    launcher.ready()
    failed = launcher.until("failed")
    assert failed["fault"] == "launch" and "0.5 s were over" in failed["message"], "it says so, and blames no node"
    while launcher.read():
        pass


def test_a_pct_that_is_woken_late_starts_nothing(machine: Machine) -> None:
    freeze(machine.pcts["n0"].pid)
    try:
        launcher = Launcher(machine, ["true"], per_node=4, nodes=1, lapses_in_s=0.3)
        time.sleep(0.5)
    finally:
        os.kill(machine.pcts["n0"].pid, signal.SIGCONT)
    failed = launcher.until("failed")
    assert failed["fault"] == "launch" and "lapsed" in failed["message"] and "no process was started" in failed["hint"]
    assert not launcher.messages or all(message["op"] != "ready" for message in launcher.messages)
    launcher.until("finished")
    launcher.sock.close()


def test_a_launch_child_that_is_woken_late_starts_nothing() -> None:
    with Machine(1, spare_s=600.0) as machine:
        run(machine, ["true"])
        (child,) = one_each(machine, nodes=1)
        freeze(child)
        try:
            launcher = Launcher(machine, ["true"], lapses_in_s=0.3)
            time.sleep(0.5)
            assert machine.ask("n0", {"op": "status"})
            assert machine.launch_children("n0") == [child], "the load went to the one that is stopped"
        finally:
            os.kill(child, signal.SIGCONT)
        assert "lapsed" in launcher.until("failed")["message"]
        launcher.until("finished")
        launcher.sock.close()
        _clean(machine)


def test_time_to_begin_is_renewed(machine: Machine) -> None:
    time_s = 4 * SLOWNESS
    launcher = Launcher(machine, ["true"], nodes=2, fanout=1, pending_s=time_s, lapses_in_s=time_s)
    launcher.ready()
    for _ in range(6):
        launcher.send({"op": "ping", "loading_s": time_s})
        launcher.until("pong")
        time.sleep(time_s / 4)  # in all longer than it had
    launcher.send({"op": "go", "ranks": [[0, 0], [0, 1]]})
    assert set(launcher.finish().values()) == {0}, "neither the root nor the node below it has given up"


def test_done_before_go_ends_all(machine: Machine) -> None:
    launcher = Launcher(machine, ["true"], per_node=2, fanout=1)
    launcher.ready()
    launcher.send({"op": "done"})


def test_a_rank_killed_while_held_fails_the_load(machine: Machine) -> None:
    launcher = Launcher(machine, ["true"], nodes=2)
    ranks = launcher.ready()
    kill_hard(ranks[1][0])
    failed = launcher.until("failed")
    assert failed["rank"] == 1 and "before it could run" in failed["message"]
    assert failed["fault"] == "launch", "who kills a rank of his own takes no node out of service"
    launcher.until("finished")
    launcher.sock.close()


def test_a_stopped_pct_is_named(machine: Machine) -> None:
    freeze(machine.pcts["n2"].pid)
    try:
        launcher = Launcher(machine, ["true"], fanout=1)
        failed = launcher.until("failed")
    finally:
        machine.pcts["n2"].send_signal(signal.SIGCONT)
    assert (failed["node"], failed["fault"]) == ("n2", "node")
    launcher.sock.close()


def test_term_ends_the_launches_of_a_pct(machine: Machine) -> None:
    launcher = Launcher(machine, ["bash", "-c", STUBBORN + PROGRAM[2]], nodes=2)
    _at_running(launcher)
    machine.pcts["n1"].terminate()
    assert machine.pcts["n1"].wait() == 0
    assert not [pid for pid in processes.marked(f"{MESH}/n1/") if processes.alive(pid)]
    assert not os.path.exists(machine.address("n1"))
    launcher.send({"op": "kill"})
    launcher.finish()


def test_a_pct_restarts_under_a_load(machine: Machine) -> None:
    kill_hard(machine.pcts["n1"].pid)
    machine.pcts["n1"].wait()
    launcher = Launcher(machine, ["true"], fanout=1)
    machine.start("n1")
    launcher.go()
    assert set(launcher.finish().values()) == {0}

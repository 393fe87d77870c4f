"""Launch children that serve again: which, for how long, and that nothing of the former launch is left in them."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agents.linux import processes
from tests.support.far_pcts import FarMachine
from tests.support.pcts import Launcher, Machine, kill_hard, run
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with Machine(3, spare_s=60.0) as made:
        yield made


def spares(machine: Machine) -> list[list[int]]:
    """The launch children of every node, when no launch is left in RUN."""
    wait_until(lambda: not machine.leftovers(), "every launch has tidied up")
    return [machine.launch_children(str(node["name"])) for node in machine.nodes]


def one_each(machine: Machine, nodes: int = 3) -> list[int]:
    """The spare launch child of each of the first ``nodes`` nodes, at rest."""
    some = lambda: spares(machine)[:nodes]  # noqa: E731
    wait_until(lambda: [len(found) for found in some()] == [1] * nodes, "one spare a node")
    found = [pid for (pid,) in some()]
    for node, pid in enumerate(found):
        until_at_rest(machine, f"n{node}", pid)
    return found


def until_at_rest(machine: Machine, node: str, pid: int) -> None:
    """Wait until a launch child waits for another launch, and the PCT of ``node`` has read that it does."""
    # it waits in the kernel for what is next, once it has closed its loop and told the PCT
    at_rest = lambda: "anon_inode:" not in describe(pid)[0] and processes.state(pid) == "S"  # noqa: E731
    wait_until(at_rest, "it is at rest")
    machine.ask(node, {"op": "status"})  # a PCT that answers this has read what came before


def describe(pid: int) -> tuple[list[str], str]:
    """What a process has open, sorted and without numbers, and its working directory."""
    links = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # closed meanwhile
            links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return sorted(link.partition("[")[0] for link in links), os.readlink(f"/proc/{pid}/cwd")


def test_the_same_launch_children_serve_again_and_stay_what_they_were(machine: Machine) -> None:
    run(machine, ["true"])
    first = one_each(machine)
    was = [describe(pid) for pid in first]
    assert "socket:" in was[0][0] and "pipe:" not in was[0][0] and "anon_inode:" not in was[0][0]
    for number in range(5):
        exits, launcher = run(
            machine, ["sh", "-c", 'echo "$YOD_RANK $MINE"; pwd; exit $YOD_RANK'], per_node=2,
            env={"PATH": "/bin", "MINE": str(number)}, cwd="/" if number % 2 else "/tmp",
        )  # fmt: skip
        assert exits == {rank: rank << 8 for rank in range(6)}
        assert launcher.stdout(5) == b"5 %d\n%s\n" % (number, b"/" if number % 2 else b"/tmp")
        assert one_each(machine) == first
    assert [describe(pid) for pid in first] == was


def test_a_rank_inherits_nothing_of_the_line_to_the_pct(machine: Machine) -> None:
    for _ in range(2):
        _, launcher = run(machine, ["ls", "/proc/self/fd"], nodes=1)
        assert launcher.stdout() == b"0\n1\n2\n3\n", "3 is the directory that ls reads"
        one_each(machine, nodes=1)  # the others have had no launch here, unless a test before this one gave them one


def test_launches_side_by_side_have_a_child_each_and_leave_one(machine: Machine) -> None:
    until_told = ["bash", "-c", "trap 'exit 0' USR1; echo up; while :; do sleep 0.05; done"]
    both = [Launcher(machine, until_told) for _ in range(2)]
    for launcher in both:
        launcher.go()
        while len(launcher.output) < launcher.size:
            launcher.read()
    wait_until(lambda: [len(machine.launch_children(f"n{n}")) for n in range(3)] == [2, 2, 2], "a child for each")
    for launcher in both:
        launcher.send({"op": "signal", "signal": signal.SIGUSR1, "ranks": None})
        assert set(launcher.finish().values()) == {0}
    one_each(machine)


def test_a_launch_that_did_not_end_well_ends_its_launch_child(machine: Machine) -> None:
    run(machine, ["true"])
    before = one_each(machine)
    launcher = Launcher(machine, ["/bin/true"], path="/no/such/program")
    launcher.until("failed")
    launcher.until("finished")
    launcher.sock.close()
    wait_until(lambda: not any(processes.alive(pid) for pid in before), "they are gone")
    launcher = Launcher(machine, ["sleep", "60"])
    launcher.go()
    launcher.sock.close()  # a launcher that is lost
    wait_until(lambda: spares(machine) == [[], [], []], "nobody waits")
    exits, _ = run(machine, ["true"])
    assert set(exits.values()) == {0}


def test_a_spare_that_is_killed_is_no_harm(machine: Machine) -> None:
    run(machine, ["true"])
    killed = one_each(machine)
    for pid in killed:
        kill_hard(pid)
    wait_until(lambda: not any(processes.alive(pid) for pid in killed), "they are dead")
    exits, _ = run(machine, ["true"])
    assert set(exits.values()) == {0}


def test_a_killed_pct_takes_its_spare_with_it(machine: Machine) -> None:
    run(machine, ["true"])
    spare = one_each(machine)[0]
    machine.pcts["n0"].kill()
    machine.pcts["n0"].wait()
    wait_until(lambda: not processes.alive(spare), "the spare is gone")
    machine.start("n0")
    machine.await_pct("n0")
    exits, _ = run(machine, ["true"])
    assert set(exits.values()) == {0}


def test_a_node_at_rest_has_none() -> None:
    with Machine(1, spare_s=0.2) as short:
        run(short, ["true"])
        wait_until(lambda: not short.launch_children("n0"), "it has ended")
        exits, _ = run(short, ["true"])
        assert set(exits.values()) == {0}
    with Machine(1, spare_s=0) as never:
        launcher = Launcher(never, ["true"])
        launcher.go()
        launcher.finish()
        wait_until(lambda: not never.launch_children("n0"), "it ends with its launch")


@pytest.mark.skipif(
    not {"mmap", "_blake2"}.isdisjoint(sys.builtin_module_names), reason="what a process has loaded shows in its maps"
)
def test_what_a_launch_needs_is_loaded_once_whoever_is_first() -> None:
    """By the PCT itself, for a launch that comes before the PCT has had the time to."""
    with FarMachine() as far:
        maps = Path(f"/proc/{far.processes['n0'].pid}/maps")
        load, common = far.load(1)
        assert far.launch(load, common, far.credential(load, common)).run() == [0]
        assert "/mmap." in maps.read_text()  # a courier's, of which this launch had none
        wait_until(lambda: "/_blake2." in maps.read_text(), "what images need is there too, once there was time")


def test_shared_input_leaves_nothing_open(machine: Machine) -> None:
    run(machine, ["true"])
    was = [describe(pid) for pid in one_each(machine)]
    for _ in range(2):
        launcher = Launcher(machine, ["sh", "-c", "[ $YOD_RANK = 2 ] && exec cat; sleep 0.2"], input="shared")
        launcher.go()
        launcher.feed(b"x" * 5000)
        launcher.send({"op": "eof"})
        launcher.finish()
        assert launcher.stdout(2) == b"x" * 5000
    assert [describe(pid) for pid in one_each(machine)] == was

"""Red Storm's side changes, step by step as the patent (US 7,454,595) has them, with launches on both sides."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.link.client import Client
from agents.wire.errors import AgentError
from db.machine.sides import mesh_of
from db.views.viewer import open_viewer
from tests.support.addresses import network
from tests.support.look import look, processors
from tests.support.mesh import MakeMesh, PrivateMesh, Run, while_up
from tests.support.waiting import wait_until

#: A Red Storm of two rows: columns 0 and 1 and 7 and 8 for service, 1, 2 and 2 compute columns between the switches.
MACHINE = """[topology]
kind = "mesh"
rows = 2
columns = 9
cages = 1
boards = 3
service_columns = [0, 1, 7, 8]
switches = [
    { name = "left", after = 1 },
    { name = "left-quarter", after = 2 },
    { name = "right-quarter", after = 4 },
    { name = "right", after = 6 },
]
"""
EACH = 2 * 3 * 4  # processors of a compute column
ALL = 5 * EACH
#: Login processors: service nodes at both ends.
LEFT, RIGHT = {"REDMESH_LOGIN": "c0-0c0s0n0"}, {"REDMESH_LOGIN": "c8-0c0s0n0"}


class RedStorm(PrivateMesh):
    """A mesh of the machine above, simulated."""

    def up(self, *options: str) -> Run:
        (self.work / "storm.toml").write_text(MACHINE)
        return self.run("mesh", "up", "--cpas", "2", "--simulate", "storm.toml", *options, check=True)


@pytest.fixture(scope="module")
def one_storm() -> Iterator[PrivateMesh]:
    with while_up(RedStorm()) as made:
        yield made


@pytest.fixture
def storm(one_storm: PrivateMesh) -> Iterator[PrivateMesh]:
    """The module's machine; afterwards nothing runs there, and its switches are closed."""
    yield one_storm
    try:
        wait_until(lambda: not look(one_storm)["launchers"], "nothing runs")
        close_switches(one_storm)
    except Exception:
        one_storm.restart()  # or later tests would meet what is left
        close_switches(one_storm)  # a boot closes none
        raise


def close_switches(storm: PrivateMesh) -> None:
    with open_viewer(storm.database) as viewer:
        opened = mesh_of(viewer.read().mesh.topology).open
    if opened:
        set_switches(storm, *(f"{name}=closed" for name in sorted(opened)))


def columns(storm: PrivateMesh, login: dict[str, str], size: int) -> set[int]:
    """The cabinet columns of a launch of so many ranks from there."""
    names = storm.run("yod", "-sz", str(size), "hostname", env=login, check=True).stdout.split()
    return {int(name[1:].partition("-")[0]) for name in names}


def most(storm: PrivateMesh, login: dict[str, str]) -> int:
    """How many processors a launch from there could have at most, as yod tells."""
    refused = storm.run("yod", "-sz", "9999", "true", env=login)
    assert refused.returncode == 125
    (told,) = re.findall(r"there (?:are|is) (none|\d+) for you", refused.stderr)
    return 0 if told == "none" else int(told)


def started(storm: PrivateMesh, login: dict[str, str], size: int) -> "subprocess.Popen[Any]":
    before = processors(storm, "busy")
    yod = storm.start("yod", "-sz", str(size), "sleep", "1000", env=login, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: processors(storm, "busy") == before + size, "it runs")
    return yod


def sides(storm: PrivateMesh) -> list[tuple[int, int, int]]:
    return [
        (one["first"], one["last"], one["compute_processors"]) for one in storm.json("mesh", "side", "show")["sides"]
    ]


def set_switches(storm: PrivateMesh, *switches: str) -> None:
    storm.run("mesh", "side", "set", *switches, check=True)
    wait_until(lambda: processors(storm, "down") == 0, "all nodes are wiped and up")


def end(yod: "subprocess.Popen[Any]") -> None:
    yod.terminate()
    yod.wait()


def refused_to_reach(storm: PrivateMesh, left: "subprocess.Popen[Any]") -> None:
    """A launch on the left: the right neither follows nor signals nor looks into it; the left does."""
    (launcher,) = (one["id"] for one in look(storm)["launchers"] if one["pid"] == left.pid)
    for command in (
        ["yod", "--attach", str(launcher)],
        ["yod", "-signal", "KILL", str(launcher)],
        ["yod", "--release", str(launcher)],
        ["yod", "--feed", str(launcher)],
        ["mesh", "stacks", str(launcher)],
        ["mesh", "procs", str(launcher)],
        ["mesh", "debug", str(launcher), "0", "gdb"],
    ):
        refused = storm.run(*command, env=RIGHT)
        assert refused.returncode == 125 and "another side" in refused.stderr, (command, refused.stderr)
    storm.run("yod", "-signal", "CONT", str(launcher), env=LEFT, check=True)


def refused_to_touch(storm: PrivateMesh) -> None:
    """The right's pingd does not see the left, and a CPA refuses whoever does not look first."""
    for verb in (["-kill"], ["-interrupt"], ["-reset"], ["-gone"], ["-reserve", "root"]):
        refused = storm.run("pingd", *verb, "-list", "0..9", "-NoInquire", env=RIGHT)
        assert refused.returncode != 0 and "this side of the machine has not" in refused.stderr, (verb, refused.stderr)
    on_the_left = {"processors": [[0, 9]], "nodes": []}
    launcher = storm.json("showmesh", env=LEFT)["launchers"][0]["id"]
    for request in (
        {"op": "kill_launchers", "launchers": [launcher]},
        {"op": "signal_launchers", "launchers": [launcher], "signal": 15},
        {"op": "reset", "launchers": [], "nodes": ["c2-0c0s0n0"]},
        {"op": "drain", "nodes": ["c2-0c0s0n0"]},
        {"op": "resume", "nodes": ["c2-0c0s0n0"]},
        {"op": "reserve", "wanted": on_the_left, "user": None},
        {"op": "set_mode", "wanted": on_the_left, "mode": "batch"},
    ):
        with (
            Client(str(storm.run_dir / "cpa-0.sock"), "admin", 5.0) as client,
            pytest.raises(AgentError, match="another side"),
        ):
            client.call({**request, "login": RIGHT["REDMESH_LOGIN"]})


def waiting_on_the_right(storm: PrivateMesh) -> "subprocess.Popen[Any]":
    """Who waits on one side holds nobody up on the other."""
    waits = storm.start("yod", "-sz", "5", "--wait-for-nodes", "60", "hostname", env=RIGHT, stdout=subprocess.DEVNULL)
    with open_viewer(storm.database) as viewer:
        wait_until(lambda: [row.size for row in viewer.waiting()] == [5], "it waits")
    assert columns(storm, LEFT, 1) <= {2, 3, 4}
    assert "1 request that came before" in storm.run("yod", "-sz", "1", "true", env=RIGHT).stderr
    return waits


def test_the_steps_of_the_patent(storm: PrivateMesh) -> None:
    # all closed: everything is there for everybody
    assert sides(storm) == [(0, 8, ALL)]
    assert most(storm, LEFT) == most(storm, RIGHT) == ALL
    # the right switch opened: all compute cabinets are the left's, the right has its service cabinets alone
    set_switches(storm, "right=open")
    assert sides(storm) == [(0, 6, ALL), (7, 8, 0)]
    assert most(storm, LEFT) == ALL and most(storm, RIGHT) == 0
    assert columns(storm, LEFT, ALL) == {2, 3, 4, 5, 6}
    # right closed and right-quarter opened, in one step: the right gets its quarter, though the left is at work
    left = started(storm, LEFT, 3 * EACH - 1)
    refused = storm.run("mesh", "side", "set", "right=closed", "right-quarter=open")
    if refused.returncode:  # the launch had processors of that quarter
        assert "partition" in refused.stderr and sides(storm) == [(0, 6, ALL), (7, 8, 0)]
        end(left)
        wait_until(lambda: processors(storm, "busy") == 0, "it is gone")
        set_switches(storm, "right=closed", "right-quarter=open")
        left = started(storm, LEFT, 3 * EACH - 1)
    assert sides(storm) == [(0, 4, 3 * EACH), (5, 8, 2 * EACH)]
    right = started(storm, RIGHT, 2 * EACH - 1)
    assert most(storm, LEFT) == 3 * EACH and most(storm, RIGHT) == 2 * EACH
    # nobody crosses: neither by number, nor by name, nor by asking for more, nor by opening the wall under a launch
    refused = storm.run("yod", "-list", "0", "true", env=RIGHT)
    assert refused.returncode == 125 and storm.run("yod", "-list", str(ALL - 1), "true", env=LEFT).returncode == 125
    assert storm.run("yod", "-sz", "1", "-list", "c2-0c0s0n0", "true", env=RIGHT).returncode == 125
    assert storm.run("yod", "-sz", "3", "true", env=RIGHT).returncode == 125  # one is left there, and one on the left
    assert storm.run("yod", "--dry-run", "-sz", "2", "true", env=RIGHT).returncode == 125
    refused_to_touch(storm)
    refused_to_reach(storm, left)
    waits = waiting_on_the_right(storm)
    assert left.poll() is None and right.poll() is None
    for change in (["right-quarter=closed"], ["left-quarter=open", "right-quarter=closed"], ["left=open"]):
        refused = storm.run("mesh", "side", "set", *change)
        assert refused.returncode != 0 and "partition" in refused.stderr, change
        assert sides(storm) == [(0, 4, 3 * EACH), (5, 8, 2 * EACH)]
    # the other launches go on through a change that does not concern them
    end(left)
    wait_until(lambda: processors(storm, "busy") == 2 * EACH - 1, "the left is idle")
    set_switches(storm, "left-quarter=open")
    assert sides(storm) == [(0, 2, EACH), (3, 4, 2 * EACH), (5, 8, 2 * EACH)]
    assert right.poll() is None
    assert most(storm, LEFT) == EACH
    shown = storm.run("showmesh", check=True).stdout
    assert any(line.count("|") == 2 for line in shown.splitlines())
    assert waits.poll() is None
    end(right)
    assert waits.wait() == 0


def test_waiting_drains_what_is_to_change(storm: PrivateMesh) -> None:
    yod = started(storm, LEFT, ALL)
    assert storm.run("mesh", "side", "set", "left=open").returncode != 0
    waits = storm.start("mesh", "side", "set", "left=open", "--wait", "300")
    wait_until(lambda: leaves(storm, LEFT), "nothing is given out there", step_s=0.1)
    assert waits.poll() is None
    end(yod)
    assert waits.wait() == 0
    assert sides(storm) == [(0, 1, 0), (2, 8, ALL)]
    wait_until(
        lambda: most(storm, RIGHT) == ALL and columns(storm, RIGHT, ALL) == {2, 3, 4, 5, 6}, "all is the right's"
    )


def test_who_gives_up_waiting_leaves_nothing_drained(storm: PrivateMesh) -> None:
    yod = started(storm, LEFT, ALL - EACH)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        waits = storm.start("mesh", "side", "set", "left=open", "--wait", "60")
        wait_until(lambda: leaves(storm, LEFT), "nothing is given out there", step_s=0.1)
        assert columns(storm, RIGHT, EACH), "the part that stays together works on"
        waits.send_signal(number)
        assert waits.wait() == 130, number
        assert processors(storm, "down") == 0, number
        assert not leaves(storm, LEFT), number
    end(yod)


def leaves(storm: PrivateMesh, login: dict[str, str]) -> bool:
    """Whether launches from there wait for a change of sides."""
    return "about to change sides" in storm.run("yod", "-sz", "1", "true", env=login).stderr


def test_the_larger_part_works_on_whatever_leaves_it_or_joins_it(storm: PrivateMesh) -> None:
    yod = started(storm, LEFT, 3)
    opened = storm.run("mesh", "side", "set", "right=open", check=True)
    assert "open switches: right; 24 nodes changed sides and were wiped" in opened.stdout
    closed = storm.run("mesh", "side", "set", "right=closed", check=True)
    assert "open switches: none; 24 nodes changed sides and were wiped" in closed.stdout
    storm.run("mesh", "side", "set", "right=open", check=True)
    refused = storm.run("mesh", "side", "set", "right=closed", "--wipe-both")
    assert refused.returncode != 0 and re.search(r"partition \d+ would be wiped with its nodes", refused.stderr)
    assert yod.poll() is None
    end(yod)
    wait_until(lambda: processors(storm, "busy") == 0, "it is gone")
    nodes = 2 * 3 * (5 * 4 + 4 * 2)
    both = storm.run("mesh", "side", "set", "right=closed", "--wipe-both", check=True)
    assert f"open switches: none; {nodes} nodes changed sides and were wiped" in both.stdout


def test_two_administrators_at_once_keep_each_others_switches(storm: PrivateMesh) -> None:
    yod = started(storm, LEFT, 1)
    waits = storm.start("mesh", "side", "set", "left-quarter=open", "--wait", "60")
    wait_until(lambda: leaves(storm, LEFT), "nothing is given out there", step_s=0.1)
    end(yod)
    assert waits.wait() == 0
    both = [storm.start("mesh", "side", "set", f"{name}=open") for name in ("left", "right-quarter", "right")]
    assert [one.wait() for one in both] == [0, 0, 0]
    assert all(state == "open" for state in storm.json("mesh", "side", "show")["switches"].values())


def test_a_block_may_lie_across_a_switch_from_when_it_is_closed(storm: PrivateMesh) -> None:
    set_switches(storm, "right-quarter=open")
    assert storm.run("yod", "--shape", "5x8x1", "true", env=LEFT).returncode == 125  # columns 2 to 6
    assert storm.run("yod", "--shape", "3x8x1", "true", env=LEFT).returncode == 0
    set_switches(storm, "right-quarter=closed")
    assert storm.run("yod", "--shape", "5x8x1", "true", env=LEFT).returncode == 0


def test_a_boot_closes_nothing(storm: PrivateMesh) -> None:
    set_switches(storm, "right-quarter=open")
    storm.run("mesh", "down", check=True)
    storm.up()
    assert sides(storm) == [(0, 4, 3 * EACH), (5, 8, 2 * EACH)]
    assert most(storm, RIGHT) == 2 * EACH
    for login, size in ((LEFT, 3 * EACH), (RIGHT, 2 * EACH)):  # a trace has the side of its login processor
        told = storm.run("mesh", "replay", "--jobs", "30", env=login, check=True).stdout
        assert f"days of {size} processors" in told
    set_switches(storm, "left=open")
    none = storm.run("mesh", "replay", "--jobs", "30", env=LEFT)
    assert (none.returncode, "has no compute processors" in none.stderr) == (125, True)


def test_a_real_pct_is_wiped_and_registers_anew(mesh: MakeMesh) -> None:
    made = mesh(8, 2, up=False)
    (made.work / "mesh.toml").write_text(
        '[topology]\nkind = "mesh"\nrows = 1\ncolumns = 2\ncages = 1\nboards = 1\n'
        'switches = [{ name = "cut", after = 0 }]\n'
    )
    made.up()
    made.run("yod", "-sz", "8", "true", check=True)
    assert made.run("mesh", "side", "set", "nonsense=open").returncode == 2
    assert made.run("mesh", "side", "set", "cut=open", "cut=closed").returncode == 2
    assert "; 1 node changed sides and was wiped" in made.run("mesh", "side", "set", "cut=open", check=True).stdout
    assert made.run("yod", "-sz", "8", "true").returncode == 125
    made.run("yod", "-sz", "4", "true", check=True)
    # n1 is not a login processor, and nobody logs in where there is no such node
    for name in ("n1", "nowhere"):
        refused = made.run("yod", "-sz", "4", "true", env={"REDMESH_LOGIN": name})
        assert refused.returncode == 125 and name in refused.stderr


def test_a_node_on_another_machine_gets_new_keys(mesh: MakeMesh) -> None:
    made = mesh(8, 2, up=False)
    (made.work / "mesh.toml").write_text(
        '[topology]\nkind = "mesh"\nrows = 1\ncolumns = 2\ncages = 1\nboards = 1\n'
        'switches = [{ name = "cut", after = 0 }]\n'
    )
    root = Path(__file__).parents[3]
    made.run(
        sys.executable, "-P", "-m", "tests.support.far_up", "--processors", "8", "--nodes", "2", check=True,
        env={"PYTHONPATH": str(root), "FAR_NETWORK": network()},
    )  # fmt: skip
    keys = sorted(made.state.glob("nodes/*/trust/launch.key"))
    before = [key.read_bytes() for key in keys]
    assert len(before) == 2
    told = made.run("mesh", "side", "set", "cut=open", check=True).stdout
    assert "the former ones are gone" in told
    assert not {key.read_bytes() for key in keys} & set(before)
    wait_until(lambda: processors(made, "down") == 0, "all are up again")
    made.run("yod", "-sz", "4", "true", check=True)

"""The simulated machine: the real yod, CPA, RCA, database and viewers, and PCTs that are only stood in for."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from db.views.viewer import open_viewer
from tests.support.look import processors
from tests.support.mesh import MakeMesh, PrivateMesh, Run, restarted_on_failure, while_up
from tests.support.waiting import wait_until
from tests.support.whole import is_whole

#: 4 compute columns and a service column at each end: 2 * 4 * 2 * 3 * 4 = 192 compute processors, 48 service.
MACHINE = """[topology]
kind = "mesh"
rows = 2
columns = 6
cages = 2
boards = 3
service_columns = [0, 5]
switches = [{ name = "left", after = 1 }, { name = "right", after = 3 }]
"""
COMPUTE, SERVICE = 192, 48


class SimulatedMesh(PrivateMesh):
    """A mesh that has the nodes of MACHINE, with one processor each."""

    def __init__(self) -> None:
        super().__init__(COMPUTE + SERVICE, COMPUTE + SERVICE, 2)
        (self.work / "machine.toml").write_text(MACHINE)

    def up(self, *options: str) -> Run:
        up = self.run("mesh", "up", "--cpas", "2", "--simulate", "machine.toml", *options, check=True)
        assert f"{COMPUTE + SERVICE} processors on {COMPUTE + SERVICE} nodes, 2 CPAs" in up.stdout
        return up


@pytest.fixture(scope="module")
def one_machine() -> Iterator[SimulatedMesh]:
    """A machine that is up for the whole module."""
    with while_up(SimulatedMesh()) as made:
        yield made


@pytest.fixture
def machine(one_machine: SimulatedMesh) -> Iterator[SimulatedMesh]:
    """The machine of this module's tests; after the test its daemons answer and every processor is free again."""
    yield one_machine
    with restarted_on_failure(one_machine):
        wait_until(lambda: is_whole(one_machine), one_machine.logs, step_s=0.1)


def free(machine: PrivateMesh) -> int:
    return processors(machine, "free")


def running(machine: PrivateMesh, *words: str) -> "subprocess.Popen[str]":
    yod = machine.start("yod", *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: processors(machine, "busy") > 0, "it runs", step_s=0.1)
    return yod


def test_one_launch_on_every_compute_processor(machine: PrivateMesh) -> None:
    done = machine.run("yod", "-sz", str(COMPUTE), "hostname", check=True)
    names = done.stdout.split()
    assert len(set(names)) == COMPUTE and all(name.startswith("c") for name in names)
    assert not any(name.startswith(("c0-", "c5-")) for name in names)  # the service columns are in no pool
    refused = machine.run("yod", "-sz", str(COMPUTE + 1), "true")
    assert refused.returncode == 125 and "192" in refused.stderr
    assert free(machine) == COMPUTE + SERVICE
    assert machine.json("mesh", "topology", "check") == []


def test_ranks_follow_the_curve_and_shapes_are_blocks(machine: PrivateMesh) -> None:
    names = machine.run("yod", "--shape", "2x2x2", "-label", "hostname", check=True).stdout.splitlines()
    assert len(names) == 8
    places = [line.split()[-1] for line in sorted(names)]
    assert len({name.partition("-")[0] for name in places}) in (1, 2)
    wrong = machine.run("yod", "-sz", "9", "--shape", "2x2x2", "true")
    assert (wrong.returncode, "8 processors" in wrong.stderr) == (2, True)
    none = machine.run("yod", "--shape", "9x9x9", "true")
    assert none.returncode == 125


def test_a_block_is_waited_for_while_others_lie_between_and_refused_where_it_never_fits(machine: PrivateMesh) -> None:
    every_other = running(machine, "-list", ",".join(map(str, range(1, COMPUTE, 2))), "sleep", "1000")
    assert "no block of 2x2x2" in machine.run("yod", "--shape", "2x2x2", "true").stderr
    waits = machine.start("yod", "--shape", "2x2x2", "-wait-for-nodes", "60", "true")
    with open_viewer(machine.database) as viewer:
        wait_until(lambda: [row.size for row in viewer.waiting()] == [8], "it waits")
    every_other.send_signal(signal.SIGINT)
    assert every_other.wait() != 0 and waits.wait() == 0
    never = machine.run("yod", "--shape", "1x1x190", "-wait-for-nodes", "60", "true")
    assert never.returncode == 125 and "fits into this machine" in never.stderr


def test_statuses_signals_and_interrupts_are_those_of_processes(machine: PrivateMesh) -> None:
    assert machine.run("yod", "-sz", "3", "false").returncode == 1
    yod = running(machine, "-sz", "20", "sleep", "100")
    yod.send_signal(signal.SIGINT)
    assert yod.wait() != 0
    assert yod.stderr is not None and ", 100.0 s" not in yod.stderr.read(), "as long as they ran"
    wait_until(lambda: free(machine) == COMPUTE + SERVICE, "all is free again", step_s=0.1)


def test_somebody_elses_placement(mesh: MakeMesh, tmp_path: Path) -> None:
    (tmp_path / "backwards.py").write_text(
        "def place(free, count, geometry):\n    return list(free)[-count:][::-1]\n"
        "def exits(free, count, geometry):\n    raise SystemExit(3)\n"
        "def words(free, count, geometry):\n    return [str(one) for one in free[:count]]\n"
    )
    info = tmp_path / "backwards-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: backwards\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[redmesh.placement]\nbackwards = backwards:place\nexits = backwards:exits\nwords = backwards:words\n"
    )
    made = mesh(4, 4, up=False, PYTHONPATH=str(tmp_path))
    made.up()
    told = made.run("yod", "--dry-run", "--placement", "backwards", "-sz", "2", "true", check=True).stdout
    assert told.index("n3") < told.index("n2")
    unknown = made.run("yod", "--placement", "nonsense", "true")
    assert "backwards" in unknown.stderr and unknown.returncode == 2
    assert made.run("yod", "--placement", "", "true").returncode == 2
    before = made.pid_of("cpa-0")
    for faulty in ("exits", "words"):
        refused = made.run("yod", "--placement", faulty, "true")
        assert refused.returncode == 125 and f"the placement '{faulty}' failed" in refused.stderr
    assert made.pid_of("cpa-0") == before


def test_a_dead_yod_is_cleaned_up_on_simulated_nodes(machine: PrivateMesh) -> None:
    yod = running(machine, "-sz", "64", "sleep", "1000")
    os.kill(yod.pid, signal.SIGKILL)
    yod.wait()
    wait_until(lambda: free(machine) == COMPUTE + SERVICE, "the RCA had it cleared away", step_s=0.1)
    assert machine.run("yod", "-sz", str(COMPUTE), "true").returncode == 0


def test_a_process_that_stands_in_may_be_killed(machine: PrivateMesh) -> None:
    yod = running(machine, "-sz", "64", "sleep", "1000")
    machine.kill("sim-0")
    assert yod.wait() == 125 or yod.returncode > 128
    wait_until(lambda: free(machine) == COMPUTE + SERVICE, "its nodes are back", step_s=0.1)
    machine.kill("rca")
    wait_until(lambda: machine.run("yod", "-sz", str(COMPUTE), "true").returncode == 0, "all goes on", step_s=0.5)


def test_a_cluster_can_be_simulated_too(mesh: MakeMesh) -> None:
    made = mesh(up=False)
    file: Path = made.work / "racks.toml"
    file.write_text('[topology]\nkind = "racks"\n[topology.racks]\nr1 = ["n[01-20]"]\nr2 = ["n[21-40]"]\n')
    made.run("mesh", "up", "--simulate", str(file), "--each", "4", check=True)
    names = made.run("yod", "-sz", "80", "hostname", check=True).stdout.split()
    racks = {int(name[1:]) > 20 for name in names}
    assert len(names) == 80 and len(racks) == 1  # packed into one rack
    shown = made.run("showmesh", check=True).stdout
    assert shown.splitlines()[0].split() == ["r1", "r2"]


def test_nobody_looks_into_a_simulated_program(machine: PrivateMesh) -> None:
    launcher = machine.run("yod", "-detach", "-sz", "24", "sleep", "600", check=True).stdout.strip()
    wait_until(lambda: (machine.run_dir / f"yod-{launcher}.sock").exists(), "it can be observed")
    done = machine.run("mesh", "stacks", launcher)
    assert done.returncode == 1 and done.stderr == "mesh: rank 0-23: simulated nodes run no processes\n"
    done = machine.run("mesh", "debug", launcher, "3")
    assert done.returncode == 125 and "simulated nodes run no processes" in done.stderr
    machine.run("yod", "-signal", "KILL", launcher, check=True)


def test_mesh_down_is_refused_while_something_runs(machine: SimulatedMesh) -> None:
    yod = running(machine, "-sz", "20", "sleep", "100")
    refused = machine.run("mesh", "down")
    assert refused.returncode != 0 and "runs on this mesh" in refused.stderr and yod.poll() is None
    yod.send_signal(signal.SIGINT)
    yod.wait()
    wait_until(lambda: machine.run("mesh", "down").returncode == 0, "nothing runs any more", step_s=0.5)
    machine.up()

"""A personal mesh from up to down, and what goes wrong on the way."""

import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.link.client import Client
from agents.wire.errors import AgentError
from console.settings import load
from db.store.store import open_store
from tests.support.look import processors, states
from tests.support.mesh import MakeMesh, PrivateMesh, restarted_on_failure, while_up
from tests.support.others import commands_for_others
from tests.support.shared_mesh import boot_id, borrowed, is_in_use, is_whole
from tests.support.waiting import freeze, silence, wait_until


@pytest.fixture(scope="module")
def one_mesh() -> Iterator[PrivateMesh]:
    """Four processors on two nodes, for all tests that leave a mesh as it was."""
    with while_up(PrivateMesh(4, 2)) as made:
        yield made


@pytest.fixture
def private(one_mesh: PrivateMesh) -> Iterator[PrivateMesh]:
    """The module's mesh."""
    with borrowed(one_mesh):
        yield one_mesh


def is_down(mesh: PrivateMesh) -> bool:
    """Whether nothing of the mesh runs, and it has left neither files in the runtime directory nor shared memory."""
    files = [path for path in (mesh.home / "run").rglob("*") if not path.is_dir()]
    memory = [name for name in os.listdir("/dev/shm") if mesh.home.name in name]
    return not (mesh.processes() or files or memory)


def bring_up(mesh: PrivateMesh) -> None:
    if not is_whole(mesh):
        mesh.up()


def runtime_directory(mesh: PrivateMesh) -> Path:
    """RUN of a mesh that has not been up yet."""
    return Path(load(environ=mesh.env).new_run_dir)


def test_up_status_down(mesh: MakeMesh) -> None:
    private = mesh(6, 4, up=False)
    said = private.up()
    assert said.stdout.startswith("mesh up: 6 processors on 4 nodes (") and said.stderr == ""
    assert private.run_dir.is_dir() and private.run_dir.stat().st_mode & 0o777 == 0o700
    found = private.json("mesh", "status")
    assert found["healthy"] and found["cpas"] == {"cpa-0": True} and found["nodes_out"] == []
    assert found["processors"]["free"] == 6
    assert [len(node["processors"]) for node in private.json("showmesh")["nodes"]] == [2, 2, 1, 1]
    run_dir = private.run_dir
    assert private.run("mesh", "down", check=True).stdout == "mesh down\n"
    assert not private.processes() and not run_dir.exists() and not (private.state / "run").exists()
    shown = private.run("showmesh", "--json")
    assert shown.returncode == 1 and json.loads(shown.stdout)["states"]["down"] == 6, "viewers must not show it as up"
    again = private.run("mesh", "down", check=True)
    assert again.stdout == "no mesh is up\n"
    told = private.run("mesh", "status")
    assert told.returncode == 1 and told.stdout.startswith("no mesh is up")


def test_up_tells_where_the_topology_is_another_machines(mesh: MakeMesh) -> None:
    made = mesh(8, 2, up=False)
    (made.work / "mesh.toml").write_text('[topology]\nkind = "mesh"\nrows = 1\ncolumns = 1\ncages = 1\nboards = 1\n')
    up = made.up()
    assert up.stdout.startswith("mesh up: 8 processors") and up.stderr == (
        "mesh: [topology]: node n1 has processor 4, and the machine ends at 3\n"
    )
    assert "mesh topology check" in made.run("yod", "-sz", "1", "true").stderr


def test_a_second_up_of_the_same_size_is_fine_and_of_another_refused(private: PrivateMesh) -> None:
    boot = boot_id(private)
    assert private.up().stdout == "mesh is up already: 4 processors on 2 nodes\n"
    assert private.run("mesh", "up", check=True).stdout == "mesh is up already: 4 processors on 2 nodes\n"
    for other in (("--processors", "8"), ("--nodes", "4"), ("--cpas", "2")):
        refused = private.run("mesh", "up", *other)
        assert refused.returncode == 125 and refused.stdout == ""
        assert "a mesh of 4 processors on 2 nodes is up already" in refused.stderr and "mesh down" in refused.stderr
    assert boot_id(private) == boot


def test_many_at_once_start_one(mesh: MakeMesh) -> None:
    private = mesh(4, 2, up=False)
    started = [private.start("mesh", "up", "--processors", "4", stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = sorted(process.communicate()[0].split("(")[0].strip() for process in started)
    assert said == ["mesh is up already: 4 processors on 1 node"] * 3 + ["mesh up: 4 processors on 1 node"]


def test_a_mesh_whose_keeper_was_killed_is_adopted(private: PrivateMesh) -> None:
    boot, nodes = boot_id(private), {name: private.pid_of(name) for name in ("n0", "n1", "rca", "cpa-0")}
    private.kill("keeper")
    told = private.run("mesh", "status")
    assert told.returncode == 1 and "GONE: daemons are not restarted (mesh up gives it a new keeper" in told.stdout
    for name in ("cpa-0", "rca"):
        os.kill(nodes.pop(name), signal.SIGKILL)
    told = private.run("mesh", "status")
    assert "TROUBLE     a part of it does not answer (mesh up gives it a new keeper" in told.stdout, told.stdout
    assert "--force" not in told.stdout, "what runs is not to be ended"
    assert "under a new keeper" in private.up().stdout
    assert {name: private.pid_of(name) for name in nodes} == nodes and boot_id(private) == boot
    assert private.run("yod", "-sz", "4", "true").returncode == 0
    private.kill("n1")
    wait_until(lambda: private.pid_of("n1") not in (0, nodes["n1"]), "the new keeper restarts what it adopted")


def test_viewers_work_while_every_cpa_is_down(mesh: MakeMesh) -> None:
    private = mesh(4, 2, 2)
    yod = private.start("yod", "-sz", "3", "sleep", "100", stderr=subprocess.DEVNULL)
    wait_until(lambda: is_in_use(private, 3), "the launch runs")
    daemons = [private.pid_of(name) for name in ("keeper", "cpa-0", "cpa-1", "rca")]
    for pid in daemons:
        os.kill(pid, signal.SIGKILL)
    shown = private.json("showmesh")
    assert shown["states"]["busy"] == 3 and shown["launchers"][0]["command"] == "sleep 100"
    assert [row["ranks"] for row in private.json("pingd")["processors"]] == [[0], [1], [2], []]
    assert " sleep 100" in private.run("showmesh", check=True).stdout
    assert yod.poll() is None, "a running launch outlives them all"


def test_a_launch_that_outlived_every_daemon_is_found_again(private: PrivateMesh) -> None:
    yod = private.start("yod", "-sz", "2", "sleep", "100", stderr=subprocess.DEVNULL)
    wait_until(lambda: is_in_use(private, 2), "the launch runs")
    boot = boot_id(private)
    for pid in [private.pid_of(name) for name in ("keeper", "cpa-0", "rca", "n0", "n1")]:
        os.kill(pid, signal.SIGKILL)
    assert "under a new keeper" in private.up().stdout
    assert boot_id(private) == boot and yod.poll() is None
    assert private.json("showmesh")["states"]["busy"] == 2
    assert private.run("yod", "-sz", "2", "true").returncode == 0
    assert private.run("yod", "-sz", "3", "true").returncode == 125, "no processor is given away twice"


def answer(mesh: PrivateMesh, text: bytes) -> int:
    """The status of a ``mesh down`` whose question was answered on a terminal."""
    leader, follower = pty.openpty()
    try:
        process = mesh.start("mesh", "down", stdin=follower, stdout=follower, stderr=follower)
        os.close(follower)
        seen = b""
        while b"[y/N]" not in seen:
            seen += os.read(leader, 4096)
        os.write(leader, text)
        return process.wait()
    finally:
        os.close(leader)


def test_a_mesh_that_fails_half_way_is_taken_down_and_says_why(mesh: MakeMesh) -> None:
    private = mesh(2, 1, up=False)
    (runtime_directory(private) / "keeper.sock").mkdir(parents=True)
    (private.home / "run" / "redmesh").chmod(0o700)
    runtime_directory(private).chmod(0o700)
    failed = private.run("mesh", "up")
    assert failed.returncode == 125 and "the mesh did not come up: the keeper ended" in failed.stderr
    assert "keeper.sock" in failed.stderr and "Traceback" not in failed.stderr, "the end of the keeper's log is shown"
    assert not private.processes()
    assert private.run("mesh", "up").returncode == 0, "and what was in its way is gone"


def test_an_interrupt_while_it_comes_up_leaves_nothing(mesh: MakeMesh) -> None:
    private = mesh(32, 32, up=False)
    process = private.start("mesh", "up", "--nodes", "32", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: len(private.processes()) > 3, "the keeper starts nodes", step_s=0.002)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert process.stderr is not None and process.stderr.read() == b""
    wait_until(lambda: not private.processes(), "nothing runs")
    assert not list((private.home / "run").rglob("*"))


def test_a_mesh_that_yod_started_ends_when_it_is_idle(mesh: MakeMesh) -> None:
    # On a busy machine more than a second may pass between the mesh's start and the launch.
    private = mesh(2, 1, up=False, REDMESH_IDLE_MINUTES=f"{silence(3.0) / 60:.3f}")
    yod = private.start("yod", "sh", "-c", "touch in; until test -e go; do sleep 0.2; done")
    wait_until((private.work / "in").exists, "the launch runs")
    assert private.json("mesh", "status")["auto"] is True
    (private.work / "go").touch()
    assert yod.wait() == 0
    wait_until(lambda: not private.processes(), "the mesh ends by itself", step_s=0.2)
    shown = private.run("showmesh")
    assert shown.returncode == 1 and "the mesh was idle" in shown.stderr, "viewers see that it has gone"
    # which ends no sooner than usual
    another = private.run("yod", "true", env={"REDMESH_IDLE_MINUTES": "60"})
    assert another.returncode == 0, f"and the next yod starts another: {another.stderr}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_directories_that_are_not_ones_own_alone_are_refused(mesh: MakeMesh) -> None:
    private = mesh(2, 1, up=False)
    for place in ("state/redmesh", "run/redmesh"):
        (private.home / place).mkdir(mode=0o700)
        os.chown(private.home / place, 65534, 65534)
        refused = private.run("mesh", "up")
        os.chown(private.home / place, 0, 0)
        assert refused.returncode == 125 and refused.stderr.count("\n") == 1, place
        assert place in refused.stderr and "must be your own directory" in refused.stderr
    assert not private.processes()


def test_a_directory_others_can_enter_is_refused(mesh: MakeMesh) -> None:
    private = mesh(2, 1, up=False)
    (private.home / "run" / "redmesh").mkdir(mode=0o755)
    refused = private.run("mesh", "up")
    assert refused.returncode == 125 and "mode 0700" in refused.stderr
    assert not private.processes()


def test_a_stranger_at_the_keepers_socket_is_not_taken_for_it(mesh: MakeMesh) -> None:
    private = mesh(2, 1, up=False)
    run_dir = runtime_directory(private)
    for made in (run_dir.parent, run_dir):
        made.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(run_dir / "keeper.sock"))
    assert private.up().stdout.startswith("mesh up"), "a dead socket is not a mesh"


def test_configuration_errors_are_one_line(mesh: MakeMesh) -> None:
    private = mesh(2, 1, up=False)
    (private.work / "mesh.toml").write_text("procesors = 3\n")
    (private.work / "mesh.toml").chmod(0o644)
    for command in (["mesh", "up"], ["mesh", "status"], ["showmesh"], ["pingd"], ["yod", "true"]):
        got = private.run(*command)
        assert got.returncode == 2 and got.stdout == "" and "did you mean 'processors'?" in got.stderr
        assert got.stderr.count("\n") == 1
    assert not (private.home / "state" / "redmesh").exists()


def test_a_clean_up_executable_that_cannot_run_is_refused(mesh: MakeMesh) -> None:
    """With it up, the first launcher that died would keep its processors for good."""
    private = mesh(2, 1, up=False)
    for path, cause in (("/nonexistent/tool", "does not exist"), ("/etc/passwd", "not executable")):
        got = private.run("mesh", "up", env={"REDMESH_CLEANUP": path})
        assert got.returncode == 2 and cause in got.stderr and got.stderr.count("\n") == 1, path
    assert not private.processes()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_the_mesh_of_somebody_else_is_not_called_down(private: PrivateMesh) -> None:
    private.home.chmod(0o755)
    bin = commands_for_others(private.home / "bin")
    stranger = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    for command in (["mesh", "down"], ["mesh", "status"], ["showmesh"], ["pingd"]):
        got = private.run(*stranger, f"{bin}/{command[0]}", *command[1:], cwd=Path("/"))
        assert got.returncode == 125 and "Permission denied" in got.stderr and got.stderr.count("\n") == 1, command


def test_a_mesh_whose_keeper_is_on_another_machine_is_not_upgraded_from_here(mesh: MakeMesh) -> None:
    """The two share a state directory: its lock is held, and no process or socket of the mesh is here."""
    private = mesh(up=False)
    private.state.mkdir(mode=0o700)
    whole = {"mesh": "m", "boot_id": "b", "login": "elsewhere", "nodes": [], "cpas": 1, "state": str(private.state)}
    config = json.dumps({**whole, "run": str(private.home / "elsewhere")})
    (private.state / "keeper.json").write_text(config)
    with open(private.state / "mesh.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        told = private.run("mesh", "upgrade")
    assert told.returncode == 125 and told.stderr.count("\n") == 1, told.stderr
    assert "none of it is seen from here: its keeper holds" in told.stderr
    assert not private.processes() and (private.state / "keeper.json").read_text() == config
    (private.state / "keeper.json").unlink()


def test_usage_errors_are_one_line_and_status_2(mesh: MakeMesh) -> None:
    private = mesh(2, 1, up=False)
    for words in (["upp"], ["up", "--processors"], ["partition"], ["mode", "x", "1"], ["up", "--nodes", "0"]):
        got = private.run("mesh", *words)
        assert got.returncode == 2 and got.stdout == "" and got.stderr.startswith("mesh: "), words
        assert got.stderr.count("\n") == 1, words


def test_hosts_in_the_configuration_are_never_replaced_by_this_machine(mesh: MakeMesh) -> None:
    private = mesh(2, 1, up=False, REDMESH_HOSTS="far1,far2")
    got = private.run("mesh", "up")
    assert got.returncode == 1 and got.stdout == "" and "no host could be had" in got.stderr
    got = private.run("yod", "true")
    assert got.returncode == 125 and got.stdout == "" and got.stderr.count("\n") == 1
    assert not private.processes() and not (private.state / "keeper.json").exists()


def test_callers_with_another_runtime_directory_find_the_mesh(private: PrivateMesh) -> None:
    elsewhere = {"XDG_RUNTIME_DIR": ""}
    assert private.run("mesh", "status", env=elsewhere).returncode == 0
    assert private.run("yod", "true", env=elsewhere).returncode == 0
    assert private.run("mesh", "up", env=elsewhere, check=True).stdout.startswith("mesh is up already")


def running_launch(private: PrivateMesh, *where: str) -> "subprocess.Popen[bytes]":
    """A launch of two ranks on ``private`` that runs until it is signalled."""
    yod = private.start("yod", *(where or ("-sz", "2")), "sleep", "600", stderr=subprocess.DEVNULL)
    wait_until(lambda: is_in_use(private, 2), "the launch runs")
    return yod


def outlives(private: PrivateMesh, yod: "subprocess.Popen[bytes]", boot: str) -> bool:
    """Whether the launch of :func:`running_launch` still runs, all its ranks, on the same mesh."""
    ranks = sum(command == "sleep 600" for command in private.processes().values())
    return yod.poll() is None and ranks == 2 and boot_id(private) == boot


@pytest.mark.parametrize("command", [("mesh", "up"), ("yod", "-sz", "1", "echo", "hi")])
def test_a_mesh_up_that_fails_ends_nothing_that_lives(private: PrivateMesh, command: tuple[str, ...]) -> None:
    yod, boot = running_launch(private), boot_id(private)
    for pid in [private.pid_of(name) for name in ("keeper", "cpa-0")[: 1 + (command[0] == "yod")]]:
        os.kill(pid, signal.SIGKILL)
    for name in ("mesh.db", "mesh.db-wal", "mesh.db-shm"):
        (private.state / name).rename(private.state / f"{name}.away")
    failed = private.run(*command)
    assert failed.returncode != 0 and "Traceback" not in failed.stderr, failed
    assert outlives(private, yod, boot)
    for name in (
        "mesh.db-wal",
        "mesh.db-shm",
        "mesh.db",
    ):  # a CPA must not find mesh.db without its log
        (private.state / f"{name}.away").replace(private.state / name)
    wait_until(lambda: private.run("mesh", "up").returncode == 0, "and when the database is back, all is well")
    assert private.run("yod", "-sz", "2", "true").returncode == 0
    assert outlives(private, yod, boot) and private.json("showmesh")["states"]["busy"] == 2


def test_a_node_that_does_not_come_up_ends_nothing_elsewhere(private: PrivateMesh) -> None:
    yod, boot = running_launch(private, "-list", "n0"), boot_id(private)
    private.kill("keeper")
    n1 = next(pid for pid, words in private.processes().items() if words.startswith("redmesh-pct n1"))
    os.kill(n1, signal.SIGKILL)
    wait_until(lambda: processors(private, "down") == 2, "n1 is down")
    (private.run_dir / "n1.sock").unlink()
    (private.run_dir / "n1.sock").mkdir()
    up = private.run("mesh", "up")
    assert up.returncode == 1 and "2 of 4 processors on 1 of 2 nodes (n1 down), under a new keeper" in up.stdout
    assert outlives(private, yod, boot)
    told = json.loads(private.run("mesh", "up", "--json").stdout)
    assert (told["processors"], told["processors_up"], told["nodes"], told["nodes_up"]) == (4, 2, 2, 1)
    assert [(node["name"], node["state"]) for node in told["out"]] == [("n1", "down")]
    (private.run_dir / "n1.sock").rmdir()
    wait_until(lambda: private.run("mesh", "up").returncode == 0, "n1 is tried again")
    assert outlives(private, yod, boot)


def test_an_interrupt_while_a_mesh_is_adopted_ends_nothing(private: PrivateMesh) -> None:
    yod, boot = running_launch(private), boot_id(private)
    for delay_s in (0.1, 0.25, 0.6):
        private.kill("keeper")
        up = private.start("mesh", "up", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            up.wait(delay_s)
        except subprocess.TimeoutExpired:
            up.send_signal(signal.SIGINT)
        up.wait()
        assert private.run("mesh", "up", check=True).stdout and outlives(private, yod, boot)


def remove_run(private: PrivateMesh) -> None:
    """What logind does at the last logout: everything in XDG_RUNTIME_DIR goes, and the directory."""
    for _ in range(100):
        shutil.rmtree(private.home / "run", ignore_errors=True)  # a daemon may be making it again meanwhile
        if not (private.home / "run").exists():
            return


def test_a_new_keeper_starts_nothing_beside_daemons_whose_sockets_were_removed(mesh: MakeMesh) -> None:
    """A second RCA would know of no launcher, and have a CPA end them all after 5 s."""
    private = mesh(4, 2)
    before = {one["name"]: one["pid"] for one in private.keeper()["daemons"]}
    private.kill("keeper")
    remove_run(private)
    command = [sys.executable, "-P", "-m", "redmesh", "keeper", "--config", str(private.state / "keeper.json")]
    keeper = private.start(*command)
    try:
        wait_until(lambda: private.answers("keeper") and private.answers("rca"), "keeper and RCA answer")
        wait_until(lambda: all(one["pid"] for one in private.keeper()["daemons"]), "all are adopted")
        assert {one["name"]: one["pid"] for one in private.keeper()["daemons"]} == before
    finally:
        private.run("mesh", "down", "--force")
        keeper.wait()


def test_a_node_whose_socket_was_missing_is_up_again(mesh: MakeMesh) -> None:
    private = mesh(4, 2, REDMESH_FAILED_S="600")  # what is up again before was not up after a rest
    place = private.run_dir / "n0.sock"
    place.unlink()
    place.mkdir()  # so that its PCT cannot make it again
    assert "cannot be reached" in private.run("yod", "-sz", "4", "true").stderr
    assert states(private)["n0"] == "down"
    place.rmdir()
    wait_until(lambda: states(private) == {"n0": "up", "n1": "up"}, "n0 is up again")


def test_a_node_that_was_never_told_that_it_was_reported_is_up_after_its_rest(private: PrivateMesh) -> None:
    with open_store(private.database) as store:
        store.run(
            lambda t: t.change(
                "UPDATE node SET state = 'down', reason = 'a load failed', `by` = 'cpa', state_at = ?, changed = ?"
                " WHERE name = 'n1'",
                (t.now, t.stamp),
            )
        )
    assert states(private)["n1"] == "down"
    with Client(str(private.run_dir / "cpa-0.sock"), "admin") as cpa:
        cpa.call({"op": "nodes_moved"})  # as the CPA does that has changed the row
    wait_until(lambda: states(private)["n1"] == "up", "n1 is up again")


#: Commands that open the system database, and their exit status where it is away.
OPENERS = {
    ("mesh", "db", "init"): 125,
    ("mesh", "db", "migrate"): 125,
    ("mesh", "status"): 1,
    ("mesh", "history"): 125,
    ("showmesh",): 125,
    ("mesh", "up"): 1,
    ("yod", "-sz", "1", "true"): 125,
}


@contextlib.contextmanager
def moved_away(private: PrivateMesh) -> Iterator[Path]:
    """Where the database of ``private`` was; it is back afterwards."""
    file, aside = private.state / "mesh.db", private.state / "moved-away"
    os.rename(file, aside)
    try:
        yield file
    finally:
        os.rename(aside, file)


def test_nobody_makes_a_new_database_below_a_mesh_that_lives(private: PrivateMesh) -> None:
    for command, status in OPENERS.items():
        with moved_away(private) as file:
            told = private.run(*command)
            assert not file.exists(), f"{command}: {told.stderr}"
        assert "no such table" not in told.stderr and "Traceback" not in told.stderr
        assert told.returncode == status or command[0] == "yod", (command, told.stdout, told.stderr)
    wait_until(lambda: private.run("yod", "-sz", "4", "true").returncode == 0, "all is well with the file there")


def test_nobody_makes_a_new_database_below_a_mesh_whose_keeper_and_cpa_were_killed(private: PrivateMesh) -> None:
    *others, up, yod = OPENERS
    for commands in (others, [up], [yod]):  # the last two start a keeper
        with moved_away(private) as file:
            for daemon in ("cpa-0", "keeper"):
                private.kill(daemon)
            for command in commands:
                told = private.run(*command)
                assert not file.exists(), f"{command}: {told.stderr}"
        private.run("mesh", "up")
    wait_until(lambda: private.run("yod", "-sz", "4", "true").returncode == 0, "all is well with the file there")


def test_commands_find_a_mesh_whose_run_directory_was_removed(private: PrivateMesh) -> None:
    launcher = private.run("yod", "-detach", "-sz", "2", "sleep", "600", check=True).stdout.strip()
    remove_run(private)
    assert private.json("mesh", "status")["launchers"] == 1
    remove_run(private)
    assert private.run("mesh", "up", check=True).stdout == "mesh is up already: 4 processors on 2 nodes\n"
    remove_run(private)
    refused = private.run("mesh", "down")
    assert refused.returncode == 1 and f"launcher {launcher} runs" in refused.stderr
    remove_run(private)
    assert private.run("yod", "-sz", "2", "echo", "hi", check=True).stdout == "hi\nhi\n"
    assert sum(words == "sleep 600" for words in private.processes().values()) == 2
    wait_until(lambda: len(list(private.run_dir.glob("launch-*.sock"))) >= 1, "the launch children's sockets are back")
    assert private.run_dir.stat().st_mode & 0o777 == 0o700 and (private.home / "run").stat().st_mode & 0o777 == 0o700
    remove_run(private)
    yod = private.start("yod", "--attach", launcher, stderr=subprocess.DEVNULL)
    wait_until(lambda: (private.run_dir / f"yod-{launcher}.sock").exists(), "the launch can be attached to")
    remove_run(private)
    private.run("yod", "-signal", "TERM", launcher, check=True)
    assert yod.wait() == 143


def test_a_launch_whose_socket_is_away_is_not_said_to_be_gone(private: PrivateMesh) -> None:
    launcher = private.run("yod", "-detach", "-sz", "1", "sleep", "600", check=True).stdout.strip()
    [yod] = [pid for pid, words in private.processes().items() if words.endswith("-sz 1 sleep 600")]
    os.kill(yod, signal.SIGSTOP)
    try:
        (private.run_dir / f"yod-{launcher}.sock").unlink()
        refused = private.run("yod", "-signal", "TERM", launcher)
        assert refused.returncode and f"launcher {launcher} runs, but nobody answers" in refused.stderr
    finally:
        os.kill(yod, signal.SIGCONT)
    private.run("yod", "-signal", "TERM", launcher, check=True)


def test_a_held_launch_is_released_after_its_run_directory_was_removed(private: PrivateMesh) -> None:
    launcher = private.run("yod", "-detach", "--hold", "-sz", "2", "echo", "hi", check=True).stdout.strip()
    remove_run(private)
    private.run("yod", "--release", launcher, check=True)
    assert private.run("yod", "--attach", launcher, check=True).stdout == "hi\nhi\n"


def test_a_launch_is_found_when_the_cpa_has_made_the_run_directory_again_before_the_keeper(
    private: PrivateMesh,
) -> None:
    launcher = private.run("yod", "-detach", "--hold", "-sz", "2", "echo", "hi", check=True).stdout.strip()
    (yod,) = [pid for pid, words in private.processes().items() if "--hold" in words]
    stopped = [private.pid_of("keeper"), yod]
    for pid in stopped:
        freeze(pid)
    try:
        remove_run(private)
        wait_until(lambda: (private.run_dir / "cpa-0.sock").exists(), "the CPA has made the directory again")
        release = private.start("yod", "--release", launcher, stderr=subprocess.PIPE, text=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.Popen.wait(release, 2.5)  # longer than a launch is waited for whose directory was not removed
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    _, said = release.communicate()
    assert release.returncode == 0, said
    assert private.run("yod", "--attach", launcher, check=True).stdout == "hi\nhi\n"


def test_a_run_directory_that_cannot_be_made_again(mesh: MakeMesh) -> None:
    """After the last logout /run/user/UID is gone, and its parent is root's."""
    private = mesh(4, 2)
    boot = boot_id(private)
    launcher = private.run("yod", "-detach", "-sz", "2", "sleep", "600", check=True).stdout.strip()
    remove_run(private)
    (private.home / "run").touch()
    told = private.run("mesh", "status")
    assert told.returncode == 1 and "was removed and cannot be made again" in told.stdout
    for command in (("mesh", "down"), ("mesh", "up"), ("yod", "true"), ("yod", "--attach", launcher)):
        refused = private.run(*command)
        assert refused.returncode == 125 and refused.stderr and "Traceback" not in refused.stderr, refused
    assert boot_id(private) == boot and private.json("showmesh")["launchers"][0]["command"] == "sleep 600"
    (private.home / "run").unlink()
    (private.home / "run").mkdir(mode=0o700)
    wait_until(lambda: all(map(private.answers, ("keeper", "rca", "cpa-0", "n0", "n1"))), "the daemons are back")
    assert private.run("mesh", "status").returncode == 0
    remove_run(private)
    (private.home / "run").touch()
    assert private.run("mesh", "down", "--force", check=True).stdout == "mesh down\n"
    assert not private.processes()
    (private.home / "run").unlink()


@pytest.mark.parametrize(
    ("killed", "made_again"),
    [
        (("n0",), False),
        (("keeper", "n0"), False),
        (("keeper", "n0"), True),
        (("keeper", "cpa-0", "rca", "n0", "n1"), False),
    ],
)
def test_a_launch_outlives_its_daemons_and_the_run_directory(
    private: PrivateMesh, killed: tuple[str, ...], made_again: bool
) -> None:
    boot, log = boot_id(private), private.state / "log" / "pct-n0.jsonl"

    def incarnation() -> int:
        with contextlib.closing(sqlite3.connect(private.state / "mesh.db")) as database:
            rows = database.execute("SELECT incarnation FROM node WHERE name = 'n0' AND state = 'up'").fetchall()
            return int(rows[0][0]) if rows else 0

    if incarnation() == 1:
        private.kill("n0")  # the next one is to count on from this life, and not to begin at 1 again
        wait_until(lambda: incarnation() == 2, "its second life is known")
    before = log.read_text().count('"adopted"')
    launcher = private.run("yod", "-detach", "-list", "n0", "sleep", "600", check=True).stdout.strip()
    pids = [private.pid_of(name) for name in killed]
    run, login = private.run_dir, (private.run_dir / "login").read_text()
    remove_run(private)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    if made_again:  # by the keeper, before it was killed and could start a PCT
        for path in (run.parent.parent, run.parent, run):
            path.mkdir(mode=0o700, exist_ok=True)
        (run / "login").write_text(login)
    wait_until(lambda: private.run("mesh", "up").returncode == 0, "the mesh is up again")
    assert boot_id(private) == boot
    wait_until(lambda: is_in_use(private, 2), "the launch is known")
    assert sum(words == "sleep 600" for words in private.processes().values()) == 2
    wait_until(lambda: log.read_text().count('"adopted"') > before, "the new PCT has taken the launch up")
    private.run("yod", "-signal", "TERM", launcher, check=True)
    wait_until(lambda: processors(private, "free") == 4, "its processors are free")
    assert private.run("yod", "-sz", "4", "true").returncode == 0


class TestWhatGoesDown:
    """Tests that share a mesh, which each leaves whole or down, and that is brought up only where it is down."""

    @pytest.fixture(scope="class")
    def mesh_of_class(self) -> Iterator[PrivateMesh]:
        with while_up(PrivateMesh(4, 2), up=False) as made:
            yield made

    @pytest.fixture
    def private(self, mesh_of_class: PrivateMesh) -> Iterator[PrivateMesh]:
        yield mesh_of_class
        with restarted_on_failure(mesh_of_class):
            wait_until(lambda: is_down(mesh_of_class) or is_whole(mesh_of_class), mesh_of_class.logs, step_s=0.1)

    def test_after_everything_was_killed_a_new_boot_starts(self, private: PrivateMesh) -> None:
        bring_up(private)
        boot = boot_id(private)
        for _ in range(20):
            for pid in private.processes():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if not private.processes():
                break
        assert private.up().stdout.startswith("mesh up: 4 processors on 2 nodes")
        assert boot_id(private) != boot
        assert private.run("yod", "-sz", "4", "true").returncode == 0

    def test_down_asks_before_it_ends_launches(self, private: PrivateMesh) -> None:
        bring_up(private)
        yod = private.start("yod", "-sz", "2", "sleep", "100", stderr=subprocess.DEVNULL)
        wait_until(lambda: is_in_use(private, 2), "the launch runs")
        refused = private.run("mesh", "down")
        assert refused.returncode == 1 and "--force" in refused.stderr
        assert re.search(r"launcher \d+ runs", refused.stderr)
        assert answer(private, b"n\n") == 1 and yod.poll() is None
        assert answer(private, b"y\n") == 0
        assert yod.wait() != 0
        wait_until(lambda: not private.processes(), "the ranks have gone with the mesh")
        [ended] = [one for one in private.json("mesh", "history") if one["command"] == "sleep 100"]
        assert ended["ended_at"]

    def test_a_newer_and_a_damaged_database_are_refused_with_what_to_do(self, private: PrivateMesh) -> None:
        if not (private.state / "mesh.db").exists():
            private.up()
        private.down()
        try:
            with sqlite3.connect(private.state / "mesh.db") as database:
                database.execute("UPDATE mesh SET schema_version = 99")
            database.close()
            for command in (("mesh", "up"), ("yod", "true"), ("showmesh",)):
                got = private.run(*command)
                assert got.returncode == 125 and "schema 99, newer" in got.stderr, got.stderr
                assert "Traceback" not in got.stderr and got.stdout == ""
            assert not private.processes()
            content = bytearray((private.state / "mesh.db").read_bytes())
            for page in range(1, len(content) // 4096):
                content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
            (private.state / "mesh.db").write_bytes(content)
            for command in (("mesh", "up"), ("showmesh",), ("mesh", "history")):
                got = private.run(*command)
                assert (
                    got.returncode == 125 and "is damaged" in got.stderr and "mesh up makes a new one" in got.stderr
                ), got
                assert "Traceback" not in got.stderr and "fault of redmesh" not in got.stderr
        finally:  # also if the test fails: the next brings up a mesh with this state directory
            for path in private.state.glob("mesh.db*"):
                path.unlink()
        assert private.up().returncode == 0, "the remedy is one"

    def test_a_mesh_without_a_keeper_can_be_taken_down(self, private: PrivateMesh) -> None:
        bring_up(private)
        private.kill("keeper")
        assert private.run("mesh", "down", check=True).stdout == "mesh down\n"
        wait_until(lambda: not private.processes(), "all daemons have ended")

    def test_down_and_up_where_keeper_json_is_broken(self, private: PrivateMesh) -> None:
        bring_up(private)
        yod = running_launch(private)
        whole = (private.state / "keeper.json").read_text()
        for broken in ("", "[]", '{"run": 1}', "[" * 100_000):
            (private.state / "keeper.json").write_text(broken)
            refused = private.run("mesh", "up")
            assert refused.returncode == 125 and "mesh down --force" in refused.stderr and yod.poll() is None
            assert private.run("mesh", "status").returncode in (0, 1)
        assert private.run("mesh", "down").returncode == 1, "a launch runs"
        assert private.run("mesh", "down", "--force", check=True).stdout == "mesh down\n"
        wait_until(lambda: not private.processes(), "all have ended")
        assert private.up().stdout.startswith("mesh up: 4 processors"), "and the broken file is in nobody's way"
        yod = running_launch(private)
        private.kill("keeper")
        (private.state / "keeper.json").write_text(whole[:20])
        refused = private.run("mesh", "down")
        assert refused.returncode == 125 and "--force" in refused.stderr and yod.poll() is None
        assert private.run("mesh", "down", "--force", check=True).stdout == "mesh down\n"
        wait_until(lambda: not private.processes(), "all have ended")

    def test_down_is_refused_when_the_run_directory_is_removed_at_that_moment(self, private: PrivateMesh) -> None:
        """The keeper has not noticed yet, and no launch child has a socket: that is not evidence that none lives."""
        bring_up(private)
        launcher = private.run("yod", "-detach", "-sz", "2", "sleep", "600", check=True).stdout.strip()
        with Client(str(private.run_dir / "keeper.sock"), "admin", 20.0) as keeper:
            remove_run(private)
            with pytest.raises(AgentError) as refusal:
                keeper.call({"op": "down", "force": False})
        assert refusal.value.code == "busy" and f"launcher {launcher} runs" in refusal.value.message
        assert sum(words == "sleep 600" for words in private.processes().values()) == 2
        private.run("mesh", "down", "--force", check=True)
        assert not private.processes()

"""mesh debug: somebody at a terminal sits at a debugger on one rank, leaves it, and the rank runs on."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.link.client import Client, Unreachable
from agents.linux import processes
from console.launch.attach.stacks import take
from tests.support.mesh import PrivateMesh
from tests.support.places import Begin, begin, pid_of, places
from tests.support.shared_mesh import borrowed_mesh as one_mesh
from tests.support.terminals import Typist
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.yods import yods

__all__ = ["begin", "one_mesh", "places", "yods"]

Sit = Callable[..., Typist]
needs_gdb = pytest.mark.skipif(not shutil.which("gdb"), reason="no gdb here")


@pytest.fixture
def sit(yods: PrivateMesh) -> Iterator[Sit]:
    """``mesh debug …`` on a terminal."""
    begun: list[Typist] = []

    def at(*words: str) -> Typist:
        begun.append(Typist(["mesh", "debug", *words], {**yods.env, "TERM": "dumb"}, yods.work))
        return begun[-1]

    yield at
    for one in begun:
        one.close()


def traced_by(pid: int) -> int:
    return int(next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "TracerPid" in line)[10:])


@needs_gdb
def test_gdb_on_a_rank_of_another_node(yods: PrivateMesh, begin: Begin, places: str, sit: Sit) -> None:
    launcher = begin("-sz", "8", places, "5")
    other, rank = pid_of(yods, launcher, 7), pid_of(yods, launcher, 5)
    wait_until(lambda: processes.state(rank) == "R", "it computes")
    one = sit(launcher, "5")
    one.read("(gdb) ")
    assert traced_by(rank) and not traced_by(other) and processes.state(other) == "S"
    one.type("backtrace\r")
    assert "main (argc=2" in one.read("(gdb) ")
    one.type("print n\r")
    assert "$1 = " in one.read("(gdb) ")
    one.type("continue\r")
    one.read("Continuing.")
    wait_until(lambda: processes.state(rank) == "R", "it computes again")
    one.type("\x03")  # for gdb, not for us
    one.read("(gdb) ")
    one.type("quit\r")
    one.read("(y or n)")
    one.type("y\r")
    assert one.wait() == 0 and one.cooked
    wait_until(lambda: processes.state(rank) == "R" and not traced_by(rank), "it computes, untraced")


@needs_gdb
def test_a_script_of_gdb_commands_is_asked_for_no_key(yods: PrivateMesh, begin: Begin, places: str) -> None:
    launcher = begin("-sz", "2", places)
    wait_until(lambda: pid_of(yods, launcher, 1), "it runs")
    told = yods.run("mesh", "debug", launcher, "1", input="info signals\nprint 6 * 7\nquit\ny\n", check=True)
    assert "SIGVTALRM" in told.stdout and "$1 = 42" in told.stdout and "<RET>" not in told.stdout


@needs_gdb
def test_a_held_rank_continues_alone_in_gdb_and_is_held_again_after_it(
    yods: PrivateMesh, begin: Begin, places: str, sit: Sit
) -> None:
    launcher = begin("--hold", "-sz", "2", places)
    rank, other = pid_of(yods, launcher, 1), pid_of(yods, launcher, 0)
    one = sit(launcher, "1", "gdb")
    assert "yod --release LAUNCHER" in one.read("(gdb) ")
    one.type("break main\r")
    one.read("(gdb) ")
    one.type("continue\r")
    assert "SIGSTOP" not in one.read("(gdb) ") and processes.state(other) == "T"
    one.type("backtrace\r")
    assert "main (argc=1" in one.read("(gdb) ")
    one.type("quit\r")
    one.read("(y or n)")
    one.type("y\r")
    assert one.wait() == 0
    wait_until(lambda: processes.state(rank) == "T" and not traced_by(rank), "it is held again")
    yods.run("yod", "--release", launcher, check=True)
    wait_until(lambda: processes.state(rank) == processes.state(other) == "S", "both run")


@needs_gdb
def test_who_vanishes_leaves_the_rank_running(yods: PrivateMesh, begin: Begin, places: str, sit: Sit) -> None:
    launcher = begin("-sz", "2", places)
    rank = pid_of(yods, launcher, 1)
    one = sit(launcher, "1", "gdb")
    one.read("(gdb) ")
    debugger = traced_by(rank)
    os.kill(one.pid, signal.SIGKILL)
    wait_until(lambda: not processes.alive(debugger), "the debugger has gone")
    wait_until(lambda: processes.state(rank) == "S" and not traced_by(rank), "it waits, untraced")


def test_a_command_of_ones_own_and_the_window(yods: PrivateMesh, begin: Begin, places: str, sit: Sit) -> None:
    launcher = begin("-sz", "2", places)
    one = sit(launcher, "1", "--", "sh", "-c", "trap 'stty size; exit' WINCH; stty size; while :; do sleep 0.1; done")
    one.read("30 100")
    one.resize(41, 77)
    os.kill(one.pid, signal.SIGWINCH)
    one.read("41 77")
    assert one.wait() == 0
    told = yods.run("mesh", "debug", launcher, "1", "--", "sh", "-c", "echo {pid}=$REDMESH_PID; tty")
    pid = pid_of(yods, launcher, 1)
    assert told.stdout.splitlines()[0] == f"{pid}={pid}" and told.stdout.splitlines()[1].startswith("/dev/pts/")


def test_strace_says_more_than_anybody_reads(yods: PrivateMesh, begin: Begin, sit: Sit) -> None:
    if not shutil.which("strace"):
        pytest.skip("no strace here")
    launcher = begin("-sz", "1", "sh", "-c", "while :; do :; echo >/dev/null; done")
    rank = pid_of(yods, launcher, 0)
    process = yods.start("mesh", "debug", launcher, "0", "strace", stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert process.stdout is not None
    read = process.stdout.read(300_000)
    assert b"write(1" in read
    process.terminate()
    process.stdout.read()
    assert process.wait() == 0
    wait_until(lambda: not traced_by(rank), "strace has let go")
    assert processes.alive(rank)


@needs_gdb
def test_the_end_of_the_launch_ends_it(yods: PrivateMesh, begin: Begin, places: str, sit: Sit) -> None:
    launcher = begin("-sz", "2", places)
    one = sit(launcher, "0", "gdb")
    one.read("(gdb) ")
    yods.run("pingd", "-kill", "-job", launcher, "-N", check=True)
    assert one.wait() in (0, 125) and one.cooked


def test_what_cannot_be(yods: PrivateMesh, begin: Begin, places: str) -> None:
    launcher = begin("-sz", "4", places)

    def refused(*words: str) -> str:
        done = yods.run("mesh", "debug", *words)
        assert done.returncode == 125
        return done.stderr

    assert f"launcher {launcher} has ranks 0 to 3" in refused(launcher, "4")
    wait_until(lambda: processes.alive(pid_of(yods, launcher, 0)), "it runs")
    assert "n1: rank 3 has ended" in refused(launcher, "3")
    assert "n0: nosuch is not there (install nosuch on n0)" in refused(launcher, "0", "nosuch")
    assert "launcher 99999 does not run" in refused("99999", "0")
    assert "it is no Python" in refused(launcher, "0", "pdb")


def test_requests_that_mean_nothing_hurt_nobody(yods: PrivateMesh, begin: Begin, places: str) -> None:
    launcher = begin("-sz", "2", places)
    pid = pid_of(yods, launcher, 1)
    usual = {"op": "debug", "rank": 1, "command": ["gdb"], "rows": 24, "columns": 80}
    wrong: list[dict[str, object]] = [
        {**usual, "command": []}, {**usual, "command": ["a\0b"]}, {**usual, "command": [["x"]]}, {**usual, "rank": -1},
        {**usual, "command": ["sh", "-c", "\0"]}, {**usual, "rank": 1 << 62}, {**usual, "rows": -5, "command": ["-"]},
        {"op": "stacks", "ranks": "0-99999999999"}, {"op": "stacks", "which": "x"}, {"op": "stacks", "limit_s": 1e9},
        {"op": "stacks", "ranks": "1", "tools": {"py-spy": ["/bin/true"]}}, {"op": "debug_type", "data": "\u4e00"},
    ]  # fmt: skip
    for request in wrong:
        with Client(str(yods.run_dir / f"yod-{launcher}.sock"), "observer", 15) as client:
            client.tell(request)
            try:
                if not str(request["op"]).startswith("debug_"):
                    assert client.receive().get("event") in ("refused", "debug_over", "stacks"), request
            except Unreachable as error:
                assert "ended" in str(error)  # yod ended the connection, not itself
    assert processes.alive(pid) and take(str(yods.run_dir), int(launcher))["tree"]


def test_pdb_needs_a_python_that_can_be_entered(yods: PrivateMesh, begin: Begin) -> None:
    if sys.version_info >= (3, 14):
        pytest.skip("this Python can be entered")
    launcher = begin("-sz", "1", sys.executable, "-c", "import time; time.sleep(600)")
    pid = pid_of(yods, launcher, 0)
    wait_until(lambda: "python" in os.readlink(f"/proc/{pid}/exe"), "it is Python")
    told = yods.run("mesh", "debug", launcher, "0", "pdb").stderr
    assert "has not called redmesh.debug_on_request() (Python 3.14 and later" in told and "py-spy shows where" in told


LETS_IN = """
import time, redmesh
def never():
    return 0
def work(step):
    time.sleep(0.05)
    return step + 1
redmesh.{call}()
step = 0
while True:
    step = work(step)
"""


def lets_in(pid: int) -> bool:
    return f"@redmesh-pdb-{pid}\n" in Path("/proc/net/unix").read_text()


def test_pdb_in_a_program_that_lets_it_in(yods: PrivateMesh, begin: Begin, sit: Sit, tmp_path: Path) -> None:
    program = tmp_path / "steps.py"
    program.write_text(LETS_IN.format(call="debug_on_request"))
    launcher = begin("-sz", "2", "-nodes", "2", sys.executable, str(program))
    rank = pid_of(yods, launcher, 1)
    wait_until(lambda: lets_in(rank), "it lets pdb in")
    one = sit(launcher, "1", "pdb")
    one.read("(Pdb) ")
    one.type("where\r")
    assert "<module>()" in one.read("(Pdb) ")
    one.type("break work\r")
    one.read("Breakpoint 1")
    one.type("continue\r")
    one.read("work()")
    one.read("(Pdb) ")
    one.type("p step > 0\r")
    one.read("True")
    one.type("run\r")
    one.read("cannot be begun again")
    one.type("clear\r")
    one.read("cleared")
    one.type("break never\r")
    one.read("Breakpoint 2")
    one.type("continue\r")
    one.read("continue")
    until_it_goes_on(rank)
    one.type("\x03")
    one.read("(Pdb) ")
    one.type("p 'again', 6 * 7\r")
    one.read("('again', 42)")
    one.type("clear\r")
    one.read("cleared")
    one.type("continue\r")  # nothing is left to stop at: it is over
    assert one.wait() == 0 and one.cooked
    again = sit(launcher, "1", "pdb")
    again.read("(Pdb) ")
    again.type("break work\r")
    again.read("Breakpoint")
    os.kill(again.pid, signal.SIGKILL)  # who vanishes leaves the rank running
    assert processes.alive(rank)
    until_it_goes_on(rank)
    third = sit(launcher, "1", "pdb")
    third.read("(Pdb) ")
    third.type("quit\r")
    assert third.wait() == 0
    until_it_goes_on(rank)


def test_others_who_knock_keep_nobody_out(yods: PrivateMesh, begin: Begin, sit: Sit) -> None:
    if os.geteuid():
        pytest.skip("needs another user")
    launcher = begin("-sz", "2", sys.executable, "-c", LETS_IN.format(call="debug_on_request"))
    rank = pid_of(yods, launcher, 1)
    wait_until(lambda: lets_in(rank), "it lets pdb in")
    knock = f"""
import os, socket
os.setuid(65534)
for _ in range(1000):
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(2)
    sock.connect_ex("\\0redmesh-pdb-{rank}")
    sock.close()
"""
    subprocess.run([sys.executable, "-P", "-c", knock], check=True, timeout=PATIENCE_S)
    assert processes.alive(rank)
    one = sit(launcher, "1", "pdb")
    one.read("(Pdb) ")
    one.type("quit\r")
    assert one.wait() == 0
    until_it_goes_on(rank)


def until_it_goes_on(pid: int) -> None:
    """Wait until a program that sleeps again and again does so."""

    def switches() -> str:
        return next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "voluntary" in line)

    before = switches()
    wait_until(lambda: switches() != before, "it goes on")


def test_a_program_that_waits_for_pdb(yods: PrivateMesh, begin: Begin, sit: Sit) -> None:
    launcher = begin("-sz", "2", sys.executable, "-c", LETS_IN.format(call="debug_here"))
    rank = pid_of(yods, launcher, 1)
    wait_until(lambda: lets_in(rank), "it lets pdb in")
    one = sit(launcher, "1", "pdb")
    one.read("(Pdb) ")
    one.type("next\r")
    one.read("(Pdb) ")
    one.type("next\r")
    one.read("(Pdb) ")
    one.type("p 'step', step\r")
    one.read("('step', 0)")
    one.type("\x04")
    assert one.wait() == 0
    assert processes.alive(rank)


@needs_gdb
def test_a_killed_rank_ends_its_debugger_and_the_launch(yods: PrivateMesh, begin: Begin, places: str, sit: Sit) -> None:
    launcher = begin("-kill", "-sz", "2", places)
    one = sit(launcher, "1")
    one.read("(gdb) ")
    os.kill(pid_of(yods, launcher, 1), signal.SIGKILL)
    one.read("has been killed")
    assert one.wait() == 125 and one.cooked
    wait_until(lambda: not (yods.run_dir / f"yod-{launcher}.sock").exists(), "the launch is over")


def test_py_spy_travels_to_a_node_that_lacks_it(yods: PrivateMesh, begin: Begin, tmp_path: Path) -> None:
    launcher = begin("--fanout", "2", "-sz", "8", sys.executable, "-c", "import time; time.sleep(600)")
    brought = tmp_path / "brought-tool"
    brought.write_text("#!/bin/sh\necho brought for $REDMESH_PID as $0\n")  # any file travels, whatever its name
    brought.chmod(0o644)  # nodes cannot run it where it stands
    begin_it = {"op": "debug", "rank": 7, "command": ["py-spy"], "rows": 24, "columns": 80}
    with Client(str(yods.run_dir / f"yod-{launcher}.sock"), "observer", 30) as client:
        client.tell({**begin_it, "tools": {"py-spy": str(brought)}})
        said = ""
        while "debug_over" not in said:
            told = client.receive()
            said += str(told.get("data", "")) + str(told["event"]) + str(told.get("message", ""))
    if not shutil.which("py-spy", path="/usr/bin:/bin:/usr/local/bin"):
        assert f"brought for {pid_of(yods, launcher, 7)} as /dev/shm/redmesh-" in said, said

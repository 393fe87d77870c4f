"""The console over a real mesh: nodes drained and put back, launches killed, what happened recorded and replayed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mesh import MakeMesh, PrivateMesh
from tests.support.tmux import Tmux
from tests.support.waiting import wait_until


@pytest.fixture
def console(mesh: MakeMesh) -> Iterator[tuple[PrivateMesh, Tmux]]:
    private = mesh(processors=8, nodes=4)
    tmux = Tmux(private, 110, 32)
    yield private, tmux
    tmux.close()


def test_nodes_are_drained_and_put_back_and_launches_killed(console: tuple[PrivateMesh, Tmux]) -> None:
    mesh, tmux = console
    launcher = mesh.run("yod", "--detach", "-sz", "3", "sleep", "600", check=True).stdout.strip()
    tmux.until("4 nodes, 8 processors", "busy 3", "free 5")

    tmux.press("Enter")
    tmux.until("node n0", "load", "memory")  # its PCT was asked
    tmux.press("Escape")  # by itself: with what follows at once it would be alt and that
    tmux.until("4 nodes, 8 processors")
    tmux.press("e")
    tmux.type("n[2-3] & free")
    tmux.until("4 processors on 2 nodes selected")
    tmux.press("Enter")
    tmux.press("D")
    tmux.until("why?")
    tmux.type("bad fan")
    tmux.press("Enter")
    tmux.until("Drain n[2-3]?", "mesh drain 'n[2-3]' --reason 'bad fan'", "Cancel")
    tmux.press("Enter")  # Cancel
    tmux.until("4 processors on 2 nodes selected", "free 5")
    tmux.press("D")
    tmux.until("why?")
    tmux.type("bad fan")
    tmux.press("Enter")
    tmux.until("Drain n[2-3]?")
    tmux.press("y")
    tmux.until("drained 4", "free 1")
    tmux.press("3")
    tmux.until("bad fan")  # everybody is shown why
    tmux.press("m")
    tmux.press("R")
    tmux.until("Resume n[2-3]?")
    tmux.press("y")
    tmux.until("free 5")

    tmux.press("Escape")
    tmux.until("4 nodes, 8 processors")
    tmux.press("g", "o", "K")
    tmux.until(f"Kill launcher {launcher}", "sleep 600", "pingd -kill -list 0..2")
    tmux.press("y")
    tmux.until("free 8", "nothing runs")
    tmux.press("4")
    tmux.until("events", "drain", "n3")
    tmux.press("3")
    tmux.until("nodes (5)", "n2", "up")
    tmux.press("q")
    tmux.until("ended with 0")


def test_the_console_outlives_database_and_cpa(console: tuple[PrivateMesh, Tmux]) -> None:
    mesh, tmux = console
    tmux.until("4 nodes, 8 processors")
    mesh.kill("cpa-0")
    mesh.run("yod", "--detach", "-sz", "2", "sleep", "600", check=True)  # waits for the CPA's successor
    tmux.until("busy 2")
    path = Path(mesh.database.removeprefix("sqlite://"))
    away = path.with_name("away.db")
    path.rename(away)
    try:
        tmux.until("last read")
        tmux.resize(80, 24)
        tmux.press("j", "l")
        tmux.until("last read", "n0")
    finally:
        away.rename(path)
    tmux.until("of 8 free")
    mesh.down()
    assert "Traceback" not in tmux.screen()
    tmux.press("q")
    tmux.until("ended with 0")


def test_what_happened_is_recorded_and_replayed(mesh: MakeMesh) -> None:
    private = mesh(processors=4, nodes=2)
    tape = private.work / "tape.jsonl"
    recorder = private.start("mesh", "record", str(tape), "--every", "0.05")
    wait_until(lambda: tape.exists() and tape.stat().st_size > 100, "the first reading")
    private.run("yod", "-sz", "3", "sleep", "0.5", check=True)
    wait_until(lambda: b'"ended"' in tape.read_bytes(), "the launch's end in the recording")
    recorder.terminate()
    assert recorder.wait() == 0
    tmux = Tmux(private, 110, 32, f"mesh console --replay {tape} --speed 0.25")
    try:
        tmux.until("▸", "%", "nothing runs")
        tmux.press("p")
        tmux.until("❚❚")
        tmux.press("@")
        tmux.until("12:30:00")
        tmux.type("100%")
        tmux.press("Enter")
        tmux.until("100 %", "free 4")
        tmux.press("1", "e")
        tmux.until("sleep 0.5", "ended")
        tmux.press("m", "D", "K")  # nothing happens
        tmux.until("free 4")
        tmux.press("q")
        tmux.until("ended with 0")
    finally:
        tmux.close()


#: Twelve compute processors, and as many of service nodes; the first nodes have the numbers that n0 and n1 had.
OTHER_MACHINE = """[topology]
kind = "mesh"
rows = 1
columns = 2
cages = 1
boards = 3
service_columns = [0]
"""


def test_the_machine_is_exchanged_under_a_running_console(mesh: MakeMesh) -> None:
    private = mesh(processors=8, nodes=4)
    (private.work / "machine.toml").write_text(OTHER_MACHINE)
    private.run("yod", "--detach", "-sz", "8", "sleep", "600", check=True)
    tmux = Tmux(private, 120, 44)
    try:
        tmux.until("busy 8", "n0:0", "load", "rank:pid", "●")
        tmux.press("space")
        tmux.until("1 processor on 1 node selected")
        tmux.press("Tab", "Home")
        tmux.until("launcher 1")
        private.down()
        wait_until(lambda: "nothing is up" in tmux.screen().partition("\n")[0], tmux.screen, step_s=0.1)
        screen = tmux.until("n0, down for", "nothing is up; 6 says what to do")
        assert "rank:pid" not in screen and "load " not in screen and "●" not in screen
        private.run("mesh", "up", "--cpas", "1", "--simulate", "machine.toml", check=True)
        screen = tmux.until("c1-0c0s0n0:0", "up for", "12 of 12 free", "●")
        assert "rank:pid" not in screen and "load " not in screen and "selected" not in screen
        assert "n0 is up" not in screen.partition("c1-0c0s0n0:0")[2].partition("activity")[0]
        tmux.press("4")
        screen = tmux.until("events (", "n0 is up", "the mesh was taken down")
        assert not [line for line in screen.splitlines() if "c1-" in line and " n0 is up" in line]
        tmux.press("1", "e")
        tmux.until("sleep 600", "processors 0..7")
        tmux.press("m", "q")
        tmux.until("ended with 0")
    finally:
        tmux.close()

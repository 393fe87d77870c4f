"""The console as a person uses it: keys into a real terminal, over a real mesh with real launches."""

import os
import signal
import sqlite3
from collections.abc import Iterator

import pytest

from agents.linux import processes
from tests.support.mesh import MakeMesh, PrivateMesh
from tests.support.tmux import Tmux
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.yods import one_mesh, yods

__all__ = ["one_mesh", "yods"]

PROGRAM = """
import os, signal, sys, time
rank = int(os.environ["YOD_RANK"])
signal.signal(signal.SIGUSR1, lambda *_: print(f"rank {rank} got USR1", flush=True))
print(f"rank {rank} begins", flush=True)
while True:  # until the console, or the end of its mesh, ends it: a busy machine takes minutes for a test
    time.sleep(0.05)
"""


@pytest.fixture
def console(yods: PrivateMesh) -> Iterator[tuple[PrivateMesh, Tmux]]:
    """A console on the mesh of this module, as on its first start."""
    (yods.work / "program.py").write_text(PROGRAM)
    for left in (yods.state / "console-session.json", *yods.state.glob("console-crash-*.txt")):
        left.unlink(missing_ok=True)
    tmux = Tmux(yods)
    yield yods, tmux
    tmux.close()


@pytest.fixture
def own_console(mesh: MakeMesh) -> Iterator[tuple[PrivateMesh, Tmux]]:
    """A console on a mesh whose daemons may be killed."""
    private = mesh(processors=8, nodes=2)
    (private.work / "program.py").write_text(PROGRAM)
    tmux = Tmux(private)
    yield private, tmux
    tmux.close()


def test_from_the_map_to_the_completion_table(console: tuple[PrivateMesh, Tmux]) -> None:
    _, tmux = console
    tmux.until("4 nodes, 8 processors", "free 8", "nothing runs")
    tmux.press("n")
    tmux.until("new launch")
    tmux.type("python3 program.py")
    tmux.press("Tab")
    tmux.type("6")
    tmux.until("yod -sz 6 python3 program.py", "8 of 8 processors free")
    tmux.press("Enter")
    tmux.until("running 6", "rank 5 begins", "rank 0 begins", "2 of 8 free")

    tmux.press("u")
    tmux.until("A program without a handler for SIGUSR1 ends by it.")
    tmux.press("y")
    tmux.until(*(f"rank {rank} got USR1" for rank in range(6)), "SIGUSR1 sent to all ranks")

    tmux.press("m")
    tmux.until("busy 6", "free 2", "launchers (1)", "python3 pro")
    tmux.resize(80, 24)
    tmux.until("busy 6", "reserved 0", "launchers (1)", "q Quit")

    tmux.press(">")
    tmux.until("running 6")
    tmux.press("t")
    tmux.until("SIGTERM to all 6 ranks", "Cancel")
    tmux.press("Enter")
    tmux.until("running 6", "t TERM")
    tmux.press("t")
    tmux.until("SIGTERM to all 6 ranks")
    tmux.press("y")
    tmux.until("completion", "SIGTERM (by yod)", "rank 0-5", "n0-n2")
    tmux.until("8 of 8 free")
    tmux.press("q")
    tmux.until("ended with 0")
    assert tmux.modes == USABLE


#: A terminal as a program should leave it.
USABLE = "alternate=0 cursor=1 wrap=1 mouse=0 echo=1 lines=1 signals=1"


@pytest.mark.parametrize("fault", ["row", signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_crash_leaves_the_terminal_usable_and_says_where_its_report_is(
    console: tuple[PrivateMesh, Tmux], fault: str | signal.Signals
) -> None:
    mesh, tmux = console
    launcher = mesh.run("yod", "--detach", "-sz", "2", "python3", "program.py", check=True).stdout.strip()
    try:
        tmux.until("launchers (1)", "python3 pro")
        crash(mesh, tmux, launcher, fault)
    finally:
        damage(mesh, launcher, "created_at")
        mesh.run("yod", "-signal", "KILL", launcher, check=True)


def crash(mesh: PrivateMesh, tmux: Tmux, launcher: str, fault: str | signal.Signals) -> None:
    """Crash the console, and check what it leaves."""
    assert "alternate=1" in tmux.modes and "echo=0" in tmux.modes
    (console_pid,) = processes.children(tmux.pid)
    # the guard is forked before anything else; the console runs other commands for a moment
    guard = min(processes.children(console_pid), key=processes.start_time)
    if isinstance(fault, signal.Signals):
        os.kill(console_pid, fault)
    else:  # a row that no daemon writes: times that are none
        damage(mesh, launcher, "'noon'")
    # after a signal a shell may say so before the guard has left the terminal's second screen, and its words go with it
    ended = [] if isinstance(fault, signal.Signals) else ["ended with 1"]
    screen = tmux.until(*ended, "mesh console: ", "console-crash-")
    assert "Traceback" not in screen and ".py" not in screen
    assert screen.count("mesh console: ") == 1, "one line"
    assert tmux.modes == USABLE
    (report,) = mesh.state.glob("console-crash-*.txt")
    text = report.read_text()
    report_mode = report.stat().st_mode & 0o777
    report.unlink()
    assert report_mode == 0o600 and "Textual " in text and "Python " in text
    expected = {"row": "TypeError", signal.SIGSEGV: "Segmentation fault", signal.SIGABRT: "Aborted"}
    assert expected.get(fault, "killed") in text
    wait_until(lambda: not processes.state(guard), "the guard has gone")


def damage(mesh: PrivateMesh, launcher: str, started_at: str) -> None:
    """Write when a launcher has started, as text that is no time, or as it was."""
    with sqlite3.connect(mesh.state / "mesh.db", timeout=PATIENCE_S) as database:
        database.execute("UPDATE mesh SET counter = counter + 1")
        database.execute(
            f"UPDATE launcher SET started_at = {started_at}, changed = (SELECT counter FROM mesh) WHERE id = ?",
            (launcher,),
        )
    database.close()


def test_quitting_leaves_launches_running_and_they_can_be_attached_to_again(
    console: tuple[PrivateMesh, Tmux],
) -> None:
    mesh, tmux = console
    launcher = mesh.run("yod", "--detach", "-sz", "2", "python3", "program.py", check=True).stdout.strip()
    tmux.until("launchers (1)")
    tmux.press("a")
    tmux.until("running 2", "rank 1 begins")
    tmux.press("q")
    tmux.until("ended with 0")
    tmux.close()
    assert (mesh.run_dir / f"yod-{launcher}.sock").exists()

    again = Tmux(mesh)
    try:
        again.until("launchers (1)")
        again.press("a")
        again.until("running 2", "rank 0 begins", "rank 1 begins")
        again.press("K")
        again.until("SIGKILL to all 2 ranks", "nor clean up")
        again.press("y")
        again.until("completion", "SIGKILL")
        again.press("q")
        again.until("ended with 0")
    finally:
        again.close()


def test_a_console_that_was_stopped_is_painted_whole_again_and_leaves_the_terminal_usable(
    console: tuple[PrivateMesh, Tmux],
) -> None:
    mesh, _ = console
    tmux = Tmux(mesh, command="exec env PS1=ready: bash --norc --noprofile -i")
    try:
        tmux.until("ready:")
        tmux.type("mesh console\n")
        whole = ("Redmesh", "nothing runs", "free 8", "q Quit", "processor 0")
        tmux.until(*whole)
        tmux.press("C-z")
        tmux.until("Stopped", "ready:")
        tmux.type("fg\n")
        tmux.until(*whole)
        [pid] = processes.children(tmux.pid)
        os.kill(pid, signal.SIGSTOP)  # of which the console learns at its end alone
        tmux.until("Stopped", "ready:")
        tmux.type("clear\n")
        wait_until(lambda: "Redmesh" not in tmux.screen(), "an empty screen")
        tmux.type("fg\n")
        tmux.until(*whole)
        tmux.press("q")
        wait_until(lambda: not processes.children(tmux.pid), "the console's end")
        # the shell edits its line itself: echo and lines are off while it waits
        tmux.type("stty -a | tr ' ' '\\n' | grep -x -e '-*echo;*' -e '-*icanon;*' -e '-*isig;*' | tr '\\n' ' '\n")
        tmux.until("isig icanon", " echo")
        assert "-icanon" not in tmux.screen() and "alternate=0 cursor=1 wrap=1 mouse=0" in tmux.modes
    finally:
        tmux.close()


def test_a_program_that_does_not_exist_is_told_in_the_form(console: tuple[PrivateMesh, Tmux]) -> None:
    _, tmux = console
    tmux.until("nothing runs")
    tmux.press("-H", "80")  # no character: a terminal in another encoding; it is ignored like an unknown key
    tmux.type("\x1b[1;1:3A")  # a key's release as the kitty protocol reports it
    tmux.press("n")
    tmux.until("new launch")
    tmux.type("/no/such/program")
    tmux.press("Enter")
    tmux.until("/no/such/program", "o such file", "new launch")
    tmux.press("Escape")
    tmux.until("nothing runs")
    tmux.press("q")
    tmux.until("ended with 0")


def test_daemons_may_go_while_it_watches(own_console: tuple[PrivateMesh, Tmux]) -> None:
    mesh, tmux = own_console
    mesh.run("yod", "--detach", "-sz", "6", "python3", "program.py", check=True)
    tmux.until("launchers (1)")
    tmux.press("a")
    tmux.until("running 6", "rank 5 begins")
    for daemon in ("cpa-0", "n1"):
        mesh.kill(daemon)
    tmux.press("u")
    tmux.until("A program without a handler for SIGUSR1 ends by it.")
    tmux.press("y")
    tmux.until(*(f"rank {rank} got USR1" for rank in range(6)), "running 6")
    for pid, line in mesh.processes().items():
        if line.startswith("redmesh-launch n1 "):
            os.kill(pid, signal.SIGKILL)
    tmux.until("lost 2", "running 4")
    tmux.press("K")
    tmux.until("SIGKILL to all 6 ranks")
    tmux.press("y")
    tmux.until("completion", "lost with its node", "rank 4-5", "8 of 8 free")
    tmux.press("q")
    tmux.until("ended with 0")

"""yod and signals: ^C once, twice and thrice, being told to end, forwarding, stopping, the terminal."""

import os
import pty
import signal
import sqlite3
import subprocess
import termios
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.mesh import PrivateMesh
from tests.support.shared_mesh import borrowed_mesh as one_mesh
from tests.support.waiting import PATIENCE_S, freeze, wait_until
from tests.support.yods import ranks_left, yods

__all__ = ["one_mesh", "yods"]

#: Says that it is there, then waits; a signal is told in a file of its own.
DEAF = "trap 'touch term$YOD_RANK' TERM; touch up$YOD_RANK; while :; do sleep 0.1; done"
WAITS = "touch up$YOD_RANK; exec sleep 60"


@pytest.fixture(autouse=True)
def clean_work(one_mesh: PrivateMesh) -> None:
    for path in one_mesh.work.iterdir():
        path.unlink()


def start(yods: PrivateMesh, script: str, *options: str, size: int = 2) -> "subprocess.Popen[str]":
    process = yods.start(
        "yod", "-sz", str(size), *options, "sh", "-c", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: all((yods.work / f"up{rank}").exists() for rank in range(size)), "every rank runs")
    return process


def end(process: "subprocess.Popen[str]") -> tuple[int, str]:
    _, said = process.communicate()
    return process.returncode, said


def interrupt(process: "subprocess.Popen[str]") -> None:
    """Send ^C and read the line that answers it: two that come at once would be one."""
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    assert "interrupted" in process.stderr.readline()


def test_an_interrupt_sends_sigterm_to_every_rank(yods: PrivateMesh) -> None:
    process = start(yods, WAITS)
    process.send_signal(signal.SIGINT)
    status, said = end(process)
    assert status == 130
    assert "SIGTERM went to every rank" in said and "rank 0-1 on n0: SIGTERM (Terminated) from yod" in said


def test_interrupted_twice_kills_whoever_does_not_listen(yods: PrivateMesh) -> None:
    process = start(yods, DEAF)
    process.send_signal(signal.SIGINT)
    wait_until(lambda: (yods.work / "term0").exists() and (yods.work / "term1").exists(), "SIGTERM has arrived")
    assert process.poll() is None, "only the second kills"
    process.send_signal(signal.SIGINT)
    status, said = end(process)
    assert status == 130
    assert "SIGKILL (Killed) from yod" in said


def test_interrupted_thrice_leaves_at_once(yods: PrivateMesh) -> None:
    process = start(yods, DEAF)
    for daemon in ("n0",):
        freeze(yods.pid_of(daemon))
    children = launch_children(yods)
    try:
        for pid in children:  # whoever would end the ranks stands still
            freeze(pid)
        interrupt(process)
        interrupt(process)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        status, _ = end(process)
        assert status == 130
    finally:
        for pid in [*children, yods.pid_of("n0")]:
            os.kill(pid, signal.SIGCONT)
    # the RCA and the CPA clean up behind it: the fixture sees it


def launch_children(yods: PrivateMesh) -> list[int]:
    ranks = ranks_left(yods)
    parents = {int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in ranks}
    return [pid for pid in parents if pid not in ranks]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_told_to_end(yods: PrivateMesh, number: int) -> None:
    process = start(yods, WAITS)
    process.send_signal(number)
    assert end(process)[0] == 128 + number


def test_told_to_end_and_the_ranks_do_not_listen(yods: PrivateMesh) -> None:
    process = start(yods, DEAF)
    process.terminate()
    began = time.monotonic()
    status, said = end(process)
    assert status == 143
    assert time.monotonic() - began > 4.5, "SIGKILL follows after the grace"
    assert (yods.work / "term0").exists() and "SIGKILL" in said


def test_a_rank_that_ends_well_after_term_counts_as_it_says(yods: PrivateMesh) -> None:
    script = "trap 'exit 0' TERM; touch up$YOD_RANK; while :; do sleep 0.1; done"
    process = start(yods, script)
    process.send_signal(signal.SIGINT)
    assert end(process)[0] == 0


def test_nohup_is_respected(yods: PrivateMesh) -> None:
    process = yods.start("sh", "-c", f"trap '' HUP; exec yod -sz 2 sh -c '{WAITS}'", stderr=subprocess.PIPE, text=True)
    wait_until(lambda: (yods.work / "up1").exists(), "it runs")
    process.send_signal(signal.SIGHUP)
    process.terminate()
    assert end(process)[0] == 143, "of two signals the one with the lower number comes first"


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_user_signals_are_forwarded(yods: PrivateMesh, number: int) -> None:
    script = f"trap 'touch got$YOD_RANK; exit 0' {int(number)}; touch up$YOD_RANK; while :; do sleep 0.1; done"
    process = start(yods, script)
    process.send_signal(number)
    assert end(process)[0] == 0
    assert {path.name for path in yods.work.iterdir()} == {"up0", "up1", "got0", "got1"}


def test_a_forwarded_signal_that_kills_counts(yods: PrivateMesh) -> None:
    process = start(yods, WAITS)
    process.send_signal(signal.SIGUSR1)
    assert end(process)[0] == 128 + signal.SIGUSR1


@pytest.mark.parametrize("option", ["-kill", "-batch"])
def test_a_bad_exit_ends_the_job(yods: PrivateMesh, option: str) -> None:
    others = "until [ -e up0 ] && [ -e up2 ] && [ -e up3 ]; do sleep 0.05; done"
    script = f"touch up$YOD_RANK; [ $YOD_RANK != 1 ] || {{ {others}; exit 5; }}; exec sleep 60"
    process = start(yods, script, option, size=4)
    status, said = end(process)
    assert status == 5
    assert ("ending the others" in said) is (option == "-kill"), "-batch has no status lines"
    assert "rank 1 on n0: exit 5" in said


def test_without_kill_the_others_go_on(yods: PrivateMesh) -> None:
    script = "touch up$YOD_RANK; [ $YOD_RANK = 1 ] && exit 5; sleep 0.5; echo done$YOD_RANK"
    process = start(yods, script, size=3)
    out, _ = process.communicate()
    assert (process.returncode, sorted(out.split())) == (5, ["done0", "done2"])


def test_a_whole_tree_of_processes_is_killed(yods: PrivateMesh) -> None:
    script = "setsid sleep 300 & (trap '' TERM; sleep 301) & touch up$YOD_RANK; wait"
    process = start(yods, script)
    interrupt(process)
    process.send_signal(signal.SIGINT)
    assert end(process)[0] == 130


def test_stopping_yod_for_longer_than_a_beat_is_no_death(yods: PrivateMesh) -> None:
    process = start(yods, "touch up$YOD_RANK; sleep 3; exit 4")
    freeze(process.pid)
    time.sleep(2.5)
    process.send_signal(signal.SIGCONT)
    assert end(process)[0] == 4


def in_line(yods: PrivateMesh) -> int:
    """How many requests wait."""
    with closing(sqlite3.connect(f"file:{yods.state}/mesh.db?mode=ro", uri=True)) as database:
        return int(database.execute("SELECT COUNT(*) FROM waiting").fetchone()[0])


def test_interrupt_while_it_waits_in_the_queue(yods: PrivateMesh) -> None:
    holder = start(yods, WAITS, size=8)
    waiting = yods.start("yod", "-sz", "1", "-wait-for-nodes", "3600", "true", stderr=subprocess.PIPE, text=True)
    wait_until(lambda: in_line(yods) == 1, "it waits")
    waiting.send_signal(signal.SIGINT)
    assert end(waiting)[0] == 130
    wait_until(lambda: in_line(yods) == 0, "it does not wait any more")
    served = yods.start("yod", "-sz", "1", "-wait-for-nodes", "3600", "true", stderr=subprocess.PIPE, text=True)
    wait_until(lambda: in_line(yods) == 1, "the next one waits")
    holder.terminate()
    assert end(holder)[0] == 143
    assert end(served)[0] == 0, "the one who waited is served"


# A terminal


def on_terminal(yods: PrivateMesh, *command: str) -> tuple[int, int]:
    """pid and master of a session whose controlling terminal runs ``command``."""
    pid, master = pty.fork()
    if pid == 0:
        try:
            os.chdir(yods.work)
            os.execvpe(command[0], command, {**yods.env})
        finally:
            os._exit(127)
    return pid, master


def read_until(master: int, wanted: bytes) -> bytes:
    os.set_blocking(master, False)
    got = b""
    deadline = time.monotonic() + PATIENCE_S
    while wanted not in got:
        assert time.monotonic() < deadline, got
        try:
            got += os.read(master, 65536)
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            break
    return got


def test_control_c_on_a_terminal(yods: PrivateMesh) -> None:
    pid, master = on_terminal(yods, "yod", "-sz", "2", "sh", "-c", "echo here$YOD_RANK; exec sleep 60")
    got = read_until(master, b"here1")
    if b"here0" not in got:
        read_until(master, b"here0")
    os.write(master, b"\x03")
    read_until(master, b"from yod")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    os.close(master)


def test_typed_input_and_end_of_file(yods: PrivateMesh) -> None:
    pid, master = on_terminal(yods, "yod", "sed", "-u", "s/^/got /")
    os.write(master, b"abc\n")
    read_until(master, b"got abc")
    os.write(master, b"\x04")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(master)


def test_in_the_background_of_a_terminal_it_is_not_stopped(yods: PrivateMesh) -> None:
    script = "set -m; yod -sz 2 sh -c 'sleep 0.3; echo bg$YOD_RANK' & wait $!; echo status $?"
    pid, master = on_terminal(yods, "bash", "-c", script)
    os.write(master, b"typed for the shell\n")
    got = read_until(master, b"status 0")
    assert b"bg0" in got and b"bg1" in got
    os.waitpid(pid, 0)
    os.close(master)


def test_the_terminal_stays_as_it_was(yods: PrivateMesh) -> None:
    script = "yod -sz 2 cat; python3 -c 'import os; print(\"blocking\", [os.get_blocking(n) for n in (0, 1, 2)])'"
    pid, master = on_terminal(yods, "bash", "-c", script)
    before = termios.tcgetattr(master)
    os.write(master, b"\x04")
    assert b"blocking [True, True, True]" in read_until(master, b"]")
    assert termios.tcgetattr(master) == before
    os.waitpid(pid, 0)
    os.close(master)

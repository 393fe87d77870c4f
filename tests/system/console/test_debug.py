"""The console in a terminal that is lent to a debugger, taken back, and lost."""

import json
import shutil

import pytest

from agents.linux import processes
from tests.support.mesh import MakeMesh, PrivateMesh
from tests.support.tmux import Tmux
from tests.support.waiting import wait_until


def _console(private: PrivateMesh) -> int:
    # what the console forks (the process that puts its terminal back, programs not yet executed) has its command line
    found = [pid for pid, line in private.processes().items() if line.endswith("mesh console")]
    [console] = [pid for pid in found if processes.parent(pid) not in found]
    return console


@pytest.mark.skipif(shutil.which("gdb") is None, reason="there is no gdb here")
def test_from_the_stacks_to_a_debugger_and_back_and_a_terminal_that_goes(mesh: MakeMesh) -> None:
    private = mesh(processors=4, nodes=2)
    launcher = private.run("yod", "--detach", "-sz", "2", "sleep", "200", check=True).stdout.strip()
    tmux = Tmux(private)
    try:
        tmux.until("launchers (1)")
        tmux.press("a")
        tmux.until("running 2")
        tmux.press("s")
        tmux.until("2 ranks, taken", "clock_nanosleep")
        tmux.press("d")
        tmux.until(f"mesh debug {launcher} 0 …", "C frames")
        tmux.press("Enter")
        tmux.until("(gdb)")
        tmux.press("C-c")  # the debugger's, not the console's
        tmux.until("Quit")
        tmux.type("detach")
        tmux.press("Enter")
        tmux.until("detached")
        tmux.type("quit")
        tmux.press("Enter")
        tmux.until("2 ranks, taken", "Difference")
        tmux.press("s")
        tmux.until("clock_nanosleep")
        tmux.press("Escape")
        tmux.until("running 2", "t TERM")
        console = _console(private)
    finally:
        tmux.close()  # the terminal is gone: SIGHUP
    wait_until(lambda: not processes.alive(console), "the console goes with its terminal")
    session = json.loads((private.state / "console-session.json").read_text())
    assert session["launchers"] == [int(launcher)]
    again = Tmux(private)
    try:
        again.until("launchers (1)", f"▸ {launcher} sleep")
        again.press(">")
        again.until("running 2")
        again.press("q")
        again.until("ended with 0")
    finally:
        again.close()
    private.run("yod", "-signal", "KILL", launcher, check=True)

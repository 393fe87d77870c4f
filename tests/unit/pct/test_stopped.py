"""Ranks that somebody has stopped, of which the kernel tells their launch child nothing (``--parent=rank``)."""

import os
import signal
import subprocess
from typing import Any

from agents.link.loop import Loop
from agents.linux import processes
from agents.pct.ranks import stopped
from agents.pct.ranks.ranks import Rank
from tests.support.waiting import wait_until


def test_a_stopped_child_of_another_process_is_noticed_by_looking(monkeypatch: Any) -> None:
    monkeypatch.setattr(stopped, "TELL_S", 0.02)
    told: list[list[int]] = []
    loop = Loop()
    ranks = stopped.StoppedRanks(loop, lambda _text, report: told.append(report["pids"]))
    with subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!; wait"], stdout=-1, process_group=0) as shell:
        assert shell.stdout is not None
        try:
            pid = int(shell.stdout.readline())
            rank = Rank(0, pid, b"sleep")
            ranks.look([rank])
            loop.run_once(0.1)
            assert not told
            os.kill(pid, signal.SIGSTOP)
            wait_until(lambda: processes.state(pid) == "T", "it is stopped")
            ranks.look([rank])
            wait_until(lambda: loop.run_once(0.01) or told == [[pid]], "it is told")
            os.kill(pid, signal.SIGCONT)
            wait_until(lambda: processes.state(pid) != "T", "it continues")
            ranks.look([rank])
            wait_until(lambda: loop.run_once(0.01) or told == [[pid], []], "its continuation is told")
        finally:
            os.killpg(shell.pid, signal.SIGKILL)

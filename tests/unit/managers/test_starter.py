"""The process that stays as the parent of a host's ranks (agents/pct/ranks/starter.py)."""

import os
import signal
import subprocess
import sys

from agents.linux import processes
from tests.support.waiting import wait_until

_STAY = """
import subprocess, sys
from agents.pct.ranks import starter
ranks = [subprocess.Popen(["sh", "-c", text], start_new_session=True) for text in sys.argv[1:]]
print(*(rank.pid for rank in ranks), flush=True)
starter.stay([rank.pid for rank in ranks])
"""


def test_a_rank_is_reaped_when_it_exits_and_the_others_still_get_signals() -> None:
    words = [sys.executable, "-c", _STAY, "trap 'exit 4' TERM; while :; do sleep 0.05; done", "exit 3", "kill -9 $$"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        slow, *others = map(int, parent.stdout.readline().split())
        try:
            for pid in others:  # a zombie is still a process
                wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "the rank is reaped")  # noqa: B023
            assert processes.alive(slow) and parent.poll() is None
            parent.terminate()
            assert parent.wait(20) == 128 + signal.SIGKILL, "the highest status"
        finally:
            parent.kill()
            if processes.alive(slow):
                os.killpg(slow, signal.SIGKILL)

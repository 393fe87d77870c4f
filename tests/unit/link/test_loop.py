"""The event loop: what is ready is read before a timer says that it never came."""

import os
import signal
import subprocess
import sys
import time

from agents.linux.processes import state
from tests.support.waiting import PATIENCE_S, freeze, wait_until

STOPPED = """
import os
from agents.link.loop import READ, Loop

loop, said = Loop(), []
loop.watch(0, READ, lambda _events: (said.append(os.read(0, 99).decode().strip()), loop.unwatch(0)))
loop.after(1.0, lambda: (said.append("nothing came"), loop.stop()))
print("waits", flush=True)
loop.run()
print(*said)
"""


def test_what_came_while_this_process_was_stopped_is_read_before_its_timers() -> None:
    command = [sys.executable, "-c", STOPPED]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    wait_until(lambda: state(process.pid) == "S", "it waits")
    freeze(process.pid)
    wait_until(lambda: state(process.pid) == "T", "it is stopped")
    stopped_at = time.monotonic()
    process.stdin.write("answer\n")
    process.stdin.flush()
    wait_until(lambda: time.monotonic() - stopped_at > 2.0, "its timer is due, and late")
    os.kill(process.pid, signal.SIGCONT)
    assert process.communicate(timeout=PATIENCE_S)[0] == "answer nothing came\n"

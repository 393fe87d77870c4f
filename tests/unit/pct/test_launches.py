"""What a PCT knows of its launch children: it reaps its own, and others reap those that it adopted."""

import subprocess
import sys
from pathlib import Path

#: A PCT, in a process of its own: it reaps all its children. Launch 1 is adopted; the other child has no launch yet.
PCT = """
import os, signal, socket, sys, time
from agents.link.journal import Journal
from agents.link.loop import Loop
from agents.linux import processes
from agents.pct.launch.paths import launch_socket
from agents.pct.node.launches import Hosted
from agents.pct.ranks.process_tracking import ProcessTracking

run, log = sys.argv[1], Journal("", "pct", node="n0")
ready, told = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(launch_socket(run, "n0", 1))
        listening.listen()
        os.write(told, b".")
        time.sleep(60)  # until it is killed
    os._exit(0)
os.wait()
os.read(ready, 1)
hosted = Hosted(Loop(), "m", "n0", run, log, ProcessTracking(run, "n0", log))
hosted.sweep_images = lambda: 0
hosted.adopt()
[adopted] = hosted.pids
own = os.fork()
if own == 0:
    time.sleep(60)  # until it is killed
hosted.add(own)
os.kill(adopted, signal.SIGKILL)
while processes.alive(adopted):
    time.sleep(0.001)  # until the kernel has ended it
os.kill(own, signal.SIGUSR1)
os.waitid(os.P_PID, own, os.WEXITED | os.WNOWAIT)
hosted.reap()
print(*(hosted.deaths.told(launcher)["message"] for launcher in (1, 2)), sep="\\n")
"""


def test_the_death_of_an_adopted_launch_child_explains_no_status(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PCT, str(tmp_path)], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["its launch child died", "its launch child died of SIGUSR1"], done.stderr

"""What a PCT knows of its launch children: it reaps its own, and others reap those that it adopted."""

import subprocess
import sys
from pathlib import Path

from agents.link.journal import Journal
from agents.link.loop import Loop
from agents.link.server import Server, Session
from agents.pct.launch.paths import launch_socket
from agents.pct.node.launches import Hosted, Kill
from agents.pct.ranks.process_tracking import ProcessTracking
from agents.wire.control import Message
from agents.wire.messages import PCT as REQUESTS
from tests.support.waiting import PATIENCE_S

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


def test_a_kill_that_the_launch_child_defers_is_answered_when_it_has_ended(tmp_path: Path) -> None:
    run, log, loop = str(tmp_path), Journal("", "pct", node="n0"), Loop()
    sessions: list[Session] = []
    replies: list[Message] = []

    def defer(session: Session, _op: str, message: Message) -> None:
        session.reply(message, {"clean": False, "killed": 0, "deferred": True})
        loop.after(0.1, lambda: sessions.append(session))

    child = Server(loop, launch_socket(run, "n0", 1), "child", REQUESTS, defer)
    hosted = Hosted(loop, "deferred-kill", "n0", run, log, ProcessTracking(run, "n0", log))
    Kill(loop, hosted, 1, replies.append, {})
    giving_up = loop.after(PATIENCE_S / 10, loop.stop)
    while not sessions and giving_up.callback is not None:
        loop.run_once(1.0)
    assert sessions and not replies, "the job has not ended"
    sessions[0].drop("over")
    child.close()
    while not replies and giving_up.callback is not None:
        loop.run_once(1.0)
    assert replies == [{"clean": True, "killed": 0}]
    loop.close()

"""The process that delivers post-backs for a CPA: what it has started dies with it."""

import os
import signal
import socket
import subprocess

from agents.linux import processes
from agents.wire.control import control
from agents.wire.messages import hello
from redmesh.start_command import start_command
from tests.support.waiting import freeze, wait_until


def test_a_delivery_under_way_ends_with_the_process_that_limits_its_time() -> None:
    ours, theirs = socket.socketpair()
    receiver = socket.create_server(("127.0.0.1", 0))
    words = start_command("deliver")
    with ours, theirs, receiver, subprocess.Popen(words, stdin=theirs.fileno()) as process:
        post_back = {"post_back": "x", "sequence": 1, "placed": []}
        origin = f"https://127.0.0.1:{receiver.getsockname()[1]}"
        ours.sendall(control(hello("cpa")))
        ours.sendall(control({"id": 1, "kind": "url", "origin": origin, "path": "/", "post_back": post_back}))
        with receiver.accept()[0]:
            (child,) = processes.children(process.pid)
            freeze(child)  # so that its own time limit does not end it
            began = processes.start_time(child)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            try:
                wait_until(lambda: not processes.alive(child, began), "the delivery has ended")
            finally:
                processes.send_signal(child, signal.SIGKILL, began)

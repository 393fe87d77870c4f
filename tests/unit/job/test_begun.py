"""The page on which a process of an Executor notes the calls that it has begun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from agents.yodio.yodbegun import Begun
from tests.support.waiting import wait_until


def test_what_has_begun_is_not_taken_back_and_what_was_taken_back_does_not_begin() -> None:
    fd, worker = Begun.create()
    process = Begun(fd)
    os.close(fd)
    assert (process.begin(), process.begin()) == (True, True)
    assert (worker.begun(), worker.take_back(5)) == (2, 2)
    assert worker.take_back(7) == 2, "the process is still in its second call"
    assert [process.begin() for _ in range(3)] == [False] * 3
    assert worker.take_back(9) == 2, "it passes over calls of the first two rounds"
    assert [process.begin() for _ in range(5)] == [False] * 4 + [True]
    assert worker.take_back(10) == 10 and process.begin(), "nothing was left to take back"


#: Begins a call for each byte that it reads, and prints which ones ran.
BEGINS = """
import sys
from agents.yodio.yodbegun import Begun

begun, source, ran = Begun(int(sys.argv[1])), sys.stdin.buffer, []
while count := len(source.read1(8192)):
    ran += [begun.begin() for _ in range(count)]
print("".join("01"[one] for one in ran))
"""


def test_each_call_is_begun_or_taken_back_but_never_both() -> None:
    """The process begins calls without a pause while the worker takes them back."""
    fd, worker = Begun.create()
    command = [sys.executable, "-c", BEGINS, str(fd)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[fd]) as process:
        assert process.stdin is not None and process.stdout is not None
        sent, expected = 0, ""
        for _ in range(40):
            before = sent
            sent += os.write(process.stdin.fileno(), bytes(30_000))
            wait_until(lambda before=before: worker.begun() > before, "the process has begun one more", step_s=0.0)
            expected = expected.ljust(worker.take_back(sent), "1").ljust(sent, "0")
        process.stdin.close()
        ran = process.stdout.read().decode().strip()
    os.close(fd)
    assert ran == expected and ran.count("1") >= 40


def test_a_process_that_waits_for_a_worker_ends_with_it() -> None:
    """The worker is killed while it takes calls back."""
    fd, page = Begun.create()
    program = "import sys; from agents.yodio.yodbegun import Begun; page = Begun(int(sys.argv[1])); print(flush=True)"
    program += "\ntry: page.begin()\nexcept EOFError: print('ended')"
    read, write = os.pipe()
    worker = os.fork()
    if not worker:
        try:
            page._words[4], page._words[1] = os.getpid(), 1
            process = subprocess.Popen([sys.executable, "-c", program, str(fd)], pass_fds=[fd], stdout=write)
            os.close(write)
            process.wait()
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as told:
        assert told.readline() == "\n"
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)
        assert told.read() == "ended\n"
    os.close(fd)

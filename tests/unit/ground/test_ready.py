"""Descriptors above 1023, which ``select.select`` refuses: a daemon has them while many users are connected."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest

from agents.linux.attempt import Attempt
from agents.linux.ready import ready
from agents.pct.multiuser.prolog_epilog import wait_for


@pytest.fixture
def many_are_open() -> Iterator[None]:
    """Every new descriptor of this process is above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip("this process may not have 1200 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    kept: list[int] = []
    try:
        while not kept or kept[-1] < 1024:
            kept.append(os.open("/dev/null", os.O_RDONLY))
        yield
    finally:
        for fd in kept:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_which_of_them_are_ready_is_told(many_are_open: None) -> None:
    reader, writer = os.pipe()
    other, closed = os.pipe()
    try:
        assert reader > 1023 and ready(reader, other, seconds=0) == set()
        os.write(writer, b"x")
        assert ready(reader, other, seconds=0) == ready(reader, other) == {reader}
        os.close(closed)
        assert ready(reader, other) == {reader, other}
    finally:
        for fd in (reader, writer, other):
            os.close(fd)


def test_a_guarded_command_and_a_prolog_are_waited_for(many_are_open: None) -> None:
    attempt = Attempt(["sh", "-c", "exit 3"], cwd="/", stderr=subprocess.PIPE)
    assert attempt.guard.stderr is not None
    with attempt.guard.stderr as told:
        assert (attempt.wait(), told.read()) == (3, b"")
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", "raise SystemExit(4)"], os.environ)
    assert os.waitstatus_to_exitcode(wait_for(pid, 600.0)) == 4

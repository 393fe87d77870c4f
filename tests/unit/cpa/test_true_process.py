"""Which process a CPA records for a request, and when it takes a process for gone."""

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from agents.cpa.logins.processes import HIDDEN, Process, is_known_to_be_gone, said_in, true_process
from agents.cpa.permissions import Denied
from agents.linux.processes import start_time
from agents.wire.address import Peer
from agents.wire.errors import AgentError
from tests.support.waiting import freeze, wait_until

UID = os.geteuid()
AFAR = frozenset(("redmesh://m/rca/login2",))


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def here(pid: int, uid: int = UID) -> Peer:
    return Peer(pid, uid, uid)


def running(process: subprocess.Popen[bytes]) -> Process:
    return Process(process.pid, start_time(process.pid))


@pytest.mark.parametrize("said", [Process(1, 0), Process(1, 7), Process(4711, 0), HIDDEN])
def test_a_user_is_the_peer_whatever_the_request_says(child: subprocess.Popen[bytes], said: Process) -> None:
    assert true_process(here(child.pid), said, trusted=False) == running(child)


def test_the_owner_may_name_another_process_that_runs_and_no_other(child: subprocess.Popen[bytes]) -> None:
    me = Process(os.getpid(), start_time(os.getpid()))
    for said in (running(child), Process(child.pid, 0)):
        assert true_process(here(me.pid), said, trusted=True) == running(child)
        assert true_process(here(me.pid), said, trusted=False) == me
    child.kill()
    child.wait()
    assert true_process(here(me.pid), Process(child.pid, 1), trusted=True) == me


def test_a_process_that_has_exited_or_is_another_users_now_gets_nothing(child: subprocess.Popen[bytes]) -> None:
    with pytest.raises(Denied, match=f"process {child.pid}, which made this connection, has exited"):
        true_process(here(child.pid, UID + 1), running(child), trusted=False)
    child.kill()
    wait_until(lambda: is_known_to_be_gone(Process(child.pid, 0)), "it is a zombie")
    with pytest.raises(Denied):
        true_process(here(child.pid), running(child), trusted=False)


def test_of_a_process_in_a_hidden_pid_namespace_nothing_is_known() -> None:
    assert true_process(here(0), Process(7, 7), trusted=False) == HIDDEN
    assert true_process(Peer(0, 1000, 1000, AFAR, 0), Process(7, 7), trusted=False) == HIDDEN
    assert not is_known_to_be_gone(HIDDEN)


def test_another_login_processors_rca_vouches_for_pid_and_start() -> None:
    said = Process(os.getpid(), 99)
    for trusted in (False, True):  # this host knows nothing of that one's processes
        assert true_process(Peer(12, UID, UID, AFAR, 34), said, trusted=trusted) == Process(12, 34)
        assert true_process(Peer(12, UID, UID, AFAR), said, trusted=trusted) == Process(12, 99), "an earlier version"
        with pytest.raises(Denied):
            true_process(Peer(12, UID, UID, AFAR, 0), said, trusted=trusted)


@pytest.mark.parametrize("said", [(0, 1), (-1, 1), (1 << 70, 1), (1, -1)])
def test_numbers_that_no_process_has_are_refused(said: tuple[int, int]) -> None:
    with pytest.raises(AgentError, match="are not a process's"):
        said_in({"pid": said[0], "pid_started": said[1]})


def test_only_what_has_certainly_exited_is_gone(child: subprocess.Popen[bytes]) -> None:
    me = running(child)
    assert not is_known_to_be_gone(me)
    assert is_known_to_be_gone(Process(me.pid, me.started + 1)), "another process has its pid"
    freeze(child.pid)
    assert not is_known_to_be_gone(me), "it is stopped"
    child.send_signal(signal.SIGKILL)
    wait_until(lambda: is_known_to_be_gone(me), "it is a zombie")
    child.wait()
    assert is_known_to_be_gone(me)

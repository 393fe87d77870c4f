"""CPAs without an RCA: launches whose process has exited end; those whose process runs, or is not known, do not."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.linux.processes import start_time
from agents.wire.control import Message
from db.allocation.allocate import allocate
from db.allocation.free import Machine
from tests.support.allocations import LOGIN, allocation, finish
from tests.support.daemons import Daemons, Make
from tests.support.stores import demand, first
from tests.support.waiting import Process, freeze, wait_until

GONE = "its process is gone"


@pytest.fixture
def daemons(make_daemons: Make, tmp_path: Path) -> Daemons:
    cleanup = tmp_path / "cleanup"
    cleanup.write_text("#!/bin/sh\n")
    cleanup.chmod(0o755)
    return make_daemons(8, 2, cleanup=str(cleanup), unwatched_s=0.5)


@pytest.fixture
def naps() -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Three processes that do nothing."""
    made = [Process([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(3)]
    yield made
    for process in made:
        process.kill()
        process.wait()


def of(process: "subprocess.Popen[bytes]", size: int = 2, **more: object) -> Message:
    return allocation(size, pid=process.pid, **more)


def kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


def ended(daemons: Daemons) -> dict[int, str]:
    """Why launchers have ended."""
    return dict(daemons.rows("SELECT id, reason FROM launcher WHERE ended_at IS NOT NULL"))  # type: ignore[arg-type]


def test_what_an_exited_process_leaves_is_freed_and_what_a_stopped_one_has_is_not(
    daemons: Daemons, naps: list["subprocess.Popen[bytes]"]
) -> None:
    daemons.begin()
    exits, stops, finishes = naps
    with daemons.client() as client:
        left, kept, done = (client.call(of(process))["launcher"] for process in naps)
        assert left and kept
        freeze(stops.pid)
        client.call(finish(client.call(of(finishes, 1))))
    kill(exits)
    kill(finishes)
    wait_until(lambda: set(ended(daemons)) >= {left, done}, "both have ended")
    assert ended(daemons)[left] == ended(daemons)[done] == GONE
    assert set(daemons.owners().values()) == {kept}
    events = [one["launcher"] for one in daemons.log("cpa-0") if one["event"] == "launcher_exited"]
    assert sorted(events) == [left, done], "the one that said its end is not looked for"


def test_a_cpa_that_starts_looks_at_every_launch_of_its_login_processor_once(
    daemons: Daemons, naps: list["subprocess.Popen[bytes]"]
) -> None:
    daemons.begin()
    exits, later, _stays = naps
    with daemons.client() as client:
        gone, last, kept = (client.call(of(process, 1))["launcher"] for process in naps)
    daemons.kill("cpa-0")
    kill(exits)
    machine = Machine()
    machine.refresh(daemons.store)
    hidden = allocate(daemons.store, machine, demand(1, pid=0, pid_started=0, login=LOGIN), first).launcher
    daemons.start("cpa-0")
    wait_until(lambda: ended(daemons), "the launch of the exited process has ended")
    assert ended(daemons) == {gone: GONE}
    kill(later)
    wait_until(lambda: len(ended(daemons)) > 1, "it is watched now")
    assert ended(daemons) == {gone: GONE, last: GONE}
    assert set(daemons.owners().values()) == {kept, hidden}


def test_a_launch_that_moves_is_its_new_processs(daemons: Daemons, naps: list["subprocess.Popen[bytes]"]) -> None:
    daemons.begin()
    before, after, _ = naps
    with daemons.client() as client:
        got = client.call(of(before))
        moved = {"op": "moved", "launcher": got["launcher"], "cookie": got["cookie"]}
        client.call({**moved, "pid": after.pid, "pid_started": start_time(after.pid)})
        other = client.call(of(before))
    kill(before)
    wait_until(lambda: ended(daemons), "what it still had has ended")
    assert ended(daemons) == {other["launcher"]: GONE}
    after.send_signal(signal.SIGKILL)
    after.wait()
    wait_until(lambda: not daemons.owners(), "the other has ended too")


def test_a_clean_up_that_fails_is_tried_again(
    daemons: Daemons, naps: list["subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    cleanup = tmp_path / "cleanup"
    cleanup.write_text(f"#!/bin/sh\necho >> {tmp_path}/tries\necho no good >&2; exit 1\n")
    daemons.begin()
    with daemons.client() as client:
        client.call(of(naps[0]))
    kill(naps[0])
    tries = tmp_path / "tries"
    wait_until(lambda: tries.exists() and len(tries.read_text()) > 1, "it was tried twice")
    assert len(daemons.owners()) == 2
    cleanup.write_text("#!/bin/sh\n")
    wait_until(lambda: not daemons.owners(), "it has succeeded")


def test_a_request_repeated_by_another_process_stays_the_first_ones(
    daemons: Daemons, naps: list["subprocess.Popen[bytes]"]
) -> None:
    """Otherwise the database would have a process that nobody watches."""
    daemons.begin()
    first_one, second, _ = naps
    with daemons.client() as client:
        asked = of(first_one)
        launcher = client.call(asked)["launcher"]
        assert client.call(of(second, key=asked["key"]))["launcher"] == launcher
    kill(first_one)
    wait_until(lambda: not daemons.owners(), "it has ended")
    assert ended(daemons) == {launcher: GONE}

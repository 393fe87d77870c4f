"""The files of a node's state objects, after whoever worked on them was killed between two steps."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from agents.objects.arrival import Arrival
from agents.objects.holder import REMEMBER_S, Entry, Holder
from agents.objects.states import Action, Event, State
from redmesh.state import StateError, StateObject, new_uuid


@pytest.fixture
def holder(tmp_path: Path) -> Holder:
    return Holder(str(tmp_path), "n0")


def made(holder: Holder) -> str:
    """A live object."""
    uuid = new_uuid()
    StateObject.create(holder.path(uuid), {"uuid": uuid, "kind": "job"}, durable=False).close()
    return uuid


def stopped(holder: Holder) -> str:
    """An object whose receiver has it whole, and has not answered."""
    uuid = made(holder)
    holder.stop(holder.offer(uuid, "n1", "tls://127.0.0.1:1/n1"))
    return uuid


def test_nobody_can_own_an_object_in_doubt_and_its_answer_decides(holder: Holder) -> None:
    uuid = stopped(holder)
    with pytest.raises(StateError):
        StateObject(holder.path(uuid))
    with pytest.raises(StateError, match="in doubt"):
        holder.offer(uuid, "n2", "")
    assert holder.doubtful() == [uuid] and holder.readable(uuid)
    assert holder.answered(uuid, 7, Event.REFUSED) is State.DOUBT, "of another attempt"
    assert holder.answered(uuid, 1, Event.REFUSED) is State.LIVE
    StateObject(holder.path(uuid)).close()
    assert holder.offer(uuid, "n1", "").counter == 2


class Killed(Holder):
    """Its process ends after the file was renamed, before that was recorded."""

    def _write(self, entry: Entry) -> None:
        if entry.place.state is State.DOUBT:
            os._exit(9)
        super()._write(entry)


def test_who_is_killed_before_the_record_has_sent_nothing(holder: Holder) -> None:
    uuid = made(holder)
    pid = os.fork()
    if not pid:
        killed = Killed(holder.directory, "n0")
        killed.stop(killed.offer(uuid, "n1", "tls://127.0.0.1:1/n1"))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert os.path.exists(holder.path(uuid) + ".sent")
    assert holder.entry(uuid).place.state is State.LIVE
    StateObject(holder.path(uuid)).close()
    assert holder.offer(uuid, "n1", "").counter == 2


def test_what_arrived_and_was_never_taken_is_forgotten_and_refused(holder: Holder, tmp_path: Path) -> None:
    uuid, part = new_uuid(), tmp_path / "part"
    part.write_bytes(b"x")
    assert holder.store(uuid, 3, str(part), "n1") is Action.KEEP
    holder.forget_old()
    arrived = Path(holder.path(uuid) + ".arrived")
    assert arrived.exists()
    long_ago = arrived.stat().st_mtime - REMEMBER_S - 1
    os.utime(arrived, (long_ago, long_ago))
    holder.forget_old()
    assert not arrived.exists()
    assert holder.take(uuid, 3) is Action.REFUSE and holder.take(uuid, 3) is Action.REFUSE


def test_a_purged_object_is_not_here_any_more(holder: Holder) -> None:
    uuid = made(holder)
    assert holder.entry(uuid).place.state is State.LIVE
    os.unlink(holder.path(uuid))
    assert holder.entry(uuid).place.state is State.ABSENT and holder.uuids() == []


def test_a_disk_that_fills_up_while_an_object_comes_is_told_at_the_end(tmp_path: Path) -> None:
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "small", tmp_path]).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        what = {"uuid": new_uuid(), "counter": 1, "size": 4 << 20, "sender": "n1"}
        arrival = Arrival(Holder(str(tmp_path), "n0"), what)
        for _ in range(4):
            arrival.write(b"x" * (1 << 20))
        with pytest.raises(OSError, match="No space left"):
            arrival.finish({**what, "digest": hashlib.sha256(b"x" * (4 << 20)).hexdigest()}, "n0")
        arrival.close()
        assert os.listdir(tmp_path) == []
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_only_an_ended_job_is_purged_and_the_copy_of_a_running_one_is_kept(holder: Holder) -> None:
    uuid, other = made(holder), made(holder)
    with pytest.raises(StateError, match="has not ended"):
        holder.purge(uuid)
    job = StateObject(holder.path(uuid))
    job.finish("done")
    with pytest.raises(StateError, match="has not ended"):
        holder.purge(uuid)  # its owner is there
    job.close()
    long_ago = os.stat(holder.path(uuid)).st_mtime - REMEMBER_S - 1
    for name in (uuid, other):
        os.rename(holder.path(name), holder.standby(name))
        os.utime(holder.standby(name), (long_ago, long_ago))
    holder.forget_old()
    assert not os.path.exists(holder.standby(uuid)) and os.path.exists(holder.standby(other))
    os.rename(holder.standby(other), holder.path(other))
    job = StateObject(holder.path(other))
    job.finish("cancelled")
    job.close()
    holder.purge(other)
    assert holder.uuids() == [] and holder.entry(other).place.state is State.ABSENT

"""The spool of a detached launch: what it holds, its limit, and who follows it."""

import fcntl
import os
import threading
import time
from pathlib import Path
from typing import Any

from agents.wire.control import decode
from agents.wire.frames import CONTROL, STDOUT, Decoder, split_output
from console.launch.attach.client import reach_launch
from console.launch.events.spool import KEPT_DAYS, SpoolFront, spool_path


def front(tmp_path: Path, limit: int = 1 << 30) -> tuple[SpoolFront, list[int], list[tuple[str, int]]]:
    tmp_path.chmod(0o700)
    passed: list[int] = []
    broken: list[tuple[str, int]] = []
    made = SpoolFront(
        str(tmp_path), {"command": "x", "size": None}, passed.append, lambda *what: broken.append(what), limit
    )
    return made, passed, broken


def frames(tmp_path: Path) -> list[Any]:
    found: list[Any] = []
    for kind, payload in Decoder().feed(Path(spool_path(str(tmp_path), 7)).read_bytes()):
        found.append(decode(payload)["event"] if kind == CONTROL else (kind, *split_output(payload)))
    return found


ALLOCATED = {"event": "allocated", "at": 1.0, "launcher": 7, "size": 2}


def test_what_it_holds(tmp_path: Path) -> None:
    spool, passed, broken = front(tmp_path)
    spool.planned(2)
    spool.event({"event": "note", "at": 0.5, "text": "before there was a launcher"})
    spool.event(ALLOCATED)
    spool.output(STDOUT, 1, memoryview(b"a\xff"))
    spool.event({"event": "end", "at": 2.0, "exit_status": 0})
    assert frames(tmp_path) == ["hello", "note", "allocated", (STDOUT, 1, b"a\xff"), "end"]
    assert passed == [2] and not broken
    assert os.stat(spool.spool_path).st_mode & 0o777 == 0o600


def test_over_its_limit_the_job_waits_and_is_told_why(tmp_path: Path) -> None:
    spool, passed, broken = front(tmp_path, limit=10_000)
    spool.event(ALLOCATED)
    for _ in range(20):
        spool.output(STDOUT, 0, memoryview(b"x" * 1000))
    assert sum(passed) < 12_000, "no credit for what came after: the ranks' pipes fill up"
    told = frames(tmp_path)
    assert told.count("note") == 1 and sum(frame[0] == STDOUT for frame in told) == 20, "what is on its way is kept"
    spool.event({"event": "end", "at": 2.0, "exit_status": 143})
    assert frames(tmp_path)[-1] == "end", "events still pass"
    assert spool.drained and not broken


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    spool, _, broken = front(tmp_path)
    spool.event(ALLOCATED)
    os.dup2(os.open("/dev/full", os.O_WRONLY), spool._fd)
    spool.output(STDOUT, 0, memoryview(b"x"))
    assert broken and broken[0][1] == 125 and "No space left" in broken[0][0]


def test_old_spools_go(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir(mode=0o700)
    for name, days in (("1.frames", KEPT_DAYS + 1), ("2.frames", KEPT_DAYS - 1), ("mine.txt", 99)):
        (folder / name).write_bytes(b"")
        os.utime(folder / name, (time.time() - days * 86400,) * 2)
    spool, _, _ = front(tmp_path)
    spool.event(ALLOCATED)
    assert sorted(os.listdir(folder)) == ["2.frames", "7.frames", "mine.txt"]


def test_an_old_spool_whose_yod_lives_is_kept(tmp_path: Path) -> None:
    """A launch that has written nothing for a week."""
    from console.launch.events import spool

    held, over = tmp_path / "1.frames", tmp_path / "2.frames"
    for path in (held, over):
        path.touch()
        os.utime(path, (1, 1))
    with held.open("ab") as file:
        spool.hold(file.fileno())
        spool._sweep(str(tmp_path))
    assert held.exists() and not over.exists()


def test_a_yod_that_ends_while_its_socket_is_missing_is_over(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    held = os.open(spool, os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    ends = threading.Timer(0.2, os.close, [held])
    ends.start()
    try:
        assert reach_launch(str(tmp_path), 7, str(spool)) is None
    finally:
        ends.join()

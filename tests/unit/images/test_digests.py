"""Digests of files: one that changes is never taken for what it was; many processes compute one once."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.pct.images import digests
from agents.pct.images.digests import Digests
from tests.support.forking import forks
from tests.support.waiting import wait_until

DATA = os.urandom(300_000)
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def fork() -> Iterator[Callable[[Callable[[], object]], int]]:
    with forks() as start:
        yield start


def digest_of(known: Digests, path: str) -> tuple[str, int]:
    found: tuple[str, int] = digests._to_the_end(known.steps(path))
    return found


def aged(path: Path, data: bytes, mode: int = 0o755) -> str:
    path.write_bytes(data)
    path.chmod(mode)
    return str(path)


def test_a_file_is_in_place_only_if_it_is_the_same_and_executable(tmp_path: Path) -> None:
    known = Digests()
    path = aged(tmp_path / "job", DATA)
    assert known.in_place(path, DIGEST, len(DATA))
    assert not known.in_place(path, "0" * 64, len(DATA))
    assert not known.in_place(path, DIGEST, len(DATA) - 1)
    assert not known.in_place(str(tmp_path / "none"), DIGEST, len(DATA))
    assert not known.in_place(str(tmp_path), DIGEST, os.stat(tmp_path).st_size)
    os.chmod(path, 0o644)
    assert not known.in_place(path, DIGEST, len(DATA))
    os.mkfifo(tmp_path / "fifo", 0o755)
    assert not known.in_place(str(tmp_path / "fifo"), DIGEST, 0)


@pytest.mark.parametrize("shared", [False, True])
def test_a_file_is_read_once_and_again_when_it_changes(tmp_path: Path, monkeypatch, shared: bool) -> None:  # type: ignore[no-untyped-def]
    read: list[int] = []
    real = digests._sha256
    monkeypatch.setattr(digests, "_sha256", lambda fd: read.append(fd) or real(fd))
    (tmp_path / "ram").mkdir()
    ram = str(tmp_path / "ram") if shared else ""
    path = aged(tmp_path / "job", b"one")
    known = Digests(ram)
    digest_of(known, path)
    digest_of(known, path)
    assert len(read) == 2  # too fresh: a change within the clock's tick would not show in its times
    monkeypatch.setattr(digests, "_SETTLED_NS", -1)
    for _ in range(3):
        assert digest_of(known, path) == (hashlib.sha256(b"one").hexdigest(), 3)
    assert len(read) == 3
    assert digest_of(Digests(ram), path)[0] == hashlib.sha256(b"one").hexdigest()
    assert len(read) == (3 if shared else 4)
    status = os.stat(path)
    wait_until(lambda: _rewritten(path, b"two", status), "its ctime moves on")
    assert digest_of(known, path)[0] == hashlib.sha256(b"two").hexdigest()


def _rewritten(path: str, data: bytes, before: os.stat_result) -> bool:
    Path(path).write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # mtime may be forged, ctime may not
    return os.stat(path).st_ctime_ns != before.st_ctime_ns


def test_many_of_one_host_compute_a_digest_once(tmp_path: Path) -> None:
    path = aged(tmp_path / "job", DATA * 20)
    (tmp_path / "ram").mkdir()
    program = (
        "import sys; from agents.pct.images import digests; real = digests._sha256; digests._SETTLED_NS = -1\n"
        "def loud(fd):\n    print('read', end=''); return real(fd)\n"
        "digests._sha256 = loud; digests._to_the_end(digests.Digests(sys.argv[1]).steps(sys.argv[2]))"
    )
    command = [sys.executable, "-P", "-c", program, str(tmp_path / "ram"), path]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    assert sorted(process.communicate()[0] for process in running) == [b"", b"", b"", b"read"]


def test_a_cache_that_stands_still_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch, fork) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(digests, "_TURN_S", 0.1)
    path = aged(tmp_path / "job", b"one")
    (tmp_path / "ram").mkdir()
    key = digests._key(os.stat(path))
    known = Digests(str(tmp_path / "ram"))
    kept = []  # a turn that has come, and is never given on

    def take() -> None:
        kept.append(digests._Turn(known._shared, key))
        assert kept[0].come()

    fork(take)
    assert digest_of(known, path)[1] == 3


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes too long for every piece."""
    monkeypatch.setattr(digests, "_STEP_S", -1.0)


@pytest.mark.usefixtures("slow")
def test_a_large_file_is_read_in_steps_between_which_others_have_their_turn(tmp_path: Path) -> None:
    data = os.urandom(digests._SMALL_PIECE) * 3 + b"and more"
    steps, waits = Digests().steps(str(aged(tmp_path / "large", data))), []
    while True:
        try:
            waits.append(next(steps))
        except StopIteration as over:
            assert over.value == (hashlib.sha256(data).hexdigest(), len(data))
            break
    assert waits == [0.0] * 4


def test_a_small_file_is_there_at_once(tmp_path: Path) -> None:
    small = Digests().steps(str(aged(tmp_path / "small", b"one")))
    with pytest.raises(StopIteration):
        next(small)


@pytest.mark.usefixtures("slow")
def test_who_stops_reading_gives_his_turn_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_TURN_S", 3600.0)
    path = aged(tmp_path / "large", b"x" * (2 * digests._SMALL_PIECE))
    (tmp_path / "ram").mkdir()
    steps = Digests(str(tmp_path / "ram")).steps(str(path))
    next(steps)
    steps.close()
    assert digest_of(Digests(str(tmp_path / "ram")), str(path))[1] == 2 * digests._SMALL_PIECE

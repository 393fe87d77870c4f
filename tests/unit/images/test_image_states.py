"""The store of images: against concurrent writers, dead owners, full disks and hostile directories."""

import contextlib
import errno
import fcntl
import hashlib
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.linux import processes
from agents.pct.images import store as image
from agents.pct.images.chunks import MappedFile
from agents.pct.images.ram_disk import RAM_DISK, places, user_directory
from agents.pct.images.store import ImageError, NoExec, NoRoom, Store, discard, in_ram_disk, own_place, sweep
from tests.support.chance import examples
from tests.support.forking import forks

DATA = b"#!/bin/sh\necho it runs\nexit 0\n" + os.urandom(300_000)
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def ram(tmp_path: Path) -> str:
    return str(tmp_path)


@pytest.fixture
def fork() -> Iterator[Callable[[Callable[[], object]], int]]:
    with forks() as start:
        yield start


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def fill(arriving: image.Arriving, data: bytes = DATA) -> str:
    for at in range(0, len(data), 65536):
        arriving.write(at, data[at : at + 65536])
    return arriving.finish()


def lent(path: Path, how: int = os.O_RDONLY) -> "contextlib.closing[MappedFile]":
    return contextlib.closing(MappedFile(os.open(path, how)))


def images(ram: str) -> list[str]:
    return sorted(os.listdir(os.path.join(user_directory(ram, os.geteuid()), "images")))


def test_an_image_arrives_runs_and_leaves_nothing(ram: str) -> None:
    store = Store("n0-7", ram)
    assert stat.S_IMODE(os.stat(store.directory).st_mode) == 0o700
    arriving = store.want(DIGEST, len(DATA), "job")
    assert arriving.state == "mine"
    path = fill(arriving)
    assert os.path.basename(path) == "job" and stat.S_IMODE(os.stat(path).st_mode) == 0o500
    out = subprocess.run([path], capture_output=True, check=False).stdout
    assert out == b"it runs\n"
    store.remove()
    assert images(ram) == [] and not os.path.exists(store.directory)


def test_a_second_launch_shares_the_first_ones(ram: str) -> None:
    first, second = Store("n0-7", ram), Store("n1-7", ram)
    path = fill(first.want(DIGEST, len(DATA), "job"))
    arriving = second.want(DIGEST, len(DATA), "other")
    assert arriving.state == "here" and os.path.samefile(path, arriving.finish())
    first.remove()
    assert not os.path.exists(path) and Path(arriving.path).read_bytes() == DATA
    second.remove()
    assert images(ram) == []


def test_whoever_finds_an_image_can_run_it_at_once(ram: str, monkeypatch: pytest.MonkeyPatch) -> None:
    link, ran = os.link, []

    def found(source: str, target: str) -> None:
        link(source, target)
        ran.append(subprocess.run([target], capture_output=True, check=True).stdout)  # busy while open for writing

    monkeypatch.setattr(os, "link", found)
    fill(Store("n0-7", ram).want(DIGEST, len(DATA), "job"))
    assert ran == [b"it runs\n"]


def test_one_writes_and_the_other_waits(ram: str, fork) -> None:  # type: ignore[no-untyped-def]
    store = Store("n1-7", ram)
    writer = fork(lambda: Store("n0-7", ram).want(DIGEST, len(DATA), "job").write(0, DATA[:1000]))
    arriving = store.want(DIGEST, len(DATA), "job")
    assert arriving.state == "theirs" and arriving.step() == "theirs"
    with pytest.raises(ImageError):
        arriving.write(0, DATA)
    kill(writer)
    # its beginning is thrown away: nobody checked it
    assert arriving.step() == "mine" and arriving.received == 0
    assert Path(fill(arriving)).read_bytes() == DATA
    assert len(sweep(ram)) == 1
    assert Path(arriving.path).read_bytes() == DATA
    store.remove()
    assert images(ram) == []


def test_the_one_who_waits_gets_what_the_other_wrote(ram: str) -> None:
    first, second = Store("n0-7", ram), Store("n1-7", ram)
    writing = first.want(DIGEST, len(DATA), "job")
    waiting = second.want(DIGEST, len(DATA), "job")
    assert waiting.state == "theirs"
    fill(writing)
    assert waiting.step() == "here" and os.path.samefile(writing.path, waiting.path)


def test_what_a_killed_launch_left_is_swept_and_what_lives_stays(ram: str, fork) -> None:  # type: ignore[no-untyped-def]
    mine = Store("n0-1", ram)
    other = hashlib.sha256(b"other").hexdigest()
    fill(mine.want(other, 5, "other"), b"other")
    dead = fork(lambda: fill(Store("n0-2", ram).want(DIGEST, len(DATA), "job")))
    half = fork(lambda: Store("n0-3", ram).want("0" * 64, 50, "half").write(0, b"x"))
    assert sweep(ram) == [] and len(images(ram)) == 3
    kill(dead)
    kill(half)
    assert sorted(name.rpartition("-")[2] for name in sweep(ram)) == ["2", "3"]
    assert images(ram) == [f"5-{other}"] and os.path.exists(os.path.join(mine.directory, "other"))


@pytest.mark.parametrize("target", (None, "/dev/null"))
def test_a_place_that_its_user_has_changed_meanwhile_ends_no_launch(ram: str, target: str | None) -> None:
    """Whatever stands there: the launch's own files are removed, and what cannot be looked at is left."""
    place = os.path.join(user_directory(ram, os.geteuid()), "images")
    store = Store("n0-1", ram)
    fill(store.want(DIGEST, len(DATA), "job"))
    os.rename(place, place + ".mine")
    Path(place).touch() if target is None else os.symlink(target, place)
    store.remove()
    assert not os.path.exists(store.directory) and os.path.lexists(place)


def test_the_users_directory_goes_when_no_launch_has_files_there(ram: str) -> None:
    base = user_directory(ram, os.geteuid())
    assert not discard(ram)
    store = Store("n0-1", ram)
    fill(store.want(DIGEST, len(DATA), "job"))
    assert not discard(ram) and Path(store.directory, "job").read_bytes() == DATA
    store.remove()
    own_place(os.path.join(base, "digests"))
    with open(os.path.join(base, "digests", "a-file.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not discard(ram), "somebody computes a digest"
    os.utime(os.path.join(base, "lock"), (0, 0))
    assert discard(ram) and os.listdir(ram) == []
    store.remove()  # also of one that comes too late
    Path(base).mkdir(0o700)
    Path(base, "of-somebody").touch()
    assert not discard(ram) and os.listdir(base) == ["of-somebody"]


def test_who_starts_while_the_directory_is_removed_begins_anew(ram: str) -> None:
    """A process discards as often as it can; each launch that begins meanwhile gets its directories."""
    script = "import sys; from agents.pct.images.store import discard\nwhile True: discard(sys.argv[1])"
    other = os.path.join(user_directory(ram, os.geteuid()), "launch-other")
    with subprocess.Popen([sys.executable, "-c", script, ram], cwd=Path(__file__).parents[3]) as process:
        try:
            for number in range(100):
                store = Store(f"n0-{number}", ram)
                assert Path(fill(store.want(DIGEST, len(DATA), "job"))).read_bytes() == DATA
                store.remove()
                own_place(other)
                os.rmdir(other)
        finally:
            process.kill()


def test_who_keeps_the_lock_while_it_is_stopped_holds_up_nobody(ram: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch child that was stopped with the lock held up every launch of its user on the host."""
    monkeypatch.setattr(image, "LOCK_S", 0.05)
    waiting, writing = Store("n0-1", ram), Store("n0-2", ram)
    shared = writing.want(DIGEST, len(DATA), "job")
    late = waiting.want(DIGEST, len(DATA), "job")
    assert (shared.state, late.state) == ("mine", "theirs")
    with open(os.path.join(writing.base, "lock")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert Path(fill(shared)).read_bytes() == DATA, "for its own launch"
        assert late.step() == "mine" and Path(fill(late)).read_bytes() == DATA
        begins = Store("n0-3", ram)
        assert Path(fill(begins.want(DIGEST, len(DATA), "job"))).read_bytes() == DATA
        assert sweep(ram) == [] and not discard(ram)
        for store in (writing, waiting, begins):
            store.remove()
    assert images(ram) == []
    again = Store("n0-4", ram)
    fill(again.want(DIGEST, len(DATA), "job"))
    assert images(ram) == [f"{len(DATA)}-{DIGEST}"], "shared as before"


def test_a_pid_used_again_does_not_keep_what_is_stale(ram: str) -> None:
    store = Store("n0-1", ram)
    pid, started = os.getpid(), processes.start_time(os.getpid())
    stale = store.directory.replace(f"-{pid}-{started}-", f"-{pid}-{started - 1}-")
    os.mkdir(stale)
    elsewhere = store.directory.replace("launch-", "launch-1", 1)  # another pid namespace: its pids are not ours
    os.mkdir(elsewhere.replace(f"-{pid}-", "-99999999-"))
    assert sweep(ram) == [os.path.basename(stale)] and os.path.exists(store.directory)


CHUNKS = st.lists(st.tuples(st.integers(-2, 2), st.binary(max_size=40)), max_size=8)


@settings(max_examples=examples(25), deadline=None)
@given(CHUNKS, st.binary(min_size=1, max_size=60))
def test_only_the_announced_bytes_in_order_are_taken(tmp_path_factory, chunks, data: bytes) -> None:  # type: ignore[no-untyped-def]
    store = Store("n0-1", str(tmp_path_factory.mktemp("ram")))
    arriving = store.want(hashlib.sha256(data).hexdigest(), len(data), "job")
    sent = b""
    try:
        for slip, chunk in chunks:
            arriving.write(len(sent) + slip, chunk)
            sent += chunk
            assert slip == 0 and len(sent) <= len(data)
        path = arriving.finish()
    except ImageError:
        assert arriving.state == "failed" and os.listdir(store.directory) == []
        assert not os.path.exists(store.image_path(arriving.digest, len(data)))
    else:
        assert sent == data and Path(path).read_bytes() == data
    store.remove()


def test_a_damaged_image_is_not_published(ram: str) -> None:
    store = Store("n0-1", ram)
    arriving = store.want(DIGEST, len(DATA), "job")
    with pytest.raises(ImageError, match="damaged"):
        fill(arriving, DATA[:-1] + bytes([DATA[-1] ^ 1]))
    assert os.listdir(store.directory) == [] and images(ram) == []
    assert store.want(DIGEST, len(DATA), "job").state == "mine"


@pytest.mark.parametrize("share", [True, False])
def test_it_is_copied_out_of_files_where_one_ends_another_goes_on(ram: str, tmp_path: Path, share: bool) -> None:
    data = os.urandom(3 * image.CACHED + 17)
    (tmp_path / "whole").write_bytes(data)
    (tmp_path / "short").write_bytes(data[: image.CACHED + 5])
    store = Store("n0-1", ram)
    arriving = store.want(hashlib.sha256(data).hexdigest(), len(data), "job", share=share)
    with lent(tmp_path / "short") as short, lent(tmp_path / "whole") as whole:
        assert arriving.copy(short, 0, 100) == 100
        assert arriving.copy(short, 100, len(data) - 100) == image.CACHED + 5 - 100
        assert arriving.copy(short, arriving.received, 1) == 0 and arriving.state == "mine"
        os.truncate(tmp_path / "short", 0)
        assert arriving.copy(whole, arriving.received, len(data) - arriving.received) > 2 * image.CACHED
    assert Path(arriving.finish()).read_bytes() == data
    assert images(ram) == ([os.path.basename(arriving.whole)] if share else [])
    store.remove()
    assert images(ram) == [] and not os.path.exists(store.directory)


def test_a_file_that_changes_while_it_is_copied_is_damage_and_one_that_cannot_be_read_is_not(ram: str) -> None:
    store, source = Store("n0-1", ram), Path(ram, "source")
    source.write_bytes(DATA)
    arriving = store.want(DIGEST, len(DATA), "job", share=False)
    with lent(source) as file, lent(source, os.O_WRONLY) as unreadable:
        with pytest.raises(OSError):
            arriving.copy(unreadable, 0, 10)
        assert arriving.copy(file, 0, 1000) == 1000  # it is the source that failed: it goes on with another
        source.write_bytes(bytes(len(DATA)))
        arriving.copy(file, 1000, len(DATA) - 1000)
    with pytest.raises(image.Damaged):
        arriving.finish()
    assert os.listdir(store.directory) == []
    with lent(source) as file, pytest.raises(ImageError):
        arriving.copy(file, 0, 10)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "a\0"])
def test_names_stay_in_their_directory(ram: str, name: str) -> None:
    store = Store("n0-1", ram)
    with pytest.raises(ImageError):
        store.want(DIGEST, 5, name)
    for wrong in ("../x", "A" * 64, "0" * 63, ""):
        with pytest.raises(ImageError):
            store.want(wrong, 5, "job")
    for size in (0, -1, 1 << 60):
        with pytest.raises(ImageError):
            store.want(DIGEST, size, "job")


def test_no_room_is_said_before_anything_is_written(ram: str) -> None:
    free = os.statvfs(ram)
    with pytest.raises(NoRoom):
        image.room(ram, free.f_bavail * free.f_frsize)
    store = Store("n0-1", ram)
    with pytest.raises(NoRoom):
        store.want(DIGEST, 1 << 47, "job")
    assert images(ram) == [] and os.listdir(store.directory) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small RAM disk")
def test_a_small_ram_disk(tmp_path: Path) -> None:
    for option, size, wrong in (("size=16m", 9 << 20, NoRoom), ("size=64m,noexec", 1, ImageError)):
        subprocess.run(["mount", "-t", "tmpfs", "-o", option, "none", tmp_path], check=True)
        try:
            store = Store("n0-1", str(tmp_path))
            with pytest.raises(wrong):
                store.want(DIGEST, size, "job")
            assert images(str(tmp_path)) == []
            if wrong is NoRoom:
                assert store.want(DIGEST, 1 << 20, "job").state == "mine"
                assert os.statvfs(tmp_path).f_bfree * 4096 <= 15 << 20  # the room is taken, not only promised
                store.remove()
        finally:
            subprocess.run(["umount", "-l", tmp_path], check=True)


def test_somebody_elses_directory_is_refused(ram: str) -> None:
    base = user_directory(ram, os.geteuid())
    os.symlink("/tmp", base)
    with pytest.raises(ImageError, match="not a directory of our own") as found:
        Store("n0-1", ram)
    assert found.value.fault == "launch", "any user could put it there, on every node"
    os.unlink(base)
    os.mkdir(base, 0o755)
    os.chmod(base, 0o755)
    with pytest.raises(ImageError):
        Store("n0-1", ram)
    assert sweep(ram) == []


def test_removing_follows_no_link(ram: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "precious").write_text("x")
    store = Store("n0-1", ram)
    os.symlink(outside, os.path.join(store.directory, "link"))
    os.mkdir(os.path.join(store.directory, "below"))
    os.symlink(outside / "precious", os.path.join(store.directory, "below", "link"))
    store.remove()
    assert (outside / "precious").exists() and not os.path.exists(store.directory)


def test_a_full_disk_while_reserving(ram: str, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    def full(fd: int, at: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = Store("n0-1", ram)
    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(image, "PLENTY", 1 << 60)
    with pytest.raises(NoRoom):
        store.want(DIGEST, 5, "job")
    assert images(ram) == []


def test_where_files_are_if_not_in_the_ram_disk(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    os.chmod(tmp_path / "open", 0o777)  # anybody may put another directory in its place
    (tmp_path / "own").mkdir()
    safe = os.path.realpath(tmp_path / "own") in places({"TMPDIR": str(tmp_path / "own")})
    assert safe == (str(tmp_path) in places({"TMPDIR": str(tmp_path)}))
    for wrong in (str(tmp_path / "open"), str(tmp_path / "none"), "own", "", RAM_DISK, "/dev/null"):
        assert places({"TMPDIR": wrong}) == places({}), wrong
    assert places({})[0] == RAM_DISK
    assert user_directory("/tmp", 7) != "/tmp/redmesh-7", "which holds the sockets of meshes"


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.ENOENT, errno.EACCES])
def test_a_place_that_cannot_be_written_is_left_for_another(tmp_path: Path, number: int) -> None:
    asked = []

    def make(place: str) -> str:
        asked.append(place)
        if place == RAM_DISK:
            raise OSError(number, os.strerror(number), f"{place}/redmesh-7")
        return place

    made, told = in_ram_disk(make)
    assert asked == places()[:2] and made == asked[1]
    assert told.startswith(RAM_DISK) and told.endswith(f": programs are copied to {made} instead")

    def fail(place: str) -> None:
        raise NoExec(f"{place} is mounted noexec") if place != RAM_DISK else OSError(number, "no", place)

    with pytest.raises(ImageError) as found:
        in_ram_disk(fail)
    assert found.value.number == number
    assert found.value.message == f"{RAM_DISK}: no" + "".join(
        f"; nor instead: {place} is mounted noexec" for place in places()[1:]
    )


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "no"), ImageError("is not a directory of our own")])
def test_what_is_no_fault_of_the_place_ends_there(error: Exception) -> None:
    def make(place: str) -> None:
        assert place == RAM_DISK
        raise error

    with pytest.raises(ImageError, match="no"):
        in_ram_disk(make)

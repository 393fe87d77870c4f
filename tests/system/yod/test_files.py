"""The application's files over a real mesh: yodio as command and module, bounds, back-pressure; staged files."""

import hashlib
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.pct.files.yodio import YODIO
from tests.support.chance import long
from tests.support.mesh import PrivateMesh
from tests.support.shared_mesh import borrowed_mesh as one_mesh
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.yods import ranks_left, yods

__all__ = ["one_mesh", "yods"]


@pytest.fixture
def data(yods: PrivateMesh) -> Iterator[Path]:
    """A directory for -io, emptied afterwards."""
    path = yods.work / "data"
    path.mkdir()
    (path / "hello").write_text("hello\n")
    (path / "random").write_bytes(os.urandom((5 << 20) + 17))
    yield path
    shutil.rmtree(path)


def python(mesh: PrivateMesh, text: str, *options: str, size: int = 1) -> subprocess.CompletedProcess[str]:
    """Run Python in ranks under -io."""
    words = ("yod", *options, "-sz", str(size), sys.executable, "-c", textwrap.dedent(text))
    return mesh.run(*words, env={"PYTHONDONTWRITEBYTECODE": "1"})


def test_yodio_reads_lists_and_writes_files_of_the_login_side(yods: PrivateMesh, data: Path) -> None:
    assert (
        yods.run("yod", "-io", "data", "yodio", "cat", "hello", str(data / "hello"), check=True).stdout == "hello\n" * 2
    )
    out = yods.run("yod", "-io", "data", "-sz", "4", "sh", "-c", "yodio cat random | sha256sum", check=True).stdout
    assert set(out.split()) == {hashlib.sha256((data / "random").read_bytes()).hexdigest(), "-"}
    assert yods.run("yod", "-io", "data", "yodio", "ls", check=True).stdout == "hello\nrandom\n"
    listed = yods.run("yod", "-io", "data", "yodio", "ls", "-l", ".", check=True).stdout.split()
    assert listed[0] == "6" and listed[3] == str((5 << 20) + 17)
    put = "head -c 3000000 /dev/zero | tr '\\0' $YOD_RANK > $YOD_RANK.tmp; yodio put $YOD_RANK.tmp from-$YOD_RANK"
    yods.run("yod", "-io", "data", "-sz", "3", "sh", "-c", put + "; rm $YOD_RANK.tmp", check=True)
    for rank in range(3):
        assert (data / f"from-{rank}").read_bytes() == str(rank).encode() * 3000000
    yods.run("yod", "-io", "data", "sh", "-c", "echo piped | yodio put - deep && yodio get deep here", check=True)
    assert (yods.work / "here").read_text() == "piped\n"


def test_errors_are_one_line_and_status_one(yods: PrivateMesh, data: Path) -> None:
    (data / "sub").mkdir()
    wrong = {
        "cat none": "yodio: none: No such file or directory",
        "cat ../here": "yodio: ../here: not below a directory of yod --io",
        "cat /etc/passwd": "yodio: /etc/passwd: not below a directory of yod --io",
        "cat sub": "yodio: sub: Is a directory",
        "ls hello": "yodio: hello: Not a directory",
        "put /etc/hostname sub/no/such": "yodio: sub/no/such: No such file or directory",
    }
    script = "; ".join(f"yodio {words}; echo $?" for words in wrong)
    done = yods.run("yod", "-quiet", "-io", "data", "sh", "-c", script, check=True)
    assert done.stdout.split() == ["1"] * len(wrong) and done.stderr.splitlines() == list(wrong.values())
    assert yods.run("yod", "-quiet", "-io", "data", "yodio", "what").returncode == 2
    read_only = yods.run("yod", "-quiet", "-io", "data:ro", "yodio", "put", "/etc/hostname", "x")
    assert read_only.returncode == 1 and "Read-only" in read_only.stderr and not (data / "x").exists()
    without = python(yods, f"import sys; sys.path.insert(0, {YODIO!r}); import yodio; yodio.open('x')")
    assert without.returncode == 1 and "yod --io DIR" in without.stderr
    assert yods.run("yod", "-io", "none", "true").returncode == 2


def test_several_directories_are_served_each_with_its_rights(yods: PrivateMesh, data: Path) -> None:
    other = yods.home / "other"
    other.mkdir()
    (other / "x").write_text("other\n")
    (data / "to-other").symlink_to(other / "x")
    script = f"yodio cat hello {other}/x to-other"
    assert (
        yods.run("yod", "-io", "data", "-io", f"{other}:ro", "sh", "-c", script, check=True).stdout
        == "hello\nother\nother\n"
    )
    assert yods.run("yod", "-io", "data", "yodio", "cat", "to-other").returncode == 1


@pytest.mark.storm
def test_the_file_object_is_like_the_built_in(yods: PrivateMesh, data: Path) -> None:
    """Random operations on two files, one here and one through yod: the same answers, the same bytes."""
    done = python(
        yods,
        """
        import io, os, random, yodio
        rank = os.environ["YOD_RANK"]
        for seed in {*range(int(os.environ["FILES"])), 22}:  # 22: a short read had other bytes in a+
            rnd = random.Random(f"{rank}-{seed}")
            mode = ["w+b", "r+b", "a+b", "wb", "w+"][seed % 5]
            begin = rnd.randbytes(rnd.randrange(600_000)) if mode != "w+" else b"text"
            mine, theirs = f"here-{rank}", f"there-{rank}"
            for path in (mine, os.path.join("data", theirs)):
                with open(path, "wb") as file:
                    file.write(begin)
            options = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
            # a buffer of the same size: what a+ gives when reads and writes mix depends on it
            a, b = open(mine, mode, 256 << 10, **options), yodio.open(theirs, mode, **options)
            for step in range(120):
                what = rnd.choice(["read", "read", "write", "seek", "tell", "line", "flush", "truncate", "into", "end"])
                size = rnd.choice([0, 1, 7, 4096, 70_000, 300_000])
                offset = rnd.randrange(700_000)
                data = rnd.randbytes(size) if "b" in mode else "é€x\\n" * (size // 100)
                def act(f):
                    try:
                        if what == "read": return f.read(size)
                        if what == "write": return f.write(data)
                        if what == "seek": return f.seek(offset) if "b" in mode else f.seek(0)
                        if what == "end": return f.seek(0, 2)
                        if what == "tell": return f.tell()
                        if what == "line": return f.readline()
                        if what == "flush": return f.flush()
                        if what == "truncate": f.flush(); return f.truncate()
                        if what == "into":
                            buffer = bytearray(size)
                            return (f.readinto(buffer), bytes(buffer)) if "b" in mode else None
                    except (io.UnsupportedOperation, UnicodeDecodeError) as error:
                        return str(error) if what in ("read", "line") else "unsupported"
                x, y = act(a), act(b)
                assert x == y, (seed, mode, step, what, size, str(x)[:80], str(y)[:80])
            a.close(); b.close()
            with open(mine, "rb") as x, open(os.path.join("data", theirs), "rb") as y:
                assert x.read() == y.read(), (seed, mode)
        print("same")
        """,
        "-io", "data", "-export", f"ALL,FILES={long(5, 100)}", size=2,
    )  # fmt: skip
    assert done.stdout == "same\n" * 2, done.stderr[-2000:]
    for rank in range(2):
        (yods.work / f"here-{rank}").unlink()


def test_every_function_of_the_yodio_module_works(yods: PrivateMesh, data: Path) -> None:
    names = sorted(f"f{number:04}" for number in range(2500))  # more than one page
    (data / "many").mkdir()
    for name in names:
        (data / "many" / name).touch()
    (data / "lines").write_text("x\n" * 20_000)
    done = python(
        yods,
        """
        import yodio
        print(len(yodio.listdir("many")), yodio.listdir("many")[::1000])
        print(yodio.stat("hello")["size"], yodio.stat("many")["kind"])
        print(sum(1 for _ in yodio.open("lines")))
        try:
            yodio.open("hello", "x")
        except FileExistsError as error:
            print(error.filename)
        with yodio.open("log", "a") as file:
            file.write("one\\n")
        with yodio.open("log", "a") as file:
            print("two", file=file)
        print(yodio.open("log").read().split())
        """,
        "-io", "data",
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "2500 ['f0000', 'f1000', 'f2000']", "6 dir", "20000", "hello", "['one', 'two']",
    ], done.stderr  # fmt: skip


def test_many_ranks_append_and_nothing_is_lost(yods: PrivateMesh, data: Path) -> None:
    done = python(
        yods,
        """
        import os, yodio
        with yodio.open("log", "ab", buffering=0) as file:
            for number in range(100):
                file.write(f"{os.environ['YOD_RANK']} {number}\\n".encode())
        """,
        "-io", "data", size=4,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in (data / "log").read_text().splitlines()]
    assert len(lines) == 400
    for rank in range(4):
        assert [int(number) for who, number in lines if who == str(rank)] == list(range(100))


def test_a_rank_that_asks_and_never_reads_holds_up_nobody(yods: PrivateMesh, data: Path) -> None:
    (data / "large").write_bytes(b"x" * (64 << 20))
    script = """
        import os, time, yodio
        if os.environ["YOD_LOCAL_RANK"] == "0":
            channel = yodio.YodFile("large")._channel
            channel._sock.settimeout(2)
            try:
                for at in range(4000):  # a gigabyte of answers
                    channel.send(yodio._READ, at % 200 << 18, 256 << 10)
            except OSError:
                print("held")
            time.sleep(1)
        else:
            time.sleep(0.3)
            for _ in range(3):
                with yodio.open("random", "rb") as file:
                    assert len(file.read()) == (5 << 20) + 17
            print("read")
        """
    began = time.monotonic()
    yod = yods.start(
        "yod", "-io", "data", "-sz", "4", sys.executable, "-c", textwrap.dedent(script),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    most = 0
    while yod.poll() is None and time.monotonic() - began < PATIENCE_S:
        ours = [pid for pid, words in yods.processes().items() if "agents" in words or "yod" in words]
        most = max([most, *map(rss, ours)])
        time.sleep(0.05)
    out, err = yod.communicate()
    assert sorted(out.split()) == ["held"] * 2 + ["read"] * 2 or sorted(out.split()) == ["read"] * 2, err
    assert most < 120 << 10, f"{most} KiB"  # nobody held a gigabyte


def rss(pid: int) -> int:
    """Resident memory in KiB."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4
    except (OSError, IndexError):
        return 0


def test_kills_leave_no_socket(yods: PrivateMesh, data: Path) -> None:
    yod = yods.start(
        "yod", "-quiet", "-io", "data", "-sz", "8", "sh", "-c", "while :; do yodio cat random; done >/dev/null"
    )

    def sockets() -> list[str]:
        return [name for name in os.listdir(yods.run_dir) if name.endswith(".files")]

    wait_until(lambda: len(sockets()) == 4, "every node listens")
    yod.kill()
    yod.wait()
    wait_until(lambda: not sockets(), "the sockets are gone")


def test_stage_in_and_out(yods: PrivateMesh, data: Path) -> None:
    for rank in range(5):
        (yods.work / f"in-{rank}").write_bytes(str(rank).encode() * 700_000)
    script = (
        "cmp $YOD_STAGE/hello data/hello && cmp got/$YOD_NODE/$YOD_RANK in-$YOD_RANK && [ -x $YOD_STAGE/tool ]"
        " && head -c 100000 got/$YOD_NODE/$YOD_RANK > out-$YOD_RANK"
    )
    (data / "tool").write_text("#!/bin/sh\n")
    (data / "tool").chmod(0o755)
    yods.run(
        "yod", "-sz", "5", "-stage-in", "data/hello", "-stage-in", "data/tool",
        "-stage-in", "in-{rank}:got/{node}/{rank}", "-stage-out", "out-{rank}:results/{launcher}/r{rank:03}",
        "sh", "-c", script, check=True,
    )  # fmt: skip
    [results] = list((yods.work / "results").iterdir())
    assert sorted(path.name for path in results.iterdir()) == [f"r{rank:03}" for rank in range(5)]
    for rank in range(5):
        assert (results / f"r{rank:03}").read_bytes() == str(rank).encode() * 100000


def test_staged_names_count_from_where_yod_was_started(yods: PrivateMesh, data: Path, tmp_path: Path) -> None:
    words = ["-stage-in", "data/hello", "-stage-in", "data/hello:there", "-stage-out", "there:from-chdir"]
    yods.run("yod", "-chdir", str(tmp_path), *words, "sh", "-c", "cmp $YOD_STAGE/hello there", check=True)
    assert (tmp_path / "there").read_bytes() == (yods.work / "from-chdir").read_bytes() == (data / "hello").read_bytes()


def test_staging_that_cannot_be(yods: PrivateMesh, data: Path) -> None:
    ran = yods.work / "ran"
    missing = yods.run("yod", "-sz", "3", "-stage-in", "none", "-stage-out", "x:y", "touch", str(ran))
    assert missing.returncode == 125 and "none" in missing.stderr and "No such file" in missing.stderr
    assert not ran.exists()
    out = yods.run(
        "yod", "-sz", "2", "-stage-out", "left-{rank}:back-{rank}", "sh", "-c", "[ $YOD_RANK = 1 ] || echo x > left-0"
    )
    assert (
        out.returncode == 125 and "left-1: No such file" in out.stderr and (yods.work / "back-0").read_text() == "x\n"
    )
    assert not list(yods.work.glob("*.part*"))
    bad = yods.run("yod", "-stage-out", "left", "true")
    assert bad.returncode == 2
    # the ranks' own status comes first
    refused = yods.run("yod", "-stage-out", "left-0:/proc/none", "touch", "left-0")
    told = f"yod: n0: stage-out: {yods.work}/left-0: /proc/none: No such file or directory\n"
    assert (refused.returncode, refused.stderr) == (125, told)
    worse = yods.run("yod", "-sz", "1", "-stage-out", "nothing:back", "sh", "-c", "exit 7")
    assert worse.returncode == 7 and "nothing" in worse.stderr


def test_interrupted_while_it_stages_nothing_stays(yods: PrivateMesh, data: Path) -> None:
    (data / "slow").touch()
    os.truncate(data / "slow", 300 << 20)
    yod = yods.start(
        "yod", "-quiet", "-sz", "4", "-stage-in", "data/slow:copy-{rank}", "true", stderr=subprocess.DEVNULL
    )
    wait_until(lambda: list(yods.work.glob("copy-*")), "it stages")
    yod.terminate()
    assert yod.wait() == 143
    wait_until(lambda: not list(yods.work.glob("copy-*.part*")), "no half files")
    for path in yods.work.glob("copy-*"):
        path.unlink()


def test_a_killed_yod_that_would_have_had_files_leaves_no_launch_child(yods: PrivateMesh, data: Path) -> None:
    def children() -> list[str]:
        return [command for command in yods.processes().values() if "redmesh-launch" in command]

    process = yods.start(
        "yod", "-sz", "4", "-stage-out", "data/small:back-{rank}", "sh", "-c", "touch ran-$YOD_RANK; exec sleep 60"
    )
    wait_until(lambda: len(children()) == 2 and len(list(yods.work.glob("ran-*"))) == 4, "it runs")
    process.kill()
    process.wait()
    wait_until(lambda: not children() and not ranks_left(yods), "nothing of it is left")


def test_what_is_no_file_is_not_staged_and_holds_nothing_up(yods: PrivateMesh, data: Path) -> None:
    os.mkfifo(data / "pipe")
    for word, name in (("-stage-in", "data/pipe"), ("-stage-in", "/dev/zero"), ("-stage-out", "/dev/zero:data/copy")):
        done = yods.run("yod", word, name, "true")
        assert done.returncode == 125 and "not a regular file" in done.stderr and done.stderr.count("\n") == 1
    assert sorted(os.listdir(data)) == ["hello", "pipe", "random"]


def test_no_request_of_a_rank_ends_its_yod(yods: PrivateMesh, data: Path) -> None:
    done = python(
        yods,
        """
        import yodio
        channel = yodio.Channel()
        opening = [b'{"path": 7, "mode": "r"}', b'{"path": null, "mode": "r"}', b'{"path": ["hello"], "mode": "r"}']
        opening += [b'{"path": "hello", "mode": ["r"]}', b"[1]", b"{", b""]
        wrong = [(1, 0, 0, data) for data in opening] + [(op, 0, 0, b"") for op in (0, 8, 11, 255)]
        far = [(op, (1 << 64) - 1, 1, b"x" if op == 3 else b"") for op in (2, 3, 7)]
        def ask(op, offset, length, data):
            try:
                channel.wait(channel.send(op, offset, length, data))
            except OSError as error:
                return error.errno
        print([ask(*each) for each in wrong].count(None), end=" ")
        ask(1, 0, 0, b'{"path": "new", "mode": "w+"}')
        print([ask(*each) for each in far].count(None), end=" ")
        print(yodio.open("hello").read(), end="")
        """,
        "-io",
        "data",
    )
    assert (done.returncode, done.stdout) == (0, "0 0 hello\n"), done.stderr

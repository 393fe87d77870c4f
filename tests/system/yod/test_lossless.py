"""Output of any kind arrives byte for byte, in order for each rank and stream; input never hangs a launch."""

import base64
import hashlib
import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from tests.support.mesh import PrivateMesh
from tests.support.shared_mesh import borrowed_mesh as one_mesh
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.yods import yods

__all__ = ["one_mesh", "yods"]

#: Writes of a few bytes, each by itself, to stdout and stderr in turn.
SMALL = """
import os, sys
rank = int(os.environ["YOD_RANK"])
for i in range(int(sys.argv[1])):
    os.write(1 + i % 2, b"%d %d\\n" % (rank, i))
"""


def output(yods: PrivateMesh, *command: str, **options: object) -> bytes:
    done = subprocess.run(
        command,
        env=yods.env,
        cwd=yods.work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_S,
        **options,
    )  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr[-500:]
    return bytes(done.stdout)


def test_a_thousand_small_writes_from_each_of_32_ranks(yods: PrivateMesh) -> None:
    ranks, writes = 32, 1_000
    with open(yods.work / "err", "wb") as err:
        done = subprocess.run(
            ["yod", "-overcommit", "-sz", str(ranks), sys.executable, "-SEc", SMALL, str(writes)],
            env=yods.env, cwd=yods.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err,
            timeout=PATIENCE_S,
        )  # fmt: skip
    assert done.returncode == 0
    for parity, text in ((0, done.stdout), (1, (yods.work / "err").read_bytes())):
        expected = [parity] * ranks
        for line in text.splitlines():
            rank, number = map(int, line.split())
            assert number == expected[rank], f"rank {rank}: {number} came where {expected[rank]} was due"
            expected[rank] += 2
        assert expected == [writes + parity] * ranks


def test_binary_output_arrives_unchanged(yods: PrivateMesh) -> None:
    (yods.work / "noise").write_bytes(os.urandom(5_000_000) + bytes(range(256)))
    assert output(yods, "yod", "cat", "noise") == (yods.work / "noise").read_bytes()


def test_a_line_of_40_mb_and_no_final_newline(yods: PrivateMesh) -> None:
    size = 40_000_000  # more than twice what a launch may have on its way
    code = f"import sys; sys.stdout.write('y' * {size})"
    process = yods.start("yod", sys.executable, "-SEc", code, stdout=subprocess.PIPE)
    assert process.stdout is not None
    digest, length = hashlib.sha256(), 0
    while piece := process.stdout.read(1 << 20):
        digest.update(piece)
        length += len(piece)
    assert process.wait() == 0
    assert length == size and digest.hexdigest() == hashlib.sha256(b"y" * size).hexdigest()


def test_utf8_that_is_split_between_writes_with_label(yods: PrivateMesh) -> None:
    text = "grüße, 世界, 🎉\n".encode()
    code = f"import os, time\nfor b in {text!r} * 3: os.write(1, bytes([b])); time.sleep(0.001)"
    out = output(yods, "yod", "-sz", "4", "-label", sys.executable, "-SEc", code)
    assert sorted(out.splitlines(keepends=True)) == sorted(
        b"%d: %s" % (rank, text) for rank in range(4) for _ in range(3)
    )


def test_no_final_newline_from_several(yods: PrivateMesh) -> None:
    assert output(yods, "yod", "-sz", "4", "printf", "x") == b"xxxx"
    assert output(yods, "yod", "-sz", "2", "-label", "printf", "x") in (b"0: x\n1: x\n", b"1: x\n0: x\n")


IN_PIECES = """
import array, fcntl, os, termios
def write(piece):
    os.write(1, piece)
    left = array.array("i", [1])
    while left[0]:
        fcntl.ioctl(1, termios.FIONREAD, left)  # until it was read
for i in range(40):
    write(b"x is")
    write(b" 1\\n")
"""
TOGETHER_IN_TIME = pytest.mark.load_sensitive(reason="the end of a line must follow its beginning within 20 ms")


@pytest.mark.parametrize(
    ("word", "least", "most"),
    [("-N", 0.5, 1.0), ("-NOBUF", 0.5, 1.0), pytest.param("-quiet", 0.0, 0.25, marks=TOGETHER_IN_TIME)],
)
def test_lines_in_pieces_go_on_as_one(yods: PrivateMesh, word: str, least: float, most: float) -> None:
    told = output(yods, "yod", "-json", word, "-sz", "2", sys.executable, "-Ec", IN_PIECES)
    events = [json.loads(line) for line in told.splitlines()]
    pieces = [base64.b64decode(event["data"]) for event in events if event["event"] == "output"]
    assert b"".join(pieces).count(b" 1\n") == 80
    broken = sum(not piece.endswith(b"\n") for piece in pieces) / 80
    assert least <= broken <= most, f"{broken:.0%} of the lines were in two pieces"


def test_a_grandchild_that_holds_stdout_does_not_keep_the_job(yods: PrivateMesh) -> None:
    out = output(yods, "yod", "-sz", "2", "sh", "-c", "setsid sleep 3600 & echo done")
    assert out == b"done\ndone\n"


@pytest.mark.parametrize("word", ["shared", "all", "0"])
def test_closed_stdin_is_no_input(yods: PrivateMesh, word: str) -> None:
    out = subprocess.run(
        ["sh", "-c", f"exec yod -input {word} -sz 2 cat <&-"],
        env=yods.env,
        cwd=yods.work,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert (out.returncode, out.stdout) == (0, b"")


def test_input_shared_all_none_and_one(yods: PrivateMesh) -> None:
    text = "".join(f"{i}\n" for i in range(20_000))

    def given(*words: str) -> str:
        return yods.run("yod", "-sz", "4", "-label", *words, "sh", "-c", "cat; :", input=text, check=True).stdout

    lines = [line.split(": ") for line in given().splitlines()]
    assert {rank for rank, _ in lines} <= {"0", "1"}, "of the first node's ranks, whoever reads first"
    assert sum(len(part) + 1 for _, part in lines) >= len(text) - 4
    for rank in range(4):
        every = given("-input", "all").splitlines()
        assert [line[3:] for line in every if line.startswith(f"{rank}: ")] == text.splitlines()
    assert given("-input", "none") == ""
    assert given("-input", "3") == "".join(f"3: {line}\n" for line in text.splitlines())


def test_a_background_yod_on_a_terminal_is_not_stopped(yods: PrivateMesh) -> None:
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(yods.work)
        command = "set -m; yod sh -c 'echo ran; cat' & sleep 2; jobs -l; kill %1; wait"
        os.execvpe("sh", ["sh", "-c", command], yods.env)
    seen = b""
    while True:
        try:
            piece = os.read(master, 4096)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    os.waitpid(pid, 0)
    os.close(master)
    assert b"ran" in seen and b"Stopped" not in seen and b"Running" in seen


def test_input_that_nobody_takes_ends_with_the_job(yods: PrivateMesh) -> None:
    process = yods.start("yod", "-sz", "2", "sleep", "0.3", stdin=subprocess.PIPE)
    assert process.stdin is not None
    os.set_blocking(process.stdin.fileno(), False)
    try:
        while True:
            os.write(process.stdin.fileno(), bytes(65536))
    except BlockingIOError:
        pass
    assert process.wait() == 0
    process.stdin.close()


def test_nothing_is_left_of_what_forks_and_hides(yods: PrivateMesh) -> None:
    script = (
        "trap '' TERM INT; (setsid sh -c 'trap \"\" TERM; (sleep 300 &) ; sleep 300' &) ; sleep 300 & echo up; wait"
    )
    process = yods.start("yod", "-sz", "4", "sh", "-c", script, stdout=subprocess.PIPE)
    assert process.stdout is not None
    for _ in range(4):
        process.stdout.readline()
    process.send_signal(signal.SIGINT)

    def ended() -> bool:
        process.send_signal(signal.SIGINT)  # two that come at once are one
        return process.poll() is not None

    wait_until(ended, "it has ended", step_s=0.3)  # and the fixture sees that no process of a launch is left

"""What ranks write and read: byte for byte, bounded in memory, never in the way of control."""

import contextlib
import hashlib
import os
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from agents.linux import processes
from agents.wire.frames import STDOUT
from tests.support.pcts import Launcher, Machine, run
from tests.support.waiting import wait_until, wait_until_still


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with Machine(4) as machine:
        yield machine


def _peak(pid: int) -> int:
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) >> 10


def test_output_is_byte_exact(machine: Machine) -> None:
    script = (
        "import os,random,sys; r=random.Random(int(os.environ['YOD_RANK'])); "
        "[(os.write(1,r.randbytes(r.randrange(1,200000))), os.write(2,b'e%d\\n'%i)) for i in range(12)]"
    )
    _, launcher = run(machine, [sys.executable, "-P", "-c", script], per_node=2, fanout=1, window=64 << 10)
    import random

    for rank in range(8):
        r = random.Random(rank)
        expected = b"".join(r.randbytes(r.randrange(1, 200000)) for _ in range(12))
        assert hashlib.sha256(launcher.stdout(rank)).digest() == hashlib.sha256(_whole(expected)).digest()
        assert launcher.stderr(rank) == b"".join(b"e%d\n" % i for i in range(12))


def _whole(data: bytes) -> bytes:
    return data


def test_a_reader_that_stands_still_costs_no_memory_and_stops_no_control(machine: Machine) -> None:
    launcher = Launcher(
        machine, ["sh", "-c", "[ $YOD_RANK = 5 ] && exit 3; exec cat /dev/zero"], per_node=4, grant=False
    )
    launcher.go()
    launcher.keep_output = False

    def nothing_more_comes() -> bool:
        before = launcher.received
        with contextlib.suppress(TimeoutError):
            launcher.read(0.5)
        return launcher.received == before and bool(launcher.exits())

    wait_until(nothing_more_comes, "the credit is used up, and an exit passes")
    assert launcher.received <= 16 << 20, "never more than the credit"
    assert launcher.exits() == {5: 3 << 8}, "an exit passes"
    for name in machine.pcts:
        [child] = machine.launch_children(name)
        assert _peak(child) < 64, f"{name} holds {_peak(child)} MiB"
    launcher.send({"op": "signal", "signal": signal.SIGTERM, "ranks": None})
    wait_until(lambda: launcher.read() and len(launcher.exits()) == 16, "a signal works")
    launcher.grant = True
    launcher.give_credit()
    assert len(launcher.finish()) == 16


def test_a_launcher_that_is_stopped_costs_no_memory(machine: Machine) -> None:
    count = 16 << 20
    launcher = Launcher(machine, ["head", "-c", str(count), "/dev/zero"], per_node=4)
    launcher.go()
    launcher.keep_output = False
    child = machine.launch_children("n0")[0]
    wait_until_still(machine.marked)  # nobody reads the socket
    assert _peak(child) < 64
    assert len(launcher.finish()) == 16
    assert launcher.received == 16 * count


def test_output_after_the_exit_is_not_lost(machine: Machine) -> None:
    statuses, launcher = run(machine, ["bash", "-c", "(sleep 0.2; echo late) & exit 0"], nodes=1)
    assert statuses == {0: 0}
    assert launcher.stdout() == b"late\n"


def test_a_grandchild_that_holds_the_pipe_is_waited_for_shortly(machine: Machine) -> None:
    begun = time.monotonic()
    launcher = Launcher(machine, ["bash", "-c", "echo out; sleep 3600 & exit 4"], nodes=1)
    launcher.go()
    assert launcher.finish() == {0: 4 << 8}
    assert time.monotonic() - begun > 0.4
    assert launcher.stdout() == b"out\n"
    assert not machine.marked()


def test_a_grandchild_beside_living_ranks_is_given_up_alone(machine: Machine) -> None:
    script = "echo out; if [ $YOD_RANK = 0 ]; then yes & exit 0; else sleep 1.5; echo last; fi"
    launcher = Launcher(machine, ["bash", "-c", script], per_node=2, nodes=1)
    launcher.go()
    closed = launcher.until("closed")
    assert closed["ranks"] == [0]
    assert launcher.finish() == {0: 0, 1: 0}
    assert launcher.stdout(1) == b"out\nlast\n"


def test_closed_output_ends_before_the_process(machine: Machine) -> None:
    launcher = Launcher(machine, ["sh", "-c", "exec >&- 2>&-; sleep 0.5; exit 2"], nodes=1)
    launcher.go()
    assert launcher.until("closed")["ranks"] == [0]
    assert launcher.finish() == {0: 512}


def test_a_flood_arrives_whole(machine: Machine) -> None:
    count = 64 << 20
    launcher = Launcher(machine, ["head", "-c", str(count), "/dev/zero"], nodes=1)
    launcher.keep_output = False
    launcher.go()
    launcher.finish()
    assert launcher.received == count


@pytest.mark.parametrize(("input", "readers"), [("all", range(8)), (5, [5]), (0, [0])])
def test_stdin_goes_where_it_was_told(machine: Machine, input: str | int, readers: object) -> None:
    data = os.urandom(3 << 20)
    launcher = Launcher(machine, ["sha256sum"], per_node=2, fanout=2, input=input)
    launcher.go()
    _feed(launcher, data)
    launcher.finish()
    for rank in range(8):
        expected = data if rank in list(readers) else b""  # type: ignore[call-overload]
        assert launcher.stdout(rank).split()[0].decode() == hashlib.sha256(expected).hexdigest()


def test_shared_stdin_is_read_by_whoever_comes_first(machine: Machine) -> None:
    launcher = Launcher(machine, ["wc", "-c"], per_node=3, nodes=2, input="shared")
    launcher.go()
    _feed(launcher, b"x" * 1_000_000)
    launcher.finish()
    assert sum(int(launcher.stdout(rank)) for rank in range(6)) == 1_000_000


@pytest.mark.parametrize(("fanout", "reader"), [(32, 3), (1, 7), (1, 2)])
def test_shared_stdin_reaches_the_one_who_reads(machine: Machine, fanout: int, reader: int) -> None:
    """On whatever node and however deep; in order; the others read an end when all of it has been read."""
    data = os.urandom(1 << 20)
    read = f"{machine.directory}/read-{fanout}-{reader}"  # then the others look what is left
    program = (
        f"[ $YOD_RANK = {reader} ] && sha256sum && exec touch {read}; until [ -e {read} ]; do sleep 0.05; done; wc -c"
    )
    launcher = Launcher(machine, ["bash", "-c", program], per_node=2, fanout=fanout, input="shared")
    launcher.go()
    _feed(launcher, data)
    launcher.finish()
    assert launcher.stdout(reader).split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert {launcher.stdout(rank) for rank in range(8) if rank != reader} == {b"0\n"}


def test_shared_stdin_goes_on_to_the_next_who_reads(machine: Machine) -> None:
    """One takes a line and ends, then one elsewhere: nothing is lost in the first one's pipe."""
    program = "sleep 0.$((YOD_RANK * 3)); head -c 4"
    launcher = Launcher(machine, ["bash", "-c", program], nodes=3, input="shared")
    launcher.go()
    _feed(launcher, b"one\ntwo\nthr\n")
    launcher.finish()
    assert [launcher.stdout(rank) for rank in range(3)] == [b"one\n", b"two\n", b"thr\n"]


def test_stdin_that_nobody_reads_stops_nothing(machine: Machine) -> None:
    launcher = Launcher(machine, ["true"], input="all")
    launcher.go()
    _feed(launcher, b"x" * (2 << 20))
    assert set(launcher.finish().values()) == {0}


def test_stdin_waits_for_a_slow_reader(machine: Machine) -> None:
    launcher = Launcher(machine, ["sleep", "100"], nodes=1, input="all")
    launcher.go()
    launcher.feed(b"x" * (256 << 10))
    with pytest.raises(TimeoutError):
        while True:
            launcher.read(0.3)
    granted = sum(m["bytes"] for m in launcher.messages if m["op"] == "credit")
    assert granted <= 64 << 10, "credit for what the pipe took, no more"
    launcher.send({"op": "kill"})
    launcher.finish()


def _feed(launcher: Launcher, data: bytes) -> None:
    """Send ``data`` on credit, then eof."""
    credit, sent = 256 << 10, 0
    while sent < len(data):
        if credit:
            part = data[sent : sent + min(credit, 100_000)]
            launcher.feed(part)
            sent += len(part)
            credit -= len(part)
        else:
            credit += launcher.until("credit")["bytes"]
    launcher.send({"op": "eof"})


def test_output_of_each_stream_keeps_its_order(machine: Machine) -> None:
    _, launcher = run(machine, ["seq", "200000"], per_node=2)
    expected = "".join(f"{i}\n" for i in range(1, 200001)).encode()
    assert all(bytes(launcher.output[rank, STDOUT]) == expected for rank in range(8))
    assert processes.start_time(os.getpid()) > 0

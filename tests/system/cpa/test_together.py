"""Two CPAs over one database, crowds of clients, kills in the middle, clients that go away."""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from agents.link.client import Unreachable
from agents.linux.processes import start_time
from agents.wire.control import Message, control
from agents.wire.errors import AgentError
from agents.wire.messages import hello
from db.store.sqlite_lock import WriterLock
from tests.support.allocations import allocation, finish
from tests.support.daemons import Daemons, Make, on_both_databases
from tests.support.waiting import PATIENCE_S, wait_until


@pytest.fixture
def two(daemons: Make) -> Daemons:
    """Two CPAs, 64 processors on 4 nodes."""
    return daemons(64, 4).begin(cpas=2)


def crowd(works: list[Callable[[], Any]]) -> list[Any]:
    """Every work in a thread of its own, begun together; what each returned or raised."""
    results: list[Any] = [None] * len(works)
    gate = threading.Barrier(len(works))

    def run(number: int) -> None:
        gate.wait()
        try:
            results[number] = works[number]()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    return results


def processors(granted: Message) -> list[int]:
    return [each for node in granted["nodes"] for each in node["processors"]]


@on_both_databases
def test_200_parallel_requests_for_the_last_processors(two: Daemons) -> None:
    draw = random.Random(4)
    sizes = [draw.randint(1, 4) for _ in range(200)]

    def ask(number: int) -> Message:
        with two.client(f"cpa-{number % 2}") as client:
            return client.call(allocation(sizes[number]))

    with two.client() as client:
        client.call(allocation(32))  # half of the machine is taken already
    results = crowd([lambda number=number: ask(number) for number in range(200)])  # type: ignore[misc]
    granted = [result for result in results if isinstance(result, dict)]
    errors = [result for result in results if not isinstance(result, dict)]
    times = Counter(each for one in granted for each in processors(one))
    assert max(times.values()) == 1 and len(times) == 32, "no processor twice, and none left over"
    assert len(errors) == 200 - len(granted)
    for error in errors:
        assert isinstance(error, AgentError) and error.code == "unavailable", error
        asked, free = (int(word) for word in error.message.split() if word.isdigit())
        assert free < asked <= 4
    for one in granted:
        assert len(processors(one)) == len([p for p, owner in two.owners().items() if owner == one["launcher"]])
    assert Counter(two.owners().values()) == Counter(
        {one["launcher"]: len(processors(one)) for one in granted} | {min(two.owners().values()): 32}
    )


def test_what_a_command_has_changed_is_announced_by_every_cpa(two: Daemons) -> None:
    """Commands tell the first CPA that answers; the RCA may be connected to the other one."""
    with two.client("cpa-1") as rca:
        rca.call({"op": "nodes_out", "failed_s": 60.0})
        with two.client("cpa-0") as command:
            command.call({"op": "nodes_moved"})
        assert rca.receive() == {"notice": "nodes_out"}


@on_both_databases
def test_churn_over_two_cpas_leaves_nothing(two: Daemons) -> None:
    def live(number: int) -> int:
        draw = random.Random(number)
        served = 0
        with two.client(f"cpa-{number % 2}") as client:
            tries = 0
            while tries < 6 or served < 2:
                tries += 1
                try:
                    got = client.call(allocation(draw.randint(1, 40)))
                except AgentError as error:
                    assert error.code == "unavailable"
                    continue
                owners = {p for p, owner in two.owners().items() if owner == got["launcher"]}
                assert owners == set(processors(got))
                client.call(finish(got))
                served += 1
        return served

    served = crowd([lambda number=number: live(number) for number in range(6)])  # type: ignore[misc]
    assert all(isinstance(each, int) for each in served), served
    assert two.owners() == {}
    assert two.rows("SELECT COUNT(*) FROM `partition` WHERE ended_at IS NULL") == [(0,)]


@on_both_databases
def test_a_cpa_killed_in_the_middle_and_the_request_repeated_to_the_other(two: Daemons) -> None:
    keys = [os.urandom(16).hex() for _ in range(24)]
    under_way = threading.Semaphore(0)

    def ask(key: str) -> Message:
        try:
            with two.client("cpa-0") as client:
                under_way.release()
                return client.call(allocation(2, key=key))
        except Unreachable:  # what yod does: the other one, under the same key
            with two.client("cpa-1") as client:
                return client.call(allocation(2, key=key))

    def kill() -> None:
        for _ in range(5):
            under_way.acquire()
        two.kill("cpa-0")

    *results, _ = crowd([*(lambda key=key: ask(key) for key in keys), kill])  # type: ignore[misc]
    assert all(isinstance(each, dict) for each in results), results
    assert two.rows("SELECT COUNT(*) FROM launcher") == [(24,)], "one launcher for each key, however often asked"
    times = Counter(each for one in results for each in processors(one))
    assert max(times.values()) == 1 and sum(times.values()) == 48
    two.start("cpa-0")  # over the socket that the killed one left
    with two.client("cpa-0") as client:
        for one in results:
            client.call(finish(one))
    assert two.owners() == {}


# --- clients that are gone


def test_a_client_gone_before_its_request_was_served_is_not_served(two: Daemons) -> None:
    two.kill("cpa-0", signal.SIGSTOP)
    with two.client("cpa-0") as client:
        client.tell(dict(allocation(8), id=1))
    with two.client("cpa-0") as later:
        two.kill("cpa-0", signal.SIGCONT)
        later.call({"op": "idle"})
    assert two.rows("SELECT COUNT(*) FROM launcher") == [(0,)]
    assert "not_served" in {line["event"] for line in two.log("cpa-0")}


@pytest.mark.load_sensitive(reason="the lock is held for less than the 2 s after which a CPA gives up")
def test_a_client_gone_after_the_commit_loses_what_it_got_at_once(make_daemons: Make) -> None:
    one = make_daemons(64, 4).begin()
    lock = WriterLock(f"{one.state}/mesh.db.lock")
    lock.acquire(1.0)  # holds the CPA inside its transaction until the client is gone
    try:
        client = one.client("cpa-0")
        client.tell(dict(allocation(8), id=1))
        request = {"op": "partition_create", "key": "a" * 32, "batch_job": "1", "size": 4}
        wait_until(lambda: is_busy(one), "the CPA is in its transaction")
        client.close()
    finally:
        lock.close()
    with one.client("cpa-0") as later:
        later.call({"op": "idle"})
        assert one.rows("SELECT state, reason FROM launcher") == [("ended", "its client was gone before the reply")]
        assert one.owners() == {}
        assert later.call(request)["partition"] == 2


def is_busy(daemons: Daemons) -> bool:
    """Whether a CPA is inside a request: another one that asks for nothing but a look is not answered."""
    with daemons.client("cpa-0", timeout_s=0.2) as client:
        try:
            client.call({"op": "idle"})
        except Unreachable:
            return True
        return False


# --- waiting


class Waiting:
    """A client that waits for its allocation in a thread."""

    def __init__(
        self, daemons: Daemons, cpa: str, size: int, key: str = "", wait_s: float = PATIENCE_S, pid: int = 0
    ) -> None:
        self.client = daemons.client(cpa)
        self.request = allocation(size, key=key, wait_s=wait_s, pid=pid)
        self.got: Any = None
        self.at = 0.0
        before = daemons.rows("SELECT COUNT(*) FROM waiting")[0][0]
        self.thread = threading.Thread(target=self._wait)
        self.thread.start()
        if not key:
            in_line = lambda: daemons.rows("SELECT COUNT(*) FROM waiting")[0][0] > before  # noqa: E731
            wait_until(in_line, "the request is in the line")

    def _wait(self) -> None:
        try:
            self.got = self.client.call(self.request)
        except (AgentError, OSError) as error:
            self.got = error
        self.at = time.monotonic()

    def gone(self) -> None:
        """As a client that is killed."""
        self.client.sock.shutdown(socket.SHUT_RDWR)
        self.client.close()
        self.thread.join(PATIENCE_S)

    def served(self) -> Message:
        self.thread.join(PATIENCE_S)
        assert isinstance(self.got, dict), self.got
        return self.got


@on_both_databases
def test_waiting_requests_are_served_first_in_first_out_over_both_cpas(two: Daemons) -> None:
    with two.client() as client:
        holder = client.call(allocation(64))
        line = [Waiting(two, f"cpa-{number % 2}", size) for number, size in enumerate([64, 40, 24, 64])]
        client.call(finish(holder))
        first = line[0].served()
        assert [each.got for each in line[1:]] == [None] * 3
        client.call(finish(first))
        second, third = line[1].served(), line[2].served()
        assert not set(processors(second)) & set(processors(third)) and line[3].got is None
        client.call(finish(third))
        client.call(finish(second))
        client.call(finish(line[3].served()))
    at = [each.at for each in line]
    assert at[0] < min(at[1:3]) and max(at[1:3]) < at[3], "the two in the middle are granted by one transaction"
    assert two.rows("SELECT COUNT(*) FROM waiting") == [(0,)] and two.owners() == {}


def test_nobody_overtakes_a_large_request_at_the_head_of_the_line(two: Daemons) -> None:
    with two.client() as client:
        holder = client.call(allocation(60))
        large = Waiting(two, "cpa-0", 64)
        small = Waiting(two, "cpa-1", 1)
        with pytest.raises(AgentError, match="came before"):
            client.call(allocation(1))
        assert small.got is None
        client.call(finish(holder))
        client.call(finish(large.served()))
        client.call(finish(small.served()))


@on_both_databases
def test_a_client_that_dies_while_it_waits_leaves_the_line(two: Daemons) -> None:
    with two.client() as client:
        holder = client.call(allocation(64))
        dying = Waiting(two, "cpa-0", 64)
        next_one = Waiting(two, "cpa-1", 64)
        dying.gone()
        wait_until(lambda: two.rows("SELECT COUNT(*) FROM waiting") == [(1,)], "it has left the line")
        client.call(finish(holder))
        client.call(finish(next_one.served()))
    assert two.owners() == {} and two.rows("SELECT COUNT(*) FROM launcher") == [(2,)]


@on_both_databases
def test_a_lost_launcher_leaves_the_line_though_its_cpa_died_too(two: Daemons) -> None:
    other = subprocess.Popen([sys.executable, "-P", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with two.client("cpa-1") as client:
            holder = client.call(allocation(64))
            orphan = Waiting(two, "cpa-0", 64, pid=other.pid)
            started = start_time(other.pid)
            two.kill("cpa-0")
            next_one = Waiting(two, "cpa-1", 64)
            event = {"op": "launcher_lost", "login": "login1", "pid": other.pid, "pid_started": started, "reason": ""}
            client.call(event)
            client.call(finish(holder))
            client.call(finish(next_one.served()))
            orphan.thread.join(PATIENCE_S)
            assert isinstance(orphan.got, Unreachable)
    finally:
        other.kill()
        other.communicate()


@on_both_databases
def test_who_waited_at_a_killed_cpa_keeps_his_place_at_another(two: Daemons) -> None:
    with two.client("cpa-1") as client:
        holder = client.call(allocation(64))
        first = Waiting(two, "cpa-0", 64)
        second = Waiting(two, "cpa-1", 64)
        two.kill("cpa-0")
        first.thread.join(PATIENCE_S)
        assert isinstance(first.got, Unreachable)
        again = Waiting(two, "cpa-1", 64, key=first.request["key"])
        wait_until(lambda: two.log("cpa-1")[-1].get("event") == "allocate", "the request has been repeated")
        client.call(finish(holder))
        client.call(finish(again.served()))
        client.call(finish(second.served()))
        assert again.at < second.at


def test_a_second_connection_of_the_same_client_outlives_the_first(two: Daemons) -> None:
    with two.client("cpa-1") as client:
        holder = client.call(allocation(64))
        first = Waiting(two, "cpa-0", 64)
        again = Waiting(two, "cpa-1", 64, key=first.request["key"])
        wait_until(lambda: any(line["event"] == "waits" for line in two.log("cpa-1")), "it waits at both")
        first.gone()  # cpa-0 takes the row out, though its client lives on at cpa-1
        wait_until(lambda: two.rows("SELECT COUNT(*) FROM waiting") == [(1,)], "and it is in the line")
        client.call(finish(holder))
        client.call(finish(again.served()))


def test_a_request_waits_no_longer_than_it_wanted_to(two: Daemons) -> None:
    with two.client() as client:
        client.call(allocation(60))
        began = time.monotonic()
        short = Waiting(two, "cpa-1", 8, wait_s=0.8)
        short.thread.join(PATIENCE_S)
        assert isinstance(short.got, AgentError) and short.got.code == "unavailable", short.got
        assert short.got.message == "8 processors asked for, 4 are free"
        assert short.at - began > 0.7
        wait_until(lambda: two.rows("SELECT COUNT(*) FROM waiting") == [(0,)], "the line is empty")
        with pytest.raises(AgentError, match="65 processors asked for"):
            client.call(allocation(65, wait_s=3600.0))  # no waiting will help


def test_a_full_batch_partition_holds_up_nobody_outside(two: Daemons) -> None:
    with two.client() as client:
        made = client.call({"op": "partition_create", "key": "e" * 32, "batch_job": "42.pbs", "size": 4})
        inside = {"partition": made["partition"], "cookie": made["allocation_cookie"]}
        holder = client.call(allocation(4, **inside))
        with two.client("cpa-1") as waits:
            waits.tell(dict(allocation(2, wait_s=15.0, **inside), id=5))
            wait_until(lambda: two.rows("SELECT COUNT(*) FROM waiting") == [(1,)], "it waits inside")
            client.call(finish(client.call(allocation(60))))
            client.call(finish(holder))
            assert processors(waits.receive()) == [0, 1]


# --- what is not a request


def raw(daemons: Daemons) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(5)
    sock.connect(str(daemons.run / "cpa-0.sock"))
    return sock


def until_closed(sock: socket.socket) -> bytes:
    received = b""
    try:
        while data := sock.recv(65536):
            received += data
    except ConnectionResetError:
        pass
    return received


HELLO = control(hello("admin"))


#: What breaks the protocol.
BROKEN = {
    "http": b"GET / HTTP/1.0\r\n\r\n",
    "too long": b"\x00\xff\xff\xff\xff",
    "unknown kind": b"\x07\x00\x00\x00\x01x",
    "no hello, empty": b"\x00\x00\x00\x00\x02{}",
    "no hello, a request": control({"op": "idle", "id": 1}),
    "an empty hello": control({"op": "hello"}),
    "a wrong hello": control({"op": "hello", "protocol": "1", "role": []}),
    "another protocol": control({"op": "hello", "protocol": 99, "role": "admin"}),
    "another role": control({"op": "hello", "protocol": 1, "role": "emperor"}),
    "a list": HELLO + b"\x00\x00\x00\x00\x03[1]",
    "NaN": HELLO + b"\x00\x00\x00\x00\x0b" + b'{"op": NaN}',
    "a key twice": HELLO + b"\x00\x00\x00\x00\x0f" + b'{"a": 1,"a": 2}',
    "stdin": HELLO + b"\x01\x00\x00\x00\x01x",
    "nested deeply": HELLO + b"\x00\x00\x01\x00\x00" + b"[" * 65536,
}


@pytest.fixture
def one(daemons: Make) -> Daemons:
    """One CPA, 8 processors on 2 nodes."""
    return daemons(8, 2).begin()


def test_a_connection_that_breaks_the_protocol_is_closed_and_hurts_nobody(one: Daemons) -> None:
    with one.client() as beside:
        for what, sent in BROKEN.items():
            with raw(one) as sock:
                sock.sendall(sent)
                until_closed(sock)
                beside.call(finish(beside.call(allocation(1))))
            assert one.processes["cpa-0"].poll() is None and one.stderr("cpa-0") == "", what


def test_wrong_requests_are_refused_and_the_connection_goes_on(one: Daemons) -> None:
    wrong: list[tuple[Message, str]] = [
        ({"op": "format_disk"}, "unknown_op"),
        ({"op": "allocate"}, "invalid"),
        ({**allocation(1), "size": "4"}, "invalid"),
        ({**allocation(1), "size": True}, "invalid"),
        ({**allocation(1), "size": 1.5}, "invalid"),
        ({**allocation(1), "pid": 1 << 70}, "invalid"),
        ({**allocation(1), "command": "a\0b" * 100_000}, ""),
        ({"op": "started", "launcher": 1, "cookie": "", "ranks": ["x"]}, "invalid"),
        ({"op": "finish", "launcher": 99, "cookie": "", "exit_status": 0}, "expired"),
        ({"op": "partition_destroy", "partition": 99, "cookie": "1"}, "expired"),
    ]
    with one.client() as client:
        for request, code in wrong:
            try:
                client.call(request)
                answered = ""
            except AgentError as error:
                answered = error.code
            assert answered == code, request["op"]
        assert client.call({"op": "idle"})["partitions"] == 1
    assert one.stderr("cpa-0") == "" and "fault" not in {line["event"] for line in one.log("cpa-0")}


def test_a_client_that_never_reads_is_let_go_and_holds_up_nobody(one: Daemons) -> None:
    asking = control({"op": "allocate" + "x" * 200, "id": 1}) * 500  # each is answered with more than it costs

    def flood(mute: socket.socket) -> None:
        try:
            mute.sendall(HELLO)
            for _ in range(800):
                mute.sendall(asking)
        except OSError:
            pass

    with raw(one) as mute, one.client() as beside:
        mute.settimeout(20)
        flooding = threading.Thread(target=flood, args=(mute,))
        flooding.start()
        for _ in range(5):
            beside.call(finish(beside.call(allocation(1))), timeout_s=5.0)
        wait_until(lambda: any("never reads" in line.get("reason", "") for line in one.log("cpa-0")), "it is let go")
        flooding.join(PATIENCE_S)
        beside.call({"op": "idle"})
    with open(f"/proc/{one.processes['cpa-0'].pid}/status") as file:
        peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    assert peak < 160 << 10, f"{peak} KiB"

"""An RCA between real launchers, real CPAs and a real clean-up: what dies is noticed, and cleared away."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agents.link.client import Client
from agents.linux.processes import start_time
from agents.wire.control import Message
from agents.wire.errors import AgentError
from db.allocation import waiting_requests
from tests.support.allocations import LOGIN, finish
from tests.support.daemons import Daemons, Make
from tests.support.waiting import PATIENCE_S, silence, wait_until

Launch = Callable[..., "Launched"]


def begin(daemons: Daemons, size: int, *flags: str) -> "subprocess.Popen[bytes]":
    """A small launcher, which may have to wait for its processors."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.support.small_launcher", str(daemons.run), str(size), *flags],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


class Launched:
    """A small launcher that has its processors."""

    def __init__(self, daemons: Daemons, size: int, *flags: str) -> None:
        self.process = begin(daemons, size, *flags)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the launcher got nothing"
        self.got: dict[str, Any] = json.loads(line)
        self.launcher: int = self.got["launcher"]

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Let it end in its own way; its exit status."""
        self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode


DAEMONS = ("cpa-0", "cpa-1", "rca")
#: The nodes have no PCTs here, and a test may outlive the time an RCA gives them to register.
TIMES = {"suspect_s": silence(0.6), "down_s": silence(1.2), "silent_s": silence(1.5), "register_again_s": 86_400.0}


@pytest.fixture
def mesh_of_its_own(make_daemons: Make, tmp_path: Path) -> Daemons:
    """For a test that changes settings, or leaves nodes or the RCA other than they were."""
    return begin_daemons(configured(make_daemons, tmp_path))


def configured(make: Make, folder: Path) -> Daemons:
    """Make Daemons of 8 processors, with a clean-up that lists the launchers that it was run for."""
    script = folder / "cleanup"
    script.write_text(f"#!/bin/sh\necho $1 >> {folder}/cleaned\n")
    script.chmod(0o755)
    return make(8, 2, cleanup=str(script), **TIMES)


def begin_daemons(made: Daemons) -> Daemons:
    """Start two CPAs and an RCA, and tell them that the nodes are up; return ``made``."""
    for name in DAEMONS:
        made.start(name)
    made.nodes_up()
    return made


@pytest.fixture(scope="module")
def several() -> Iterator[list[Daemons]]:
    """The daemons of several tests, if one has begun them."""
    made: list[Daemons] = []
    yield made
    for one in made:
        one.close()


@pytest.fixture
def mesh_of_two(several: list[Daemons], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """The daemons of several tests: a test may kill them, but changes neither settings nor nodes.

    Logs and the list of clean-ups are empty when a test begins. A test may leave killed daemons and launchers behind;
    if it leaves anything else, the test fails and the next test starts new daemons.
    """
    with closed_on_failure(several):
        if not several:
            several.append(configured(Daemons, tmp_path_factory.mktemp("several")))
            begin_daemons(several[0])
        [one] = several
        for log in (one.state / "log").glob("*.jsonl"):
            os.truncate(log, 0)  # daemons append
        clean_ups(one).unlink(missing_ok=True)
    yield one
    with closed_on_failure(several):
        for name in DAEMONS:
            if one.processes[name].poll() is not None:
                one.start(name)
        wait_until(lambda: is_whole(one), lambda: f"all is as before the test: {status(one)}", step_s=0.1)


@contextmanager
def closed_on_failure(several: list[Daemons]) -> Iterator[None]:
    """Close the daemons of several tests if the block fails, so that the next test starts new ones."""
    try:
        yield
    except BaseException:
        while several:
            several.pop().close()
        raise


def clean_ups(daemons: Daemons) -> Path:
    """The file with the launchers that a clean-up was run for."""
    return Path(str(json.loads(daemons.config.read_text())["cleanup"])).with_name("cleaned")


def is_whole(daemons: Daemons) -> bool:
    """Whether nobody has or waits for a processor, and every node is up."""
    told = status(daemons)
    up = daemons.rows("SELECT DISTINCT state FROM node") == [("up",)]
    return up and not (told["events"] or told["launchers"] or daemons.owners() or waiting(daemons))


@pytest.fixture
def launch(mesh_of_two: Daemons) -> Iterator[Launch]:
    """``launch(size, *flags)`` starts a small launcher; it ends with the test."""
    yield from launches(mesh_of_two)


@pytest.fixture
def launch_alone(mesh_of_its_own: Daemons) -> Iterator[Launch]:
    """The same in a mesh of the test's own."""
    yield from launches(mesh_of_its_own)


def launches(daemons: Daemons) -> Iterator[Launch]:
    started: list[Launched] = []

    def start(size: int, *flags: str) -> Launched:
        started.append(Launched(daemons, size, *flags))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        if one.process.stdin is not None and not one.process.stdin.closed:
            one.process.communicate()


def ended(daemons: Daemons, launcher: int) -> tuple[Any, ...]:
    """State, abnormal, and reason of a launcher."""
    (row,) = daemons.rows(f"SELECT state, abnormal, reason FROM launcher WHERE id = {launcher}")
    return row


def give_back(daemons: Daemons, one: Launched) -> None:
    """Finish a launch whose launcher has unregistered."""
    with daemons.client() as client:
        client.call(finish(one.got))


def nothing_left(daemons: Daemons) -> None:
    wait_until(lambda: not daemons.owners(), "its processors are free")
    assert daemons.rows("SELECT COUNT(*) FROM `partition` WHERE ended_at IS NULL") == [(0,)]


def status(daemons: Daemons) -> Message:
    with daemons.client("rca") as client:
        return client.call({"op": "status"})


def test_a_killed_launcher_is_cleared_away(mesh_of_two: Daemons, launch: Launch) -> None:
    one, other = launch(4), launch(2)
    one.kill()
    wait_until(lambda: len(mesh_of_two.owners()) == 2, "the processors of the killed one are free")
    state, abnormal, reason = ended(mesh_of_two, one.launcher)
    assert (state, abnormal) == ("ended", 1) and not reason.startswith("silent"), reason
    assert ended(mesh_of_two, other.launcher)[0] == "pending"
    assert clean_ups(mesh_of_two).read_text() == f"{one.launcher}\n"
    told = [line for line in mesh_of_two.log("rca") if line["event"] == "launcher_lost"]
    assert [line["launcher"] for line in told] == [one.launcher]


def test_a_launcher_that_unregisters_is_left_alone(mesh_of_two: Daemons, launch: Launch) -> None:
    one = launch(4)
    assert [each["launcher"] for each in status(mesh_of_two)["launchers"]] == [one.launcher]
    assert one.end() == 0
    wait_until(lambda: status(mesh_of_two)["launchers"] == [], "it is gone")
    assert status(mesh_of_two)["events"] == 0 and not clean_ups(mesh_of_two).exists()
    assert ended(mesh_of_two, one.launcher)[0] == "pending"  # its finish was its own affair
    give_back(mesh_of_two, one)


def test_killed_while_the_rca_is_down(mesh_of_two: Daemons, launch: Launch) -> None:
    one = launch(8)
    mesh_of_two.kill("rca")
    one.kill()
    one.process.wait()
    mesh_of_two.start("rca")
    nothing_left(mesh_of_two)


def test_killed_but_not_yet_waited_for_while_the_rca_is_down(mesh_of_two: Daemons, launch: Launch) -> None:
    one = launch(8)
    mesh_of_two.kill("rca")
    one.kill()  # a zombie: nobody has waited for it
    mesh_of_two.start("rca")
    nothing_left(mesh_of_two)


def test_killed_while_every_cpa_is_down(mesh_of_two: Daemons, launch: Launch) -> None:
    one = launch(8)
    mesh_of_two.kill("cpa-0")
    mesh_of_two.kill("cpa-1")
    one.kill()
    wait_until(lambda: status(mesh_of_two)["events"] == 1, "the RCA keeps the event")
    mesh_of_two.start("cpa-1")
    nothing_left(mesh_of_two)


def test_killed_while_everybody_is_down(mesh_of_two: Daemons, launch: Launch) -> None:
    one = launch(8)
    for name in ("cpa-0", "cpa-1", "rca"):
        mesh_of_two.kill(name)
    one.kill()
    for name in ("rca", "cpa-0"):
        mesh_of_two.start(name)
    nothing_left(mesh_of_two)


@pytest.fixture
def in_line(mesh_of_two: Daemons, launch: Launch) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Three small launchers that wait, in order, while the whole machine is in use."""
    launch(8)
    began: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(3):
            began.append(begin(mesh_of_two, 1, "waits"))
            wait_until(lambda: len(waiting(mesh_of_two)) > number, "it is in line")  # noqa: B023
        yield began
    finally:
        for one in began:
            one.kill()
            one.communicate()


def waiting(daemons: Daemons) -> list[int]:
    """The processes that wait, in order."""
    return [pid for (pid,) in daemons.rows("SELECT pid FROM waiting ORDER BY id")]


@pytest.mark.parametrize("first", ["rca", "cpa-0"])
def test_who_waited_and_was_killed_while_everybody_was_down_stands_before_nobody(
    mesh_of_two: Daemons, in_line: list["subprocess.Popen[bytes]"], first: str
) -> None:
    for name in ("rca", "cpa-0", "cpa-1"):
        mesh_of_two.kill(name)
    for one in in_line[:2]:
        one.kill()  # nobody sees it: neither the CPA that holds its connection nor the RCA
        one.wait()
    assert waiting(mesh_of_two) == [one.pid for one in in_line]
    for name in ("rca", "cpa-0") if first == "rca" else ("cpa-0", "rca"):
        mesh_of_two.start(name)
    wait_until(lambda: waiting(mesh_of_two) == [in_line[2].pid], "only who lives is in line")


def test_a_request_that_is_put_in_line_after_its_launcher_was_lost_leaves_it(mesh_of_two: Daemons) -> None:
    # what a CPA did whose transaction ended after all that was said of the process, and that was killed then
    with subprocess.Popen(["true"]) as gone:
        pass
    wait = waiting_requests.Wait(os.urandom(16).hex(), None, os.getuid(), "ada", LOGIN, gone.pid, 1, 1, {}, 600.0)
    waiting_requests.enqueue(mesh_of_two.store, wait)
    mesh_of_two.kill("cpa-0")
    mesh_of_two.start("cpa-0")  # by the keeper
    wait_until(lambda: not waiting(mesh_of_two), "it is out of the line")


def test_killed_together_with_the_cpa_that_the_rca_talks_to(mesh_of_its_own: Daemons, launch_alone: Launch) -> None:
    one = launch_alone(8)
    connected = [line for line in mesh_of_its_own.log("rca") if line["event"] == "cpa_connected"][-1]["socket"]
    mesh_of_its_own.kill(Path(connected).name.removesuffix(".sock"))
    one.kill()
    nothing_left(mesh_of_its_own)


def test_many_killed_at_once(mesh_of_two: Daemons, launch: Launch) -> None:
    every = [launch(1) for _ in range(8)]
    for one in every:
        one.kill()
    nothing_left(mesh_of_two)
    cleaned = [int(word) for word in clean_ups(mesh_of_two).read_text().split()]
    assert sorted(cleaned) == sorted(one.launcher for one in every)


def test_launchers_outlive_a_restart_of_the_rca(mesh_of_its_own: Daemons, launch_alone: Launch, tmp_path: Path) -> None:
    one = launch_alone(4)
    other = launch_alone(2, "no-register")
    mesh_of_its_own.kill("rca")
    mesh_of_its_own.configure(register_again_s=silence(1.5))
    mesh_of_its_own.start("rca")
    again = lambda: [each["launcher"] for each in status(mesh_of_its_own)["launchers"]] == [one.launcher]  # noqa: E731
    wait_until(again, "it has registered again")
    wait_until(lambda: len(mesh_of_its_own.owners()) == 4, "the time to register again is over: of another it was")
    assert ended(mesh_of_its_own, one.launcher)[0] == "pending"
    assert (tmp_path / "cleaned").read_text() == f"{other.launcher}\n"


def test_a_launcher_that_never_registers_again_is_cleared_away(mesh_of_its_own: Daemons, launch_alone: Launch) -> None:
    one = launch_alone(4, "no-register")
    mesh_of_its_own.kill("rca")
    mesh_of_its_own.configure(register_again_s=silence(1.5))
    since = time.monotonic()
    mesh_of_its_own.start("rca")
    wait_until(lambda: not mesh_of_its_own.owners(), "it has been given up")
    assert time.monotonic() - since > silence(1.5), "it had its time to register again"
    assert ended(mesh_of_its_own, one.launcher)[2] == f"not registered within {silence(1.5):g} s"


def test_a_launcher_that_runs_has_as_long_to_register_as_to_beat(
    mesh_of_its_own: Daemons, launch_alone: Launch
) -> None:
    one = launch_alone(4, "no-register")
    mesh_of_its_own.kill("rca")
    mesh_of_its_own.configure(register_again_s=silence(0.5), silent_s=silence(3.0))
    mesh_of_its_own.start("rca")
    wait_until(lambda: not mesh_of_its_own.owners(), "it has been given up")
    assert ended(mesh_of_its_own, one.launcher)[2] == f"not registered within {silence(3.0):g} s"


def test_a_silent_launcher_is_lost_and_a_stopped_one_is_not(mesh_of_two: Daemons, launch: Launch) -> None:
    silent, stopped = launch(2, "no-beat"), launch(2)
    stopped.kill(signal.SIGSTOP)
    wait_until(lambda: len(mesh_of_two.owners()) == 2, "the silent one has been cleared away")
    assert ended(mesh_of_two, silent.launcher)[2].startswith("silent for")
    launch(4, "no-beat")
    wait_until(lambda: len(mesh_of_two.owners()) == 2, "the stopped one has been silent for longer than this one too")
    assert ended(mesh_of_two, stopped.launcher)[0] == "pending"
    stopped.kill(signal.SIGCONT)
    assert stopped.end() == 0  # and it is still registered
    give_back(mesh_of_two, stopped)


def test_nobody_is_lost_because_the_rca_itself_was_stopped(mesh_of_two: Daemons, launch: Launch) -> None:
    one = launch(4)
    mesh_of_two.kill("rca", signal.SIGSTOP)
    since = time.monotonic()
    wait_until(lambda: time.monotonic() > since + silence(1.5) + 1.0, "longer than a launcher may be silent")
    mesh_of_two.kill("rca", signal.SIGCONT)
    silent = launch(2, "no-beat")
    wait_until(lambda: ended(mesh_of_two, silent.launcher)[0] == "ended", "it has looked around")
    wait_until(lambda: status(mesh_of_two)["events"] == 0, "and lost nobody else")
    assert ended(mesh_of_two, one.launcher)[0] == "pending"


def test_a_finish_left_with_the_rca_reaches_a_cpa_that_comes_later(mesh_of_two: Daemons, launch: Launch) -> None:
    one = launch(4, "finish-by-rca")
    mesh_of_two.kill("cpa-0")
    mesh_of_two.kill("cpa-1")
    assert one.end() == 0
    assert status(mesh_of_two)["events"] == 1
    mesh_of_two.start("cpa-0")
    nothing_left(mesh_of_two)
    assert ended(mesh_of_two, one.launcher) == ("ended", 0, "")
    assert one.got["cookie"] not in (mesh_of_two.state / "log" / "rca.jsonl").read_text()


def test_an_unclean_launcher_is_tried_again_until_it_is_clean(make_daemons: Make, tmp_path: Path) -> None:
    gate, tries, script = tmp_path / "gate", tmp_path / "tries", tmp_path / "cleanup"
    script.write_text(f"#!/bin/sh\necho try >> {tries}\ntest -e {gate}\n")
    script.chmod(0o755)
    made = make_daemons(8, 2, cleanup=str(script), register_again_s=120.0)  # the nodes have no PCTs here
    for name in ("cpa-0", "rca"):
        made.start(name)
    made.nodes_up()
    one = Launched(made, 4)
    one.kill()
    one.process.communicate()
    wait_until(lambda: tries.exists() and len(tries.read_text().split()) >= 2, "it is tried again")
    assert len(made.owners()) == 4 and status(made)["events"] == 1
    gate.touch()
    wait_until(lambda: not made.owners(), "clean at last")
    wait_until(lambda: status(made)["events"] == 0, "and acknowledged")


# --- nodes


class Pct:
    """The registration of a PCT, made by this process."""

    def __init__(self, daemons: Daemons, node: str, incarnation: int = 1) -> None:
        self.client = daemons.client("rca", "pct")
        spec = next(each for each in daemons.nodes if each.name == node)
        self.facts = {
            "node": node,
            "boot_id": "b00710",
            "incarnation": incarnation,
            "address": spec.address,
            "pid": os.getpid(),
            "processors": len(spec.processors),
        }
        self.client.call({"op": "register_node", **self.facts})
        self.beating = threading.Event()
        self.beating.set()
        self.over = False
        self.thread = threading.Thread(target=self._beat, daemon=True)
        self.thread.start()

    def _beat(self) -> None:
        seq = 0
        while not self.over:
            if self.beating.is_set():
                seq += 1
                try:
                    self.client.tell({"op": "beat", "seq": seq, "launches": 0})
                except (AgentError, OSError):
                    return
            time.sleep(0.1)

    def close(self) -> None:
        self.over = True
        self.thread.join()
        self.client.close()


def node_state(daemons: Daemons, node: str) -> str:
    return str(daemons.rows(f"SELECT state FROM node WHERE name = '{node}'")[0][0])


def test_a_node_is_suspect_then_down_then_up_again_as_its_pct_beats(mesh_of_its_own: Daemons) -> None:
    seen: list[str] = []

    def look(wanted: str) -> Callable[[], bool]:
        def probe() -> bool:
            state = node_state(mesh_of_its_own, "n1")
            if not seen or seen[-1] != state:
                seen.append(state)
            return state == wanted

        return probe

    pct = Pct(mesh_of_its_own, "n1", incarnation=2)
    try:
        wait_until(look("up"), "up")
        pct.beating.clear()
        wait_until(look("suspect"), "suspect")
        wait_until(look("down"), "down")
        pct.beating.set()
        wait_until(look("up"), "up again")
        assert seen == ["up", "suspect", "down", "up"]
    finally:
        pct.close()
    wait_until(look("down"), "down, its connection has ended")
    assert status(mesh_of_its_own)["nodes"][0] == {"node": "n1", "state": "down"}


def test_a_pct_that_restarts_at_once_is_never_down(mesh_of_its_own: Daemons) -> None:
    Pct(mesh_of_its_own, "n1", incarnation=2).close()
    again = Pct(mesh_of_its_own, "n1", incarnation=3)
    try:
        row = "SELECT incarnation FROM node WHERE name = 'n1'"
        wait_until(lambda: mesh_of_its_own.rows(row) == [(3,)], "the database knows the new one")
        since = time.monotonic()
        wait_until(lambda: time.monotonic() > since + 0.8, "longer than the grace")
        assert not [
            line for line in mesh_of_its_own.log("rca") if line["event"] == "node_down" and line["node"] == "n1"
        ]
        with mesh_of_its_own.client("rca", "pct") as old, pytest.raises(AgentError, match="newer PCT"):
            old.call({"op": "register_node", **again.facts, "incarnation": 2})
    finally:
        again.close()


def test_a_node_whose_pct_died_without_an_rca_is_down_after_a_while(mesh_of_its_own: Daemons) -> None:
    assert node_state(mesh_of_its_own, "n0") == "up"
    mesh_of_its_own.kill("rca")
    mesh_of_its_own.configure(register_again_s=silence(1.5))
    mesh_of_its_own.start("rca")
    pct = Pct(mesh_of_its_own, "n1")
    try:
        wait_until(lambda: node_state(mesh_of_its_own, "n0") == "down", "n0 never registered")
        assert node_state(mesh_of_its_own, "n1") == "up"
    finally:
        pct.close()


def test_a_cpa_that_comes_back_is_told_what_the_rca_knows(mesh_of_its_own: Daemons) -> None:
    mesh_of_its_own.kill("cpa-0")
    mesh_of_its_own.kill("cpa-1")
    pct = Pct(mesh_of_its_own, "n1", incarnation=7)
    try:
        mesh_of_its_own.start("cpa-0")
        row = "SELECT incarnation FROM node WHERE name = 'n1'"
        wait_until(lambda: mesh_of_its_own.rows(row) == [(7,)], "the node's new incarnation is known")
    finally:
        pct.close()


# --- what an RCA refuses


def refused(client: Client, message: Message) -> str:
    with pytest.raises(AgentError) as caught:
        client.call(message)
    return caught.value.code


def test_everybody_registers_himself_and_nobody_else(mesh_of_two: Daemons) -> None:
    me, started = os.getpid(), start_time(os.getpid())
    facts: Message = {"node": "n0", "boot_id": "b00710", "incarnation": 1, "address": "/x", "processors": 4}
    with mesh_of_two.client("rca", "launcher") as client:
        for pid, pid_started in ((1, start_time(1)), (me, started + 1), (me, 0), (me, -started), (1 << 40, 1)):
            client.call({"op": "register", "pid": pid, "pid_started": pid_started})
            known = client.call({"op": "status"})["launchers"]
            assert known == [{"pid": me, "pid_started": started, "launcher": None}], "as the kernel says"
            client.call({"op": "unregister"})
        assert refused(client, {"op": "register_node", "pid": 1, **facts}) == "denied"
        assert refused(client, {"op": "unregister"}) == "invalid"
        finish = {"op": "finish", "launcher": 1, "cookie": "0" * 16, "exit_status": 0}
        assert refused(client, finish) == "invalid"
        assert refused(client, {"op": "reboot"}) == "unknown_op"
        client.tell({"op": "beat", "seq": 1})  # from nobody: no reply to give, and nothing happens
        assert client.call({"op": "status"})["launchers"] == []


def test_a_process_has_one_registration(mesh_of_two: Daemons) -> None:
    """A thousand connections of one process would all be looked after; and that one was replaced loses nobody."""
    me = {"op": "register", "pid": os.getpid(), "pid_started": start_time(os.getpid())}
    with mesh_of_two.client("rca", "launcher") as first, mesh_of_two.client("rca", "launcher") as second:
        first.call(me)
        second.call(me)
        assert [one["pid"] for one in second.call({"op": "status"})["launchers"]] == [os.getpid()]
        with pytest.raises(AgentError):
            first.call({"op": "status"})
        second.call({"op": "unregister"})
    assert not [line for line in mesh_of_two.log("rca") if line["event"] == "launcher_lost"]


def test_one_connection_leaves_one_end_of_a_launch(mesh_of_its_own: Daemons) -> None:
    mesh_of_its_own.kill("cpa-0")
    mesh_of_its_own.kill("cpa-1")
    end = {"op": "finish", "cookie": "00", "exit_status": 0}
    with mesh_of_its_own.client("rca", "launcher") as client:
        client.call({"op": "register", "pid": os.getpid(), "pid_started": start_time(os.getpid())})
        client.call({**end, "launcher": 7})
        client.call({**end, "launcher": 7})  # said again
        assert refused(client, {**end, "launcher": 8}) == "invalid"
        assert client.call({"op": "status"})["events"] == 1


def test_a_second_rca_over_the_same_socket_says_so_and_ends(mesh_of_two: Daemons) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "agents.rca", "--config", str(mesh_of_two.config)], capture_output=True, text=True
    )
    assert done.returncode == 125 and "somebody listens" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not a keeper.json"),
        ("{}", "lacks 'mesh', 'login', 'run'"),
        ('{"run": 1, "state": "", "login": ""}', "lacks"),
    ],
)
@pytest.mark.parametrize("module", ["agents.rca", "agents.cpa"])
def test_a_wrong_configuration_is_one_clear_line(tmp_path: Path, module: str, text: str, says: str) -> None:
    config = tmp_path / "keeper.json"
    config.write_text(text)
    words = ["--name", "cpa-0"] if module == "agents.cpa" else []
    done = subprocess.run(
        [sys.executable, "-P", "-m", module, "--config", str(config), *words], capture_output=True, text=True
    )
    assert done.returncode == 2 and says in done.stderr and len(done.stderr.splitlines()) == 1


def test_an_idle_rca_is_small(mesh_of_its_own: Daemons) -> None:
    text = Path(f"/proc/{mesh_of_its_own.processes['rca'].pid}/smaps_rollup").read_text()
    pss = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    assert pss < 16 << 10, f"{pss} KiB"

"""Couriers that wait for the next fetcher: who is served by them, who is refused, and when they go."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.linux import processes
from agents.pct.node.daemon import MOST_HELPERS
from agents.wire.address import FETCH
from agents.wire.control import control
from agents.wire.messages import hello
from tests.support.far_pcts import FarMachine, Talk
from tests.support.pcts import kill_hard
from tests.support.waiting import freeze, wait_until

_launchers = itertools.count(1)


@pytest.fixture(scope="module")
def machine() -> Iterator[FarMachine]:
    with FarMachine(2) as made:
        yield made


@pytest.fixture
def launcher(machine: FarMachine) -> Iterator[int]:
    """A launch that runs on n0 alone."""
    load, common = machine.load(next(_launchers), argv=("/bin/sleep", "60"))
    talk = machine.launch(load, common, machine.credential(load, common))
    talk.until("ready")
    yield int(load["launcher"])
    talk.close()


def couriers(machine: FarMachine) -> list[int]:
    """The couriers of n0."""
    found = []
    for pid in processes.children(machine.processes["n0"].pid):
        try:
            name = Path(f"/proc/{pid}/comm").read_text()
        except OSError:
            continue  # it has ended meanwhile
        if name == "redmesh-courier\n" and processes.alive(pid):
            found.append(pid)
    return found


def fetch(machine: FarMachine, launcher: int, role: str = "pct", offset: int = 0, hint: bytes = FETCH) -> Talk:
    """Ask n0 for an image as a launch child of n1 does."""
    talk = Talk(machine.visit(machine.trust(role, "n1"), hint=hint))
    talk.sock.sendall(control(hello("child")) + wanted(launcher, offset))
    return talk


def wanted(launcher: int, offset: int = 0) -> bytes:
    """What is said behind the hello."""
    return control({"op": "fetch", "id": 1, "number": 0, "digest": "", "offset": offset, "launcher": launcher})


def carried(machine: FarMachine, launcher: int) -> bool:
    """Whether the launch child was asked, which does not give n1 what is another node's, and told so."""
    talk = fetch(machine, launcher)
    told = talk.until("error")["error"]["message"]
    talk.close()
    return "n1 is not a node of this launch" in told


def waiting(machine: FarMachine) -> int:
    """The one courier that n0 has, once it has nothing but its line to the PCT, and listens there."""

    def rests() -> bool:
        try:
            (pid,) = couriers(machine)
            sockets = [fd for fd in Path(f"/proc/{pid}/fd").iterdir() if str(fd.readlink()).startswith("socket:")]
        except (ValueError, OSError):
            return False
        return len(sockets) == 1 and processes.state(pid) == "S"

    wait_until(rests, "one courier waits")
    return couriers(machine)[0]


def test_the_same_courier_serves_the_next_fetcher_and_keeps_nothing(machine: FarMachine, launcher: int) -> None:
    assert carried(machine, launcher)
    first = waiting(machine)
    fds = Path(f"/proc/{first}/fd")
    for _ in range(4):
        assert carried(machine, launcher)
        assert waiting(machine) == first
    count = len(list(fds.iterdir()))
    assert carried(machine, launcher)
    wait_until(lambda: len(list(fds.iterdir())) == count, "it has let go of both ends")


@pytest.mark.parametrize("role", ["", "cpa", "rca"])
def test_it_refuses_whom_the_pct_refuses(machine: FarMachine, launcher: int, role: str) -> None:
    assert carried(machine, launcher)
    first, before = waiting(machine), len(machine.refusals())
    talk = fetch(machine, launcher, role)
    talk.until("error")
    talk.close()
    assert machine.refusals()[before:] == ["wrong_role" if role else "no_certificate"]
    assert machine.log()[-1]["peer"] == "127.0.0.1", "an operator can tell whom to ask"
    assert carried(machine, launcher) and first in couriers(machine)


def test_a_stranger_who_says_that_he_fetches_holds_up_nobody(machine: FarMachine, launcher: int) -> None:
    assert carried(machine, launcher)
    waiting(machine)
    stranger = machine.visit(machine.trust(), hint=FETCH)  # and says no more
    assert carried(machine, launcher)
    assert len(couriers(machine)) == 2
    stranger.close()
    wait_until(lambda: "handshake" in machine.refusals(), "the stranger is logged")
    waiting(machine)  # of two that are done one is kept
    assert carried(machine, launcher)


def test_strangers_never_have_all_couriers(machine: FarMachine, launcher: int) -> None:
    strangers = []
    for _ in range(MOST_HELPERS + 8):
        assert carried(machine, launcher)
        strangers.append(machine.visit(machine.trust(), hint=FETCH))  # takes the one that waits
    assert len(couriers(machine)) <= MOST_HELPERS // 2 + 2
    for stranger in strangers:
        stranger.close()
    waiting(machine)


@pytest.mark.parametrize("hint", [FETCH, b""], ids=["the courier", "the PCT"])
def test_an_offset_before_the_image_is_refused(machine: FarMachine, launcher: int, hint: bytes) -> None:
    assert carried(machine, launcher)
    waiting(machine)
    talk = fetch(machine, launcher, offset=-1, hint=hint)
    assert "before its first byte" in talk.until("error")["error"]["message"]
    talk.close()


@pytest.mark.parametrize("hint", [FETCH, b""], ids=["the courier", "the PCT"])
def test_who_came_before_the_certificates_changed_comes_again(machine: FarMachine, launcher: int, hint: bytes) -> None:
    assert carried(machine, launcher)
    old = waiting(machine)
    early = Talk(machine.visit(machine.trust("pct", "n1"), hint=hint))
    early.sock.sendall(control(hello("child")))
    time.sleep(0.2)  # it has been heard
    machine.authority.rotate(lambda _now: None)
    for name in machine.processes:
        machine.equip(name)
    early.sock.sendall(wanted(launcher))
    assert "connect anew" in early.until("error")["error"]["message"]
    early.close()
    assert old in couriers(machine)
    assert carried(machine, launcher)


def test_a_launch_that_is_not_there_leaves_the_courier_to_others(machine: FarMachine, launcher: int) -> None:
    assert carried(machine, launcher)
    first = waiting(machine)
    talk = fetch(machine, 999_999)
    assert not talk.read()  # it ends: the fetcher asks another node
    talk.close()
    assert carried(machine, launcher)
    assert waiting(machine) == first


def test_it_goes_with_its_pct_and_its_death_is_no_harm(machine: FarMachine, launcher: int) -> None:
    assert carried(machine, launcher)
    kill_hard(waiting(machine))
    assert carried(machine, launcher)
    last = waiting(machine)
    freeze(last)  # and does not even see that the PCT has gone
    machine.processes["n0"].terminate()
    machine.processes["n0"].wait()
    wait_until(lambda: not processes.alive(last), "it has gone too")

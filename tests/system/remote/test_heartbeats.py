"""A real RCA and CPA, and the datagrams of a node that this file plays: heard once, in order, from the node alone."""

import signal
import socket
import time
from collections.abc import Iterator

import pytest

from agents.wire import heartbeat as beat
from agents.wire import keys
from agents.wire.errors import WireError
from tests.support.addresses import address
from tests.support.daemons import MESH, Daemons
from tests.support.waiting import PATIENCE_S, freeze, silence, wait_until

MASTER = b"m" * 32
FIRST, SECOND = "b00710-00000001", "b00710-00000002"


class RemoteNode:
    """Says what it is told to, as a PCT would, to an RCA at ``place``."""

    def __init__(self, name: str, place: tuple[str, int], boot_id: str = FIRST) -> None:
        self.name, self.place, self.boot_id, self.incarnation = name, place, boot_id, 1
        self.key = keys.beat_key(keys.beat_master(MASTER, MESH), name)
        self.epoch = 0
        self.sequence = 1000
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def datagram(self, *, kind: int = beat.BEAT, flags: int = 0) -> bytes:
        """The next beat."""
        self.sequence += 1
        told = beat.Beat(
            self.name, self.boot_id, self.incarnation, self.sequence, kind=kind, flags=flags, epoch=self.epoch,
            facts=beat.Facts(processors=4, agent="0.1.0", address=f"tls://127.0.0.1:9/{self.name}"),
        )  # fmt: skip
        return told.encode(self.key)

    def send(self, datagram: bytes) -> None:
        """To the RCA."""
        self.sock.sendto(datagram, self.place)

    def answer(self, within_s: float = 0.3, to: int = 0) -> beat.Acknowledgement | None:
        """What the RCA says, if it does, to the beat of that sequence (0: any).

        A busy machine's answers to earlier beats, which were waited for no more, are passed over.
        """
        until = time.monotonic() + within_s
        while (left_s := until - time.monotonic()) > 0:
            self.sock.settimeout(left_s)
            try:
                said = beat.read_acknowledgement(self.sock.recv(beat.LONGEST), [self.key], self.boot_id)
            except TimeoutError:
                return None
            except WireError:
                continue
            if to in (0, said.sequence):
                return said
        return None

    def beat(self, flags: int = 0) -> int | None:
        """The RCA's view, after its greeting; None when it says nothing."""
        for _ in range(2):
            self.send(self.datagram(flags=flags))
            said = self.answer(to=self.sequence)
            if said is None or said.view != beat.GREET:
                return None if said is None else said.view
            self.epoch = said.epoch
        return beat.GREET

    def view(self, flags: int = 0) -> int:
        """The RCA's view, by its first answer; a busy machine's RCA may not have answered the first beats in time."""
        seen: list[int] = []

        def answered() -> bool:
            said = self.beat(flags)
            seen.extend([] if said is None else [said])
            return bool(seen)

        wait_until(answered, "the RCA answers")
        return seen[0]

    def close(self) -> None:
        self.sock.close()


@pytest.fixture
def place() -> tuple[str, int]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((address(1), 0))
        found: tuple[str, int] = probe.getsockname()
    return found


@pytest.fixture
def rca(place: tuple[str, int], request: pytest.FixtureRequest) -> Iterator[Daemons]:
    """An RCA and a CPA of a mesh with two nodes on other machines; its parameter is ``suspect_s``."""
    suspect_s = getattr(request, "param", 1.0)
    made = Daemons(8, 2)
    try:
        nodes = [
            {"id": n.id, "name": n.name, "processors": list(n.processors), "address": f"tls://127.0.0.1:9/{n.name}"}
            for n in made.nodes
        ]
        made.configure(nodes=nodes, rca=[f"{place[0]}:{place[1]}"], cpas=1, suspect_s=suspect_s, down_s=suspect_s + 1.0)
        trust = made.state / "trust"
        trust.mkdir(mode=0o700)
        (trust / "beat.key").write_bytes(keys.as_file([keys.beat_master(MASTER, MESH)]))
        made.start("cpa-0")
        made.start("rca")
        yield made
    finally:
        made.close()


@pytest.fixture
def node(rca: Daemons, place: tuple[str, int]) -> Iterator[RemoteNode]:
    """The node n0, up."""
    made = RemoteNode("n0", place)
    try:
        wait_until(lambda: made.beat() == beat.UP, "the RCA takes its beats")
        wait_until(lambda: state(rca) == "up", "it is up in the database")
        yield made
    finally:
        made.close()


def state(daemons: Daemons, name: str = "n0") -> str:
    return str(daemons.store.read("SELECT state FROM node WHERE name = ?", (name,))[0][0])


def told(daemons: Daemons, event: str) -> int:
    return sum(line["event"] == event and line.get("node") == "n0" for line in daemons.log("rca"))


def test_beats_that_come_twice_or_late_are_heard_once(rca: Daemons, node: RemoteNode) -> None:
    sent = [node.datagram() for _ in range(5)]
    for datagram in (sent[2], sent[0], sent[2], sent[4], sent[1], sent[3], sent[4]):
        node.send(datagram)
    for sequence in (node.sequence - 2, node.sequence):  # the third and the last: what was older by then is nothing
        said = node.answer(PATIENCE_S)
        assert said is not None and said.sequence == sequence
    assert told(rca, "node_suspect") == 0  # before the node is silent
    assert node.answer(1.0) is None
    assert told(rca, "node_up") == 1
    assert any("old" in line.get("reason", "") for line in rca.log("rca") if line["event"] == "beat_refused")


def test_what_was_recorded_brings_nobody_back(rca: Daemons, node: RemoteNode) -> None:
    """Neither the node's former life nor an RCA that has just started takes an old beat for a new one."""
    recorded = node.datagram()
    sequence = node.sequence
    node.send(recorded)
    assert node.answer(PATIENCE_S, sequence) is not None
    node.boot_id = SECOND
    wait_until(lambda: node.beat() == beat.UP, "it is up under another boot id")
    node.boot_id = FIRST  # an answer would be for that life
    node.send(recorded)
    assert node.answer(1.0, sequence) is None
    rca.kill("rca")
    rca.start("rca")

    def greeting() -> beat.Acknowledgement | None:
        node.send(recorded)
        return node.answer(1.0, sequence)

    answer = wait_until(greeting, "it answers")  # its socket for users is there before the one for nodes is
    assert answer is not None and answer.view == beat.GREET
    with rca.client("rca") as client:
        states = {entry["node"]: entry["state"] for entry in client.call({"op": "status"})["nodes"]}
    assert states.get("n0", "down") == "down"


def test_a_silent_node_is_given_up_and_comes_back_under_another_boot_id_alone(rca: Daemons, node: RemoteNode) -> None:
    wait_until(lambda: state(rca) == "suspect", "it is suspect")
    assert node.view() == beat.UP
    wait_until(lambda: state(rca) == "up", "a beat makes it up again")
    wait_until(lambda: state(rca) == "down", "it is down")
    for _ in range(3):
        assert node.view(beat.REGISTER) == beat.RESET
    rca.kill("rca")  # the next one knows nothing, the database does
    rca.start("rca")
    wait_until(lambda: node.beat(beat.REGISTER) == beat.RESET, "the new RCA has been told so")
    assert state(rca) == "down"
    node.boot_id = SECOND
    wait_until(lambda: node.beat(beat.REGISTER) == beat.UP, "another life is taken")
    wait_until(lambda: state(rca) == "up", "it is up")


def test_the_death_of_a_pct_is_noticed_at_once_and_the_next_one_is_welcome(rca: Daemons, node: RemoteNode) -> None:
    node.send(node.datagram(kind=beat.GONE))
    wait_until(lambda: state(rca) == "suspect", "it is given to nobody")
    late = node.datagram()
    node.incarnation = 2
    assert node.view() == beat.UP
    wait_until(lambda: state(rca) == "up", "it is up")
    node.send(late)
    assert node.answer() is None
    node.incarnation = 1
    node.send(node.datagram(kind=beat.GONE))  # of the former one: no news
    assert node.answer() is None and state(rca) == "up"


def test_a_way_that_leads_in_one_direction_is_none(rca: Daemons, node: RemoteNode) -> None:
    def unheard() -> bool:
        node.view(beat.UNHEARD)  # it is answered all the same
        return state(rca) == "suspect"

    wait_until(unheard, "it is suspect")
    assert node.view() == beat.UP
    wait_until(lambda: state(rca) == "up", "it is up")


#: A node is suspect if it is silent for so long. A busy machine may hold this file up for a part of it.
LONG_S = silence(3.0)


@pytest.mark.parametrize("rca", [LONG_S], ids=["long"], indirect=True)
def test_an_outage_of_the_cpa_makes_no_node_down(rca: Daemons, node: RemoteNode) -> None:
    rca.kill("cpa-0")
    until = time.monotonic() + LONG_S + 2.0
    while time.monotonic() < until:
        assert node.view() == beat.UP
        time.sleep(0.2)  # the next beat
    rca.start("cpa-0")
    wait_until(lambda: told(rca, "cpa_connected") or rca.log("rca")[-1]["event"], "a CPA is there")
    assert node.view() == beat.UP
    assert told(rca, "node_down") == told(rca, "node_suspect") == 0


def test_a_stranger_and_a_node_without_the_time_are_not_there(rca: Daemons, place: tuple[str, int]) -> None:
    other = RemoteNode("n1", place)
    stranger = RemoteNode("n1", place)
    stranger.key = b"x" * 32
    nobody = RemoteNode("n7", place)
    try:
        assert stranger.beat() is None and nobody.beat() is None
        assert other.beat(beat.TIMELESS) == beat.GREET
        assert state(rca, "n1") == "down"
        stopped = rca.processes["rca"]
        freeze(stopped.pid)
        for junk in (b"", b"RMB1", b"\0" * 2000, other.datagram()[:-1], b"RMB1" + b"\xff" * 100):
            other.send(junk)
        stopped.send_signal(signal.SIGCONT)
        wait_until(lambda: other.beat() == beat.UP, "what makes sense is heard behind what makes none")
    finally:
        for one in (other, stranger, nobody):
            one.close()

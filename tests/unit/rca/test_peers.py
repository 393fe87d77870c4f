"""RCAs of several login processors: what is made of one that does not answer, and what nodes are told of them."""

import itertools

import pytest

from agents.rca.datagrams import answer_to, read_question
from agents.rca.logins.peers import TRANSITIONS, Action, Event, Peer, State
from agents.wire import heartbeat, keys
from agents.wire.errors import WireError

MASTER, OTHER = b"m" * 32, b"o" * 32
QUIET_S, LOST_S = 10.0, 15.0
KEY = b"k" * 32
PLACES = ["10.0.0.1:7117", "[fd00::2]:7117"]


def test_every_pair_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(itertools.product(State, Event))


def test_a_silence_is_told_once_and_its_length_once() -> None:
    peer = Peer("login1", "10.0.0.1:7117", 100.0)
    assert peer.tick(104.9, QUIET_S, LOST_S) is Action.NONE
    assert peer.tick(105.0, QUIET_S, LOST_S) is Action.TELL_MISSED
    assert peer.tick(109.9, QUIET_S, LOST_S) is Action.NONE
    assert peer.tick(110.0, QUIET_S, LOST_S) is Action.TELL_SILENT
    assert peer.tick(124.9, QUIET_S, LOST_S) is Action.NONE
    assert peer.tick(125.0, QUIET_S, LOST_S) is Action.TELL_LOST
    assert peer.tick(300.0, QUIET_S, LOST_S) is Action.NONE


@pytest.mark.parametrize("event", [Event.ANSWER, Event.CONTRADICTED])
def test_one_that_is_there_after_all_begins_anew(event: Event) -> None:
    peer = Peer("login1", "10.0.0.1:7117", 100.0)
    peer.tick(130.0, QUIET_S, LOST_S)
    assert peer.handle(event, 131.0) is Action.NONE
    assert peer.tick(135.9, QUIET_S, LOST_S) is Action.NONE
    assert peer.tick(156.0, QUIET_S, LOST_S) is Action.TELL_MISSED  # never lost before it was silent, nor that
    assert peer.tick(156.1, QUIET_S, LOST_S) is Action.TELL_SILENT  # before a CPA was asked


def test_a_question_is_answered_for_the_life_that_asks() -> None:
    question = asked(keys.rca_key(MASTER, "login2"))
    told, which = read_question(question, [OTHER, MASTER], "login1")
    said = answer_to(told, [OTHER, MASTER][which])
    assert heartbeat.read_acknowledgement(said, [keys.rca_key(MASTER, "login2")], "life-1").sequence == 77
    with pytest.raises(WireError):
        read_question(question, [OTHER], "login1")
    with pytest.raises(WireError):  # sent on to another: it does not say that login1 is there
        read_question(question, [MASTER], "login3")
    with pytest.raises(WireError):  # and back to who asked
        read_question(question, [MASTER], "login2")
    with pytest.raises(WireError):
        heartbeat.read_acknowledgement(said, [keys.rca_key(MASTER, "login2")], "life-2")


def asked(key: bytes) -> bytes:
    """A question of login2's RCA to login1's."""
    return heartbeat.Beat(
        "login2", "life-1", 0, 77, kind=heartbeat.RCA, facts=heartbeat.Facts(address="login1")
    ).encode(key)


def test_a_node_cannot_ask_in_an_rcas_name() -> None:
    with pytest.raises(WireError):
        read_question(asked(keys.beat_key(MASTER, "login2")), [MASTER], "login1")


def test_what_nodes_can_be_told_of() -> None:
    assert all(map(heartbeat.is_place, PLACES))
    most = [f"{'h' * 50}{number:02d}:7117" for number in range(heartbeat.MOST_PLACES)]
    assert len(heartbeat.encode_places(most, 1, KEY, "boot-1")) <= heartbeat.LONGEST
    for bad in ("", "h", "h:0", "h:99999", "h:1 h:2", "h:1\n", "höst:7117", f"{'h' * 60}:7117", ":7117"):
        assert not heartbeat.is_place(bad), bad


def test_places_are_for_one_life_of_a_node_and_answer_one_beat() -> None:
    datagram = heartbeat.encode_places(PLACES, 12, KEY, "boot-1")
    assert heartbeat.is_places(datagram)
    assert heartbeat.read_places(datagram, [OTHER, KEY], "boot-1") == (12, PLACES)
    changed = datagram[:17] + bytes((datagram[17] ^ 1,)) + datagram[18:]
    for bad, key, boot in ((datagram, KEY, "boot-2"), (datagram, OTHER, "boot-1"), (changed, KEY, "boot-1")):
        with pytest.raises(WireError):
            heartbeat.read_places(bad, [key], boot)
    for read in (heartbeat.read_acknowledgement, heartbeat.read_places):
        with pytest.raises(WireError):
            read(heartbeat.Beat("n1", "boot-1", 1, 12).encode(KEY), [KEY], "boot-1")
    with pytest.raises(WireError):
        heartbeat.read_beat(datagram, [KEY])


def test_a_list_of_one_is_not_told_and_others_differ() -> None:
    assert heartbeat.digest_of([]) == heartbeat.digest_of(PLACES[:1]) == 0
    assert len({heartbeat.digest_of(PLACES), heartbeat.digest_of(PLACES[::-1]), 0}) == 3

"""Beats on the wire: what they say, and whatever is not said by the node is refused."""

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.pct.heartbeat.clock import MeshTime
from agents.wire import heartbeat, keys, seal
from agents.wire.errors import WireError

KEY, OTHER = b"k" * 32, b"o" * 32
WORDS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=40)


def one(**more: int) -> heartbeat.Beat:
    return heartbeat.Beat(
        "n1",
        "b3a1c0de-1",
        2,
        1_000_000,
        epoch=7,
        facts=heartbeat.Facts(processors=4, agent="0.1.0", address="tls://h:1/n1"),
        **more,
    )


@given(WORDS, WORDS, WORDS, WORDS, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(0, 255))
def test_a_beat_arrives_as_it_was_sent(
    node: str, boot_id: str, agent: str, address: str, number: int, sequence: int, flags: int
) -> None:
    sent = heartbeat.Beat(
        node, boot_id, number, sequence, flags=flags, epoch=sequence,
        facts=heartbeat.Facts(number, number, 1.25, number, agent, address),
    )  # fmt: skip
    datagram = sent.encode(KEY)
    assert heartbeat.node_of(datagram) == node
    got, which = heartbeat.read_beat(datagram, [OTHER, KEY])
    assert which == 1
    names = [name for name in heartbeat.Beat.__slots__ if name != "facts"]
    assert all(getattr(got, name) == getattr(sent, name) for name in names)
    assert all(getattr(got.facts, name) == getattr(sent.facts, name) for name in heartbeat.Facts.__slots__)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_beat_with_any_byte_changed_is_refused(place: int, change: int) -> None:
    datagram = bytearray(one().encode(KEY))
    datagram[place % len(datagram)] ^= change
    with pytest.raises(WireError):
        heartbeat.node_of(bytes(datagram))
        heartbeat.read_beat(bytes(datagram), [KEY])


@given(st.binary(max_size=2000))
def test_what_is_no_beat_is_refused_and_nothing_else_happens(datagram: bytes) -> None:
    for read in (
        heartbeat.node_of,
        lambda data: heartbeat.read_beat(data, [KEY]),
        lambda data: heartbeat.read_acknowledgement(data, [KEY], ""),
    ):
        with pytest.raises(WireError):
            read(datagram)


def test_a_beat_under_another_nodes_key_is_refused() -> None:
    master = keys.beat_master(b"m" * 32, "mesh")
    datagram = one().encode(keys.beat_key(master, "n2"))
    with pytest.raises(WireError):
        heartbeat.read_beat(datagram, [keys.beat_key(master, "n1")])


def test_an_acknowledgement_is_for_one_life_of_the_node() -> None:
    said = heartbeat.Acknowledgement(heartbeat.UP, 1_000_000, 7, 2.0, 1763660000.5, 0.001)
    datagram = said.encode(KEY, "boot-1")
    got = heartbeat.read_acknowledgement(datagram, [KEY], "boot-1")
    assert all(getattr(got, name) == getattr(said, name) for name in heartbeat.Acknowledgement.__slots__)
    for keys_, boot_id in (([KEY], "boot-2"), ([OTHER], "boot-1")):
        with pytest.raises(WireError):
            heartbeat.read_acknowledgement(datagram, keys_, boot_id)


@pytest.mark.parametrize("at", [1e9, float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("doubt", [0.5, -1e9, float("nan"), float("inf")])
def test_an_rca_that_was_revoked_cannot_have_spoilt_the_time(at: float, doubt: float) -> None:
    """Whatever it said of it, what the next one says is believed."""
    time, life = MeshTime(), "b3a1c0de-1"
    try:
        datagram = heartbeat.Acknowledgement(heartbeat.UP, 1, 7, 1.0, at, doubt).encode(KEY, life)
        said = heartbeat.read_acknowledgement(datagram, [KEY], life)
        time.learn(said.mesh_time, 10.0 - said.uncertainty_s, 10.001 + said.uncertainty_s)
    except WireError:
        assert (at, doubt) != (1e9, 0.5)
    time.learn(5e8, 11.0, 11.001)
    now = time.now()
    assert now is not None and abs(now - 5e8) < 1e7


def test_a_beat_is_no_acknowledgement_and_the_other_way_round() -> None:
    with pytest.raises(WireError):
        heartbeat.read_acknowledgement(one().encode(KEY), [KEY], "")
    with pytest.raises(WireError):
        heartbeat.read_beat(heartbeat.Acknowledgement(heartbeat.UP, 1, 7, 2.0).encode(KEY, ""), [KEY])


@pytest.mark.parametrize("text", ["", "h", "h:", ":1", "h:x", "h:0", "h:70000"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(WireError):
        heartbeat.split_address(text)


def test_addresses_are_split_into_host_and_port() -> None:
    assert heartbeat.split_address("10.0.0.1:7117") == ("10.0.0.1", 7117)
    assert heartbeat.split_address("[fe80::1]:7117") == ("fe80::1", 7117)


@given(st.binary(max_size=64), st.binary(max_size=300))
def test_both_ways_of_sealing_are_hmac_sha256(key: bytes, data: bytes) -> None:
    before, seal._fast = seal._fast, None
    try:
        slow = seal.seal(key, data)
        seal.hasten()
        assert seal._fast is not None and seal.seal(key, data) == slow == hmac.digest(key, data, "sha256")
        assert seal.sha256(data).digest() == hashlib.sha256(data).digest()
        assert seal.same(slow, slow) and not seal.same(slow, slow[:-1] + bytes((slow[-1] ^ 1,)))
    finally:
        seal._fast = before


@pytest.mark.parametrize("with_openssl", [False, True])
def test_a_key_that_is_longer_than_a_block_is_refused(monkeypatch: pytest.MonkeyPatch, with_openssl: bool) -> None:
    monkeypatch.setattr(seal, "_fast", None)
    if with_openssl:
        seal.hasten()
    with pytest.raises(ValueError, match="longer than a block"):
        seal.seal(b"k" * 65, b"")

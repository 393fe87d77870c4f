"""Output on credit and input on credit: in order, never more than allowed, everything counted once."""

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.keeper import daemon_states as keeping
from agents.link.link import Link
from agents.link.loop import Loop
from agents.pct.stdio.stdin import CREDIT, ChildSink, Inputs
from agents.pct.stdio.stdout import Relay, Returns
from agents.wire.frames import STDOUT, Decoder, split_output


@pytest.fixture
def link() -> Iterator[tuple[Link, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop = Loop()
    yield Link(loop, ours, lambda *_: None, lambda *_: None), theirs
    theirs.close()
    ours.close()


def _arrived(sock: socket.socket) -> list[tuple[int, bytes]]:
    try:
        return [split_output(payload) for _, payload in Decoder().feed(sock.recv(1 << 20))]
    except BlockingIOError:
        return []


def test_frames_are_cut_at_the_credit(link: tuple[Link, socket.socket]) -> None:
    relay, passed, order = Relay(link[0], 10), [], []
    relay.push(STDOUT, 3, b"123456", passed.append)
    relay.push(STDOUT, 4, b"abcdefgh", passed.append)
    relay.barrier(lambda: order.append("after"))
    assert _arrived(link[1]) == [(3, b"123456"), (4, b"abcd")]
    assert passed == [6, 4] and not order and not relay.empty
    relay.grant(3)
    relay.grant(5)
    assert _arrived(link[1]) == [(4, b"efg"), (4, b"h")]
    assert sum(passed) == 14 and order == ["after"] and relay.empty
    relay.barrier(lambda: order.append("at once"))
    assert order == ["after", "at once"]


def test_an_abandoned_relay_swallows_everything(link: tuple[Link, socket.socket]) -> None:
    relay, passed, order = Relay(link[0], 0), [], []
    relay.push(STDOUT, 0, b"x" * 100, passed.append)
    relay.barrier(lambda: order.append(1))
    relay.abandon()
    relay.push(STDOUT, 0, b"y", passed.append)
    assert passed == [100, 1] and order == [1] and relay.empty
    assert _arrived(link[1]) == []


@given(st.lists(st.integers(1, 5000), max_size=50), st.integers(1, 4000))
def test_credit_goes_back_whole_up_to_a_quarter(parts: list[int], window: int) -> None:
    given_back: list[int] = []
    returns = Returns(window, given_back.append)
    for part in parts:
        returns.passed(part)
    assert 0 <= sum(parts) - sum(given_back) < max(1, window // 4)


def test_input_waits_for_the_slowest_and_forgets_the_dead() -> None:
    granted: list[int] = []
    inputs = Inputs(granted.append)
    sent: dict[str, list[bytes]] = {"a": [], "b": []}
    ended: list[str] = []
    sinks = {
        name: ChildSink(sent[name].append, lambda name=name: ended.append(name), inputs.settle)  # type: ignore[misc]
        for name in sent
    }
    for sink in sinks.values():
        inputs.add(sink)
    inputs.feed(b"x" * CREDIT)
    inputs.feed(b"y" * 1000)
    assert sum(granted) == CREDIT, "the rest has no credit below"
    sinks["a"].grant(5000)
    assert sum(granted) == CREDIT
    sinks["b"].drop()
    assert sum(granted) == CREDIT + 1000
    inputs.end()
    assert b"".join(sent["a"]) == b"x" * CREDIT + b"y" * 1000 and ended == ["a"]


def test_input_that_nobody_wants_is_given_back_at_once() -> None:
    granted: list[int] = []
    Inputs(granted.append).feed(b"abc")
    assert granted == [3]


@pytest.mark.parametrize(
    ("end", "last"),
    [
        (keeping.Event.DIED, [5.0, 5.0, 5.0, 5.0, 5.0]),
        (keeping.Event.FAILED, [6.4, 12.8, 25.6, 60.0, 60.0]),
    ],
)
def test_back_off_of_a_daemon(end: keeping.Event, last: list[float]) -> None:
    daemon, now, delays = keeping.Daemon(), 0.0, []
    assert daemon.handle(keeping.Event.START, now) is keeping.Action.SPAWN
    for _ in range(12):
        assert not daemon.is_in_trouble(now + keeping.STABLE_S + 1.0)
        assert daemon.handle(end, now) is keeping.Action.SET_TIMER
        assert daemon.is_in_trouble(now) is (end is not keeping.Event.DIED)
        delays.append(daemon.delay_s)
        now += daemon.delay_s
        assert daemon.handle(keeping.Event.DUE, now) is keeping.Action.SPAWN
    assert delays == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, *last]
    now += keeping.STABLE_S + 1.0
    daemon.handle(end, now)
    assert daemon.delay_s == 0.0 and daemon.restarts == 12
    daemon.handle(keeping.Event.DUE, now)
    daemon.handle(keeping.Event.DIED, now)
    assert not daemon.is_in_trouble(now), "this time it was killed"


def test_a_daemon_that_ends_stays_ended() -> None:
    daemon = keeping.Daemon()
    daemon.handle(keeping.Event.FOUND, 0.0)
    assert daemon.handle(keeping.Event.END, 1.0) is keeping.Action.TERMINATE
    assert daemon.handle(keeping.Event.DIED, 1.1) is keeping.Action.NONE
    for event in keeping.Event:
        assert daemon.handle(event, 2.0) is keeping.Action.NONE
    assert daemon.state is keeping.State.ENDED
    assert {state for state, _ in keeping.TRANSITIONS} == set(keeping.State) - {keeping.State.ENDED}

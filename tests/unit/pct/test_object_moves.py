"""Moves of a state object between nodes, as their table has them: whatever is lost, repeated, reordered or killed."""

from __future__ import annotations

import random

import pytest

from agents.objects.states import TRANSITIONS, Action, Event, Place, State

NODES = 3
#: What a node says for an action, to whoever it is talking about.
SAYS = {
    Action.OFFER: Event.STORED, Action.KEEP: Event.CONFIRMED, Action.SAY_ARRIVED: Event.CONFIRMED,
    Action.STOP: Event.TAKE, Action.ASK: Event.TAKE, Action.ADOPT: Event.TAKEN, Action.SAY_TAKEN: Event.TAKEN,
    Action.REFUSE: Event.REFUSED,
}  # fmt: skip


class Network:
    """Three nodes, and messages between them that anything may happen to."""

    def __init__(self) -> None:
        self.nodes = [Place(State.LIVE, 0), *(Place() for _ in range(NODES - 1))]
        self.to = [0] * NODES  # where a node is sending its object
        self.messages: list[tuple[Event, int, int, int]] = []
        self.highest = 0

    def happens(self, node: int, event: Event, counter: int | None = None, sender: int = 0) -> None:
        """An event at a node, and what the node says then."""
        before = self.nodes[node].state
        action = self.nodes[node].handle(event, counter)
        if action in (Action.OFFER, Action.STOP, Action.ASK):
            self.messages.append((SAYS[action], self.nodes[node].counter, node, self.to[node]))
        elif action in SAYS and counter is not None:
            # a refusal to store is an error of the offer; one of "take" is for ever
            said = Event.FAILED if action is Action.REFUSE and event is Event.STORED else SAYS[action]
            self.messages.append((said, counter, node, sender))
        self.check(before, action)

    def check(self, _before: State, _action: Action) -> None:
        """Never two that are live; the counter of the live one never goes back."""
        live = [one for one in self.nodes if one.state in (State.LIVE, State.OFFERED)]
        assert len(live) <= 1, [(one.state, one.counter) for one in self.nodes]
        if live:
            assert live[0].counter >= self.highest
            self.highest = live[0].counter

    def deliver(self, at: int, *, keep: bool = False) -> None:
        """One message arrives; ``keep``: it will arrive again."""
        event, counter, sender, receiver = self.messages[at] if keep else self.messages.pop(at)
        self.happens(receiver, event, counter, sender)

    def settle(self) -> None:
        """From now on nothing is lost."""
        for _ in range(50):
            while self.messages:
                self.deliver(0)
            for node, place in enumerate(self.nodes):
                if place.state is State.OFFERED:
                    self.happens(node, Event.FAILED)
                elif place.state is State.DOUBT:
                    self.happens(node, Event.RETRY)
            if not self.messages and not any(one.state is State.DOUBT for one in self.nodes):
                return


STEPS = ("move", "deliver", "deliver", "deliver", "repeat", "lose", "kill", "give up", "retry")


@pytest.mark.parametrize("seed", range(8))
def test_never_two_live_and_in_the_end_one(seed: int) -> None:
    for run in range(150):
        network, chance = Network(), random.Random(seed * 1000 + run)
        for _ in range(150):
            step(network, chance)
        network.settle()
        assert sum(one.state is State.LIVE for one in network.nodes) == 1, (seed, run)


def step(network: Network, chance: random.Random) -> None:
    """One thing that happens."""
    what, node = chance.choice(STEPS), chance.randrange(NODES)
    if what == "move" and network.nodes[node].state is State.LIVE:
        network.to[node] = (node + chance.randrange(1, NODES)) % NODES
        network.happens(node, Event.MOVE)
    elif what in ("deliver", "repeat", "lose") and network.messages:
        # mostly in order: else nothing is ever whole
        at = 0 if chance.random() < 0.7 else chance.randrange(len(network.messages))
        if what == "lose":
            network.messages.pop(at)
        else:
            network.deliver(at, keep=what == "repeat")
    elif what == "kill":
        network.happens(node, Event.RESTARTED)
    elif what == "give up":
        network.happens(node, Event.FAILED)
    elif what == "retry":
        network.happens(node, Event.RETRY)


def test_a_sender_that_has_said_take_stands_still_until_it_is_answered() -> None:
    place = Place(State.LIVE, 4)
    assert place.handle(Event.MOVE) is Action.OFFER
    assert place.handle(Event.CONFIRMED, 4) is Action.NONE  # of an earlier attempt
    assert place.handle(Event.CONFIRMED, 5) is Action.STOP
    for event in (Event.FAILED, Event.MOVE, Event.CONFIRMED):
        assert place.handle(event) is Action.NONE
        assert place.state is State.DOUBT
    assert place.handle(Event.REFUSED, 4) is Action.NONE
    assert place.handle(Event.RESTARTED) is Action.ASK
    assert place.handle(Event.REFUSED, 5) is Action.RESUME
    assert (place.state, place.counter) == (State.LIVE, 5)


def test_a_receiver_that_has_refused_an_attempt_never_takes_it() -> None:
    place = Place()
    assert place.handle(Event.TAKE, 3) is Action.REFUSE
    assert place.handle(Event.STORED, 3) is Action.REFUSE
    assert place.handle(Event.TAKE, 3) is Action.REFUSE
    assert place.handle(Event.STORED, 4) is Action.KEEP
    assert place.handle(Event.TAKE, 4) is Action.ADOPT
    assert place.handle(Event.TAKE, 4) is Action.SAY_TAKEN


def test_the_table_leads_to_a_live_object_only_by_take_a_refusal_a_failed_offer_or_the_tracker() -> None:
    ways = {action for action, state in TRANSITIONS.values() if state is State.LIVE}
    assert ways == {Action.ADOPT, Action.PROMOTE, Action.RESUME, Action.SAY_BUSY, Action.SAY_TAKEN}
    for (state, _), (action, after) in TRANSITIONS.items():
        if after is State.LIVE and action in (Action.SAY_BUSY, Action.SAY_TAKEN):
            assert state is State.LIVE

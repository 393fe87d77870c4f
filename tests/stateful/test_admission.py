"""Whatever is tried at a node's door, in whatever order: a credential opens it once, in its time, in one life."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, rule

from agents.pct.remote.admission import Admission
from agents.wire import credential as credentials
from agents.wire.credential import Credential
from agents.wire.errors import Refusal
from agents.wire.messages import PCT
from agents.wire.number_ranges import ranges
from agents.wire.roles import PCT as MAY
from agents.wire.roles import need, roles_of
from tests.support.chance import examples

MESH, NODE, OWNER, KEY = "0a0b0c0d", "n1", 1000, b"k" * 32


@dataclass
class Made:
    """A credential that a CPA made, and all that the model knows of it."""

    credential: Credential
    mac: str
    life: tuple[str, int]
    used_in: set[tuple[str, int]] = field(default_factory=set)


class Door(RuleBasedStateMachine):
    """The model: the time, the life, who was killed, what was let in."""

    made = Bundle("made")

    @initialize()
    def begin(self) -> None:
        self.now = 1000.0
        self.boot, self.incarnation = 1, 1
        self.killed: set[int] = set()
        self.count = 0
        self._start()

    def _start(self) -> None:
        self.admission = Admission(
            MESH, NODE, OWNER, lambda: self.life, lambda: [b"x" * 32, KEY], lambda: self.now,
            lambda launcher: launcher in self.killed,
        )  # fmt: skip

    @property
    def life(self) -> tuple[str, int]:
        return f"b{self.boot}", self.incarnation

    @rule(target=made, lasts=st.floats(0.5, 60.0), launcher=st.integers(1, 3))
    def grant(self, lasts: float, launcher: int) -> Made:
        self.count += 1
        text = Credential(MESH, launcher, OWNER, "m", "c", f"{self.count:032x}", self.now + lasts)
        return Made(text, credentials.mac(KEY, text.text, NODE, *self.life), self.life)

    @rule(one=made)
    def show(self, one: Made) -> None:
        good = one.life == self.life and one.credential.expires_at >= self.now
        good = good and one.credential.launcher not in self.killed and self.life not in one.used_in
        if good:
            assert self.admission.admit(one.credential.text, one.mac).nonce == one.credential.nonce
            one.used_in.add(self.life)
        else:
            with pytest.raises(Refusal):
                self.admission.admit(one.credential.text, one.mac)

    @rule(one=consumes(made), other=made)
    def show_the_mac_of_another(self, one: Made, other: Made) -> None:
        with pytest.raises(Refusal) as refusal:
            self.admission.admit(one.credential.text, other.mac)
        assert refusal.value.reason == "forged"

    @rule(seconds=st.floats(0.1, 30.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def start_again(self) -> None:
        self.incarnation += 1
        self._start()

    @rule()
    def boot_again(self) -> None:
        self.boot, self.incarnation = self.boot + 1, 1
        self._start()

    @rule(launcher=st.integers(1, 3))
    def kill(self, launcher: int) -> None:
        self.killed.add(launcher)

    @rule()
    def forget_a_kill(self) -> None:
        if self.killed:
            self.killed.pop()


TestDoor = Door.TestCase
TestDoor.settings = settings(max_examples=examples(40), stateful_step_count=25, deadline=None)


def test_a_node_that_does_not_know_the_time_lets_nobody_in() -> None:
    admission = Admission(MESH, NODE, OWNER, lambda: ("b", 1), lambda: [KEY], lambda: None, lambda _: False)
    text = Credential(MESH, 1, OWNER, "m", "c", "n", 1e12).text
    with pytest.raises(Refusal) as refusal:
        admission.admit(text, credentials.mac(KEY, text, NODE, "b", 1))
    assert refusal.value.reason == "no_time"


def test_every_operation_of_a_pct_has_its_roles() -> None:
    assert set(PCT) <= set(MAY)


@pytest.mark.parametrize(
    "name", ["redmesh://other/cpa/x", "redmesh://0a0b0c0d", "redmesh://0a0b0c0dx/cpa/x", "http://0a0b0c0d/cpa/x", ""]
)
def test_names_of_others_give_no_role(name: str) -> None:
    assert roles_of(frozenset({name}), MESH) == set()
    with pytest.raises(Refusal):
        need(MAY, "wipe", roles_of(frozenset({name}), MESH))


@pytest.mark.parametrize("processors", [[], [3], [0, 1, 2, 3], [7, 1, 2, 9], list(range(0, 64, 2))])
def test_processors_travel_as_they_are(processors: list[int]) -> None:
    members = [["n0", "0-3"], [NODE, ranges(processors)]] if processors else [["n0", "0-3"]]
    assert credentials.processors_of(members, NODE) == frozenset(processors)

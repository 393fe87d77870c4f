"""What a node still hears of those who came by a certificate whose CA has gone since."""

from __future__ import annotations

from typing import Any

from agents.link.trust import Trust
from agents.wire.messages import hello
from console.deploy.trust.authority import Authority, Stage
from tests.support.far_pcts import FarMachine, Talk
from tests.support.waiting import wait_until


def asked(talk: Talk, request: dict[str, Any]) -> Any:
    """The code of the answer's error, else the answer."""
    talk.send({"id": 1, **request})
    while True:
        for message in talk.messages:
            if "re" in message:
                talk.messages.remove(message)
                return message["error"]["code"] if "error" in message else message
        assert talk.read(), "the connection has ended"


def greeted(machine: FarMachine, trust: Trust) -> Talk:
    talk = Talk(machine.visit(trust))
    talk.send(hello("admin"))
    return talk


def test_a_connection_is_good_no_longer_than_the_ca_that_let_it_in() -> None:
    """One that asked before, and one whose handshake alone was over; a launch runs on, and the next one is let in."""
    with FarMachine(1) as machine:
        old = machine.trust("cpa")
        served, heard = greeted(machine, old), greeted(machine, machine.trust("rca"))
        for talk in (served, heard):
            assert asked(talk, {"op": "status"}) != "denied"
        shaken: list[Talk] = []
        seen: list[tuple[Stage, bool]] = []
        load, common = machine.load(7, argv=("/bin/sleep", "1"))
        running = machine.launch(load, common, machine.credential(load, common))
        running.messages.append(running.until("ready"))

        def tell(now: Authority) -> None:
            if now.stage is Stage.SETTLED:
                shaken.append(Talk(machine.visit(old)))
            files = {name: text.decode() for name, text in now.node_files("n0", ["127.0.0.1"]).items()}
            answer = asked(greeted(machine, machine.trust("cpa")), {"op": "trust", "files": files})
            assert answer == {"re": 1}, answer
            seen.append((now.stage, asked(served, {"op": "status"}) != "denied"))

        machine.authority.rotate(tell)
        assert seen == [(Stage.INTRODUCED, True), (Stage.TURNED, True), (Stage.SETTLED, False)]
        files = {name: text.decode() for name, text in machine.authority.node_files("n0", ["127.0.0.1"]).items()}
        planted = {"op": "trust", "files": files}
        assert asked(served, planted) == asked(heard, {"op": "status"}) == "denied"
        (late,) = shaken
        late.send(hello("admin"))
        assert asked(late, planted) == "denied"
        wait_until(lambda: machine.refusals() == 4 * ["handshake"], "each is logged")
        assert running.run() == [0]
        load, common = machine.load(8)
        assert machine.launch(load, common, machine.credential(load, common)).run() == [0]


def test_files_that_were_put_beside_a_node_that_runs_hold_for_its_connections_too() -> None:
    """As mesh up does over SSH, for a node that was not told of a change."""
    with FarMachine(1) as machine:
        served = greeted(machine, machine.trust("cpa"))
        assert asked(served, {"op": "status"}) != "denied"
        machine.authority.rotate(lambda _now: None)
        machine.equip("n0")
        assert asked(served, {"op": "kill_launch", "launcher": 7}) == "denied"
        assert asked(greeted(machine, machine.trust("cpa")), {"op": "kill_launch", "launcher": 7}) != "denied"

"""What a node still hears of those who came by a certificate whose CA has gone since."""

from __future__ import annotations

from typing import Any

from agents.link.trust import Trust
from agents.wire.control import control
from agents.wire.messages import hello
from console.deploy.trust import Authority, Stage
from tests.support.far_pcts import FarMachine, Talk
from tests.support.waiting import wait_until


def asked(talk: Talk, request: dict[str, Any]) -> dict[str, Any] | None:
    """The answer; None where the connection has ended."""
    try:
        talk.send({"id": 1, **request})
    except OSError:
        return None
    while True:
        for message in talk.messages:
            if "re" in message:
                talk.messages.remove(message)
                return message
        if not talk.read():
            return None


def greeted(machine: FarMachine, trust: Trust) -> Talk:
    talk = Talk(machine.visit(trust))
    talk.send(hello("admin"))
    return talk


def test_connections_end_with_the_ca_that_let_them_in() -> None:
    """One that asked before, and one whose handshake alone was over; a launch runs on, and the next one is let in."""
    with FarMachine(1) as machine:
        old = machine.trust("cpa")
        served, heard = greeted(machine, old), greeted(machine, machine.trust("rca"))
        for talk in (served, heard):
            assert asked(talk, {"op": "status"}) is not None
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
            seen.append((now.stage, asked(served, {"op": "status"}) is not None))

        machine.authority.rotate(tell)
        assert seen == [(Stage.INTRODUCED, True), (Stage.TURNED, True), (Stage.SETTLED, False)]
        files = {name: text.decode() for name, text in machine.authority.node_files("n0", ["127.0.0.1"]).items()}
        planted = {"op": "trust", "files": files}
        assert asked(served, planted) is None and asked(heard, {"op": "status"}) is None
        (late,) = shaken
        late.sock.sendall(control(hello("admin")))
        answer = asked(late, planted)
        assert answer is None or answer["error"]["code"] == "denied", answer
        wait_until(lambda: machine.refusals() == ["handshake"], "it is logged")
        assert running.run() == [0]
        load, common = machine.load(8)
        assert machine.launch(load, common, machine.credential(load, common)).run() == [0]

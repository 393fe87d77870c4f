"""Our line to the CPAs and the RCA against real sockets: lost requests are asked again, none is answered twice."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.link.loop import Loop
from agents.link.server import Server, Session
from agents.wire.errors import AgentError
from agents.wire.messages import CPA, RCA
from console.launch.daemons import cpa as module
from console.launch.daemons.connect import start_time
from console.launch.daemons.cpa import Authority
from console.launch.daemons.rca import Registration

FINISH = {"op": "finish", "launcher": 7, "cookie": "0" * 16, "exit_status": 0}


class Peer:
    """A daemon's end of the wire, which answers as it is told."""

    def __init__(self, loop: Loop, path: Path, table: Any, answer: Any) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self._answer = answer
        self.server = Server(loop, str(path), "cpa", table, self._on_request)

    def _on_request(self, session: Session, op: str, message: dict[str, Any]) -> None:
        self.heard.append((op, message))
        self._answer(session, message)


def yes(session: Session, message: dict[str, Any]) -> None:
    session.reply(message, {"yes": 1})


def hang_up(session: Session, message: dict[str, Any]) -> None:
    session.link.close()


def silent(session: Session, message: dict[str, Any]) -> None:
    pass


@pytest.fixture
def run() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="rm-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


def ask(loop: Loop, line: Authority, patience_s: float = 2.0, *, patient: bool = False) -> Any:
    answers: list[Any] = []
    line.ask(FINISH, lambda reply, error: answers.append(error.code if error else reply), patience_s, patient=patient)
    while not answers:
        loop.run_once(1.0)
    for _ in range(5):
        loop.run_once(0.02)
    assert len(answers) == 1, "answered exactly once"
    return answers[0]


def test_the_next_cpa_is_asked_when_one_hangs_up(run: Path) -> None:
    loop = Loop()
    first, second = Peer(loop, run / "cpa-0.sock", CPA, hang_up), Peer(loop, run / "cpa-1.sock", CPA, yes)
    assert ask(loop, Authority(loop, str(run), 0))["yes"] == 1
    assert [len(first.heard), len(second.heard)] == [1, 1]
    assert {k: v for k, v in first.heard[0][1].items() if k != "id"} == {
        k: v for k, v in second.heard[0][1].items() if k != "id"
    }, "the same request, the same key"


def test_a_silent_one_is_left_for_another(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.2)
    loop = Loop()
    Peer(loop, run / "cpa-0.sock", CPA, silent)
    Peer(loop, run / "cpa-1.sock", CPA, yes)
    assert ask(loop, Authority(loop, str(run), 0))["yes"] == 1


def test_one_that_comes_later_is_found(run: Path) -> None:
    loop = Loop()
    loop.after(0.3, lambda: Peer(loop, run / "cpa-0.sock", CPA, yes))
    assert ask(loop, Authority(loop, str(run), 0))["yes"] == 1


def test_none_at_all(run: Path) -> None:
    loop = Loop()
    assert ask(loop, Authority(loop, str(run), 0), 0.3) == "unreachable"


def test_a_database_that_is_down_is_waited_for_only_by_the_patient(run: Path) -> None:
    loop = Loop()
    count = 0

    def later(session: Session, message: dict[str, Any]) -> None:
        nonlocal count
        count += 1
        if count < 3:
            session.refuse(message, AgentError("the database does not answer", code="database"))
        else:
            session.reply(message, {"yes": 1})

    Peer(loop, run / "cpa-0.sock", CPA, later)
    line = Authority(loop, str(run), 0)
    assert ask(loop, line) == "database"
    assert ask(loop, line, patient=True)["yes"] == 1


def test_a_request_stands_once_on_a_connection(run: Path) -> None:
    """A CPA that answers an allocate twice gives two cookies, and the first one, which counts for us, is void."""
    loop = Loop()

    def refuse_and_hang_up(session: Session, message: dict[str, Any]) -> None:
        session.refuse(message, AgentError("the database does not answer", code="database"))
        loop.after(0.01, session.link.close)

    def late(session: Session, message: dict[str, Any]) -> None:
        loop.after(4 * module._AGAIN_S, lambda: yes(session, message))

    Peer(loop, run / "cpa-0.sock", CPA, refuse_and_hang_up)
    second = Peer(loop, run / "cpa-1.sock", CPA, late)
    assert ask(loop, Authority(loop, str(run), 0), patient=True)["yes"] == 1
    assert len(second.heard) == 1


def test_the_rca_is_found_again_and_told_who_we_are(run: Path) -> None:
    loop = Loop()
    pid = os.getpid()
    line = Registration(loop, str(run / "rca.sock"), pid, start_time(pid))  # nobody listens yet
    line.launcher(7)
    late: list[Peer] = []
    loop.after(0.2, lambda: late.append(Peer(loop, run / "rca.sock", RCA, yes)))
    while not late or len(late[0].heard) < 2:
        loop.run_once(1.0)
    (first, registered), (second, _) = late[0].heard[:2]
    assert (first, registered["launcher"], registered["pid"]) == ("register", 7, pid)
    assert second == "beat"
    errors: list[Any] = []
    line.hand(FINISH, errors.append)
    line.unregister()
    while [op for op, _ in late[0].heard[-2:]] != ["finish", "unregister"]:
        loop.run_once(1.0)
    while not errors:
        loop.run_once(1.0)
    assert errors == [None]


def test_handing_over_to_nobody(run: Path) -> None:
    loop = Loop()
    line = Registration(loop, str(run / "rca.sock"), os.getpid(), 1)
    errors: list[Any] = []
    line.hand(FINISH, errors.append)
    assert errors[0].code == "unreachable"

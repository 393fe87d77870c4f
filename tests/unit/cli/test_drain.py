"""``mesh drain`` and CPAs of another version."""

import argparse
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from agents.link.loop import Loop
from agents.link.server import Server, Session
from agents.wire.control import Message
from agents.wire.errors import AgentError
from agents.wire.messages import CPA
from console.cli.mesh.drain import drain
from console.settings import Settings


def test_a_cpa_of_an_earlier_version_does_not_drain_now_what_is_to_be_drained_later(tmp_path: Path) -> None:
    """Such a CPA knows no *drain_later*, and drops what it does not know from a *drain*."""
    loop, seen = Loop(), list[str]()

    def serve(session: Session, op: str, message: Message) -> None:
        seen.append(op)
        session.reply(message, {"nodes": message["nodes"]})

    known = {op: shape for op, shape in CPA.items() if op != "drain_later"}
    server = Server(loop, str(tmp_path / "cpa-0.sock"), "cpa", known, serve)
    done = threading.Event()

    def look() -> None:
        if done.is_set():
            loop.stop()
        else:
            loop.after(0.01, look)

    look()
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        settings = cast(Settings, SimpleNamespace(run_dir=str(tmp_path)))
        with pytest.raises(AgentError) as caught:
            drain(settings, argparse.Namespace(list="n1", at="+1h", reason="new fans"))
    finally:
        done.set()
        thread.join()
        server.close()
    assert seen == [] and caught.value.code == "unknown_op" and "mesh upgrade" in caught.value.hint

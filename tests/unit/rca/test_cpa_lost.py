"""An RCA that goes from one CPA to another: what either has changed meanwhile, nobody announced."""

import functools
import os
import socket
from pathlib import Path

from agents.link.journal import Journal
from agents.link.loop import Loop
from agents.rca.daemon import Rca
from agents.wire import heartbeat, keys
from agents.wire.control import decode
from agents.wire.frames import Decoder
from tests.support.addresses import address
from tests.support.waiting import wait_until
from tests.unit.rca.test_datagrams import MASTER, make_config


def test_who_gets_another_cpa_announces_and_has_it_look(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    config.cpas = 2
    loop = Loop()
    with (
        socket.socket(socket.AF_UNIX) as first,
        socket.socket(socket.AF_UNIX) as second,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        for number, listener in enumerate((first, second)):
            listener.bind(config.cpa_socket(number))
            listener.listen()
        other.bind((address(1), 0))
        other.setblocking(False)
        rca = Rca(loop, config, Journal(str(tmp_path / "log"), "rca"), os.geteuid())
        rca.start()
        assert rca.members is not None
        rca.members.peers.know({"login2": f"{address(1)}:{other.getsockname()[1]}"})
        asked: list[str | None] = []
        announced: list[int] = []
        before: set[int] = set()
        decoder = Decoder()

        def connected(number: int) -> bool:
            loop.run_once(0.05)
            return rca.cpas.connected and rca.cpas.path == config.cpa_socket(number)

        def serves(cpa: socket.socket) -> bool:
            loop.run_once(0.05)
            try:
                asked.extend(decode(payload).get("op") for _, payload in decoder.feed(cpa.recv(1 << 16)))
            except BlockingIOError:
                pass
            try:
                question = other.recv(heartbeat.LONGEST + 1)
                announced.append(heartbeat.read_beat(question, [keys.rca_key(MASTER, "h0")])[0].incarnation)
            except BlockingIOError:
                pass
            return "moved_elsewhere" in asked and bool(set(announced) - before)

        try:
            for number, listener in enumerate((first, second)):
                decoder.clear()
                before.update(announced)
                del asked[:], announced[:]
                wait_until(functools.partial(connected, number), "it asks this CPA")
                with listener.accept()[0] as cpa:
                    cpa.setblocking(False)
                    wait_until(functools.partial(serves, cpa), "it tells this CPA and the other login processor")
        finally:
            rca.stop()
            loop.run_once(0.0)

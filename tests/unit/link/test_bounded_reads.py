"""Handlers of event loops: how much one call reads of a sender that is faster than its reader."""

import select
import socket
import time
from pathlib import Path

import pytest

from agents.link.acceptor import Acceptor
from agents.link.journal import Journal
from agents.link.loop import Loop
from agents.objects.changes import DirectoryChanges
from agents.pct.debug import crash
from agents.pct.heartbeat.clock import MeshTime
from agents.pct.heartbeat.datagrams import ContactConfig, DatagramBeats
from agents.rca.logins.peers import Peers
from agents.wire import heartbeat
from agents.wire.control import Message
from redmesh.settings.keeper_file import KeeperFile
from tests.support.waiting import PATIENCE_S

MANY = 3 * heartbeat.AT_ONCE


class Calls:
    """Counts the calls that a reader makes for each datagram."""

    def __init__(self) -> None:
        self.count = 0

    def masters(self) -> list[bytes]:
        self.count += 1
        return [b"m" * 32]

    def who(self) -> Message:
        self.count += 1
        return {
            "node": "n0", "boot_id": "boot-1", "incarnation": 1, "processors": 1, "agent": "", "address": "",
        }  # fmt: skip


@pytest.fixture
def asked() -> socket.socket:
    """A socket that heartbeats go to, and that sends what it likes."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    sock.settimeout(PATIENCE_S)
    return sock


def flood(loop: Loop, asked: socket.socket, calls: Calls) -> int:
    """The calls in the round of the loop after more datagrams than it may read have arrived."""
    reached = False
    asked.setblocking(False)
    until = time.monotonic() + PATIENCE_S
    while not reached and time.monotonic() < until:
        loop.run_once(0.1)
        try:
            sender = asked.recvfrom(2048)[1]
            reached = True
        except BlockingIOError:
            pass
    assert reached
    for _ in range(MANY):
        asked.sendto(b"x" * 40, sender)
    calls.count = 0
    loop._poll(0)
    return calls.count


def test_an_rca_reads_some_of_many_datagrams(asked: socket.socket) -> None:
    loop, calls = Loop(), Calls()
    peers = Peers(loop, "login1", socket.AF_INET, calls.masters, (5.0, 15.0), lambda _peer, _action: None)
    peers.know({"login2": f"127.0.0.1:{asked.getsockname()[1]}"})
    assert flood(loop, asked, calls) == heartbeat.AT_ONCE
    peers.close()
    loop.close()
    asked.close()


def test_a_pct_reads_some_of_many_datagrams(asked: socket.socket, tmp_path: Path) -> None:
    loop, calls = Loop(), Calls()
    key_file = tmp_path / "beat.key"
    key_file.write_bytes(b"6d" * 32 + b"\n")
    key_file.chmod(0o600)
    place = f"127.0.0.1:{asked.getsockname()[1]}"
    file = KeeperFile(
        run=str(tmp_path), state=str(tmp_path), mesh="m", boot_id="boot-1", login="", nodes=(), cpas=0, rca=(place,),
        trust=str(tmp_path),
    )  # fmt: skip
    config = ContactConfig(file, "n0")
    log = Journal("", "pct")
    beats = DatagramBeats(loop, config, calls.who, lambda: 0, lambda _action: None, log, MeshTime())
    assert flood(loop, asked, calls) == heartbeat.AT_ONCE
    beats.close()
    loop.close()
    asked.close()


def test_a_reader_of_a_directory_leaves_the_rest_for_its_next_turn(tmp_path: Path) -> None:
    changes = DirectoryChanges(str(tmp_path))
    for number in range(5000):  # two events of 272 bytes each
        (tmp_path / f"{number:0200}").touch()
    assert sum(map(len, changes.gulps())) <= 1 << 20
    assert select.select([changes.fd], [], [], 0)[0]
    while changes.names():
        pass
    changes.close()


def test_a_tool_whose_output_never_pauses_ends_at_its_time_limit() -> None:
    with open("/dev/zero") as out, open("/dev/zero") as err:
        assert crash._drain(out.fileno(), err.fileno(), time.monotonic() + 0.1)[2] is False


def test_the_last_connections_of_a_listener_have_an_end(tmp_path: Path) -> None:
    """Its file was removed, and a client that still reaches it connects again whenever it is accepted."""
    listener, clients, most = socket.socket(socket.AF_UNIX), [], 0
    listener.bind(str(tmp_path / "s"))
    listener.listen(1024)

    def connect() -> None:
        clients.append(socket.socket(socket.AF_UNIX))
        clients[-1].connect(str(tmp_path / "s"))

    def accepted(sock: socket.socket, _address: object) -> None:
        nonlocal most
        most += 1
        sock.close()
        if most < 10_000:
            connect()
            clients.pop(0).close()

    loop = Loop()
    acceptor = Acceptor(loop, listener, accepted)
    connect()
    acceptor.finish()
    for one in (listener, *clients):
        one.close()
    assert 1 < most < 2_000

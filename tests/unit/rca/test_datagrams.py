"""Beats of nodes on other machines, from a real socket."""

import socket
import struct
import time
from pathlib import Path

from agents.link.journal import Journal
from agents.link.loop import Loop
from agents.rca.config import Config
from agents.rca.datagrams import SO_TIMESTAMPNS, RemoteNode, RemoteNodes
from agents.rca.nodes import Event
from agents.wire import heartbeat, keys
from redmesh.settings.keeper_file import KeeperFile, NodeEntry
from tests.support.addresses import address
from tests.support.waiting import wait_until

MASTER = b"m" * 32


def is_stamped_on_arrival(sock: socket.socket) -> bool:
    sock.sendto(b"", sock.getsockname())
    sent = time.time()
    wait_until(lambda: time.time() - sent > 0.05, "it waits in the socket")
    _, ((_, _, stamp),), _, _ = sock.recvmsg(1, 64)
    seconds, nanoseconds = struct.unpack("@ll", stamp)
    return bool(seconds + nanoseconds / 1e9 < sent + 0.03)


def make_config(tmp_path: Path) -> Config:
    (tmp_path / "beat.key").write_bytes(keys.as_file([MASTER]))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind((address(1), 0))
        port = free.getsockname()[1]
    file = KeeperFile(
        run=str(tmp_path), state=str(tmp_path), mesh="m", login="h0", boot_id="b1", cpas=1,
        nodes=(NodeEntry(name="h1", processors=(), address="tls://h1:1/h1"),), rca=(f"{address(1)}:{port}",),
        trust=str(tmp_path),
    )  # fmt: skip
    return Config(file)


def test_a_beat_that_waited_in_the_socket_counts_from_when_it_arrived(tmp_path: Path) -> None:
    """An RCA that was stopped reads old beats, also of nodes that another RCA hears by then."""
    config = make_config(tmp_path)
    port = int(config.listen.rpartition(":")[2])
    seen: list[tuple[RemoteNode, Event, float]] = []
    loop, journal = Loop(), Journal(str(tmp_path / "log"), "rca")
    far = RemoteNodes(
        loop, config, journal, lambda node, event, _why, at: seen.append((node, event, at)), lambda: (1, 0)
    )
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as node,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stamped,
    ):
        # the kernel begins to stamp what arrives a moment after the first socket has asked for it
        stamped.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        stamped.bind(("127.0.0.1", 0))
        wait_until(lambda: is_stamped_on_arrival(stamped), "the kernel stamps what arrives")
        node.connect((address(1), port))

        def beat(sequence: int, epoch: int) -> None:
            told = heartbeat.Beat("h1", "b1-12345678", 1, sequence, flags=heartbeat.REGISTER, epoch=epoch)
            node.send(told.encode(keys.beat_key(MASTER, "h1")))

        beat(1, 0)  # the RCA answers with its epoch
        loop.run_once(5.0)
        answer = node.recv(heartbeat.LONGEST + 1)
        epoch = heartbeat.read_acknowledgement(answer, [keys.beat_key(MASTER, "h1")], "b1-12345678").epoch
        before = time.monotonic()
        beat(2, epoch)
        sent = time.monotonic()
        wait_until(lambda: time.monotonic() - sent > 1.0, "the RCA did not run for a while")
        loop.run_once(5.0)
    [(known, event, at)] = seen
    assert event is Event.REGISTER
    assert before - 0.1 < at < sent + 0.1 and known.beaten_at == at
    far.close(loop)
    loop.close()


def test_other_meshes_on_a_host_are_news_once_and_belong_to_one_life_of_its_pct(tmp_path: Path) -> None:
    config, loop, told = make_config(tmp_path), Loop(), []

    def on_event(node: RemoteNode, event: Event, _why: str, at: float) -> None:
        for action in node.machine.handle(event, at):
            told.append((action.value, node.facts["shared"]))

    far = RemoteNodes(loop, config, Journal(str(tmp_path / "log"), "rca"), on_event, lambda: (1, 0))
    key = keys.beat_key(MASTER, "h1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as node:
        node.connect((address(1), int(config.listen.rpartition(":")[2])))

        def send(kind: int, sequence: int, epoch: int, incarnation: int = 1, text: str = "") -> None:
            facts = heartbeat.Facts(agent=text)
            beat = heartbeat.Beat("h1", "b1-12345678", incarnation, sequence, kind=kind, epoch=epoch, facts=facts)
            node.send(beat.encode(key))
            loop.run_once(5.0)

        send(heartbeat.SHARED, 1, 0, text="before it is known")
        send(heartbeat.BEAT, 2, 0)
        epoch = heartbeat.read_acknowledgement(node.recv(heartbeat.LONGEST + 1), [key], "b1-12345678").epoch
        send(heartbeat.BEAT, 3, epoch)
        send(heartbeat.SHARED, 4, epoch - 1, text="played again")
        send(heartbeat.SHARED, 5, epoch, text="also used by mesh b")
        send(heartbeat.SHARED, 6, epoch, text="also used by mesh b")
        send(heartbeat.SHARED, 2, epoch, text="late")
        send(heartbeat.BEAT, 7, epoch)
        send(heartbeat.BEAT, 8, epoch, incarnation=2)
        send(heartbeat.SHARED, 9, epoch, text="of its former PCT")
    far.close(loop)
    loop.close()
    assert told == [("node_up", ""), ("node_up", "also used by mesh b"), ("node_up", "")]

"""One RCA under the beats of ten thousand nodes."""

import os
import selectors
import socket
import sys
import time
from pathlib import Path

from agents.wire import heartbeat, keys
from tests.bench.ratios import Bar, Row
from tests.support.addresses import address
from tests.support.daemons import MESH, Daemons

NODES, EVERY_S = 10_000, 5.0
SETTLED_S, MEASURED_S = 120.0, 20.0
MASTER = b"m" * 32
STEP_S = 0.01


class Crowd:
    """So many PCTs' beats, spread evenly over the interval, and the RCA's answers to them counted."""

    def __init__(self, place: tuple[str, int], boot_id: str) -> None:
        self._place, self._boot_id = place, boot_id
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._sock, selectors.EVENT_READ)
        master = keys.beat_master(MASTER, MESH)
        self._keys = [keys.beat_key(master, f"n{number}") for number in range(NODES)]
        self._epoch, self._next = 0, 0
        self.sent = self.answered = self.refused = 0

    def learn_epoch(self) -> None:
        """What every PCT finds out with its first beat."""
        self._send(0)
        deadline = time.monotonic() + 10.0
        while not self._epoch and time.monotonic() < deadline:
            self._selector.select(STEP_S)
            self._receive()

    def _send(self, number: int) -> None:
        told = heartbeat.Beat(
            f"n{number}", self._boot_id, 1, int(time.monotonic() * 1e6), epoch=self._epoch,
            facts=heartbeat.Facts(1, 0, 0.5, 1000, "0.1.0", f"tls://127.0.0.1:1/n{number}"),
        )  # fmt: skip
        self._sock.sendto(told.encode(self._keys[number]), self._place)
        self.sent += 1

    def _receive(self) -> None:
        while True:
            try:
                datagram = self._sock.recv(heartbeat.LONGEST)
            except BlockingIOError:
                return
            self._epoch = int.from_bytes(datagram[16:24], "big")
            self.answered += 1
            self.refused += datagram[5] != heartbeat.UP

    def beat_for(self, seconds: float) -> None:
        """Beat, each every EVERY_S seconds."""
        began, first = time.monotonic(), self._next
        while (passed := time.monotonic() - began) < seconds:
            due = first + int(passed * NODES / EVERY_S)
            while self._next < due:
                self._send(self._next % NODES)
                self._next += 1
            self._selector.select(STEP_S)
            self._receive()


def _cpu_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def beats() -> list[Row]:
    """The share of a core that the RCA needs, and its memory, once every node is up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((address(1), 0))
        place = probe.getsockname()
    nodes = [
        {"id": n + 1, "name": f"n{n}", "processors": [n], "address": f"tls://127.0.0.1:1/n{n}"} for n in range(NODES)
    ]
    daemons = Daemons(NODES, NODES)
    daemons.configure(nodes=nodes, rca=[f"{place[0]}:{place[1]}"], cpas=1)
    try:
        trust = daemons.state / "trust"
        trust.mkdir(mode=0o700)
        (trust / "beat.key").write_bytes(keys.as_file([keys.beat_master(MASTER, MESH)]))
        daemons.start("cpa-0")
        rca = daemons.start("rca")
        crowd = Crowd(place, "b00710-1")
        crowd.learn_epoch()
        with daemons.client("rca") as client:
            deadline = time.monotonic() + SETTLED_S
            while time.monotonic() < deadline:
                crowd.beat_for(EVERY_S)
                told = client.call({"op": "status"})
                if not told["events"] and sum(node["state"] == "up" for node in told["nodes"]) == NODES:
                    break
            else:
                raise RuntimeError(f"{told['events']} events still wait")
            sent, answered, refused, before = crowd.sent, crowd.answered, crowd.refused, _cpu_s(rca.pid)
            crowd.beat_for(MEASURED_S)
            share = (_cpu_s(rca.pid) - before) / MEASURED_S
            sent, answered = crowd.sent - sent, crowd.answered - answered
            print(f"  {sent} beats, {answered} answered, {crowd.refused - refused} of them not `up`", file=sys.stderr)
            told = client.call({"op": "status"})
            up = sum(node["state"] == "up" for node in told["nodes"])
            if up != NODES or answered < 0.999 * sent:
                raise RuntimeError(f"{up} of {NODES} nodes are up, {answered} of {sent} beats were answered")
            memory = _rss_mb(rca.pid)
    finally:
        daemons.close()
    every = f"one RCA, {NODES:,} nodes beating every {EVERY_S:g} s"
    return [
        Row(f"{every}: share of a core (%)", "one core", 100 * share, 100.0, Bar(0.30, 0.12)),
        Row(f"{every}: memory (MB)", "80 MB", memory, 80.0, Bar(1.0, 0.75)),
    ]

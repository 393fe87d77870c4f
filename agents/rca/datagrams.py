"""Nodes on other machines: checks, counts and answers their datagrams."""

from __future__ import annotations

import os
import struct
import time

from agents.link.journal import Journal
from agents.link.lean import socket
from agents.link.loop import READ, Loop
from agents.rca.config import Config
from agents.rca.nodes import Event, Node, State
from agents.wire import heartbeat, keys
from agents.wire.control import Message
from agents.wire.errors import WireError
from agents.wire.seal import hasten

TYPE_CHECKING = False  # importing typing costs every RCA 6 ms
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

INTERVAL_S, MANY_INTERVAL_S = 2.0, 5.0  # the heartbeat interval; and the interval if there are MANY nodes
MANY = 2000
ASK_S = 1.0  # how often an RCA asks each other RCA whether it runs
_BUFFER = 8 << 20  # for the socket: 10,000 nodes may all send at the same moment
SO_RCVBUFFORCE = 33  # linux/asm-generic/socket.h; Python 3.11 has no name for it
SO_TIMESTAMPNS = 35  # asm-generic/socket.h: the kernel reports the arrival of each datagram (struct timespec)
_TIMESPEC = struct.Struct("@ll")
_ANCILLARY = socket.CMSG_SPACE(_TIMESPEC.size)
_REFUSAL_S = 10.0  # between log lines about refused datagrams


class RemoteNode:
    """A node's state machine, its last beat, and the data by which old beats are recognised."""

    __slots__ = (
        "beaten_at",
        "boot_id",
        "certain",
        "facts",
        "former",
        "incarnation",
        "keys",
        "launches",
        "machine",
        "sequence",
        "shared",
    )

    #: The attribute that nodes with a session have.
    session = None

    def __init__(self, now: float, keys_: list[bytes]) -> None:
        self.machine = Node(now, far=True)
        self.keys = keys_
        self.facts: Message = {}
        self.boot_id = ""
        self.former: set[str] = set()  # its earlier boot ids, during the life of this RCA
        self.incarnation = 0
        self.sequence = 0
        self.launches = 0
        self.shared = ""  # the other meshes on its host
        self.beaten_at = 0.0  # the arrival of its last beat, unaffected by ``forgive``
        self.certain = False  # for a node that is down: a CPA has recorded it; until then another RCA may hear the node

    def is_old(self, told: heartbeat.Beat) -> bool:
        """True if a beat was sent before the last accepted one: a duplicate, a late one, or a replay."""
        if told.boot_id != self.boot_id:
            return told.boot_id in self.former
        return told.incarnation < self.incarnation or told.sequence <= self.sequence

    def is_registration(self, told: heartbeat.Beat) -> bool:
        """True if a beat is a registration, not only a sign of life."""
        return (
            bool(told.flags & heartbeat.REGISTER)
            or (told.boot_id, told.incarnation) != (self.boot_id, self.incarnation)
            or told.facts.address != self.facts.get("address")
        )

    def take(self, told: heartbeat.Beat, arrived: float) -> None:
        """Accept a beat that arrived at the monotonic time ``arrived``."""
        if told.boot_id != self.boot_id and self.boot_id:
            self.former.add(self.boot_id)
        if (told.boot_id, told.incarnation) != (self.boot_id, self.incarnation):
            self.shared = ""
        self.boot_id, self.incarnation, self.sequence = told.boot_id, told.incarnation, told.sequence
        self.launches, self.beaten_at = told.facts.launches, arrived
        self.facts = {
            "node": told.node,
            "boot_id": told.boot_id,
            "incarnation": told.incarnation,
            "address": told.facts.address,
            "processors": told.facts.processors,
            "agent": told.facts.agent,
            "shared": self.shared,
        }


class RemoteNodes:
    """Listens for datagrams; ``on_event(node, event, reason, at)`` gets their meaning, ``at`` in monotonic seconds.

    A beat counts from its arrival: after a stop of this process many wait in the socket, also from nodes that have gone
    over to another RCA since. ``mesh_time()`` gives mesh time and its uncertainty for acknowledgements. Raises OSError
    if the address cannot be bound, or NoKey.
    """

    def __init__(
        self,
        loop: Loop,
        config: Config,
        journal: Journal,
        on_event: Callable[[RemoteNode, Event, str, float], None],
        mesh_time: Callable[[], tuple[float, float]],
    ) -> None:
        hasten()
        self._login, self._key_file, self._journal = config.login, os.path.join(config.trust, "beat.key"), journal
        self._on_event, self._mesh_time = on_event, mesh_time
        self.masters = keys.read(self._key_file)
        self._keys_at, self._unread_at = _changed_at(self._key_file), -1.0
        self._expected = self._ours = set(config.hosts)
        self.knows = (config.boot_id, len(self._expected))  # the boot id of the mesh, and its number of nodes
        self._known_at = time.monotonic()
        self.places: list[str] = []  # the addresses of the mesh's RCAs, this one included
        self.alone = False  # True if no CPA answers us
        #: Gets each question of another login processor's RCA.
        self.on_question: Callable[[heartbeat.Beat], None] = lambda _question: None
        self.interval_s = MANY_INTERVAL_S if len(self._expected) > MANY else min(INTERVAL_S, config.suspect_s / 2.5)
        self.nodes: dict[str, RemoteNode] = {}
        self._epoch = int.from_bytes(os.urandom(8), "big") or 1
        self._refused: dict[str, int] = {}
        self._refusals_told_at = 0.0
        host, port = heartbeat.split_address(config.listen)
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        self.family: int = family
        self._sock = socket.socket(self.family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        for option in (socket.SO_RCVBUF, SO_RCVBUFFORCE):
            try:
                self._sock.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
            except OSError:
                pass  # only root may exceed the system's limit
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        except OSError:
            pass  # not supported by this kernel: beats count from when they are read
        self._sock.bind(address)
        loop.watch(self._sock.fileno(), READ, self._on_datagrams)

    def close(self, loop: Loop) -> None:
        """Stop listening."""
        loop.unwatch(self._sock.fileno())
        self._sock.close()

    def learn(self, reply: Message) -> None:
        """Learn from a CPA (*remote_nodes*) which nodes the mesh has, and whose silence this RCA must report."""
        if reply["boot_id"] != self.knows[0]:
            self.nodes.clear()  # these belong to a mesh that no longer exists
        self._expected, self._ours = set(reply["nodes"]), set(reply["mine"])
        self.knows = (reply["boot_id"], len(self._expected))
        self._known_at = time.monotonic()
        self._journal.write("nodes_known", boot_id=reply["boot_id"], nodes=len(self._expected), mine=len(self._ours))

    def missing(self, patience_s: float) -> list[str]:
        """Nodes that were not heard at all after ``patience_s``."""
        if len(self.nodes) >= len(self._expected) or time.monotonic() - self._known_at < patience_s:
            return []
        return sorted(self._ours.difference(self.nodes))

    def forgive(self, gap_s: float) -> None:
        """Do not count the time in which this process itself was stopped."""
        now = time.monotonic()
        self._known_at += gap_s
        for known in self.nodes.values():
            known.machine.forgive(gap_s, now)

    def expect(self, name: str) -> RemoteNode:
        """The node of that name, created if unknown."""
        known = self.nodes.get(name)
        if known is None:
            known = self.nodes[name] = RemoteNode(time.monotonic(), self._keys_of(name))
        return known

    def _keys_of(self, name: str) -> list[bytes]:
        return [keys.beat_key(master, name) for master in self.masters]

    def look_at_keys(self) -> None:
        """Read keys again that have changed (console/deploy/trust/authority.py: rotation)."""
        changed_at = _changed_at(self._key_file)
        if changed_at == self._keys_at:
            return
        try:
            self.masters = keys.read(self._key_file)
        except keys.NoKey as error:
            self._unread_at = changed_at
            self._journal.write("keys_unread", reason=error.message)
            return
        self._keys_at = changed_at
        for name, node in self.nodes.items():
            node.keys = self._keys_of(name)
        self._journal.write("keys_read", generations=len(self.masters))

    def _on_datagrams(self, _events: int) -> None:
        if _changed_at(self._key_file) not in (self._keys_at, self._unread_at):
            self.look_at_keys()  # a revoked key is invalid from the next beat on, not a second later
        for _ in range(heartbeat.AT_ONCE):
            try:
                datagram, ancillary, _, sender = self._sock.recvmsg(heartbeat.LONGEST + 1, _ANCILLARY)
            except OSError:
                return
            try:
                self._take(datagram, sender, _arrival(ancillary))
            except WireError as error:
                self._refuse(error.message)

    def _refuse(self, why: str) -> None:
        # Refusals are counted and logged only now and then, so that rubbish cannot fill the disk.
        self._refused[why] = self._refused.get(why, 0) + 1
        self.tell_refusals(time.monotonic())

    def tell_refusals(self, now: float) -> None:
        """Log the refusals, unless that was done a moment ago."""
        if self._refused and now - self._refusals_told_at >= _REFUSAL_S:
            self._refusals_told_at = now
            for why, count in self._refused.items():
                self._journal.write("beat_refused", reason=why, count=count)
            self._refused.clear()

    def _take(self, datagram: bytes, sender: Any, arrived: float) -> None:
        name = heartbeat.node_of(datagram)
        if datagram[4] == heartbeat.RCA:
            question, which = read_question(datagram, self.masters, self._login)
            self._send(answer_to(question, self.masters[which]), sender)
            self.on_question(question)
            return
        known = self.nodes.get(name)
        if known is None and name not in self._expected:
            raise WireError("a node that is not of this mesh")
        told, which = heartbeat.read_beat(datagram, known.keys if known is not None else self._keys_of(name))
        known = known or self.expect(name)
        if told.kind == heartbeat.BEAT and (told.epoch != self._epoch or told.flags & heartbeat.TIMELESS):
            self._answer(known, told, which, heartbeat.GREET, sender)
            return
        if known.is_old(told):
            self._refuse("a heartbeat that is old: a duplicate, or played again")
            return
        if told.kind == heartbeat.GONE:
            self._on_gone(known, told, arrived)
            return
        if told.kind == heartbeat.SHARED:
            self._on_shared(known, told, arrived)
            return
        if told.flags & heartbeat.UNHEARD:
            known.sequence = told.sequence
        else:
            self._on_beat(known, told, arrived)
        if known.machine.state is not State.DOWN:
            others = len(self.places) > 1 and told.facts.places == heartbeat.digest_of(self.places)
            self._answer(known, told, which, heartbeat.ALONE if self.alone and others else heartbeat.UP, sender)
        elif known.certain:
            self._answer(known, told, which, heartbeat.RESET, sender)

    def _on_gone(self, known: RemoteNode, told: heartbeat.Beat, arrived: float) -> None:
        if (told.boot_id, told.incarnation) == (known.boot_id, known.incarnation):
            known.sequence = told.sequence
            self._on_event(known, Event.PCT_DIED, "its PCT has died", arrived)

    def _on_shared(self, known: RemoteNode, told: heartbeat.Beat, arrived: float) -> None:
        if told.epoch != self._epoch or (told.boot_id, told.incarnation) != (known.boot_id, known.incarnation):
            return
        known.sequence = told.sequence
        if known.machine.state is State.UP and told.facts.agent != known.shared:
            known.shared = known.facts["shared"] = told.facts.agent
            self._on_event(known, Event.REGISTER, "", arrived)

    def _on_beat(self, known: RemoteNode, told: heartbeat.Beat, arrived: float) -> None:
        # A boot id of another boot of the mesh belongs to nobody: the node must begin anew, or be brought up again.
        foreign = not told.boot_id.startswith(self.knows[0] + "-")
        same_life = told.boot_id == known.boot_id
        registers = known.is_registration(told)
        known.take(told, arrived)
        if foreign:
            known.certain = True
            self._on_event(known, Event.GIVEN_UP, "it is of another boot of the mesh", arrived)
        elif registers and not (same_life and known.machine.state is State.DOWN):
            self._on_event(known, Event.REGISTER, "", arrived)
        else:
            self._on_event(known, Event.BEAT, "", arrived)

    def _answer(self, known: RemoteNode, told: heartbeat.Beat, which: int, view: int, sender: Any) -> None:
        key = known.keys[which]
        if self.places and told.facts.places != heartbeat.digest_of(self.places):
            self._send(heartbeat.encode_places(self.places, told.sequence, key, told.boot_id), sender)
        said = heartbeat.Acknowledgement(view, told.sequence, self._epoch, self.interval_s, *self._mesh_time())
        self._send(said.encode(key, told.boot_id), sender)

    def _send(self, datagram: bytes, to: Any) -> None:
        try:
            self._sock.sendto(datagram, to)
        except OSError:
            pass  # the sender repeats its question


def read_question(datagram: bytes, masters: Sequence[bytes], own: str) -> tuple[heartbeat.Beat, int]:
    """Verify the question of another login processor's RCA to ``own``; also returns which of ``masters`` its key is of.
    Raises WireError if it is not meant for us.

    The check keeps an attacker on the path, or at another's address, from having us answer in another RCA's place.
    """
    asks = [keys.rca_key(master, heartbeat.node_of(datagram)) for master in masters]
    told, which = heartbeat.read_beat(datagram, asks)
    if told.kind != heartbeat.RCA or told.facts.address != own:
        raise WireError("this RCA does not answer such requests")
    return told, which


def answer_to(question: heartbeat.Beat, master: bytes) -> bytes:
    """The answer to the question of another login processor's RCA."""
    said = heartbeat.Acknowledgement(heartbeat.UP, question.sequence, 0, ASK_S)
    return said.encode(keys.rca_key(master, question.node), question.boot_id)


def _arrival(ancillary: Sequence[tuple[int, int, bytes]]) -> float:
    """The arrival of a datagram in monotonic seconds; now, if the kernel does not report it."""
    now = time.monotonic()
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS) and len(data) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return now - max(0.0, time.time() - float(seconds + nanoseconds / 1e9))
    return now


def _changed_at(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


# The mesh time that an RCA gives to nodes.


DRIFT = 2e-4  # the largest drift between two clocks, in seconds a second


class MeshClock:
    """An estimate of the database's clock: our monotonic clock plus an offset, measured anew with every answer."""

    def __init__(self) -> None:
        self._offset = self._error_s = self._learnt_at = 0.0

    def learn(self, mesh_time: float, asked_at: float, now: float) -> None:
        """Record that it was ``mesh_time`` between ``asked_at`` and ``now``."""
        self._offset, self._error_s, self._learnt_at = mesh_time - (asked_at + now) / 2, (now - asked_at) / 2, now

    def now(self) -> tuple[float, float]:
        """Mesh time and its uncertainty; zeros while unknown."""
        if not self._learnt_at:
            return 0.0, 0.0
        now = time.monotonic()
        return now + self._offset, self._error_s + (now - self._learnt_at) * DRIFT

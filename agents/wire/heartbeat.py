"""Beats: the datagrams by which a node on another machine says that it lives, and what an RCA answers. Pure.

A beat and its acknowledgement carry an HMAC-SHA256 under the node's beat key (agents/wire/keys.py). A beat's sequence
is the sender's monotonic clock in microseconds, so PCT and keeper of one node need no common counter, and the
acknowledgement, which repeats it, tells a PCT when the RCA had certainly not heard it last. The *epoch* is a number
that an RCA draws when it starts: a beat that names another one is answered and does not count, so nothing that was
recorded before this RCA lived can be played to it. An RCA of another login processor asks by beats of its own kind
whether one is there. docs/protocol.md has the layout.
"""

from __future__ import annotations

import binascii
import struct

from agents.wire.errors import WireError
from agents.wire.seal import same, seal

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import List, Optional, Sequence, Tuple

MAGIC = b"RMB1"
#: From a node (or its keeper: GONE), to a node (ACK, PLACES), from RCA to RCA (RCA), which is answered by an ACK.
BEAT, GONE, ACK, PLACES, RCA = 1, 2, 3, 4, 5
#: What an RCA thinks of the node: it has to name the RCA's epoch first; all is well; it counts as down for good, and
#: is to clear itself and begin under a new boot id; all is well, but no CPA is reached from there: another RCA may.
GREET, UP, RESET, ALONE = 0, 1, 2, 3
#: Flags of a beat: the PCT wants its node told up anew; it does not know the mesh's time yet, so no launch could
#: begin there, and it does not count as there; it hears no acknowledgements: a way that leads in one direction only is
#: none, and the beat does not count.
REGISTER, TIMELESS, UNHEARD = 1, 2, 4
MAC_SIZE = 32
LONGEST = 1024
MOST_PLACES = 16  # RCAs that a node is told of
LONGEST_PLACE = 58  # so many of them fit in one datagram

#: magic, kind, flags, digest of the places, sequence, epoch, incarnation, processors, launches, load × 100, memory (MB)
_BEAT = struct.Struct(">4sBBHQQIIIII")
#: magic, kind, view, interval (1/100 s), sequence, epoch, mesh time, its uncertainty (s)
_ACK = struct.Struct(">4sBBHQQdd")
#: magic, kind, nothing, nothing, sequence; then the places
_PLACES = struct.Struct(">4sBBHQ")
_NEVER = float("inf")


class Facts:
    """What a beat says of the node. ``load`` is the load average, ``memory_mb`` what is available, ``places`` is
    :func:`digest_of` the RCAs that the node knows."""

    __slots__ = ("address", "agent", "launches", "load", "memory_mb", "places", "processors")

    def __init__(
        self, processors: int = 0, launches: int = 0, load: float = 0.0, memory_mb: int = 0, agent: str = "",
        address: str = "", places: int = 0,
    ) -> None:  # fmt: skip
        self.processors, self.launches, self.load, self.memory_mb = processors, launches, load, memory_mb
        self.agent, self.address, self.places = agent, address, places


class Beat:
    """One beat. ``kind`` is GONE when a keeper says that the PCT of this incarnation has died."""

    __slots__ = ("boot_id", "epoch", "facts", "flags", "incarnation", "kind", "node", "sequence")

    def __init__(
        self, node: str, boot_id: str, incarnation: int, sequence: int, *, kind: int = BEAT, flags: int = 0,
        epoch: int = 0, facts: Optional[Facts] = None,
    ) -> None:  # fmt: skip
        self.node, self.boot_id, self.incarnation, self.sequence = node, boot_id, incarnation, sequence
        self.kind, self.flags, self.epoch, self.facts = kind, flags, epoch, facts or Facts()

    def encode(self, key: bytes) -> bytes:
        """The datagram, under ``key``."""
        facts = self.facts
        head = _BEAT.pack(
            MAGIC, self.kind, self.flags, facts.places, self.sequence, self.epoch, self.incarnation, facts.processors,
            facts.launches, min(int(facts.load * 100), 0xFFFFFFFF), facts.memory_mb,
        )  # fmt: skip
        tail = "\0".join((self.node, self.boot_id, facts.agent, facts.address)).encode("utf-8")
        return _sealed(key, head + tail, b"")


class Acknowledgement:
    """What an RCA answers to a beat.

    ``mesh_time`` (UTC seconds of the database's clock, 0: not known yet) may be off by ``uncertainty_s`` more than the
    way here took.
    """

    __slots__ = ("epoch", "interval_s", "mesh_time", "sequence", "uncertainty_s", "view")

    def __init__(
        self,
        view: int,
        sequence: int,
        epoch: int,
        interval_s: float,
        mesh_time: float = 0.0,
        uncertainty_s: float = 0.0,
    ) -> None:
        self.view, self.sequence, self.epoch, self.interval_s = view, sequence, epoch, interval_s
        self.mesh_time, self.uncertainty_s = mesh_time, uncertainty_s

    def encode(self, key: bytes, boot_id: str) -> bytes:
        """The datagram, under ``key``, for that life of the node alone."""
        interval = min(int(self.interval_s * 100), 0xFFFF)
        whole = _ACK.pack(
            MAGIC, ACK, self.view, interval, self.sequence, self.epoch, self.mesh_time, self.uncertainty_s
        )
        return _sealed(key, whole, boot_id.encode("utf-8"))


def node_of(datagram: bytes) -> str:
    """Whom a beat claims to be from, before anything of it is believed. WireError for what is not a beat."""
    end = datagram.find(b"\0", _BEAT.size, -MAC_SIZE)
    if datagram[:4] != MAGIC or end < 0 or len(datagram) > LONGEST:
        raise WireError("no beat")
    try:
        return datagram[_BEAT.size : end].decode("utf-8")
    except UnicodeDecodeError:
        raise WireError("no beat") from None


def read_beat(datagram: bytes, keys: Sequence[bytes]) -> Tuple[Beat, int]:
    """The beat, and which of ``keys`` it is under. WireError for one that is under none, or no beat."""
    which = _check(datagram, keys, b"")
    head = _BEAT.unpack_from(datagram)
    (_, kind, flags, places, sequence, epoch, incarnation, processors, launches, load, memory) = head
    try:
        node, boot_id, agent, address = datagram[_BEAT.size : -MAC_SIZE].decode("utf-8").split("\0")
    except ValueError:  # UnicodeDecodeError is one
        raise WireError("a beat that is not understood") from None
    if kind not in (BEAT, GONE, RCA):
        raise WireError("a datagram of another kind")
    facts = Facts(processors, launches, load / 100, memory, agent, address, places)
    return Beat(node, boot_id, incarnation, sequence, kind=kind, flags=flags, epoch=epoch, facts=facts), which


def read_acknowledgement(datagram: bytes, keys: Sequence[bytes], boot_id: str) -> Acknowledgement:
    """The acknowledgement. WireError for one that is under none of ``keys``, or for another life of the node."""
    if len(datagram) != _ACK.size + MAC_SIZE:
        raise WireError("no acknowledgement")
    _check(datagram, keys, boot_id.encode("utf-8"))
    magic, kind, view, interval, sequence, epoch, mesh_time, uncertainty = _ACK.unpack_from(datagram)
    if magic != MAGIC or kind != ACK or view not in (GREET, UP, RESET, ALONE):
        raise WireError("no acknowledgement")
    # with less than no doubt, or what is not a number, no later answer would be believed
    if not (0.0 <= uncertainty < _NEVER and abs(mesh_time) < _NEVER):
        raise WireError("no time")
    return Acknowledgement(view, sequence, epoch, interval / 100, mesh_time, uncertainty)


def digest_of(places: Sequence[str]) -> int:
    """16 bits that tell one list of RCAs from another; 0 where there is no other than the one that is asked."""
    return binascii.crc32(" ".join(places).encode("ascii")) & 0xFFFF | 1 if len(places) > 1 else 0


def encode_places(places: Sequence[str], sequence: int, key: bytes, boot_id: str) -> bytes:
    """Where the mesh's RCAs are reached, as an answer to the beat ``sequence`` of that life of a node."""
    head = _PLACES.pack(MAGIC, PLACES, 0, 0, sequence)
    return _sealed(key, head + " ".join(places).encode("ascii"), boot_id.encode("utf-8"))


def is_places(datagram: bytes) -> bool:
    """Whether a datagram claims to be one of :func:`encode_places`."""
    return len(datagram) >= _PLACES.size + MAC_SIZE and datagram[:5] == MAGIC + bytes((PLACES,))


def read_places(datagram: bytes, keys: Sequence[bytes], boot_id: str) -> Tuple[int, List[str]]:
    """The beat that is answered, and the places. WireError for what is none, or for another life of the node."""
    _check(datagram, keys, boot_id.encode("utf-8"))
    try:
        places = datagram[_PLACES.size : -MAC_SIZE].decode("ascii").split()
    except UnicodeDecodeError:
        raise WireError("places that are not understood") from None
    for place in places:
        split_address(place)
    if not places or not is_places(datagram):
        raise WireError("no places")
    return int(_PLACES.unpack_from(datagram)[4]), places


def _sealed(key: bytes, whole: bytes, more: bytes) -> bytes:
    return whole + seal(key, whole + more)


def _check(datagram: bytes, keys: Sequence[bytes], more: bytes) -> int:
    if len(datagram) < _PLACES.size + MAC_SIZE:
        raise WireError("too short for a beat")
    whole, mac = datagram[:-MAC_SIZE], datagram[-MAC_SIZE:]
    for which, key in enumerate(keys):
        if same(seal(key, whole + more), mac):
            return which
    raise WireError("a beat under a key that is not the node's")


def split_address(text: str) -> Tuple[str, int]:
    """Host and port of ``HOST:PORT`` (IPv6 in brackets). WireError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise WireError(f"{text[:80]!r} is not a HOST:PORT")
    return host.strip("[]"), int(port)


def is_place(text: str) -> bool:
    """Whether nodes can be told of an RCA at ``text``."""
    try:
        split_address(text)
    except WireError:
        return False
    return text.isascii() and len(text) <= LONGEST_PLACE and text.split() == [text]

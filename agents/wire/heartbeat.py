"""Heartbeats: datagrams that a node on another machine sends to an RCA, and the RCA's acknowledgements. No I/O.

A beat and its acknowledgement carry an HMAC-SHA256 under the node's beat key (agents/wire/keys.py). The sequence number
of a beat is the sender's monotonic clock in microseconds, so the PCT and the keeper of a node need no common counter.
The acknowledgement repeats the number, which tells a PCT when the RCA received a beat at the latest. The *epoch* is a
random number that an RCA draws when it starts. A beat with another epoch is answered but does not count, so datagrams
that were recorded before this RCA started cannot be replayed. The RCA of another login processor uses beats of a kind
of its own to ask whether an RCA runs. docs/protocol.md has the layout.
"""

from __future__ import annotations

import binascii
import struct

from agents.wire.errors import WireError
from agents.wire.seal import same, seal

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import List, Optional, Sequence, Tuple

MAGIC = b"RMB1"
#: Kinds: sent by a node (or its keeper: GONE), sent to a node (ACK, PLACES), sent by one RCA to another (RCA), which
#: answers with ACK, and sent by a node that has something to say of other meshes on its host (SHARED: in a beat's place
#: for the agent's version). An RCA that does not know a kind ignores the datagram.
BEAT, GONE, ACK, PLACES, RCA, SHARED = 1, 2, 3, 4, 5, 6
#: The RCA's view of the node. GREET: the node must repeat the RCA's epoch first. UP: all is well. RESET: the node
#: counts as down for good; it must clear itself and begin under a new boot id. ALONE: all is well, but the RCA reaches
#: no CPA, so the node may use another RCA.
GREET, UP, RESET, ALONE = 0, 1, 2, 3
#: Flags of a beat. REGISTER: the PCT wants its node reported up again. TIMELESS: the node does not know the mesh time
#: yet, so no launch can start there, and the node counts as not up. UNHEARD: the node receives no acknowledgements; a
#: link that works in one direction only does not count.
REGISTER, TIMELESS, UNHEARD = 1, 2, 4
MAC_SIZE = 32
LONGEST = 1024
AT_ONCE = 64  # datagrams read before other events are handled: anybody may send them
MOST_COUNT = (1 << 32) - 1  # the largest number in a field of a beat
MOST_PLACES = 16  # the most RCAs that a node is given
LONGEST_PLACE = 58  # characters of an address, so that MOST_PLACES fit in one datagram

#: Layout: magic, kind, flags, digest of the places, sequence, epoch, incarnation, processors, launches, load × 100,
#: memory (MB)
_BEAT = struct.Struct(">4sBBHQQIIIII")
#: Layout: magic, kind, view, interval (1/100 s), sequence, epoch, mesh time, its uncertainty (s)
_ACK = struct.Struct(">4sBBHQQdd")
#: Layout: magic, kind, unused, unused, sequence; then the places
_PLACES = struct.Struct(">4sBBHQ")
_NEVER = float("inf")


class Facts:
    """The state of a node in a beat. ``load`` is the load average, ``memory_mb`` the available memory, and
    ``places`` is :func:`digest_of` the list of RCAs that the node knows."""

    __slots__ = ("address", "agent", "launches", "load", "memory_mb", "places", "processors")

    def __init__(
        self, processors: int = 0, launches: int = 0, load: float = 0.0, memory_mb: int = 0, agent: str = "",
        address: str = "", places: int = 0,
    ) -> None:  # fmt: skip
        self.processors, self.launches, self.load, self.memory_mb = processors, launches, load, memory_mb
        self.agent, self.address, self.places = agent, address, places


class Beat:
    """One heartbeat. ``kind`` is GONE if a keeper reports that the PCT with this incarnation has died."""

    __slots__ = ("boot_id", "epoch", "facts", "flags", "incarnation", "kind", "node", "sequence")

    def __init__(
        self, node: str, boot_id: str, incarnation: int, sequence: int, *, kind: int = BEAT, flags: int = 0,
        epoch: int = 0, facts: Optional[Facts] = None,
    ) -> None:  # fmt: skip
        self.node, self.boot_id, self.incarnation, self.sequence = node, boot_id, incarnation, sequence
        self.kind, self.flags, self.epoch, self.facts = kind, flags, epoch, facts or Facts()

    def encode(self, key: bytes) -> bytes:
        """Encode the datagram, sealed with ``key``."""
        facts = self.facts
        head = _BEAT.pack(
            MAGIC, self.kind, self.flags, facts.places, self.sequence, self.epoch, self.incarnation, facts.processors,
            facts.launches, min(int(facts.load * 100), 0xFFFFFFFF), facts.memory_mb,
        )  # fmt: skip
        tail = "\0".join((self.node, self.boot_id, facts.agent, facts.address)).encode("utf-8")
        return _sealed(key, head + tail, b"")


class Acknowledgement:
    """The answer of an RCA to a beat.

    ``mesh_time`` is in UTC seconds of the database's clock (0: not known yet). Its error is at most ``uncertainty_s``
    plus the network delay.
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
        """Encode the datagram, sealed with ``key`` and valid only for this boot id of the node."""
        interval = min(int(self.interval_s * 100), 0xFFFF)
        whole = _ACK.pack(
            MAGIC, ACK, self.view, interval, self.sequence, self.epoch, self.mesh_time, self.uncertainty_s
        )
        return _sealed(key, whole, boot_id.encode("utf-8"))


def node_of(datagram: bytes) -> str:
    """The node name in a beat that is not verified yet. Raises WireError if the datagram is not a beat."""
    end = datagram.find(b"\0", _BEAT.size, -MAC_SIZE)
    if datagram[:4] != MAGIC or end < 0 or len(datagram) > LONGEST:
        raise WireError("no heartbeat")
    try:
        return datagram[_BEAT.size : end].decode("utf-8")
    except UnicodeDecodeError:
        raise WireError("no heartbeat") from None


def read_beat(datagram: bytes, keys: Sequence[bytes]) -> Tuple[Beat, int]:
    """Verify and parse a beat; also returns the index of the key in ``keys``. Raises WireError if no key fits, or if
    it is not a beat."""
    which = _check(datagram, keys, b"")
    head = _BEAT.unpack_from(datagram)
    (_, kind, flags, places, sequence, epoch, incarnation, processors, launches, load, memory) = head
    try:
        node, boot_id, agent, address = datagram[_BEAT.size : -MAC_SIZE].decode("utf-8").split("\0")
    except ValueError:  # includes UnicodeDecodeError
        raise WireError("a heartbeat that is not understood") from None
    if kind not in (BEAT, GONE, RCA, SHARED):
        raise WireError("a datagram of another kind")
    facts = Facts(processors, launches, load / 100, memory, agent, address, places)
    return Beat(node, boot_id, incarnation, sequence, kind=kind, flags=flags, epoch=epoch, facts=facts), which


def read_acknowledgement(datagram: bytes, keys: Sequence[bytes], boot_id: str) -> Acknowledgement:
    """Verify and parse an acknowledgement. Raises WireError if no key fits, or if it is for another boot id."""
    if len(datagram) != _ACK.size + MAC_SIZE:
        raise WireError("no acknowledgement")
    _check(datagram, keys, boot_id.encode("utf-8"))
    magic, kind, view, interval, sequence, epoch, mesh_time, uncertainty = _ACK.unpack_from(datagram)
    if magic != MAGIC or kind != ACK or view not in (GREET, UP, RESET, ALONE):
        raise WireError("no acknowledgement")
    # With a negative uncertainty, or a value that is not a number, no later answer would be accepted.
    if not (0.0 <= uncertainty < _NEVER and abs(mesh_time) < _NEVER):
        raise WireError("no time")
    return Acknowledgement(view, sequence, epoch, interval / 100, mesh_time, uncertainty)


def digest_of(places: Sequence[str]) -> int:
    """A 16-bit digest of a list of RCAs; 0 if the only RCA is the one that is asked."""
    return binascii.crc32(" ".join(places).encode("ascii")) & 0xFFFF | 1 if len(places) > 1 else 0


def encode_places(places: Sequence[str], sequence: int, key: bytes, boot_id: str) -> bytes:
    """Encode the addresses of the mesh's RCAs as the answer to beat ``sequence`` of this boot id."""
    head = _PLACES.pack(MAGIC, PLACES, 0, 0, sequence)
    return _sealed(key, head + " ".join(places).encode("ascii"), boot_id.encode("utf-8"))


def is_places(datagram: bytes) -> bool:
    """True if a datagram claims to come from :func:`encode_places`."""
    return len(datagram) >= _PLACES.size + MAC_SIZE and datagram[:5] == MAGIC + bytes((PLACES,))


def read_places(datagram: bytes, keys: Sequence[bytes], boot_id: str) -> Tuple[int, List[str]]:
    """Verify and parse places; also returns the sequence of the beat. Raises WireError if they are invalid, or for
    another boot id."""
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
        raise WireError("too short for a heartbeat")
    whole, mac = datagram[:-MAC_SIZE], datagram[-MAC_SIZE:]
    for which, key in enumerate(keys):
        if same(seal(key, whole + more), mac):
            return which
    raise WireError("a heartbeat under a key that is not the node's")


def split_address(text: str) -> Tuple[str, int]:
    """Split ``HOST:PORT`` (IPv6 in brackets). Raises WireError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise WireError(f"{text[:80]!r} is not a HOST:PORT")
    return host.strip("[]"), int(port)


def is_place(text: str) -> bool:
    """True if the address ``text`` of an RCA can be sent to nodes."""
    try:
        split_address(text)
    except WireError:
        return False
    return text.isascii() and len(text) <= LONGEST_PLACE and text.split() == [text]

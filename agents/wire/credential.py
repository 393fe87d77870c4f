"""The launch credential: a CPA's word to the nodes of one launch that it was granted (docs/security.md). Pure.

A text, and for each node a MAC under that node's own key over the text, the node's name and this life of its PCT. So
a node that is broken can forge for itself alone, nobody can use it for another launch, node, user or program, and a
PCT that was started again (which has forgotten what it had seen) takes none that was made before.
"""

from __future__ import annotations

from agents.wire.control import decode, encode
from agents.wire.errors import Refusal as Refusal
from agents.wire.errors import WireError
from agents.wire.seal import same as same_seal
from agents.wire.seal import seal, sha256

TYPE_CHECKING = False  # typing itself is not loaded: it would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import Any, Dict, List, Sequence, Tuple

    from agents.wire.control import Message

    Members = List[List[Any]]

VERSION = 1
LONGEST = 1024  # characters: it comes in a hello, from somebody who has not said yet who he is
#: Seconds by which a credential ends before the reservation it is for.
MARGIN_S = 15.0
_KEYS = (
    ("version", int), ("mesh", str), ("launcher", int), ("uid", int), ("members", str), ("common", str),
    ("nonce", str), ("expires_at", float),
)  # fmt: skip


class Credential:
    """``members`` and ``common`` are digests (:func:`digest_of`), ``expires_at`` is in the mesh's time."""

    __slots__ = ("common", "expires_at", "launcher", "members", "mesh", "nonce", "text", "uid")

    def __init__(
        self, mesh: str, launcher: int, uid: int, members: str, common: str, nonce: str, expires_at: float
    ) -> None:
        self.mesh, self.launcher, self.uid = mesh, launcher, uid
        self.members, self.common, self.nonce, self.expires_at = members, common, nonce, expires_at
        self.text = encode(
            {
                "version": VERSION, "mesh": mesh, "launcher": launcher, "uid": uid, "members": members,
                "common": common, "nonce": nonce, "expires_at": float(expires_at),
            }
        ).decode("utf-8")  # fmt: skip


def read(text: str) -> Credential:
    """A credential's text as one. WireError when it is none."""
    if len(text) > LONGEST:
        raise WireError("a credential is shorter")
    found = decode(text.encode("utf-8"))
    if found.get("version") != VERSION:
        raise WireError(f"a credential of version {str(found.get('version'))[:20]}, this build knows {VERSION}")
    for key, kind in _KEYS:
        if type(found.get(key)) is not kind:
            raise WireError(f"a credential without {key!r}")
    return Credential(*(found[key] for key, _ in _KEYS[1:]))


def mac(key: bytes, text: str, node: str, boot_id: str, incarnation: int) -> str:
    """The MAC for ``node`` in this life of its PCT, as hexadecimal digits."""
    parts = ("launch", sha256(text.encode("utf-8")).hexdigest(), node, boot_id, str(incarnation))
    return seal(key, "\0".join(parts).encode("utf-8")).hex()


def same(one: str, other: str) -> bool:
    """Whether two MACs are the same, in a time that does not tell where they differ."""
    return same_seal(one.encode("utf-8"), other.encode("utf-8"))


def digest_of(data: bytes) -> str:
    """SHA-256, as a credential has it."""
    return sha256(data).hexdigest()


def members_of(nodes: Sequence[Any]) -> Members:
    """``[[name, "0-3,8"], …]`` of an allocation's ``nodes``: who belongs to a launch, with which processors."""
    return [[str(node["name"]), ranges(node["processors"])] for node in nodes]


def digest_of_members(members: Any) -> str:
    """SHA-256 of a list of members."""
    return digest_of(encode({"members": members}))


def processors_of(members: Any, node: str) -> frozenset[int]:
    """All processors that a launch has on ``node``. WireError when the list is none."""
    found: List[int] = []
    try:
        for name, text in members:
            if name == node:
                for part in text.split(","):
                    first, _, last = part.partition("-")
                    found += range(int(first), int(last or first) + 1)
    except (TypeError, ValueError, AttributeError):
        raise WireError("the members of a launch are [name, processors]") from None
    return frozenset(found)


def names_of(members: Any) -> "frozenset[str]":
    """The nodes of a launch."""
    try:
        return frozenset(str(name) for name, _ in members)
    except (TypeError, ValueError):
        raise WireError("the members of a launch are [name, processors]") from None


def ranges(processors: Sequence[int]) -> str:
    """``0-3,8`` for 0, 1, 2, 3, 8."""
    runs: List[Tuple[int, int]] = []
    for number in processors:
        if runs and runs[-1][1] + 1 == number:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


class Pass:
    """What a launch that came in was let in with.

    ``parent``: the node above us, "" where it is the launcher. ``lapses_at``: when the credential runs out, by our
    monotonic clock.
    """

    __slots__ = ("credential", "lapses_at", "parent")

    def __init__(self, credential: Credential, parent: str, lapses_at: float) -> None:
        self.credential, self.parent, self.lapses_at = credential, parent, lapses_at


def greeting(message: Message, node: str) -> Dict[str, Any]:
    """What a node below has to be shown in a hello: our load's credential, and the MAC that is for it."""
    return {"credential": message.get("credential", ""), "mac": message.get("macs", {}).get(node, "")}


def for_subtree(message: Message, names: "list[str]") -> Message:
    """The load with the MACs that the nodes ``names`` pass on."""
    macs = message.get("macs", {})
    return dict(message, macs={name: macs[name] for name in names if name in macs})

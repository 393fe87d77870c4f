"""The launch credential: the statement of a CPA to the nodes of a launch that it was granted (docs/security.md). No
I/O.

It is a text, and for each node a MAC of the text, the node's name and the boot id and incarnation of its PCT, under
that node's own key. So a compromised node can forge credentials for itself alone; a credential cannot be used for
another launch, node, user or program; and a restarted PCT, which has forgotten the credentials it has seen, refuses
those made before its start.
"""

from __future__ import annotations

from agents.wire.control import decode, encode
from agents.wire.errors import Refusal as Refusal
from agents.wire.errors import WireError
from agents.wire.number_ranges import ranges, runs_in
from agents.wire.seal import same as same_seal
from agents.wire.seal import seal, sha256

TYPE_CHECKING = False  # importing typing would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import Any, Dict, List, Sequence

    from agents.wire.control import Message

    Members = List[List[Any]]

VERSION = 1
LONGEST = 1024  # characters; limits the hello of a peer that is not yet authenticated
#: A credential expires this many seconds before its reservation ends.
MARGIN_S = 15.0
_KEYS = (
    ("version", int), ("mesh", str), ("launcher", int), ("uid", int), ("members", str), ("common", str),
    ("nonce", str), ("expires_at", float),
)  # fmt: skip


class Credential:
    """The parsed text. ``members`` and ``common`` are digests (:func:`digest_of`); ``expires_at`` is in mesh time."""

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
    """Parse the text of a credential. Raises WireError if it is not valid."""
    if len(text) > LONGEST:
        raise WireError("a credential is shorter")
    found = decode(text.encode("utf-8"))
    if found.get("version") != VERSION:
        raise WireError(f"a credential of version {str(found.get('version'))[:20]}, this build knows {VERSION}")
    for key, kind in _KEYS:
        if type(found.get(key)) is not kind:
            raise WireError(f"a credential without {key!r}")
    return Credential(*(found[key] for key, _ in _KEYS[1:]))


def mac(key: bytes, text: str, node: str, boot_id: str, incarnation: int, *, purpose: str = "launch") -> str:
    """The MAC for ``node`` with this boot id and incarnation of its PCT, in hexadecimal."""
    parts = (purpose, sha256(text.encode("utf-8")).hexdigest(), node, boot_id, str(incarnation))
    return seal(key, "\0".join(parts).encode("utf-8")).hex()


def same(one: str, other: str) -> bool:
    """Compare two MACs in constant time."""
    return same_seal(one.encode("utf-8"), other.encode("utf-8"))


def digest_of(data: bytes) -> str:
    """The SHA-256 digest in the form used in credentials."""
    return sha256(data).hexdigest()


def members_of(nodes: Sequence[Any]) -> Members:
    """The members of a launch with their processors, ``[[name, "0-3,8"], …]``, from the ``nodes`` of an allocation."""
    return [[str(node["name"]), ranges(node["processors"])] for node in nodes]


def digest_of_members(members: Any) -> str:
    """SHA-256 of a list of members."""
    return digest_of(encode({"members": members}))


def processors_of(members: Any, node: str) -> frozenset[int]:
    """All processors of a launch on ``node``. Raises WireError if ``members`` is not a valid list."""
    found: List[int] = []
    try:
        for name, text in members:
            if name == node:
                for first, last in runs_in(text):
                    found += range(first, last + 1)
    except (TypeError, ValueError, AttributeError):
        raise WireError("the members of a launch are [name, processors]") from None
    return frozenset(found)


def names_of(members: Any) -> "frozenset[str]":
    """The names of the nodes of a launch."""
    try:
        return frozenset(str(name) for name, _ in members if name)  # agents/wire/caller_groups.py has one without
    except (TypeError, ValueError):
        raise WireError("the members of a launch are [name, processors]") from None


class Pass:
    """The credential data of an admitted launch.

    ``parent`` is the parent node, or "" if the parent is the launcher. ``lapses_at`` is when the credential expires, by
    the local monotonic clock.
    """

    __slots__ = ("credential", "lapses_at", "parent")

    def __init__(self, credential: Credential, parent: str, lapses_at: float) -> None:
        self.credential, self.parent, self.lapses_at = credential, parent, lapses_at


def greeting(message: Message, node: str) -> Dict[str, Any]:
    """The hello members that show our load's credential, with the MAC for ``node``, to a child node."""
    return {"credential": message.get("credential", ""), "mac": message.get("macs", {}).get(node, "")}


def for_subtree(message: Message, names: "list[str]") -> Message:
    """The load with the MACs of the nodes ``names``, for a child that forwards them."""
    macs = message.get("macs", {})
    return dict(message, macs={name: macs[name] for name in names if name in macs})

"""The statement of a CPA to a node that somebody is a certain user: with it a user's command, which has no certificate,
reaches that user's state objects on a node in system mode (docs/security.md). No I/O.

As with a launch credential, each node gets a MAC under its own key, for its present boot id and incarnation.
"""

from __future__ import annotations

from agents.wire.control import decode, encode
from agents.wire.credential import LONGEST, mac
from agents.wire.errors import WireError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Optional

#: Seconds for which a pass is good; it is looked at once for each connection.
LASTS_S = 60.0
VERSION = 1
_KEYS = (("version", int), ("mesh", str), ("object_uid", int), ("expires_at", float))


class ObjectPass:
    """The parsed text; ``expires_at`` is in mesh time."""

    __slots__ = ("expires_at", "mesh", "text", "uid")

    def __init__(self, mesh: str, uid: int, expires_at: float) -> None:
        self.mesh, self.uid, self.expires_at = mesh, uid, expires_at
        told = {"version": VERSION, "mesh": mesh, "object_uid": uid, "expires_at": float(expires_at)}
        self.text = encode(told).decode("utf-8")


def read(text: str) -> ObjectPass:
    """Parse the text of a pass. Raises WireError if it is not valid."""
    if len(text) > LONGEST:
        raise WireError("a pass is shorter")
    found = decode(text.encode("utf-8"))
    if found.get("version") != VERSION or any(type(found.get(key)) is not kind for key, kind in _KEYS):
        raise WireError("that is not a pass for state objects")
    return ObjectPass(found["mesh"], found["object_uid"], found["expires_at"])


def mac_of(key: bytes, text: str, node: str, boot_id: str, incarnation: int) -> str:
    """The MAC for ``node``; another one than that of a launch credential with the same text."""
    return mac(key, text, node, boot_id, incarnation, purpose="object")


class ObjectPeer:
    """Who is at the other end of a connection about state objects.

    ``role``: of its certificate (cpa, rca, pct), or "" for a user's command. ``uid``: the user that a pass names; None
    without a pass.
    """

    __slots__ = ("role", "uid")

    def __init__(self, role: str, uid: Optional[int] = None) -> None:
        self.role, self.uid = role, uid

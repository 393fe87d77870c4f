"""What a launch credential is made of: who was granted what, and which life of each node it was granted on."""

from collections.abc import Sequence
from typing import NamedTuple

from db import cookies
from db.connection import Store
from db.errors import Denied, Expired
from db.folded import conditions, unfold


class Grant(NamedTuple):
    """A reservation that has not begun: ``until`` is when it runs out, by the database's clock."""

    launcher: int
    uid: int
    until: float
    processors: list[int]


def pending(store: Store, launcher: int, cookie: str) -> Grant:
    """The reservation of ``launcher``. Expired when it has begun or is gone, Denied (cookie)."""
    rows = store.read("SELECT cookie, state, uid, pending_until, processors FROM launcher WHERE id = ?", (launcher,))
    if not rows:
        raise Expired(f"there is no launcher {launcher}", "start again")
    stored, state, uid, until, processors = rows[0]
    if not cookies.fits(cookie, stored):
        raise Denied(f"the cookie of launcher {launcher} is another", "only the launcher itself may say this")
    if state != "pending":
        raise Expired(f"launcher {launcher} is {state}: a credential is for its load", "start again")
    return Grant(launcher, uid, until, list(unfold(processors)))


def lives(store: Store, nodes: Sequence[int]) -> dict[str, tuple[str, int]]:
    """Boot id and incarnation of these nodes (ids), by name; of one that is not up they are of nobody."""
    found: dict[str, tuple[str, int]] = {}
    for condition in conditions(nodes):
        for name, boot_id, incarnation in store.read(f"SELECT name, boot_id, incarnation FROM node WHERE {condition}"):
            found[name] = (boot_id, incarnation)
    return found

"""Where each job's state object is (docs/state-object.md): one row a job, of which a counter orders the reports.

Each change is one guarded statement outside the mesh row's lock (DESIGN.md's rule has this exception): a report is
right in whatever order reports come, late, repeated or reordered, for only one with a higher counter changes the row.
No other transaction reads or changes these rows.
"""

from __future__ import annotations

from typing import NamedTuple

from db.errors import Invalid
from db.store.store import Store

MAX_URL = 255
#: What a location begins with whose node has no address that a browser could open: redmesh://NODE/UUID.
SCHEME = "redmesh://"
#: The one indexed read that finds an object.
LOCATE = "SELECT url, counter, proxied, uid FROM state_location WHERE uuid = ?"


class Location(NamedTuple):
    """Where an object is, and after how many moves."""

    url: str
    counter: int
    proxied: bool
    uid: int


def url_on(node: str, uuid: str) -> str:
    """The location of an object that is on ``node``."""
    return f"{SCHEME}{node}/{uuid}"


def locate(store: Store, uuid: str) -> Location | None:
    """Where the object is; None where no job of this name was ever reported."""
    rows = store.read(LOCATE, (uuid,))
    return Location(rows[0][0], rows[0][1], bool(rows[0][2]), rows[0][3]) if rows else None


def register(store: Store, uuid: str, node: str, uid: int) -> bool:
    """A job begins on ``node``, of this mesh: whether that is news. Repeated it changes nothing."""
    return bool(
        store.change_alone(
            "INSERT INTO state_location (uuid, url, counter, proxied, uid) SELECT ?, ?, 0, 0, ? FROM node"
            " WHERE name = ? AND NOT EXISTS (SELECT 1 FROM state_location WHERE uuid = ?)",
            (uuid, url_on(node, uuid), uid, node, uuid),
        )
    )


def report_move(store: Store, uuid: str, sender: str, receiver: str, counter: int, uid: int) -> bool:
    """``sender``, a node, has sent the object to ``receiver``, which confirmed: it is the object's move ``counter``.

    False, and nothing is changed, for a report that is late or repeated, for a job of another uid, for a receiver that
    is no node of this mesh, and for the move
    that follows the known location when the object is not on the sender. A report that overtook an earlier one is
    taken: the earlier one then changes nothing.
    """
    if counter < 1:
        raise Invalid(f"{uuid}: moves are counted from 1, not {counter}")
    return bool(
        store.change_alone(
            "UPDATE state_location SET url = ?, counter = ?, proxied = 0 WHERE uuid = ? AND counter < ? AND uid = ?"
            " AND (counter + 1 < ? OR url = ?) AND EXISTS (SELECT 1 FROM node WHERE name = ?)",
            (url_on(receiver, uuid), counter, uuid, counter, uid, counter, url_on(sender, uuid), receiver),
        )
    )


def forget(store: Store, uuid: str, node: str, uid: int) -> bool:
    """The object on ``node`` was deleted: whether it was known there."""
    return bool(
        store.change_alone(
            "DELETE FROM state_location WHERE uuid = ? AND url = ? AND uid = ?", (uuid, url_on(node, uuid), uid)
        )
    )

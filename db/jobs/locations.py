"""Where each job's state object is (docs/state-object.md): one row a job, of which a counter orders the reports.

Each change is one guarded statement outside the mesh row's lock (DESIGN.md's rule has this exception): a report is
right in whatever order reports come, late, repeated or reordered, for only one with a higher counter changes the row.
No other transaction reads or changes these rows.
"""

from __future__ import annotations

from typing import NamedTuple

from db.errors import Invalid
from db.schema.models import Node, StateLocation
from db.store.orm import pw
from db.store.statements import Query, statement
from db.store.store import Store
from redmesh.state import url_on

MAX_URL = 255


class Location(NamedTuple):
    """Where an object is, and after how many moves."""

    url: str
    counter: int
    proxied: bool
    uid: int


@statement
def locating(*, uuid: str) -> Query:
    """The one indexed read that finds an object."""
    found = StateLocation
    return found.select(found.url, found.counter, found.proxied, found.uid).where(found.uuid == uuid)


@statement
def _registering(*, uuid: str, url: str, uid: int, node: str) -> Query:
    known = StateLocation.alias("known")
    there = known.select(pw.SQL("1")).where(known.uuid == uuid)
    row = Node.select(uuid, url, pw.SQL("0"), pw.SQL("0"), uid).where((Node.name == node) & ~pw.fn.EXISTS(there))
    columns = [StateLocation.uuid, StateLocation.url, StateLocation.counter, StateLocation.proxied, StateLocation.uid]
    return StateLocation.insert_from(row, columns)


@statement
def _moving(*, uuid: str, sender: str, receiver: str, counter: int, uid: int, node: str) -> Query:
    one = StateLocation
    follows = (one.counter + 1 < counter) | (one.url == sender)
    exists = pw.fn.EXISTS(Node.select(pw.SQL("1")).where(Node.name == node))
    changed = {one.url: receiver, one.counter: counter, one.proxied: False}
    return one.update(changed).where((one.uuid == uuid) & (one.counter < counter) & (one.uid == uid) & follows & exists)


@statement
def _forgetting(*, uuid: str, url: str, uid: int) -> Query:
    one = StateLocation
    return one.delete().where((one.uuid == uuid) & (one.url == url) & (one.uid == uid))


def locate(store: Store, uuid: str) -> Location | None:
    """Where the object is; None where no job of this name was ever reported."""
    rows = store.read(locating.bind(uuid=uuid))
    return Location(rows[0][0], rows[0][1], bool(rows[0][2]), rows[0][3]) if rows else None


def register(store: Store, uuid: str, node: str, uid: int) -> bool:
    """A job begins on ``node``, of this mesh: whether that is news. Repeated it changes nothing."""
    return bool(store.change_alone(_registering.bind(uuid=uuid, url=url_on(node, uuid), uid=uid, node=node)))


def report_move(store: Store, uuid: str, sender: str, receiver: str, counter: int, uid: int) -> bool:
    """``sender``, a node, has sent the object to ``receiver``, which confirmed: it is the object's move ``counter``.

    False, and nothing is changed, for a report that is late or repeated, for a job of another uid, for a receiver that
    is no node of this mesh, and for the move
    that follows the known location when the object is not on the sender. A report that overtook an earlier one is
    taken: the earlier one then changes nothing.
    """
    if counter < 1:
        raise Invalid(f"{uuid}: moves are counted from 1, not {counter}")
    moved = _moving.bind(
        uuid=uuid, sender=url_on(sender, uuid), receiver=url_on(receiver, uuid), counter=counter, uid=uid, node=receiver
    )
    return bool(store.change_alone(moved))


def forget(store: Store, uuid: str, node: str, uid: int) -> bool:
    """The object on ``node`` was deleted: whether it was known there."""
    return bool(store.change_alone(_forgetting.bind(uuid=uuid, url=url_on(node, uuid), uid=uid)))

"""The location of each job's state object (docs/state-object.md): one row a job, with a counter that orders reports.

Each change is one guarded statement outside the mesh row's lock (an exception to DESIGN.md's rule). Only a report with
a higher counter changes the row, so late, repeated and reordered reports do no harm. No other transaction reads or
changes these rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from db.errors import Invalid
from db.machine.node_states import NodeState
from db.schema.models import Node, StateLocation
from db.store.orm import pw
from db.store.statements import Query, statement
from db.store.store import Store
from redmesh.state import SCHEME, url_on


class Location(NamedTuple):
    """The location of an object, and the number of its moves. ``proxied``: its standby answers queries in its place,
    because nobody can connect to the login processor of its owner."""

    url: str
    counter: int
    proxied: bool
    uid: int
    standby: str = ""  # the node with the standby copy that the owner updates; "" for none
    goes_to: str = ""  # the login processor on which the job is to continue; "" for a job that stays


class OnTheMove(NamedTuple):
    """A job that is to continue on the login processor ``goes_to``. ``node``: where its object is."""

    uuid: str
    uid: int
    node: str
    goes_to: str


#: Jobs on the move that one reading returns.
MOST_ON_THE_MOVE = 1000


@statement
def locating(*, uuid: str) -> Query:
    """The indexed read that finds an object."""
    found = StateLocation
    columns = (found.url, found.counter, found.proxied, found.uid, found.standby, found.goes_to)
    return found.select(*columns).where(found.uuid == uuid)


@statement
def _registering(*, uuid: str, url: str, uid: int, node: str) -> Query:
    known = StateLocation.alias("known")
    there = known.select(pw.SQL("1")).where(known.uuid == uuid)
    new = (uuid, url, pw.SQL("0"), pw.SQL("0"), uid, pw.SQL("''"), pw.SQL("''"))
    row = Node.select(*new).where((Node.name == node) & ~pw.fn.EXISTS(there))
    one = StateLocation
    return one.insert_from(row, [one.uuid, one.url, one.counter, one.proxied, one.uid, one.standby, one.goes_to])


@statement
def _moving(*, uuid: str, sender: str, receiver: str, counter: int, uid: int, node: str) -> Query:
    one = StateLocation
    follows = (one.counter + 1 < counter) | (one.url == sender)
    exists = pw.fn.EXISTS(Node.select(pw.SQL("1")).where(Node.name == node))
    changed = {one.url: receiver, one.counter: counter, one.proxied: False, one.standby: ""}
    return one.update(changed).where((one.uuid == uuid) & (one.counter < counter) & (one.uid == uid) & follows & exists)


@statement
def _standing_by(*, uuid: str, url: str, counter: int, uid: int, standby: str, proxied: bool) -> Query:
    one = StateLocation
    newer = (one.counter < counter) | ((one.counter == counter) & (one.url == url))
    changed = {one.url: url, one.counter: counter, one.standby: standby, one.proxied: proxied}
    return one.update(changed).where((one.uuid == uuid) & (one.uid == uid) & newer)


@statement
def _taking_over(*, uuid: str, url: str, counter: int, uid: int, standby: str, next_url: str, goes_to: str) -> Query:
    one = StateLocation
    changed = {one.url: next_url, one.counter: one.counter + 1, one.standby: "", one.proxied: False}
    changed[one.goes_to] = goes_to
    same = (one.url == url) & (one.counter == counter) & (one.standby == standby)
    return one.update(changed).where((one.uuid == uuid) & (one.uid == uid) & same)


@statement
def _sending(*, uuid: str, uid: int, goes_to: str, url: str, up: str) -> Query:
    one = StateLocation
    login = (Node.name == goes_to) & (Node.role == "login") & (Node.state == up)
    there = pw.fn.EXISTS(Node.select(pw.SQL("1")).where(login))
    can = (one.standby != "") & (one.url != url) & there
    return one.update({one.goes_to: goes_to}).where((one.uuid == uuid) & (one.uid == uid) & can)


@statement
def _staying(*, uuid: str, uid: int, goes_to: str) -> Query:
    one = StateLocation
    same = (one.uuid == uuid) & (one.uid == uid) & (one.goes_to == goes_to)
    return one.update({one.goes_to: ""}).where(same)


@statement
def on_the_move(*, most: int) -> Query:
    """The jobs that are to continue on another login processor; if there are too many, as many of each user."""
    one = StateLocation
    turn = pw.fn.ROW_NUMBER().over(partition_by=[one.uid], order_by=[one.uuid])
    moving = one.select(one.uuid, one.uid, one.url, one.goes_to).where(one.goes_to > "")
    return moving.order_by(turn, one.uuid).limit(most)


@statement
def _login_named(*, name: str) -> Query:
    return Node.select(Node.name).where((Node.name == name) & (Node.role == "login"))


@statement
def staying_from(*, login: str) -> Query:
    """No job is to continue on ``login`` any more."""
    one = StateLocation
    return one.update({one.goes_to: ""}).where(one.goes_to == login)


@statement
def _on_node(*, urls: str, length: int) -> Query:
    one = StateLocation
    there = pw.fn.SUBSTR(one.url, 1, length) == urls
    return one.select(one.uuid, one.uid).where((one.standby != "") & there).order_by(one.uuid)


@statement
def _leaving_lost(*, urls: str, length: int, lost: str, goes_to: str) -> Query:
    one = StateLocation
    left = ((one.standby != "") & (pw.fn.SUBSTR(one.url, 1, length) == urls)) | (one.goes_to == lost)
    return one.update({one.goes_to: goes_to}).where(left)


@statement
def _down(*, name: str, down: str) -> Query:
    return Node.select(Node.id).where(Node.name == name, Node.state == down)


@statement
def _taking_over_lost(
    *, uuid: str, url: str, counter: int, uid: int, standby: str, next_url: str, owner: str, down: str
) -> Query:
    one = StateLocation
    changed = {one.url: next_url, one.counter: one.counter + 1, one.standby: "", one.proxied: False}
    same = (one.url == url) & (one.counter == counter) & (one.standby == standby)
    lost = pw.fn.EXISTS(Node.select(pw.SQL("1")).where((Node.name == owner) & (Node.state == down)))
    return one.update(changed).where((one.uuid == uuid) & (one.uid == uid) & same & lost)


@statement
def _forgetting(*, uuid: str, url: str, uid: int) -> Query:
    one = StateLocation
    return one.delete().where((one.uuid == uuid) & (one.url == url) & (one.uid == uid))


def locate(store: Store, uuid: str) -> Location | None:
    """The location of the object; None if no job of this name was ever reported."""
    rows = store.read(locating.bind(uuid=uuid))
    return Location(rows[0][0], rows[0][1], bool(rows[0][2]), *rows[0][3:]) if rows else None


def register(store: Store, uuid: str, node: str, uid: int) -> bool:
    """Record that a job starts on ``node`` of this mesh; returns whether that is new. May be repeated."""
    return bool(store.change_alone(_registering.bind(uuid=uuid, url=url_on(node, uuid), uid=uid, node=node)))


def report_move(store: Store, uuid: str, sender: str, receiver: str, counter: int, uid: int) -> bool:
    """Record move ``counter`` of an object from ``sender`` to ``receiver``, which has confirmed it.

    Returns False and changes nothing for a late or repeated report, for a job of another uid, for a receiver that is
    not a node of this mesh, and for the move after the known location if the object is not on the sender. A report that
    overtook an earlier one is accepted; the earlier one then changes nothing.
    """
    if counter < 1:
        raise Invalid(f"{uuid}: moves are counted from 1, not {counter}")
    moved = _moving.bind(
        uuid=uuid, sender=url_on(sender, uuid), receiver=url_on(receiver, uuid), counter=counter, uid=uid, node=receiver
    )
    return bool(store.change_alone(moved))


def stand_by(store: Store, uuid: str, node: str, counter: int, uid: int, standby: str) -> Location | None:
    """Record that the owner on ``node``, after ``counter`` moves, has its standby on ``standby`` ("": none).

    Returns the location that is known then. If it has another url or a higher counter, the object now belongs to
    another owner, and this owner must stop.
    """
    url = url_on(node, uuid)
    standing = _standing_by.bind(uuid=uuid, url=url, counter=counter, uid=uid, standby=standby, proxied=bool(standby))
    store.change_alone(standing)
    return locate(store, uuid)


def take_over(
    store: Store, uuid: str, counter: int, uid: int, witness: str, goes_to: str = ""
) -> Location | None:  # fmt: skip
    """Give the object to its standby if the owner's node is down, or if it is ``witness``, which reports that it has
    neither the object nor an owner. Returns the new location. One guarded statement decides; None: nothing changed.

    ``goes_to``: the login processor on which the witness wants the job to continue; "" changes nothing of that, nor
    does the name of what is no login processor, where nobody would have the job continue.
    """
    known = locate(store, uuid)
    if known is None or not known.standby or known.counter != counter:
        return None
    if goes_to and not store.read(_login_named.bind(name=goes_to)):
        goes_to = ""
    owner, url, standby = node_in(known.url), known.url, known.standby
    there = url_on(standby, uuid)
    if owner == witness:
        change = _taking_over.bind(
            uuid=uuid, url=url, counter=counter, uid=uid, standby=standby, next_url=there,
            goes_to=goes_to or known.goes_to,
        )  # fmt: skip
    else:
        change = _taking_over_lost.bind(
            uuid=uuid, url=url, counter=counter, uid=uid, standby=standby, next_url=there, owner=owner,
            down=NodeState.DOWN.value,
        )  # fmt: skip
    changed = store.change_alone(change)
    return locate(store, uuid) if changed else None


def send(store: Store, uuid: str, uid: int, login: str) -> bool:
    """Record that a job with a standby is to continue on ``login``, a login processor that is up; False if it cannot.

    The RCAs of both login processors see to it until it is so (docs/decisions/0033-the-tracker-says-who-continues.md).
    """
    sending = _sending.bind(uuid=uuid, uid=uid, goes_to=login, url=url_on(login, uuid), up=NodeState.UP.value)
    if store.change_alone(sending):
        return True
    known = locate(store, uuid)
    return known is not None and known.uid == uid and known.goes_to == login


def stay(store: Store, uuid: str, uid: int, login: str) -> bool:
    """Record that a job is not to move to ``login`` any more: it continues there, or it stays; False if it was not."""
    return bool(store.change_alone(_staying.bind(uuid=uuid, uid=uid, goes_to=login)))


def is_down(store: Store, node: str) -> bool:
    """True if a node, or a login processor, is down."""
    return bool(store.read(_down.bind(name=node, down=NodeState.DOWN.value)))


def jobs_in(rows: Sequence[Sequence[Any]]) -> list[OnTheMove]:
    """The jobs in the rows of ``on_the_move``."""
    return [OnTheMove(uuid, uid, node_in(url), goes_to) for uuid, uid, url, goes_to in rows]


def with_standby_on(store: Store, node: str) -> list[tuple[str, int]]:
    """The objects of ``node`` that have a standby on another node, and the uids of their users."""
    urls = f"{SCHEME}{node}/"
    return [(uuid, uid) for uuid, uid in store.read(_on_node.bind(urls=urls, length=len(urls)))]


def leave_lost(store: Store, lost: str, login: str) -> None:
    """Record that the jobs of the lost login processor ``lost``, and those on their way there, continue on
    ``login``."""
    urls = f"{SCHEME}{lost}/"
    store.change_alone(_leaving_lost.bind(urls=urls, length=len(urls), lost=lost, goes_to=login))


def node_in(url: str) -> str:
    """The node in a location."""
    return url.removeprefix(SCHEME).partition("/")[0]


def forget(store: Store, uuid: str, node: str, uid: int) -> bool:
    """Record that the object on ``node`` was deleted; returns whether it was known there."""
    return bool(store.change_alone(_forgetting.bind(uuid=uuid, url=url_on(node, uuid), uid=uid)))

"""Which processors serve whom: alloc modes, and reservations for a user. One function, one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from db.errors import Invalid
from db.schema.models import Node, Processor
from db.store.ranges import fold
from db.store.statements import STAMP, Bound, Ids, Query, among, statement
from db.store.store import Store, Transaction

#: interactive serves batch jobs and interactive launchers, batch only batch jobs, reserved nobody new.
MODES = ("interactive", "batch", "reserved")


@statement
def _set_mode(*, ids: Ids, mode: str) -> Query:
    return Processor.update({Processor.alloc_mode: mode, Processor.changed: STAMP}).where(among(Processor.id, ids))


@statement
def _reserve(*, ids: Ids, user: str | None) -> Query:
    return Processor.update({Processor.reserved_for: user, Processor.changed: STAMP}).where(among(Processor.id, ids))


@statement
def _sides_of(*, ids: Ids) -> Query:
    return (
        Processor.select(Processor.id, Processor.node, Node.side)
        .join(Node, on=Node.id == Processor.node)
        .where(among(Processor.id, ids))
    )


def set_mode(store: Store, ids: Sequence[int], mode: str, by: str = "") -> None:
    """Changes the mode of processors; what runs on them runs on. Invalid."""
    if mode not in MODES:
        raise Invalid(f"no mode is called {mode[:40]!r}", f"there are: {', '.join(MODES)}")
    store.run(
        lambda t: _set(t, ids, _set_mode.bind(ids=list(set(ids)), mode=mode), f"mode {mode}, by {by or 'nobody'}")
    )


def reserve(store: Store, ids: Sequence[int], user: str | None, by: str = "", reason: str = "") -> None:
    """Keeps processors for one user; None gives them back to all. What runs on them runs on. Invalid."""
    if user is not None and not user:
        raise Invalid("processors are reserved for a user by name")
    what = "reserved for nobody" if user is None else f"reserved for {user}"
    told = f"{what}, by {by or 'nobody'}" + (f": {reason}" if reason else "")
    store.run(lambda t: _set(t, ids, _reserve.bind(ids=list(set(ids)), user=user), told))


def _set(t: Transaction, ids: Sequence[int], change: Bound, text: str) -> None:
    if not ids:
        raise Invalid("no processors are named")
    if t.change(change) != len(set(ids)):
        raise Invalid("one of these processors is not of this mesh", "showmesh shows those there are")
    t.freed = True
    _tell(t, ids, text)


def _tell(t: Transaction, ids: Sequence[int], text: str) -> None:
    """An event for each side of the machine, at one of its nodes: viewers of another see neither."""
    of_side: dict[int, tuple[int, list[int]]] = {}
    for one, node, side in t.rows(_sides_of.bind(ids=list(set(ids)))):
        of_side.setdefault(side, (node, []))[1].append(one)
    for _, (node, these) in sorted(of_side.items()):
        t.event("mode", f"{fold(sorted(these))}: {text}", node=node)

"""Alloc modes of processors, and reservations for a user. Each function is one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from db.errors import Invalid
from db.schema.models import Node, Processor
from db.store.ranges import fold
from db.store.statements import STAMP, Bound, Ids, Query, among, statement
from db.store.store import Store, Transaction

#: interactive: for batch jobs and interactive launchers; batch: only for batch jobs; reserved: for no new launcher.
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
    """Change the mode of processors; running launches continue. Raises Invalid."""
    if mode not in MODES:
        raise Invalid(f"no mode is called {mode[:40]!r}", f"there are: {', '.join(MODES)}")
    store.run(
        lambda t: _set(t, ids, _set_mode.bind(ids=list(set(ids)), mode=mode), f"mode {mode}, by {by or 'nobody'}")
    )


def reserve(store: Store, ids: Sequence[int], user: str | None, by: str = "", reason: str = "") -> None:
    """Reserve processors for one user, or (None) for nobody. Running launches continue. Raises Invalid."""
    if user is not None and not user:
        raise Invalid("processors are reserved for a user by name")
    what = "reserved for nobody" if user is None else f"reserved for {user}"
    told = f"{what}, by {by or 'nobody'}" + (f": {reason}" if reason else "")
    store.run(lambda t: _set(t, ids, _reserve.bind(ids=list(set(ids)), user=user), told))


def _set(t: Transaction, ids: Sequence[int], change: Bound, text: str) -> None:
    if not ids:
        raise Invalid("no processors are named")
    if t.change(change) != len(set(ids)):
        raise Invalid("one of these processors does not exist in this mesh", "showmesh shows those there are")
    t.freed = True
    _tell(t, ids, text)


def _tell(t: Transaction, ids: Sequence[int], text: str) -> None:
    """Insert an event for each side of the machine, at one of its nodes, because viewers of other sides may not see
    it."""
    of_side: dict[int, tuple[int, list[int]]] = {}
    for one, node, side in t.rows(_sides_of.bind(ids=list(set(ids)))):
        of_side.setdefault(side, (node, []))[1].append(one)
    for _, (node, these) in sorted(of_side.items()):
        t.event("mode", f"{fold(sorted(these))}: {text}", node=node)

"""Which processors serve whom: alloc modes, and reservations for a user. One function, one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from db.errors import Invalid
from db.store.ranges import conditions, fold
from db.store.store import Store, Transaction

#: interactive serves batch jobs and interactive launchers, batch only batch jobs, reserved nobody new.
MODES = ("interactive", "batch", "reserved")


def set_mode(store: Store, ids: Sequence[int], mode: str, by: str = "") -> None:
    """Changes the mode of processors; what runs on them runs on. Invalid."""
    if mode not in MODES:
        raise Invalid(f"no mode is called {mode[:40]!r}", f"there are: {', '.join(MODES)}")
    store.run(lambda t: _set(t, ids, "alloc_mode", mode, f"mode {mode}, by {by or 'nobody'}"))


def reserve(store: Store, ids: Sequence[int], user: str | None, by: str = "", reason: str = "") -> None:
    """Keeps processors for one user; None gives them back to all. What runs on them runs on. Invalid."""
    if user is not None and not user:
        raise Invalid("processors are reserved for a user by name")
    what = "reserved for nobody" if user is None else f"reserved for {user}"
    told = f"{what}, by {by or 'nobody'}" + (f": {reason}" if reason else "")
    store.run(lambda t: _set(t, ids, "reserved_for", user, told))


def _set(t: Transaction, ids: Sequence[int], column: str, value: str | None, text: str) -> None:
    if not ids:
        raise Invalid("no processors are named")
    count = sum(
        t.change(f"UPDATE processor SET {column} = ?, changed = ? WHERE {condition}", (value, t.stamp))
        for condition in conditions(set(ids))
    )
    if count != len(set(ids)):
        raise Invalid("one of these processors is not of this mesh", "showmesh shows those there are")
    _tell(t, ids, text)


def _tell(t: Transaction, ids: Sequence[int], text: str) -> None:
    """An event for each side of the machine, at one of its nodes: viewers of another see neither."""
    of_side: dict[int, tuple[int, list[int]]] = {}
    for condition in conditions(set(ids), "p.id"):
        for one, node, side in t.rows(
            f"SELECT p.id, p.node, n.side FROM processor p JOIN node n ON n.id = p.node WHERE {condition}"
        ):
            of_side.setdefault(side, (node, []))[1].append(one)
    for _, (node, these) in sorted(of_side.items()):
        t.event("mode", f"{fold(sorted(these))}: {text}", node=node)

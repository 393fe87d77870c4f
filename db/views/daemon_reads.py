"""What a CPA looks up for the mesh's daemons: reads, outside every lock."""

from __future__ import annotations

from typing import NamedTuple

from db.errors import Invalid
from db.machine.node_states import GIVEN_UP
from db.store.store import Store


class Life(NamedTuple):
    """One life of a node: from the registration of a PCT until the next."""

    boot_id: str
    incarnation: int


class Idleness(NamedTuple):
    """How many partitions there are, and for how long there have been none (0 while there are some)."""

    partitions: int
    idle_s: float


def present_life(store: Store, node: str) -> Life:
    """The life that the database knows of. Invalid for a node that is not of this machine."""
    rows = store.read("SELECT boot_id, incarnation FROM node WHERE name = ?", (node,))
    if not rows:
        raise Invalid(f"there is no node {node[:80]!r} in this mesh", "showmesh shows those there are")
    return Life(*rows[0])


class NodesOut(NamedTuple):
    """Nodes out of service: whose rest after a failed load is over, suspect ones, lives given up (name, boot id).

    And by what an RCA sees that it knows too little: the mesh's boot, how many nodes it has, where its RCAs listen
    (name, address, state).
    """

    now: float
    rested: list[str]
    suspect: list[str]
    given_up: list[tuple[str, str]]
    boot_id: str
    nodes: int
    logins: list[tuple[str, str, str]]


def nodes_out(store: Store, failed_s: float) -> NodesOut:
    """What an RCA has to tell nodes that are there and do not know that the mesh does without them."""
    ((now, boot_id, count),), logins = store.read_together(
        [
            (
                f"SELECT {store.now_sql}, boot_id, (SELECT COUNT(*) FROM node WHERE role <> 'login')"
                " FROM mesh WHERE id = 1",
                (),
            ),
            (
                "SELECT name, address, state FROM node WHERE role = 'login' AND address LIKE ? ORDER BY name",
                ("udp://%",),
            ),
        ]
    )
    rows = store.read(
        "SELECT name, boot_id, incarnation, state FROM node WHERE role <> 'login'"
        f" AND (incarnation >= {GIVEN_UP} OR state = 'suspect' OR (state = 'down' AND `by` = 'cpa' AND state_at < ?))",
        (float(now) - failed_s,),
    )
    given_up = [(row[0], row[1]) for row in rows if row[2] >= GIVEN_UP]
    suspect = [row[0] for row in rows if row[2] < GIVEN_UP and row[3] == "suspect"]
    rested = [row[0] for row in rows if row[2] < GIVEN_UP and row[3] == "down"]
    return NodesOut(float(now), rested, suspect, given_up, boot_id, count, [tuple(row) for row in logins])


def given_up(store: Store) -> set[str]:
    """The names of nodes whose present life is given up."""
    return {row[0] for row in store.read(f"SELECT name FROM node WHERE incarnation >= {GIVEN_UP}")}


def idleness(store: Store) -> Idleness:
    """Whether the mesh could end; a request that waits counts as use."""
    busy, waiting, idle_s = store.read(
        "SELECT (SELECT COUNT(*) FROM `partition` WHERE ended_at IS NULL), (SELECT COUNT(*) FROM waiting),"
        f" {store.now_sql} - COALESCE((SELECT MAX(ended_at) FROM `partition`), 0) FROM mesh WHERE id = 1"
    )[0]
    up_s = store.read(f"SELECT {store.now_sql} - booted_at FROM mesh WHERE id = 1")[0][0]
    in_use = int(busy) + int(waiting)
    return Idleness(in_use, 0.0 if in_use else max(0.0, min(float(idle_s), float(up_s))))


def topology(store: Store) -> str | None:
    """The mesh's topology as it was defined (JSON), None for a plain line."""
    return store.read("SELECT topology FROM mesh WHERE id = 1")[0][0]  # type: ignore[no-any-return]

"""A CPA's picture of the machine: what is free for whom. It is kept up to date by reading only what has changed.

The picture is a cache. A decision made from it outside the lock is checked inside the lock (db.allocation.allocate),
where the picture is first brought up to date, so the decision cannot be wrong there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from db.allocation.free_ids import FreeIds, FreeLists, Key, Use
from db.allocation.managers import Policy
from db.errors import Invalid
from db.machine.nodes import FIRST_GRANTED
from db.machine.sides import DRAINED_FOR_SIDES
from db.schema.models import Mesh, Node, NodeResource, Processor
from db.store.orm import pw
from db.store.ranges import may_be_cut
from db.store.statements import NOW, Bound, Query, statement
from db.store.store import Row, Store, Transaction

Read = Callable[[Bound], list[Row]]
UP, DRAINING = "up", "draining"
OUT = (DRAINING, "drained")


@statement
def _changed(*, since: int) -> Query:
    """Changed processors, with equal ones in one row."""
    alike = (Processor.alloc_mode, Processor.reserved_for, Processor.partition, Processor.launcher)
    return Processor.select(*alike, pw.fn.GROUP_CONCAT(Processor.id)).where(Processor.changed > since).group_by(*alike)


@statement
def _counters() -> Query:
    """The mesh's boot id and counter, the database's clock, and the last changes of nodes and resources."""
    return Mesh.select(
        Mesh.boot_id,
        Mesh.counter,
        NOW,
        Node.select(pw.fn.MAX(Node.changed)),
        NodeResource.select(pw.fn.MAX(NodeResource.changed)),
    ).where(Mesh.id == 1)


@statement
def _processors() -> Query:
    return Processor.select(
        Processor.id,
        Processor.node,
        Processor.alloc_mode,
        Processor.reserved_for,
        Processor.partition,
        Processor.launcher,
    ).order_by(Processor.id)


@statement
def _nodes_changed(*, since: int) -> Query:
    columns = (Node.id, Node.name, Node.role, Node.address, Node.state, Node.side, Node.reason, Node.drain_at)
    return Node.select(*columns).where(Node.changed > since)


@statement
def _resources_changed(*, since: int) -> Query:
    return NodeResource.select(NodeResource.node, NodeResource.name, NodeResource.total, NodeResource.in_use).where(
        NodeResource.changed > since
    )


@statement
def _granted() -> Query:
    """Login processors that may be revoked."""
    return Node.select(Node.id).where(Node.id >= FIRST_GRANTED)


NAMED_IN_AN_ERROR = 5


class Placed(NamedTuple):
    """The processors a launcher has on one node, in rank order."""

    id: int
    name: str
    address: str
    processors: list[int]


def as_messages(placed: Iterable[Placed]) -> list[dict[str, Any]]:
    """The allocation's nodes in the form of a reply, built in one pass: a machine with one processor a node has as
    many nodes as processors."""
    return [
        {"id": node, "name": name, "address": address, "processors": processors}
        for node, name, address, processors in placed
    ]


class _Node(NamedTuple):
    name: str
    role: str
    address: str
    state: str
    side: int
    reason: str
    drain_at: float | None  # by the database's clock; from then on the node counts as drained


#: The alloc mode of a processor, and the user it is reserved for.
Mode = tuple[str, str | None]
#: The partition and launcher that have a processor. All processors of a launcher share one object.
Holder = tuple[int | None, int | None]
NOBODY: Holder = (None, None)


class _Grown(Exception):
    """The changes cannot be applied: there are new processors (db.machine.nodes_bulk), or a list was cut off."""


class Machine:
    """Nodes, processors and what is free, as of change counter ``counter``."""

    def __init__(self) -> None:
        self.policy: Policy | None = None  # the managers and limits of the site
        self.hides_texts = False  # viewers read no arguments of launches (db/allocation/full_texts.py)
        self.regrouped = 0  # increases when nodes may have changed sides, because the topology is then another one
        self.forget()

    def forget(self) -> None:
        """Read everything anew the next time."""
        self.regrouped += 1
        self.overtaken = False  # True if other CPAs took what was chosen outside the lock
        self.boot_id = ""
        self.counter = -1
        self.now = 0.0  # the database's clock at the last reading
        self._nodes: dict[int, _Node] = {}
        self._ids_by_name: dict[str, int] = {}
        self._on_node: dict[int, list[int]] = {}
        self._node_of: dict[int, int] = {}
        self._mode: dict[int, Mode] = {}
        self._holder: dict[int, Holder] = {}
        # the list a processor belongs to while it is free; None if its node is not up
        self._key: dict[int, Key | None] = {}
        self._free = FreeLists()
        self._members: dict[int, set[int]] = {}
        self._named_nodes: dict[str, list[int]] = {}
        self._names_of = -1  # how many processors there were when the names were read
        self._left: dict[int, dict[str, int]] = {}
        self._totals: dict[int, dict[str, int]] = {}
        self._draining: set[int] = set()
        self._drain_at: dict[int, float] = {}  # the nodes in service that will be drained
        self._granted: set[int] = set()  # login processors that may be revoked
        # keys of requests that an idle machine could meet, valid while the machine is the same
        self.hopeful: set[str] = set()

    # -- updating --------------------------------------------------------------------------------------------------

    def refresh(self, store: Store) -> None:
        """Bring the picture up to date, outside every lock."""
        found = store.read_together([_counters.bind(), *self.question()])
        boot_id, counter, now, *nodes_changed_at = found[0][0]
        # Rows that are read after the counter may be newer than the counter; they are read again the next time.
        changed = found[1] if len(found) > 1 else None
        self._catch_up(store.read, boot_id, counter, max(0, *(at or 0 for at in nodes_changed_at)), changed)
        self.now = float(now)

    def question(self) -> list[Bound]:
        """The query that ``refresh_inside`` needs, to be sent together with the lock; empty before the first
        reading."""
        return [_changed.bind(since=self.counter)] if self.counter >= 0 else []

    def refresh_inside(
        self, t: Transaction, nodes_changed_at: int | None = None, changed: Sequence[Row] | None = None
    ) -> None:
        """Bring the picture up to the instant of a transaction that has changed nothing yet.

        If known: ``nodes_changed_at`` is the highest ``changed`` of a node or resource, ``changed`` the answer to
        ``question``.
        """
        self._catch_up(t.rows, t.boot_id, t.counter, nodes_changed_at, changed)
        self.now = t.now

    def see_inside(self, t: Transaction) -> None:
        """Apply what a transaction has written itself. Call ``forget`` if the transaction is rolled back."""
        if t.freed or not self.is_current(t):
            self._catch_up(t.rows, t.boot_id, t.stamp)
        self.counter, self.now = t.stamp, t.now

    def hand_inside(
        self, t: Transaction, ids: Sequence[int], partition: int, launcher: int, *, devices: bool = False
    ) -> None:
        """Apply what a transaction allocates, after ``see_inside``. ``devices``: it also allocates devices."""
        self._hand(ids, (partition, launcher))
        for node, name, total, in_use in t.rows(_resources_changed.bind(since=t.counter)) if devices else ():
            self._left.setdefault(node, {})[name] = total - in_use

    def logins(self, *, service: bool = False) -> list[tuple[int, int, bool]]:
        """Every login processor: its id, its side, and whether it is to change sides.

        ``service``: include service nodes, because a service node may launch too.
        """
        return [
            (number, node.side, node.reason == DRAINED_FOR_SIDES)
            for number, node in self._nodes.items()
            if node.role == "login" or (service and node.role == "service")
        ]

    def is_current(self, t: Transaction) -> bool:
        return self.counter == t.counter and self.boot_id == t.boot_id

    def _catch_up(
        self,
        read: Read,
        boot_id: str,
        counter: int,
        nodes_changed_at: int | None = None,
        changed: Sequence[Row] | None = None,
    ) -> None:
        if boot_id != self.boot_id or counter < self.counter:
            self.forget()
        elif counter == self.counter:
            return
        since = self.counter
        if nodes_changed_at is None or nodes_changed_at > since:
            self._catch_up_nodes(read, since)
        if since < 0:
            self._read_all(read)
        else:
            try:
                for row in read(_changed.bind(since=since)) if changed is None else changed:
                    self._take_in(*row)
            except _Grown:
                self.forget()
                self._catch_up_nodes(read, -1)
                self._read_all(read)
        self.boot_id, self.counter = boot_id, counter

    def _read_all(self, read: Read) -> None:
        rows = read(_processors.bind())
        held: dict[Holder, list[int]] = {}
        for one, node, mode, reserved_for, partition, launcher in rows:
            self._on_node.setdefault(node, []).append(one)
            self._node_of[one] = node
            self._mode[one] = (mode, reserved_for)
            self._holder[one] = NOBODY
            self._key[one] = key = self._key_on(self._nodes[node], one)
            if partition is not None or launcher is not None:
                held.setdefault((partition, launcher), []).append(one)
            if key is not None:
                self._free.add(key, (one,))
        for holder, ids in held.items():
            self._hand(ids, holder)

    def _take_in(
        self, mode: str, reserved_for: str | None, partition: int | None, launcher: int | None, ids: str
    ) -> None:
        """Set the state of processors. Raises _Grown if one of them is new, or if the list is incomplete."""
        if may_be_cut(ids):
            raise _Grown
        these, now = list(map(int, ids.split(","))), (mode, reserved_for)
        if any(one not in self._mode for one in these):
            raise _Grown
        for one in [one for one in these if self._mode[one] != now]:
            self.hopeful.clear()
            self._mode[one] = now
            self._file(one, self._key_on(self._nodes[self._node_of[one]], one))
        self._hand(these, (partition, launcher))

    def _catch_up_nodes(self, read: Read, since: int) -> None:
        self.hopeful.clear()
        for row in read(_nodes_changed.bind(since=since)):
            before = self._nodes.get(row[0])
            self._nodes[row[0]] = after = _Node._make(row[1:])
            self._ids_by_name[after.name] = row[0]
            if row[0] >= FIRST_GRANTED:
                self._granted.add(row[0])
            (self._draining.add if after.state == DRAINING else self._draining.discard)(row[0])
            if after.drain_at is None or after.state in OUT:
                self._drain_at.pop(row[0], None)
            else:
                self._drain_at[row[0]] = after.drain_at
            if before is not None and before.side != after.side:
                self.regrouped += 1
            if before is not None and ((before.state == UP) != (after.state == UP) or before.side != after.side):
                for one in self._on_node.get(row[0], ()):
                    self._file(one, self._key_on(after, one))
        self._forget_revoked(read)
        for node, name, total, in_use in read(_resources_changed.bind(since=since)):
            self._left.setdefault(node, {})[name] = total - in_use
            self._totals.setdefault(node, {})[name] = total

    def _forget_revoked(self, read: Read) -> None:
        if not self._granted:
            return
        there = {row[0] for row in read(_granted.bind())}
        for gone in self._granted - there:
            node = self._nodes.pop(gone)
            self._drain_at.pop(gone, None)
            if self._ids_by_name.get(node.name) == gone:  # the name may be in use again, under another id
                del self._ids_by_name[node.name]
        self._granted &= there

    def assigned(self, ids: Sequence[int], partition: int | None, launcher: int | None, stamp: int) -> None:
        """Apply our own committed change with the number ``stamp``, without reading it back.

        Does nothing if the picture is not at the number before; the next refresh then reads the change.
        """
        if self.counter != stamp - 1:
            return
        self._hand(ids, (partition, launcher))
        self.counter = stamp

    def _hand(self, ids: Sequence[int], holder: Holder) -> None:
        """Assign these processors to a holder. They mostly had one holder before, so they are handled together."""
        before = set(map(self._holder.__getitem__, ids))
        for former in before:
            if former != holder:
                these = ids if len(before) == 1 else [one for one in ids if self._holder[one] == former]
                self._pass_on(these, former, holder)
        self._holder.update(dict.fromkeys(ids, holder))

    def _pass_on(self, ids: Sequence[int], former: Holder, holder: Holder) -> None:
        if NOBODY in (former, holder):
            move = self._free.remove if former == NOBODY else self._free.add
            keys = set(map(self._key.__getitem__, ids))
            for key in keys:
                if key is not None:
                    move(key, ids if len(keys) == 1 else [one for one in ids if self._key[one] == key])
        left, joined = former[0], holder[0]
        if left == joined:
            return
        if left is not None:
            members = self._members[left]
            members.difference_update(ids)
            if not members:
                del self._members[left]
        if joined is not None:
            self._members.setdefault(joined, set()).update(ids)

    def _file(self, one: int, key: Key | None) -> None:
        """Set the list that a processor belongs to while it is free."""
        before, self._key[one] = self._key[one], key
        if self._holder[one] == NOBODY and before != key:
            if before is not None:
                self._free.remove(before, (one,))
            if key is not None:
                self._free.add(key, (one,))

    def _key_on(self, node: _Node, one: int) -> Key | None:
        return (self._use_on(node, one), node.side) if node.state == UP else None

    def _use_on(self, node: _Node, one: int) -> Use:
        return (node.role, *self._mode[one])

    # -- queries ----------------------------------------------------------------------------------------------------

    def free(
        self, user: str, batch: bool = False, interactive: bool = True, service: bool = False, side: int | None = None
    ) -> FreeIds:
        """Ids, ascending, that ``user`` may be given now.

        ``batch``: also processors of mode batch, for the batch system alone; ``interactive``: those of mode
        interactive; ``service``: also those of service nodes; ``side``: only those of one side of the machine.
        """
        return self._free.of(_uses(user, batch, interactive, service), side)

    def reachable(self, user: str, batch: bool = False, service: bool = False, side: int | None = None) -> list[int]:
        """The processors that ``user`` could be given on an idle machine with every node up."""
        uses = _uses(user, batch, True, service)
        return [one for one in self._node_of if self._fits(one, uses, side)]

    def kept_from(self, user: str, ids: Iterable[int] | None = None) -> dict[str, int]:
        """How many processors (of ``ids``) are reserved, by the user they are reserved for; "" is nobody.

        Those for ``user`` are left out.
        """
        found: dict[str, int] = {}
        for one in self._mode if ids is None else ids:
            mode, whose = self._mode.get(one, ("", None))
            if (mode == "reserved" or whose) and whose != user:
                found[whose or ""] = found.get(whose or "", 0) + 1
        return found

    def reserved_among(self, ids: Iterable[int], user: str) -> list[int]:
        """Those of ``ids`` that are reserved for ``user``."""
        return [one for one in ids if self._mode[one][1] == user]

    def reserves_for(self, user: str) -> bool:
        """True if any processor is reserved for ``user``."""
        return any(whose == user for _, whose in self._mode.values())

    def with_free_reserved(self) -> set[str]:
        """The users for whom processors are reserved that are free now."""
        return self._free.users()

    def may_have(self, one: int, user: str, service: bool = False, side: int | None = None) -> bool:
        """True if ``user`` could be given this processor on an idle machine; its node is up."""
        if one not in self._node_of or self._nodes[self._node_of[one]].state != UP or not self.stays(one):
            return False
        return self._fits(one, _uses(user, False, True, service), side)

    def _fits(self, one: int, uses: Collection[Use], side: int | None) -> bool:
        node = self._nodes[self._node_of[one]]
        return self._use_on(node, one) in uses and side in (None, node.side)

    def side_of(self, node: str) -> int:
        """The side of the machine that a node is on. Raises Invalid."""
        return self._nodes[self.node_id(node)].side

    def leaving(self, login: str) -> bool:
        """True if that login processor is to change sides as soon as nothing prevents it. Raises Invalid."""
        return self._nodes[self.node_id(login)].reason == DRAINED_FOR_SIDES

    def side_of_processor(self, one: int) -> int:
        """The side of the machine that a processor is on."""
        return self._nodes[self._node_of[one]].side

    def sides(self) -> int:
        """The number of sides of the machine."""
        return len({node.side for node in self._nodes.values()})

    def knows(self, login: str) -> bool:
        """True if the mesh has a login processor of that name."""
        node = self._nodes.get(self._ids_by_name.get(login, -1))
        return node is not None and node.role == "login"

    def address_of(self, name: str) -> str:
        """The address of a node as of the last refresh; "" if it has none."""
        node = self._nodes.get(self._ids_by_name.get(name, -1))
        return "" if node is None else node.address

    def is_here(self, name: str) -> bool:
        """True if this host may act as the node: a login node whose PCT listens on a Unix socket. Raises Invalid."""
        number = self.node_id(name)
        node = self._nodes[number]
        return (
            number not in self._granted
            and node.role in ("service", "login")
            and not node.address.startswith(("tls:", "udp:"))
        )

    def side_of_partition(self, partition: int) -> int | None:
        """The side of a partition's processors; None if it has none."""
        for one in self._members.get(partition, ()):
            return self._nodes[self._node_of[one]].side
        return None

    def free_in(self, partition: int) -> list[int]:
        """Ids, ascending, of a partition's processors that no launcher has and whose node is up."""
        return sorted(
            one
            for one in self._members.get(partition, ())
            if self._holder[one][1] is None and self._nodes[self._node_of[one]].state == UP
        )

    # Nodes that will be drained at a given time. A launch that has a time limit is not placed where it would still run
    # then; one without a limit is placed until then. Nothing has to run at that time for this to hold.

    def stays(self, one: int, time_s: float | None = None) -> bool:
        """True if the node of a processor will not be drained before a launch with this time limit, started now,
        ends."""
        at = self._drain_at.get(self._node_of[one])
        return at is None or self._lasts(at, time_s)

    def staying(self, ids: Sequence[int], time_s: float | None = None) -> Sequence[int]:
        """Those ids on nodes that will not be drained before a launch with this time limit, started now, ends."""
        leaving = {node for node, at in self._drain_at.items() if not self._lasts(at, time_s)}
        return [one for one in ids if self._node_of[one] not in leaving] if leaving else ids

    def _lasts(self, drain_at: float, time_s: float | None) -> bool:
        return self.now < drain_at and self.now + (time_s or 0.0) <= drain_at

    def leaving_within(self, time_s: float | None) -> list[str]:
        """The nodes in service that will be drained before a launch with this time limit, started now, ends."""
        return [
            self._nodes[node].name
            for node, at in sorted(self._drain_at.items())
            if not self._lasts(at, time_s) and self._nodes[node].state == UP
        ]

    def next_drain(self) -> float | None:
        """The earliest time at which nodes in service are to be drained; None if there is none."""
        return min(self._drain_at.values(), default=None)

    def in_use(self, partition: int) -> int:
        """How many processors of a partition are allocated to launchers."""
        return sum(self._holder[one][1] is not None for one in self._members.get(partition, ()))

    def all_in(self, partition: int) -> Collection[int]:
        """All processors of a partition."""
        return self._members.get(partition, ())

    def with_resources(self, ids: Sequence[int], resources: Mapping[str, int]) -> list[int]:
        """Those ids whose node has the requested amount of every resource left. Raises Invalid for an unknown
        resource."""
        for name in resources:
            if not any(name in left for left in self._left.values()):
                raise Invalid(f"no node of this mesh has a resource {name!r}")
        fit = {
            node
            for node in self._nodes
            if all(self.left_on(node, name) >= amount for name, amount in resources.items())
        }
        return [one for one in ids if self._node_of[one] in fit]

    def node_of(self, one: int) -> int:
        """The id of the node that a processor is on."""
        return self._node_of[one]

    def left_on(self, node: int, name: str) -> int:
        """The unused amount of a resource on a node."""
        return self._left.get(node, {}).get(name, 0)

    def total_of(self, name: str, side: int | None = None) -> int:
        """The amount of a resource on all nodes of one side, or of all sides."""
        return sum(
            totals.get(name, 0)
            for node, totals in self._totals.items()
            if side is None or self._nodes[node].side == side
        )

    def is_service(self, one: int) -> bool:
        """True if a processor is on a service node. Such processors are in no pool and are allocated only on
        request."""
        return self.serves(self._node_of[one])

    def serves(self, node: int) -> bool:
        """True for a service node."""
        return self._nodes[node].role == "service"

    def service(self) -> list[int]:
        """All processors of service nodes. Raises Invalid if there is none."""
        found = [one for node, ids in self._on_node.items() if self._nodes[node].role == "service" for one in ids]
        if not found:
            raise Invalid("this mesh has no service processors", "mesh up --service-nodes N gives it some")
        return found

    def all_up(self) -> bool:
        """True if every node but login processors is up."""
        return all(node.state == UP for node in self._nodes.values() if node.role != "login")

    def drains(self) -> bool:
        """True if a node is draining."""
        return bool(self._draining)

    def runs_of(self, ids: Iterable[int]) -> list[Placed]:
        """The nodes of these processors, one entry for each consecutive run of a node."""
        runs: list[Placed] = []
        node_of, make, last = self._node_of, tuple.__new__, -1
        there: list[int] = []
        for one in ids:
            node = node_of[one]
            if node != last:
                last, row, there = node, self._nodes[node], []
                runs.append(make(Placed, (node, row.name, row.address, there)))
            there.append(one)
        return runs

    def nodes_of(self, ids: Iterable[int]) -> list[Placed]:
        """The nodes of these processors, each once, in the order of first occurrence."""
        placed: dict[int, Placed] = {}
        for one in ids:
            node = self._node_of[one]
            if node not in placed:
                row = self._nodes[node]
                placed[node] = Placed(node, row.name, row.address, [])
            placed[node].processors.append(one)
        return list(placed.values())

    def by_node(self, ids: Sequence[int]) -> list[int]:
        """The processors grouped by node, nodes in the order of first occurrence."""
        if len(set(map(self._node_of.__getitem__, ids))) == len(ids):
            return list(ids)  # every node has one processor
        together: dict[int, list[int]] = {}
        for one in ids:
            together.setdefault(self._node_of[one], []).append(one)
        return [one for those in together.values() for one in those]

    def in_part(self, free: Sequence[int], part: str) -> Sequence[int]:
        """The free ids that are in a manager's part."""
        return free if self.policy is None else self.policy.restrict(self._named(), free, part)

    def is_in_part(self, one: int, part: str) -> bool:
        """True if a processor is in a manager's part."""
        return self.policy is None or self.policy.has(self._named(), part, one)

    def _named(self) -> Mapping[str, Sequence[int]]:
        # The names are read again only after nodes have joined.
        if len(self._node_of) != self._names_of:
            self._named_nodes = {self._nodes[node].name: ids for node, ids in self._on_node.items()}
            self._names_of = len(self._node_of)
        return self._named_nodes

    def members(self) -> list[tuple[str, list[int]]]:
        """Every node that has processors, with its processors."""
        return [(self._nodes[node].name, sorted(ids)) for node, ids in sorted(self._on_node.items())]

    def node_id(self, name: str) -> int:
        """The id of the node ``name``. Raises Invalid, which names it, if there is no such node."""
        found = self._ids_by_name.get(name)
        if found is None:
            raise Invalid(f"there is no node {name[:80]!r} in this mesh", "showmesh shows those there are")
        return found

    def __len__(self) -> int:
        return len(self._node_of)

    def resolve(self, wanted: Any, at_least: int | None = None) -> list[int] | None:
        """The ids in a ``wanted`` or ``exclude`` (docs/protocol.md), in its order, each once; None for null.

        With ``at_least``, that many are enough, and ids that do not exist are left out. Raises Invalid, which names
        what does not exist.
        """
        try:
            return self._resolved(wanted)
        except Invalid:
            if at_least is None:
                raise
            ids = self._resolved(wanted, missing=True)
            if ids is None or len(ids) < at_least:
                raise
            return ids

    def _resolved(self, wanted: Any, *, missing: bool = False) -> list[int] | None:
        if wanted is None:
            return None
        if not isinstance(wanted, dict):
            raise Invalid("a list of processors is an object with processors and nodes")
        ids: dict[int, None] = {}
        for part in _list(wanted, "processors"):
            for one in self._range(part, missing=missing):
                ids[one] = None
        for name in _list(wanted, "nodes"):
            if not isinstance(name, str):
                raise Invalid("a node is named by a string")
            on_node = self._on_node.get(self._ids_by_name.get(name, -1) if missing else self.node_id(name))
            if not on_node:
                if missing:
                    continue
                raise Invalid(f"node {name} has no processors", "showmesh shows which have")
            ids.update(dict.fromkeys(sorted(on_node)))
        if wanted.get("service"):
            ids.update(dict.fromkeys(sorted(self.service())))
        return list(ids)

    def _range(self, part: Any, *, missing: bool) -> Iterable[int]:
        whole = isinstance(part, (list, tuple)) and len(part) == 2 and all(type(one) is int for one in part)
        if not whole or part[0] > part[1]:
            raise Invalid("a range of processors is [first, last]")
        first, last = part
        if missing:
            return sorted(one for one in self._node_of if first <= one <= last)
        if last - first < len(self._node_of):
            absent = [one for one in range(first, last + 1) if one not in self._node_of]
        else:  # the list is longer than the machine, so one of its ids does not exist
            absent = [one for one in (first, last) if one not in self._node_of] or [last]
        if absent:
            named = ", ".join(map(str, absent[:NAMED_IN_AN_ERROR])) + (" …" if len(absent) > NAMED_IN_AN_ERROR else "")
            raise Invalid(f"there is no processor {named} in this mesh", "showmesh shows those there are")
        return range(first, last + 1)


def _list(wanted: Mapping[str, Any], key: str) -> list[Any]:
    value = wanted.get(key, [])
    if not isinstance(value, list):
        raise Invalid(f"{key} is a list")
    return value


def _uses(user: str, batch: bool, interactive: bool, service: bool) -> set[Use]:
    modes = [mode for mode, there in (("interactive", interactive), ("batch", batch)) if there]
    roles = ("compute", "service") if service else ("compute",)
    return {(role, mode, whose) for role in roles for mode in modes for whose in (None, user)}


# The machine as it would be with nothing running and every node up: what a request could ever be given. A request that
# finds too little is decided again on this picture. If it is refused there too, it fails at once; otherwise it may
# wait. Nodes that are down, drained or failed count as up, as in Slurm and Flux, because they are expected to be
# repaired. Modes, reservations, sides and service nodes count as they are.


class Idle(Machine):
    """A picture of the idle machine, for one decision. The underlying picture must not change meanwhile."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        vars(self).update(vars(machine))

    def free(
        self, user: str, batch: bool = False, interactive: bool = True, service: bool = False, side: int | None = None
    ) -> FreeIds:
        """What ``user`` could be given on the idle machine."""
        ids = self.reachable(user, batch, service, side)
        flags = bytearray(max(ids, default=-1) + 1)
        for one in ids:
            flags[one] = 1
        return FreeIds(bytes(flags))

    def leaving(self, login: str) -> bool:
        """Always False: every change of sides comes to an end."""
        return False

    def stays(self, one: int, time_s: float | None = None) -> bool:
        """Always True: a node that will be drained counts as one that is drained, and that counts as up."""
        return True

    def staying(self, ids: Sequence[int], time_s: float | None = None) -> Sequence[int]:
        """The ids unchanged; see ``stays``."""
        return ids

    def free_in(self, partition: int) -> list[int]:
        """All processors of a partition."""
        return sorted(self.all_in(partition))

    def left_on(self, node: int, name: str) -> int:
        """The total amount of a resource on a node."""
        return self._totals.get(node, {}).get(name, 0)


def first(free: Sequence[int], count: int) -> Sequence[int]:
    """A stand-in for a placement when only the number of processors matters."""
    return free[:count]

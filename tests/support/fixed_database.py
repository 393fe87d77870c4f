"""A system database with fixed content, written by the product's transactions, so that viewers always show the same."""

import os
from pathlib import Path
from typing import NamedTuple

from db.machine.nodes import NodeSpec, define_machine, node_down, node_suspect, node_up
from db.schema.migrate import migrate
from db.store.store import Store, Transaction, open_store
from tests.support.stores import migrated

#: Age of all times in the database in seconds: so old that the text shown for it (``2d 04h``) stays the same in a test.
AGO_S = 2 * 86_400 + 4 * 3_600 + 1_800


def _insert(t: Transaction, table: str, row: dict[str, object]) -> None:
    columns = ", ".join(f"`{name}`" for name in (*row, "changed"))
    t.write(f"INSERT INTO `{table}` ({columns}) VALUES ({', '.join('?' * (len(row) + 1))})", (*row.values(), t.stamp))


class Row(NamedTuple):
    """A launcher to insert: the ids of its processors, and what viewers show of it."""

    processors: tuple[int, ...]
    command: str = "hostname"
    user: str = "ada"
    state: str = "busy"
    batch_job: str | None = None


class FixedDatabase:
    """A database with ``nodes`` nodes of ``slots`` processors, all up, and the launchers that a test inserts."""

    def __init__(self, folder: Path, nodes: int = 4, slots: int = 8, names: str = "n{}", url: str = "") -> None:
        self.path = folder / "mesh.db"
        self.url = url or migrated(folder)
        if url:
            migrate(url)
        self.store: Store = open_store(self.url)
        specs = [
            NodeSpec(i + 1, names.format(i), range(i * slots, (i + 1) * slots), address=f"/run/x/n{i}.sock")
            for i in range(nodes)
        ]
        define_machine(self.store, "main", "b007", "login1", specs)
        for spec in specs:
            node_up(self.store, spec.name, "b007", 1, spec.address, "0.1.0")
        self.age()

    def age(self) -> None:
        """Set the time of every node's last state change, and of all events, to ``AGO_S`` ago."""
        self.store.run(lambda t: t.change(f"UPDATE node SET state_at = ?, changed = {t.stamp}", (t.now - AGO_S,)))
        self.store.run(lambda t: t.change("UPDATE event SET at = ?", (t.now - AGO_S,)))

    def put(self, *rows: Row) -> list[int]:
        """Insert launchers, each with its own partition; return their ids."""
        return [self._put(row) for row in rows]

    def _put(self, row: Row) -> int:
        def work(t):  # type: ignore[no-untyped-def]
            number, partition = t.next_launcher, t.next_partition
            t.next_launcher, t.next_partition = number + 1, partition + 1
            at = t.now - AGO_S
            folded = ",".join(map(str, row.processors))
            _insert(
                t,
                "partition",
                {
                    "id": partition,
                    "admin_cookie": "",
                    "allocation_cookie": "",
                    "user": row.user,
                    "uid": os.getuid(),
                    "batch_job": row.batch_job,
                    "size": len(row.processors),
                    "processors": folded,
                    "created_at": at,
                    "max_in_use": len(row.processors),
                    "batch_job_error": False,
                    "request_key": f"p{partition}",
                },
            )
            _insert(
                t,
                "launcher",
                {
                    "id": number,
                    "cookie": "",
                    "partition": partition,
                    "login_processor": 0,
                    "pid": 4711,
                    "pid_started": 1,
                    "user": row.user,
                    "uid": os.getuid(),
                    "command": row.command,
                    "size": len(row.processors),
                    "processors": folded,
                    "root": "n0",
                    "state": row.state,
                    "created_at": at,
                    "pending_until": at + 60,
                    "started_at": at if row.state == "busy" else None,
                    "abnormal": False,
                    "reason": "",
                    "resources": "{}",
                    "nice": False,
                    "gives_back": False,
                    "request_key": f"l{number}",
                },
            )
            for processor in row.processors:
                t.change(
                    f"UPDATE processor SET launcher = ?, `partition` = ?, changed = {t.stamp} WHERE id = ?",
                    (number, partition, processor),
                )
            return number

        return int(self.store.run(work))

    def end(self, launcher: int) -> None:
        """End a launcher and free its processors."""

        def work(t):  # type: ignore[no-untyped-def]
            t.change(
                f"UPDATE processor SET launcher = NULL, `partition` = NULL, changed = {t.stamp} WHERE launcher = ?",
                (launcher,),
            )
            t.change(
                f"UPDATE launcher SET state = 'ended', ended_at = ?, exit_status = 0, changed = {t.stamp} WHERE id = ?",
                (t.now, launcher),
            )

        self.store.run(work)

    def reserve(self, processor: int, user: str) -> None:
        """Reserve a processor for a user."""
        self.store.run(
            lambda t: t.change(
                f"UPDATE processor SET reserved_for = ?, changed = {t.stamp} WHERE id = ?", (user, processor)
            )
        )

    def down(self, node: str, reason: str = "its PCT is gone") -> None:
        """Mark a node down, whatever its boot id and incarnation are."""
        [(boot_id, incarnation)] = self.store.read("SELECT boot_id, incarnation FROM node WHERE name = ?", (node,))
        node_down(self.store, node, boot_id, incarnation, reason)
        self.age()

    def names(self) -> list[str]:
        """Return the names of the nodes."""
        return [name for (name,) in self.store.read("SELECT name FROM node ORDER BY id")]

    def suspect(self, node: str, reason: str = "no heartbeat for 5 s") -> None:
        """Mark a node suspect."""
        node_suspect(self.store, node, "b007", 1, reason)
        self.age()

    def up(self, node: str) -> None:
        """Mark a node up again."""
        node_up(self.store, node, "b007", 2, f"/run/x/{node}.sock", "0.1.0")
        self.age()

    def close(self) -> None:
        """Close the connection to the database."""
        self.store.close()


def busy_machine(folder: Path, url: str = "") -> FixedDatabase:
    """Four nodes of eight processors with busy, pending and batch launchers, reservations and a suspect node."""
    database = FixedDatabase(folder, url=url)
    database.put(
        Row(tuple(range(6)), "hostname -f"),
        Row((6, 7, 8, 9), "./simulate --steps 100000 --grid 512x512x64", "grace"),
        Row((10, 11), "python3 train.py", "lin", "pending"),
        Row(tuple(range(12, 16)), "./ring 4", "ada", batch_job="4242.pbs"),
    )
    database.reserve(17, "grace")
    database.reserve(18, "grace")
    database.suspect("n3")
    return database

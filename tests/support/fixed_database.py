"""A system database with chosen content, made by db's own transactions: what a viewer sees is the same every time."""

import os
from pathlib import Path
from typing import NamedTuple

from db.machine.nodes import NodeSpec, define_machine, node_down, node_suspect, node_up
from db.schema.migrate import migrate
from db.store.store import Store, Transaction, open_store

#: Times are long past, so that nothing that is drawn (``2d 04h``) changes while a test runs.
AGO_S = 2 * 86_400 + 4 * 3_600 + 1_800


def _insert(t: Transaction, table: str, row: dict[str, object]) -> None:
    columns = ", ".join(f"`{name}`" for name in (*row, "changed"))
    t.write(f"INSERT INTO `{table}` ({columns}) VALUES ({', '.join('?' * (len(row) + 1))})", (*row.values(), t.stamp))


class Row(NamedTuple):
    """A launcher to put in: its processors' ids, and what people see of it."""

    processors: tuple[int, ...]
    command: str = "hostname"
    user: str = "ada"
    state: str = "busy"
    batch_job: str | None = None


class FixedDatabase:
    """``nodes`` PCTs with ``slots`` processors each, all up, and whatever is put in."""

    def __init__(self, folder: Path, nodes: int = 4, slots: int = 8, names: str = "n{}", url: str = "") -> None:
        self.path = folder / "mesh.db"
        self.url = url or f"sqlite://{self.path}"
        if not url:
            self.path.touch(mode=0o600)
        migrate(self.url)
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
        """Makes every change of a node's state long ago."""
        self.store.run(lambda t: t.change(f"UPDATE node SET state_at = ?, changed = {t.stamp}", (t.now - AGO_S,)))
        self.store.run(lambda t: t.change("UPDATE event SET at = ?", (t.now - AGO_S,)))

    def put(self, *rows: Row) -> list[int]:
        """Puts launchers in, each with a partition of its own; their ids."""
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
        """The launcher ends; its processors are free."""

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
        """Reserves a processor for a user."""
        self.store.run(
            lambda t: t.change(
                f"UPDATE processor SET reserved_for = ?, changed = {t.stamp} WHERE id = ?", (user, processor)
            )
        )

    def down(self, node: str, reason: str = "its PCT is gone") -> None:
        """Takes a node down, whichever life its PCT is in."""
        [(boot_id, incarnation)] = self.store.read("SELECT boot_id, incarnation FROM node WHERE name = ?", (node,))
        node_down(self.store, node, boot_id, incarnation, reason)
        self.age()

    def names(self) -> list[str]:
        """The nodes that the machine has now."""
        return [name for (name,) in self.store.read("SELECT name FROM node ORDER BY id")]

    def suspect(self, node: str, reason: str = "no beat for 5 s") -> None:
        """Makes a node suspect."""
        node_suspect(self.store, node, "b007", 1, reason)
        self.age()

    def close(self) -> None:
        """Lets go of it."""
        self.store.close()


def busy_machine(folder: Path, url: str = "") -> FixedDatabase:
    """Four nodes of eight processors with something of everything on them."""
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

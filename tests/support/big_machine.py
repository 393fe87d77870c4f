"""Databases with fixed content for large machines: the Red Storm of examples/, and a cluster in racks."""

import random
import tomllib
from pathlib import Path

from db.machine.nodes import NodeSpec, define_machine
from db.store.store import Store, open_store
from db.topology import Mesh, parse
from tests.support.fixed_database import AGO_S, FixedDatabase, Row
from tests.support.stores import migrated

ROOT = Path(__file__).parents[2]
USERS = ("ada", "grace", "lin", "emmy", "mary", "sofia")
PROGRAMS = ("./ctth -i impact.in", "./sierra --adagio", "./salinas blade.inp", "./lammps -in melt", "./icepic shot7")


class BigDatabase(FixedDatabase):
    """A database with a machine of this ``topology`` and these nodes (``specs``), all up."""

    def __init__(self, folder: Path, topology: dict[str, object], specs: list[NodeSpec]) -> None:
        self.path = folder / "mesh.db"
        self.url = migrated(folder)
        self.store: Store = open_store(self.url)
        define_machine(self.store, "main", "b007", "login1", specs, topology=topology)
        self.store.run(
            lambda t: t.change(
                "UPDATE node SET state = 'up', reason = '', boot_id = 'b007', state_at = ?, incarnation = 1,"
                f" agent = '0.1.0', changed = {t.stamp}",
                (t.now - AGO_S,),
            )
        )


def storm(folder: Path, busy: float = 0.7, seed: int = 1) -> BigDatabase:
    """Red Storm: 10,368 compute processors, a fraction ``busy`` of them in use, and 768 service processors."""
    section = tomllib.loads((ROOT / "examples" / "red_storm.toml").read_text())["topology"]
    mesh = parse(section)
    assert isinstance(mesh, Mesh)
    specs = [
        NodeSpec(one + 1, mesh.name(one), range(one, one + 1), role="service" if mesh.is_service(one) else "compute")
        for one in range(mesh.size)
    ]
    database = BigDatabase(folder, mesh.to_dict(), specs)
    fill(database, mesh.compute, busy, seed)
    for name in (mesh.name(4000), mesh.name(7777)):
        database.down(name)
    return database


def fill(database: BigDatabase, processors: int, busy: float, seed: int) -> None:
    """Add launchers of random sizes until the fraction ``busy`` of ``processors`` is in use."""
    chance = random.Random(seed)
    first, rows = 0, []
    while first < processors * busy:
        size = min(processors - first, 2 ** chance.randrange(11))
        state = "pending" if len(rows) % 17 == 3 else "busy"
        rows.append(Row(tuple(range(first, first + size)), chance.choice(PROGRAMS), chance.choice(USERS), state))
        first += size + chance.choice((0, 0, 0, 4, 12))
    database.put(*rows)


def racks(folder: Path) -> BigDatabase:
    """Six racks of sixteen nodes with eight processors each."""
    names = [f"node{number:03}" for number in range(1, 97)]
    section: dict[str, object] = {
        "kind": "racks",
        "racks": {f"rack{rack + 1}": [f"node[{rack * 16 + 1:03}-{rack * 16 + 16:03}]"] for rack in range(6)},
    }
    specs = [
        NodeSpec(i + 1, name, range(i * 8, i * 8 + 8), address=f"10.0.0.{i + 1}:7433") for i, name in enumerate(names)
    ]
    database = BigDatabase(folder, section, specs)
    fill(database, 768, 0.6, 3)
    database.down("node051")
    return database

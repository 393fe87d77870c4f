"""A small machine of cabinets that switches divide into sides, and the viewers of its login processors."""

from __future__ import annotations

from typing import Any

from db.allocation.allocate import allocate
from db.allocation.free import Machine
from db.allocation.types import Demand
from db.machine.nodes import NodeSpec, node_up
from db.machine.sides import set_open
from db.schema import login_views
from db.schema.accounts import Account
from db.schema.grants import grants, run_grants
from db.store.store import Store
from db.store.url import in_database, mysql_options
from db.views.viewer import Viewer
from tests.support.stores import key

SWITCHES = ("left", "middle", "right")
SECTION = {
    "kind": "mesh", "rows": 1, "columns": 4, "cages": 1, "boards": 1, "service_columns": [0, 3],
    "switches": [{"name": name, "after": after} for after, name in enumerate(SWITCHES)],
}  # fmt: skip
#: Compute processors 0..3 in column 1, 4..7 in column 2; service 8, 9 in column 0, 10, 11 in column 3.
NODES = [NodeSpec(n + 1, f"p{n}", [n], "compute" if n < 8 else "service", resources={"gpu": 1}) for n in range(12)]
LOGIN, LEFT, RIGHT = "login1", "p8", "p10"
LOGINS = (LOGIN, LEFT, RIGHT)
COLUMN = {0: 0, **{node.id: 1 + (node.id - 1) // 4 if node.id < 9 else 3 * (node.id > 10) for node in NODES}}
CPA = Account("side_cpa", "localhost", "c")


def granted(url: str, logins: tuple[str, ...]) -> dict[str, str]:
    """Create the viewers' accounts of ``logins`` on a MySQL server; return the URL of each."""
    database = str(mysql_options(url)["database"])
    viewer = Account(f"{database[-13:]}_v", "localhost")
    statements, urls = grants(database, CPA, viewer._replace(password="v")), {}
    for login in logins:
        account = login_views.viewer_of(login, viewer)._replace(password="v")
        statements += login_views.statements(database, login, CPA, account)
        place = in_database(url, login_views.schema_name(database, login))
        urls[login] = place.replace("root@", f"{account.user.replace('%', '%25')}:v@")
    run_grants(url, statements)
    return urls


def demand(login: str, size: int, **more: Any) -> Demand:
    return Demand(key(), 1000, f"user of {login}", login, 77, 1, f"secret of {login}", size, **more)


def take(store: Store, machine: Machine, login: str, size: int, **more: Any) -> Any:
    return allocate(store, machine, demand(login, size, **more), lambda free, count: free[:count])


def switch(store: Store, *names: str) -> None:
    set_open(store, names, "root")
    for node in NODES:
        back(store, node.name)


def back(store: Store, name: str) -> None:
    life = store.read("SELECT incarnation FROM node WHERE name = ?", (name,))[0][0]
    node_up(store, name, "b1", life + 1, "/x")


def seen(viewer: Viewer) -> tuple[list[int], list[int], list[int]]:
    """Return the ids of the nodes, live launchers and ended launchers that a viewer sees."""
    reading = viewer.read()
    return [row.id for row in reading.nodes], [row.id for row in reading.launchers], [r.id for r in viewer.history()]

"""A month of jobs over the simulated Red Storm: on MariaDB with four CPAs, on SQLite, and with a short history.

    python -m tests.bench.month [DAYS]

No bars, and too long for the suite: the player itself stops at a processor that is given twice or lost. The books of
both databases are compared, and the sizes of a database that trims are told as they grow.
"""

import contextlib
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from db.views.viewer import open_viewer
from tests.bench.scaling import RED_STORM
from tests.support.mariadb import find_server, private_server
from tests.support.mesh import PrivateMesh

WHOLE_MONTH = 1_000_000  # rows of history: all of it
SHORT = 1000
LOOK_S = 20.0


@contextlib.contextmanager
def red_storm(cpas: int, rows: int, database: str = "") -> Iterator[PrivateMesh]:
    """The simulated machine, with so many rows of history."""
    made = PrivateMesh(1, 1, cpas, database, REDMESH_HISTORY_ROWS=str(rows))
    try:
        made.run("mesh", "up", "--cpas", str(cpas), "--simulate", str(RED_STORM), check=True, timeout_s=120)
        yield made
    finally:
        for what in made.close():
            print(f"left behind: {what}", file=sys.stderr)


def book(one: PrivateMesh) -> tuple[int, str]:
    """How many launchers ended, and a digest of what stands of each: command, size, how it ended. All is free again."""
    states = one.json("showmesh")["states"]
    if states["free"] != sum(states.values()):
        raise RuntimeError(f"not all is free: {states}")
    with open_viewer(one.database) as viewer:
        rows = viewer.history(WHOLE_MONTH)
    lines = sorted((row.command, row.size, row.exit_status, bool(row.abnormal), row.reason) for row in rows)
    return len(lines), hashlib.sha256(json.dumps(lines).encode()).hexdigest()[:16]


def sizes(one: PrivateMesh) -> dict[str, int]:
    """Rows of the tables that grow, and KiB of an SQLite database with its log."""
    with open_viewer(one.database) as viewer:
        found = {
            table: int(viewer._rows(f"SELECT COUNT(*) FROM `{table}`", ())[0][0])
            for table in ("launcher", "partition", "event", "waiting")
        }
    found["kib"] = sum(file.stat().st_size for file in one.state.glob("mesh.db*")) // 1024
    return found


def replay(one: PrivateMesh, days: str) -> dict[str, Any]:
    """The month, as fast as it goes."""
    process = one.start("mesh", "replay", "--days", days, "--json", stdout=-1, text=True)
    began = time.monotonic()
    while True:
        with contextlib.suppress(Exception):
            process.wait(LOOK_S)
            break
        print(f"  {time.monotonic() - began:5.0f} s", sizes(one), flush=True)
    told: dict[str, Any] = json.loads(process.stdout.read())
    return told


def main() -> None:
    """All three, one after the other."""
    days = sys.argv[1] if len(sys.argv) > 1 else "30"
    books = {}
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(private_server(small=False)).new_database() if find_server() is not None else None
        for name, database, cpas in (("MariaDB, 4 CPAs", url, 4), ("SQLite, 1 CPA", "", 1)):
            if database is None:
                continue
            with red_storm(cpas, WHOLE_MONTH, database) as one:
                print(name, replay(one, days), sizes(one), flush=True)
                books[name] = book(one)
    print("books:", books, "the same" if len(set(books.values())) == 1 else "DIFFERENT")
    with red_storm(1, SHORT) as one:
        print(f"SQLite, {SHORT} rows of history", replay(one, days))
        time.sleep(70)  # the next trimming
        print(sizes(one))


if __name__ == "__main__":
    main()

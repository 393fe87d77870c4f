"""``pingd``: a row for every processor, in the form of the first one; straight from the database."""

import os
import sys

from console.cli import watching
from console.cli.mesh_drawing import elapsed
from console.cli.mesh_reading import by_node, counts, elapsed_s, login, ranks_by_processor
from console.cli.words import Word, complain, help_text, parse
from console.errors import ConsoleError, UsageError
from console.launch.sanitise import clean
from console.settings import load
from db.errors import StoreError
from db.views import Picture

TYPE_CHECKING = False  # typing is slow to import; checkers know the name
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

WORDS = (
    Word("verbose", "flag", "columns of state: processor, mode, partition, node", original=True),
    Word("list", "text", "these processors or nodes alone", metavar="LIST", original=True),
    Word("json", "flag", "for programs"),
    Word("watch", "flag", "again and again, in place on a terminal, once for every change elsewhere; ^C ends it"),
    Word("every", "seconds", "how often --watch looks (default: 1)", metavar="S"),
    Word("config", "text", "the configuration file to read", metavar="FILE"),
    Word("help", "flag", "this page", letter="h", original=True),
)
ABOUT = """Lists every processor: its number and node, and if it is in use the launcher, login processor/pid, rank,
user and elapsed time; then totals."""


def main(arguments: "Sequence[str] | None" = None) -> int:
    """Run the command; its exit status."""
    try:
        given = parse(WORDS, sys.argv[1:] if arguments is None else arguments, stop=False)
        if "help" in given.values:
            print(help_text("pingd [options]", ABOUT, WORDS), end="")
            return 0
        if given.rest:
            raise UsageError(f"pingd takes no {given.rest[0]!r}", "pingd --help")
        settings = load(config=str(given.values.get("config", "")))
        every_s = max(0.1, float(str(given.values.get("every", 1)))) if "watch" in given.values else 0.0
        view = View(str(given.values.get("list", "")), "verbose" in given.values)
        render = view.as_json if "json" in given.values else view.as_text
        status = watching.look(settings.database, render, every_s=every_s)
        sys.stdout.flush()
        return status
    except (ConsoleError, StoreError) as error:
        return complain("pingd", error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whoever read us has gone: nothing more to say
        return 0


class View:
    """Which processors are listed, and with how much of them."""

    def __init__(self, wanted: str, verbose: bool) -> None:
        self.verbose = verbose
        self._wanted = None
        if wanted:
            from console.launch.lists import parse_list

            self._wanted = parse_list(wanted)

    def rows(self, picture: Picture) -> "list[dict[str, Any]]":
        """The processors, in the order of nodes and slots. UsageError for a list that names what is not there."""
        ranks = {one: ranks_by_processor(row) for one, row in picture.launchers.items()}
        listed = self._listed(picture)
        return [
            _row(picture, node, row, ranks)
            for node, rows in by_node(picture)
            for row in rows
            if listed is None or row.id in listed
        ]

    def _listed(self, picture: Picture) -> "set[int] | None":
        if self._wanted is None:
            return None
        ids: set[int] = set()
        for first, last in self._wanted["processors"]:
            if first not in picture.processors or last not in picture.processors:
                raise UsageError(f"there is no processor {last}", "showmesh shows those there are")
            ids.update(range(first, last + 1))
        names = {node.name: node.id for node in picture.nodes.values()}
        for name in self._wanted["nodes"]:
            if name not in names:
                raise UsageError(f"there is no node {name!r}", "showmesh shows those there are")
            ids.update(row.id for row in picture.processors.values() if row.node == names[name])
        return ids

    def as_text(self, picture: Picture, _width: int) -> list[str]:
        """A line for each processor, then the totals."""
        rows = self.rows(picture)
        uses = [_use(row) for row in rows]
        widths = [max((len(use[place]) for use in uses if len(use) > 1), default=0) for place in range(4)]
        name = max((len(row["node"]) for row in rows), default=1)
        lines = []
        for row, use in zip(rows, uses, strict=True):
            line = f"{row['processor']:>5} ( {row['node']:<{name}} )" + _aligned(use, widths)
            if self.verbose:
                partition = "-" if row["partition"] is None else row["partition"]
                mode = row["mode"] + (f" for {clean(row['reserved_for'])}" if row["reserved_for"] else "")
                line = f"{line:<72} {row['state']:<8} {mode:<11} partition {partition}  node {row['node_state']}"
            lines.append(line.rstrip())
        return [*lines, "", *self._totals(picture, rows)]

    def _totals(self, picture: Picture, rows: "list[dict[str, Any]]") -> list[str]:
        found = counts(picture)
        if self._wanted is not None:
            found = dict.fromkeys(found, 0)
            for row in rows:
                found[row["state"]] += 1
        total = f"Total: {len(rows)}" + "".join(f"   {state}: {number}" for state, number in found.items())
        return [total, f"Launchers: {len(picture.launchers)}   partitions: {len(picture.partitions)}"]

    def as_json(self, picture: Picture, _width: int) -> list[str]:
        """One line of JSON."""
        import json

        value = {
            "at": picture.now,
            "processors": self.rows(picture),
            "totals": counts(picture),
            "launchers": len(picture.launchers),
            "partitions": len(picture.partitions),
        }
        return [json.dumps(value, separators=(",", ":"))]


def _row(picture: Picture, node: "Any", row: "Any", ranks: dict[int, dict[int, list[int]]]) -> "dict[str, Any]":
    launcher = picture.launchers.get(row.launcher)
    return {
        "processor": row.id,
        "node": node.name,
        "state": picture.state(row.id),
        "mode": row.alloc_mode,
        "reserved_for": row.reserved_for,
        "node_state": node.state,
        "partition": row.partition,
        "launcher": row.launcher,
        "launcher_state": launcher.state if launcher else None,
        "login": login(picture, launcher) if launcher else None,
        "user": launcher.user if launcher else None,
        "ranks": ranks.get(row.launcher, {}).get(row.id, []),
        "elapsed_s": round(elapsed_s(picture, launcher), 3) if launcher else None,
    }


def _use(row: "dict[str, Any]") -> tuple[str, ...]:
    """Launcher, login processor/pid, rank, user and time; one word, or none, for a processor that nobody uses."""
    if row["launcher"] is None or row["login"] is None:
        if row["state"] != "free":
            return (row["state"],)
        return () if row["partition"] is None else (f"in partition {row['partition']}",)
    ranks = row["ranks"]
    rank = "-" if not ranks else str(ranks[0]) + (f"+{len(ranks) - 1}" if len(ranks) > 1 else "")
    time = "pending allocation" if row["launcher_state"] == "pending" else elapsed(row["elapsed_s"])
    late = f"  {row['state']}" if row["state"] in ("stale", "down") else ""
    return str(row["launcher"]), clean(row["login"]), rank, clean(row["user"]), time + late


def _aligned(use: tuple[str, ...], widths: list[int]) -> str:
    if len(use) < 2:
        return "".join(f"  {word}" for word in use)
    launcher, login, rank, user, time = use
    return f"  {launcher:>{widths[0]}}  {login:<{widths[1]}}  {rank:>{widths[2]}} {user:<{widths[3]}}  {time}"


if __name__ == "__main__":
    sys.exit(main())

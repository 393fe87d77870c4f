"""``pingd``: a row for every processor in the original's format, directly from the database."""

import sys

from console.cli.exits import guarded
from console.cli.map import watch
from console.cli.map.drawing import RARE, elapsed, state_word
from console.cli.map.rows import by_node, counts, elapsed_s, login, ranks_by_processor
from console.cli.options.parser import help_text, parse
from console.cli.pingd.arguments import ABOUT, EXTRA, REFUSED, SELECTORS, USAGE, VERBS, WORDS
from console.cli.pingd.selection import Selection, leading_number
from console.errors import UsageError
from console.settings import load
from db.views.viewer import Picture
from redmesh.sanitise import clean
from redmesh.version import VERSION

TYPE_CHECKING = False  # typing is slow to import; checkers know the name
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


def main(arguments: "Sequence[str] | None" = None) -> int:
    """Run the command; returns its exit status."""
    return guarded("pingd", lambda: _main(sys.argv[1:] if arguments is None else arguments))


def _main(arguments: "Sequence[str]") -> int:
    given = parse(WORDS, arguments, stop=False)
    if "help" in given.values or "xtrahelp" in given.values:
        every = "xtrahelp" in given.values
        shown = [word for word in WORDS if every or word.name not in REFUSED]
        print(help_text(USAGE, ABOUT, shown) + EXTRA * every, end="")
        return 0
    for word in REFUSED.keys() & given.values.keys():
        why, instead = REFUSED[word]
        raise UsageError(f"-{word}: {why}", instead)
    if "version" in given.values:
        print(f"pingd (Redmesh) {VERSION}")
        return 0
    return _run(given.values, given.rest)


def _run(given: "Mapping[str, Any]", rest: "Sequence[str]") -> int:
    selection = Selection(given, rest)
    settings = load(config=str(given.get("config", "")))
    verbs = [verb for verb in VERBS if verb in given]
    if verbs:
        if len(verbs) > 1:
            raise UsageError(f"-{verbs[0]} and -{verbs[1]} exclude each other", "say one after the other")
        if not rest and not any(word in given for word in SELECTORS):
            raise UsageError(
                f"-{verbs[0]} has to be told which", "-all, -mine, -user USER, -job ID, -pbsjob ID or a list"
            )
        from console.cli.pingd import verbs as pingd_verbs

        value = given[verbs[0]] if verbs[0] == "reserve" else ""
        return pingd_verbs.do(verbs[0], value, settings, selection, ask="NoInquire" not in given)
    every_s = max(0.1, float(str(given.get("every", 1)))) if "watch" in given else 0.0
    view = View(selection, verbose="verbose" in given, summary="summary" in given)
    render = view.as_json if "json" in given else view.as_words if "parse" in given else view.as_text
    return watch.look(settings, render, every_s=every_s)


class View:
    """The listed processors, and how much is shown of them."""

    def __init__(self, selection: Selection, *, verbose: bool = False, summary: bool = False) -> None:
        self.verbose, self.summary, self._selection = verbose, summary, selection

    def rows(self, picture: Picture) -> "list[dict[str, Any]]":
        """The processors, in the order of nodes and slots."""
        ranks = {one: ranks_by_processor(row) for one, row in picture.launchers.items()}
        listed = self._selection.ids(picture)
        return [
            _row(picture, node, row, ranks)
            for node, rows in by_node(picture)
            for row in rows
            if listed is None or row.id in listed
        ]

    def as_text(self, picture: Picture, _width: int) -> list[str]:
        """A line for each processor, then totals."""
        rows = self.rows(picture)
        if self.summary:
            return self._totals(picture, rows)
        uses = [_use(row) for row in rows]
        widths = [max((len(use[place]) for use in uses if len(use) > 1), default=0) for place in range(4)]
        name = max((len(row["node"]) for row in rows), default=1)
        lines = []
        for row, use in zip(rows, uses, strict=True):
            line = f"{row['processor']:>5} ( {row['node']:<{name}} )" + _aligned(use, widths)
            if row["batch_job"] and use:
                line = f"{line}  PBS # {clean(leading_number(row['batch_job']))}"
            if self.verbose:
                partition = "-" if row["partition"] is None else row["partition"]
                mode = row["mode"] + (f" for {clean(row['reserved_for'])}" if row["reserved_for"] else "")
                line = f"{line:<72} {state_word(row['state']):<8} {mode:<11} partition {partition}"
                line += f"  node {row['node_state']}"
            lines.append(line.rstrip())
        return [*lines, "", *self._totals(picture, rows)]

    def _totals(self, picture: Picture, rows: "list[dict[str, Any]]") -> list[str]:
        found, launchers, partitions = self._counted(picture, rows)
        total = f"Total: {len(rows)}" + "".join(
            f"   {state_word(state)}: {number}" for state, number in found.items() if number or state not in RARE
        )
        return [total, f"Launchers: {launchers}   partitions: {partitions}"]

    def _counted(self, picture: Picture, rows: "list[dict[str, Any]]") -> "tuple[dict[str, int], int, int]":
        """Listed processors by state, with the numbers of launchers and partitions."""
        found = counts(picture)
        if self._selection.is_all:  # the totals also count launchers that have no processors yet
            return found, len(picture.launchers), len(picture.partitions)
        found = dict.fromkeys(found, 0)
        for row in rows:
            found[row["state"]] += 1
        launchers = {row["launcher"] for row in rows} - {None}
        return found, len(launchers), len({row["partition"] for row in rows} - {None})

    def as_words(self, picture: Picture, _width: int) -> list[str]:
        """A line of words for each processor, ``-`` for nothing, without totals."""
        return [_words(row) for row in self.rows(picture)]

    def as_json(self, picture: Picture, _width: int) -> list[str]:
        """One line of JSON."""
        import json

        rows = self.rows(picture)
        found, launchers, partitions = self._counted(picture, rows)
        value = {
            "at": picture.now,
            "processors": [] if self.summary else rows,
            "totals": found,
            "launchers": launchers,
            "partitions": partitions,
        }
        return [json.dumps(value, separators=(",", ":"))]


def _row(picture: Picture, node: "Any", row: "Any", ranks: dict[int, dict[int, list[int]]]) -> "dict[str, Any]":
    launcher = picture.launchers.get(row.launcher)
    partition = picture.partitions.get(row.partition)
    return {
        "processor": row.id,
        "node": node.name,
        "state": picture.state(row.id),
        "mode": row.alloc_mode,
        "reserved_for": row.reserved_for,
        "node_state": node.state,
        "partition": row.partition,
        "batch_job": partition.batch_job if partition else None,
        "launcher": row.launcher,
        "launcher_state": launcher.state if launcher else None,
        "login": login(picture, launcher) if launcher else None,
        "user": launcher.user if launcher else None,
        "ranks": ranks.get(row.launcher, {}).get(row.id, []),
        "elapsed_s": round(elapsed_s(picture, launcher), 3) if launcher else None,
    }


def _words(row: "dict[str, Any]") -> str:
    where, _, pid = (row["login"] or "").rpartition("/")
    ranks = ",".join(map(str, row["ranks"]))
    elapsed_s_ = "" if row["elapsed_s"] is None else f"{row['elapsed_s']:.0f}"
    words = (
        row["processor"], row["node"], row["state"], row["mode"], row["launcher"], where, pid, ranks, row["user"],
        elapsed_s_, row["partition"], row["batch_job"],
    )  # fmt: skip
    return " ".join("-" if word in (None, "") else "_".join(clean(str(word)).split()) for word in words)


def _use(row: "dict[str, Any]") -> tuple[str, ...]:
    """Launcher, login processor/pid, rank, user and time; for an unused processor, one column or none."""
    if row["launcher"] is None or row["login"] is None:
        if row["state"] != "free":
            return (state_word(row["state"]),)
        return () if row["partition"] is None else (f"in partition {row['partition']}",)
    ranks = row["ranks"]
    rank = "-" if not ranks else str(ranks[0]) + (f"+{len(ranks) - 1}" if len(ranks) > 1 else "")
    time = "pending allocation" if row["launcher_state"] == "pending" else elapsed(row["elapsed_s"])
    late = f"  {state_word(row['state'])}" if row["state"] in ("stale", "down") else ""
    return str(row["launcher"]), clean(row["login"]), rank, clean(row["user"]), time + late


def _aligned(use: tuple[str, ...], widths: list[int]) -> str:
    if len(use) < 2:
        return "".join(f"  {word}" for word in use)
    launcher, login, rank, user, time = use
    return f"  {launcher:>{widths[0]}}  {login:<{widths[1]}}  {rank:>{widths[2]}} {user:<{widths[3]}}  {time}"

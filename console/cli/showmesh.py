"""``showmesh``: the machine as a map, directly from the system database, without a CPA."""

import sys

from console.cli.exits import guarded
from console.cli.map import watch
from console.cli.map.drawing import KEPT, SERVICE, Cell, Group, cut, draw, elapsed, legend, letters, table
from console.cli.map.rows import by_node, counts, elapsed_s, login, reservations, side_seen, to_be_drained, topology_of
from console.cli.options.parser import Word, help_text, parse
from console.errors import UsageError
from console.own_texts import OwnTexts
from console.settings import load
from db.views.viewer import Picture
from redmesh.sanitise import clean
from redmesh.version import VERSION

TYPE_CHECKING = False  # typing is slow to import; checkers know the name
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from console.cli.map.watch import Render
    from db.views.viewer import Viewer

WORDS = (
    Word("json", "flag", "print JSON: nodes, processors, launchers, counts"),
    Word("watch", "flag", "print again after every change, in place if standard output is a terminal; ^C ends it"),
    Word("full", "flag", "print every processor of a machine of cabinets, in as many lines as that takes"),
    Word("every", "seconds", "the interval of --watch in seconds (default: 1)", metavar="S"),
    Word("config", "text", "the configuration file to read", metavar="FILE"),
    Word("version", "flag", "print the version"),
    Word("help", "flag", "print this page", letter="h"),
)
ABOUT = """Shows every processor of the mesh, grouped by node, with a letter for each launcher.

  . free   + pending: allocated to a launcher that has not started   a-z A-Z 0-9 running   - suspect: no heartbeat
  # down   ! drained: out of service by mesh drain   = reserved   : free, but only for the partition of a batch job
  , free, on a service node

With a topology, the map shows cabinets or racks; | is an open switch, % a board with processors in several states."""
#: The most nodes out of service that are listed with their reasons.
_NAMED = 10
#: The most events that are searched for who made a reservation, and why.
_EVENTS = 1000


def main(arguments: "Sequence[str] | None" = None) -> int:
    """Run the command; returns its exit status."""
    return guarded("showmesh", lambda: _run(sys.argv[1:] if arguments is None else arguments))


def _run(arguments: "Sequence[str]") -> int:
    given = parse(WORDS, arguments, stop=False)
    if "help" in given.values:
        print(help_text("showmesh [options]", ABOUT, WORDS), end="")
        return 0
    if "version" in given.values:
        print(f"showmesh (Redmesh) {VERSION}")
        return 0
    if given.rest:
        raise UsageError(f"showmesh takes no {given.rest[0]!r}", "showmesh --help")
    settings = load(config=str(given.values.get("config", "")))
    every_s = max(0.1, float(str(given.values.get("every", 1)))) if "watch" in given.values else 0.0
    render: Render = as_text
    if "json" in given.values:
        render = as_json
    elif "full" in given.values:
        render = as_full_text
    own = OwnTexts(settings)

    def read_more(viewer: "Viewer", picture: Picture) -> None:
        _read_reservations(viewer, picture)
        picture.launchers.update((row.id, row) for row in own.put_into(picture.launchers.values()))

    return watch.look(settings, render, every_s=every_s, need_mesh=True, more=read_more)


def _read_reservations(viewer: "Viewer", picture: Picture) -> None:
    if any(row.reserved_for is not None or row.alloc_mode == "reserved" for row in picture.processors.values()):
        picture.reservations = reservations(picture, viewer.events(limit=_EVENTS))
    else:
        picture.reservations = []


def as_text(picture: Picture, width: int) -> list[str]:
    """The map, its legend, and the table of launchers."""
    return _text(picture, width, full=False)


def as_full_text(picture: Picture, width: int) -> list[str]:
    """Like :func:`as_text`, but never draw a board of a machine of cabinets as one character."""
    return _text(picture, width, full=True)


def _text(picture: Picture, width: int, *, full: bool) -> list[str]:
    letter = letters(picture.launchers)
    cells = {one: Cell(_shown(picture, row), row.launcher) for one, row in picture.processors.items()}
    lines = _map(picture, cells, letter, width, full)
    of_state = dict.fromkeys(("kept", "service"), 0)
    for cell in cells.values():
        if cell.state in of_state:
            of_state[cell.state] += 1
    notes = [
        f"{glyph} {of_state[state]} of the free are {what}"
        for state, glyph, what in (("kept", KEPT, "kept for batch jobs"), ("service", SERVICE, "on service nodes"))
        if of_state[state]
    ]
    lines += ["", *_filled([*legend(counts(picture)).split("   "), *notes], width)]
    side = side_seen(picture)
    if side is not None:
        where = f"columns {side.first}..{side.last}"
        lines.append(f"side {side.number}, {where}, is seen alone: what is blank beyond | is another's")
    if picture.launchers:
        lines += ["", *_launchers(picture, letter, width)]
    if picture.reservations:
        lines += ["", *(cut(clean(line), width) for line in picture.reservations[:_NAMED])]
    return lines + _out_of_order(picture, width)


def _filled(words: "Sequence[str]", width: int) -> list[str]:
    """The words, three blanks apart, in as many lines as they need."""
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 3 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] += f"   {word}"
    return lines


def _map(picture: Picture, cells: "dict[int, Cell]", letter: "dict[int, str]", width: int, full: bool) -> list[str]:
    groups = [Group(node.name, [cells[row.id] for row in rows]) for node, rows in by_node(picture)]
    if not picture.mesh.topology or not groups:
        return draw(groups, letter, width, colour=watch.in_colour())
    from console.cli.map.cabinets import cabinets, racks
    from db.topology import Mesh

    topology = topology_of(picture)
    if isinstance(topology, Mesh):
        found = cabinets(topology, cells.get, letter, width, colour=watch.in_colour(), full=full)
        return found[:-1]
    if topology.kind == "flat":
        return draw(groups, letter, width, colour=watch.in_colour())
    return racks(topology, groups, letter, width, colour=watch.in_colour())[:-1]


def _shown(picture: Picture, row: "object") -> str:
    state = picture.state(row.id)  # type: ignore[attr-defined]
    if state != "free":
        return state
    if row.partition is not None:  # type: ignore[attr-defined]
        return "kept"
    return "service" if picture.nodes[row.node].role == "service" else "free"  # type: ignore[attr-defined]


def _launchers(picture: Picture, letter: "dict[int, str]", width: int) -> list[str]:
    rows = []
    for one, row in sorted(picture.launchers.items()):
        time = "pending" if row.state == "pending" else elapsed(elapsed_s(picture, row))
        where = clean(login(picture, row))
        rows.append((letter[one], str(one), clean(row.user), str(row.size), time, where, clean(row.command)))
    head = ("", "launcher", "user", "size", "elapsed", "from", "command")
    return table(head, rows, width if sys.stdout.isatty() else watch.UNBOUNDED, right=(1, 3, 4))


def _out_of_order(picture: Picture, width: int) -> list[str]:
    out = [node for _, node in sorted(picture.nodes.items()) if node.state != "up"]
    lines = [cut(f"{node.name} is {node.state}: {clean(node.reason)}", width) for node in out[:_NAMED]]
    if len(out) > _NAMED:
        lines.append(f"and {len(out) - _NAMED} more nodes")
    lines += [cut(line, width) for line in to_be_drained(picture)]
    return ["", *lines] if lines else []


def as_json(picture: Picture, _width: int) -> list[str]:
    """One line of JSON."""
    import json

    letter = letters(picture.launchers)
    value = {
        "at": picture.now,
        "boot_id": picture.mesh.boot_id,
        "counter": picture.counter,
        "states": counts(picture),
        "nodes": [
            {
                "id": node.id,
                "name": node.name,
                "role": node.role,
                "side": node.side,
                "state": node.state,
                "reason": node.reason,
                "drain_at": node.drain_at,
                "drain_reason": node.drain_reason,
                "processors": [_processor(picture, row) for row in rows],
            }
            for node, rows in by_node(picture)
        ],
        "reservations": picture.reservations,
        "launchers": [
            {
                "id": row.id,
                "letter": letter[row.id],
                "partition": row.partition,
                "user": row.user,
                "state": row.state,
                "size": row.size,
                "processors": row.processors,
                "login": login(picture, row),
                "pid": row.pid,
                "elapsed_s": round(elapsed_s(picture, row), 3),
                "command": row.command,
            }
            for _, row in sorted(picture.launchers.items())
        ],
    }
    return [json.dumps(value, separators=(",", ":"))]


def _processor(picture: Picture, row: "Any") -> "dict[str, Any]":
    return {
        "id": row.id,
        "state": picture.state(row.id),
        "mode": row.alloc_mode,
        "reserved_for": row.reserved_for,
        "partition": row.partition,
        "launcher": row.launcher,
    }


if __name__ == "__main__":
    sys.exit(main())

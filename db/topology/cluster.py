"""Clusters: flat, racks, or a fat tree given by its switches.

All three are a tree of switches with nodes as leaves. A flat cluster has one switch; racks have one switch each, under
one common switch. The processors of a node are in the database, not here.
"""

from __future__ import annotations

from db.errors import TopologyError
from db.topology.config_section import Section
from db.topology.names import expand

#: Switches from the root to the switch of a node.
Path = tuple[str, ...]
ROOT: Path = ("",)
KINDS = ("flat", "racks", "tree")


class Cluster:
    """Nodes in a tree of switches; a node that is not named is attached to the root."""

    def __init__(self, section: object) -> None:
        taken = Section(section, "topology")
        self.kind = taken.text("kind")
        self._written: dict[str, object] = {}
        self._paths: dict[str, Path] = {}
        if self.kind == "racks":
            self._racks(taken.table("racks"))
        elif self.kind == "tree":
            self._tree(taken.table("switches"))
        taken.done("kind", *{"racks": ["racks"], "tree": ["switches"]}.get(self.kind, []))

    def to_dict(self) -> dict[str, object]:
        """The section that this cluster was parsed from."""
        return {"kind": self.kind, **self._written}

    @property
    def nodes(self) -> list[str]:
        """The named nodes in the order of the tree, so that neighbours are adjacent."""
        return list(self._paths)

    def path(self, node: str) -> Path:
        """The switches above a node, from the root down."""
        return self._paths.get(node, ROOT)

    def hops(self, one: str, other: str) -> int:
        """The number of links between two nodes, up to their common switch and down again; 0 from a node to itself."""
        if one == other:
            return 0
        mine, theirs = self.path(one), self.path(other)
        shared = 0
        for a, b in zip(mine, theirs, strict=False):
            if a != b:
                break
            shared += 1
        return len(mine) + len(theirs) - 2 * shared + 2

    def neighbours(self, node: str) -> list[str]:
        """The other nodes on the same switch."""
        path = self.path(node)
        return [other for other, theirs in self._paths.items() if theirs == path and other != node]

    def _racks(self, racks: Section) -> None:
        written: dict[str, object] = {}
        for rack in racks.names():
            texts = racks.texts(rack)
            written[rack] = list(texts)
            self._hang(expand(texts, f"topology.racks.{rack}"), (*ROOT, rack))
        self._written = {"racks": written}

    def _tree(self, switches: Section) -> None:
        members: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        for name in switches.names():
            table = switches.table(name)
            members[name] = table.texts("nodes"), table.texts("switches")
            table.done("nodes", "switches")
        self._written = {
            "switches": {
                name: {key: list(texts) for key, texts in (("nodes", nodes), ("switches", below)) if texts}
                for name, (nodes, below) in members.items()
            }
        }
        below = {name: expand(texts, f"topology.switches.{name}") for name, (_, texts) in members.items()}
        root = _root(below)
        waiting: list[tuple[str, Path]] = [(root, ROOT)]
        seen = 0
        while waiting:
            name, above = waiting.pop()
            # All trees have the same root, so a node that is not named has a place.
            path = ROOT if name == root else (*above, name)
            seen += 1
            self._hang(expand(members[name][0], f"topology.switches.{name}"), path)
            waiting += [(child, path) for child in reversed(below[name])]
        if seen != len(members):
            raise TopologyError("[topology.switches] has a circle", "every switch has one switch above it")

    def _hang(self, nodes: list[str], path: Path) -> None:
        for node in nodes:
            if node in self._paths:
                raise TopologyError(f"[topology] node {node!r:.60} is named twice", "name every node once")
            self._paths[node] = path


def _root(below: dict[str, list[str]]) -> str:
    """The one switch without a parent. Raises TopologyError if there is not exactly one, or if a switch has two
    parents."""
    above: dict[str, str] = {}
    for name, children in below.items():
        for child in children:
            if child not in below:
                raise TopologyError(
                    f"[topology.switches.{name}] names the switch {child!r:.60}, which is not described"
                )
            if child in above:
                raise TopologyError(f"[topology.switches] {child!r:.60} is below both {above[child]} and {name}")
            above[child] = name
    roots = [name for name in below if name not in above]
    if len(roots) != 1:
        which = ", ".join(roots[:4]) or "none"
        raise TopologyError(
            f"[topology.switches] needs one switch above all others, and has {len(roots)} ({which})",
            "add a switch whose switches are those",
        )
    return roots[0]

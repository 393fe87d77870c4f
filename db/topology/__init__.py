"""The structure of the machine: the section ``[topology]``, and the JSON in ``mesh.topology``.

Viewers import this, so it imports only modules that the interpreter has loaded anyway, and no driver.
"""

from __future__ import annotations

from db.errors import TopologyError
from db.topology.cluster import KINDS, Cluster
from db.topology.mesh import Mesh, Side, Switch
from db.topology.validate import check

__all__ = ["Cluster", "Mesh", "Side", "Switch", "Topology", "TopologyError", "check", "from_json", "parse"]

Topology = Mesh | Cluster


def parse(section: object) -> Topology:
    """Parse a section; None or an empty one is a flat cluster. Raises TopologyError, which names the fault."""
    kind = section.get("kind") if isinstance(section, dict) else None
    if section is None or section == {}:
        return Cluster({"kind": "flat"})
    if kind == Mesh.kind:
        return Mesh(section)
    if kind in KINDS:
        return Cluster(section)
    there = ", ".join((Mesh.kind, *KINDS))
    if kind is None and isinstance(section, dict):
        raise TopologyError("[topology] lacks kind", f"there are: {there}")
    raise TopologyError(f"[topology] kind {kind!r:.40} is not known", f"there are: {there}")


def from_json(text: str | None) -> Topology:
    """Parse the ``mesh.topology`` column, where NULL is a flat cluster."""
    if not text:
        return parse(None)
    import json  # viewers of a flat cluster do not need it

    try:
        section = json.loads(text)
    except ValueError as error:
        raise TopologyError(
            f"the topology in the database is not JSON: {error}", "mesh down, then mesh up, which stores it again"
        ) from None
    return parse(section)

"""Who may ask a daemon for what, where its peer is on another machine: one table, by the roles of certificates.

On one machine the kernel says who somebody is, and the socket's directory who may come (docs/security.md).
"""

from __future__ import annotations

from agents.wire.errors import Refusal

TYPE_CHECKING = False  # typing itself is not loaded: it costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, FrozenSet, Set

#: What a peer is that shows no certificate but the credential of a launch: it may act for that launch alone.
LAUNCHER = "launcher"
#: Who brings a launch to a PCT: its launcher, or the node above in its tree.
LAUNCH_ROLES = (LAUNCHER, "parent")

#: A PCT's operations, and what a hello begins: ``launch``, ``parent`` (by a node of its tree), ``ask`` (anything else).
PCT: Dict[str, FrozenSet[str]] = {
    "status": frozenset(("cpa", "rca")),
    "kill_launch": frozenset(("cpa", LAUNCHER)),
    "failed": frozenset(("cpa", LAUNCHER)),
    "death": frozenset(("pct", LAUNCHER)),
    "wipe": frozenset(("cpa",)),
    "trust": frozenset(("cpa",)),
    "ask": frozenset(("cpa", "rca", "pct", LAUNCHER)),
    "fetch": frozenset(("pct",)),
    "object": frozenset(("cpa", "rca", "pct")),  # a login processor without CPAs shows the certificate of its RCA
    "launch": frozenset((LAUNCHER,)),
    "parent": frozenset(("pct",)),
}


def roles_of(names: FrozenSet[str], mesh: str) -> Set[str]:
    """The roles that a certificate's URIs give in this mesh."""
    prefix = f"redmesh://{mesh}/"
    return {name[len(prefix) :].partition("/")[0] for name in names if name.startswith(prefix)}


def name_of(names: FrozenSet[str], mesh: str, role: str) -> str:
    """Who of that role it is, "" when it is none."""
    prefix = f"redmesh://{mesh}/{role}/"
    return next((name[len(prefix) :] for name in sorted(names) if name.startswith(prefix)), "")


def need(table: Dict[str, FrozenSet[str]], op: str, roles: Set[str]) -> None:
    """Refusal unless one of ``roles`` may ask for ``op``."""
    allowed = table.get(op, frozenset())
    if allowed.isdisjoint(roles):
        if not roles:
            raise Refusal("no_certificate", f"{op} needs a certificate of this mesh, and none was shown")
        raise Refusal(
            "wrong_role", f"{op} is for {' and '.join(sorted(allowed)) or 'nobody'}, not for {'/'.join(sorted(roles))}"
        )

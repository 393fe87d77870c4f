"""Which role of a certificate may ask a daemon on another machine for which operation: one table.

On one machine, the kernel reports the peer's uid, and the permissions of the socket's directory decide who may connect
(docs/security.md).
"""

from __future__ import annotations

from agents.wire.errors import Refusal

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, FrozenSet, Set

#: The role of a peer that shows the credential of a launch and no certificate. It may act for that launch only.
LAUNCHER = "launcher"
#: The roles that bring a launch to a PCT: its launcher, or the parent node in its tree.
LAUNCH_ROLES = (LAUNCHER, "parent")

#: The operations of a PCT, and the kinds of hello: ``launch``, ``parent`` (from a node of the tree), ``ask`` (all
#: others).
PCT: Dict[str, FrozenSet[str]] = {
    "status": frozenset(("cpa", "rca")),
    "kill_launch": frozenset(("cpa", LAUNCHER)),
    "give_back": frozenset(("cpa",)),
    "failed": frozenset(("cpa", LAUNCHER)),
    "death": frozenset(("pct", LAUNCHER)),
    "wipe": frozenset(("cpa",)),
    "trust": frozenset(("cpa",)),
    "post_back": frozenset(("cpa",)),
    "ask": frozenset(("cpa", "rca", "pct", LAUNCHER)),
    "fetch": frozenset(("pct",)),
    "object": frozenset(("cpa", "rca", "pct")),  # a login processor without CPAs shows the certificate of its RCA
    "launch": frozenset((LAUNCHER,)),
    "parent": frozenset(("pct",)),
}


def roles_of(names: FrozenSet[str], mesh: str) -> Set[str]:
    """The roles in this mesh that the URIs of a certificate give."""
    prefix = f"redmesh://{mesh}/"
    return {name[len(prefix) :].partition("/")[0] for name in names if name.startswith(prefix)}


def name_of(names: FrozenSet[str], mesh: str, role: str) -> str:
    """The name in a certificate for this mesh and role; "" if it has none."""
    prefix = f"redmesh://{mesh}/{role}/"
    return next((name[len(prefix) :] for name in sorted(names) if name.startswith(prefix)), "")


def need(table: Dict[str, FrozenSet[str]], op: str, roles: Set[str]) -> None:
    """Raise Refusal unless one of ``roles`` may ask for ``op``."""
    allowed = table.get(op, frozenset())
    if allowed.isdisjoint(roles):
        if not roles:
            raise Refusal("no_certificate", f"{op} needs a certificate of this mesh, and none was shown")
        raise Refusal(
            "wrong_role", f"{op} is for {' and '.join(sorted(allowed)) or 'nobody'}, not for {'/'.join(sorted(roles))}"
        )

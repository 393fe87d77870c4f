"""Checks a complete load from another machine against its credential. No I/O.

The PCT has verified the credential; this module checks that the load is the one of the credential.
"""

from __future__ import annotations

from agents.wire import credential as credentials
from agents.wire.errors import Refusal, WireError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import FrozenSet

    from agents.pct.launch.load import Load
    from agents.wire.control import Message
    from agents.wire.credential import Pass


def check_load(let_in: Pass, node: str, load: Load, message: Message, common: bytes) -> FrozenSet[str]:
    """The nodes of the launch. Raises Refusal if this is not the load for which the CPA made the credential."""
    credential = let_in.credential
    if load.launcher != credential.launcher:
        raise Refusal("other_launcher", f"a load of launcher {load.launcher}, let in as {credential.launcher}")
    if message.get("credential") != credential.text:
        raise Refusal("other_credential", "the load has another credential than its hello")
    if credentials.digest_of(common) != credential.common:
        raise Refusal("other_program", "the load is not the one that the CPA was asked about")
    members = message.get("members")
    if credentials.digest_of_members(members) != credential.members:
        raise Refusal("other_nodes", "the load has other nodes than the CPA gave")
    try:
        names = credentials.names_of(members)
        granted = credentials.processors_of(members, node)
    except WireError as error:
        raise Refusal("malformed", error.message) from None
    if let_in.parent and let_in.parent not in names:
        raise Refusal("stranger", f"{let_in.parent} is not a node of launcher {load.launcher}")
    wanted = load.nodes[0].get("processors")
    if not isinstance(wanted, list) or not granted.issuperset(wanted):
        raise Refusal("other_processors", f"launcher {load.launcher} was not given these processors of {node}")
    return names

"""What protocol 2 names differently than protocol 1: the one place that translates between the two.

All of our code uses the names of protocol 2. A receiver understands both. A sender writes the names of the oldest
protocol that is still understood, because it does not know the receiver's: a first request travels in one packet with
the hello, and frames in the tree of a launch are forwarded unchanged past nodes of either version, where a credential
also covers the bytes of the common frame. So the next version, which no longer understands protocol 1, deletes these
tables. Until then a control message costs one look into a dictionary.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself is not loaded: it would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

    Names = Dict[str, Tuple[str, Dict[str, str]]]
else:
    Names = dict

#: The common frame of a load, which has no operation.
COMMON = ""

#: Each operation that has another name, or other keys, in protocol 1: its name there, and those of the keys.
OLD_NAMES: Names = {
    "death": ("fate", {}),
    "remote_nodes": ("far_nodes", {}),
    "seek_reader": ("look", {}),
    "reader_waits": ("waits", {}),
    "input_piece": ("deal", {}),
    "input_rest": ("dealt", {}),
    "allocate": ("allocate", {"preemptible": "nice"}),
    "note": ("note", {"preempted_by": "gives_way"}),
    COMMON: (COMMON, {"payload": "cargo", "run_options": "manner"}),
}
#: The same the other way round.
NEW_NAMES: Names = {
    old: (new, {old_key: new_key for new_key, old_key in keys.items()}) for new, (old, keys) in OLD_NAMES.items()
}


def old_names(message: Dict[str, Any]) -> Dict[str, Any]:
    """``message`` as a peer of protocol 1 knows it; the same object if nothing in it is renamed."""
    return _renamed(message, OLD_NAMES.get(message.get("op", COMMON)))


def new_names(message: Dict[str, Any]) -> Dict[str, Any]:
    """``message`` in the names of protocol 2, whichever of both it was sent in."""
    return _renamed(message, NEW_NAMES.get(message.get("op", COMMON)))


def _renamed(message: Dict[str, Any], names: Optional[Tuple[str, Dict[str, str]]]) -> Dict[str, Any]:
    if names is None:
        return message
    op, keys = names
    renamed = {keys.get(key, key): value for key, value in message.items()}
    if op:
        renamed["op"] = op
    return renamed

"""Translates between the names of protocol 1 and protocol 2. No other module knows both.

All of our code uses the names of protocol 2. A receiver understands both. A sender writes the names of the oldest
supported protocol, because it does not know the receiver's: a first request travels in one packet with the hello, and
frames in the tree of a launch are forwarded unchanged past nodes of either version, where a credential also covers the
bytes of the common frame. The next version drops protocol 1 and deletes these tables. Until then a control message
costs one dictionary lookup.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

    Names = Dict[str, Tuple[str, Dict[str, str]]]
else:
    Names = dict

#: The common frame of a load, which has no operation name.
COMMON = ""

#: Operations whose name or keys differ in protocol 1: the old name, and the old names of the keys.
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
#: The inverse of OLD_NAMES.
NEW_NAMES: Names = {
    old: (new, {old_key: new_key for new_key, old_key in keys.items()}) for new, (old, keys) in OLD_NAMES.items()
}


def old_names(message: Dict[str, Any]) -> Dict[str, Any]:
    """``message`` with the names of protocol 1; the same object if nothing is renamed."""
    return _renamed(message, OLD_NAMES.get(message.get("op", COMMON)))


def new_names(message: Dict[str, Any]) -> Dict[str, Any]:
    """``message`` with the names of protocol 2, whichever it had."""
    return _renamed(message, NEW_NAMES.get(message.get("op", COMMON)))


def _renamed(message: Dict[str, Any], names: Optional[Tuple[str, Dict[str, str]]]) -> Dict[str, Any]:
    if names is None:
        return message
    op, keys = names
    renamed = {keys.get(key, key): value for key, value in message.items()}
    if op:
        renamed["op"] = op
    return renamed

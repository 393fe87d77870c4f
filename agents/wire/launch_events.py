"""Events of a launch that its yod prints (``-json``) and the owner of its job reads: records, declared once.

docs/protocol.md, *Attach*, has their text form and all other events.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would cost every yod 3 ms
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Union

    LaunchEvent = Union["NodeCannotStart", "NodeSilent", "RanksStopped", "GiveBack"]


class NodeCannotStart:
    """The launch cannot start on a node. ``lasting``: it would fail there again, until somebody mends the node or the
    program, or frees room (``of_room``)."""

    __slots__ = ("hint", "lasting", "node", "of_room", "text")

    def __init__(self, node: str, text: str, hint: str = "", *, lasting: bool = False, of_room: bool = False) -> None:
        self.node, self.text, self.hint, self.lasting, self.of_room = node, text, hint, lasting, of_room

    def as_event(self) -> Dict[str, Any]:
        """The event in text form."""
        return {
            "event": "load_failed", "node": self.node, "text": self.text, "hint": self.hint, "lasting": self.lasting,
            "of_room": self.of_room,
        }  # fmt: skip


class NodeSilent:
    """The launch child on a node has sent nothing for ``seconds``, or does so again after them (``back``)."""

    __slots__ = ("back", "node", "seconds")

    def __init__(self, node: str, seconds: float, *, back: bool) -> None:
        self.node, self.seconds, self.back = node, seconds, back

    def as_event(self) -> Dict[str, Any]:
        """The event in text form."""
        return {"event": "back" if self.back else "silent", "node": self.node, "seconds": self.seconds}


class RanksStopped:
    """All ranks of a node that are stopped (SIGSTOP) now: their processes, and when each stop was noticed (UTC). None
    if all run again."""

    __slots__ = ("node", "pids", "ranks", "since")

    def __init__(self, node: str, ranks: List[int], pids: List[int], since: List[float]) -> None:
        self.node, self.ranks, self.pids, self.since = node, ranks, pids, since

    def as_event(self) -> Dict[str, Any]:
        """The event in text form."""
        return {
            "event": "stopped", "node": self.node, "ranks": self.ranks, "pids": self.pids, "since": self.since,
        }  # fmt: skip


class GiveBack:
    """Processors of a job are wanted for a request that waits: of its ``launchers``, the job keeps ``keep`` processors
    at most."""

    __slots__ = ("keep", "key", "launchers", "pause", "to")

    def __init__(self, key: str, launchers: List[int], keep: int, to: str, *, pause: bool) -> None:
        self.key, self.launchers, self.keep = key, launchers, keep
        self.to = to  # the user who waits
        self.pause = pause  # the request is a job's that is to catch up with this one: ask for no more for a moment

    def as_event(self) -> Dict[str, Any]:
        """The event in text form."""
        return {
            "event": "give_back", "key": self.key, "launchers": self.launchers, "keep": self.keep, "to": self.to,
            "pause": self.pause,
        }  # fmt: skip


def read(event: Dict[str, Any]) -> Optional[LaunchEvent]:
    """The record of an event in text form; None for another event. Raises KeyError, TypeError or ValueError for an
    invalid one."""
    kind = event["event"]
    if kind == "load_failed":
        return NodeCannotStart(
            str(event["node"]), str(event["text"]), str(event["hint"]),
            lasting=bool(event.get("lasting")), of_room=bool(event.get("of_room")),
        )  # fmt: skip
    if kind in ("silent", "back"):
        return NodeSilent(str(event["node"]), float(event["seconds"]), back=kind == "back")
    if kind == "stopped":
        pids, since = list(map(int, event["pids"])), list(map(float, event["since"]))
        return RanksStopped(str(event["node"]), list(map(int, event["ranks"])), pids, since)
    if kind == "give_back":
        launchers = list(map(int, event["launchers"]))
        return GiveBack(
            str(event["key"]), launchers, int(event["keep"]), str(event["to"]), pause=bool(event.get("pause"))
        )
    return None

"""One collection of stacks in one launch child: which sources have answered, and what to send up. No I/O."""

from __future__ import annotations

from agents.pct.debug import stack_tree
from agents.pct.debug.sources import Sources
from redmesh import idset

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from agents.pct.debug.stack_tree import Tree


class Gathering:
    """Waits for the sources in ``awaited``, each with the set of ranks that it reports."""

    def __init__(self, number: int, awaited: "Dict[str, int]") -> None:
        self.number = number
        self._awaited = dict(awaited)
        self._tree: "Tree" = {}
        self._missing: "Dict[Tuple[str, str], int]" = {}
        self._sources = Sources()
        self._told = False

    def take(
        self, source: str, tree: "Tree", missing: "List[List[Any]]", sources: "Optional[Sources]" = None
    ) -> "Optional[Dict[str, Any]]":
        """Add the answer of ``source``; returns the message to send up if it was the last one."""
        if self._told or self._awaited.pop(source, None) is None:
            return None
        stack_tree.merge(self._tree, tree)
        if sources is not None:
            self._sources.merge(sources)
        for ranks, node, why in missing:
            key = (str(node), str(why)[:400])
            self._missing[key] = self._missing.get(key, 0) | idset.read(ranks)
        return None if self._awaited else self._message()

    def lost(self, source: str, why: str) -> "Optional[Dict[str, Any]]":
        """``source`` will not answer; returns the message to send up if it was the last one."""
        ranks = self._awaited.get(source)
        if ranks is None:
            return None
        return self.take(source, {}, [[idset.text(ranks), source, why]] if ranks else [])

    def expired(self) -> "Optional[Dict[str, Any]]":
        """Time is over: returns the message to send up, unless it was sent."""
        told = None
        for source in list(self._awaited):
            told = self.lost(source, "no answer in time")
        return told

    def _message(self) -> "Dict[str, Any]":
        self._told = True
        missing = [[idset.text(ranks), node, why] for (node, why), ranks in sorted(self._missing.items())]
        calls = stack_tree.rows(self._tree)
        return {
            "op": "stacks", "number": self.number, "calls": calls, "missing": missing, **self._sources.as_message(),
        }  # fmt: skip

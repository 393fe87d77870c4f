"""yod between those who want to see into its launch and the tree that can: it passes on, and opens nothing.

So a merged tree of a thousand ranks costs it no more than one of ten.
"""

from __future__ import annotations

import time

from agents.pct import rank_sets
from agents.wire.errors import WireError
from console.launch.forming import State
from console.launch.lending import Lending
from console.launch.stream import stamped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agents.link.loop import Loop
    from console.launch.engine import Engine
    from console.launch.observers import Observer

#: Collections under way for one launch; each reads every rank's stack.
MOST = 4
#: Seconds that an observer may ask for, and how much longer than the tree yod waits.
LONGEST_S, LATER_S = 120.0, 1.0
_USUAL_S = 10.0


class Asked:
    """One collection."""

    __slots__ = ("at", "began", "observer")

    def __init__(self, observer: Observer) -> None:
        self.observer, self.began, self.at = observer, time.monotonic(), time.time()


class Inspecting:
    """The questions of all observers of one launch."""

    def __init__(self, engine: Engine, loop: Loop) -> None:
        self._engine, self._loop = engine, loop
        self._asked: dict[int, Asked] = {}
        self._debugging: dict[Observer, int] = {}
        self._lending = Lending(loop, engine.inspect)
        self._next = 0

    def ask(self, observer: Observer, op: str, message: dict[str, Any]) -> None:
        """What ``observer`` wants: ``stacks``, or one of ``debug``'s. WireError for a request that means nothing."""
        if op in ("stacks", "debug"):
            given = message.get("tools") or {}
            self._lending.paths.update({str(name): str(path) for name, path in given.items()})
        if op == "stacks":
            self._collect(observer, message)
        elif op == "debug":
            self._begin(observer, message)
        elif op == "procs":
            self._tell_processes(observer)
        elif observer in self._debugging:
            self._engine.inspect(dict(message, session=self._debugging[observer]))

    def _begin(self, observer: Observer, message: dict[str, Any]) -> None:
        if observer in self._debugging:
            raise WireError("one debugger on a connection")
        why = self._refusal(1 << max(0, min(message["rank"], rank_sets.MOST)))
        if why or message["rank"] < 0:
            observer.tell(stamped({"event": "refused", "op": "debug", "text": why or "no such rank"}))
            return
        self._next += 1
        self._debugging[observer] = self._next
        self._engine.inspect(dict(message, session=self._next))

    def _tell_processes(self, observer: Observer) -> None:
        why = self._refusal(0)
        if why:
            observer.tell(stamped({"event": "refused", "op": "procs", "text": why}))
            return
        rows = [[one["host_name"], one["executable_name"], one["pid"]] for one in self._engine.processes()]
        observer.tell(stamped({"event": "procs", "launcher": self._engine.launch.launcher, "table": rows}))

    def forget(self, observer: Observer) -> None:
        """It has gone, and with it whoever sat at its debugger."""
        session = self._debugging.pop(observer, None)
        if session is not None:
            self._engine.inspect({"op": "debug_leave", "session": session})

    def _said(self, op: str, message: dict[str, Any]) -> None:
        for observer, session in list(self._debugging.items()):
            if session == message["session"]:
                if op == "debug_over":
                    del self._debugging[observer]
                told = {key: value for key, value in message.items() if key not in ("op", "session")}
                observer.tell(stamped({"event": op, **told}))

    def _collect(self, observer: Observer, message: dict[str, Any]) -> None:
        which, limit_s = message.get("which", "all"), float(message.get("limit_s", _USUAL_S))
        wanted = message.get("ranks")
        try:
            ranks = -1 if wanted is None else rank_sets.read(wanted)
        except ValueError as error:
            raise WireError(f"stacks: {error}") from None
        if which not in ("all", "native", "python") or not 0 <= limit_s <= LONGEST_S:
            raise WireError("stacks: which is all, native or python; limit_s at most 120")
        why = self._refusal(ranks)
        if why:
            observer.tell(stamped({"event": "refused", "op": "stacks", "text": why}))
            return
        self._next += 1
        number = self._next
        self._asked[number] = Asked(observer)
        request = {"op": "stacks", "number": number, "which": which, "limit_s": limit_s}
        self._engine.inspect({**request, "ranks": wanted, "tools": message.get("tools") or {}})
        late = {"calls": [], "missing": [[wanted or self._all, "", "no answer in time"]], "number": number}
        self._loop.after(limit_s + LATER_S, lambda: self.told("stacks", late))

    @property
    def _all(self) -> str:
        return rank_sets.text((1 << self._engine.launch.ranks.size) - 1)

    def _refusal(self, ranks: int) -> str:
        launch = self._engine.launch
        if launch.state is not State.RUNNING:
            return f"launcher {launch.launcher} does not run ({launch.state.value})"
        if ranks >> launch.ranks.size not in (0, -1):
            return f"launcher {launch.launcher} has ranks 0 to {launch.ranks.size - 1}"
        if len(self._asked) >= MOST:
            return f"{MOST} collections of launcher {launch.launcher} are under way; try again"
        return ""

    def told(self, op: str, message: dict[str, Any]) -> None:
        """The tree answers; what comes later than its time is dropped."""
        if op == "want_tool":
            self._lending.wanted(message["name"])
            return
        if op != "stacks":
            self._said(op, message)
            return
        asked = self._asked.pop(message["number"], None)
        if asked is None:
            return
        launch = self._engine.launch
        event = {"event": "stacks", "launcher": launch.launcher, "ranks": launch.ranks.size, "taken_at": asked.at}
        event["took_s"] = round(time.monotonic() - asked.began, 4)
        asked.observer.tell(stamped({**event, "calls": message["calls"], "missing": message["missing"]}))

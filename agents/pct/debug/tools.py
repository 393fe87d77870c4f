"""Fetches a tool that a node lacks from the launcher: requested once, passed down the tree piece by piece.

Each node that needs the tool writes its own copy to the RAM disk, checks it, and removes it with the launch.
"""

from __future__ import annotations

import base64

from agents.pct.errors import PctError
from agents.pct.images.store import Arriving, Stores
from agents.wire.control import control
from agents.wire.errors import WireError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, Dict, List

    from agents.link.loop import Loop
    from agents.pct.launch.tree import Child
    from agents.wire.control import Message

    Then = Callable[[str, str], None]  # called with the path, or "" and the reason of the failure

#: Seconds that a tool may take to arrive; after that the ranks are read without it.
PATIENCE_S = 6.0
_LARGEST = 64 << 20


class Tools:
    """The fetched tools of one launch child. ``owner`` names its launch and node; ``tell`` sends messages to the
    parent."""

    def __init__(self, loop: Loop, owner: str, tell: Callable[[Message], None]) -> None:
        self._loop, self._tell = loop, tell
        self._stores = Stores(f"{owner}-tools")
        self._here: Dict[str, str] = {}
        self._arriving: Dict[str, Arriving] = {}
        self._waiting: Dict[str, List[Then]] = {}
        self._below: Dict[str, List[Child]] = {}  # children that get the pieces as they come
        self._later: Dict[str, List[Child]] = {}  # children that asked when pieces had already passed
        self._asked: Dict[str, bool] = {}

    def want(self, name: str, then: Then) -> None:
        """Call ``then`` when ``name`` is here, or will not come."""
        if name in self._here:
            then(self._here[name], "")
            return
        self._waiting.setdefault(name, []).append(then)
        self._loop.after(PATIENCE_S, lambda: self._give_up(name, then))
        if name not in self._arriving:
            self._ask(name)

    def _ask(self, name: str) -> None:
        if name not in self._asked:
            self._asked[name] = True
            self._tell({"op": "want_tool", "name": name})

    def _give_up(self, name: str, then: Then) -> None:
        if then in self._waiting.get(name, ()):
            self._waiting[name].remove(then)
            then("", f"{name} is still on its way here")

    def wanted_below(self, child: Child, name: str) -> None:
        """A child requests the tool."""
        begun = name in self._arriving and self._arriving[name].received > 0
        (self._later if begun else self._below).setdefault(name, []).append(child)
        if not begun:
            self._ask(name)

    def on_piece(self, message: Message) -> None:
        """A piece of the tool, or the reason why there is none. Raises WireError if it is malformed."""
        name = message["name"]
        for child in self._below.get(name, ()):
            if not child.over:
                child.send_raw(control(message))
        try:
            last = self._write(name, message)
        except PctError as error:
            self._arriving.pop(name, None)
            self._over(name, "", error.message)
            last = message["offset"] + len(message["data"]) * 3 // 4 >= message["size"]
        if last or message.get("error"):
            self._over(name, self._here.get(name, ""), str(message.get("error", "")))
            self._below.pop(name, None)
            self._asked.pop(name, None)
            again = self._later.pop(name, [])
            if again:
                self._below[name] = again
                self._ask(name)

    def _write(self, name: str, message: Message) -> bool:
        size = message["size"]
        if message.get("error"):
            return True
        try:
            data = base64.b64decode(message["data"], validate=True)
        except ValueError:
            raise WireError("a piece of a tool that was not announced") from None
        if not 0 < size <= _LARGEST or "/" in name:
            raise WireError("a tool with a wrong size or name")
        whole = bool(message["offset"] + len(data) >= size)
        if not self._waiting.get(name) and name not in self._arriving:
            return whole  # only forwarded
        arriving = self._arriving.get(name)
        if arriving is None:
            if message["offset"]:
                return whole  # its beginning passed before we requested it
            made, _store, _instead = self._stores.put(
                lambda store: store.want(message["digest"], size, name, share=False)
            )
            arriving = self._arriving[name] = made
        arriving.write(message["offset"], data)
        if whole:
            self._here[name] = arriving.finish()
            del self._arriving[name]
        return whole

    def _over(self, name: str, path: str, why: str) -> None:
        for then in self._waiting.pop(name, []):
            then(path, why or ("" if path else f"{name} did not come whole"))

    def close(self) -> None:
        """Remove everything."""
        for arriving in self._arriving.values():
            arriving.abandon()
        self._stores.remove()
        self._here.clear()

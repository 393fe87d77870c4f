"""Opens and closes switch columns: one transaction, then the PCTs wipe every node that changed sides."""

from collections.abc import Callable

from agents.cpa.operations import Operations
from agents.cpa.permissions import user_name
from agents.link.journal import Journal
from agents.link.link import Caller
from agents.link.loop import Loop
from agents.link.sockets import connect_now
from agents.wire.control import Message
from agents.wire.errors import AgentError
from db.machine import sides
from db.store.outage import Outage

ANSWER_S = 10.0
OP = "set_switches"

Done = Callable[[Message], None]


class Switching:
    """Runs ``set_switches``. A node that does not answer stays down until its PCT registers anew."""

    def __init__(self, loop: Loop, operations: Operations, outage: Outage, journal: Journal) -> None:
        self._loop, self._operations, self._outage, self._journal = loop, operations, outage, journal

    def do(self, uid: int, message: Message, done: Done) -> None:
        """Begin; ``done(reply)`` is called when every PCT has wiped its node or timed out. Raises Denied or
        StoreError before."""
        self._operations.rights.need_admin(uid, OP)
        names, closed = message["open"], message.get("closed")
        if not all(isinstance(name, str) for name in [*names, *(closed or ())]):
            raise AgentError("set_switches: open and closed are lists of names", code="invalid")
        store, by = self._operations.store, user_name(uid)
        drain, wipe_both = message.get("drain", False), message.get("wipe_both", False)
        changed = self._outage.guard(
            lambda: sides.set_open(store, names, by, closed=closed, drain=drain, wipe_both=wipe_both)
        )
        _Wiping(self._loop, changed, lambda left: self._wiped(len(changed), left, done)).begin()

    def _wiped(self, count: int, left: dict[str, str], done: Done) -> None:
        self._journal.write("wiped", nodes=count, left=left)
        done({"wiped": count - len(left), "left": left})


class _Wiping:
    """Asks PCTs to wipe their nodes; a process that stands for many nodes is asked once."""

    def __init__(self, loop: Loop, nodes: list[sides.Place], then: Callable[[dict[str, str]], None]) -> None:
        self._loop, self._then = loop, then
        self._left = {node.name: "no answer in time" for node in nodes}
        self._at: dict[str, list[str]] = {}
        for node in nodes:
            self._at.setdefault(node.address, []).append(node.name)
        self._callers: list[Caller] = []
        self._outstanding = 1
        self._over = False

    def begin(self) -> None:
        """Ask all PCTs at once."""
        self._loop.after(ANSWER_S, self._finish)
        for address, names in self._at.items():
            self._ask(address, names)
        self._one_less()

    def _ask(self, address: str, names: list[str]) -> None:
        try:
            caller = Caller(self._loop, connect_now(address), "cpa", lambda _caller, _reason: None)
        except (OSError, AgentError) as error:
            told = f"its PCT does not answer: {getattr(error, 'strerror', None) or error}"
            self._left.update(dict.fromkeys(names, told))
            return

        def answered(reply: Message | None, error: AgentError | None) -> None:
            clean = reply is not None and bool(reply.get("clean"))
            for name in names:
                if clean:
                    del self._left[name]
                else:
                    self._left[name] = "something runs on there" if error is None else error.message
            self._one_less()

        self._callers.append(caller)
        self._outstanding += 1
        caller.call({"op": "wipe", "nodes": names}, answered)

    def _one_less(self) -> None:
        self._outstanding -= 1
        if not self._outstanding:
            self._finish()

    def _finish(self) -> None:
        if not self._over:
            self._over = True
            for caller in self._callers:
                caller.close()
            self._then(self._left)

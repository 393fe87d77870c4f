"""Nodes that a running launch lost: cleaned, or given up, before their processors are freed."""

import time
from collections.abc import Callable, Sequence

from agents.cpa.cleanup.runner import ENDED_WITH, NO_PCT, Cleanups
from agents.cpa.operations import Operations
from agents.link.journal import Journal
from agents.link.loop import Loop
from agents.wire.address import SCHEME
from agents.wire.control import Message
from agents.wire.errors import AgentError
from db.allocation import finish
from db.errors import Expired, StoreError
from db.machine import nodes as machine
from db.store.outage import Outage
from db.views.daemon_reads import given_up

Done = Callable[[AgentError | StoreError | None], None]
BY = "cpa"
#: A node of this machine is not given up, and a new PCT there takes over the launch children that it finds: so the
#: node has to confirm, whenever its PCT is back or goes on. Seconds for which a PCT that died is waited for, because
#: its keeper starts it again at once, and between two attempts.
RESTART_S, RESTARTED_S = 3.0, 0.2


class Unclean(AgentError):
    """Processes of a lost launcher, or of a lost node, may be left; the RCA repeats the event."""

    code = "unclean"


class LostNodes:
    """Handles the ``lost`` nodes of a *finish*. The requester continues when no other launch can meet what is left
    there; if a node of this machine is not clean, it gets Unclean, and has to repeat the *finish*."""

    def __init__(
        self, loop: Loop, operations: Operations, outage: Outage, cleanups: Cleanups, journal: Journal
    ) -> None:
        self._loop = loop
        self._operations, self._outage, self._cleanups, self._journal = operations, outage, cleanups, journal

    def settle(self, message: Message, done: Done) -> None:
        """Begin; ``done(error)`` follows. Raises StoreError (also for the cookie) before anything began."""
        launcher, names = message["launcher"], set(map(str, message["lost"]))
        nodes = self._outage.guard(lambda: self._nodes(launcher, message["cookie"], names))
        if not nodes:
            done(None)
            return

        here = {node["name"] for node in nodes if not node["address"].startswith(SCHEME)}
        began = time.monotonic()

        def clean_up() -> None:
            self._cleanups.run(launcher, nodes, cleaned)

        def cleaned(clean: bool, said: str) -> None:
            left = {} if clean else told_of([node["name"] for node in nodes], said)
            doubtful = {name: why for name, why in left.items() if name in here}
            restarts = doubtful and all(why.startswith(NO_PCT) for why in doubtful.values())
            if restarts and time.monotonic() - began < RESTART_S:
                self._loop.after(RESTARTED_S, clean_up)
                return
            self._journal.write("lost_nodes", launcher=launcher, nodes=[node["name"] for node in nodes], left=left)
            error = self._give_up(launcher, {name: why for name, why in left.items() if name not in here})
            if error is None and doubtful:
                told = "; ".join(f"{name}: {why}" for name, why in doubtful.items())
                error = Unclean(f"launcher {launcher} is not cleaned up: {told}", "repeat the request")
            done(error)

        clean_up()

    def _nodes(self, launcher: int, cookie: str, names: set[str]) -> list[dict[str, str]]:
        try:
            live = finish.check_live(self._operations.store, launcher, cookie)
        except Expired:
            return []  # the launcher has ended, and was cleaned up then
        return [node for node in nodes_to_clean(self._operations, live.processors) if node["name"] in names]

    def _give_up(self, launcher: int, left: dict[str, str]) -> AgentError | StoreError | None:
        try:
            for name, why in left.items():
                reason = f"lost by launcher {launcher}, and not cleaned: {why}"[:500]
                self._outage.guard(
                    lambda name=name, reason=reason: machine.give_up(  # type: ignore[misc]
                        self._operations.store, name, launcher, reason, BY
                    )
                )
        except StoreError as error:
            return error
        return None


def nodes_to_clean(operations: Operations, processors: Sequence[int]) -> list[dict[str, str]]:
    """Nodes that must confirm that nothing of a launch is left: all but those the mesh has given up.

    A node whose boot is given up comes back only cleared, under another boot id.
    """
    nodes = [{"name": one.name, "address": one.address} for one in operations.nodes_of(processors)]
    if not any(node["address"].startswith(SCHEME) for node in nodes):
        return nodes
    lost = given_up(operations.store)
    return [node for node in nodes if node["name"] not in lost]


def told_of(names: Sequence[str], said: str) -> dict[str, str]:
    """The nodes of ``names`` that a clean-up left, with reasons. The built-in one names them, a line each; after a
    site's own, all are in doubt."""
    if said.startswith(ENDED_WITH):
        said = said.partition(": ")[2]
    told = dict(line.partition(": ")[::2] for line in said.splitlines())
    named = [name for name in names if name in told]
    return {name: told.get(name, said) for name in named or names}

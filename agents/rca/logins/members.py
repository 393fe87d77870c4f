"""An RCA among those of other login processors: it reports its address, learns which others exist, and monitors
them."""

from __future__ import annotations

import time

from agents.link.journal import Journal
from agents.link.loop import Loop
from agents.rca.config import Config
from agents.rca.datagrams import RemoteNodes
from agents.rca.logins.news import News
from agents.rca.logins.peers import Action, Peer, Peers
from agents.rca.machine_changes import MachineState
from agents.rca.nodes import State
from agents.rca.outbox import Outbox
from agents.wire import heartbeat

TYPE_CHECKING = False  # importing typing costs every RCA 6 ms
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Reply = dict[str, Any]
    Ask = Callable[[Reply, Callable[[Reply], None]], None]

_UDP = "udp://"
#: How long another RCA must be silent before its nodes count as unheard, in units of ``suspect_s``: living nodes have
#: come over by then. At half of this time a CPA is asked, so that the RCA could object.
PATIENCE = 2.0


class Members:
    """``ask(message, then)`` asks a CPA; ``tell_all()`` reports every node that is heard here to it once more.
    ``on_news()``: another login processor has changed something."""

    def __init__(
        self, loop: Loop, config: Config, far: RemoteNodes, outbox: Outbox, journal: Journal, ask: Ask,
        tell_all: Callable[[], None], on_news: Callable[[], None],
    ) -> None:  # fmt: skip
        self._config, self._far, self._outbox, self._journal = config, far, outbox, journal
        self._ask, self._tell_all, self._on_news = ask, tell_all, on_news
        times = (PATIENCE * max(config.suspect_s, 1.5 * far.interval_s), config.down_s)
        self._news = News()
        far.on_question = self._on_question
        self.peers = Peers(loop, config.login, far.family, lambda: far.masters, times, self._tell)

    def learn(self, machine: MachineState) -> None:
        """Apply what *nodes_out* says about the mesh and its login processors."""
        if (machine.boot_id, machine.nodes) != self._far.knows:
            self._ask({"op": "remote_nodes", "login": self._config.login}, self._far.learn)
        logins = {name: (address.removeprefix(_UDP), state) for name, address, state in machine.logins}
        place, state = logins.pop(self._config.login, ("", State.UP.value))
        if (place, state) != (self._config.listen, State.UP.value):
            # that RCA may have lost our nodes too; *nodes_out* itself reports suspect ones
            lost = state == State.DOWN.value
            self._ask(
                {"op": "rca_here", "login": self._config.login, "listen": self._config.listen},
                lambda _reply: self._tell_all() if lost else None,
            )
        places = {name: place for name, (place, _) in logins.items()}
        self.peers.know(places)
        everybody = sorted({**places, self._config.login: self._config.listen}.items())
        self._far.places = [place for _, place in everybody][: heartbeat.MOST_PLACES]

    def is_uncertain(self) -> bool:
        """True if another login processor may have changed something, or doubt this one, without our hearing of it."""
        return self._news.is_quiet(self.peers.peers, time.monotonic())

    def _on_question(self, question: heartbeat.Beat) -> None:
        if self._news.take(question, time.monotonic()):
            self._on_news()

    def _tell(self, peer: Peer, action: Action) -> None:
        reason = f"the RCA of {peer.name}, which heard it, does not answer"
        message: Reply = {"op": "rca_silent", "login": self._config.login, "rca": peer.name, "reason": reason}
        message["lost"], message["missed"] = action is Action.TELL_LOST, action is Action.TELL_MISSED
        self._journal.write("rca_silent", rca=peer.name, lost=message["lost"], missed=message["missed"])
        self._outbox.put(("rca", peer.name), message, {"rca": peer.name}, time.monotonic())

    def answered(self, message: Reply, reply: Reply) -> None:
        """A CPA has recorded a *rca_silent*, or knows that the RCA is up."""
        if not (message["missed"] or reply.get("taken")):
            self.peers.contradicted(message["rca"])

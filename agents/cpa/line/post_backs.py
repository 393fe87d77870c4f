"""Delivers grants: to a connection of this CPA, or to the CPA that holds it. Nothing is sent while nothing happens."""

from collections.abc import Callable, Sequence

from agents.cpa.line.queue import Queue
from agents.cpa.line.requests import Requests, shown
from agents.cpa.operations import Operations
from agents.link.journal import Journal
from agents.link.link import Caller
from agents.link.loop import Loop
from agents.link.sockets import connect_now
from agents.wire.control import Message
from agents.wire.errors import AgentError
from db.allocation.scheduling.line import Grant, Line, Unconfirmed, ended, post_again, unconfirmed_at
from db.allocation.waiting_requests import Waiter
from db.errors import StoreError
from db.store.outage import Outage

#: Pauses before another CPA is tried again; afterwards its client gets the grant when it repeats its request.
AGAIN_S = (0.2, 1.0, 5.0)


FIND_S = 1.0  # until the database is asked for the outcome of an unanswered commit


class PostBacks:
    """Delivers what ``line`` granted. ``address``: where other CPAs reach this one."""

    def __init__(
        self, loop: Loop, operations: Operations, outage: Outage, line: Line, journal: Journal, address: str
    ) -> None:
        self._loop, self._operations, self._outage, self._line = loop, operations, outage, line
        self._journal, self._address = journal, address
        self._due = False
        self.queue: Queue
        self.requests: Requests
        #: Called if the head of a line cannot be served: launches of low priority may have to end (uid, request).
        self.make_room: Callable[[int, Message], None] = lambda _uid, _message: None
        #: Called if a request was granted or ended that waits at another login processor.
        self.on_elsewhere: Callable[[], None] = lambda: None
        line.on_served = self._served
        line.on_undone = self._undone

    def _served(self) -> None:
        # Deliver afterwards, because a request is acknowledged before its processors are posted back.
        if not self._due:
            self._due = True
            self._loop.after(0, self._deliver)

    def _undone(self) -> None:
        self._loop.after(FIND_S, self._find_lost)

    def _find_lost(self) -> None:
        try:
            self._outage.guard(lambda: self._line.find_lost(self._operations.store))
        except StoreError:
            self._loop.after(FIND_S, self._find_lost)

    def _deliver(self) -> None:
        self._due = False
        grants, stuck = self._line.taken()
        for grant in grants:
            self._send(grant.waiter.cpa, grant.waiter.uid, self._message(grant), 0)
        for waiter in {waiter.id: waiter for waiter in stuck}.values():
            try:
                self.make_room(waiter.uid, self._operations.message_of(waiter))
            except (StoreError, AgentError) as error:
                self._journal.write("fault", reason=error.message)

    def _message(self, grant: Grant) -> Message:
        placed = []
        if grant.allocation is not None and grant.demand is not None:
            placed = [self._operations.reply_of(grant.allocation, grant.demand)]
            self._journal.write(
                "granted",
                uid=grant.waiter.uid,
                launcher=grant.allocation.launcher,
                size=len(grant.allocation.processors),
            )
        return shown(grant, placed)

    def too_late(self, waiters: Sequence[Waiter]) -> None:
        """Tell requests that were removed from the line that their waiting time is over."""
        for waiter in waiters:
            self._send(waiter.cpa, waiter.uid, shown(ended(waiter), []), 0)

    def post_unconfirmed(self, row: Unconfirmed) -> None:
        """Post again what a request was granted before its connection ended."""
        again = self._outage.guard(lambda: post_again(self._operations.store, self._operations.machine, row))
        if again is not None:
            message: Message = {"post_back": row.request_key, "sequence": row.sequence, "missing": row.missing}
            message |= {"place": row.place, "failures": row.failures}
            self._send(self._address, row.uid, {**message, "placed": [self._operations.reply_of(again)]}, 0)

    def post_all_unconfirmed(self) -> None:
        """Post grants, to requests held here, of another CPA that died before it announced them."""
        for row in self._outage.guard(lambda: unconfirmed_at(self._operations.store, self._address)):
            if self.requests.is_news(row.request_key, row.sequence):
                self.post_unconfirmed(row)

    def _send(self, cpa: str, uid: int, message: Message, failures: int) -> None:
        if cpa in ("", self._address):
            self.receive(uid, message)
            return

        login, _, path = cpa.partition(" ")
        if login != self._address.partition(" ")[0]:
            self.on_elsewhere()  # that CPA reads it
            return

        def answered(_reply: Message | None, error: AgentError | None) -> None:
            self._loop.after(0, caller.close)
            if error is not None:
                self._failed(cpa, uid, message, failures, error.message)

        try:
            caller = Caller(self._loop, connect_now(path), "cpa", lambda _caller, _reason: None)
        except (OSError, AgentError) as error:
            self._failed(cpa, uid, message, failures, str(error))
            return
        caller.call({"op": "granted", "uid": uid, "post_back": message}, answered)

    def _failed(self, cpa: str, uid: int, message: Message, failures: int, reason: str) -> None:
        self._journal.write("not_posted", cpa=cpa, key=message["post_back"], reason=reason, failures=failures + 1)
        if failures < len(AGAIN_S):
            self._loop.after(AGAIN_S[failures], lambda: self._send(cpa, uid, message, failures + 1))

    def receive(self, uid: int, message: Message) -> None:
        """A post-back for a connection of this CPA."""
        key, placed = message["post_back"], message["placed"]
        try:
            if message.get("sequence") and self.requests.post(key, uid, message):
                return
            error = AgentError.from_message(message["error"]) if "error" in message else None
            self.queue.granted(key, placed[0] if placed else None, error)
        except (StoreError, AgentError) as error:
            self._journal.write("fault", reason=error.message)

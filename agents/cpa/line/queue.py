"""Allocate requests that wait at this CPA for their replies.

The database's ``waiting`` table has their order. The CPA that frees processors allocates them to the heads of the lines
in the same transaction (db/allocation/scheduling), and tells the CPA that holds the connection (post_backs). So nothing
is polled.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from agents.cpa.operations import Answer, Operations
from agents.cpa.permissions import user_name
from agents.link.journal import Journal
from agents.link.loop import Loop, Timer
from agents.link.server import Session
from agents.link.user_limits import Busy
from agents.linux.peer_alive import is_there
from agents.wire.control import Message
from agents.wire.errors import AgentError
from db.allocation import waiting_requests
from db.allocation.allocate import check_right
from db.errors import NotEnough, StoreError
from db.store.outage import Outage, is_away

#: Requests of one user that may wait at this CPA, and their total size in bytes.
MOST_WAITING, WAITING_BYTES = 2048, 4 << 20
LOOK_S = 1.0  # checks that the database connection is still open; nothing is sent
KNOCK_S = 0.2  # retries a database that is away
MOST = (1 << 31) - 1  # the largest value of the column
LEFT = 1000  # how many requests with recently closed connections are remembered
#: Fields of a request that are not stored in the line.
UNKEPT = frozenset(("op", "id", "key", "uuid", "cookie", "wait_s", "notices", "partition", "post_back", "partial"))


class Waiter:
    """A request that waits here. ``session`` is its connection, ``deadline`` monotonic seconds, ``size`` in bytes."""

    __slots__ = ("deadline", "key", "message", "refusal", "session", "size", "told")

    def __init__(
        self, key: str, session: Any, message: dict[str, Any], deadline: float, refusal: Any, size: int = 0
    ) -> None:
        self.size = size
        self.key, self.session, self.message, self.deadline = key, session, message, deadline
        self.refusal = refusal  # the error to send when its time is over
        self.told = False  # True if it was told that the database is away


class Waiters:
    """The requests that wait at this CPA, by key."""

    def __init__(self) -> None:
        self._by_key: dict[str, Waiter] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def add(self, waiter: Waiter) -> Waiter | None:
        """Add a waiting request; returns the request that waited under the same key, whose connection is obsolete."""
        before = self._by_key.get(waiter.key)
        self._by_key[waiter.key] = waiter
        return before

    def remove(self, key: str) -> Waiter | None:
        """Remove a request."""
        return self._by_key.pop(key, None)

    def of_session(self, session: Any) -> list[Waiter]:
        """The requests of one connection."""
        return [waiter for waiter in self._by_key.values() if waiter.session is session]

    def of_user(self, uid: int) -> list[Waiter]:
        """The requests of one user."""
        return [waiter for waiter in self._by_key.values() if waiter.session.peer.uid == uid]

    def all(self) -> list[Waiter]:
        """All waiting requests."""
        return list(self._by_key.values())

    def overdue(self, now: float) -> list[Waiter]:
        """Requests whose deadline has passed."""
        return [waiter for waiter in self._by_key.values() if waiter.deadline <= now]

    def next_deadline(self) -> float | None:
        """The earliest deadline."""
        return min((waiter.deadline for waiter in self._by_key.values()), default=None)


Allocate = Callable[[Session, Message], None]
Reply = Callable[[Session, Message, Answer], None]
Refuse = Callable[[Session, Message, StoreError | AgentError], None]


class Queue:
    """The queue. ``allocate`` serves one request and replies, or raises; ``reply`` and ``refuse`` answer a request.

    ``address``: where other CPAs reach this one.
    """

    def __init__(
        self,
        loop: Loop,
        operations: Operations,
        outage: Outage,
        answers: tuple[Allocate, Reply, Refuse],
        journal: Journal,
        address: str,
    ) -> None:
        self._loop, self._operations, self._store, self._outage = loop, operations, operations.store, outage
        self._allocate, self._reply, self._refuse = answers
        self._journal, self._address = journal, address
        self._waiters = Waiters()
        self._abandoned: set[str] = set()  # keys of rows to delete when the database is back
        self._left: deque[str] = deque(maxlen=LEFT)
        self._looks: Timer | None = None
        self._due: Timer | None = None
        self._away = False
        self._connection = 0  # the number of the database connection at the last check

    def __len__(self) -> int:
        return len(self._waiters)

    def allocate_or_wait(self, session: Session, message: Message) -> None:
        """Serve an allocate request that may wait: now, if it is its turn and enough is free, otherwise later."""
        try:
            self._allocate(session, message)
        except NotEnough as error:
            if error.never:
                raise
            wait_s = min(float(message["wait_s"]), waiting_requests.LONGEST_WAIT_S)
            self._limit_user(session, message["key"])
            until, size = time.monotonic() + wait_s, session.request_bytes
            waiter = Waiter(message["key"], session, message, until, error, size)
            before = self._waiters.add(waiter)  # the transaction that queues it may already grant it
            try:
                self._enqueue(session.peer.uid, message, wait_s)
            except BaseException:
                self._waiters.remove(message["key"])
                raise
            if before is not None and before.session is not session:
                self._refuse(
                    before.session,
                    before.message,
                    AgentError("the same request came on another connection", code="gone"),
                )
            self._journal.write("waits", uid=session.peer.uid, size=message.get("size"), reason=error.message)
            self._arm()
            return
        self._waiters.remove(message["key"])

    def _limit_user(self, session: Session, key: str) -> None:
        if session.intake is None:
            return
        uid = session.peer.uid
        sizes = [one.size for one in self._waiters.of_user(uid) if one.key != key]
        if len(sizes) >= MOST_WAITING or sum(sizes) + session.request_bytes > WAITING_BYTES:
            raise Busy(
                f"{len(sizes)} requests of {user_name(uid)} wait for processors here, which is the limit for a user",
                "submit this one again when some of them have been served",
            )

    def granted(self, key: str, reply: Message | None, error: StoreError | AgentError | None) -> None:
        """Deliver a grant, or the end, of a request that waits here; any CPA's transaction may have caused it."""
        waiter = self._waiters.remove(key)
        self._arm()
        if waiter is not None and reply is not None:
            self._reply(waiter.session, waiter.message, self._operations.answer(reply))
        elif waiter is not None:
            late = error is None or error.code == "expired"
            self._refuse(waiter.session, waiter.message, waiter.refusal if late else error)  # type: ignore[arg-type]
        elif reply is not None and key in self._left:
            undo = self._operations.answer(reply).undo
            assert undo is not None
            self._outage.guard(undo)
        # Otherwise its client has not reconnected yet: it repeats its request, or the grant expires.

    def session_ended(self, session: Session) -> None:
        """Remove the requests of a closed connection from the line."""
        for waiter in self._waiters.of_session(session):
            self._waiters.remove(waiter.key)
            self._abandoned.add(waiter.key)
            self._left.append(waiter.key)
        if self._abandoned:
            self._loop.after(0, self._take_out)

    def refuse(self, session: Session, error: AgentError) -> None:
        """Send ``error`` to the requests of a connection and remove them from the line."""
        for waiter in self._waiters.of_session(session):
            self._refuse(session, waiter.message, error)
        self.session_ended(session)

    # --- time

    def _arm(self) -> None:
        """Set the timer for the first deadline, and for checks of the database connection while requests wait."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        deadline = self._waiters.next_deadline()
        if deadline is not None:
            self._due = self._loop.after(max(0.0, deadline - time.monotonic()), self._give_up)
        if self._looks is None and (len(self._waiters) or self._abandoned):
            self._connection = self._store.connections
            self._looks = self._loop.after(LOOK_S, self._look)

    def _give_up(self) -> None:
        self._due = None
        for waiter in self._waiters.overdue(time.monotonic()):
            self._waiters.remove(waiter.key)
            self._abandoned.add(waiter.key)
            self._left.append(waiter.key)
            self._refuse(waiter.session, waiter.message, waiter.refusal)
        self._take_out()

    def _take_out(self) -> None:
        try:
            while self._abandoned:
                key = next(iter(self._abandoned))
                self._outage.guard(lambda key=key: waiting_requests.drop(self._store, key, self._address))  # type: ignore[misc]
                self._abandoned.discard(key)
        except StoreError as error:
            self._journal.write("fault" if not is_away(error) else "database_away", reason=error.message)
        self._arm()

    def _look(self) -> None:
        self._looks = None
        lost = not self._store.is_open() or self._connection not in (0, self._store.connections)
        if self._abandoned or lost:
            self._away = True
        if self._away:
            self._knock()
        self._connection = self._store.connections
        if self._away:
            self._looks = self._loop.after(KNOCK_S, self._look)
        else:
            self._arm()

    def _knock(self) -> None:
        """The database went away: tell waiting requests once, and serve them when it is back."""
        try:
            self._outage.guard(lambda: self._store.read(waiting_requests.any_request.bind()))
        except StoreError as error:
            for waiter in self._waiters.all():
                if not waiter.told and waiter.message.get("notices") and waiter.session.open:
                    waiter.session.link.send({"notice": error.message})
                waiter.told = True
            return
        self._away = False
        self._take_out()
        for waiter in self._waiters.all():
            waiter.told = False
            if waiter.key in self._waiters:
                self._ask_again(waiter)

    def find_granted(self) -> None:
        """Find grants, to requests that wait here, of another CPA that died before it announced them."""
        there = {key for key, _, _ in self._outage.guard(lambda: waiting_requests.line(self._store))}
        for waiter in self._waiters.all():
            if waiter.key not in there and waiter.key in self._waiters:
                self._ask_again(waiter)

    def _ask_again(self, waiter: Waiter) -> None:
        # It was granted by a transaction whose commit was not answered, or it is still in line.
        if not is_there(waiter.session.link.sock):
            self.session_ended(waiter.session)
            return
        try:
            self._allocate(waiter.session, waiter.message)
        except NotEnough as error:
            waiter.refusal = error
            if not error.never:
                self._enqueue_again(waiter)
                return
            self._refuse(waiter.session, waiter.message, error)
        except (StoreError, AgentError) as error:
            if is_away(error):
                self._away = True
                return
            self._refuse(waiter.session, waiter.message, error)
        self._waiters.remove(waiter.key)
        self._abandoned.add(waiter.key)

    def _enqueue_again(self, waiter: Waiter) -> None:
        try:
            self._enqueue(waiter.session.peer.uid, waiter.message, max(0.001, waiter.deadline - time.monotonic()))
        except StoreError as error:
            if is_away(error):
                self._away = True
                return
            # Its login processor was revoked; requests of other login processors may wait here too.
            self._waiters.remove(waiter.key)
            self._refuse(waiter.session, waiter.message, error)

    def _enqueue(self, uid: int, message: Message, wait_s: float) -> None:
        wait = wait_of(uid, message, message["key"], message.get("size") or 0, wait_s)._replace(
            cpa=self._address, place_in_line=self._operations.place_in_line(uid, message)
        )
        if wait.partition is not None:  # the transaction that serves the request does not check the cookie again
            demand = self._operations.demand(uid, message)
            self._outage.guard(lambda: check_right(self._store, demand))
        self._outage.guard(lambda: waiting_requests.enqueue(self._store, wait))


def wait_of(uid: int, message: Message, key: str, size: int, wait_s: float) -> waiting_requests.Wait:
    """A request as stored in the line: everything that another CPA needs to serve it."""
    return waiting_requests.Wait(
        request_key=key,
        partition=message.get("partition"),
        uid=uid,
        user=user_name(uid),
        login=message["login"],
        pid=message["pid"],
        pid_started=message["pid_started"],
        size=min(size, MOST),
        request={word: value for word, value in message.items() if word not in UNKEPT and value is not None},
        wait_s=wait_s,
        time_s=message.get("time_s"),
    )

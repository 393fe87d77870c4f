"""The allocates that wait at this CPA for their replies: put in line, answered when their processors are there.

Their order stands in the database's ``waiting`` table. Whichever CPA frees processors gives them to the heads of the
lines in the same transaction (db.allocation.line), and tells the CPA that holds the connection (post_backs): so nothing
is asked while nothing happens.
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
from db.store.outage import Outage

#: Requests of one user that may wait at this CPA, and their bytes.
MOST_WAITING, WAITING_BYTES = 2048, 4 << 20
LOOK_S = 1.0  # whether the connection to the database is still there; nothing is sent for it
KNOCK_S = 0.2  # at a database that is away
MOST = (1 << 31) - 1  # what the column holds; nobody gets so many
LEFT = 1000  # requests whose connection ended a moment ago
#: What of a request is not kept in the line.
UNKEPT = frozenset(("op", "id", "key", "uuid", "cookie", "wait_s", "notices", "partition", "post_back", "partial"))


class Waiter:
    """A request that waits here. ``session`` is its connection, ``deadline`` monotonic seconds, ``size`` in bytes."""

    __slots__ = ("deadline", "key", "message", "refusal", "session", "size", "told")

    def __init__(
        self, key: str, session: Any, message: dict[str, Any], deadline: float, refusal: Any, size: int = 0
    ) -> None:
        self.size = size
        self.key, self.session, self.message, self.deadline = key, session, message, deadline
        self.refusal = refusal  # what it is told when its time is over
        self.told = False  # that the database is away


class Waiters:
    """Those who wait at this CPA, by key."""

    def __init__(self) -> None:
        self._by_key: dict[str, Waiter] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def add(self, waiter: Waiter) -> Waiter | None:
        """Let it wait; who waited here under the same key before (its connection is of no more use)."""
        before = self._by_key.get(waiter.key)
        self._by_key[waiter.key] = waiter
        return before

    def remove(self, key: str) -> Waiter | None:
        """It waits no longer."""
        return self._by_key.pop(key, None)

    def of_session(self, session: Any) -> list[Waiter]:
        """Those who wait on one connection."""
        return [waiter for waiter in self._by_key.values() if waiter.session is session]

    def of_user(self, uid: int) -> list[Waiter]:
        """The requests of one user."""
        return [waiter for waiter in self._by_key.values() if waiter.session.peer.uid == uid]

    def all(self) -> list[Waiter]:
        """Everybody."""
        return list(self._by_key.values())

    def overdue(self, now: float) -> list[Waiter]:
        """Those whose time is over."""
        return [waiter for waiter in self._by_key.values() if waiter.deadline <= now]

    def next_deadline(self) -> float | None:
        """When the first of them has waited for long enough."""
        return min((waiter.deadline for waiter in self._by_key.values()), default=None)


Allocate = Callable[[Session, Message], None]
Reply = Callable[[Session, Message, Answer], None]
Refuse = Callable[[Session, Message, StoreError | AgentError], None]


class Queue:
    """``allocate`` serves one request and answers it, or raises; ``reply`` and ``refuse`` answer one.

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
        self._abandoned: set[str] = set()  # rows to be taken out, when the database can
        self._left: deque[str] = deque(maxlen=LEFT)
        self._looks: Timer | None = None
        self._due: Timer | None = None
        self._away = False
        self._connection = 0  # to the database, when it was last looked at

    def __len__(self) -> int:
        return len(self._waiters)

    def allocate_or_wait(self, session: Session, message: Message) -> None:
        """Serve an allocate that may wait: now, if it is its turn and enough is free, else later."""
        try:
            self._allocate(session, message)
        except NotEnough as error:
            if error.never:
                raise
            wait_s = min(float(message["wait_s"]), waiting_requests.LONGEST_WAIT_S)
            self._limit_user(session, message["key"])
            until, size = time.monotonic() + wait_s, session.request_bytes
            waiter = Waiter(message["key"], session, message, until, error, size)
            before = self._waiters.add(waiter)  # it may be granted by the transaction that puts it in line
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
        """What a request that waits here got, by a transaction of this CPA or another."""
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
        # else its client has connected to no CPA again yet: it repeats its request, or the grant runs out

    def session_ended(self, session: Session) -> None:
        """Nobody is there any more to be served: its requests leave the line."""
        for waiter in self._waiters.of_session(session):
            self._waiters.remove(waiter.key)
            self._abandoned.add(waiter.key)
            self._left.append(waiter.key)
        if self._abandoned:
            self._loop.after(0, self._take_out)

    def refuse(self, session: Session, error: AgentError) -> None:
        """What waits on this connection is told so, and leaves the line."""
        for waiter in self._waiters.of_session(session):
            self._refuse(session, waiter.message, error)
        self.session_ended(session)

    # --- time

    def _arm(self) -> None:
        """Look when the first one's time is over, and at the connection to the database while anybody waits."""
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
            self._journal.write("fault" if not _is_away(error) else "database_away", reason=error.message)
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
        """The database went away: those who wait are told once, and served again when it is back."""
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
        """Another CPA did not live to tell what it granted to those who wait here."""
        there = {key for key, _, _ in self._outage.guard(lambda: waiting_requests.line(self._store))}
        for waiter in self._waiters.all():
            if waiter.key not in there and waiter.key in self._waiters:
                self._ask_again(waiter)

    def _ask_again(self, waiter: Waiter) -> None:
        # granted by a transaction of whose end the database did not tell; or still in line
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
            if _is_away(error):
                self._away = True
                return
            self._refuse(waiter.session, waiter.message, error)
        self._waiters.remove(waiter.key)
        self._abandoned.add(waiter.key)

    def _enqueue_again(self, waiter: Waiter) -> None:
        try:
            self._enqueue(waiter.session.peer.uid, waiter.message, max(0.001, waiter.deadline - time.monotonic()))
        except StoreError as error:
            if _is_away(error):
                self._away = True
                return
            # its login processor was revoked: others wait here too
            self._waiters.remove(waiter.key)
            self._refuse(waiter.session, waiter.message, error)

    def _enqueue(self, uid: int, message: Message, wait_s: float) -> None:
        wait = wait_of(uid, message, message["key"], message.get("size") or 0, wait_s)._replace(
            cpa=self._address, place_in_line=self._operations.place_in_line(uid, message)
        )
        if wait.partition is not None:  # whoever serves it asks for no cookie
            demand = self._operations.demand(uid, message)
            self._outage.guard(lambda: check_right(self._store, demand))
        self._outage.guard(lambda: waiting_requests.enqueue(self._store, wait))


def wait_of(uid: int, message: Message, key: str, size: int, wait_s: float) -> waiting_requests.Wait:
    """A request as it stands in the line: all that another CPA needs to serve it."""
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


def _is_away(error: StoreError | AgentError) -> bool:
    """Whether it says that the database cannot be asked just now: it does not answer, or its file was moved away."""
    return error.code == "database"

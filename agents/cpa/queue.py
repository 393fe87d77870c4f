"""The requests that wait at this CPA, around the pure waiters: put in line, served in turn, refused in time."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from agents.cpa.permissions import user_name
from agents.link.journal import Journal
from agents.link.loop import Loop
from agents.link.server import Session
from agents.link.user_limits import Busy
from agents.linux.peer_alive import is_there
from agents.wire.control import Message
from agents.wire.errors import AgentError
from db.allocation import waiting_requests
from db.errors import NotEnough, StoreError
from db.store.outage import Outage
from db.store.store import Store

# Requests that wait, and whose turn it is: strictly first in first out in each pool, over all CPAs. Pure.
#
# The order stands in the database's ``waiting`` table; a CPA serves those whose connection it holds, and only when
# nobody stands before them, whichever CPA that one waits at.


class Row(NamedTuple):
    """A row of ``waiting``: its key, the partition it waits in (None: the interactive pool), and that pool's side."""

    key: str
    partition: int | None
    side: int = 1


class Waiter:
    """A request that waits here. ``session`` is its connection, ``deadline`` monotonic seconds, ``size`` in bytes."""

    __slots__ = ("deadline", "key", "message", "refusal", "session", "size", "told")

    def __init__(
        self, key: str, session: Any, message: dict[str, Any], deadline: float, refusal: Any, size: int = 0
    ) -> None:
        self.size = size
        self.key, self.session, self.message, self.deadline = key, session, message, deadline
        self.refusal = refusal  # what it is told when its time is over: the last reason
        self.told = False  # that the database is away


def turns(rows: Sequence[Row]) -> list[str]:
    """The keys whose turn it is: the first of every pool."""
    first: dict[tuple[int | None, int], str] = {}
    for row in rows:
        first.setdefault((row.partition, row.side), row.key)
    return list(first.values())


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

    def next(self, rows: Sequence[Row]) -> list[Waiter]:
        """Those who wait here and whose turn it is."""
        return [self._by_key[key] for key in turns(rows) if key in self._by_key]

    def missing(self, keys: Iterable[str]) -> list[Waiter]:
        """Those who wait here though the database has forgotten them: they have to queue again."""
        known = set(keys)
        return [waiter for key, waiter in self._by_key.items() if key not in known]


#: Requests of one user that may wait at this CPA, and their bytes.
MOST_WAITING, WAITING_BYTES = 2048, 4 << 20
LOOK_S = 0.2  # for processors that became free at another CPA

#: What of a request is kept in the line, for those who look at it.
SHOWN = (
    "size", "wanted", "exclude", "cpus_per_task", "overcommit", "placement", "nodes", "most", "per_task", "segments",
)  # fmt: skip
MOST = (1 << 31) - 1  # what the column holds; nobody gets so many

Allocate = Callable[[Session, Message], None]
Refuse = Callable[[Session, Message, StoreError | AgentError], None]


class Queue:
    """``allocate`` serves one request and answers it, or raises; ``refuse`` answers with an error."""

    def __init__(
        self, loop: Loop, store: Store, outage: Outage, allocate: Allocate, refuse: Refuse, journal: Journal
    ) -> None:
        self._loop, self._store, self._outage = loop, store, outage
        self._allocate, self._refuse, self._journal = allocate, refuse, journal
        self._waiters = Waiters()
        self._abandoned: set[str] = set()  # rows to be taken out, when the database can
        self._looking = False
        self._look_due = False
        self.make_room: Callable[[int, Message], None] = lambda _uid, _message: None  # somebody may give way to it

    def allocate_or_wait(self, session: Session, message: Message) -> None:
        """Serve an allocate that may wait: now, if it is its turn and enough is free, else later."""
        try:
            self._allocate(session, message)
        except NotEnough as error:
            if error.never:
                raise
            wait_s = min(float(message["wait_s"]), waiting_requests.LONGEST_WAIT_S)
            self._limit_user(session, message["key"])
            self._enqueue(session.peer.uid, message, wait_s)
            until, size = time.monotonic() + wait_s, session.request_bytes
            before = self._waiters.add(Waiter(message["key"], session, message, until, error, size))
            if before is not None and before.session is not session:
                self._refuse(before.session, before.message, AgentError("repeated on another connection", code="gone"))
            self._journal.write("waits", uid=session.peer.uid, size=message.get("size"), reason=error.message)
            self._begin()
            if not error.waiting:
                self._make_room(session, message)
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

    def session_ended(self, session: Session) -> None:
        """Nobody is there any more to be served: its requests leave the line."""
        for waiter in self._waiters.of_session(session):
            self._waiters.remove(waiter.key)
            self._abandoned.add(waiter.key)
        if self._abandoned:
            self.look_soon()

    def refuse(self, session: Session, error: AgentError) -> None:
        """What waits on this connection is told so, and leaves the line."""
        for waiter in self._waiters.of_session(session):
            self._refuse(session, waiter.message, error)
        self.session_ended(session)

    def look_soon(self) -> None:
        """Processors became free, or the line has moved: look right after what is being done."""
        if not self._look_due and (len(self._waiters) or self._abandoned):
            self._look_due = True
            self._loop.after(0, self._look)

    def _begin(self) -> None:
        if not self._looking:
            self._looking = True
            self._loop.after(LOOK_S, self._tick)

    def _tick(self) -> None:
        self._looking = False
        self._look()
        if len(self._waiters) or self._abandoned:
            self._begin()

    def _look(self) -> None:
        self._look_due = False
        try:
            self._take_out_abandoned()
            self._serve()
            self._tell_back()
        except StoreError as error:
            if not _is_away(error):
                self._journal.write("fault", reason=error.message)
            else:
                self._tell_away(error)
            self._begin()  # they go on waiting, until their own time is over
        for waiter in self._waiters.overdue(time.monotonic()):
            self._waiters.remove(waiter.key)
            self._abandoned.add(waiter.key)
            self._refuse(waiter.session, waiter.message, waiter.refusal)

    def _tell_away(self, error: StoreError) -> None:
        for waiter in self._waiters.all():
            if not waiter.told and waiter.message.get("notices") and waiter.session.open:
                waiter.session.link.send({"notice": error.message})
            waiter.told = True

    def _tell_back(self) -> None:
        for waiter in self._waiters.all():
            waiter.told = False

    def _make_room(self, session: Session, message: Message) -> None:
        try:
            self.make_room(session.peer.uid, message)
        except StoreError as error:
            if not _is_away(error):
                raise
            self.look_soon()  # it is in line already, and stays there

    def _enqueue(self, uid: int, message: Message, wait_s: float) -> None:
        wait = waiting_requests.Wait(
            request_key=message["key"],
            partition=message.get("partition"),
            uid=uid,
            user=user_name(uid),
            login=message["login"],
            pid=message["pid"],
            pid_started=message["pid_started"],
            size=min(message.get("size") or 0, MOST),
            request={key: message[key] for key in SHOWN if message.get(key) is not None},
            wait_s=wait_s,
        )
        self._outage.guard(lambda: waiting_requests.enqueue(self._store, wait))

    def _take_out_abandoned(self) -> None:
        while self._abandoned:
            key = next(iter(self._abandoned))
            self._outage.guard(lambda key=key: waiting_requests.drop(self._store, key))  # type: ignore[misc]
            self._abandoned.discard(key)

    def _serve(self) -> None:
        served = True
        while served and len(self._waiters):
            rows = [Row(*row) for row in self._outage.guard(lambda: waiting_requests.line(self._store))]
            for waiter in self._waiters.missing(row.key for row in rows):
                # granted by a transaction of whose end the database did not tell; or taken out by a CPA that saw an
                # older connection of the same client end
                if not self._serve_one(waiter) and waiter.key in self._waiters:
                    self._enqueue_again(waiter)
            served = False
            for waiter in self._waiters.next(rows):
                served = self._serve_one(waiter) or served

    def _enqueue_again(self, waiter: Waiter) -> None:
        left_s = waiter.deadline - time.monotonic()
        if left_s <= LOOK_S:
            return
        try:
            self._enqueue(waiter.session.peer.uid, waiter.message, left_s)
        except StoreError as error:
            if _is_away(error):
                raise
            # its login processor was revoked: others wait here too
            self._waiters.remove(waiter.key)
            self._refuse(waiter.session, waiter.message, error)

    def _serve_one(self, waiter: Waiter) -> bool:
        if not is_there(waiter.session.link.sock):
            self.session_ended(waiter.session)
            return False
        try:
            self._allocate(waiter.session, waiter.message)
        except NotEnough as error:
            waiter.refusal = error
            if not error.never:
                self.make_room(waiter.session.peer.uid, waiter.message)
                return False
            self._refuse(waiter.session, waiter.message, error)
            self._abandoned.add(waiter.key)
        except (StoreError, AgentError) as error:
            if _is_away(error):
                raise
            self._refuse(waiter.session, waiter.message, error)
            self._abandoned.add(waiter.key)
        self._waiters.remove(waiter.key)
        return True


def _is_away(error: StoreError | AgentError) -> bool:
    """Whether it says that the database cannot be asked just now: it does not answer, or its file was moved away."""
    return error.code == "database"

"""Requests (docs/protocol.md, *Requests*): acknowledged at once; their processors are posted back later."""

from collections.abc import Collection
from typing import Any

from agents.cpa.line.delivery import Delivery
from agents.cpa.line.places import CONNECTION, check_place
from agents.cpa.line.queue import MOST_WAITING, wait_of
from agents.cpa.operations import Answer, Operations
from agents.cpa.permissions import user_name
from agents.link.journal import Journal
from agents.link.server import Session
from agents.link.user_limits import Busy
from agents.wire.control import Message
from agents.wire.errors import AgentError
from db.allocation import waiting_requests
from db.allocation.allocate import candidates, check_could_be_met, check_right
from db.allocation.scheduling import line
from db.errors import StoreError
from db.store.outage import Outage

#: Keys of an allocate that have no meaning if processors come in parts.
WHOLE = ("segments", "overcommit", "nodes", "most")
MOST_HELD = 4096  # requests whose post-backs go to one connection


class Requests:
    """Requests whose post-backs this CPA delivers. ``address``: where other CPAs reach it.

    ``allowed``: the hosts of URLs (``places.read_origin``).
    """

    def __init__(
        self,
        operations: Operations,
        outage: Outage,
        journal: Journal,
        address: str,
        delivery: Delivery,
        allowed: Collection[str],
    ) -> None:
        self._operations, self._store, self._outage = operations, operations.store, outage
        self._delivery, self._allowed = delivery, allowed
        self._outside: set[str] = set()  # requests that are posted back to other places than a connection
        self._journal, self._address = journal, address
        self._sessions: dict[str, Session] = {}
        self._sent: dict[str, set[int]] = {}  # the grants that were posted to a connection, of requests held here

    def __len__(self) -> int:
        return len(self._sessions) + len(self._outside)

    def find_outside(self) -> None:
        """Take over what an earlier process of this name was to deliver. Raises DatabaseUnavailable."""
        self._outside = set(line.outside_at(self._store, self._address, CONNECTION))

    def request(self, session: Session, message: Message) -> list[line.Unconfirmed]:
        """Acknowledge a request; returns earlier grants under its uuid that must be posted again. Raises StoreError
        or AgentError.

        New grants are delivered by ``Store.serving``.
        """
        uid, uuid, count = session.peer.uid, message["uuid"], message["count"]
        place = message.get("post_back", CONNECTION)
        here = message["login"] == self._operations.login and not session.peer.names
        check_place(place, here=here, allowed=self._allowed)
        self._check(message)
        whole = {**message, "key": uuid, "size": count}
        demand = self._operations.demand(uid, whole)
        choose = self._operations.choose_for(message)
        least = demand.size // count if message.get("partial") else demand.size
        self._outage.guard(lambda: self._operations.machine.refresh(self._store))
        if demand.partition is not None:
            self._outage.guard(lambda: check_right(self._store, demand))
        check_could_be_met(self._operations.machine, demand._replace(size=least), choose)
        if session.intake is not None:
            self._limit_user(uid)
        free = len(candidates(self._operations.machine, demand))
        wait_s = float(message.get("wait_s") or waiting_requests.LONGEST_WAIT_S)
        wait = wait_of(uid, message, uuid, count, wait_s)
        wait = wait._replace(
            partial=message.get("partial", False),
            place=place,
            cpa=self._address,
            place_in_line=self._operations.place_in_line(uid, message),
        )
        in_front, unconfirmed = self._enter(session, wait)
        self._journal.write("request", uid=uid, uuid=uuid, count=count, partial=wait.partial, before=in_front)
        session.reply(message, {"acknowledged": True, "free": free, "before": in_front})
        return unconfirmed

    def _enter(self, session: Session, wait: waiting_requests.Wait) -> tuple[int, list[line.Unconfirmed]]:
        """Hold a request here and put it into its line; what was held before is held again if that fails.

        Returns how many requests are in front, and its earlier grants that are unconfirmed.
        """
        uuid, held = wait.request_key, self._sessions.get(wait.request_key)
        if wait.place == CONNECTION:
            if held is None and sum(one is session for one in self._sessions.values()) >= MOST_HELD:
                raise AgentError(f"{MOST_HELD} requests wait on this connection", "open another", code="busy")
            self._sessions[uuid] = session
        else:
            self._sessions.pop(uuid, None)
            self._outside.add(uuid)
        try:
            _before, in_front, unconfirmed = self._outage.guard(lambda: line.ask(self._store, wait))
        except BaseException:
            self._outside.discard(uuid)
            if held is None:
                self._sessions.pop(uuid, None)
            else:
                self._sessions[uuid] = held
            raise
        if wait.place == CONNECTION:
            self._outside.discard(uuid)
        self._sent.pop(uuid, None)  # its unconfirmed grants are posted again
        return in_front, unconfirmed

    def _limit_user(self, uid: int) -> None:
        count = self._outage.guard(lambda: waiting_requests.count_of(self._store, uid))
        if count >= MOST_WAITING:
            raise Busy(
                f"{count} requests of {user_name(uid)} wait for processors, which is the limit for a user",
                "submit this one again when some of them have been served",
            )

    def _check(self, message: Message) -> None:
        _uuid_of(message)
        count = message["count"]
        if not 1 <= count < 1 << 31:
            raise AgentError("request: count is at least 1", code="invalid")
        time_s = message.get("time_s")
        if time_s is not None and not 0 < time_s < 1e9:
            raise AgentError("request: time_s is a number of seconds", code="invalid")
        wrong = [word for word in WHOLE if message.get(word) is not None]
        if message.get("partial") and wrong:
            raise AgentError(f"request: {wrong[0]} has no meaning where processors come in parts", code="invalid")

    def is_news(self, uuid: str, sequence: int) -> bool:
        """True if a request is held here and this grant was not posted yet."""
        if uuid in self._outside:
            return not self._delivery.knows(uuid, sequence)
        return uuid in self._sessions and sequence not in self._sent.get(uuid, ())

    def post(self, uuid: str, uid: int, message: Message) -> bool:
        """Send a post-back where the request wants it, once; returns False if its connection does not exist."""
        place = message.get("place", CONNECTION)
        if place != CONNECTION:
            self._delivery.send(place, uid, message, message.get("failures", 0))
            if not message["missing"] or "error" in message:
                self._outside.discard(uuid)
            return True
        session = self._sessions.get(uuid)
        if session is None or not session.open or session.peer.uid != uid:
            return False
        sent = self._sent.setdefault(uuid, set())
        if message["sequence"] in sent and "error" not in message:
            # This CPA found the grant in the database before the CPA that made it announced it. The cookie that was
            # posted then has replaced the one in this announcement.
            return True
        session.link.send({key: value for key, value in message.items() if key != "place"})
        sent.add(message["sequence"])
        if not message["missing"] or "error" in message:
            # the last grant; if it is lost, the requester connects again
            del self._sessions[uuid], self._sent[uuid]
        return True

    def posted(self, session: Session, message: Message) -> Answer:
        """Handle the confirmation of a grant."""
        uuid, sequence = _uuid_of(message), message["sequence"]
        try:
            known = line.confirm(self._store, uuid, sequence, session.peer.uid)
        except StoreError:
            self._sent.get(uuid, set()).discard(sequence)  # it is posted again, and confirmed again
            raise
        return Answer({"news": known})

    def collect(self, session: Session, message: Message) -> Answer:
        """Hand out a grant that was announced at a URL."""
        granted = line.collect(
            self._store, self._operations.machine, _uuid_of(message), message["sequence"], session.peer.uid
        )
        return Answer({"placed": [self._operations.reply_of(granted)]})

    def cancel(self, session: Session, message: Message) -> Answer:
        """Cancel a request."""
        missing, ended = line.cancel(self._store, _uuid_of(message), session.peer.uid)
        self._sessions.pop(message["uuid"], None)
        self._sent.pop(message["uuid"], None)
        self._outside.discard(message["uuid"])
        return Answer({"missing": missing, "ended": ended}, released=True)

    def session_ended(self, session: Session) -> None:
        """The requests of a closed connection keep waiting. A requester that returns gets what was granted
        meanwhile."""
        gone = {uuid for uuid, held in self._sessions.items() if held is session}
        for uuid in gone:
            del self._sessions[uuid]
            self._sent.pop(uuid, None)


def _uuid_of(message: Message) -> str:
    uuid: str = message["uuid"]
    if len(uuid) != 32 or not set(uuid) <= set("0123456789abcdef"):
        raise AgentError(f"{message['op']}: a uuid is 32 hexadecimal digits", code="invalid")
    return uuid


def shown(grant: line.Grant, placed: "list[dict[str, Any]]") -> Message:
    """A grant in the form that its requester gets."""
    message: Message = {
        "post_back": grant.waiter.request_key,
        "sequence": grant.sequence,
        "missing": grant.missing,
        "placed": placed,
    }
    if grant.waiter.place:
        message["place"] = grant.waiter.place
    if grant.error is not None:
        message["error"] = grant.error.as_message()
    return message

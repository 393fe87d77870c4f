"""Requests (docs/protocol.md, *Requests*): acknowledged at once; their processors are posted back later."""

from typing import Any

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
from db.store.outage import Outage

CONNECTION = "connection"
#: Keys of an allocate that have no meaning if processors come in parts.
WHOLE = ("segments", "overcommit", "nodes", "most")
MOST_HELD = 4096  # requests whose post-backs go to one connection


class Requests:
    """Requests whose post-backs go to connections of this CPA. ``address``: where other CPAs reach it."""

    def __init__(self, operations: Operations, outage: Outage, journal: Journal, address: str) -> None:
        self._operations, self._store, self._outage = operations, operations.store, outage
        self._journal, self._address = journal, address
        self._sessions: dict[str, Session] = {}
        self._sent: set[tuple[str, int]] = set()  # posted, and not confirmed yet

    def __len__(self) -> int:
        return len(self._sessions)

    def request(self, session: Session, message: Message) -> list[line.Unconfirmed]:
        """Acknowledge a request; returns earlier grants under its uuid that must be posted again. Raises StoreError
        or AgentError.

        New grants are delivered by ``Store.serving``.
        """
        uid, uuid, count = session.peer.uid, message["uuid"], message["count"]
        place = message.get("post_back", CONNECTION)
        self._check(message, place)
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
        held = self._sessions.get(uuid)
        if place == CONNECTION:
            if held is None and sum(one is session for one in self._sessions.values()) >= MOST_HELD:
                raise AgentError(f"{MOST_HELD} requests wait on this connection", "open another", code="busy")
            self._sessions[uuid] = session
        try:
            _before, in_front, unconfirmed = self._outage.guard(lambda: line.ask(self._store, wait))
        except BaseException:
            if held is None:
                self._sessions.pop(uuid, None)
            else:
                self._sessions[uuid] = held
            raise
        self._journal.write("request", uid=uid, uuid=uuid, count=count, partial=wait.partial, before=in_front)
        session.reply(message, {"acknowledged": True, "free": free, "before": in_front})
        return unconfirmed

    def _limit_user(self, uid: int) -> None:
        count = self._outage.guard(lambda: waiting_requests.count_of(self._store, uid))
        if count >= MOST_WAITING:
            raise Busy(
                f"{count} requests of {user_name(uid)} wait for processors, which is the limit for a user",
                "submit this one again when some of them have been served",
            )

    def _check(self, message: Message, place: str) -> None:
        _uuid_of(message)
        count = message["count"]
        if not 1 <= count < 1 << 31:
            raise AgentError("request: count is at least 1", code="invalid")
        if place != CONNECTION:
            raise AgentError(f"request: nothing can be posted back to {place[:80]!r}", "connection", code="invalid")
        time_s = message.get("time_s")
        if time_s is not None and not 0 < time_s < 1e9:
            raise AgentError("request: time_s is a number of seconds", code="invalid")
        wrong = [word for word in WHOLE if message.get(word) is not None]
        if message.get("partial") and wrong:
            raise AgentError(f"request: {wrong[0]} has no meaning where processors come in parts", code="invalid")

    def is_news(self, uuid: str, sequence: int) -> bool:
        """True if a request is held here and this grant was not posted yet."""
        return uuid in self._sessions and (uuid, sequence) not in self._sent

    def post(self, uuid: str, uid: int, message: Message) -> bool:
        """Send a post-back on the connection that holds the request; returns False if there is none."""
        session = self._sessions.get(uuid)
        if session is None or not session.open or session.peer.uid != uid:
            return False
        session.link.send(message)
        self._sent.add((uuid, message["sequence"]))
        if not message["missing"] or "error" in message:
            del self._sessions[uuid]  # the last grant; if it is lost, the requester connects again
            self._sent = {sent for sent in self._sent if sent[0] != uuid}
        return True

    def posted(self, session: Session, message: Message) -> Answer:
        """Handle the confirmation of a grant."""
        uid, uuid, sequence = session.peer.uid, _uuid_of(message), message["sequence"]
        self._sent.discard((uuid, sequence))
        known = line.confirm(self._store, uuid, sequence, uid)
        return Answer({"news": known})

    def cancel(self, session: Session, message: Message) -> Answer:
        """Cancel a request."""
        missing, ended = line.cancel(self._store, _uuid_of(message), session.peer.uid)
        self._sessions.pop(message["uuid"], None)
        return Answer({"missing": missing, "ended": ended}, released=True)

    def session_ended(self, session: Session) -> None:
        """The requests of a closed connection keep waiting. A requester that returns gets what was granted
        meanwhile."""
        gone = {uuid for uuid, held in self._sessions.items() if held is session}
        self._sent = {sent for sent in self._sent if sent[0] not in gone}
        for uuid in [uuid for uuid, held in self._sessions.items() if held is session]:
            del self._sessions[uuid]


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
    if grant.error is not None:
        message["error"] = grant.error.as_message()
    return message

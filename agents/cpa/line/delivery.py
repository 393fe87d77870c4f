"""Brings grants to places outside of this CPA's connections: three attempts, then the processors return."""

from __future__ import annotations

import os
import socket
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from agents.cpa.config import Config
from agents.cpa.line.places import read_place
from agents.link.journal import Journal
from agents.link.link import Caller
from agents.link.loop import Loop, Timer
from agents.wire.control import Message
from agents.wire.errors import AgentError
from db.allocation.free import Machine
from db.allocation.scheduling import line
from db.errors import StoreError
from db.store.outage import Outage
from db.store.store import Store
from redmesh.start_command import start_command

if TYPE_CHECKING:
    import subprocess

#: Pauses before the second and the third attempt; after that the processors return.
AGAIN_S = (1.0, 5.0)
LIMIT_S = 30.0  # an attempt that the deliverer has not answered by then has failed
AT_ONCE, OF_USER = 8, 2  # attempts at a time, so that the receivers of one user do not hold up the others
MOST_KNOWN = 10_000  # announced grants that are remembered; others are announced again
IDLE_S = 60.0  # the deliverer ends when there was nothing to deliver for so long
DATABASE_S = 2.0  # until a record is tried again while the database is away


class _Attempt:
    __slots__ = ("failures", "message", "place", "timer", "uid")

    def __init__(self, place: str, uid: int, message: Message, failures: int) -> None:
        self.place, self.uid, self.message, self.failures = place, uid, message, failures
        self.timer: Timer | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.message["post_back"], self.message["sequence"]


class Delivery:
    """Post-backs to sockets, nodes and URLs."""

    def __init__(
        self, loop: Loop, config: Config, store: Store, machine: Machine, outage: Outage, journal: Journal
    ) -> None:
        self._loop, self._config, self._store, self._machine = loop, config, store, machine
        self._outage, self._journal = outage, journal
        self._queue: deque[_Attempt] = deque()
        self._running: Counter[int] = Counter()  # attempts by uid
        self._under_way: set[tuple[str, int]] = set()  # uuid and sequence
        self._announced: set[tuple[str, int]] = set()  # at a URL; they wait for ``collect``
        self._caller: Caller | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._idle: Timer | None = None

    def send(self, place: str, uid: int, message: Message, failures: int = 0) -> None:
        """Deliver a post-back. One that is under way is not sent twice."""
        attempt = _Attempt(place, uid, message, failures)
        if attempt.key not in self._under_way:
            self._under_way.add(attempt.key)
            self._queue.append(attempt)
            self._start_some()

    def knows(self, uuid: str, sequence: int) -> bool:
        """True if a grant is being delivered, or was announced."""
        return (uuid, sequence) in self._under_way or (uuid, sequence) in self._announced

    # --- attempts

    def _start_some(self) -> None:
        for attempt in list(self._queue):
            if self._running.total() >= AT_ONCE:
                return
            if self._running[attempt.uid] < OF_USER:
                self._queue.remove(attempt)
                self._start(attempt)

    def _start(self, attempt: _Attempt) -> None:
        place, message = read_place(attempt.place), attempt.message
        order: Message = {"op": "deliver", "kind": place.kind, "path": place.path, "uid": attempt.uid}
        order["post_back"] = {key: value for key, value in message.items() if key != "place"}
        if place.kind == "node":
            order["address"] = self._machine.address_of(place.node)
            if not order["address"].startswith(("tls://", "/")):
                self._loop.after(0, lambda: self._failed(attempt, f"{place.node} has no PCT that can be reached"))
                return
        if place.kind == "url":
            order |= {"origin": place.origin, "ca": self._config.post_back_ca}
            if place.origin not in self._config.post_back_urls:  # the list was changed while the request waited
                self._loop.after(0, lambda: self._failed(attempt, f"{place.origin} is not in post_back_urls"))
                return
        self._running[attempt.uid] += 1
        done = False

        def ended(_reply: Message | None, error: AgentError | None) -> None:
            nonlocal done
            if not done:
                done = True
                if attempt.timer is not None:
                    attempt.timer.cancel()
                self._running[attempt.uid] -= 1
                if error is None:
                    self._delivered(attempt, collected=place.kind != "url")
                else:
                    self._failed(attempt, error.message)
                self._start_some()

        attempt.timer = self._loop.after(LIMIT_S, lambda: ended(None, AgentError("no answer in time")))
        try:
            self._deliverer().call(order, ended)
        except OSError as error:
            reason = f"the deliverer cannot be started: {error.strerror or error}"
            self._loop.after(0, lambda: ended(None, AgentError(reason)))

    def _delivered(self, attempt: _Attempt, *, collected: bool) -> None:
        uuid, sequence = attempt.key
        self._journal.write("posted_back", uuid=uuid, sequence=sequence, place=attempt.place, uid=attempt.uid)
        if collected and attempt.message["placed"]:
            self._record(attempt, lambda: line.confirm(self._store, uuid, sequence, attempt.uid))
        else:
            if len(self._announced) >= MOST_KNOWN:
                self._announced.clear()
            self._announced.add(attempt.key)
            self._under_way.discard(attempt.key)

    def _failed(self, attempt: _Attempt, reason: str) -> None:
        uuid, sequence = attempt.key
        attempt.failures += 1
        self._journal.write(
            "not_posted", key=uuid, sequence=sequence, place=attempt.place, reason=reason, failures=attempt.failures
        )
        if attempt.failures <= len(AGAIN_S):
            if attempt.message["placed"]:
                self._record(attempt, lambda: line.count_failure(self._store, uuid, sequence), done=False)
            self._loop.after(AGAIN_S[attempt.failures - 1], lambda: self._again(attempt))
        elif attempt.message["placed"]:
            told = f"{attempt.failures} post-backs to {attempt.place} failed: {reason}"
            self._record(attempt, lambda: line.give_up(self._store, uuid, sequence, attempt.uid, told))
        else:
            self._under_way.discard(attempt.key)

    def _again(self, attempt: _Attempt) -> None:
        self._queue.append(attempt)
        self._start_some()

    def _record(self, attempt: _Attempt, change: Callable[[], object], *, done: bool = True) -> None:
        try:
            self._outage.guard(change)
        except StoreError as error:
            if done:  # a count of failures is not worth a second try
                self._journal.write("fault", reason=error.message)
                self._loop.after(DATABASE_S, lambda: self._record(attempt, change))
            return
        if done:
            self._under_way.discard(attempt.key)

    # --- the process

    def _deliverer(self) -> Caller:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self._loop.after(IDLE_S, self._stop_if_idle)
        if self._caller is None:
            import subprocess  # most CPAs deliver nothing

            ours, its = socket.socketpair()
            with its:
                try:
                    self._process = subprocess.Popen(
                        start_command("deliver"), stdin=its.fileno(), stdout=subprocess.DEVNULL,
                        env={**os.environ, "CPA_MESH": self._config.mesh, "CPA_STATE": self._config.state},
                        start_new_session=True,
                    )  # fmt: skip
                except OSError:
                    ours.close()
                    raise
            self._caller = Caller(self._loop, ours, "cpa", self._ended)
        return self._caller

    def _ended(self, _caller: Caller, _reason: str) -> None:
        self._caller = None
        self._reap()

    def _stop_if_idle(self) -> None:
        if self._under_way:
            self._idle = self._loop.after(IDLE_S, self._stop_if_idle)
        elif self._caller is not None:
            self._idle = None
            self._caller.close()
            self._caller = None
            self._loop.after(1.0, self._reap)

    def _reap(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process = None

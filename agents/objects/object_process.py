"""The process that serves one connection about state objects: it receives, sends or answers about an object.

The PCT forks this process, and so does not wait for files or for their synchronisation. The PCT's memory has nothing
about objects. If this process is killed, the next one repairs the files (agents/objects/holder.py).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import sqlite3
import time

from agents.linux import prctl
from agents.objects import commands, http, sender
from agents.objects.answers import ask
from agents.objects.arrival import Arrival
from agents.objects.holder import PART, Holder, Offer
from agents.objects.replica import Replica, commits_of, copy
from agents.objects.states import Action, Event, State
from agents.wire.control import Message, control, decode
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import CONTROL, FILE, Decoder, frame
from agents.wire.messages import OBJECT, check, check_hello, hello
from redmesh.state import StateError, owned

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, NoReturn, Optional

    from agents.link.journal import Journal
    from agents.wire.frames import Frame
    from agents.wire.object_pass import ObjectPeer

#: Seconds without data after which a connection is closed; seconds for which ``move`` waits for the receiver's reply.
STILL_S, MOVE_S = 90.0, 5.0
_GULP = 256 << 10
#: Seconds without a message after which an owner no longer counts as connected to its standby (it sends a message
#: every FED_S / 5). Bytes of commits in one message.
FED_S, _MOST_COMMITS = 10.0, 64 << 20
#: Seconds after which the room for a user's objects is checked again while commits arrive.
_LOOK_S = 1.0
#: Seconds after which the process of a request is killed, because a user can make the files hang that it needs.
_REQUEST_S = 900
#: A file beside a copy that receives commits: a process wants to continue the job with this copy.
_CLAIM = ".claim"
_LONGEST_ERROR = 300
#: Seconds for which an object process asks about objects in doubt; then another process continues.
_SETTLE_S = 86400.0


def directory_on(state: str, node: str) -> str:
    """The directory of the objects of ``node``; nodes of one machine share a STATE."""
    return os.path.join(state, "jobs", node)


class ObjectProcess:
    """One connection: ``sock`` is a blocking stream; its peer may send every request in OBJECT."""

    def __init__(self, holder: Holder, sock: Any, log: Journal) -> None:
        self._holder, self._sock, self._log = holder, sock, log
        self._decoder = Decoder()
        self._frames: List[Frame] = []
        self._arrival: Optional[Arrival] = None
        self._replica: Optional[Replica] = None  # the copy to which an owner sends its commits
        self._commits = bytearray()
        self._fed = -1  # the lock that shows that an owner is connected
        self._looked = 0.0  # when the room for commits was last checked
        self._body = b""  # the bytes that follow the reply
        self._offer_given: Optional[Offer] = None  # the object that the peer fetches

    def serve(self) -> None:
        """Answer requests until the peer closes the connection. Raises OSError or WireError."""
        greeted = False
        try:
            while (one := self._next()) is not None:
                kind, payload = one
                if kind == FILE and self._arrival is not None:
                    self._arrival.write(payload)  # an error is in the reply to the request that ends the bytes
                elif kind == FILE and self._replica is not None and len(self._commits) < _MOST_COMMITS:
                    self._commits += payload
                elif kind != CONTROL:
                    raise WireError(f"a frame of kind {kind} where a request was expected")
                elif greeted:
                    self._handle(decode(payload))
                else:
                    check_hello(decode(payload))
                    greeted = True
                    self._sock.sendall(control(hello("pct", self._holder.node)))
        finally:
            if self._arrival is not None:
                self._arrival.close()
            if self._offer_given is not None:
                self._offer_given.job.close()
            self._end_feeding()

    def _next(self) -> "Optional[Frame]":
        while not self._frames:
            data = self._sock.recv(_GULP)
            if not data:
                return None
            self._frames = self._decoder.feed(data)
        return self._frames.pop(0)

    def _handle(self, message: Message) -> None:
        signal.alarm(_REQUEST_S)
        try:
            self._reply(message)
        finally:
            signal.alarm(0)

    def _reply(self, message: Message) -> None:
        try:
            reply = self._reply_to(check(OBJECT, message), message)
        except WireError:
            raise
        except AgentError as error:
            reply = {"error": error.as_message()}
        except StateError as error:
            reply = {"error": AgentError(error.message, error.hint, code="state").as_message()}
        except (sqlite3.Error, MemoryError, RecursionError, TypeError, ValueError, OverflowError) as error:
            # The files belong to the user, who may have changed them.
            told = f"job {message.get('uuid')} cannot be read on {self._holder.node}: {error!r}"[:_LONGEST_ERROR]
            reply = {"error": AgentError(told, "its files there are damaged", code="state").as_message()}
        except OSError as error:
            told = f"{self._holder.node}: {error.strerror or error}"
            reply = {"error": AgentError(told, "check the disk of the node", code="disk").as_message()}
        if "id" in message:
            self._sock.sendall(control(dict(reply, re=message["id"])))
            for at in range(0, len(self._body), _GULP):
                self._sock.sendall(frame(FILE, self._body[at : at + _GULP]))
        self._body = b""

    def _reply_to(self, op: str, message: Message) -> Message:
        return self._DO[op](self, message)

    def _offer(self, message: Message) -> Message:
        if self._arrival is not None:
            self._arrival.close()
            self._arrival = None
        entry = self._holder.entry(str(message["uuid"]))
        if entry.place.state is State.LIVE:
            raise AgentError(f"job {entry.uuid} is on {self._holder.node} already", "mesh job show", code="state")
        self._holder.room(int(message["size"]))
        self._arrival = Arrival(self._holder, message)
        return {}

    def _sent(self, message: Message) -> Message:
        arrival, self._arrival = self._arrival, None
        if arrival is None:
            raise AgentError("no object was offered", code="invalid")
        try:
            arrival.finish(message, self._holder.node)
            action = self._holder.store(arrival.uuid, arrival.counter, arrival.path, arrival.sender)
        finally:
            arrival.close()
        if action not in (Action.KEEP, Action.SAY_ARRIVED):
            raise AgentError(f"{self._holder.node} knows a later state of job {arrival.uuid}", code="state")
        return {"confirmed": arrival.counter}

    def _take(self, message: Message) -> Message:
        uuid, counter = str(message["uuid"]), int(message["counter"])
        action = self._holder.take(uuid, counter)
        self._log.write("object", uuid=uuid, counter=counter, what=action.value)
        if action is Action.NONE:
            raise AgentError(f"{self._holder.node} holds job {uuid} and cannot take it now", code="state")
        return {"taken": action in (Action.ADOPT, Action.SAY_TAKEN)}

    def _settled(self, message: Message) -> Message:
        self._holder.settled(str(message["uuid"]), int(message["counter"]))
        return {}

    def _move(self, message: Message) -> Message:
        uuid, node = str(message["uuid"]), str(message["node"])
        if node == self._holder.node:
            raise AgentError(f"job {uuid} is on {node} already", code="invalid")
        shown: Dict[str, str] = {key: str(message[key]) for key in ("credential", "mac") if key in message}
        moved = sender.move(self._holder, uuid, node, str(message["address"]), patience_s=MOVE_S, shown=shown)
        self._log.write("object moved", uuid=uuid, to=node, counter=moved.counter, live=moved.live)
        self._holder.forget_old()
        return {"counter": moved.counter, "live": moved.live, "paused_s": round(moved.paused_s, 4)}

    # requests of a login processor that fetches an object (no process can connect to a login processor)

    def _give(self, message: Message) -> Message:
        uuid = str(message["uuid"])
        entry = self._holder.entry(uuid)
        if entry.place.state is State.DOUBT and not entry.address:
            return {"doubt": entry.place.counter}
        if self._offer_given is not None:
            raise AgentError("another object is being received on this connection", code="invalid")
        self._offer_given = offer = self._holder.offer(uuid, str(message["receiver"]), "")
        with open(offer.job.path, "rb") as file:
            digest = hashlib.sha256()
            self._sock.sendall(control({"op": "offer", "uuid": uuid, "counter": offer.counter, "size": offer.size}))
            while data := file.read(_GULP):
                digest.update(data)
                self._sock.sendall(frame(FILE, data))
        return {"counter": offer.counter, "digest": digest.hexdigest()}

    def _confirm(self, message: Message) -> Message:
        offer, self._offer_given = self._offer_given, None
        if offer is None or message["counter"] != offer.counter:
            raise AgentError("nothing was given under this number", code="invalid")
        self._holder.stop(offer)
        return {"doubt": offer.counter}

    def _answer(self, message: Message) -> Message:
        uuid, counter = str(message["uuid"]), int(message["counter"])
        state = self._holder.answered(uuid, counter, Event.TAKEN if message["taken"] else Event.REFUSED)
        self._log.write("object given", uuid=uuid, counter=counter, state=state.value)
        return {}

    def _ask(self, message: Message) -> Message:
        query = {str(key): str(value) for key, value in message.get("query", {}).items()}
        told = ask(
            self._holder, str(message["uuid"]), str(message["what"]), query, str(message.get("known", "")),
            float(message.get("wait_s", 0.0)),
        )  # fmt: skip
        self._body = told.body
        return {"status": told.status, "headers": told.headers, "size": len(told.body)}

    def _held(self, _message: Message) -> Message:
        holder = self._holder
        return {"jobs": holder.uuids(), "doubtful": holder.doubtful(), "fed": holder.fed()}

    def _purge(self, message: Message) -> Message:
        self._holder.purge(str(message["uuid"]))
        return {}

    # requests of an owner that sends its commits to the standby copy here

    def _copy(self, message: Message) -> Message:
        self._end_feeding()
        uuid = str(message["uuid"])
        holder = self._holder
        if holder.entry(uuid).place.state not in (State.ABSENT, State.GONE):
            raise AgentError(f"job {uuid} is on {holder.node}: it needs no copy there", code="state")
        holder.room(int(message["size"]), holder.standby(uuid))
        self._arrival = Arrival(holder, message)
        self._fed = _feeding(holder.standby(uuid))
        _unlink(holder.standby(uuid) + _CLAIM)  # since then the owner has asked the tracker
        commands.forget(holder.standby(uuid))
        return {}

    def _copied(self, message: Message) -> Message:
        arrival, self._arrival = self._arrival, None
        if arrival is None:
            raise AgentError("no copy was sent", code="invalid")
        try:
            arrival.verify(message)
            self._holder.stand_by(arrival.uuid, arrival.counter, arrival.path, arrival.sender)
            self._replica = Replica(self._holder.standby(arrival.uuid))
        finally:
            arrival.close()
        self._holder.forget_old()
        self._sock.settimeout(FED_S)
        return {"commits": self._replica.commits}

    def _apply(self, message: Message) -> Message:
        replica, data = self._replica, bytes(self._commits)
        self._commits.clear()
        if replica is None or replica.path != self._holder.standby(str(message["uuid"])):
            raise AgentError(f"no copy of job {message['uuid']} receives commits here", code="invalid")
        if os.path.exists(replica.path + _CLAIM):
            raise AgentError(
                f"another process has claimed the copy of job {message['uuid']} here", "ask a CPA", code="state"
            )
        if len(data) != message["size"]:
            raise AgentError(f"{len(data)} bytes of commits came, not {message['size']}", code="invalid")
        if data and time.monotonic() - self._looked > _LOOK_S:
            self._looked = time.monotonic()
            self._holder.room(0)
        replica.apply(data)
        asked = commands.take(replica.path)
        return {"commits": replica.commits, **({"commands": asked} if asked else {})}

    def _command(self, message: Message) -> Message:
        """A command for the owner that feeds the copy here; returns the owner's answer."""
        path, command = self._holder.standby(str(message["uuid"])), str(message["command"])
        if command not in (*commands.COMMANDS, commands.ELSEWHERE):
            raise AgentError(f"a job elsewhere cannot be asked to {command[:40]!r}", code="invalid")
        if not owned(path):
            raise AgentError(
                f"no owner sends commits to a copy of job {message['uuid']} here", "mesh job show", code="state"
            )
        number = commands.leave(path, command, message.get("members", {}))
        if command == commands.ELSEWHERE:
            return {"answer": {}}  # the feed leaves, and with it all that is beside the copy
        told = commands.await_answer(path, number)
        if told is None:
            raise AgentError(
                f"the owner of job {message['uuid']} has not answered for {commands.ANSWER_S:g} s", "mesh job show",
                code="state",
            )  # fmt: skip
        return {"answer": told}

    def _answered(self, message: Message) -> Message:
        commands.answer(self._holder.standby(str(message["uuid"])), str(message["number"]), message["answer"])
        return {}

    def _content(self, message: Message) -> Message:
        """Send the object, or the copy, as of one moment; nothing of it changes."""
        uuid = str(message["uuid"])
        path = self._holder.answering(uuid)
        if not path:
            raise AgentError(f"no job {uuid} is on {self._holder.node}", "mesh job show asks where it is", code="state")
        self._holder.room(os.stat(path).st_size)
        aside = f"{self._holder.path(uuid)}{PART}{os.getpid()}"
        try:
            copy(path, aside)
            digest = hashlib.sha256()
            with open(aside, "rb") as file:
                while data := file.read(_GULP):
                    digest.update(data)
                    self._sock.sendall(frame(FILE, data))
        finally:
            _unlink(aside)
        return {"digest": digest.hexdigest()}

    def _standing(self, message: Message) -> Message:
        path = self._holder.standby(str(message["uuid"]))
        if not os.path.exists(path):
            return {"commits": -1, "fed": False}
        return {"commits": commits_of(path), "fed": owned(path)}

    def _promote(self, message: Message) -> Message:
        uuid, counter = str(message["uuid"]), int(message["counter"])
        if owned(self._holder.standby(uuid)):
            with open(self._holder.standby(uuid) + _CLAIM, "w"):
                pass  # the owner is told within FED_S / 5, and asks the tracker
            raise AgentError(
                f"the owner of job {uuid} is still connected to its standby", "try again in 10 s", code="state"
            )
        action = self._holder.promote(uuid, counter)
        self._log.write("object standby", uuid=uuid, counter=counter, what=action.value)
        live = self._holder.entry(uuid).place
        return {"live": live.state is State.LIVE and live.counter >= counter}

    def _drop(self, message: Message) -> Message:
        """The owner reports that the job has ended, or has another standby."""
        self._end_feeding()
        for ending in ("", "-wal", "-shm", ".lock", _CLAIM):
            _unlink(self._holder.standby(str(message["uuid"])) + ending)
        commands.forget(self._holder.standby(str(message["uuid"])))
        return {}

    def _end_feeding(self) -> None:
        if self._replica is not None:
            self._replica.close()
        if self._fed >= 0:
            os.close(self._fed)
        self._replica, self._fed = None, -1

    _DO = {
        "offer": _offer, "sent": _sent, "take": _take, "settled": _settled, "move": _move, "ask": _ask, "held": _held,
        "give": _give, "confirm": _confirm, "answer": _answer, "copy": _copy, "copied": _copied, "commits": _apply,
        "standing": _standing, "promote": _promote, "drop": _drop, "purge": _purge,
        "command": _command, "answered": _answered, "content": _content,
    }  # fmt: skip


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _feeding(path: str) -> int:
    """The lock on the copy at ``path``, held until it is closed. Raises AgentError if another owner holds it."""
    fd = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise AgentError("another owner is connected to this copy", "try again in 10 s", code="state") from None
    return fd


def settle(holder: Holder, log: Journal) -> None:
    """Ask about every object in doubt until no object is in doubt."""
    until, pause_s = time.monotonic() + _SETTLE_S, sender.AGAIN_S
    while doubtful := holder.doubtful():
        for uuid in doubtful:
            try:
                state = sender.ask_again(holder, uuid)
            except (StateError, OSError) as error:
                log.write("object in doubt", uuid=uuid, error=str(error))
                continue
            if state is not State.DOUBT:
                log.write("object settled", uuid=uuid, state=state.value)
        if time.monotonic() > until:
            return
        time.sleep(pause_s)  # this process does nothing else
        pause_s = min(pause_s * 2, sender.LONGEST_AGAIN_S)


class NodeObjects:
    """The objects of a node whose processes are all of one user."""

    def __init__(self, directory: str, node: str, limit_mb: int = 0) -> None:
        self._holder = Holder(directory, node, limit_mb)

    def serve(self, sock: Any, log: Journal, peer: Optional[ObjectPeer]) -> None:
        """Serve one connection; without ``peer`` it is an HTTP connection. Raises OSError, AgentError or StateError."""
        if peer is not None:
            ObjectProcess(self._holder, sock, log).serve()
        else:
            http.serve(lambda _uuid: self._holder, sock)

    def in_doubt(self) -> bool:
        """True if a receiver has to be asked about an object that was sent."""
        return bool(self._holder.doubtful())

    def settle(self, log: Journal) -> None:
        """Ask until no object is in doubt."""
        settle(self._holder, log)


def serve_connection(objects: Any, sock: Any, log: Journal, peer: Optional[ObjectPeer]) -> NoReturn:
    """In a forked process of the PCT: serve one connection, and exit. Without ``peer`` it is an HTTP connection."""
    prctl.set_name(b"redmesh-object")
    sock.settimeout(STILL_S)
    try:
        objects.serve(sock, log, peer)
    except (OSError, AgentError, StateError) as error:
        log.write("object connection ended", error=getattr(error, "message", None) or str(error))
    sock.close()
    os._exit(0)


def be_settler(objects: Any, log: Journal) -> NoReturn:
    """In a forked process of the PCT: ask about objects in doubt, and exit."""
    prctl.set_name(b"redmesh-object")
    objects.settle(log)
    os._exit(0)

"""The state objects of one node as files. agents/objects/states.py decides, this module records the decisions.

    UUID.job            live: its owner may open it
    UUID.job.arrived    complete; waits until the sender says *take*
    UUID.job.sent       sent; waits for the receiver's reply: no process can own it
    UUID.job.standby    the copy of an object that is live elsewhere; its owner sends it commits: no process can own it
    UUID.job.fenced     was live here when the tracker gave the object to its standby: kept for the user to look at
    UUID.place          the node's state and counter, and where the object went: JSON, replaced as a whole

If a process is killed between two steps, the next process that opens the entry repairs its files
(:meth:`Holder.entry`).
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time

from agents.objects.states import Action, Event, Place, State
from agents.wire.errors import AgentError
from agents.wire.seal import sha256
from redmesh.state import (
    CANCELLED,
    DONE,
    FAILED,
    SUFFIX,
    StateError,
    StateObject,
    is_uuid,
    job_path,
    note_takeover,
    owned,
    sync_directory,
)
from redmesh.state_reader import StateReader

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, List

#: Seconds for which a node says where an object went and remembers the counters of objects that are not here (a report
#: to the tracker may have been lost: docs/decisions/0031); entries kept at most.
REMEMBER_S, MOST_ENTRIES = 86400.0, 10_000
#: Seconds for readers of the object to finish before it is sent.
SEAL_S = 5.0
STANDBY, FENCED = ".standby", ".fenced"
ARRIVED, SENT, _PLACE, PART = ".arrived", ".sent", ".place", ".part-"
_AGAIN_S = 0.02
_LONGEST_PLACE = 64 << 10
#: Files of one user's objects on a node at most; bytes of its disk that no object takes; objects that a refusal names.
MOST_FILES, SPARE, _NAMED = 100_000, 16 << 20, 5
MIB = 1 << 20


class Entry:
    """What a node knows about one object. ``other`` and ``address``: the node it was sent to, or comes from."""

    __slots__ = ("address", "at", "other", "place", "settled", "token", "uuid")

    def __init__(self, uuid: str, told: Dict[str, Any]) -> None:
        self.uuid = uuid
        self.place = Place(_STATES.get(str(told.get("state")), State.ABSENT), int(told.get("counter", 0)))
        self.other, self.address = str(told.get("other", "")), str(told.get("address", ""))
        self.at, self.settled = float(told.get("at", 0.0)), bool(told.get("settled"))
        self.token = str(told.get("token", ""))  # the SHA-256 of the object's token

    def told(self) -> Dict[str, Any]:
        """The content of the file ``UUID.place``."""
        return {
            "state": self.place.state.value, "counter": self.place.counter, "other": self.other,
            "address": self.address, "at": self.at, "settled": self.settled, "token": self.token,
        }  # fmt: skip

    @property
    def forwards(self) -> bool:
        """True if the entry says where the object is, or was last, also while the object is sent back."""
        states = (State.GONE, State.ARRIVED, State.ABSENT)
        return bool(self.address) and self.place.state in states and time.time() - self.at < REMEMBER_S

    def came(self) -> None:
        """The object is live here: forget where it was sent before."""
        self.other, self.address, self.at = "", "", time.time()


_STATES = {one.value: one for one in (State.ABSENT, State.ARRIVED, State.LIVE, State.DOUBT, State.GONE)}


class Offer:
    """An object that is being sent. The sender owns the object meanwhile, so no other process changes it."""

    __slots__ = ("address", "counter", "job", "node", "size", "uuid")

    def __init__(self, job: StateObject, node: str, address: str, counter: int) -> None:
        self.job, self.node, self.address, self.counter = job, node, address, counter
        self.uuid, self.size = job.uuid, os.stat(job.path).st_size


class Holder:
    """The objects in ``directory``, which are on ``node``. ``limit_mb``: the most MiB of all of them; 0: no limit."""

    def __init__(self, directory: str, node: str, limit_mb: int = 0) -> None:
        self.directory, self.node, self.limit_mb = directory, node, limit_mb

    def path(self, uuid: str) -> str:
        """The path of the live object. Raises StateError if ``uuid`` is not a UUID."""
        return job_path(self.directory, uuid)

    def readable(self, uuid: str) -> str:
        """The file for answers: the live object, or one whose receiver has not replied yet; "" if neither is here."""
        path = self.path(uuid)
        return next((one for one in (path, path + SENT) if os.path.exists(one)), "")

    def answering(self, uuid: str) -> str:
        """The same, otherwise the standby copy of an object on a login processor, to which no process can connect."""
        return self.readable(uuid) or next((one for one in (self.standby(uuid),) if os.path.exists(one)), "")

    def uuids(self) -> List[str]:
        """The UUIDs of objects that are live here, or in doubt."""
        names = {name.partition(SUFFIX)[0] for name in self._names() if name.endswith((SUFFIX, SUFFIX + SENT))}
        return sorted(name for name in names if is_uuid(name))

    def fed(self) -> List[str]:
        """The UUIDs of objects of which owners feed copies here."""
        ending = SUFFIX + STANDBY
        found = (name[: -len(ending)] for name in self._names() if name.endswith(ending))
        return sorted(uuid for uuid in found if is_uuid(uuid) and owned(self.standby(uuid)))

    def sent(self) -> List[str]:
        """The UUIDs of objects in doubt (their receiver has not replied), from the names of their files."""
        ending = SUFFIX + SENT
        found = (name[: -len(ending)] for name in self._names() if name.endswith(ending))
        return sorted(uuid for uuid in found if is_uuid(uuid))

    def doubtful(self) -> List[str]:
        """The objects in doubt whose receiver has an address."""
        return [uuid for uuid in self.sent() if self.entry(uuid).address]

    def _names(self) -> List[str]:
        try:
            return os.listdir(self.directory)
        except OSError:
            return []

    # one object

    def entry(self, uuid: str) -> Entry:
        """The entry of an object, after its files were repaired. Raises StateError or OSError."""
        with _Locked(self, uuid) as entry:
            return entry

    def offer(self, uuid: str, node: str, address: str) -> Offer:
        """Begin to send a live object: raise its counter, and merge its log. Raises StateError.

        Only the object itself is changed, so a sender that is killed has sent nothing. The caller owns the object
        until :meth:`stop`.
        """
        with _Locked(self, uuid) as entry:
            if entry.place.state is not State.LIVE:
                raise StateError(self.why_not(entry), "mesh job show says where it is")
            job = StateObject(self.path(uuid))
            try:
                entry.place.counter = max(entry.place.counter, int(job.meta("counter") or 0))
                entry.place.handle(Event.MOVE)
                job.departs(entry.place.counter, self.node, node)
                until = time.monotonic() + SEAL_S
                while not job.seal():
                    if time.monotonic() > until:
                        raise StateError(f"job {uuid} cannot be sent: a process keeps reading it", "try again")
                    # SQLite does not report when a reader has closed the file; SEAL_S limits the wait.
                    time.sleep(_AGAIN_S)
            except BaseException:
                job.close()
                raise
            return Offer(job, node, address, entry.place.counter)

    def why_not(self, entry: Entry) -> str:
        """Why an object cannot be moved from here."""
        state = entry.place.state
        if state is State.DOUBT:
            return f"job {entry.uuid} is in doubt: {entry.other} has not confirmed yet whether it has the job"
        if state is State.GONE:
            return f"job {entry.uuid} has moved to {entry.other}"
        if state is State.ARRIVED:
            return f"job {entry.uuid} is being moved to {self.node}"
        return f"no job {entry.uuid} is on {self.node}"

    def stop(self, offer: Offer) -> None:
        """The receiver has the complete object: rename it, so that no process here can own it."""
        with _Locked(self, offer.uuid) as entry:
            entry.place = Place(State.OFFERED, max(entry.place.counter, offer.counter))
            if entry.place.handle(Event.CONFIRMED, offer.counter) is not Action.STOP:
                raise StateError(f"job {offer.uuid} was moved by another command meanwhile", "mesh job show")
            if self._read(offer.uuid).get("state") != State.LIVE.value:
                # it was created here: if this process is killed after the rename, the record says what the file is
                self._write(Entry(offer.uuid, {"state": State.LIVE.value, "counter": offer.counter}))
            os.rename(offer.job.path, offer.job.path + SENT)
            entry.other, entry.address, entry.at = offer.node, offer.address, time.time()
            entry.token = sha256(str(offer.job.meta("token")).encode()).hexdigest()
            self._write(entry)
        offer.job.close()

    def answered(self, uuid: str, counter: int, event: Event) -> State:
        """Handle the receiver's reply to *take* (TAKEN or REFUSED); returns the new state."""
        with _Locked(self, uuid) as entry:
            action, path = entry.place.handle(event, counter), self.path(uuid)
            if action is Action.FORWARD:
                entry.at, entry.settled = time.time(), True
                self._write(entry)
                _unlink(path + SENT)
            elif action is Action.RESUME:
                entry.came()
                self._write(entry)
                os.rename(path + SENT, path)
            return entry.place.state

    def store(self, uuid: str, counter: int, path: str, sender: str) -> Action:
        """All bytes of an attempt are in the file ``path``, and synced: keep it, unless the attempt is too old."""
        with _Locked(self, uuid) as entry:
            action, live = entry.place.handle(Event.STORED, counter), self.path(uuid)
            if action is Action.KEEP:
                os.rename(path, live + ARRIVED)
                entry.other, entry.at, entry.settled = entry.other if entry.address else sender, time.time(), False
                self._write(entry)
                _unlink(live + SENT)  # left by an attempt that was taken: there is a newer one
            return action

    def take(self, uuid: str, counter: int) -> Action:
        """Handle *take* for ``counter``. Returns ADOPT or SAY_TAKEN if the object is or was live here, else REFUSE."""
        with _Locked(self, uuid) as entry:
            action, live = entry.place.handle(Event.TAKE, counter), self.path(uuid)
            if action is Action.ADOPT:
                entry.came()
                self._write(entry)
                os.rename(live + ARRIVED, live)
            elif action is Action.REFUSE:
                entry.at = time.time()
                self._write(entry)
                for ending in (ARRIVED, SENT):
                    _unlink(live + ending)
            return action

    def settled(self, uuid: str, counter: int) -> None:
        """The sender knows that the object is here: forget what was recorded about the sender."""
        with _Locked(self, uuid) as entry:
            if counter <= entry.place.counter:
                entry.settled = True
                self._write(entry)

    def purge(self, uuid: str) -> None:
        """Delete the object of a job that has ended. Raises StateError if the job has not ended, or is not here."""
        with _Locked(self, uuid) as entry:
            if entry.place.state is not State.LIVE:
                raise StateError(self.why_not(entry), "mesh job show says where it is")
            path = self.path(uuid)
            if owned(path) or not _has_ended(path):
                raise StateError(f"job {uuid} has not ended", "mesh cancel ends it where its owner is")
            for ending in ("", "-wal", "-shm", ".lock"):
                _unlink(path + ending)
            entry.place.state, entry.at, entry.settled = State.ABSENT, time.time(), True
            self._write(entry)

    # room for objects

    def room(self, size: int, instead_of: str = "") -> None:
        """Raise AgentError if there is no room for ``size`` bytes. ``instead_of``: a file that they replace."""
        os.makedirs(self.directory, 0o700, exist_ok=True)
        sizes = {name: _size(os.path.join(self.directory, name)) for name in self._names()}
        used = sum(sizes.values()) - sizes.get(os.path.basename(instead_of), 0)
        if self.limit_mb and used + size > self.limit_mb << 20:
            raise AgentError(
                f"{self.node} takes {self.limit_mb} MiB of a user's state objects (node_jobs_mb): {used / MIB:.1f} MiB"
                f" are there, and {size / MIB:.1f} would come", self._what_to_purge(sizes), code="room",
            )  # fmt: skip
        if len(sizes) > MOST_FILES:
            raise AgentError(
                f"{self.node} has {len(sizes)} files of a user's state objects", self._what_to_purge(sizes), code="room"
            )
        if not size:
            return
        found = os.statvfs(self.directory)
        free = found.f_bavail * found.f_frsize
        if free < size + SPARE:
            raise AgentError(
                f"the disk for state objects on {self.node} has {free / MIB:.1f} MiB left, and {size / MIB:.1f} would"
                " come", self._what_to_purge(sizes), code="room",
            )  # fmt: skip

    def _what_to_purge(self, sizes: Dict[str, int]) -> str:
        """The hint: the command that deletes the largest objects of ended jobs."""
        ended: List[str] = []
        for name in sorted(sizes, key=lambda name: -sizes[name]):
            uuid = name[: -len(SUFFIX)]
            path = os.path.join(self.directory, name)
            if name.endswith(SUFFIX) and is_uuid(uuid) and not owned(path) and _has_ended(path):
                ended.append(uuid)
            if len(ended) == _NAMED:
                break
        return f"mesh purge {' '.join(ended)}" if ended else "no job there has ended: mesh job move takes one elsewhere"

    # standby copies

    def standby(self, uuid: str) -> str:
        """The path of the standby copy of an object, whether it exists or not."""
        return self.path(uuid) + STANDBY

    def stand_by(self, uuid: str, counter: int, path: str, sender: str) -> None:
        """Make the file ``path`` the standby copy of the object of ``sender``. Raises StateError if a later state of
        the object is known here."""
        with _Locked(self, uuid) as entry:
            if entry.place.state not in (State.ABSENT, State.GONE) or counter < entry.place.counter:
                raise StateError(f"{self.node} knows a later state of job {uuid}", "mesh job show says where it is")
            for ending in ("-wal", "-shm"):
                _unlink(self.standby(uuid) + ending)
            os.rename(path, self.standby(uuid))
            sync_directory(self.directory)

    def promote(self, uuid: str, counter: int) -> Action:
        """The tracker gave the object to the copy here, as move ``counter``. Returns PROMOTE if it became live."""
        with _Locked(self, uuid) as entry:
            standby = self.standby(uuid)
            if not os.path.exists(standby):
                return Action.NONE
            action = entry.place.handle(Event.PROMOTED, counter)
            if action is Action.PROMOTE:
                note_takeover(standby, counter, self.node)
                os.rename(standby, self.path(uuid))  # before the entry is written: a file with this name is live
                entry.came()
                entry.settled = True
                self._write(entry)
            return action

    def fence(self, uuid: str, counter: int, node: str, address: str) -> bool:
        """The tracker has the object on ``node`` under a higher counter: rename the file here; returns if it was live.

        The caller makes sure that no process owns the object meanwhile.
        """
        with _Locked(self, uuid) as entry:
            entry.other, entry.address = node, address
            entry.at, entry.settled = time.time(), True
            path = self.path(uuid)
            if entry.place.handle(Event.FENCED, counter) is not Action.FORWARD:
                return False
            for ending in ("", "-wal", "-shm", SENT):
                if os.path.exists(path + ending):
                    os.rename(path + ending, path + FENCED + ending.replace(SENT, ""))
            self._write(entry)
            return True

    def forget_old(self) -> None:
        """Delete entries of objects that are no longer here and that no node asks about, and files that arrived only in
        part or were never taken."""
        old = []
        self._forget_arrivals()
        self._forget_copies()
        for name in self._names():
            uuid = name[: -len(_PLACE)]
            if not name.endswith(_PLACE) or not is_uuid(uuid):
                continue
            entry = Entry(uuid, self._read(uuid))
            if entry.place.state in (State.GONE, State.ABSENT) and entry.settled:
                old.append((entry.at, name))
        old.sort()
        now = time.time()
        for number, (at, name) in enumerate(old):
            if now - at > REMEMBER_S or len(old) - number > MOST_ENTRIES:
                _unlink(os.path.join(self.directory, name))

    def _forget_arrivals(self) -> None:
        now = time.time()
        for name in self._names():
            uuid, _, ending = name.partition(SUFFIX)
            path = os.path.join(self.directory, name)
            if not is_uuid(uuid) or not ending.startswith((PART, ARRIVED)):
                continue
            try:
                age_s = now - os.stat(path).st_mtime
            except OSError:
                continue
            if age_s < REMEMBER_S:
                continue
            with _Locked(self, uuid) as entry:
                if entry.place.state is State.ARRIVED and ending == ARRIVED:
                    entry.place.state = State.ABSENT  # its counter is kept, so this attempt is refused from now on
                    self._write(entry)
                _unlink(path)

    def _forget_copies(self) -> None:
        """Delete the last copies of jobs that ended long ago (the copy of a job that has not ended may be the only
        one)."""
        for name in self._names():
            path = os.path.join(self.directory, name)
            if not name.endswith(SUFFIX + STANDBY) or owned(path):
                continue
            try:
                young = time.time() - os.stat(path).st_mtime < REMEMBER_S
            except OSError:
                continue
            if not young and _has_ended(path):
                for ending in ("", "-wal", "-shm", ".lock"):
                    _unlink(path + ending)

    # files

    def _read(self, uuid: str) -> Dict[str, Any]:
        path = os.path.join(self.directory, uuid + _PLACE)
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), encoding="utf-8") as file:
                told = json.loads(file.read(_LONGEST_PLACE))
            Entry(uuid, told)
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            raise StateError(
                f"{path} was not written by a node of Redmesh", "remove it if the object of the job is here"
            ) from None
        return dict(told)

    def _write(self, entry: Entry) -> None:
        path = os.path.join(self.directory, entry.uuid + _PLACE)
        fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            json.dump(entry.told(), file)
            file.flush()
            os.fsync(fd)
        os.rename(path + ".new", path)
        sync_directory(self.directory)

    def _ordered(self, uuid: str) -> Entry:
        """The entry, after completing the step in which an earlier process was killed."""
        entry, path = Entry(uuid, self._read(uuid)), self.path(uuid)
        if entry.place.state is State.LIVE:
            for beside in (SENT, ARRIVED):
                if os.path.exists(path + beside):
                    os.rename(path + beside, path)
            if not os.path.exists(path):
                entry.place.state = State.ABSENT  # it was purged
        elif entry.place.state in (State.GONE, State.ARRIVED):
            _unlink(path + SENT)
        elif entry.place.state is State.DOUBT and os.path.exists(path):
            os.rename(path, path + SENT)  # the power failed between the two renames
        elif entry.place.state is State.ABSENT and os.path.exists(path):
            entry.place = Place(State.LIVE, max(entry.place.counter, _counter(path)))  # it was created here
        if entry.place.state is State.GONE and os.path.exists(path) and _counter(path) > entry.place.counter:
            entry.place = Place(
                State.LIVE, _counter(path)
            )  # a standby copy; the process was killed before it wrote the record
        return entry


class _Locked:
    """A lock: one process at a time changes the entry of an object."""

    def __init__(self, holder: Holder, uuid: str) -> None:
        self._holder, self._uuid = holder, uuid

    def __enter__(self) -> Entry:
        self._holder.path(self._uuid)  # raises StateError if it is not a UUID, before a file is created
        try:
            os.makedirs(self._holder.directory, 0o700, exist_ok=True)
            path = os.path.join(self._holder.directory, ".moves")
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateError(f"{self._holder.directory}: {error.strerror}", "check the directory") from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            return self._holder._ordered(self._uuid)
        except BaseException:
            os.close(self._fd)
            raise

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _has_ended(path: str) -> bool:
    try:
        with StateReader(path) as job:
            return job.meta("state") in (DONE, FAILED, CANCELLED)
    except (StateError, sqlite3.Error):
        return False  # nothing is deleted because it cannot be read


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _counter(path: str) -> int:
    with StateReader(path) as job:
        return int(job.meta("counter") or 0)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass

"""Limits of each user at a daemon that serves all users of a machine: connections, bytes, and turns.

The daemon reads and serves one frame of each user in turn, so one user delays the others by at most the time of one
frame. Root and the daemon's own account are exempt: they are the mesh's daemons and its administrator.
"""

from __future__ import annotations

import os
import resource
import time

from agents.link.lean import deque
from agents.wire.errors import AgentError, WireError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, Deque, Dict, FrozenSet, List, Optional

    from agents.link.journal import Journal
    from agents.link.link import Link
    from agents.link.loop import Loop
    from agents.wire.frames import Frame

#: Connections of one user, and of all users together.
USER_CONNECTIONS, ALL_CONNECTIONS = 4096, 16384
#: The burst of connections that one user may make, and the rate for each second afterwards.
_BURST, _EACH_S = 2048.0, 256.0
#: Descriptors reserved for the daemon: its files, database, clean-up processes and root's connections.
OWN_FILES = 256
#: Limits of a user in bytes: unserved requests, and unread answers.
USER_BYTES, USER_UNREAD = 8 << 20, 16 << 20
#: The bytes of unread answers at which a connection is no longer served.
UNREAD = 64 << 10
#: The size limits of the first frame (the hello), of other frames, and of frames that may list a whole machine.
HELLO_BYTES, FRAME_BYTES, LIST_BYTES = 4096, 64 << 10, 1 << 20
_LISTS = (
    "allocate", "request", "would_allocate", "started", "finish", "partition_create", "set_mode", "reserve", "drain",
    "drain_later", "resume", "reset", "signal_launchers", "kill_launchers", "set_switches",
)  # fmt: skip
LARGER: Dict[str, int] = dict.fromkeys(_LISTS, LIST_BYTES)
#: The most objects, lists and members in one request: a load file of 4,000 lines has fewer.
MOST_MEMBERS = 32768
#: The most values in one request. A mebibyte of short numbers would take a tenth of a second to parse.
MOST_VALUES = 131072
#: Seconds in which the hello, or the rest of a started frame, must arrive.
PATIENCE_S = 10
_CHUNK, _LARGE_CHUNK = 4 << 10, 256 << 10
_MOST_IDLE = 1024  # how many users without a connection are remembered
_FRAME_COST = 128  # overhead in bytes of each frame


class Busy(AgentError):
    """A connection or request exceeds a limit of its user; it may succeed later."""

    code = "busy"


class User:
    """The usage of one uid at this daemon."""

    __slots__ = ("_as_of", "_left", "buffered", "connections", "queue", "refused_at", "uid", "unread")

    def __init__(self, uid: int) -> None:
        self.uid = uid
        self.connections = 0
        self._left, self._as_of = _BURST, 0.0  # connections that may still be made, and the time of that count
        self.buffered = 0  # bytes that have arrived and are not served yet
        self.unread = 0  # bytes of answers that wait to be sent
        self.queue: Deque[Intake] = deque()  # connections with frames to serve
        self.refused_at = float("-inf")  # monotonic seconds

    def may_connect(self, now: float) -> bool:
        """True if a new connection does not exceed the rate limit."""
        self._left = min(_BURST, self._left + (now - self._as_of) * _EACH_S)
        self._as_of = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class Users:
    """All users of a daemon. The uids in ``exempt`` have no limits: root and the daemon's own account."""

    def __init__(self, loop: Loop, journal: Journal, exempt: Optional[FrozenSet[int]] = None) -> None:
        self._loop, self._journal = loop, journal
        self._exempt = frozenset((0, os.geteuid())) if exempt is None else exempt
        self._users: Dict[int, User] = {}
        self._connections = 0
        self._busy: Dict[User, None] = {}  # users with frames to serve
        self._due = False  # True if a round of turns is scheduled
        # connections without a hello, or with an incomplete frame -> number of checks
        self._young: Dict[Intake, int] = {}
        self._looking = False
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._room = max(16, min(ALL_CONNECTIONS, files - OWN_FILES))

    def limits(self, uid: int) -> bool:
        """True if ``uid`` has limits: it is no daemon of this mesh, and not on another machine."""
        return uid >= 0 and uid not in self._exempt

    def of(self, uid: int) -> User:
        """The usage of ``uid``."""
        user = self._users.get(uid)
        if user is None:
            user = self._users[uid] = User(uid)
        return user

    def connect(self, uid: int) -> User:
        """Count a new connection of ``uid``. Raises Busy if the user has too many.

        A user may have as many as are left for all others: a single user gets half of all, and there is always room for
        a user who has none (the dynamic thresholds of Choudhury and Hahne, 1998).
        """
        user, now = self.of(uid), time.monotonic()
        if user.connections >= min(USER_CONNECTIONS, self._room - self._connections):
            raise self._refusal(
                user, now, f"has {user.connections} connections to this daemon, as many as it may have now"
            )
        if not user.may_connect(now):
            raise self._refusal(user, now, f"connects to this daemon more than {_EACH_S:.0f} times a second")
        user.connections += 1
        self._connections += 1
        return user

    def _refusal(self, user: User, now: float, why: str) -> Busy:
        user.refused_at = now
        busy = Busy(f"uid {user.uid} {why}", "wait until some of its launches have ended, or start fewer at once")
        self._journal.write("refused", reason="too_many", uid=user.uid, message=busy.message)
        return busy

    def disconnect(self, user: User) -> None:
        """Count a closed connection."""
        user.connections -= 1
        self._connections -= 1
        self._forget(user)

    def refused_lately(self, uid: int, seconds: float) -> bool:
        """True if a connection of ``uid`` was refused within the last ``seconds``."""
        user = self._users.get(uid)
        return user is not None and time.monotonic() - user.refused_at < seconds

    def _forget(self, user: User) -> None:
        if not user.connections and not user.queue and len(self._users) > _MOST_IDLE:
            self._users.pop(user.uid, None)

    # Turns

    def enqueue(self, intake: Intake, *, first: bool) -> None:
        """Queue ``intake`` for service: first or last among its user's connections."""
        queue = intake.user.queue
        (queue.appendleft if first else queue.append)(intake)
        self._busy[intake.user] = None
        if not self._due:
            self._due = True
            self._loop.after(0, self._round)

    def _round(self) -> None:
        # One frame of each user; new connections, ends and timers are handled before the next round.
        for user in list(self._busy):
            user.queue.popleft().turn()
            if not user.queue:
                del self._busy[user]
        self._due = bool(self._busy)
        if self._due:
            self._loop.after(0, self._round)

    # Time limits

    def watch(self, intake: Intake) -> None:
        """Give ``intake`` PATIENCE_S seconds until it must no longer be ``young``."""
        self._young[intake] = 0
        if not self._looking:
            self._looking = True
            self._loop.after(1.0, self._look)

    def _look(self) -> None:
        # Count checks, not seconds: time in which this daemon itself was stopped must not count.
        for intake, looks in list(self._young.items()):
            if not intake.young:
                del self._young[intake]
            elif not intake.queued:
                self._young[intake] = looks + 1
                if looks >= PATIENCE_S:
                    del self._young[intake]
                    intake.drop(f"{intake.lacks} did not arrive within {PATIENCE_S} s")
        self._looking = bool(self._young)
        if self._looking:
            self._loop.after(1.0, self._look)

    def make_room(self, intake: Intake) -> None:
        """A user exceeds the byte limit: drop the connection whose frame is incomplete for longest, or this one."""
        for other in list(self._young):
            if other.user is intake.user and other.link.sock is not None and other.link.unfinished:
                del self._young[other]
                other.drop("its user has too many unfinished frames here")
                return
        intake.drop("its user has too much here that is not served")


class Intake:
    """Holds what arrives on a user's connection until its turn. ``drop(reason)`` closes the connection."""

    def __init__(self, users: Users, user: User, link: Link, drop: Callable[[str], None]) -> None:
        self.users, self.user, self.link, self.drop = users, user, link, drop
        self.frames: Deque[Frame] = deque()
        self.queued = False
        self._greeted = self._held = self._over = False
        self._parting = False  # read once more after the peer hung up, because its last data is short
        self._bytes = self._kept = 0
        self._counted = self._unread = 0  # this connection's part of the user's figures
        link.intake = self
        link.limit_frames(FRAME_BYTES, LARGER)
        users.watch(self)

    def greeted(self) -> None:
        """The hello has arrived."""
        self._greeted = True

    @property
    def young(self) -> bool:
        """True if data must arrive soon."""
        return self.link.sock is not None and (not self._greeted or self.link.unfinished > 0)

    @property
    def lacks(self) -> str:
        """A description of what must arrive."""
        return "the rest of a frame" if self._greeted else "a hello"

    # Events of the link

    def on_readable(self) -> None:
        """Data has arrived: read no more before this connection's turn."""
        self.link.park(parked=True)
        self._enqueue()

    def on_resumed(self) -> None:
        """The link's owner accepts frames again."""
        if self._held:
            self._enqueue()

    def on_drained(self) -> None:
        """All answers were sent."""
        self.weigh()
        if self._held:
            self._enqueue()

    def take(self, frames: List[Frame]) -> None:
        """Take frames that arrived before the link had a user."""
        self.link.park(parked=True)
        self._add(frames)
        self._enqueue()

    def _enqueue(self) -> None:
        self._held = False
        if not self.queued and self.link.sock is not None:
            self.queued = True
            # Finish what has begun first, so that at most one connection of a user has frames in memory.
            self.users.enqueue(self, first=bool(self.frames) or self.link.unfinished > 0)

    # Turns

    def turn(self) -> None:
        """Read if nothing is buffered, and serve one frame."""
        self.queued = False
        link = self.link
        if link.sock is None:
            return
        if link.paused or link.out_bytes > UNREAD:
            self._held = True
            return
        if not self.frames:
            self._read()
        if self.frames and link.sock is not None:
            frame = self.frames.popleft()
            self._bytes -= len(frame[1]) + _FRAME_COST
            link.deliver([frame])
        if link.sock is None:
            return
        self.weigh()
        if self.frames:
            self._enqueue()
        else:
            link.park(parked=False)

    def _read(self) -> None:
        before = self.link.unfinished
        if self.link.hung_up:
            if self._parting:  # its remaining frames would occupy the daemon long after the peer's exit
                self.link.end("the connection ended")
                return
            self._parting = True
        self._add(self.link.receive(min(_LARGE_CHUNK, max(_CHUNK, self.link.missing))))
        if self.link.sock is None:
            return
        if self.link.unfinished and not before:
            self.users.watch(self)
        if self.user.buffered > USER_BYTES:
            self.users.make_room(self)

    def _add(self, frames: List[Frame]) -> None:
        self.frames.extend(frames)
        self._bytes += sum(len(payload) + _FRAME_COST for _, payload in frames)
        self.weigh()

    # Byte counts

    def keep(self, count: int) -> None:
        """The owner keeps ``count`` bytes of what this connection sent."""
        self._kept = count
        self.weigh()

    def weigh(self) -> None:
        """Update the user's byte counts."""
        gone = self.link.sock is None
        now, unread = (0, 0) if gone else (self._bytes + self._kept + self.link.unfinished, self.link.out_bytes)
        self.user.buffered += now - self._counted
        self.user.unread += unread - self._unread
        self._counted, self._unread = now, unread

    @property
    def unread_too_much(self) -> bool:
        """True if the user leaves too many answers unread."""
        return self.user.unread > USER_UNREAD

    def over(self) -> None:
        """The connection has closed."""
        if not self._over:
            self._over = True
            self.drop = _drop_nothing  # no reference cycle remains
            self.frames.clear()
            self.weigh()
            self.users.disconnect(self.user)

    def check(self, payload: bytes) -> None:
        """Raise WireError for a hello that is too long, or for a request with so many members that parsing takes
        long."""
        if not self._greeted and len(payload) > HELLO_BYTES:
            raise WireError(f"a hello of {len(payload)} bytes is over the limit of {HELLO_BYTES}")
        if len(payload) > HELLO_BYTES:
            members = payload.count(b"[") + payload.count(b"{") + payload.count(b'":')
            if members > MOST_MEMBERS:
                raise WireError(f"a request with {members} lists and members is over the limit of {MOST_MEMBERS}")
            values = payload.count(b",") + 1
            if values > MOST_VALUES:
                raise WireError(f"a request with {values} values is over the limit of {MOST_VALUES}")


def _drop_nothing(_reason: str) -> None:
    pass

"""What each user may have at a daemon that serves all users of a machine: connections, bytes, and turns.

The daemon reads and serves one frame of each user in turn, so what one user sends costs the others the time of one
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
#: Connections that one user may make at once, and each second from then on.
_BURST, _EACH_S = 2048.0, 256.0
#: Descriptors that a daemon keeps for itself: its files, its database, its clean-up processes, root's connections.
_OWN_FILES = 256
#: Bytes of frames that one user may have here unserved; of answers that one user may leave unread.
USER_BYTES, USER_UNREAD = 8 << 20, 16 << 20
#: Bytes of answers that one connection may leave unread before the daemon serves it no further.
UNREAD = 64 << 10
#: Bytes of a first frame (the hello), of any other, and of those that name what may be a list of a whole machine.
HELLO_BYTES, FRAME_BYTES, LIST_BYTES = 4096, 64 << 10, 1 << 20
_LISTS = (
    "allocate", "request", "would_allocate", "started", "finish", "partition_create", "set_mode", "reserve", "drain",
    "resume", "reset", "signal_launchers", "kill_launchers", "set_switches",
)  # fmt: skip
LARGER: Dict[str, int] = dict.fromkeys(_LISTS, LIST_BYTES)
#: Objects, lists and members of objects in one request: a load file of 4,000 lines has fewer.
MOST_MEMBERS = 32768
#: Values in one request: the processors of so many ranks. A mebibyte of short numbers would take a tenth of a second.
MOST_VALUES = 131072
#: Seconds for the hello to arrive, and for the rest of a frame that has begun to arrive.
PATIENCE_S = 10
_CHUNK, _LARGE_CHUNK = 4 << 10, 256 << 10
_MOST_IDLE = 1024  # users without a connection who are remembered
_FRAME_COST = 128  # bytes of memory that a frame costs besides its own


class Busy(AgentError):
    """A connection or a request over what its user may have here; the same succeeds later."""

    code = "busy"


class User:
    """What one uid has at this daemon."""

    __slots__ = ("_as_of", "_left", "buffered", "connections", "queue", "refused_at", "uid", "unread")

    def __init__(self, uid: int) -> None:
        self.uid = uid
        self.connections = 0
        self._left, self._as_of = _BURST, 0.0  # connections that may still be made, and as of when
        self.buffered = 0  # bytes that have arrived and are not served
        self.unread = 0  # bytes of answers that wait to be sent
        self.queue: Deque[Intake] = deque()  # connections with something to serve
        self.refused_at = float("-inf")  # monotonic seconds

    def may_connect(self, now: float) -> bool:
        """Whether one more connection is not too soon."""
        self._left = min(_BURST, self._left + (now - self._as_of) * _EACH_S)
        self._as_of = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class Users:
    """All users of one daemon. The uids in ``exempt`` have no limits: root and the daemon's own account."""

    def __init__(self, loop: Loop, journal: Journal, exempt: Optional[FrozenSet[int]] = None) -> None:
        self._loop, self._journal = loop, journal
        self._exempt = frozenset((0, os.geteuid())) if exempt is None else exempt
        self._users: Dict[int, User] = {}
        self._connections = 0
        self._busy: Dict[User, None] = {}  # those whose queues are not empty
        self._due = False  # a round of turns
        self._young: Dict[Intake, int] = {}  # no hello yet, or a frame that is not whole: for how many looks
        self._looking = False
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._room = max(16, min(ALL_CONNECTIONS, files - _OWN_FILES))

    def limits(self, uid: int) -> bool:
        """Whether ``uid`` is a user: no daemon of this mesh and not another machine's."""
        return uid >= 0 and uid not in self._exempt

    def of(self, uid: int) -> User:
        """What ``uid`` has here."""
        user = self._users.get(uid)
        if user is None:
            user = self._users[uid] = User(uid)
        return user

    def connect(self, uid: int) -> User:
        """Count one more connection of ``uid``. Busy when the user has too many.

        A user may have as many as are left for all others: one user alone half of all, and there is always room for
        one who has none (the dynamic thresholds of Choudhury and Hahne, 1998).
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
        """One connection fewer."""
        user.connections -= 1
        self._connections -= 1
        self._forget(user)

    def refused_lately(self, uid: int, seconds: float) -> bool:
        """Whether a connection of ``uid`` was refused within so many seconds."""
        user = self._users.get(uid)
        return user is not None and time.monotonic() - user.refused_at < seconds

    def _forget(self, user: User) -> None:
        if not user.connections and not user.queue and len(self._users) > _MOST_IDLE:
            self._users.pop(user.uid, None)

    # turns

    def enqueue(self, intake: Intake, *, first: bool) -> None:
        """``intake`` has something to be served: ``first`` among those of its user, or last."""
        queue = intake.user.queue
        (queue.appendleft if first else queue.append)(intake)
        self._busy[intake.user] = None
        if not self._due:
            self._due = True
            self._loop.after(0, self._round)

    def _round(self) -> None:
        # A frame of each user; then new connections, ends and timers are looked at before the next round.
        for user in list(self._busy):
            user.queue.popleft().turn()
            if not user.queue:
                del self._busy[user]
        self._due = bool(self._busy)
        if self._due:
            self._loop.after(0, self._round)

    # patience

    def watch(self, intake: Intake) -> None:
        """Give ``intake`` PATIENCE_S seconds from now to be no longer ``young``."""
        self._young[intake] = 0
        if not self._looking:
            self._looking = True
            self._loop.after(1.0, self._look)

    def _look(self) -> None:
        # Looks are counted, not seconds: a daemon that was stopped itself has no right to call others late.
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
        """A user has too many bytes here: drop the connection whose frame is unfinished for longest, or this one."""
        for other in list(self._young):
            if other.user is intake.user and other.link.sock is not None and other.link.unfinished:
                del self._young[other]
                other.drop("its user has too many unfinished frames here")
                return
        intake.drop("its user has too much here that is not served")


class Intake:
    """What arrives on one connection of a user, until its turn comes. ``drop(reason)`` ends the connection."""

    def __init__(self, users: Users, user: User, link: Link, drop: Callable[[str], None]) -> None:
        self.users, self.user, self.link, self.drop = users, user, link, drop
        self.frames: Deque[Frame] = deque()
        self.queued = False
        self._greeted = self._held = self._over = False
        self._parting = False  # read once more since the peer hung up: its last words are short
        self._bytes = self._kept = 0
        self._counted = self._unread = 0  # what the user's figures have of this connection
        link.intake = self
        link.limit_frames(FRAME_BYTES, LARGER)
        users.watch(self)

    def greeted(self) -> None:
        """The hello has come."""
        self._greeted = True

    @property
    def young(self) -> bool:
        """Whether something has to arrive soon."""
        return self.link.sock is not None and (not self._greeted or self.link.unfinished > 0)

    @property
    def lacks(self) -> str:
        """What has to arrive."""
        return "the rest of a frame" if self._greeted else "a hello"

    # what the link tells

    def on_readable(self) -> None:
        """Something has arrived: nothing more is read before this connection's turn."""
        self.link.park(parked=True)
        self._enqueue()

    def on_resumed(self) -> None:
        """The link's owner wants frames again."""
        if self._held:
            self._enqueue()

    def on_drained(self) -> None:
        """All answers were sent."""
        self.weigh()
        if self._held:
            self._enqueue()

    def take(self, frames: List[Frame]) -> None:
        """Frames that had arrived before the link had a user."""
        self.link.park(parked=True)
        self._add(frames)
        self._enqueue()

    def _enqueue(self) -> None:
        self._held = False
        if not self.queued and self.link.sock is not None:
            self.queued = True
            # What has begun is finished first: so one connection of a user at most has frames in memory.
            self.users.enqueue(self, first=bool(self.frames) or self.link.unfinished > 0)

    # turns

    def turn(self) -> None:
        """Read, where nothing is here, and serve one frame."""
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
            if self._parting:  # what it left here would take the daemon long after it has gone
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

    # bytes

    def keep(self, count: int) -> None:
        """The owner holds so many bytes of what this connection sent."""
        self._kept = count
        self.weigh()

    def weigh(self) -> None:
        """Bring the user's figures up to date."""
        gone = self.link.sock is None
        now, unread = (0, 0) if gone else (self._bytes + self._kept + self.link.unfinished, self.link.out_bytes)
        self.user.buffered += now - self._counted
        self.user.unread += unread - self._unread
        self._counted, self._unread = now, unread

    @property
    def unread_too_much(self) -> bool:
        """Whether the user leaves too many answers unread."""
        return self.user.unread > USER_UNREAD

    def over(self) -> None:
        """The connection has ended."""
        if not self._over:
            self._over = True
            self.frames.clear()
            self.weigh()
            self.users.disconnect(self.user)

    def check(self, payload: bytes) -> None:
        """WireError for a hello that is too long, and for a request of so many members that reading it takes long."""
        if not self._greeted and len(payload) > HELLO_BYTES:
            raise WireError(f"a hello of {len(payload)} bytes is over the limit of {HELLO_BYTES}")
        if len(payload) > HELLO_BYTES:
            members = payload.count(b"[") + payload.count(b"{") + payload.count(b'":')
            if members > MOST_MEMBERS:
                raise WireError(f"a request with {members} lists and members is over the limit of {MOST_MEMBERS}")
            values = payload.count(b",") + 1
            if values > MOST_VALUES:
                raise WireError(f"a request with {values} values is over the limit of {MOST_VALUES}")

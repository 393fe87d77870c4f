"""Heartbeats of a node on another machine: datagrams to one RCA of the mesh, and to the next one if it does not
answer.

Each RCA tells the node about all of them, because login processors come and go while a mesh is up.
"""

from __future__ import annotations

import os
import time

from agents.link.lean import Socket, socket
from agents.link.loop import READ, Loop
from agents.link.resolver import Names
from agents.pct.heartbeat import rcas
from agents.pct.heartbeat.lease import Action, Lease, State
from agents.wire import heartbeat, keys
from agents.wire.errors import WireError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from agents.link.journal import Journal
    from agents.link.loop import Timer
    from agents.pct.heartbeat.clock import MeshTime
    from agents.wire.control import Message
    from redmesh.settings.keeper_file import KeeperFile

INTERVAL_S = 1.0  # until an RCA sets the interval
GREET_S = 0.02  # after an RCA that does not know the time yet; doubled each time
RESEND_S = 1.0  # after a beat that is not acknowledged
_FIRST_S = 0.03  # after the first one, doubled each time: during start-up the RCA may come a moment after us
_SOON_S, _STARTING_S = 0.1, 3.0  # the longest interval in our first seconds
_TRIES = 3  # unanswered beats after which another RCA is tried
_GREETED_S = 5.0  # after only greetings for this long (the RCA reaches no CPA), another RCA is tried
_OUTSTANDING = 8  # beats whose acknowledgement may still come
_LEASE_LOOK_S = 0.5
#: A report of other meshes on this host has no acknowledgement of its own: it is sent after this many acknowledged
#: beats, and again after each _SHARED_EVERY, because an RCA may forget it.
_SHARED_TIMES, _SHARED_EVERY = 3, 16


class ContactConfig:
    """The RCA settings of a node's keeper.json: ``rca`` (a list of ADDR:PORT), ``trust``, ``down_s``, ``lease_s``."""

    __slots__ = ("key_file", "lease_s", "mesh_boot", "node", "rcas", "run")

    def __init__(self, file: KeeperFile, node: str) -> None:
        self.run, self.node = file.run, node
        self.mesh_boot = file.mesh_boot or file.boot_id
        self.rcas = rcas.known(self.run, node, self.mesh_boot, list(file.rca))
        self.key_file = os.path.join(file.trust_directory, "beat.key")
        # An RCA waits for down_s; the launches here must have ended by then.
        self.lease_s = file.lease_s or file.down_s * 2 / 3


class DatagramBeats:
    """Sends heartbeats to an RCA: ``who()`` gives the registration, ``act`` carries out the lease's actions."""

    def __init__(
        self,
        loop: Loop,
        config: ContactConfig,
        who: Callable[[], Message],
        launches: Callable[[], int],
        act: Callable[[Action], None],
        log: Journal,
        mesh_time: MeshTime,
    ) -> None:
        self._loop, self._who, self._launches, self._act, self._log = loop, who, launches, act, log
        self._config, self._mesh_time = config, mesh_time
        self._keys = keys.KeyFile(config.key_file).read
        self._rcas = list(config.rcas)
        self._rca = config.rcas[0]  # the RCA in use
        self._connected: Any = None  # its address
        self._told: List[str] = []  # the addresses in the last list from an RCA
        self._epochs: Dict[str, int] = {}
        self._sent: Dict[int, Tuple[str, int]] = {}  # sequence -> (RCA, flags), for the last few beats
        self._sequence = 0
        self._unanswered = self._greetings = 0
        self._unheard = 0  # beats since the last answer
        self._greeted_at = 0.0  # since when only greetings have come
        self._register = True
        self._shared = ""  # the other meshes on this host, as last reported
        self._shared_left = self._acknowledged = 0
        self._interval_s = INTERVAL_S
        self._began_at = time.monotonic()
        self._lease = Lease(self._began_at, config.lease_s)
        self._names = Names(loop, self._beat)
        self._family = 0  # the address family of the first RCA found
        self._sock: Optional[Socket] = None
        self._timer: Timer = loop.after(0, self._beat)
        self._lease_timer: Timer
        self._await_lapse()

    def _remember(self, places: List[str]) -> None:
        self._log.write("rcas", places=places)
        try:
            rcas.remember(self._config.run, self._config.node, self._config.mesh_boot, places)
        except OSError:
            pass  # the disk is full; this PCT still has them in memory

    @property
    def accepts_launches(self) -> bool:
        """True if launches may start: not while the node clears itself."""
        return self._lease.state is not State.RESETTING

    def _beat(self) -> None:
        if self._lease.state is State.RESETTING:  # the old boot id is obsolete
            self._timer.cancel()
            self._timer = self._loop.after(self._interval_s, self._beat)
            return
        if self._unanswered >= _TRIES:
            self._try_another()
        self._unanswered += 1
        self._unheard += 1
        self._send()
        self._timer.cancel()
        wait_s = self._interval_s if self._unheard > _TRIES * len(self._rcas) else min(RESEND_S, self._interval_s)
        if self._register:
            wait_s = min(wait_s, _FIRST_S * (1 << min(self._unheard - 1, 10)), self._patience())
        self._timer = self._loop.after(wait_s, self._beat)

    def _patience(self) -> float:
        # The login processor's daemons start at the same time as we do, and mesh up waits for us.
        return _SOON_S if time.monotonic() - self._began_at < _STARTING_S else self._interval_s

    def _try_another(self) -> None:
        if len(self._rcas) > 1:
            at = self._rcas.index(self._rca) if self._rca in self._rcas else -1
            self._rca = self._rcas[(at + 1) % len(self._rcas)]
            self._unanswered = 0
            self._register = True

    def _send(self) -> None:
        who = self._who()
        self._sequence = self._next_sequence()
        flags = heartbeat.REGISTER if self._register else 0
        if self._mesh_time.now() is None:
            flags |= heartbeat.TIMELESS
        if self._unheard > _TRIES:
            flags |= heartbeat.UNHEARD
        facts = heartbeat.Facts(
            who["processors"], self._launches(), _load(), _memory_mb(), who["agent"], who["address"],
            heartbeat.digest_of(self._told),
        )  # fmt: skip
        told = heartbeat.Beat(
            who["node"], who["boot_id"], who["incarnation"], self._sequence, flags=flags,
            epoch=self._epochs.get(self._rca, 0), facts=facts,
        )  # fmt: skip
        sock = self._towards(self._rca)
        if sock is None:
            return
        self._sent[self._sequence] = (self._rca, flags)
        while len(self._sent) > _OUTSTANDING:
            del self._sent[next(iter(self._sent))]
        try:
            sock.send(told.encode(self._keys()[0]))
        except OSError:
            pass  # no route, no buffer or no listener: the same as a lost datagram

    def _next_sequence(self) -> int:
        return max(self._sequence + 1, int(time.monotonic() * 1e6))

    def _tell_shared(self) -> None:
        """After an acknowledged beat: report the other meshes on this host, if the RCA may not know of them."""
        who = self._who()
        shared = str(who.get("shared", ""))
        self._acknowledged += 1
        if shared != self._shared:
            self._shared, self._shared_left = shared, _SHARED_TIMES
        elif self._shared and self._acknowledged % _SHARED_EVERY == 0:
            self._shared_left = max(self._shared_left, 1)
        sock = self._towards(self._rca) if self._shared_left else None
        if sock is None:
            return
        self._shared_left -= 1
        self._sequence = self._next_sequence()
        told = heartbeat.Beat(
            who["node"], who["boot_id"], who["incarnation"], self._sequence, kind=heartbeat.SHARED,
            epoch=self._epochs.get(self._rca, 0), facts=heartbeat.Facts(agent=self._shared),
        )  # fmt: skip
        try:
            sock.send(told.encode(self._keys()[0]))
        except OSError:
            pass  # the same as a lost datagram

    def _towards(self, rca: str) -> Optional[Socket]:
        """Our connected socket, so that no other sender's datagrams arrive and no port is open. None: no route yet."""
        place = self._names.address(rca, self._family)
        if place is None:
            return None
        family, address = place
        if self._sock is None:
            self._family = family
            self._sock = Socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            self._loop.watch(self._sock.fileno(), READ, self._on_datagram)
        if self._connected != address:
            try:
                self._sock.connect(address)
            except OSError:
                return None
            self._connected = address
        return self._sock

    def _on_datagram(self, _events: int) -> None:
        assert self._sock is not None
        for _ in range(heartbeat.AT_ONCE):
            try:
                datagram = self._sock.recv(heartbeat.LONGEST + 1)
            except OSError:  # includes BlockingIOError, and the error of an earlier datagram
                return
            try:
                if heartbeat.is_places(datagram):
                    self._on_places(*heartbeat.read_places(datagram, self._keys(), self._who()["boot_id"]))
                    continue
                told = heartbeat.read_acknowledgement(datagram, self._keys(), self._who()["boot_id"])
            except WireError:
                continue
            if told.sequence in self._sent:
                self._on_acknowledgement(told)

    def _on_places(self, sequence: int, places: List[str]) -> None:
        # Accept a list only in answer to one of our last beats, because an old list could be replayed.
        if sequence in self._sent and places != self._told:
            self._rcas = self._told = places
            self._remember(places)

    def _on_acknowledgement(self, told: heartbeat.Acknowledgement) -> None:
        which, flags = self._sent.pop(told.sequence)
        self._unanswered = self._unheard = 0
        now, sent_at = time.monotonic(), told.sequence / 1e6
        if told.mesh_time:
            self._mesh_time.learn(told.mesh_time, sent_at - told.uncertainty_s, now + told.uncertainty_s)
        if told.view == heartbeat.GREET:
            self._greeted(which, told.epoch)
            return
        self._greetings, self._greeted_at = 0, 0.0
        if told.view == heartbeat.RESET:
            self._do(self._lease.told_down())
            return
        if flags & heartbeat.REGISTER and not flags & heartbeat.UNHEARD:
            self._register = False
        if self._lease.state is State.LAPSED:
            self._log.write("lease held again")
        self._interval_s = max(0.05, told.interval_s)
        if told.view == heartbeat.ALONE:
            self._try_another()
        if flags & heartbeat.UNHEARD:  # that beat did not count, and the next one will
            self._interval_s = min(self._interval_s, RESEND_S / 10)
        if self._mesh_time.now() is None:  # without mesh time no launch is admitted
            self._interval_s = min(self._interval_s, RESEND_S / 10)
        self._timer.cancel()
        self._timer = self._loop.after(self._interval_s, self._beat)
        self._do(self._lease.acknowledged(sent_at))
        self._tell_shared()

    def _greeted(self, which: str, epoch: int) -> None:
        # The RCA has just started, or does not know the time either: do not ask it too often.
        news = epoch != self._epochs.get(which)
        self._epochs[which] = epoch
        if news and self._shared:
            self._shared_left = _SHARED_TIMES
        self._greetings = 0 if news else self._greetings + 1
        now = time.monotonic()
        self._greeted_at = self._greeted_at or now
        if now - self._greeted_at > _GREETED_S:
            self._greeted_at = now
            self._try_another()
        self._timer.cancel()
        wait_s = 0.0 if self._greetings < 2 else min(self._interval_s, GREET_S * 2**self._greetings, self._patience())
        self._timer = self._loop.after(wait_s, self._beat)

    def _look_at_lease(self) -> None:
        before = self._lease.state
        action = self._lease.tick(time.monotonic())
        if self._lease.state is not before:
            self._log.write("lease lapsed", seconds=self._lease.length_s)
        self._do(action)
        self._await_lapse()

    def _await_lapse(self) -> None:
        # An idle node wakes only for its beats: acknowledged or not, nothing can lapse before then.
        wait_s = max(_LEASE_LOOK_S, self._lease.idle_s(time.monotonic()))
        self._lease_timer = self._loop.after(wait_s, self._look_at_lease)

    def _do(self, action: Action) -> None:
        if action is not Action.NONE:
            self._act(action)

    def cleared(self, clean: bool) -> None:
        """The result of clearing the node."""
        self._do(self._lease.cleared(clean, time.monotonic()))

    def begin_anew(self) -> None:
        """Clear the node and take another boot id, as if an RCA had requested it."""
        self._do(self._lease.told_down())

    def register_again(self) -> None:
        """Register again at once: under a new boot id, or because another process may have reported us down."""
        self._register = True
        self._beat()

    def close(self) -> None:
        """Stop."""
        self._timer.cancel()
        self._lease_timer.cancel()
        self._names.close()
        if self._sock is not None:
            self._loop.unwatch(self._sock.fileno())
            self._sock.close()


def gone(keys: List[bytes], node: str, boot_id: str, incarnation: int) -> bytes:
    """A keeper's report that the PCT of this incarnation has died."""
    told = heartbeat.Beat(node, boot_id, incarnation, int(time.monotonic() * 1e6), kind=heartbeat.GONE)
    return told.encode(keys[0])


def tell(names: Names, rca: str, datagram: bytes) -> bool:
    """Send the report without waiting. Returns False while the RCA's name is being looked up."""
    place = names.address(rca)
    if place is None:
        return False
    try:
        with Socket(place[0], socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
            sock.sendto(datagram, place[1])
    except OSError:
        pass  # the RCA will notice the silence
    return True


def _load() -> float:
    try:
        return os.getloadavg()[0]
    except OSError:
        return 0.0


def _memory_mb() -> int:
    try:
        with open("/proc/meminfo", "rb") as file:
            head = file.read(256)
        at = head.index(b"MemAvailable:")
        return int(head[at + 13 :].split(None, 1)[0]) >> 10
    except (OSError, ValueError, IndexError):
        return 0

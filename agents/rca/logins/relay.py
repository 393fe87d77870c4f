"""Relays CPAs of other login processors: local sockets here, TLS behind them (row A12).

The kernel identifies the client. Each client has its own connection to a CPA, whose first message names the client's
uid. So yod, pingd and the RCA itself see no difference.
"""

import os
import time
from collections.abc import Callable, Iterable
from functools import partial

from agents.link import trust
from agents.link.acceptor import Acceptor
from agents.link.journal import Journal
from agents.link.lean import Socket
from agents.link.link import Link
from agents.link.loop import Loop, Timer
from agents.link.peer_groups import groups_of_peer
from agents.link.server import refused
from agents.link.sockets import connect_now, listen, peer
from agents.link.user_limits import Busy, Intake, Users
from agents.linux.processes import start_time_of_user
from agents.rca.config import Config
from agents.rca.logins.routes import Routes
from agents.wire.control import Message, control, decode
from agents.wire.errors import AgentError, WireError
from agents.wire.frames import CONTROL, frame
from agents.wire.messages import check_hello, hello

#: Bytes that may wait for one end before reading from the other end pauses.
AHEAD, AHEAD_OF_USER = 1 << 20, 64 << 10
#: Seconds that a CPA has to say hello before another one is tried, and the delay before a client that no CPA serves is
#: disconnected, because it reconnects at once.
HELLO_S, AGAIN_S = 3.0, 0.1
#: Requests after which a CPA of another login processor relies on this RCA to watch the client's process.
WATCHED = frozenset(("allocate", "request", "moved"))

#: Gets the pid and the start time of a process to watch.
Watch = Callable[[int, int], object]


class Passage:
    """A client and its connection to a CPA: the first CPA that says hello gets everything the client has sent."""

    def __init__(
        self,
        loop: Loop,
        sock: Socket,
        number: int,
        ways: Routes,
        journal: Journal,
        users: Users | None,
        watch: Watch,
    ) -> None:
        self._loop, self._routes, self._journal, self._who = loop, ways, journal, peer(sock)
        self._watch, self._pid_started = watch, 0
        self._left = ways.order(number, time.monotonic())
        self._address = ""
        self._greeted = False
        self._said: list[bytes] | None = []  # data of the client, until a CPA has answered
        self._far: Link | None = None
        self._timer: Timer | None = None
        self._near = Link(loop, sock, self._on_near, self._on_near_end)
        self._near.owner = self._who.uid
        self._intake: Intake | None = None
        if users is not None and users.limits(self._who.uid):
            try:
                self._intake = Intake(users, users.connect(self._who.uid), self._near, self._drop)
            except Busy as error:
                self._near.send_raw(control(hello("cpa")) + control(refused(error)))
                self._near.close()
                return
        self._try_next()

    def _drop(self, reason: str) -> None:
        self._journal.write("client_dropped", uid=self._who.uid, reason=reason)
        self._near.close()
        self._on_near_end(self._near, reason)

    def _try_next(self) -> None:
        self._far = None
        while self._left:
            self._address = self._left.pop(0)
            try:
                far = Link(self._loop, connect_now(self._address), self._on_far, self._on_far_end)
            except (OSError, AgentError) as error:
                self._failed(getattr(error, "message", None) or str(error))
                continue
            self._far, far.owner = far, self._who.uid
            self._near.on_drained, far.on_drained = far.resume, self._on_far_drained
            for data in self._said or ():
                far.send_raw(data)
            if self._left:
                self._timer = self._loop.after(HELLO_S, partial(self._silent, far))
            return
        self._loop.after(AGAIN_S, self._let_go)

    def _let_go(self) -> None:
        self._near.close()
        self._over()

    def _over(self) -> None:
        if self._intake is not None:
            self._intake.over()

    def _failed(self, reason: str) -> None:
        self._journal.write("cpa_gone", address=self._address, reason=reason)
        self._routes.failed(self._address, time.monotonic())

    def _silent(self, far: Link) -> None:
        if self._far is far and self._said is not None:
            far.close()
            self._failed(f"no hello within {HELLO_S:g} s")
            self._try_next()

    def _on_near(self, _link: Link, kind: int, payload: bytes) -> None:
        who = self._who
        if self._intake is not None:
            self._intake.check(payload)
        self._pass_on(frame(kind, payload))
        if not self._greeted:
            if kind != CONTROL:
                raise WireError("the first message on a connection must be a hello")
            check_hello(decode(payload))
            self._greeted = True
            if self._intake is not None:
                self._intake.greeted()
            self._pid_started = start_time_of_user(who.pid, who.uid) if who.pid > 0 else 0
            vouched: Message = {"pid": who.pid, "pid_started": self._pid_started, "uid": who.uid, "gid": who.gid}
            groups = groups_of_peer(sock) if (sock := self._near.sock) is not None else None
            if groups is not None:
                vouched["groups"] = groups.as_text()
            self._pass_on(control({"op": "vouch", **vouched}))
        elif kind == CONTROL and self._pid_started and decode(payload).get("op") in WATCHED:
            self._watch(who.pid, self._pid_started)
        waiting = sum(map(len, self._said or ())) + (self._far.out_bytes if self._far is not None else 0)
        if self._intake is not None:
            self._intake.keep(waiting)
        if self._far is None or waiting > (AHEAD if self._intake is None else AHEAD_OF_USER):
            self._near.pause()

    def _pass_on(self, data: bytes) -> None:
        if self._said is not None:
            self._said.append(data)
        if self._far is not None:
            self._far.send_raw(data)

    def _on_far_drained(self) -> None:
        if self._said is None:
            if self._intake is not None:
                self._intake.keep(0)
            self._near.resume()

    def _on_near_end(self, _link: Link, _reason: str) -> None:
        self._left = []
        if self._timer is not None:
            self._timer.cancel()
        if self._far is not None:
            self._far.close(flush=True)
        self._over()

    def _on_far(self, _link: Link, kind: int, payload: bytes) -> None:
        if self._said is not None:
            self._said = None
            self._routes.works(self._address)
            if self._timer is not None:
                self._timer.cancel()
            self._near.resume()
        self._near.send_raw(frame(kind, payload))
        if self._intake is not None:
            self._intake.weigh()
        if self._near.out_bytes > AHEAD and self._far is not None:
            self._far.pause()

    def _on_far_end(self, _link: Link, reason: str) -> None:
        if self._said is None:
            self._journal.write("cpa_gone", address=self._address, reason=reason)
            self._near.close(flush=True, then=self._over)  # one of its user's connections until it has its answers
        else:
            if self._timer is not None:
                self._timer.cancel()
            self._failed(reason)
            self._try_next()


class Relay:
    """A local socket ``path`` for a CPA: number ``number`` of those granted, or another if that one is out of reach."""

    def __init__(
        self,
        loop: Loop,
        path: str,
        number: int,
        ways: Routes,
        journal: Journal,
        users: Users | None,
        watch: Watch,
        *,
        public: bool,
    ) -> None:
        self._loop, self._number, self._routes, self._journal, self._path = loop, number, ways, journal, path
        self._users, self._watch = users, watch
        self._sock = listen(path)
        if public:
            os.chmod(path, 0o666)
        self._acceptor = Acceptor(loop, self._sock, self._on_accept, journal.exhausted)

    def _on_accept(self, sock: Socket, _address: object) -> None:
        Passage(self._loop, sock, self._number, self._routes, self._journal, self._users, self._watch)

    def close(self) -> None:
        """Stop listening and disconnect the clients."""
        self._acceptor.close()
        self._sock.close()
        try:
            os.unlink(self._path)
        except OSError:
            pass


class Relays:
    """The relays of a login processor without a CPA. ``watch`` is called for each process that may get processors."""

    def __init__(self, loop: Loop, config: Config, journal: Journal, users: Users | None, watch: Watch) -> None:
        trust.use_login(config.mesh, config.state)
        self._routes = Routes(config.cpas_afar, config.login, config.cpa_port, config.run)
        self._relays = [
            Relay(loop, config.cpa_socket(number), number, self._routes, journal, users, watch, public=config.public)
            for number in range(len(config.cpas_afar))
        ]

    def learn(self, logins: Iterable[tuple[str, str, str]]) -> None:
        """Set the login processors, as in *nodes_out*."""
        self._routes.learn(logins)

    def close(self) -> None:
        """Close all relays."""
        for relay in self._relays:
            relay.close()

"""Actions on running launches and on nodes (pingd): signal, kill, reset. They run beside the dispatch loop.

Users may act on their own launches, administrators on all. A kill and a reset first clean up on the nodes. A reset also
frees what could not be cleaned, and takes such a node out of service, so that nothing starts beside what is left there.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from agents.cpa.cleanup.nodes import nodes_to_clean, told_of
from agents.cpa.cleanup.runner import Cleanups
from agents.cpa.operations import Operations
from agents.cpa.permissions import Denied, user_name
from agents.link.journal import Journal
from agents.link.link import Caller, Link
from agents.link.loop import Loop
from agents.link.sockets import connect_now
from agents.wire.control import Message, decode
from agents.wire.errors import AgentError
from agents.wire.frames import CONTROL
from agents.wire.messages import hello
from db.allocation import finish
from db.allocation.types import Live
from db.errors import StoreError
from db.machine import nodes_bulk
from db.store.outage import Outage
from db.views import deployment_reads

ANSWER_S = 3.0
#: Bytes that a yod may send before its answer; the size limit of the answer; the fixed cost of a frame.
_LONGEST_EVENT, _ANSWER, _FRAME_COST = 1 << 20, 4096, 64
_MOST = 10_000  # launchers or nodes in one request

Error = AgentError | StoreError
Done = Callable[[Message | None, Error | None], None]


class Untouched(AgentError):
    """Some of the requested actions failed."""

    code = "unclean"


class _Tally:
    """Collects several running actions and calls ``done(good, bad)`` after the last; ``bad`` has the reasons."""

    def __init__(self, count: int, done: Callable[[list[Any], dict[str, str]], None]) -> None:
        self._left, self._done = count, done
        self._good: list[Any] = []
        self._bad: dict[str, str] = {}

    def good(self, what: Any) -> None:
        self._good.append(what)
        self._through()

    def bad(self, what: str, why: str) -> None:
        self._bad[what] = why
        self._through()

    def _through(self) -> None:
        self._left -= 1
        if not self._left:
            self._done(self._good, self._bad)


class Interventions:
    """Runs actions; each request is answered when its actions are complete. Errors before the first action are
    raised."""

    #: Operations that this class handles.
    OPERATIONS = frozenset(("signal_launchers", "kill_launchers", "reset"))

    def __init__(
        self, loop: Loop, run: str, operations: Operations, outage: Outage, cleanups: Cleanups, journal: Journal
    ) -> None:
        self._loop, self._run = loop, run
        self._operations, self._outage, self._cleanups, self._journal = operations, outage, cleanups, journal

    def do(self, uid: int, message: Message, done: Done) -> None:
        """Begin an action; ``done(reply, error)`` is called at its end. Raises AgentError or StoreError."""
        found = self._outage.guard(lambda: self._found(uid, message))
        op = message["op"]
        if op == "signal_launchers":
            self._signal(found, message, done)
        elif op == "kill_launchers":
            self._kill(found, f"killed by {user_name(uid)}", done)
        else:
            self._reset(uid, found, message, done)

    def _found(self, uid: int, message: Message) -> list[Live]:
        wanted = message["launchers"]
        if len(wanted) > _MOST or not all(type(each) is int for each in wanted):
            raise AgentError(f"{message['op']}: launchers are ids, at most {_MOST}", code="invalid")
        found = []
        for launcher in dict.fromkeys(wanted):
            live = finish.find_live(self._operations.store, launcher)
            if live is None:
                continue  # it has ended meanwhile, as requested
            if live.uid != uid and not self._operations.rights.is_admin(uid):
                raise Denied(f"launcher {launcher} is {live.user}'s, and {user_name(uid)} is not an administrator")
            found.append(live)
        return found

    # Signals: the launcher forwards them to its ranks

    def _signal(self, launchers: Sequence[Live], message: Message, done: Done) -> None:
        number = message["signal"]
        if not 0 <= number < 65:
            raise AgentError(f"there is no signal {number}", code="invalid")
        elsewhere = self._outage.guard(lambda: self._elsewhere(launchers))
        told: Message = {"elsewhere": elsewhere} if elsewhere and message.get("elsewhere") else {}

        def through(good: list[Any], bad: dict[str, str]) -> None:
            if bad:
                said = "; ".join(f"launcher {launcher}: {why}" for launcher, why in sorted(bad.items()))
                done(None, Untouched(said, "pingd -kill ends it without its help"))
            else:
                done({"launchers": sorted(good), **told}, None)

        if number == 0:  # as in kill(2): only a check of the right
            through([live.launcher for live in launchers], {})
            return
        if elsewhere and not told:
            through([], {launcher: f"its yod is on login processor {login}" for launcher, login in elsewhere.items()})
            return
        here = [live for live in launchers if str(live.launcher) not in elsewhere]
        if not here:
            through([], {})
            return
        tally = _Tally(len(here), through)
        for live in here:
            _Signal(self._loop, self._yod_of(live), live, number, tally)

    def _elsewhere(self, launchers: Sequence[Live]) -> dict[str, str]:
        """The launchers whose yods are not on this host, with their login processors."""
        operations, found = self._operations, {}
        operations.machine.refresh(operations.store)
        for live in launchers:
            login = finish.login_of(operations.store, live.launcher)
            if login and login != operations.login and not operations.machine.is_here(login):
                found[str(live.launcher)] = login
        return found

    def _yod_of(self, live: Live) -> str:
        # In system mode a yod listens in its user's part of RUN (console/launch/daemons/connect.py).
        users = os.path.join(self._run, "users")
        directory = os.path.join(users, str(live.uid)) if os.path.isdir(users) else self._run
        return os.path.join(directory, f"yod-{live.launcher}.sock")

    # Clean-up

    def _kill(self, launchers: Sequence[Live], reason: str, done: Done) -> None:
        if not launchers:
            done({"launchers": []}, None)
            return

        def through(good: list[Any], bad: dict[str, str]) -> None:
            if bad:
                told = "; ".join(f"launcher {launcher}: {why}" for launcher, why in sorted(bad.items()))
                done(None, Untouched(f"not cleaned up: {told}", "say it again, or pingd -reset"))
            else:
                done({"launchers": sorted(good)}, None)

        tally = _Tally(len(launchers), through)
        for live in launchers:
            self._clean(live.launcher, self._nodes_of(live), self._freeing(live, reason, tally))

    def _freeing(self, live: Live, reason: str, tally: _Tally) -> Callable[[bool, str], None]:
        def then(clean: bool, said: str) -> None:
            error = self._lose(live.launcher, reason) if clean else None
            if clean and error is None:
                tally.good(live.launcher)
            else:
                tally.bad(str(live.launcher), said if error is None else error.message)

        return then

    def _nodes_of(self, live: Live) -> list[dict[str, str]]:
        return self._outage.guard(lambda: nodes_to_clean(self._operations, live.processors))

    def _clean(self, launcher: int, nodes: list[dict[str, str]], then: Callable[[bool, str], None]) -> None:
        began = time.monotonic()

        def through(clean: bool, said: str) -> None:
            seconds = round(time.monotonic() - began, 3)
            self._journal.write("cleanup", launcher=launcher, clean=clean, said=said, seconds=seconds)
            then(clean, said)

        self._cleanups.run(launcher, nodes, through)

    def _lose(self, launcher: int, reason: str) -> Error | None:
        try:
            self._outage.guard(lambda: finish.lose(self._operations.store, launcher, reason))
        except StoreError as error:
            return error
        return None

    # Reset

    def _reset(self, uid: int, launchers: Sequence[Live], message: Message, done: Done) -> None:
        admin = self._operations.rights.is_admin(uid)
        names = [str(name) for name in message.get("nodes", ())][:_MOST] if admin else []
        by = user_name(uid)
        _Reset(self, by, launchers, self._outage.guard(lambda: self._addresses(names)), done).begin()

    def _addresses(self, names: Sequence[str]) -> dict[str, str]:
        nodes = deployment_reads.places(self._operations.store)
        there = {node.name: node.address for node in nodes if node.role != "login"}
        for name in names:
            if name not in there:
                raise AgentError(f"there is no node {name[:80]!r} in this mesh", code="invalid")
        return {name: there[name] for name in names}

    def take_out(self, name: str, reason: str, by: str) -> None:
        """Take a node out of service: nothing new starts there."""
        self._quietly(lambda: nodes_bulk.drain(self._operations.store, [name], reason[:500], by))

    def put_back(self, name: str, by: str) -> None:
        """Return a node to service."""
        self._quietly(lambda: nodes_bulk.resume(self._operations.store, [name], by))

    def _quietly(self, work: Callable[[], object]) -> None:
        try:
            self._outage.guard(work)
        except StoreError as error:
            self._journal.write("fault", reason=error.message)


class _Reset:
    """One reset: clean up launchers, then everything else that PCTs still have, then return the nodes to service."""

    def __init__(
        self, all_: Interventions, by: str, launchers: Sequence[Live], nodes: dict[str, str], done: Done
    ) -> None:
        self._all, self._by, self._launchers, self._nodes, self._done = all_, by, launchers, nodes, done
        self._unclean: dict[str, str] = {}  # node -> reason

    def begin(self) -> None:
        """Begin with the launchers."""
        if not self._launchers:
            self._look()
            return
        tally = _Tally(len(self._launchers), lambda _good, _bad: self._look())
        for live in self._launchers:
            nodes = self._all._nodes_of(live)
            self._all._clean(live.launcher, nodes, self._cleaned(live, nodes, tally))

    def _cleaned(self, live: Live, nodes: list[dict[str, str]], tally: _Tally) -> Callable[[bool, str], None]:
        def then(clean: bool, said: str) -> None:
            if not clean:
                self._note_unclean([node["name"] for node in nodes], said)
            error = self._all._lose(live.launcher, f"reset by {self._by}")
            if error is None:
                tally.good(live.launcher)
            else:
                tally.bad(str(live.launcher), error.message)

        return then

    def _note_unclean(self, names: list[str], said: str) -> None:
        for name, why in told_of(names, said).items():
            self._unclean[name] = f"not clean after a reset: {why}"

    def _look(self) -> None:
        if not self._nodes:
            self._end()
            return
        tally = _Tally(len(self._nodes), lambda _good, _bad: self._end())
        for name, address in self._nodes.items():
            self._ask(name, address, tally)

    def _ask(self, name: str, address: str, tally: _Tally) -> None:
        """Have a PCT clean up launches that the database does not know."""
        over = False

        def through(reply: Message | None, error: AgentError | None) -> None:
            nonlocal over
            if over:
                return
            over = True
            caller.close()
            if reply is None:
                self._unclean.setdefault(name, error.message if error is not None else "its PCT does not answer")
                tally.good(name)
                return
            self._clean_strays(name, address, [entry["launcher"] for entry in reply.get("launches", ())], tally)

        try:
            sock = connect_now(address)
        except (OSError, AgentError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self._unclean.setdefault(name, f"its PCT does not answer: {reason}")
            tally.good(name)
            return
        caller = Caller(self._all._loop, sock, "cleanup", lambda _caller, reason: through(None, AgentError(reason)))
        caller.call({"op": "status"}, through)
        self._all._loop.after(ANSWER_S, lambda: through(None, None))

    def _clean_strays(self, name: str, address: str, launchers: list[int], tally: _Tally) -> None:
        store = self._all._operations.store
        try:
            strays = self._all._outage.guard(lambda: [one for one in launchers if not finish.find_live(store, one)])
        except StoreError as error:
            self._unclean[name] = error.message
            strays = []
        if not strays:
            tally.good(name)
            return
        inner = _Tally(len(strays), lambda _good, _bad: tally.good(name))
        for launcher in strays:

            def then(clean: bool, said: str, launcher: int = launcher) -> None:
                if not clean:
                    self._note_unclean([name], said)
                inner.good(launcher)

            self._all._clean(launcher, [{"name": name, "address": address}], then)

    def _end(self) -> None:
        for name, why in self._unclean.items():
            self._all.take_out(name, why, self._by)
        back = [name for name in self._nodes if name not in self._unclean]
        for name in back:
            self._all.put_back(name, self._by)
        self._done(
            {"launchers": [live.launcher for live in self._launchers], "nodes": back, "unclean": self._unclean}, None
        )


class _Signal:
    """A signal for one launch, sent through its launcher's socket (docs/protocol.md: yod and its observers)."""

    def __init__(self, loop: Loop, path: str, live: Live, number: int, tally: _Tally) -> None:
        self._launcher, self._tally, self._over = live.launcher, tally, False
        self._link: Link | None = None
        self._heard = 0
        try:
            # its user created the socket: check the owner, and do not wait for it
            sock = connect_now(path, owner=live.uid)
        except BlockingIOError:
            loop.after(0, lambda: self._end("its yod takes no connections"))
            return
        except (OSError, AgentError):
            loop.after(0, lambda: self._end("it does not run yet, or its yod has gone"))
            return
        self._link = Link(loop, sock, self._on_frame, lambda _link, reason: self._end(reason), limit=_LONGEST_EVENT)
        self._link.send(hello("observer"))
        self._link.send({"op": "attach", "replay": False, "output": False})
        self._link.send({"op": "signal", "signal": number, "ranks": None})
        loop.after(ANSWER_S, lambda: self._end(f"its yod has not answered within {ANSWER_S:g} s"))

    def _on_frame(self, _link: Link, kind: int, payload: bytes) -> None:
        # The listener is a user's process: data beyond the limit is not even parsed.
        self._heard += len(payload) + _FRAME_COST
        if self._heard > _LONGEST_EVENT:
            self._end("its yod says more than the answer")
        elif kind == CONTROL and len(payload) <= _ANSWER and decode(payload).get("event") == "signalled":
            self._end("")

    def _end(self, why: str) -> None:
        if self._over:
            return
        self._over = True
        if self._link is not None:
            self._link.close()
        if why:
            self._tally.bad(str(self._launcher), why)
        else:
            self._tally.good(self._launcher)

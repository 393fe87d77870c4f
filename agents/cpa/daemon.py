"""The dispatch loop: requests of all connections, one at a time, in order of arrival."""

import glob
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from agents.cpa.admin_actions import Interventions
from agents.cpa.cleanup.exited import ExitedProcesses
from agents.cpa.cleanup.launchers import Error, Lost
from agents.cpa.cleanup.nodes import LostNodes
from agents.cpa.cleanup.runner import Cleanups
from agents.cpa.config import Config
from agents.cpa.credentials import Issuing
from agents.cpa.line.delivery import Delivery
from agents.cpa.line.give_back_notices import GivingBack
from agents.cpa.line.post_backs import PostBacks
from agents.cpa.line.queue import Queue
from agents.cpa.line.requests import Requests
from agents.cpa.logins.processes import RECORDING, Process, groups_of, said_in, true_process
from agents.cpa.logins.registry import FROM_A_LOGIN, REACHING, VOUCH, Logins, vouched
from agents.cpa.operations import Answer, Operations
from agents.cpa.permissions import Denied, Rights
from agents.cpa.preemption_notices import GivingWay
from agents.cpa.side_wiping import OP, Switching
from agents.link import sockets, trust
from agents.link.journal import Journal
from agents.link.link import Caller
from agents.link.loop import Loop, Timer
from agents.link.server import Server, Session
from agents.link.sockets import connect_now
from agents.link.user_limits import Busy, Users
from agents.linux.peer_alive import is_there
from agents.wire.control import Message
from agents.wire.errors import AgentError
from agents.wire.messages import CPA, check_post_back
from db.allocation import finish, partitions, waiting_requests
from db.allocation.scheduling.line import Line, forget_ended
from db.allocation.types import Live
from db.errors import DatabaseUnavailable, NotEnough, StoreError
from db.store.outage import Outage, is_away
from db.store.store import Store

LOOK_S, LEAST_S = 1.0, 0.05
SWEEP_S = 60.0  # between looks for what other login processors have done, which their RCAs announce
AWAY_S = 5.0  # how often the timer retries a database that is away; requests retry once a second
CHECKPOINT_S = 60.0
TRIM_S, TRIM_MORE_S = 60.0, 0.2
AHEAD = 64  # queued requests of one connection

#: Operations that are also sent while nothing happens.
IDLE = frozenset(("nodes_out", "beat", "nodes_moved", "moved_elsewhere", "idle"))

#: Fields of a request that may be logged. Never log cookies, keys or commands.
LOGGED = ("launcher", "partition", "node", "login", "pid", "size", "mode", "user", "batch_job", "exit_status")


class Cpa:
    """A CPA. ``start`` listens; the event loop does the rest."""

    def __init__(self, loop: Loop, config: Config, name: str, store: Store, journal: Journal, owner: int) -> None:
        self.loop, self.config, self.name, self.store, self.journal = loop, config, name, store, journal
        self.rights = Rights(owner, config.admins, config.batch_accounts)
        self.outage = Outage(time.monotonic)
        self.operations = Operations(store, self.rights, config.placement, config.login)
        self.operations.pending_s, self.operations.loading_s = config.pending_s, config.loading_s
        self.operations.machine.policy = config.policy
        self.operations.machine.hides_texts = not config.show_commands
        self.operations.issuing = Issuing(config.mesh, config.state, config.pending_s)
        trust.use_login(config.mesh, config.state)
        self.logins = Logins(config.login, store, self.operations.machine, granted=config.granted)
        cleanups = Cleanups(loop, list(config.cleanup), variables={"CPA_MESH": config.mesh, "CPA_STATE": config.state})
        self.lost_nodes = LostNodes(self.loop, self.operations, self.outage, cleanups, journal)
        self.lost = Lost(self.operations, self.outage, cleanups, journal)
        self.interventions = Interventions(loop, config.run, self.operations, self.outage, cleanups, journal)
        self.switching = Switching(loop, self.operations, self.outage, journal)
        address = config.address(name)
        answers = self._transact, self._answer, self._refuse
        self.queue = Queue(loop, self.operations, self.outage, answers, journal, address)
        delivery = Delivery(loop, config, store, self.operations.machine, self.outage, journal)
        self.requests = Requests(self.operations, self.outage, journal, address, delivery, config.post_back_urls)
        line = Line(self.operations.machine, self.operations.understand, passing=config.backfill)
        store.serving, store.on_nodes_moved = line, self._nodes_moved
        self.post_backs = PostBacks(loop, self.operations, self.outage, line, journal, address)
        self.post_backs.queue, self.post_backs.requests = self.queue, self.requests
        self.giving_way = GivingWay(loop, self.operations, self.outage.guard, journal, config.nice_grace_s)
        self.giving_back = GivingBack(loop, self.operations, self.outage.guard, journal)
        self.post_backs.make_room, self.post_backs.on_elsewhere = self._make_room, self._nodes_moved
        after = self._released, config.unwatched_s
        self.exited = ExitedProcesses(loop, store, self.outage, self.lost, self.logins, journal, *after)
        self._announcing = False
        self._listeners: set[Session] = set()  # RCAs, which are told when the machine's state changes
        self._known_requesters = False  # the processes of requesters whose CPA died, perhaps together with them
        self._looks: Timer | None = None  # checks the database for due work soon after an event
        self._next: Timer | None = None  # the same, when the next reservation or request expires
        # Texts of launchers above this id are still to be hidden (db/allocation/full_texts.py); None: of no launcher.
        self._hide_after: int | None = None if config.show_commands else 0
        self._busy = False  # True if anything happened since history was last trimmed
        # Limits of users: all users of other login processors, and of this one if all may connect.
        self.users = Users(loop, journal) if config.public else None
        self.afar: Any = None  # the listener for other login processors
        self._requests: deque[tuple[Session, str, Message]] = deque()
        self._of_session: Counter[Session] = Counter()  # queued requests by session
        # undo actions for results without a requester, while the database is away
        self._undo: deque[Callable[[], object]] = deque()

    def start(self) -> None:
        """Listen and begin."""
        self.server = Server(
            self.loop, self.config.socket(self.name), "cpa", CPA, self._arrived, name=self.name,
            public=self.config.public, users=self.users,
        )  # fmt: skip
        self.server.on_session_end, self.server.on_exhausted = self._session_ended, self.journal.exhausted
        place = self.config.place(self.name)
        if place:
            from agents.cpa.logins.listener import Afar  # a mesh of one machine never imports TLS

            self.afar = Afar(self.loop, place, self.config.mesh, self._welcome_afar, self.journal)
        self.journal.write("started", socket=self.config.socket(self.name), listen=place, database=self.store.url)
        self._happened()
        self.exited.look_at_all_soon()
        self._tell_others("cpa_started")  # a CPA of this name may have been killed before it reported its last changes
        self._look_at_socket()
        self._every(CHECKPOINT_S, self._checkpoint)
        self._every(TRIM_S, self._trim)
        if self._hide_after is not None:
            self._every(TRIM_S, self._hide_stored, first_s=0.0)

    def stop(self) -> None:
        """Stop listening and end the loop. Nothing is lost: see agents/cpa/__init__.py."""
        self.journal.write("stopped")
        self.lost.stop()
        self.server.close()
        if self.afar is not None:
            self.afar.close()
        self.loop.stop()

    # --- requests

    def _welcome_afar(self, secured: Any) -> Session:
        return self.server.welcome(secured)

    def _arrived(self, session: Session, op: str, message: Message) -> None:
        if op == VOUCH:
            self._vouch(session, message)
            return
        if session.peer.uid < 0:
            raise Denied("an RCA names the user before it passes on a request")
        if session.intake is not None:  # it is this user's turn
            self._serve_one(session, op, message)
            return
        self._requests.append((session, op, message))
        self._of_session[session] += 1
        if self._of_session[session] >= AHEAD:
            session.link.pause()  # it has enough queued requests; its socket holds the rest
        if len(self._requests) == 1:
            self.loop.after(0, self._serve)

    def _vouch(self, session: Session, message: Message) -> None:
        self._happened()
        session.peer = vouched(session.peer, message)
        if self.users is not None and self.users.limits(session.peer.uid):
            try:
                session.serve_for(self.users.connect(session.peer.uid))
            except Busy as error:
                session.turn_away(error)

    def _serve(self) -> None:
        # One request for each round of the loop, so that new requests and closed connections are noticed in between.
        session, op, message = self._requests.popleft()
        if self._requests:
            self.loop.after(0, self._serve)
        self._count_off(session)
        self._serve_one(session, op, message)

    def _serve_one(self, session: Session, op: str, message: Message) -> None:
        if not is_there(session.link.sock):
            self.journal.write("not_served", op=op, uid=session.peer.uid)
            if session.intake is not None:
                session.dismiss("the connection ended")  # its other requests are not served either
            return
        began = time.monotonic()
        if op not in IDLE:
            self._happened()
        code = ""
        try:
            self._do(session, op, message)
        except (StoreError, AgentError) as error:
            code = error.code
            self._refuse(session, message, error)
        except Exception as error:
            code = "internal"
            self.journal.write("fault", op=op, uid=session.peer.uid, trace=traceback.format_exc())
            self._refuse(session, message, AgentError(f"{op}: fault inside {self.name}: {error!r}", "see its log"))
        shown = {key: message[key] for key in LOGGED if message.get(key) is not None}
        took_ms = round((time.monotonic() - began) * 1000, 2)
        if op not in IDLE or code:  # a log that grows while nothing happens buries what happened
            self.journal.write(op, uid=session.peer.uid, ms=took_ms, **({"code": code} if code else {}), **shown)

    def _count_off(self, session: Session) -> None:
        self._of_session[session] -= 1
        if not self._of_session[session]:
            del self._of_session[session]
            session.link.resume()

    def _do(self, session: Session, op: str, message: Message) -> None:
        if op != "beat" and (self.config.granted or session.peer.names):  # a beat says the time alone
            try:
                self.outage.guard(lambda: self.logins.need_member(session.peer))
            except Denied:
                self._look_soon()  # it was revoked: other connections of that login processor end too
                raise
        if op in FROM_A_LOGIN or op in REACHING:
            self.outage.guard(lambda: self.logins.check(session.peer, op, message))
        if op in RECORDING:
            self._put_process(session, message)
        if op == "launcher_lost":
            self._launcher_lost(session, message)
        elif op == OP:
            self.switching.do(session.peer.uid, message, lambda reply: self._switched(session, message, reply))
        elif op in Interventions.OPERATIONS:
            self._intervene(session, message)
        elif op == "finish" and message.get("lost"):
            self.lost_nodes.settle(message, lambda error: self._settled(session, message, error))
        elif op == "partition_destroy" and message.get("force"):
            self._destroy_by_force(session, message)
        elif op == "allocate" and message.get("wait_s", 0) > 0:
            self.queue.allocate_or_wait(session, message)
            self._watch_requester(session, message)
        elif op == "request":
            self._request(session, message)
        elif op == "posted":
            self._answer(session, message, self.outage.guard(lambda: self.requests.posted(session, message)))
        elif op == "collect":
            self._answer(session, message, self.outage.guard(lambda: self.requests.collect(session, message)))
        elif op == "cancel":
            self._answer(session, message, self.outage.guard(lambda: self.requests.cancel(session, message)))
        elif op == "nodes_moved":
            self.rights.need_daemon(session.peer.uid, op)
            self._look_soon()
            if session.role == "cpa":
                self._announce()
            else:
                self._nodes_moved()  # a command has changed them: the RCA may be connected to another CPA
            session.reply(message, {})
        elif op == "moved_elsewhere":
            self.rights.need_daemon(session.peer.uid, op)
            self._moved_elsewhere(tell=bool(message.get("tell")))
            session.reply(message, {})
        elif op == "cpa_started":
            self.rights.need_daemon(session.peer.uid, op)
            self._announce()
            session.reply(message, {})
            self.queue.find_granted()
            self.post_backs.post_all_unconfirmed()
        elif op == "granted":
            self.rights.need_daemon(session.peer.uid, op)
            check_post_back(message["post_back"])
            self.post_backs.receive(message["uid"], message["post_back"])
            session.reply(message, {})
        elif op == "allocate":
            self._allocate_now(session, message)
        elif op == "credential":
            self._issue(session, message)
        else:
            self._transact(session, message)

    def _settled(self, session: Session, message: Message, error: Error | None) -> None:
        try:
            if error is not None:
                raise error
            self._transact(session, message)
        except (StoreError, AgentError) as refusal:
            self._refuse(session, message, refusal)

    def _switched(self, session: Session, message: Message, reply: Message) -> None:
        session.reply(message, reply)
        self._released()

    def _transact(self, session: Session, message: Message) -> None:
        uid, op = session.peer.uid, message["op"]
        answer = self.outage.guard(lambda: self.operations.do(op, uid, message))
        if op in ("allocate", "moved"):
            self._watch_launcher(session, message, {**message, **answer.message}["launcher"])
        elif op in ("finish", "free"):
            self.exited.ended(message["launcher"])
        elif op == "nodes_out":
            self._listeners.add(session)
        elif op == "launchers_of" and not session.peer.names:
            self.exited.look_at_all_soon()  # the RCA has lost its CPA, which may have watched launches
        self._answer(session, message, answer)

    def _allocate_now(self, session: Session, message: Message) -> None:
        try:
            self._transact(session, message)
        except NotEnough as error:
            if not error.never:
                error.hint = self.giving_way.hint(session.peer.uid, message) or error.hint
            raise

    def _issue(self, session: Session, message: Message) -> None:
        # Elsewhere than in system mode a node runs one user's launches, and cannot set groups.
        groups = groups_of(session.peer, session.link.sock) if self.config.public else None
        issued = self.outage.guard(lambda: self.operations.credential(session.peer.uid, message, groups))
        self._answer(session, message, issued)

    def _request(self, session: Session, message: Message) -> None:
        for row in self.requests.request(session, message):
            self.post_backs.post_unconfirmed(row)
        self._watch_requester(session, message)

    def _put_process(self, session: Session, message: Message) -> None:
        """Put the true process into a request; a launch stays on its login processor."""
        peer = session.peer
        if message["op"] == "moved":
            login = self.outage.guard(lambda: finish.login_of(self.store, message["launcher"]))
            message["login"] = self.outage.guard(lambda: self.logins.login_of(peer, login))
        process = true_process(peer, said_in(message), trusted=self.rights.is_owner(peer.uid))
        message["pid"], message["pid_started"] = process

    def _watch_requester(self, session: Session, message: Message) -> None:
        """Watch for the exit of a waiting process, so that no request waits behind it."""
        if not session.peer.names:
            self.exited.requests(message["login"], Process(message["pid"], message["pid_started"]))

    def _watch_launcher(self, session: Session, message: Message, launcher: int) -> None:
        if not session.peer.names:
            note = self.exited.moved if message["op"] == "moved" else self.exited.has
            note(message["login"], Process(message["pid"], message["pid_started"]), launcher)

    def _nodes_moved(self) -> None:
        """A transaction of this CPA has changed nodes, or granted something to a request at another login processor."""
        self.operations.nodes_moved()
        if not self._announcing:
            self._announcing = True
            self.loop.after(0, self._announce_moves)

    def _announce_moves(self) -> None:
        self._announcing = False
        self._announce()
        self._tell_others("nodes_moved")

    def _announce(self) -> None:
        """Tell RCAs that the machine's state has changed, which they may read."""
        self.operations.nodes_moved()
        for session in self._listeners:
            session.link.send({"notice": "nodes_out"})

    def _moved_elsewhere(self, *, tell: bool) -> None:
        """A CPA of another login processor has changed nodes, or granted something to a request that waits here."""
        self.operations.nodes_moved()
        self._look_soon()
        if tell:
            self._tell_others("moved_elsewhere")

    def _tell_others(self, op: str) -> None:
        """Tell the other CPAs of this login processor, which answer *nodes_out* from memory while every node is up, and
        whose RCAs wait for the news."""
        for path in glob.glob(self.config.socket("cpa-*")):
            if path != self.config.socket(self.name):
                try:
                    caller = Caller(self.loop, connect_now(path), "cpa", lambda _caller, _reason: None)
                except (OSError, AgentError):
                    continue  # that CPA is not running, or has just started and holds no state
                caller.call({"op": op}, self._closing(caller))

    def _closing(self, caller: Caller) -> Callable[[Message | None, AgentError | None], None]:
        def answered(_reply: Message | None, _error: AgentError | None) -> None:
            self.loop.after(0, caller.close)

        return answered

    def _launcher_lost(self, session: Session, message: Message) -> None:
        self.rights.need_daemon(session.peer.uid, "launcher_lost")
        who = (message["login"], message["pid"], message["pid_started"])
        launchers = self.outage.guard(lambda: self._find_lost(*who))
        self.lost.clear(launchers, message["reason"], lambda error: self._cleared(session, message, launchers, error))

    def _intervene(self, session: Session, message: Message) -> None:
        def done(reply: Message | None, error: Error | None) -> None:
            session.reply(message, reply if reply is not None else {"error": (error or AgentError("no")).as_message()})
            self._released()

        self.interventions.do(session.peer.uid, message, done)

    def _find_lost(self, login: str, pid: int, pid_started: int) -> list[Live]:
        waiting_requests.drop_process(self.store, login, pid, pid_started)
        return finish.launchers_of_process(self.store, login, pid, pid_started)

    def _destroy_by_force(self, session: Session, message: Message) -> None:
        def gently() -> list[Live]:
            try:
                self.operations.do("partition_destroy", session.peer.uid, dict(message, force=False))
            except partitions.PartitionInUse:  # after the cookie was checked
                return finish.launchers_in(self.store, message["partition"])
            return []

        launchers = self.outage.guard(gently)
        self.lost.clear(
            launchers, partitions.DESTROYED, lambda error: self._cleared(session, message, launchers, error)
        )

    def _cleared(self, session: Session, message: Message, launchers: list[Live], error: Error | None) -> None:
        try:
            if error is not None:
                raise error
            if message["op"] == "partition_destroy":
                self._transact(session, message)
            else:
                session.reply(message, {"launchers": [live.launcher for live in launchers]})
        except (StoreError, AgentError) as refusal:
            self._refuse(session, message, refusal)
        self._released()

    def _answer(self, session: Session, message: Message, answer: Answer) -> None:
        if answer.undo is not None and not is_there(session.link.sock):
            self.journal.write(
                "undone", op=message["op"], uid=session.peer.uid, launcher=answer.message.get("launcher")
            )
            self._undo.append(answer.undo)
            self._undo_now()
            return
        session.reply(message, answer.message)
        if answer.released:
            self._released()

    def _refuse(self, session: Session, message: Message, error: StoreError | AgentError) -> None:
        session.reply(message, {"error": error.as_message()})

    def _session_ended(self, session: Session, reason: str) -> None:
        if reason != "the connection ended":
            self.journal.write("session_ended", uid=session.peer.uid, reason=reason)
        self._listeners.discard(session)
        self.queue.session_ended(session)
        self.requests.session_ended(session)

    # --- due work

    def _released(self) -> None:
        self._happened()  # waiting requests were served in the same transaction

    def _make_room(self, uid: int, message: Message) -> None:
        if not self.giving_way.make_room(uid, message):
            self.giving_back.make_room(uid, message)

    def _undo_now(self) -> None:
        while self._undo:
            try:
                self.outage.guard(self._undo[0])
            except StoreError as error:
                if is_away(error):
                    return  # the timer tries again
                # Otherwise a repeated request has taken it over under another cookie.
            self._undo.popleft()
            self._released()

    def _look_at_socket(self) -> None:
        # Separate from the database's due work, because the database may be away.
        self.loop.after(sockets.LOOK_S, self._look_at_socket)
        try:
            if self.server.listen_again():
                self.journal.write("socket_made_again", socket=self.config.socket(self.name))
        except (OSError, AgentError):
            pass  # the directory does not exist yet; the keeper's log has the reason

    def _happened(self) -> None:
        """Schedule a check for due work, because something happened. While nothing happens, nothing is checked."""
        self._busy = True
        if self._looks is None:
            self._looks = self.loop.after(LOOK_S, self._look)

    def _look_soon(self) -> None:
        """Check for due work now, because of an event elsewhere."""
        if self._looks is not None:
            self._looks.cancel()
        self._looks = self.loop.after(0, self._look)

    def _look(self) -> None:
        self._looks = None
        if self._next is not None:
            self._next.cancel()
            self._next = None
        again_s: float | None = AWAY_S
        try:
            again_s = self.outage.guard(self._look_after)
        except DatabaseUnavailable as error:
            self.journal.write("database_away", reason=error.message)
        except StoreError as error:
            self.journal.write("fault", reason=error.message)
        except Exception:  # later due work must not depend on this
            self.journal.write("fault", trace=traceback.format_exc())
        if again_s is not None:
            self._next = self.loop.after(max(again_s, LEAST_S), self._look)

    def _look_after(self) -> float | None:
        """Do due work; returns the seconds until the next due time, or None if only an event can make work due."""
        self._undo_now()
        if not self._known_requesters:
            for pid, started in waiting_requests.processes_of(self.store, self.config.login):
                self.exited.requests(self.config.login, Process(pid, started))
            # Requests that waited when the managers were changed may be in lines that no longer exist.
            waiting_requests.classify(self.store, self.operations.place_of)
            self.requests.find_outside()
            self.post_backs.post_all_unconfirmed()
            self._known_requesters = True
        late, due_s = self.operations.expire()
        elsewhere_s = SWEEP_S if self.config.rca_listens else LOOK_S
        self.post_backs.too_late(late)
        if self.config.granted or any(session.peer.names for session in self.server.sessions.values()):
            due_s = min(due_s or elsewhere_s, elsewhere_s)  # a login processor may be revoked elsewhere
        for session in list(self.server.sessions.values()):
            refusal = self.logins.refusal(session.peer)
            if refusal is not None:
                self.queue.refuse(session, refusal)
                session.dismiss("its login processor was revoked")
        self.operations.keep_ready()
        if len(self.operations.machine.logins()) > 1 and (len(self.queue) or len(self.requests)):
            # CPAs of other login processors announce grants to requests that wait here only by RCAs, if those listen.
            self.queue.find_granted()
            self.requests.find_outside()
            self.post_backs.post_all_unconfirmed()
            due_s = min(due_s or elsewhere_s, elsewhere_s)
        return LOOK_S if self._undo else due_s

    def _checkpoint(self) -> None:
        if self._busy:
            self.store.checkpoint()

    def _trim(self) -> float | None:
        if not self._busy:
            return None
        self._busy = False
        forget_ended(self.store)
        more = self.operations.trim(self.config.history_days, self.config.history_rows)
        return TRIM_MORE_S if more else None

    def _hide_stored(self) -> float | None:
        if self._hide_after is not None:
            self._hide_after = self.operations.hide_stored(self._hide_after)
        return None if self._hide_after is None else TRIM_MORE_S

    def _every(self, period_s: float, work: Callable[[], float | None], first_s: float | None = None) -> None:
        """Run ``work`` repeatedly, for the first time after ``first_s`` (None: ``period_s``).

        It returns the seconds until its next run; None: ``period_s``.
        """

        def due() -> None:
            pause_s = period_s
            try:
                sooner_s = self.outage.guard(work)
                pause_s = period_s if sooner_s is None else sooner_s
            except DatabaseUnavailable as error:
                pause_s = max(period_s, AWAY_S)
                self.journal.write("database_away", reason=error.message)
            except StoreError as error:
                self.journal.write("fault", reason=error.message)
            except Exception:  # later due work must not depend on this
                self.journal.write("fault", trace=traceback.format_exc())
            self.loop.after(pause_s, due)

        self.loop.after(period_s if first_s is None else first_s, due)

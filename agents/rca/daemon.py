"""The RCA's sockets, timers and /proc checks, around its state machines (launchers, nodes, outbox)."""

from __future__ import annotations

import os
import time

from agents.link.journal import Journal
from agents.link.loop import Loop
from agents.link.server import Server, Session
from agents.link.sockets import LOOK_S, give_room, own_directory
from agents.link.user_limits import Busy, Users
from agents.linux.process_ends import ProcessEnds
from agents.linux.processes import is_gone, start_time_of_user, state
from agents.rca import launchers, nodes
from agents.rca.config import Config
from agents.rca.cpas import Cpas
from agents.rca.datagrams import MeshClock, RemoteNode, RemoteNodes
from agents.rca.logins.members import Members
from agents.rca.machine_changes import MachineChanges, MachineState
from agents.rca.moving_jobs import MovingJobs
from agents.rca.outbox import Event, Outbox
from agents.wire.control import Message
from agents.wire.errors import AgentError
from agents.wire.messages import RCA

TYPE_CHECKING = False  # importing typing costs every RCA 6 ms
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

TICK_S = 0.25
STOPPED = "T"  # the state letter of a process that job control has stopped
LATE_S = 1.0  # a tick this late means that this process itself was stopped
KEYS_S = 2.0  # between checks of the key file
#: Ends of launches that one user may leave here for a CPA, and the bytes of all of them.
MOST_FINISHES, FINISH_BYTES = 4096, 4 << 20
#: Seconds after the exit of a CPA's client in which its *finish* may arrive there.
FINISH_S = 5.0
ALONE_S = 4.5  # without an answer from any CPA for this long, nodes should use another RCA


class KnownNode:
    """A node's state machine, the contents of its PCT's registration, and the session of its heartbeats."""

    __slots__ = ("facts", "machine", "session")

    def __init__(self, machine: nodes.Node, facts: Message, session: Session | None) -> None:
        self.machine, self.facts, self.session = machine, facts, session


class Rca:
    """An RCA. ``start`` listens and begins; the event loop does the rest."""

    def __init__(self, loop: Loop, config: Config, journal: Journal, owner: int) -> None:
        self.loop, self.config, self.journal, self.owner = loop, config, journal, owner
        self.outbox = Outbox()
        self.users = Users(loop, journal) if config.public else None
        self.launchers: dict[int, tuple[launchers.Launcher, Session]] = {}  # by id of the session
        self._registered: dict[tuple[int, int], int] = {}  # process (pid, start time) → key in launchers
        self.nodes: dict[str, KnownNode] = {}
        self.far: RemoteNodes | None = None  # nodes on other machines
        self.members: Members | None = None  # RCAs of other login processors
        self.relays: Any = None  # to CPAs of other login processors
        self.mesh_clock = MeshClock()
        self.moving_jobs = MovingJobs(config.login, config.installed, journal)
        # launchers that a CPA knows and that are not registered here, with the time since when
        self.unregistered: dict[tuple[int, int], float] = {}
        self.ends = ProcessEnds(loop, self._on_requester_ended)  # exits of processes whose requests wait for processors
        # Processes that got processors from a CPA of another login processor, which cannot watch them.
        self.clients = ProcessEnds(loop, self._on_client_ended)
        self._exited: set[tuple[int, int]] = set()  # of these, until the CPA was asked what they left
        self.cpas = Cpas(
            loop,
            [config.cpa_socket(number) for number in range(max(1, config.cpas, len(config.cpas_afar)))],
            self._on_cpa_connected,
            self._on_cpa_lost,
        )
        self.cpas.on_notice = self._on_notice
        self.changes = MachineChanges(
            loop, self.cpas, near=self._alone, failed_s=config.failed_s, on_state=self._on_machine,
            on_time=self._on_time, is_uncertain=self._is_uncertain,
        )  # fmt: skip
        self._ticked_at = self._began_at = self._answered_at = time.monotonic()
        self._missing_told = False
        self._looked_at = 0.0

    def start(self) -> None:
        """Listen, connect to a CPA, start the timers."""
        self.server = Server(
            self.loop, self.config.socket, "rca", RCA, self._on_request, name=self.config.login,
            public=self.config.public, users=self.users,
        )  # fmt: skip
        self.server.on_session_end, self.server.on_exhausted = self._on_session_end, self.journal.exhausted
        self._listen_afar()
        if self.config.cpas_afar:
            from agents.rca.logins.relay import Relays

            self.relays = Relays(self.loop, self.config, self.journal, self.users, self.clients.watch)
        self.journal.write("started", socket=self.config.socket, listen=self.config.listen)
        self.cpas.start()
        self.loop.after(TICK_S, self._tick)
        self.changes.start()
        if self.far is not None:
            self.loop.after(KEYS_S, self._look_at_keys)

    def stop(self) -> None:
        """Stop listening and end the loop. Launchers and PCTs will register with the next RCA."""
        self.journal.write("stopped")
        self.cpas.close()
        if self.relays is not None:
            self.relays.close()
        self.server.close()
        if self.far is not None:
            self.far.close(self.loop)
        self.loop.stop()

    # --- messages of launchers and PCTs

    def _on_request(self, session: Session, op: str, message: Message) -> None:
        getattr(self, "_do_" + op)(session, message)

    def _do_register(self, session: Session, message: Message) -> None:
        # The kernel says which process this is. In a pid namespace of its own, a launcher does not know its pid here.
        pid, uid = session.peer.pid, session.peer.uid
        pid_started = start_time_of_user(pid, uid) if pid > 0 else 0
        if not pid_started:
            seen = f"process {pid} has exited" if pid > 0 else "its pid namespace is not visible to the RCA"
            raise AgentError(f"a launcher registers itself, while it runs: {seen}", code="denied")
        self._replace(pid, pid_started, session)
        launcher = launchers.Launcher(
            pid, pid_started, message.get("launcher"), time.monotonic(), message.get("login", ""), uid
        )
        self.launchers[id(session)] = (launcher, session)
        self.unregistered.pop((pid, pid_started), None)
        if self.config.public:
            self._make_room(session.peer.uid, session.peer.gid)
        session.reply(message, {})

    def _replace(self, pid: int, pid_started: int, session: Session) -> None:
        # A process has only its last registration; otherwise it could make the RCA watch a thousand.
        key = self._registered.pop((pid, pid_started), None)
        known = self.launchers.pop(key, None) if key is not None else None
        if known is not None and known[1] is not session:
            known[1].forget()
        self._registered[pid, pid_started] = id(session)

    def _make_room(self, uid: int, gid: int) -> None:
        # In system mode: where this user's yods listen for observers.
        path = os.path.join(self.config.run, "users", str(uid))
        try:
            own_directory(os.path.dirname(path), public=True)
            give_room(path, uid, gid)
        except OSError as error:
            raise AgentError(f"{path}: {error.strerror}", "its administrator looks after /run") from None

    def _do_launcher(self, session: Session, message: Message) -> None:
        self._launcher_of(session).launcher = message["launcher"]

    def _do_beat(self, session: Session, message: Message) -> None:
        now = time.monotonic()
        if isinstance(session.state, KnownNode):
            if session.state.session is session:
                actions = session.state.machine.handle(nodes.Event.BEAT, now)
                if "shared" in message:
                    session.state.facts["shared"] = message["shared"]
                    actions = actions or (nodes.TELLING[nodes.State.UP],)
                self._tell_node(session.state, actions)
        else:
            self._launcher_of(session).handle(launchers.Event.BEAT, now)

    def _do_unregister(self, session: Session, message: Message) -> None:
        self._launcher_of(session).handle(launchers.Event.UNREGISTER, time.monotonic())
        self._forget_launcher(id(session))
        session.reply(message, {})

    def _do_finish(self, session: Session, message: Message) -> None:
        launcher, now = self._launcher_of(session), time.monotonic()
        if launcher.state is launchers.State.ENDING and launcher.launcher != message["launcher"]:
            raise AgentError(f"launcher {launcher.launcher} has ended on this connection already", code="invalid")
        self._limit_finishes(session)
        launcher.launcher = message["launcher"]
        if launchers.Action.RELAY_FINISH in launcher.handle(launchers.Event.FINISH, now):
            finish = {key: value for key, value in message.items() if key not in ("id", "re")}
            about: dict[str, Any] = {"launcher": launcher.launcher, "pid": launcher.pid}
            about["pid_started"] = launcher.pid_started
            about.update(uid=session.peer.uid, bytes=session.request_bytes)
            # Keyed by user, so that a user who guesses a launcher's number cannot replace another user's report.
            self.outbox.put(("finish", session.peer.uid, launcher.launcher), finish, about, now)
            self.journal.write("finish_kept", **about)
            self._send_due(now)
        session.reply(message, {})

    def _limit_finishes(self, session: Session) -> None:
        if session.intake is not None:
            uid = session.peer.uid
            left = (event.about for event in self.outbox if event.about.get("uid") == uid)
            sizes = [int(about["bytes"]) for about in left if "bytes" in about]  # others are of lost launchers
            kept = len(sizes)
            if kept >= MOST_FINISHES or sum(sizes) + session.request_bytes > FINISH_BYTES:
                raise Busy(f"uid {uid} has left {kept} ends of launches with this RCA", "ask a CPA, or try again later")

    def _launcher_of(self, session: Session) -> launchers.Launcher:
        known = self.launchers.get(id(session))
        if known is None:
            raise AgentError("nobody has registered on this connection", "register first", code="invalid")
        return known[0]

    def _do_register_node(self, session: Session, message: Message) -> None:
        if session.peer.uid not in (0, self.owner) or session.peer.pid != message["pid"]:
            raise AgentError("a PCT registers itself, and belongs to the mesh's owner", code="denied")
        name, now = message["node"], time.monotonic()
        known = self.nodes.get(name)
        if known is None:
            known = self.nodes[name] = KnownNode(nodes.Node(now), message, session)
        elif known.session is not None and _is_newer(known.facts, message):
            raise AgentError(f"{name} has a newer PCT than this one", code="denied")
        known.facts, known.session = message, session
        session.state = known
        self._tell_node(known, known.machine.handle(nodes.Event.REGISTER, now))
        session.reply(message, {})

    def _do_status(self, session: Session, message: Message) -> None:
        session.reply(
            message,
            {
                "launchers": [
                    {"pid": each.pid, "pid_started": each.pid_started, "launcher": each.launcher}
                    for each, _ in self.launchers.values()
                ],
                "nodes": [{"node": name, "state": each.machine.state.value} for name, each in self._all_nodes()],
                "events": len(self.outbox),
            },
        )

    def _on_session_end(self, session: Session, reason: str) -> None:
        now = time.monotonic()
        known = session.state
        if isinstance(known, KnownNode) and known.session is session:
            known.session = None
            known.machine.handle(nodes.Event.LINK_ENDED, now, reason)
        launcher = self._forget_launcher(id(session))
        if launcher is None:
            return
        if session.dropped:  # we closed the connection: the PCT may be alive, and registers again
            self.unregistered.setdefault((launcher.pid, launcher.pid_started), now)
            self.journal.write("dropped", uid=session.peer.uid, launcher=launcher.launcher, reason=reason)
        else:
            self._act(launcher, launcher.handle(launchers.Event.LINK_ENDED, now, "it is gone without a word"), now)

    def _forget_launcher(self, key: int) -> launchers.Launcher | None:
        known = self.launchers.pop(key, None)
        if known is None:
            return None
        launcher = known[0]
        if self._registered.get((launcher.pid, launcher.pid_started)) == key:
            del self._registered[launcher.pid, launcher.pid_started]
        return launcher

    # --- timers

    def _tick(self) -> None:
        now = time.monotonic()
        gap, self._ticked_at = now - self._ticked_at - TICK_S, now
        if gap > LATE_S:  # this process was stopped, so the others' silence does not count
            self._forgive(gap, now)
            self.journal.write("late", seconds=round(gap, 3))
        elif self.config.job and state(self.config.job) == STOPPED:
            # The batch system suspended the job, and with it the agents of its nodes. It may not know of this process.
            self._forgive(gap + TICK_S, now)
        self._look_at_socket(now)
        self._look_at_launchers(now)
        self._look_at_unregistered(now)
        for known in self.nodes.values():
            self._tell_node(known, known.machine.tick(now, self.config.suspect_s, self.config.down_s))
        if self.far is not None:
            self._look_at_far_nodes(self.far, now)
        self._tell_missing_nodes(now)
        self.cpas.tick(now)
        self._send_due(now)
        self.loop.after(TICK_S, self._tick)

    def _forgive(self, gap: float, now: float) -> None:
        """Do not count the last ``gap`` seconds of anybody's silence."""
        for launcher, _ in self.launchers.values():
            launcher.forgive(gap)
        for known in self.nodes.values():
            known.machine.forgive(gap, now)
        if self.far is not None:
            self.far.forgive(gap)
        self.unregistered = {who: since + gap for who, since in self.unregistered.items()}
        self._began_at += gap

    def _look_at_socket(self, now: float) -> None:
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        try:
            if not self.server.listen_again():
                return
            self.journal.write("socket_made_again", socket=self.config.socket)
            if self.config.public:
                for _, session in self.launchers.values():
                    self._make_room(session.peer.uid, session.peer.gid)
        except (OSError, AgentError):
            pass  # the directory does not exist yet; the keeper's log has the reason

    def _look_at_launchers(self, now: float) -> None:
        for key, (launcher, session) in list(self.launchers.items()):
            if not launcher.wants_look(now):
                continue
            there, stopped = not is_gone(launcher.pid, launcher.pid_started), state(launcher.pid) == STOPPED
            self._act(launcher, launcher.seen(there, stopped, self.config.silent_s, now), now)
            if launcher.state in launchers.OVER:
                self._forget_launcher(key)
                session.forget()

    def _look_at_unregistered(self, now: float) -> None:
        # Its process runs, so it gets as long as a registered launcher that is silent.
        allowed_s = max(self.config.register_again_s, self.config.silent_s)
        for (pid, pid_started), since in list(self.unregistered.items()):
            if is_gone(pid, pid_started):
                self._report_lost(pid, pid_started, None, "its process is gone", now)
            elif self._was_refused(pid):
                self.unregistered[pid, pid_started] = now
                continue
            elif now - since >= allowed_s and state(pid) != STOPPED:
                self._report_lost(pid, pid_started, None, f"not registered within {allowed_s:g} s", now)
            else:
                continue
            del self.unregistered[pid, pid_started]

    def _was_refused(self, pid: int) -> bool:
        # We refuse further connections of its user, so its missing registration proves nothing.
        if self.users is None:
            return False
        try:
            uid = os.stat(f"/proc/{pid}").st_uid
        except OSError:
            return False
        return self.users.refused_lately(uid, self.config.register_again_s)

    def _tell_missing_nodes(self, now: float) -> None:
        # A PCT that died while no RCA ran never registers, and the database must not show it up for ever.
        if self._missing_told or now - self._began_at < self.config.register_again_s:
            return
        self._missing_told = True
        for name in self.config.nodes:
            if name not in self.nodes:
                facts = {"node": name, "boot_id": self.config.boot_id, "incarnation": 0}
                known = self.nodes[name] = KnownNode(nodes.Node(now), facts, None)
                known.machine.reason = "its PCT has not registered"
                self._tell_node(known, (nodes.Action.TELL_DOWN,))

    # --- nodes on other machines

    def _listen_afar(self) -> None:
        config = self.config
        if config.listen:
            self.far = RemoteNodes(self.loop, config, self.journal, self._on_far_event, self.mesh_clock.now)
            self.members = Members(
                self.loop, config, self.far, self.outbox, self.journal, self._ask_cpa, self._tell_all_nodes,
                self._on_news,
            )  # fmt: skip

    def _look_at_keys(self) -> None:
        self.loop.after(KEYS_S, self._look_at_keys)
        if self.far is not None:
            self.far.look_at_keys()

    def _ask_cpa(self, message: dict[str, Any], then: Callable[[dict[str, Any]], None]) -> None:
        def answered(reply: dict[str, Any] | None, _error: AgentError | None) -> None:
            if reply is not None:
                then(reply)

        self.cpas.call(message, time.monotonic(), answered)

    def _all_nodes(self) -> Iterator[tuple[str, KnownNode | RemoteNode]]:
        yield from self.nodes.items()
        if self.far is not None:
            yield from self.far.nodes.items()

    def _on_far_event(self, known: RemoteNode, event: nodes.Event, reason: str, at: float) -> None:
        actions = known.machine.handle(event, at, reason)
        if actions:
            self._tell_node(known, actions)

    def _far_suspect_s(self, far: RemoteNodes | None) -> float:
        return max(self.config.suspect_s, 1.5 * far.interval_s if far is not None else 0.0)

    def _look_at_far_nodes(self, far: RemoteNodes, now: float) -> None:
        # A node that lost a beat sends another within a second; it is suspect if that one is missing too.
        suspect_s = self._far_suspect_s(far)
        silent_since = now - suspect_s
        far.alone = now - self._answered_at > ALONE_S
        for known in far.nodes.values():
            if known.machine.heard_at < silent_since:
                self._tell_node(known, known.machine.tick(now, suspect_s, max(self.config.down_s, 1.5 * suspect_s)))
        far.tell_refusals(now)
        # Longer than any lease: what an unknown PCT may still have run has ended by then.
        for name in far.missing(self.config.down_s):
            known = far.expect(name)
            known.facts = {"node": name, "boot_id": far.knows[0], "incarnation": 0}
            known.machine.reason = "its PCT has not been heard of"
            self._tell_node(known, (nodes.Action.TELL_DOWN,))

    @property
    def _alone(self) -> bool:
        """True if this mesh has no node on another machine and can have no other login processor: a CPA of its own
        changes all that *nodes_out* has, and knows it without the database."""
        return not self.config.listen and not self.config.cpas_afar and not self.config.cpa_listen

    def _is_uncertain(self) -> bool:
        if self._alone:
            return False
        return self.members is None or self.members.is_uncertain() or self.moving_jobs.any

    def _on_notice(self, _text: str) -> None:
        """The CPA has a change of the machine to tell, or a grant to somebody at another login processor."""
        self.changes.read()
        if self.members is not None:
            self.members.peers.announce()

    def _on_news(self) -> None:
        """Something has changed at another login processor."""
        self.changes.read()
        self._tell_moved_elsewhere()

    def _tell_moved_elsewhere(self) -> None:
        self.cpas.call({"op": "moved_elsewhere", "tell": True}, time.monotonic(), lambda _reply, _error: None)

    def _on_time(self, now: float, asked_at: float) -> None:
        self._answered_at = time.monotonic()
        if self.far is not None:
            self.mesh_clock.learn(now, asked_at, self._answered_at)

    def _on_machine(self, machine: MachineState, asked_at: float) -> None:
        """Tell nodes what they do not know, now that a CPA was asked.

        A node whose boot is given up must be told. A node that was reported as failed is used again after its rest,
        even if its PCT could not be told of the report.
        """
        self._on_time(machine.now, asked_at)
        if self._is_uncertain():
            self._tell_moved_elsewhere()
        self._tell_rested(self.nodes, machine)
        self.moving_jobs.learn(machine.moving)
        if self.far is None:
            return
        if self.members is not None:
            self.members.learn(machine)
        if self.relays is not None:
            self.relays.learn(machine.logins)
        for name, boot_id in machine.given_up:
            known = self.far.nodes.get(name)
            if known is not None and known.boot_id == boot_id and known.machine.state is not nodes.State.DOWN:
                self._give_up(known)
                self.journal.write("given_up", node=name, boot_id=boot_id)
        self._tell_rested(self.far.nodes, machine)

    def _tell_rested(self, known_nodes: Mapping[str, KnownNode | RemoteNode], machine: MachineState) -> None:
        # another RCA may have reported the latter as suspect
        for name in (*machine.rested, *machine.suspect):
            known = known_nodes.get(name)
            if known is not None and known.machine.state is nodes.State.UP:
                self._tell_node(known, (nodes.Action.TELL_UP,))

    # --- reports to CPAs

    def _act(self, launcher: launchers.Launcher, actions: tuple[launchers.Action, ...], now: float) -> None:
        if launchers.Action.REPORT_LOST in actions:
            who = launcher.pid, launcher.pid_started, launcher.launcher
            self._report_lost(*who, launcher.reason, now, uid=launcher.uid)
            if launcher.login not in ("", self.config.login):  # what a launcher says of this proves nothing
                self._report_lost(*who, launcher.reason, now, login=launcher.login, uid=launcher.uid)

    def _report_lost(
        self,
        pid: int,
        pid_started: int,
        launcher: int | None,
        reason: str,
        now: float,
        login: str = "",
        uid: int | None = None,
    ) -> None:
        message = {
            "op": "launcher_lost",
            "login": login or self.config.login,
            "pid": pid,
            "pid_started": pid_started,
            "reason": reason,
        }
        about = {"launcher": launcher, "pid": pid, "pid_started": pid_started, "uid": uid}
        self.outbox.put(("lost", pid, pid_started, login), message, about, now)
        self.journal.write("launcher_lost", reason=reason, **about)
        self._send_due(now)

    def _tell_node(self, known: KnownNode | RemoteNode, actions: tuple[nodes.Action, ...]) -> None:
        for action in actions:
            now = time.monotonic()
            facts = known.facts
            message = {"op": action.value, "node": facts["node"], "boot_id": facts["boot_id"]}
            message["incarnation"] = facts["incarnation"]
            if "nodes" in facts:
                message["nodes"] = facts["nodes"]
            if isinstance(known, RemoteNode):
                message["rca"] = self.config.login  # if several RCAs report a node, the one that it answers to counts
            if action is nodes.Action.TELL_UP:
                message.update(
                    address=facts["address"], processors=facts["processors"], agent=str(facts.get("agent", ""))
                )
                message["shared"] = str(facts.get("shared", ""))
            else:
                message["reason"] = known.machine.reason
                if action is nodes.Action.TELL_DOWN and isinstance(known, RemoteNode):
                    known.certain = False
                    message["wipe"] = True  # nothing is allocated there before the node has cleared itself
            self.outbox.put(("node", facts["node"]), message, {"node": facts["node"]}, now)
            self.journal.write(action.value, node=facts["node"], reason=known.machine.reason)
            self._send_due(now)

    def _send_due(self, now: float) -> None:
        if self.cpas.connected:
            for event in self.outbox.due(now):
                if not self._doubt(event, now):
                    self._send(event, now)

    def _doubt(self, event: Event, now: float) -> bool:
        """True if a report about a node is no longer certain.

        This process was stopped, or waited for a CPA, and the node may use another RCA since.
        """
        known = self.far.nodes.get(event.about.get("node", "")) if self.far is not None else None
        if known is None or event.message["op"] != "node_up" or now - known.beaten_at < self._far_suspect_s(self.far):
            return False
        self.outbox.acknowledged(event)
        self._tell_node(known, known.machine.handle(nodes.Event.SILENT, now, "not heard lately"))
        return True

    def _send(self, event: Event, now: float) -> None:
        def answered(reply: dict[str, Any] | None, error: AgentError | None) -> None:
            if error is None:
                self.outbox.acknowledged(event)
                op = event.message["op"]
                if op == "node_up":
                    self.outbox.hasten(time.monotonic())
                elif op == "node_down":
                    self._on_taken_down(event.message)
                elif op == "rca_silent" and self.members is not None:
                    self.members.answered(event.message, reply or {})
                elif op == "launcher_lost":
                    self._remove_sockets((reply or {}).get("launchers", ()), "*")
                    self._remove_sockets([event.about["launcher"]], event.about["uid"])
            elif error.code == "gone":  # on_cpa_lost queues it again
                return
            else:
                self._on_refused(event, error)
            self._send_due(time.monotonic())

        self.cpas.call(event.message, now, answered)

    def _remove_sockets(self, launchers: Iterable[Any], uid: Any) -> None:
        # The socket for a launcher's observers, which it could not remove itself. Only a CPA knows whose launcher it
        # is: a user who says another user's number must not remove that user's socket.
        import glob

        for launcher in launchers:
            if type(launcher) is int:
                name = f"yod-{launcher}.sock"
                for path in (name, *glob.glob(f"users/{uid}/{name}", root_dir=self.config.run)):
                    try:
                        os.unlink(os.path.join(self.config.run, path))
                    except OSError:
                        pass

    def _on_refused(self, event: Event, error: AgentError) -> None:
        now = time.monotonic()
        op = event.message["op"]
        given_up = self.outbox.refused(event, error.code, now)
        self.journal.write("refused", op=op, code=error.code, reason=error.message, given_up=given_up, **event.about)
        if error.code in ("given_up", "elsewhere") and self.far is not None:
            known = self.far.nodes.get(str(event.about.get("node", "")))
            if known is not None and error.code == "given_up":  # its next beat is answered with the reset
                self._give_up(known)
            elif known is not None:
                self._on_far_event(known, nodes.Event.HEARD_ELSEWHERE, "", now)
        if given_up and op == "finish":
            # Its cookie is no longer valid (a repeated request has a newer one), but the launcher has ended.
            who = event.about["pid"], event.about["pid_started"], event.about["launcher"]
            self._report_lost(*who, "ended", now, uid=event.about["uid"])

    def _give_up(self, known: RemoteNode) -> None:
        known.certain = True
        self._on_far_event(known, nodes.Event.GIVEN_UP, "the mesh has given it up", time.monotonic())

    def _on_taken_down(self, message: dict[str, Any]) -> None:
        known = self.far.nodes.get(message["node"]) if self.far is not None else None
        if known is not None and known.facts.get("boot_id") == message["boot_id"]:
            known.certain = True

    def _on_cpa_connected(self) -> None:
        now = time.monotonic()
        self.journal.write("cpa_connected", socket=self.cpas.path)
        self.changes.read()  # nodes wait for the mesh's time
        if self.members is not None:
            # What this CPA has changed while another one was connected that hung, or what others have announced then.
            self.members.peers.announce()
            self._tell_moved_elsewhere()
        self._tell_all_nodes()
        self.cpas.call({"op": "launchers_of", "login": self.config.login}, now, self._on_launchers_of)
        self._send_due(now)

    def _tell_all_nodes(self) -> None:
        for _, known in self._all_nodes():
            action = nodes.TELLING.get(known.machine.state)
            if action is not None and known.facts:  # a node that was only greeted has not registered
                self._tell_node(known, (action,))

    def _on_cpa_lost(self, reason: str) -> None:
        self.journal.write("cpa_lost", socket=self.cpas.path, reason=reason)
        self.changes.disconnected()
        self.outbox.disconnected(time.monotonic())

    def _on_launchers_of(self, reply: dict[str, Any] | None, error: AgentError | None) -> None:
        # Queried at every new connection, to find launchers that died with a CPA in the middle of a request.
        if reply is None:
            if error is not None and error.code != "gone":
                self.loop.after(1.0, self._ask_again)
            return
        now = time.monotonic()
        registered = {(each.pid, each.pid_started) for each, _ in self.launchers.values()}
        for entry in reply["launchers"]:
            who = (int(entry["pid"]), int(entry["pid_started"]))
            if who not in registered:
                self.unregistered.setdefault(who, now)
            if self.relays is not None:
                self.clients.watch(*who)
        self._look_at_unregistered(now)
        self._on_waiting(reply)

    def _on_waiting(self, reply: dict[str, Any]) -> None:
        """Watch processes whose requests wait: the request of an exited process blocks those behind it, and its CPA
        may have died with it."""
        for entry in reply.get("waiting", ()):
            self.ends.watch(int(entry["pid"]), int(entry["pid_started"]))

    def _on_requester_ended(self, pid: int, pid_started: int) -> None:
        self._report_lost(pid, pid_started, None, "its process is gone", time.monotonic())

    def _on_client_ended(self, pid: int, pid_started: int) -> None:
        if not self._exited:
            self.loop.after(FINISH_S, self._look_for_rest)
        self._exited.add((pid, pid_started))

    def _look_for_rest(self) -> None:
        """Report launches whose process has exited without *finish*, and without being registered here."""
        exited, self._exited = self._exited, set()

        def answered(reply: dict[str, Any] | None, _error: AgentError | None) -> None:
            if reply is None:
                for who in exited:
                    self._on_client_ended(*who)
                return
            reported = {(event.about.get("pid"), event.about.get("pid_started")) for event in self.outbox}
            for entry in reply["launchers"]:
                who = int(entry["pid"]), int(entry["pid_started"])
                if who in exited - reported:
                    self._report_lost(*who, int(entry["launcher"]), "its process is gone", time.monotonic())

        self.cpas.call({"op": "launchers_of", "login": self.config.login}, time.monotonic(), answered)

    def _ask_again(self) -> None:
        if self.cpas.connected:
            message = {"op": "launchers_of", "login": self.config.login}
            self.cpas.call(message, time.monotonic(), self._on_launchers_of)


def _is_newer(facts: Message, than: Message) -> bool:
    return bool(facts["boot_id"] == than["boot_id"] and facts["incarnation"] > than["incarnation"])

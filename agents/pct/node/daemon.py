"""The PCT (process control thread): one daemon for each node, which owns its processors and hosts its launches."""

from __future__ import annotations

import gc
import os
import time

from agents.link.journal import Journal
from agents.link.lean import signal, socket
from agents.link.link import Caller
from agents.link.loop import READ, Loop
from agents.link.server import Server, Session
from agents.link.sockets import LOOK_S, own_directory
from agents.linux import prctl, processes
from agents.linux.controllers import MemoryGroup
from agents.linux.ending import on_terminate
from agents.pct.errors import FAULT, PctError
from agents.pct.heartbeat.clock import MeshTime
from agents.pct.heartbeat.session import Beats
from agents.pct.launch.paths import launchers_here, owed_epilog, tombstone
from agents.pct.launch_child.endpoint import NodeContext
from agents.pct.launch_child.spares import Spares, prepare, serve_launches
from agents.pct.node.config import PctConfig, read_config
from agents.pct.node.host_policy import judge_here
from agents.pct.node.incarnation import incarnation_file, next_incarnation, pct_socket, write_incarnation
from agents.pct.node.launches import Hosted, Kill, discard_place
from agents.pct.node.listener import LaunchListener
from agents.pct.node.neighbours import Introduction, Neighbours
from agents.pct.ranks.process_tracking import ProcessTracking
from agents.wire.control import Message, decode
from agents.wire.errors import AgentError
from agents.wire.frames import Decoder
from agents.wire.messages import PCT
from agents.wire.object_pass import ObjectPeer
from redmesh.version import VERSION

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple

    from agents.pct.multiuser.system_mode import SystemMode
    from agents.pct.remote.gateway import Gateway, GatewayConfig
    from redmesh.settings.keeper_file import KeeperFile

MOST_HELPERS = 64  # at the same time; each is a process
MOST_OF_USER = 12  # of them, for one user's connections about state objects
#: Seconds for which a tombstone is kept: longer than any load that it may concern can be pending.
TOMBSTONE_S = 600.0
POST_BACK_S = 12.0  # for a post-back, however slowly the requester's file system and process answer
_STATUS_S = 2.0  # for launch children to answer
_PREPARE_S = 1.5  # after our start, because registering comes first
_END_S = 5.0  # for launches to end before they are killed
_LATE_LOOKS = 3  # in units of LOOK_S, for launch children that create their sockets again


class Pct:
    """The daemon of one node."""

    def __init__(self, config: PctConfig) -> None:
        self._config = config
        own_directory(config.run)
        self._loop = Loop()
        self._log = Journal(os.path.join(config.state, "log", f"pct-{config.node}.jsonl"), "pct", node=config.node)
        self._address = pct_socket(config.run, config.node)
        self._spares = Spares(self._loop, config.spare_s)
        # In system mode a used image proxy has had another user's file in its memory.
        self._image_proxies = Spares(self._loop, 0.0 if config.system is not None else config.spare_s)
        self._listener = LaunchListener(
            self._loop, self._begin, self._welcome, lambda sock: self.fork_courier(sock, ObjectPeer("cpa"))
        )
        self._server = Server(self._loop, self._address, "pct", PCT, self._on_request, name=config.node)
        self._server.on_accept = self._listener.accept
        begins_anew = False
        if config.contact is not None:
            from agents.pct.heartbeat import boot_id as node_life

            config.boot_id, begins_anew = node_life.boot_id(config.run, config.state, config.node, config.mesh_boot)
        self._incarnation = self._next_incarnation()
        self.mesh_time = MeshTime()
        self._gateway: Optional[Gateway] = None
        if config.gateway is not None:
            self._gateway = self._open(config, config.gateway)
            self._address = self._gateway.address
        self._loop.after(_PREPARE_S, self._prepare_all)
        self._tracking = ProcessTracking(config.state, config.node, self._log)
        self._memory = MemoryGroup()
        self._hosted = Hosted(self._loop, config.mesh, config.node, config.run, self._log, self._tracking)
        self._loop.on_signal(signal.SIGCHLD, self._hosted.reap)
        on_terminate(self._loop, self._end, signal.SIGTERM, signal.SIGINT)
        if config.system is not None:
            self._clean_up_for_users(config, config.system)
        self._hosted.adopt()
        self._hosted.sweep_images()
        for launcher in set(launchers_here(config.run, config.node, "epilog")) - set(self._hosted.launchers()):
            self._hosted.on_cleared(launcher)
        self._neighbours = self._find_neighbours()
        self._beats = self._make_contact(begins_anew)
        self._ending, self._prepared = 0.0, False
        self._couriers: Dict[int, int] = {}  # processes for users' connections about state objects, by uid
        self._settling = False  # True while a child asks about state objects whose move is in doubt
        self._settle_objects()
        self._buried: Dict[int, float] = {}  # launchers that were killed here, and when
        self._late_looks = _LATE_LOOKS if self._incarnation > 1 else 0
        self._loop.after(LOOK_S, self._look_at_socket)
        self._log.write("pct started", pid=os.getpid(), incarnation=self._incarnation, boot_id=config.boot_id)

    def _next_incarnation(self) -> int:
        config = self._config
        return next_incarnation(config.run, config.state, config.node, config.boot_id)

    def _look_at_socket(self) -> None:
        """If RUN was removed, create our files again, and adopt launch children that are not known yet."""
        if self._ending:
            return
        self._loop.after(LOOK_S, self._look_at_socket)
        try:
            if self._server.listen_again():
                self._log.write("socket made again", socket=self._server.path)
                self._late_looks = _LATE_LOOKS
            self._write_again()
        except (OSError, AgentError):
            return  # the directory does not exist yet; the keeper's log has the reason
        if self._late_looks:
            self._late_looks -= 1
            self._hosted.adopt_late()
            if self._config.contact is None:
                # A launcher that found no socket here may have reported us as failed, a moment ago or now.
                self._beats.register_again()

    def _write_again(self) -> None:
        config = self._config
        if os.path.exists(incarnation_file(config.run, config.node)):
            return
        if config.contact is not None:
            from agents.pct.heartbeat import boot_id as node_life

            node_life.keep(config.run, config.node, config.boot_id)
        for launcher, at in self._buried.items():
            if time.monotonic() - at < TOMBSTONE_S:
                with open(tombstone(config.run, config.node, launcher), "w", encoding="ascii"):
                    pass
        # the last file, because it announces that all exist
        write_incarnation(config.run, config.node, self._incarnation)

    def _open(self, config: PctConfig, own: GatewayConfig) -> Gateway:
        from agents.pct.remote.gateway import Gateway

        gateway = Gateway(self._loop, config.mesh, config.run, config.node, own, self._log, self)
        self._spares.answer = gateway.answer
        return gateway

    def _prepare(self) -> None:
        # At the first launch or before it: import once what every child would otherwise import.
        if not self._prepared:
            self._prepared = True
            prepare()  # unless the keeper has done so
            if self._gateway is not None:
                self._gateway.prepare()

    def _prepare_all(self) -> None:
        self._prepare()
        if self._gateway is not None:
            self._gateway.prepare_images()

    def _clean_up_for_users(self, config: PctConfig, mode: SystemMode) -> None:
        # For launch children that were killed, whether or not a PCT was running.
        from agents.pct.multiuser.prolog_epilog import pay_epilog
        from agents.pct.multiuser.system_mode import sweep_all

        def on_cleared(launcher: int) -> None:
            owed = owed_epilog(config.run, config.node, launcher)
            pid = pay_epilog(mode.epilog, mode.patience_s, owed, config.node, launcher)
            if pid:
                self._log.write("epilog", launcher=launcher, behind="a launch child that was killed")
                self._hosted.add_helper(pid)

        self._hosted.on_cleared = on_cleared
        self._hosted.sweep_images = lambda: self._hosted.add_helper(sweep_all())  # as each user

    def _make_contact(self, begins_anew: bool) -> Any:
        config = self._config

        def launches() -> int:
            return len(self._hosted) - len(self._spares)

        if config.contact is None:
            return Beats(self._loop, os.path.join(config.run, "rca.sock"), self._registration, launches)
        from agents.pct.node.contact import Contact

        contact = Contact(
            self._loop, config.contact, self._hosted, self._log, self._registration, launches, self.mesh_time,
            self._begin_anew,
        )  # fmt: skip
        if begins_anew and len(self._hosted):
            contact.clear()  # nothing of an earlier boot of this node is in use
        return contact

    def _find_neighbours(self) -> Neighbours:
        # Beats report what it finds.
        config = self._config
        listen = self._address.partition("//")[2].partition("/")[0]
        own = Introduction(config.mesh, config.started_on, len(config.processors), listen)
        return Neighbours(self._loop, config.mesh_boot, own, self._log)

    def _begin_anew(self) -> None:
        from agents.pct.heartbeat import boot_id as node_life

        config = self._config
        config.boot_id = node_life.new_boot_id(config.run, config.node, config.mesh_boot)
        self._incarnation = self._next_incarnation()
        self._log.write("begins anew", boot_id=config.boot_id, incarnation=self._incarnation)

    def run(self) -> None:
        """Serve until SIGTERM."""
        self._loop.run()

    def _registration(self) -> Message:
        config = self._config
        return {
            "op": "register_node",
            "node": config.node,
            "boot_id": config.boot_id,
            "incarnation": self._incarnation,
            "address": self._address,
            "pid": os.getpid(),
            "processors": len(config.processors),
            "agent": VERSION,
            "shared": self._neighbours.text,
        }

    def _welcome(self, sock: socket.socket) -> None:
        self._server.welcome(sock)

    def _begin(self, sock: socket.socket, role: str) -> None:
        if not (self._beats.accepts_launches and self._spares.take(sock, role)):
            self._fork(sock, role)
        sock.close()

    # Services for agents/pct/remote/gateway.py

    def life(self) -> Tuple[str, int]:
        """The present boot id and incarnation."""
        return self._config.boot_id, self._incarnation

    def now(self) -> Optional[float]:
        """The mesh time, if known."""
        return self.mesh_time.now()

    def hand_over(self, sock: socket.socket) -> bool:
        """Pass the connection of a launch to a waiting launch child; False if there is none."""
        accepts = self._config.system is None and self._beats.accepts_launches
        return bool(accepts) and self._spares.take(sock, "far")

    def begin_remote(self, secured: Any, role: str, let_in: Any) -> None:
        """Start a launch from another machine."""
        self._fork(secured, role, let_in)
        secured.close()

    def welcome_remote(self, secured: Any, limit: int) -> Session:
        """Serve requests of at most ``limit`` bytes."""
        return self._server.welcome(secured, limit)

    def hand_to_image_proxy(self, sock: socket.socket) -> bool:
        """Pass the connection of a node that requests an image to a waiting image proxy; False if there is none."""
        # The peer may be unauthenticated and could occupy it for seconds: half of the helpers are reserved for peers
        # with certificates.
        return self._hosted.helpers <= MOST_HELPERS // 2 and self._image_proxies.take(sock, "fetch")

    def fork_image_proxy(self, work: Callable[[socket.socket], NoReturn]) -> None:
        """Run ``work`` in a separate process, with a socket to the PCT by which it offers to do more."""
        if self._hosted.helpers >= MOST_HELPERS:
            self._log.write("too many helpers")  # the node that wants the image asks another source
            return
        pid, line = self._fork_child(work)
        if line is not None:
            self._hosted.add_image_proxy(pid)
            self._image_proxies.add(line)

    # State objects of jobs

    def fork_courier(self, sock: Any, peer: Optional[ObjectPeer]) -> None:
        """Have a child serve a connection about state objects.

        ``peer`` is a daemon of this mesh, or a user whom a CPA knows. Others, who have the token of one object, may use
        only some of the helpers.
        """
        parts = 4 if peer is None else 1 if peer.uid is None else 2
        uid = None if peer is None else peer.uid
        of_user = 0 if uid is None else self._couriers.get(uid, 0)
        if self._hosted.helpers < MOST_HELPERS // parts and of_user < MOST_OF_USER:
            from agents.objects.object_process import serve_connection

            objects = self._objects()
            pid, line = self._fork_child(lambda _line: serve_connection(objects, sock, self._log, peer))
            self._await_courier(pid, line, uid)
        else:
            self._log.write("too many helpers", uid=uid)
        sock.close()

    def _objects(self) -> Any:
        config = self._config
        if config.system is not None:
            from agents.pct.multiuser.user_objects import UserObjects

            return UserObjects(
                config.system.objects, config.node, config.objects_mb, root_allowed=config.system.allow_root
            )
        from agents.objects.object_process import NodeObjects, directory_on

        return NodeObjects(directory_on(config.state, config.node), config.node, config.objects_mb)

    def _await_courier(self, pid: int, line: Optional[socket.socket], uid: Optional[int]) -> None:
        if line is None:
            return
        self._hosted.add_image_proxy(pid)
        if uid is not None:
            self._couriers[uid] = self._couriers.get(uid, 0) + 1

        def ended(_events: int) -> None:
            if uid is not None:
                self._couriers[uid] -= 1
                if not self._couriers[uid]:
                    del self._couriers[uid]
            self._loop.unwatch(line.fileno())
            line.close()
            self._settle_objects()  # it may have been killed

        self._loop.watch(line.fileno(), READ, ended)

    def _settle_objects(self) -> None:
        """Have a child ask about objects whose receiver has not confirmed, if there are any."""
        system = self._config.system
        directory = system.objects if system is not None else os.path.join(self._config.state, "jobs")
        if self._settling or self._ending or not os.path.isdir(directory):
            return
        objects = self._objects()
        if not objects.in_doubt():
            return
        from agents.objects.object_process import be_settler

        self._prepare()
        pid, line = self._fork_child(lambda _line: be_settler(objects, self._log))
        if line is not None:
            self._settling = True
            self._hosted.add_image_proxy(pid)

            def ended(_events: int) -> None:
                self._settling = False
                self._loop.unwatch(line.fileno())
                line.close()
                self._loop.after(LOOK_S, self._settle_objects)

            self._loop.watch(line.fileno(), READ, ended)

    def _fork(self, sock: Any, role: str, let_in: Any = None) -> None:
        self._prepare()
        if not self._beats.accepts_launches:
            self._log.write("refused", reason="clearing")  # the parent sees a failed node
            return
        pid, line = self._fork_child(lambda line: self._become_launch(line, sock, role, let_in))
        if line is not None:
            self._hosted.add(pid)
            self._spares.add(line)

    def _fork_child(self, work: Callable[[socket.socket], NoReturn]) -> Tuple[int, Optional[socket.socket]]:
        # Fork a child that runs ``work``: its pid and the socket to it; none if the fork is refused.
        try:
            ours, theirs = socket.socketpair()
            pid = os.fork()
        except OSError as error:
            self._log.write("cannot fork", error=error.strerror)
            return 0, None
        if pid:
            theirs.close()
            return pid, ours
        try:
            gc.disable()
            gc.freeze()  # objects from before the fork are never scanned, so their pages are never copied
            ours.close()
            self._let_go()
            work(theirs)
        except Exception as error:
            self._log.write("internal", error=repr(error))
        finally:
            os._exit(FAULT)

    def _let_go(self) -> None:
        # In a forked child: release what belongs to the PCT.
        self._loop.abandon()
        self._spares.forget()
        self._image_proxies.forget()
        self._listener.close()
        if self._gateway is not None:
            self._gateway.close()
        self._server.close()
        self._neighbours.close()
        self._beats.close()

    def _become_launch(self, line: socket.socket, sock: Any, role: str, let_in: Any) -> NoReturn:
        config = self._config
        prctl.become_subreaper()
        prctl.set_name(b"redmesh-launch")
        prctl.set_title(f"redmesh-launch {config.node} ({config.state})")
        if config.service is not None:
            config.service.begin()
        host = NodeContext(config.mesh, config.node, config.run, self._log, self._memory, config.gpus, config.system)
        host.track(config.state, self._tracking.life, self._tracking.group_parent)
        receive = self._gateway.receive if self._gateway is not None else None
        serve_launches(host, line, sock, role, let_in, receive)

    def _on_request(self, session: Session, op: str, message: Message) -> None:
        if self._gateway is not None:
            self._gateway.check(session, op, message)
        if op == "kill_launch":
            self._kill_launch(session, message)
        elif op == "give_back":
            self._hosted.pass_on(session, message)
        elif op == "wipe":
            from agents.pct.node.launches import Wipe  # needed at most once on most machines

            Wipe(self._loop, self._hosted, self._renew, lambda reply: session.reply(message, reply))
        elif op == "failed":
            self._failed(session, message)
        elif op == "death":
            self._hosted.tell_death(session, message)
        elif op == "post_back":
            self._post_back(session, message)
        elif op == "trust":
            self._renew_files(session, message)
        else:
            Status(self, session, message)

    def _post_back(self, session: Session, message: Message) -> None:
        """Have a child bring a post-back to a process of its requester."""

        def child(line: socket.socket) -> NoReturn:
            from agents.pct.node.post_backs import bring  # needed by few jobs

            bring(line, message, self._config.node)

        if self._hosted.helpers >= MOST_HELPERS:
            raise PctError("too many helpers run on this node", code="busy")
        pid, line = self._fork_child(child)
        if line is None:
            raise PctError("this node cannot start another process now", code="busy")
        self._hosted.add_helper(pid)
        frames = Decoder()

        def read(_events: int) -> None:
            data = line.recv(64 << 10)
            answer = frames.feed(data)
            if answer or not data:
                timer.cancel()
                self._loop.unwatch(line.fileno())
                line.close()
                late = AgentError(f"no answer at {message['path']} in {POST_BACK_S:g} s", code="unreachable")
                session.reply(message, decode(answer[0][1]) if answer else {"error": late.as_message()})

        # Until its connection is closed, the child has not been reaped, and the pid is its own.
        timer = self._loop.after(POST_BACK_S, lambda: os.kill(pid, signal.SIGKILL))
        self._loop.watch(line.fileno(), READ, read)

    def _failed(self, session: Session, message: Message) -> None:
        """A launcher has reported this node: it is out of service until we register, after its rest."""
        self._log.write("failed a load", launcher=message["launcher"], reason=message.get("reason", ""))
        self._loop.after(self._config.failed_s, self._beats.register_again)
        session.reply(message, {})

    def _renew_files(self, session: Session, message: Message) -> None:
        if self._gateway is None:
            raise PctError("this node is on its login processor's machine and has no certificates", code="invalid")
        self._gateway.renew(message["files"])
        self._image_proxies.close()  # those with the old ones finish their transfers
        session.reply(message, {})

    def _renew(self) -> None:
        self._incarnation = self._next_incarnation()
        self._log.write("wiped", incarnation=self._incarnation)
        self._beats.register_again()

    def _kill_launch(self, session: Session, message: Message) -> None:
        launcher = message["launcher"]
        notice: Message = {key: message[key] for key in ("grace_s", "reason", "to") if key in message}
        if not notice.get("grace_s"):
            self._bury(launcher)
        self._log.write("kill_launch", launcher=launcher, **notice)
        Kill(self._loop, self._hosted, launcher, lambda reply: session.reply(message, reply), notice)

    def _bury(self, launcher: int) -> None:
        config = self._config
        now = time.monotonic()
        self._buried = {one: at for one, at in self._buried.items() if now - at < TOMBSTONE_S}
        self._buried[launcher] = now
        try:
            with open(tombstone(config.run, config.node, launcher), "w", encoding="ascii"):
                pass
        except FileNotFoundError:
            return  # RUN was removed: keep what is created there again
        prefix = os.path.basename(tombstone(config.run, config.node, 0))[:-1]
        for name in os.listdir(config.run):
            path = os.path.join(config.run, name)
            if name.startswith(prefix) and time.time() - os.stat(path).st_mtime > TOMBSTONE_S:
                os.unlink(path)

    def _end(self) -> None:
        if self._ending:
            return
        self._ending = time.monotonic()
        self._log.write("ending", launches=len(self._hosted))
        self._server.close()
        self._neighbours.close()
        if self._gateway is not None:
            self._gateway.close()
        self._spares.close()
        self._image_proxies.close()
        for pid in self._hosted.pids:
            processes.send_signal(pid, signal.SIGTERM)
        self._wait_for_launches()

    def _wait_for_launches(self) -> None:
        self._hosted.reap()
        if len(self._hosted) and time.monotonic() - self._ending < _END_S:
            self._loop.after(0.01, self._wait_for_launches)
            return
        if len(self._hosted):
            processes.kill_all(self._hosted.pids)
            for launcher in self._hosted.launchers():
                self._hosted.clear(launcher)
        self._hosted.end_image_proxies()
        try:
            os.unlink(pct_socket(self._config.run, self._config.node))
        except OSError:
            pass
        discard_place()
        self._log.write("pct ended")
        self._loop.stop()

    # Services for Status

    @property
    def hosted(self) -> Hosted:
        """The hosted launches."""
        return self._hosted

    @property
    def loop(self) -> Loop:
        """The daemon's loop."""
        return self._loop

    def describe(self, launches: List[Message]) -> Message:
        """The reply to a status request."""
        config = self._config
        return {
            "node": config.node,
            "boot_id": config.boot_id,
            "incarnation": self._incarnation,
            "processors": config.processors,
            "launches": launches,
            "load": _load(),
            "memory": _memory(),
        }


class Status:
    """A status request: every launch child is asked, and the reply waits for them for a limited time."""

    def __init__(self, pct: Pct, session: Session, request: Message) -> None:
        self._pct, self._session, self._request = pct, session, request
        self._launches: List[Message] = []
        self._callers: List[Caller] = []
        self._asked = 1
        self._done = False
        for launcher in pct.hosted.launchers():
            caller = pct.hosted.connect(launcher, lambda *_: None)
            if caller is not None:
                self._callers.append(caller)
                self._asked += 1
                caller.call({"op": "status"}, self._on_reply)
        pct.loop.after(_STATUS_S, self._finish)
        self._one_less()

    def _on_reply(self, reply: Any, _error: Any) -> None:
        if reply is not None:
            self._launches.append({key: reply.get(key) for key in ("launcher", "pid", "state", "ranks")})
        self._one_less()

    def _one_less(self) -> None:
        self._asked -= 1
        if self._asked == 0:
            self._finish()

    def _finish(self) -> None:
        if not self._done:
            self._done = True
            for caller in self._callers:
                caller.close()
            self._session.reply(self._request, self._pct.describe(self._launches))


def _load() -> Optional[List[float]]:
    """The host's load averages; None if unavailable."""
    try:
        return [round(one, 2) for one in os.getloadavg()]
    except OSError:
        return None


def _memory() -> Optional[List[int]]:
    """The host's memory and the available part, in bytes; None if unavailable."""
    found = {}
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                name, _, rest = line.partition(":")
                if name in ("MemTotal", "MemAvailable"):
                    found[name] = int(rest.split()[0]) * 1024
        return [found["MemTotal"], found["MemAvailable"]]
    except (OSError, ValueError, KeyError):
        return None


def serve(file: KeeperFile, node: str) -> None:
    """Run the PCT of ``node`` until SIGTERM: called by the keeper's forked child and ``python -m agents.pct``."""
    prctl.become_subreaper()
    prctl.set_name(b"redmesh-pct")
    prctl.set_title(f"redmesh-pct {node} ({file.state})")
    prctl.raise_descriptor_limit()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, _nothing)  # a handler, not SIG_IGN, which a rank would inherit
    gc.enable()
    policy = judge_here()
    if policy.refusal:
        raise PctError(policy.refusal, policy.hint)
    Pct(read_config(file, node)).run()


def _nothing(_number: int, _frame: object) -> None:
    pass

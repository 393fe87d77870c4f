"""The keeper: starts the daemons of a mesh on one host, restarts dead ones, and ends them all."""

from __future__ import annotations

import fcntl
import os
import time

from agents.keeper import daemon_processes
from agents.keeper.daemon_states import Action, Daemon, Event, State
from agents.keeper.errors import Busy, KeeperError
from agents.keeper.idle_end import IdleEnd, job_owners, jobs_run, running_launchers
from agents.keeper.orphans import Orphans
from agents.keeper.spawn import fork_pct, last_words, size_of, spawn_program
from agents.link.journal import Journal
from agents.link.lean import signal
from agents.link.link import Caller
from agents.link.loop import READ, Loop
from agents.link.resolver import Names
from agents.link.server import Server, Session
from agents.link.sockets import LOOK_S, connect_now, own_directory, peer
from agents.link.trust import Trust
from agents.linux import ending, prctl, processes
from agents.linux.removal import remove_tree
from agents.pct.launch_child.spares import prepare
from agents.wire.control import Message
from agents.wire.errors import AgentError
from agents.wire.messages import KEEPER

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Set, Tuple

    from agents.keeper.job_end import JobEnd
    from agents.keeper.job_files import JobFiles
    from agents.link.loop import Timer
    from redmesh.settings.keeper_file import KeeperFile

#: Seconds: for daemons of one kind to end; for a CPA to record that the mesh is down.
END_S, TELL_S = 10.0, 3.0
#: After RUN was created again: by then every launch child has its socket there.
BACK_S = LOOK_S + 0.5
#: A launch child exits a moment after its yod; for this time it does not keep ``down`` from ending the mesh.
LEAVING_S = 0.5
#: A living daemon has this long to create its socket again, if RUN was removed while the mesh had no keeper.
SOCKET_S, _SOCKET_AGAIN_S = 4 * LOOK_S, 0.1
#: Seconds after the start of a batch job's keeper until it removes what killed jobs left, not to delay a launch.
SWEEP_S = 3.0
#: Seconds for which a keeper waits for the lock: another process may just test it
#: (console/deploy/personal/evidence_of_life.py); in a batch job, a keeper may remove what an earlier start left.
LOCK_S, LOCK_IN_JOB_S, _LOCK_AGAIN_S = 0.1, 3.0, 0.01
#: Seconds from the end of the input of a batch system's host until the exit of its supervisor is seen.
SUPERVISOR_S = 0.2
#: Seconds for owners of jobs to record what ran, and between two looks whether they have.
OWNERS_S, _OWNERS_AGAIN_S = 5.0, 0.05


def take_lock(state: str, wait_s: float) -> int:
    """Return the descriptor of the mesh's lock. Raises KeeperError if another process holds it for ``wait_s``."""
    deadline = time.monotonic() + wait_s
    while True:
        fd = os.open(os.path.join(state, "mesh.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_nlink:  # the process that held it may have removed the file
                return fd
        except OSError:
            pass
        os.close(fd)
        if time.monotonic() >= deadline:
            raise KeeperError(f"the mesh in {state} has a keeper already", "mesh status", exit_status=1)
        time.sleep(_LOCK_AGAIN_S)  # poll: a lock reports its release only to a process that waits without a limit


class Kept:
    """A daemon: its state machine, its process, its command, and the file for its stderr."""

    def __init__(self, name: str, kind: str, socket_path: str, errors: str, spawn: Callable[[], int]) -> None:
        self.name, self.kind, self.socket_path, self.errors, self.spawn = name, kind, socket_path, errors, spawn
        self.machine = Daemon()
        self.pid = 0
        self.reason = ""  # the last error of the daemon, from its stderr
        self.said_before = 0  # the size of the file when the daemon was started
        self.due_at = 0.0  # when it is started again
        self.adopted_without_socket = False
        self.timer: Optional[Timer] = None


class Keeper:
    """Runs the daemons that ``config`` (keeper.json at ``path``) names. Raises KeeperError if another keeper does."""

    def __init__(self, config: KeeperFile, path: str) -> None:
        if not (config.login or config.nodes):
            raise KeeperError(f"{path} names neither a login processor nor a node", "run: mesh up", exit_status=2)
        self._config = config
        self._run, self._state = config.run, config.state
        own_directory(self._run, public=config.users)
        own_directory(os.path.join(self._state, "log"))
        # mesh up sends SIGHUP to a keeper that it finds by its socket, perhaps before we handle it.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._try_certificate()
        self._lock = take_lock(self._state, LOCK_IN_JOB_S if config.ends_with else LOCK_S)
        prctl.become_subreaper()
        prctl.set_name(b"redmesh-keeper")
        if not config.login:
            prctl.set_title(f"redmesh-keeper {config.nodes[0].name} ({self._state})")
        self._log = Journal(os.path.join(self._state, "log", "keeper.jsonl"), "keeper")
        self._loop = Loop()
        self._server = Server(self._loop, os.path.join(self._run, "keeper.sock"), "keeper", KEEPER, self._on_request)
        self._kept = self._plan(path)
        self._names = Names(self._loop, self._tell_untold)  # resolves the names of RCAs
        self._untold: List[Tuple[str, bytes]] = []  # datagrams for RCAs whose names are being looked up
        self._handles: Dict[int, int] = {}  # pidfds of adopted daemons
        self._ending: List[str] = []  # kinds still to be ended, the first in progress
        self._end_deadline = 0.0
        self._end_reason = ""
        self._told = False  # True if the database records that the mesh is down
        self._back_at = -BACK_S  # when RUN was last created again
        self._no_place = ""  # the reason why it could not be created
        self._orphans = Orphans(self._loop, self._log, lambda: {kept.pid for kept in self._kept})
        self._loop.on_signal(signal.SIGCHLD, self._reap)
        self._look: Optional[Timer] = None
        self._job_end = self._expect_signals()
        self._supervised = False  # True if a process of the batch system above us is watched
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.on_signal(number, self._on_terminate)
        self._loop.on_signal(signal.SIGHUP, self._try_now)

    def _try_certificate(self) -> None:
        # Create the TLS context now: if a host's TLS refuses it, mesh up, which waits for us, learns of it, and the PCT
        # inherits the imported modules by its fork.
        config = self._config
        if config.login or not config.listen:
            return
        try:
            trust = config.trust_directory
            Trust(config.mesh, f"{trust}/ca.pem", f"{trust}/node.pem").client()
        except ImportError as error:
            raise KeeperError(f"this Python has no ssl module: {error}", "python in mesh.toml names another") from None

    def _expect_signals(self) -> Optional[JobEnd]:
        manager = self._config.signalled_by
        if not manager:
            return None
        from agents.keeper.job_end import JobEnd  # only in a batch system's job
        from agents.keeper.manager_questions import ReachQuestion

        ending.forget(self._state)
        reach = self._config.signals_reach or ending.learned_reach(self._state)
        ending.expect_signals(self._state, reach)
        if not reach:
            ReachQuestion(self._loop, self._log, manager, self._state)
        self._loop.on_signal(signal.SIGQUIT, lambda: None)
        cpas = [kept.socket_path for kept in self._of_kind("cpa")]
        return JobEnd(self._loop, self._log, manager, cpas, lambda: bool(self._launchers()), self._end)

    def _on_terminate(self) -> None:
        if self._job_end is not None and not ending.is_meant():
            self._job_end.signalled()
        else:
            # If this host has lost its supervisor, its input has ended too, and the exit is seen in a moment.
            late_s = SUPERVISOR_S if self._supervised and self._launchers() else 0.0
            self._loop.after(late_s, lambda: self._end("the keeper was told by a signal"))

    def _plan(self, path: str) -> List[Kept]:
        config = self._config
        kept: List[Kept] = []

        def errors(name: str) -> str:
            return os.path.join(self._state, "log", f"{name}.stderr")

        def program(name: str, arguments: List[str]) -> None:
            place = os.path.join(self._run, f"{name}.sock")
            kept.append(Kept(name, arguments[0], place, errors(name), lambda: spawn_program(arguments, errors(name))))

        def pct(name: str) -> None:
            place = os.path.join(self._run, f"{name}.sock")
            words = errors("pct")
            kept.append(Kept(name, "pct", place, words, lambda: fork_pct(config, name, words, self._let_go)))

        for number in range(config.cpas):
            program(f"cpa-{number}", ["cpa", "--config", path, "--name", f"cpa-{number}"])
        if config.login:
            program("rca", ["rca", "--config", path])
        for node in config.nodes:
            if not node.address:  # a node with an address has a keeper of its own
                pct(node.name)
        for name in config.simulated:  # stand-ins for many PCTs, ended like PCTs
            program(name, ["simulated", "--config", path, "--name", name])
            kept[-1].kind = "pct"
        return kept

    def _let_go(self) -> None:
        # In a PCT that was just forked: release everything of the keeper's, above all its lock.
        self._loop.abandon()
        self._server.close()
        for handle in self._handles.values():
            os.close(handle)
        os.close(self._lock)

    def run(self) -> None:
        """Start or adopt every daemon, and run until the end."""
        if self._config.login:  # PCTs share them; a node's only PCT registers first
            prepare()
        prctl.settle_memory()  # before the first fork
        self._log.write("keeper started", pid=os.getpid(), daemons=len(self._kept))
        self._adopt_or_start(self._kept, time.monotonic() + SOCKET_S)
        if self._config.auto:
            cpas = [kept.socket_path for kept in self._of_kind("cpa")]
            IdleEnd(self._loop, self._config.idle_s, cpas, self._may_end_idle, lambda: self._end("the mesh was idle"))
        self._look = self._loop.after(LOOK_S, self._look_at_socket)
        self._watch_supervisor()
        if self._config.ends_with:
            self._watch_owner(*self._owner())
            self._loop.after(SWEEP_S, lambda: self._job_files().sweep_at_start())
        self._loop.run()

    def _owner(self) -> Tuple[int, int]:
        # In a batch system's job, the owner is its script; on the other hosts, the process by which the manager started
        # us.
        script = self._config.script
        if script is not None:
            return script
        pid = os.getppid()
        return pid, processes.start_time(pid)

    def _watch_supervisor(self) -> None:
        """End when the batch system's process above us has exited: it alone would end us with the job."""
        name = self._config.supervisor
        if not name:
            return
        from agents.linux.process_ends import SupervisorEnds  # only in a batch system's job

        def on_end(pid: int, _supervised: List[int]) -> None:
            script = self._config.script
            if script is not None and processes.is_gone(*script):
                return  # it exits after the job's script, and the ranks may still have time
            self._end(f"{name} (process {pid}) has exited, and with it the batch system's supervision of this host")

        pid = self._owner()[0] if self._config.ends_with else os.getppid()
        self._supervised = SupervisorEnds(self._loop, name, on_end).watch(pid)

    def _watch_owner(self, pid: int, began: int) -> None:
        """End with the process ``pid``, so that nothing outlives the batch system's job."""
        try:
            handle = os.pidfd_open(pid) if processes.alive(pid, began) else -1
        except ProcessLookupError:
            handle = -1
        except OSError:  # for example no descriptor is left, which is no evidence of its exit
            self._loop.after(LOOK_S, lambda: self._watch_owner(pid, began))
            return

        def on_end(_events: int) -> None:
            self._loop.unwatch(handle)
            os.close(handle)
            if self._job_end is not None and self._config.script is not None:
                self._job_end.script_ended()
            else:
                self._end("the job has ended")

        if handle < 0:
            self._loop.after(0, lambda: self._end("the job has ended"))
        else:
            self._loop.watch(handle, READ, on_end)

    def _adopt_or_start(self, these: List[Kept], deadline: float) -> None:
        """Adopt daemons of an earlier keeper, and start the others.

        RUN with their sockets may have been removed a moment ago, so wait for a daemon whose process lives. A stopped
        one creates no socket: after ``deadline`` it is adopted by its process. Never start a second daemon beside a
        living one: a second RCA knows no launcher, and would have a CPA end them all.
        """
        missing = []
        for kept in these:
            pid = self._find(kept) if kept.machine.state is State.ABSENT else 0
            if pid:
                self._adopt(kept, pid)
            elif kept.machine.state is State.ABSENT:
                missing.append(kept)
        living = self._living() if missing else {}
        waiting = [kept for kept in missing if kept.name in living]
        for kept in missing:
            if kept.name not in living:
                self._feed(kept, Event.START)
        if waiting and time.monotonic() < deadline:
            self._loop.after(_SOCKET_AGAIN_S, lambda: self._adopt_or_start(waiting, deadline))
            return
        for kept in waiting:
            kept.adopted_without_socket = True
            self._adopt(kept, living[kept.name])

    def _adopt(self, kept: Kept, pid: int) -> None:
        kept.pid = pid
        kept.machine.handle(Event.FOUND, time.monotonic())
        self._log.write("adopted", name=kept.name, pid=pid, socket=not kept.adopted_without_socket)
        self._watch(kept)

    def _living(self) -> Dict[str, int]:
        """Processes of daemons by name, with or without a socket. Of several the first, because the others are its
        forks."""
        others = (daemon_processes.KEEPER, daemon_processes.LAUNCH)
        found = daemon_processes.processes(self._state)
        born = {pid: processes.start_time(pid) for pid, (kind, _) in found.items() if kind not in others}
        return {found[pid][1]: pid for pid in sorted(born, key=lambda pid: born[pid], reverse=True) if born[pid]}

    def _look_at_socket(self) -> None:
        """Create RUN again if logind removed it at the last logout."""
        self._look = self._loop.after(LOOK_S, self._look_at_socket)
        try:
            if self._server.listen_again():
                self._back_at, self._no_place = time.monotonic(), ""
                self._log.write("sockets made again", run=self._run)
            self._write_again()
        except (OSError, AgentError) as error:
            why = error.message if isinstance(error, AgentError) else f"{error.filename}: {error.strerror}"
            if why != self._no_place:
                self._no_place = why
                self._log.write("sockets cannot be made again", run=self._run, reason=why)

    def _write_again(self) -> None:
        config = self._config
        if config.login and not os.path.exists(os.path.join(self._run, "login")):
            try:
                with open(os.path.join(self._state, "trust", "ca.pem"), "rb") as file:
                    self._put("ca.pem", file.read())
            except FileNotFoundError:
                pass  # a mesh of this machine alone has none
            self._put("login", f"{config.login}\n".encode())

    def _put(self, name: str, content: bytes) -> None:
        # A file in RUN that yods read.
        fd = os.open(os.path.join(self._run, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(content)
            os.fchmod(fd, 0o644 if self._config.users else 0o600)

    def _find(self, kept: Kept) -> int:
        try:
            with connect_now(kept.socket_path) as sock:
                pid = peer(sock).pid
        except (OSError, AgentError):
            return 0
        return pid if processes.alive(pid) else 0

    def _watch(self, kept: Kept) -> None:
        try:
            handle = os.pidfd_open(kept.pid)
        except ProcessLookupError:
            self._loop.after(0, lambda: self._feed(kept, Event.DIED))
            return
        self._handles[kept.pid] = handle
        pid = kept.pid

        def on_end(_events: int) -> None:
            self._loop.unwatch(handle)
            os.close(self._handles.pop(pid))
            self._on_death(kept, -1)

        self._loop.watch(handle, READ, on_end)

    def _feed(self, kept: Kept, event: Event) -> None:
        action = kept.machine.handle(event, time.monotonic())
        if action is Action.SPAWN:
            self._spawn(kept)
        elif action is Action.SET_TIMER:
            kept.due_at = time.monotonic() + kept.machine.delay_s
            kept.timer = self._loop.after(kept.machine.delay_s, lambda: self._feed(kept, Event.DUE))
        elif action is Action.TERMINATE:
            processes.send_signal(kept.pid, signal.SIGTERM)

    def _try_now(self) -> None:
        # The cause of failures may have been removed.
        for kept in self._kept:
            if kept.machine.state is State.WAITING:
                if kept.timer is not None:
                    kept.timer.cancel()
                self._feed(kept, Event.DUE)

    def _spawn(self, kept: Kept) -> None:
        # A daemon that a killed keeper had just started may have come up since, and keeps ours from listening.
        pid = self._find(kept)
        if pid:
            kept.pid = pid
            self._log.write("adopted", name=kept.name, pid=pid)
            self._watch(kept)
            return
        kept.said_before = size_of(kept.errors)
        try:
            if kept.kind == "pct":
                own_directory(self._run, public=self._config.users)
            kept.pid = kept.spawn()
        except OSError as error:
            kept.pid = 0
            self._tell_failure(kept, error.strerror or str(error))
            self._loop.after(0, lambda: self._feed(kept, Event.FAILED))

    def _reap(self) -> None:
        by_pid = {kept.pid: kept for kept in self._kept if kept.pid}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            kept = by_pid.get(pid)
            if kept is not None and pid not in self._handles:
                self._on_death(kept, status)
            if kept.kind == "pct" if kept is not None else self._of_kind("pct"):
                self._loop.after(0, self._orphans.sweep)

    def _on_death(self, kept: Kept, status: int) -> None:
        pid, kept.pid, kept.adopted_without_socket = kept.pid, 0, False
        code = os.WEXITSTATUS(status) if status > 0 and os.WIFEXITED(status) else 0
        if kept.machine.state is State.RUNNING:
            if code:
                said = last_words(kept.errors, kept.said_before, kept.name if kept.kind == "pct" else "")
                self._tell_failure(kept, said or f"it ended with status {code}")
            else:
                kept.reason = ""
                self._log.write("daemon died", name=kept.name, pid=pid, status=status, restarts=kept.machine.restarts)
            if kept.kind == "pct" and self._config.rca and not self._config.login:
                self._tell_gone(kept.name)
        self._feed(kept, Event.FAILED if code else Event.DIED)
        if self._ending:
            self._end_next()

    def _tell_failure(self, kept: Kept, reason: str) -> None:
        # Log a reason once, for as long as it is the same.
        if reason != kept.reason or not kept.machine.is_in_trouble(time.monotonic()):
            self._log.write("daemon failed", name=kept.name, reason=reason, restarts=kept.machine.restarts)
        kept.reason = reason

    def _tell_gone(self, node: str) -> None:
        """Tell the RCA on another machine, which would otherwise notice only the silence."""
        from agents.pct.heartbeat import boot_id as node_life
        from agents.pct.heartbeat import rcas as rca_places
        from agents.pct.heartbeat.datagrams import gone
        from agents.wire import keys

        boot_id, incarnation = node_life.present(self._run, node)
        try:
            found = keys.read(os.path.join(self._config.trust_directory, "beat.key"))
        except AgentError as error:
            self._log.write("cannot tell", name=node, error=error.message)
            return
        if boot_id:
            configured = list(self._config.rca)
            rcas = rca_places.known(self._run, node, self._config.mesh_boot, configured)
            datagram = gone(found, node, boot_id, incarnation)
            self._untold = [(rca, datagram) for rca in rcas]
            self._tell_untold()

    def _tell_untold(self) -> None:
        from agents.pct.heartbeat.datagrams import tell

        self._untold = [(rca, datagram) for rca, datagram in self._untold if not tell(self._names, rca, datagram)]

    # Requests

    def _on_request(self, session: Session, op: str, message: Message) -> None:
        if op == "status":
            daemons = [self._state_of(kept) for kept in self._kept]
            auto = self._config.auto
            session.reply(message, {"pid": os.getpid(), "auto": auto, "daemons": daemons})
            return
        if op == "job_end":
            if self._job_end is None:
                session.reply(message, {"left_s": None})
            else:
                self._job_end.asked(lambda left_s: session.reply(message, {"left_s": left_s}))
            return
        self._down(session, message, time.monotonic() + LEAVING_S)

    def _state_of(self, kept: Kept) -> Message:
        machine, now = kept.machine, time.monotonic()
        told = {"name": kept.name, "pid": kept.pid, "restarts": machine.restarts, "state": machine.state.value}
        if machine.state is State.WAITING and kept.reason:
            told["reason"] = kept.reason
            told["again_s"] = round(max(0.0, kept.due_at - now), 1)
        elif kept.adopted_without_socket and machine.state is State.RUNNING and not os.path.exists(kept.socket_path):
            told["reason"] = "its process was stopped, or hangs"
        return told

    def _down(self, session: Session, message: Message, deadline: float) -> None:
        if not message.get("force") and time.monotonic() - self._back_at < BACK_S:
            # Sockets show which launches run, and not all of them are created again yet.
            self._loop.after(0.1, lambda: self._down(session, message, time.monotonic() + LEAVING_S))
            return
        running = [] if message.get("force") else self._launchers()
        if running and time.monotonic() < deadline:
            self._loop.after(0.02, lambda: self._down(session, message, deadline))
            return
        if running:
            some = ", ".join(map(str, running[:5])) + (" …" if len(running) > 5 else "")
            what = f"launcher {some} runs" if len(running) == 1 else f"{len(running)} launchers run ({some})"
            hint = "wait for them, or end them too with mesh down --force"
            session.refuse(message, Busy(f"{what} on this mesh", hint, exit_status=1))
            return
        session.reply(message, {})
        self._loop.after(0, lambda: self._end("the mesh was taken down"))

    def _launchers(self) -> List[int]:
        return running_launchers(self._run, self._state)

    def _may_end_idle(self) -> bool:
        back_s = time.monotonic() - self._back_at
        return back_s >= BACK_S and not self._launchers() and not jobs_run(self._state)

    def _job_files(self) -> JobFiles:
        from agents.keeper.job_files import JobFiles  # only in a batch system's job

        return JobFiles(self._config, self._log)

    # The end: PCTs first (they end their launches), then the RCA, then the CPAs

    def _end(self, reason: str) -> None:
        if self._ending:
            return
        self._log.write("ending", reason=reason)
        self._end_reason = reason
        if self._job_end is not None:
            self._announce_end()
        self._ending = ["pct", "rca", "cpa"]
        if self._config.script is not None:
            self._end_owners(time.monotonic() + OWNERS_S, set())
        else:
            self._begin_ending()

    def _announce_end(self) -> None:
        try:
            ending.announce(self._state, self._end_reason)
        except OSError as error:  # then the daemons are killed after END_S
            self._log.write("cannot announce the end", reason=str(error))

    def _end_owners(self, deadline: float, asked: Set[int]) -> None:
        """Suspend the jobs of a mesh that ends with its batch job: their owners are no children of ours."""
        owners, late = job_owners(self._state), time.monotonic() > deadline
        for pid in owners:
            if late or pid not in asked:
                processes.send_signal(pid, signal.SIGKILL if late else signal.SIGTERM)
        if not owners or late:
            self._begin_ending()
        else:
            self._loop.after(_OWNERS_AGAIN_S, lambda: self._end_owners(deadline, {*asked, *owners}))

    def _begin_ending(self) -> None:
        if self._ending[0] == "cpa" and not self._told:
            self._tell_database()
            return
        self._end_deadline = time.monotonic() + END_S
        for kept in self._of_kind(self._ending[0]):
            self._feed(kept, Event.END)
        self._loop.after(END_S, self._end_next)
        self._end_next()

    def _tell_database(self) -> None:
        # Record it, because viewers would otherwise show the mesh up for ever; do not wait for a database that does not
        # answer.
        for kept in self._of_kind("cpa"):
            try:
                sock = connect_now(kept.socket_path)
            except (OSError, AgentError):
                continue
            caller = Caller(self._loop, sock, "keeper", lambda _caller, _reason: self._on_told())
            message = {"op": "mesh_down", "boot_id": self._config.boot_id, "reason": self._end_reason}
            caller.call(message, lambda _reply, _error: self._on_told())
            self._loop.after(TELL_S, self._on_told)
            return
        self._on_told()

    def _on_told(self) -> None:
        if not self._told:
            self._told = True
            self._begin_ending()

    def _of_kind(self, kind: str) -> List[Kept]:
        return [kept for kept in self._kept if kept.kind == kind]

    def _end_next(self) -> None:
        while self._ending:
            left = [kept for kept in self._of_kind(self._ending[0]) if kept.machine.state is not State.ENDED]
            if left:
                if time.monotonic() >= self._end_deadline:
                    processes.kill_all([kept.pid for kept in left if kept.pid])
                return
            del self._ending[0]
            if self._ending:
                self._begin_ending()
                return
        self._finish()

    def _finish(self) -> None:
        me = os.getpid()
        for _ in range(100):  # processes of a dead PCT's launches that we inherited as subreaper
            strays = processes.descendants(me)
            if not strays:
                break
            processes.kill_all(strays)
            self._reap()
            time.sleep(0.01)  # the kernel is ending them; nothing else is served any more
        self._server.close()
        if self._look is not None:
            self._look.cancel()  # it may be due before the loop stops, and would create RUN again
        remove_tree(self._run)
        self._log.write("keeper ended")
        if self._config.ends_with:  # a job leaves nothing behind
            self._job_files().leave(self._job_end.killed_at if self._job_end is not None else 0.0)
        self._loop.stop()
        os.close(self._lock)

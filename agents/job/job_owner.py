"""The owner of a job of tasks: gets processors, gives tasks to workers, records results in the state object.

agents/job/task_list.py is the state machine; this module has the sockets, timers and records. One process for each job.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import sys
import time
from collections import deque

from agents.job.description import BESIDE, for_earlier_worker, parts_file, read, yods_of
from agents.job.grants.failed_starts import FORGIVE_S
from agents.job.grants.processors import Processors
from agents.job.parts.calls import Calls
from agents.job.parts.package import Package
from agents.job.parts.standby import AHEAD, Standby
from agents.job.sections.nodes import Node, SectionNodes
from agents.job.sections.teams import Team
from agents.job.start import CALLS, SOCKET, beside, start_dependents
from agents.job.state_requests import Owner
from agents.job.task_list import Pace, TaskList
from agents.job.workers.relay_frames import HELLO, OVER, pack_answer, parse
from agents.link.acceptor import Acceptor
from agents.link.link import Link
from agents.link.sockets import listen
from agents.linux.processes import alive, start_time
from agents.linux.processes import state as process_state
from agents.wire.control import decode
from agents.wire.errors import WireError
from agents.wire.frames import CONTROL, FILE
from agents.yodio.yodparts import age, held_by, is_written, not_written, of_attempt, still_open, written
from redmesh.byte_text import each_to_system, from_system, to_system
from redmesh.state import CANCELLED, DONE, FAILED, HANDED_TO, RUNNING, UNSURE, WAITING, StateError, StateFull, StateGone
from redmesh.text import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any, Callable, Deque, Dict, List, Optional, Set, Tuple, Union

    from agents.job.grants.processors import Grant
    from agents.job.task_list import Change
    from agents.link.loop import Loop
    from agents.wire.launch_events import NodeCannotStart
    from agents.yodio.yodparts import Found, Written
    from redmesh.state import StateObject

    Reply = Callable[[bytes], None]

#: The most bytes of inputs in one batch, because a frame has a limit.
_BATCH_BYTES = 256 << 10
#: Seconds for launches to end by themselves at the end of the job; the same for sections, where a second copy may be on
#: a silent node; and between checks of yods that an earlier owner left.
_END_S, _SECTIONS_END_S, _LOOK_S = 10.0, 3.0, 0.2
#: Seconds after which a Python program that submits no calls counts as idle.
_IDLE_S = 2.0
#: Seconds after which the nodes have ended the ranks of a yod that was killed.
_LOST_S = 5.0
#: Seconds for running tasks to end before the job moves elsewhere; the others are run again there.
_STAGE_S = 10.0
#: Other requests of programs go to agents/job/state_requests.py.
_OWN = ("work", "worked", "tested", "report")
#: Commands for which the owner must know the tasks.
_OF_TASKS = ("cancel", "hold", "release", "retry")
#: Bytes kept of a section's last output: mostly a hundred lines of each stream.
_SECTION_LINES = 32 << 10
#: A section is copied to an idle worker after this many times the mean, and at least this many seconds.
_SLOW, _SLOW_S = 2.0, 1.0
#: Seconds between looks at the program of an Executor.
_PROGRAM_S = 5.0
#: Seconds after which a worker that returns nothing gives back the tasks that it has not begun: the mean of short tasks
#: says nothing of a long one among them, behind which others would wait while processors are idle.
_RECALL_S = 0.5
#: The most stopped workers in the job's object.
_MOST_STOPPED = 64
#: Seconds for a worker to give back calls that the program cancels; later they can no longer be cancelled.
_WITHDRAW_S = 4.0


class Worker:
    """A worker: a rank of a grant, identified by its channel."""

    __slots__ = (
        "asked", "backlog", "byte_text", "cancelled", "connection", "kill", "node", "rank", "recalled", "reply",
        "since", "slot", "stopped", "team", "told", "unwanted",
    )  # fmt: skip

    def __init__(self, connection: Connection, node: str, slot: int, rank: int, team: Optional[Team]) -> None:
        self.connection, self.node, self.slot, self.rank, self.team = connection, node, slot, rank, team
        if team is not None:
            team.members.append(self)
        self.reply: Optional[Reply] = None  # the reply to its request for tasks
        self.byte_text = False  # of an earlier version, it takes lone surrogates for bytes that are not UTF-8
        self.backlog: Deque[List[Any]] = deque()  # tasks assigned to it that it has not received
        self.kill: List[int] = []  # copies that are no longer needed
        self.unwanted: Set[int] = set()  # calls that it is to give back if it has not begun them
        self.asked: Set[int] = set()  # what it was asked to give back: its next request is the answer
        # told about the job; told that its tasks are not needed; told to exit
        self.told = self.cancelled = self.stopped = False
        # When it last returned a result, or got tasks while it had none; asked since then to give back what it has in
        # advance.
        self.since, self.recalled = 0.0, False

    @property
    def holder(self) -> Union[Worker, Team]:
        """The holder of tasks: the worker, or all ranks of its launch together."""
        return self if self.team is None else self.team


class Connection:
    """A yod that relays its workers' requests, or a command."""

    __slots__ = ("client", "grant", "link", "over", "relays", "team", "workers")

    def __init__(self) -> None:
        self.link: Optional[Link] = None
        self.relays = self.over = False  # over: the yod has reported the end of its ranks
        self.client = False  # a redmesh.Executor
        self.grant: Optional[Grant] = None
        self.team: Optional[Team] = None  # for sections of several ranks
        self.workers: Dict[Tuple[int, int], Worker] = {}


class JobOwner:
    """Runs one job to its end; ``on_end()`` is called once everything is recorded."""

    def __init__(self, loop: Loop, job: StateObject, on_end: Callable[[], None]) -> None:
        self._loop, self._job, self._on_end = loop, job, on_end
        self._described = read(job)
        self._owner = Owner(job, loop.after, self._on_failure, on_move=self._move)
        wanted = self._described.standby and self._described.functions is None
        self._standby = Standby(
            loop, self._owner, self._on_fenced, self._on_leave, lambda: self._serve(), wanted=wanted
        )
        self._leaves_to = ""  # the login processor on which the job continues
        self._movers: List[Tuple[Connection, Any]] = []  # commands that wait for the outcome
        noun = "task" if self._described.sections is None else "section"
        self._tasks = TaskList(self._described.retries, self._described.max_fails, noun)
        self._pace = Pace()
        self._workers: List[Worker] = []
        self._slots = 0
        self._waiters: List[Tuple[Connection, Any]] = []
        self._ending = self._over = self._suspends = self._taken_up = self._fenced = False
        self._early: List[Tuple[Connection, Dict[str, Any]]] = []  # commands that came before the tasks were known
        self._path = beside(job.path, SOCKET)
        self._sock: Optional[socket.socket] = None
        self._acceptor: Optional[Acceptor] = None
        rules = self._described.sections
        self._size = 1 if rules is None else int(rules.get("size", 1))  # ranks of a section
        self._copies = bool(rules and rules["copies"])
        self._settles = bool(rules and rules.get("settles"))  # the owner renames parts, not the workers
        self._parts: Dict[int, List[str]] = {}  # of running sections
        #: Files that running sections of several ranks write under their final names, each as it was before.
        self._direct: Dict[int, List[Tuple[str, Optional[Found]]]] = {}
        self._mark: str = (rules or {}).get("mark", "")
        self._package = Package(job) if self._described.package else None
        self._calls = Calls() if self._described.functions else None
        self._last_end = 0.0  # of a task
        self._processors = Processors(
            loop, self._worker_words(), self._described.limit,
            on_asked=self._on_asked, on_granted=self._on_granted, on_over=self._on_grant_over,
            on_silence=self._on_silence, on_trouble=self._on_trouble, on_failed=self._on_failed_start,
            on_hopeless=self._on_hopeless, on_unstartable=self._on_unstartable, unit=self._size,
        )  # fmt: skip
        self._requests: List[int] = []
        self._nodes = None if rules is None else SectionNodes(float(rules["recheck_s"]))
        self._began: Dict[int, float] = {}  # running sections: when the first copy was started
        self._recalls = False  # True if workers with tasks in advance are checked after a pause
        self._looks = False  # True if excluded nodes and slow sections are checked after a pause
        self._waits_for = ""  # the process that must exit before the job is resumed

    def _worker_words(self) -> List[str]:
        """The arguments of the yods that start workers."""
        described, rules = self._described, self._described.sections
        words = ["-worker-of", self._path, "-kill", "-quiet", "-input", "none"]
        words += ["-mpi", "none", "-rendezvous", "none"] if rules is None or self._size == 1 else ["-mpi", rules["mpi"]]
        if rules and rules.get("stage"):
            words += ["-io", to_system(described.cwd)]
        if described.cpus > 1:
            words += ["-cpus-per-task", str(described.cpus)]
        if described.gpus:
            words += ["-gpus-per-task", str(described.gpus)]
        if described.functions:
            words += ["-io", to_system(described.functions["directory"])]
        if self._package is not None:
            words += ["-stage-in", self._package.path]
        return [*words, "yodwork", *self._shown()]

    def _shown(self) -> List[str]:
        """The command of the workers' launches in showmesh, pingd and the history: the job, and its program."""
        described = self._described
        what = described.name or " ".join(described.command)[:200]
        return ["job", self._job.uuid[:8], *([to_system(what)] if what else [])]

    # Start

    def begin(self) -> None:
        """Start or resume the job, as its object says. Raises StateError or OSError."""
        self._sock = listen(self._path)
        self._acceptor = Acceptor(self._loop, self._sock, self._on_accept)
        left = yods_of(self._job)
        self._tasks.held = bool(self._job.meta("held"))
        try:
            self._job.set_meta(
                pid=os.getpid(), host=os.uname().nodename, silent=None, stopped=None, **{HANDED_TO: None}
            )
            self._job.keep_room()
            self._job.commit()
        except StateFull as error:
            full = error  # from the loop, as below
            self._loop.after(0.0, lambda: self._on_failure(full))
            return
        self._standby.begin()
        if self._calls is not None:
            self._await_program(self._calls)
        # From the loop: a job with nothing left to do ends at once, and would stop a loop that does not run yet.
        self._loop.after(0.0, lambda: self._await_left(left))

    def _await_left(self, left: List[List[int]]) -> None:
        """Wait for the end of launches of a lost owner, because no task may be started twice before."""
        if self._over:
            return  # suspended meanwhile
        left = [one for one in left if alive(one[0], one[1])]
        told = f"yod {left[0][0]} of the owner before" if left else ""
        if left and process_state(left[0][0]) in ("T", "t"):
            told += f", which is stopped: kill -CONT {left[0][0]}"
        if told != self._waits_for:
            self._waits_for = told
            self._owner.record(lambda job: job.set_meta(waits_for=told or None))
        if left or not self._standby.clear:
            self._loop.after(_LOOK_S, lambda: self._await_left(left))
            return
        try:
            self._take_up()
        except StateFull as error:
            self._on_failure(error)

    def _take_up(self) -> None:
        # A copy lacks the last commits of its owner: tasks that these handed out may have begun (AHEAD).
        unsure = AHEAD if self._job.meta(UNSURE) else 0
        for first, last, state, attempts in list(self._job.ranges()):
            if state == RUNNING:
                self._job.change(first, last, WAITING, cause="the owner of the job was lost")
                self._tasks.add(first, last, attempts)
            elif state == WAITING:
                through = min(last, first + unsure - 1)
                if unsure:
                    why = "it may have begun before the owner of the job was lost"
                    self._job.change(first, through, WAITING, cause=why, attempt=attempts + 1)
                    self._tasks.add(first, through, attempts + 1)
                    unsure -= through - first + 1
                if through < last:
                    self._tasks.add(through + 1, last, attempts)
            else:
                self._tasks.ended_before(state, last - first + 1)
        took_s = self._job.mean_s() if self._copies else None
        if took_s is not None:
            self._pace.took(took_s)
        self._job.freed()
        if self._job.meta(UNSURE):
            self._job.set_meta(**{UNSURE: None})
        if not self._tasks.held:
            self._mark_running()
        self._job.commit()
        self._taken_up = True
        for connection, message in self._early:
            if connection.link is not None:
                self._command(connection, message)
        self._early.clear()
        self._serve()

    def _mark_running(self) -> None:
        self._measure_anew()
        if self._job.meta("state") != RUNNING:
            self._job.set_state(RUNNING)
            if self._job.meta("begun_at") is None:
                self._job.set_meta(begun_at=time.time())

    def _measure_anew(self) -> None:
        """The rate, and the time left, count from now on: nothing ran for a while."""
        ran = self._job.counts.get(DONE, 0) + self._job.counts.get(FAILED, 0)
        self._job.set_meta(paced_at=time.time(), paced_from=ran)

    # Processors

    def _need(self) -> None:
        if self._ending:
            return
        if self._size == 1:
            busy = sum(1 for worker in self._workers if self._tasks.given_to(worker))
        else:
            busy = sum(1 for team in {worker.team for worker in self._workers} if self._tasks.given_to(team))
        more = self._tasks.waiting or sum(map(self._tasks.may_be_copied, self._slow() if self._copies else ()))
        self._processors.want((busy + more if self._tasks.open else busy) * self._size)

    def _on_asked(self, count: int) -> None:
        def record(job: StateObject) -> None:
            self._requests.append(job.requested(count, partial=False))
            job.set_meta(yods=json.dumps([[pid, start_time(pid)] for pid in self._processors.pids]))

        self._owner.record(record)
        self._owner.commit()  # before a worker runs, so that a resumed job knows what to wait for

    def _on_granted(self, grant: Grant) -> None:
        def record(job: StateObject) -> None:
            request = self._requests[grant.number - 1]
            job.answered(request, "acknowledged")
            job.set_meta(trouble=self._processors.trouble or None)
            for node in grant.nodes:
                numbers = sorted(node["processors"])
                job.granted(request, str(node["name"]), ",".join(map(str, numbers)), len(numbers))

        self._owner.record(record)

    def _on_silence(self) -> None:
        nodes = ", ".join(self._processors.silent)[:500]
        stopped = [
            {"node": found.node, "pid": pid, "since": since}
            for found in self._processors.stopped
            for pid, since in zip(found.pids, found.since)  # noqa: B905  (strict needs Python 3.10)
        ][:_MOST_STOPPED]
        told = json.dumps(stopped) if stopped else None
        self._owner.record(lambda job: job.set_meta(silent=nodes or None, stopped=told))

    def _on_trouble(self) -> None:
        trouble = self._processors.trouble
        self._owner.record(lambda job: job.set_meta(trouble=trouble or None))

    def _on_failed_start(self, grant: Grant, start: NodeCannotStart, again_s: float) -> None:
        """A node cannot start workers. While others run, nothing else says so but the log; while none runs, a line at
        the first failure is enough."""
        is_news = again_s <= FORGIVE_S or any(one.started for one in self._processors.grants.values())

        def record(job: StateObject) -> None:
            job.freed(request=self._requests[grant.number - 1])
            if is_news:
                why = start.text + (f" ({start.hint})" if start.hint else "")
                job.log(f"left out for {again_s / 60:.0f} min while others run: {why}", node=start.node)

        self._owner.record(record)

    def _on_grant_over(self, grant: Grant) -> None:
        if grant.silent or grant.stopped_ranks:
            self._on_silence()

        def record(job: StateObject) -> None:
            if grant.allocated:
                job.freed(request=self._requests[grant.number - 1])
            else:
                job.answered(self._requests[grant.number - 1], "; ".join(grant.words)[:500] or "not granted")
                # That every other node is left out is no news beside the reason why they are.
                if grant.waits and not grant.stopping and not self._processors.trouble:
                    job.set_meta(trouble="; ".join(grant.words)[:500])  # asked again, because a node may come back
            if grant.allocated and not (grant.started or grant.stopping):
                job.set_meta(trouble="; ".join(grant.words)[:500])  # a load that failed; cleared by the next grant
            if grant.allocated and grant.process.returncode and not self._ending:
                job.log(f"launch {grant.launcher} ended with {grant.process.returncode}: {'; '.join(grant.words)}")

        self._owner.record(record)
        if self._ending:
            self._end_if_free()
        else:
            self._loop.after(0.0, self._serve)

    def _on_hopeless(self, reason: str) -> bool:
        """Returns whether to ask again later: while sections run, an excluded node may become usable."""
        if self._nodes is None:
            self._cancel(f"no processors: {reason}", fails=True)
            return False
        if self._tasks.running:
            return True
        left = self._nodes.left_out()
        told = left or "; what is missing has failed on every node (--same-node allows more)"
        missing = counted(self._tasks.waiting, "section")
        if self._size > 1 and not left:
            told = f"; a section has {self._size} ranks: {reason}"
            if not all(map(self._tasks.suits, self._nodes.met())):
                told += "; what has failed on a node is not tried there again (--same-node allows it)"
        self._cancel(f"incomplete, no node is left for {missing}{told}", fails=True)
        return False

    def _on_unstartable(self, reason: str) -> None:
        missing = "" if self._nodes is None else f"incomplete, {counted(self._tasks.waiting, 'section')} missing: "
        left = "" if self._nodes is None else self._nodes.left_out()
        self._cancel(missing + reason + left, fails=True)

    # Connections

    def _on_accept(self, sock: socket.socket, _address: object) -> None:
        connection = Connection()
        connection.link = Link(
            self._loop, sock,
            lambda _link, kind, payload: self._on_frame(connection, kind, payload),
            lambda _link, _reason: self._on_link_end(connection),
        )  # fmt: skip

    def _on_frame(self, connection: Connection, kind: int, payload: bytes) -> None:
        if kind == FILE and connection.relays:
            self._on_request(connection, payload)
            return
        if kind == FILE and self._calls is not None and self._calls.client is connection.link:
            self._on_calls(self._calls, payload)
            return
        if kind != CONTROL:
            raise WireError("a connection to a job's owner begins with a control message")
        message = decode(payload)
        if message.get("op") == HELLO:
            connection.relays = True
            connection.grant = self._processors.grant_of(message.get("pid", 0))
        elif message.get("op") == OVER:
            connection.over = True
        else:
            self._command(connection, message)

    def _on_request(self, connection: Connection, payload: bytes) -> None:
        try:
            asked = parse(payload)
        except (struct.error, UnicodeDecodeError):
            raise WireError("not a worker's request") from None

        def reply(data: bytes) -> None:
            if connection.link is not None:
                connection.link.send_raw(pack_answer(asked.number, data))

        worker = connection.workers.get(asked.channel)
        if not asked.number:
            if worker is not None:
                worker.reply = None  # its tasks are returned when its launch has ended
            return
        told = _read(asked.data)
        if told.get("op") not in _OWN:
            self._owner.ask(asked.data, asked.node, reply)
            return
        if worker is None:
            self._slots += 1
            if self._size > 1 and connection.team is None:
                connection.team = Team(self._size)
            rank = told.get("rank")
            worker = connection.workers[asked.channel] = Worker(
                connection, asked.node, self._slots, rank if isinstance(rank, int) else 0, connection.team
            )
            self._workers.append(worker)
        if told["op"] == "work":
            worker.reply, worker.byte_text = reply, bool(told.get("byte_text"))
            if self._calls is not None:
                self._asks(worker, self._calls, prepares=bool(told.get("prepares")))
        else:
            if told["op"] == "worked":
                self._take(worker, told.get("results"))
                if told.get("broken") and not self._tasks.cancelled:  # the first reason, not what it has caused
                    self._cancel(str(told["broken"]), fails=True, error=str(told.get("error") or ""))
            elif told["op"] == "tested":
                self._tested(worker, str(told.get("reason") or ""))
            else:
                self._reported(worker, told)
            reply(b"{}")
        self._serve()

    def _on_link_end(self, connection: Connection) -> None:
        connection.link = None
        self._waiters = [one for one in self._waiters if one[0] is not connection]
        if not connection.relays:
            if connection.client and self._calls is not None:
                self._calls.client = None
                self._close_calls(self._calls)
            return
        for worker in connection.workers.values():
            worker.reply = None
        if connection.over:
            self._lose(connection)
        else:
            # This yod was killed: its nodes end its ranks, which takes a moment.
            self._loop.after(_LOST_S, lambda: self._lose(connection))

    def _lose(self, connection: Connection) -> None:
        gone = set(connection.workers.values())
        self._workers = [worker for worker in self._workers if worker not in gone]
        vanished = [] if connection.grant is None else connection.grant.vanished
        for holder in dict.fromkeys(worker.holder for worker in gone):
            for change in self._tasks.lose(holder, f"the worker on {holder.node} was lost"):
                self._record(change)
                nodes = holder.node.split(",")
                # A launch ends as a whole: if it is known which node was lost, do not blame the others.
                for node in set(nodes).intersection(vanished) or (() if vanished else nodes):
                    self._avoid(change, node)
                if change.state != RUNNING:
                    self._began.pop(change.number, None)
        for worker in gone:
            if self._nodes is not None:
                self._nodes.lose(worker)
        self._serve()
        if self._ending:
            self._end_if_free()

    # Functions

    def _await_program(self, calls: Calls) -> None:
        """Cancel the job if its program ends. One that is slow or stopped may still connect, or continue.

        Its connection may never come, and does not end with it if it has forked a process that has it too.
        """
        if self._ending:
            return
        program = (self._described.functions or {}).get("program")
        if program is None or alive(*program):
            self._loop.after(_PROGRAM_S, lambda: self._await_program(calls))
        elif calls.open or calls.client is not None:
            calls.client, calls.open = None, False
            self._cancel("the program has exited")

    def _on_calls(self, calls: Calls, payload: bytes) -> None:
        ranges = calls.add(payload)
        self._on_submitted(calls, calls.received)
        for first, last, cancelled in ranges:
            if self._tasks.cancelled:
                continue  # recorded by _cancel or _on_submitted
            if cancelled:
                self._change(first, last, CANCELLED, "cancelled by the program")
            else:
                self._tasks.add(first, last)
        self._serve()

    def _on_submitted(self, calls: Calls, count: int) -> None:
        """The program has submitted ``count`` calls: those that it has not sent yet are tasks that wait."""
        first, calls.submitted = calls.submitted + 1, max(calls.submitted, count)
        if self._tasks.finished and time.time() - self._last_end > _IDLE_S:
            self._owner.record(lambda _job: self._measure_anew())
        if count >= first:
            self._owner.record(lambda job: job.add_array(first, count))
            if self._tasks.cancelled:
                self._change(first, count, CANCELLED, self._tasks.cancelled)

    def _close_calls(self, calls: Calls) -> None:
        """The program makes no further calls: end the job after the present ones.

        If the program has exited, cancel calls that have not ended.
        """
        if calls.open:
            self._owner.record(lambda job: job.set_meta(calls_closed=1))
        calls.open = False
        if calls.client is None and (calls.unsent or not self._tasks.finished):
            self._cancel("the program has exited")
        self._loop.after(0.0, self._serve)

    # Tasks

    def _serve(self) -> None:
        """Give out tasks, dismiss workers that can expect none, and end the job when all tasks have ended."""
        if self._over or not self._taken_up:
            return
        if self._tasks.finished and not self._leaves_to and not self._ending and not self._expects:
            self._end()
        ready = [worker for worker in self._workers if worker.reply is not None and not worker.stopped]
        for worker in ready:
            if worker.unwanted:
                worker.asked, worker.unwanted = worker.unwanted, set()
                self._answer(worker, {"recall": sorted(worker.asked)})
                continue
            if worker.backlog:
                self._send(worker)
                continue
            if self._tasks.cancelled and self._tasks.given_to(worker.holder):
                if not worker.cancelled:
                    worker.cancelled = True
                    self._answer(worker, {"cancel": True})
                continue
            if worker.kill:
                self._answer(worker, {"kill": worker.kill})
                worker.kill = []
                continue
            if worker.team is not None and self._nodes is not None:
                self._serve_team(worker, worker.team, self._nodes)
                continue
            if self._nodes is not None and not self._admit(worker, self._nodes):
                continue
            has = len(self._tasks.given_to(worker))
            if self._nodes is None and has and time.monotonic() - worker.since >= _RECALL_S:
                self._recall(worker, has)
                continue
            ahead = self._pace.ahead(self._tasks.waiting + has, len(self._workers)) if self._nodes is None else 1
            if has > ahead // 2:
                continue
            if self._tasks.waiting and self._tasks.open and self._tasks.suits(worker.node):
                if not self._standby.behind:
                    worker.since = worker.since if has else time.monotonic()
                    self._give(worker, min(ahead - has, self._standby.room))
            elif not has and self._copy(worker):
                continue
            elif not has and not (self._tasks.running and self._described.retries) and not self._expects:
                self._stop(worker)
        if self._leaves_to and not self._ending and not self._tasks.running:
            self._leave_now()
            return
        self._exclude()
        self._need()
        if not self._recalls and self._nodes is None and any(len(self._tasks.given_to(one)) > 1 for one in ready):
            self._recalls = True
            self._loop.after(_RECALL_S, self._check_recalls)

    def _check_recalls(self) -> None:
        self._recalls = False
        self._serve()

    def _recall(self, worker: Worker, has: int) -> None:
        """Have a worker whose task takes long give back the others, for workers that are idle or will come."""
        if has > 1 and not worker.recalled and not self._tasks.cancelled:
            worker.recalled = True
            self._pace.took(time.monotonic() - worker.since)
            self._answer(worker, {"recall": True})

    @property
    def _expects(self) -> bool:
        """True if more tasks may come."""
        return self._calls is not None and self._calls.open and not self._tasks.cancelled

    def _give(self, worker: Worker, count: int) -> None:
        given = self._tasks.hand_out(worker.holder, count, worker.holder.node)
        self._standby.handed_out(len(given))
        taken: List[Any] = []
        if self._nodes is None:
            self._owner.record(lambda job: taken.extend(job.take(len(given), worker.node, worker.slot)))
        else:
            numbers = [number for number, _ in given]
            self._began.update(dict.fromkeys(numbers, time.time()))
            self._owner.record(lambda job: taken.extend(job.take_these(numbers, worker.holder.node, worker.slot)))
        if [one.number for one in taken] != [number for number, _ in given]:
            return  # the object is full: the owner's failure ends the job
        if not self._committed():
            return
        inputs = self._calls.inputs if self._calls is not None else None
        for one in taken:
            self._hand_out(worker, [one.number, one.attempt, one.input if inputs is None else inputs[one.number]])
        self._send(worker)

    def _committed(self) -> bool:
        """Commit before a worker gets tasks, so that the object of a killed owner knows which tasks may have begun.

        Returns False if the object is full: the owner's failure ends the job.
        """
        self._owner.commit()
        return not (self._over or self._job.dirty)  # a failed commit was rolled back, and has ended the job

    def _hand_out(self, worker: Worker, task: List[Any]) -> None:
        if self._settles:
            told = json.loads(task[2])
            self._parts[task[0]] = each_to_system(told["parts"])
            self._direct[task[0]] = [
                (path, age(path, of_attempt(path, self._mark, task[1])))
                for path in each_to_system(told.get("direct", ()))
            ]
        for member in [worker] if worker.team is None else worker.team.members:
            member.backlog.append(task)
            if member is not worker:
                self._send(member)

    def _send(self, worker: Worker) -> None:
        """Send a worker its assigned tasks, as many as one frame holds."""
        tasks: List[Any] = []
        size = 0
        while worker.backlog and (not tasks or size < _BATCH_BYTES):
            tasks.append(worker.backlog.popleft())
            text = tasks[-1][2] or ""
            size += len(text) if text.isascii() else len(json.dumps(text))
        self._hand(worker, tasks)

    def _hand(self, worker: Worker, tasks: List[List[Any]], **more: Any) -> None:
        message: Dict[str, Any] = {"tasks": tasks, **more}
        if not worker.told:
            message["job"] = self._described.for_workers(self._job.uuid)
            if self._package is not None:
                within = self._described.package != BESIDE
                message["job"]["package"] = {"name": self._package.name, "within": within}
            worker.told = True
        self._answer(worker, message)

    # Sections

    def _admit(self, worker: Worker, nodes: SectionNodes) -> bool:
        """True if a worker's node may run sections now; has it tested if that is unknown."""
        state = nodes.state(worker.node, time.monotonic())
        if state is Node.UNTESTED:
            nodes.test(worker.node, worker)
            self._hand(worker, [], test=True)
        elif state is Node.EXCLUDED and not self._tasks.given_to(worker.holder):
            self._stop(worker)
        return state is Node.GOOD

    def _serve_team(self, worker: Worker, team: Team, nodes: SectionNodes) -> None:
        """Serve a rank of a launch: test the nodes, then one section for all ranks, then their end."""
        if team.over:
            self._stop(worker)
            return
        if not self._admit(worker, nodes):
            if worker.stopped:
                self._dismiss(team)
            return
        if self._tasks.given_to(team):
            return
        waits = self._tasks.waiting and self._tasks.open
        if not waits and not self._tasks.running:
            self._dismiss(team)
            return
        if not team.complete or not all(one.reply is not None and self._admit(one, nodes) for one in team.members):
            if any(one.stopped for one in team.members):
                self._dismiss(team)
            return
        if waits and self._tasks.suits(team.node):
            if not self._standby.behind:
                self._give(worker, 1)
        elif not self._copy(worker) and not (self._tasks.running and self._described.retries):
            self._dismiss(team)

    def _dismiss(self, team: Team) -> None:
        team.over = True
        for member in team.members:
            if member.reply is not None and not member.stopped:
                self._stop(member)

    def _tested(self, worker: Worker, reason: str) -> None:
        nodes = self._nodes
        if nodes is None or not nodes.tested(worker.node, worker, reason, time.monotonic()) or not reason:
            return
        self._log(f"{worker.node} is left out: {reason}", worker.node)
        self._exclude()

    def _log(self, text: str, node: str) -> None:
        self._owner.record(lambda job: job.log(text, node=node))

    def _exclude(self) -> None:
        """Request no processors on nodes that may run no section, and check again after a while."""
        nodes = self._nodes
        if nodes is None:
            return
        useless = [] if self._tasks.running else [node for node in nodes.met() if not self._tasks.suits(node)]
        self._processors.exclude(sorted({*nodes.excluded(), *(useless if self._tasks.waiting else ())}))
        if not self._looks and (nodes.excluded() or self._tasks.running):
            self._looks = True
            self._loop.after(_SLOW_S, self._look_again)

    def _look_again(self) -> None:
        self._looks = False
        if self._nodes is None or self._over or self._ending:
            return
        for node in self._nodes.due(time.monotonic()):
            self._log(f"{node} is looked at again", node)
        self._serve()

    def _avoid(self, change: Change, node: str) -> None:
        rules = self._described.sections
        if rules is None or self._nodes is None:
            return
        if not rules["same_node"]:
            self._tasks.avoid(change.number, node)
        self._nodes.doubt(node)

    def _copy(self, worker: Worker) -> bool:
        """Give an idle worker a second copy of a slow section."""
        if not self._copies or self._tasks.waiting or not self._tasks.open:
            return False
        copied = self._tasks.copy(worker.holder, worker.holder.node, self._slow())
        if copied is None:
            return bool(self._tasks.running)  # one may become slow, so this worker is kept
        number, attempt = copied
        taken: List[Any] = []
        self._owner.record(lambda job: taken.append(job.copied(number, worker.holder.node)))
        if taken and self._committed():
            self._hand_out(worker, [number, attempt, taken[0].input])
            self._send(worker)
        return True

    def _slow(self) -> List[int]:
        if not self._pace.known:
            return []  # all of them may become slow
        limit = time.time() - max(_SLOW_S, _SLOW * self._pace.mean_s)
        return [number for number, began in self._began.items() if began < limit]

    def _reported(self, worker: Worker, told: Dict[str, Any]) -> None:
        """A section's program has reported, or states its progress."""
        number, kind, part = told.get("number"), str(told.get("kind")), told.get("part")
        if number not in self._tasks.given_to(worker.holder):
            return  # a copy that is no longer needed
        text = f"{kind} {told.get('text') or ''}".strip()

        def record(job: StateObject) -> None:
            if isinstance(part, (int, float)):
                job.progress(min(max(float(part), 0.0), 1.0), number)
            job.log(text, node=worker.node, task=number)

        self._owner.record(record)

    def _stop(self, worker: Worker) -> None:
        worker.stopped = True
        if worker.connection.grant is not None:
            worker.connection.grant.stopped += 1
        self._answer(worker, {"stop": True})

    def _answer(self, worker: Worker, message: Dict[str, Any]) -> None:
        reply, worker.reply = worker.reply, None
        if reply is not None:
            if not worker.byte_text:
                message = for_earlier_worker(message, sections=self._described.sections is not None)
            reply(json.dumps(message).encode())

    def _take(self, worker: Worker, results: Any) -> None:
        if not isinstance(results, list):
            return
        returned: Set[int] = set()  # calls that the program has cancelled
        for row in results:
            try:
                number, attempt, status, started_at, ended_at, _, cause = row[:7]
            except (TypeError, ValueError):
                continue
            holder, node = worker.holder, worker.holder.node
            current = self._tasks.given_to(holder).get(number) == attempt
            if worker.team is not None and current:
                for other in worker.team.take(worker, row):
                    other.kill.append(number)
                if not worker.team.ended:
                    continue
                worker.team.over, row = True, worker.team.result()
                status, started_at, ended_at, cause = row[2], row[3], row[4], row[6]
            if cause in ("dropped", "killed"):
                killed = self._tasks.killed(holder, number, attempt, begun=cause == "killed")
                if killed is not None:
                    self._record(killed, begun=cause == "killed")
                    if self._calls is not None and number in self._calls.unwanted and killed.state == WAITING:
                        returned.add(number)
                continue
            worker.since, worker.recalled = time.monotonic(), False
            if self._settles:
                left: List[Written] = []
                wrong = self._settle(number, attempt, left, good=current and not (status or cause))
                cause = wrong or cause
                row = [*row[:6], cause, left]
            self._pace.took(ended_at - started_at)
            change = self._tasks.end(holder, number, attempt, failed=bool(status or cause))
            if change is not None:
                if change.state != RUNNING:
                    self._began.pop(number, None)
                    self._parts.pop(number, None)
                    self._direct.pop(number, None)
                self._ended(change, row, node)
                if status or cause:
                    self._avoid(change, node if worker.team is None else worker.team.blamed)
            if self._nodes is not None and len(row) > 7 and row[7] and not (status or cause):
                self._keep_written(number, row[7], first=change is not None)
        if self._calls is not None:
            self._calls.flush()
            self._calls.keep(returned - self._forget(self._calls, returned))
        for other, number in self._tasks.obsolete:
            if isinstance(other, Team):
                other.over = True
            for member in other.members if isinstance(other, Team) else (other,):
                if isinstance(member, Worker):
                    member.kill.append(number)
        self._tasks.obsolete.clear()
        why = self._tasks.too_many_failed()
        if why:
            self._cancel(why, fails=True)

    def _keep_written(self, number: int, parts: List[Written], *, first: bool) -> None:
        """Record how a section has left its parts. If a copy succeeds too, they are those of either."""

        def record(job: StateObject) -> None:
            if not job.full:
                name = parts_file(number)
                before = [] if first else json.loads(job.file(name) or b"[]")
                job.add_file(name, json.dumps([*before, parts]).encode())

        self._owner.record(record)

    def _settle(self, number: int, attempt: int, left: List[Written], *, good: bool) -> str:
        """Check that an attempt has written its parts, and rename them to their final names; or delete them.

        Returns the error, or "", and adds to ``left`` how it leaves the parts.
        """
        for path, before in self._direct.get(number, ()):
            if good and not is_written(path, before):
                return not_written(path)
            held = held_by(path) if good else ""
            if held:
                return from_system(still_open(path, held))
        for name in self._parts.get(number, ()):
            part = of_attempt(name, self._mark, attempt)
            try:
                if not good:
                    os.unlink(part)
                    continue
                # No copy is made here: the owner would serve nobody meanwhile.
                held = held_by(part)
                if held:
                    return from_system(still_open(name, held))
                os.replace(part, name)
            except OSError as error:
                if good:
                    return from_system(f"{name} was not written: {error.strerror}")
            else:
                left.append(written(name))
        left += [written(path) for path, _ in self._direct.get(number, ()) if good]
        return ""

    def _ended(self, change: Change, row: List[Any], node: str) -> None:
        number, attempt, status, started_at, ended_at, lines, cause = row[:7]
        self._last_end = ended_at
        if self._calls is not None and change.state != WAITING:
            self._calls.ended(number, status, cause, row[7] if len(row) > 7 else "")
        is_section = self._nodes is not None
        more: Dict[str, Any] = {"node": node, "copy": True, "most": _SECTION_LINES} if is_section else {}

        def record(job: StateObject) -> None:
            if change.state == RUNNING:
                job.log(f"a copy {change.cause}: {cause or f'exit status {status}'}", node=node, task=number)
                return
            job.ended(
                number, attempt, status, started_at=started_at, ended_at=ended_at, cause=cause, lines=lines or "",
                **more,
            )  # fmt: skip
            if change.state == WAITING:
                job.change(number, number, WAITING, cause=change.cause.replace("failed", f"exit status {status}", 1))

        self._owner.record(record)

    def _record(self, change: Change, *, begun: bool = True) -> None:
        if self._calls is not None and change.state != WAITING:
            self._calls.ended(change.number, 1, change.cause, "")
            self._calls.flush()  # there may be no worker left whose results would be sent with this one
        number, ended_at = change.number, None if change.state == WAITING else time.time()
        if change.state == RUNNING:  # another copy still runs
            self._owner.record(lambda job: job.log(f"a copy was given up: {change.cause}", task=number))
            return
        more: Dict[str, Any] = {}
        if change.state == WAITING and not begun:
            more = {"attempt": change.attempt - 1, "started_at": None}
        self._owner.record(
            lambda job: job.change(number, number, change.state, cause=change.cause, ended_at=ended_at, **more)
        )

    # Commands of users

    def _command(self, connection: Connection, message: Dict[str, Any]) -> None:
        op, number = message.get("op"), message.get("id", 0)
        link = connection.link
        assert link is not None
        if op in ("submitted", "drop", "withdraw") and connection.client and self._calls is not None:
            if op == "drop":
                self._withdraw(self._calls, set(self._calls.inputs), patient=True)
            elif op == "withdraw":
                numbers = message.get("numbers")
                given = numbers if isinstance(numbers, list) else []
                self._withdraw(self._calls, {one for one in given if isinstance(one, int)})
            elif isinstance(count := message.get("count"), int) and not self._ending:
                self._on_submitted(self._calls, count)
            return
        if op == "wait":
            self._waiters.append((connection, number))
            return
        if not self._taken_up and op in _OF_TASKS:
            self._early.append((connection, message))
            return
        if self._ending and op in _OF_TASKS:
            link.close()  # the job is ending: the command changes the object afterwards
            connection.link = None
            return
        if op == "move":
            try:
                self._move(str(message.get("node")))
            except StateError as error:
                link.send({"re": number, "error": error.message, "hint": error.hint})
            else:
                self._movers.append((connection, number))
            return
        if op == "functions" and self._calls is not None and self._calls.client is None:
            self._calls.client, connection.client = link, True
        elif op == "close" and self._calls is not None:
            self._close_calls(self._calls)
        elif op == "cancel":
            self._cancel(str(message.get("reason") or "cancelled"))
        elif op in ("hold", "release"):
            self._tasks.held = op == "hold"
            self._owner.record(lambda job: job.set_meta(held=int(op == "hold")))
            self._owner.record(lambda job: job.log("held" if op == "hold" else "released"))
            if op == "release":
                self._owner.record(lambda _job: self._mark_running())
        elif op == "retry" and self._calls is not None:
            # The owner has each call only until its end, so that memory does not grow with their number.
            link.send({"re": number, "error": "calls of a Python program cannot be run again from outside",
                       "hint": "submit them again in the program"})  # fmt: skip
            return
        elif op == "retry":
            count = self._retry(message.get("tasks"))
            self._owner.commit()
            link.send({"re": number, "tasks": count})
            self._serve()
            return
        elif op == "suspend":
            self.suspend()
        else:
            link.send({"re": number, "error": f"a job's owner does not know {str(op)[:40]!r}"})
            return
        self._owner.commit()
        link.send({"re": number})
        self._serve()

    def _withdraw(self, calls: Calls, numbers: Set[int], *, patient: bool = False) -> None:
        """Cancel the calls among ``numbers`` that no worker has begun: those that wait now, and those that workers give
        back within a moment, or whenever they do (``patient``)."""
        gone = self._forget(calls, numbers)
        asked: Set[int] = set()
        for worker in self._workers:
            unwanted = numbers.intersection(self._tasks.given_to(worker.holder))
            unsent = [task for task in worker.backlog if task[0] in unwanted]
            for task in unsent:
                worker.backlog.remove(task)
                change = self._tasks.killed(worker.holder, task[0], task[1], begun=False)
                if change is not None:
                    self._record(change, begun=False)
            own = {task[0] for task in unsent}
            gone |= self._forget(calls, own)
            worker.unwanted |= unwanted - own
            asked |= unwanted - own
        calls.unwanted |= asked
        if not patient:
            calls.keep(numbers - gone - asked)
            if asked:
                self._loop.after(_WITHDRAW_S, lambda: calls.keep(asked & calls.unwanted))
        self._serve()

    def _forget(self, calls: Calls, numbers: Set[int]) -> Set[int]:
        """Cancel the calls among ``numbers`` that wait and were never begun; returns them."""
        ranges = self._tasks.withdraw(numbers)
        for first, last in ranges:
            self._change(first, last, CANCELLED, "cancelled by the program")
        calls.drop(ranges)
        return {number for first, last in ranges for number in range(first, last + 1)}

    def _asks(self, worker: Worker, calls: Calls, *, prepares: bool) -> None:
        """A worker of calls asks for tasks: it has begun what it has not given back."""
        calls.keep(worker.asked & calls.unwanted)
        worker.asked = set()
        functions = self._described.functions or {}
        needed = [word for word in ("initializer", "max_tasks") if functions.get(word)]
        if needed and not prepares:
            what = " and ".join(needed).replace("max_tasks", "max_tasks_per_child")
            self._cancel(f"{worker.node} runs an earlier version of Redmesh, without {what}: mesh upgrade", fails=True)

    def _move(self, login: str) -> None:
        """Continue the job on another login processor, if possible. Raises StateError."""
        if self._ending or self._leaves_to:
            raise StateError(f"job {self._job.uuid} is ending or being moved already", "mesh job show")
        if not self._standby.node:
            raise StateError(
                f"job {self._job.uuid} cannot move: it has no standby, whose copy would become the object",
                "a job gets one after 3 s where another host is up; mesh job log names it",
            )
        self._standby.leave(login)

    def _on_leave(self, login: str, reason: str) -> None:
        movers, self._movers = self._movers, []
        for connection, number in movers:
            if connection.link is not None:
                connection.link.send({"re": number, **({"error": reason} if reason else {})})
        if self._over or self._ending or self._leaves_to:
            return
        if reason:
            self._owner.record(lambda job: job.log(f"the job stays here: {reason}"))
            return
        self._leaves_to = login
        self._owner.record(lambda job: job.log(f"the job continues on {login}: no more tasks start here"))
        self._tasks.held = True
        self._loop.after(_STAGE_S, self._leave_now)
        self._serve()

    def _leave_now(self) -> None:
        if not self._over and not self._ending:
            self.suspend()

    def _retry(self, only: Optional[List[int]]) -> int:
        """Run failed and cancelled tasks again, also those that a cancellation is ending; returns how many."""
        count = self._tasks.revoke()
        for worker in self._workers:
            worker.cancelled = False
        for first, last, state, attempts in list(self._job.ranges()):
            if state not in (FAILED, CANCELLED):
                continue
            own = [(first, last)] if only is None else [(number, number) for number in only if first <= number <= last]
            for one in own:
                self._tasks.again(state, *one, attempts)
                self._change(*one, WAITING, "mesh retry")
                count += one[1] - one[0] + 1
        return count

    def _change(self, first: int, last: int, state: str, cause: str) -> None:
        self._owner.record(lambda job: job.change(first, last, state, cause=cause))

    def _cancel(self, reason: str, *, fails: bool = False, error: str = "") -> None:
        unsent = self._calls.unsent if self._calls is not None and not self._tasks.cancelled else None
        for first, last in [*self._tasks.cancel(reason, fails=fails), *filter(None, [unsent])]:
            self._change(first, last, CANCELLED, reason)
        if self._calls is not None:
            self._calls.cancel(reason, error)
        self._tasks.held = False
        self._loop.after(0.0, self._serve)

    def _on_failure(self, error: StateError) -> None:
        if isinstance(error, StateGone):
            self._on_fenced(f"{error.message}: its tasks were ended")
            return
        # The object is full; only the end of the job is still recorded (StateObject.finish).
        why = error.message + (f"; {error.hint}" if error.hint else "")
        self._tasks.cancel(why)
        if self._calls is not None:
            self._calls.cancel(why)
        self._processors.end(kill=True)
        self._finish(FAILED, why)

    # The end

    def suspend(self) -> None:
        """End running tasks and leave the job to be resumed: the mesh or the machine goes down."""
        self._suspends = self._ending = self._tasks.held = True
        self._processors.end(kill=True)
        self._end_if_free()

    def _end(self) -> None:
        self._ending = True
        self._processors.end(kill=False)
        pause = _END_S if self._nodes is None else _SECTIONS_END_S
        self._loop.after(pause, lambda: self._processors.end(kill=True))
        if self._nodes is not None:
            self._loop.after(2 * pause, self._processors.abandon)
        self._end_if_free()

    def _on_fenced(self, reason: str) -> None:
        """The standby has taken over the job, or the object is gone: write nothing any more."""
        self._over = self._ending = self._fenced = True
        print(f"job {self._job.uuid}: {reason}", file=sys.stderr, flush=True)
        self._owner.stop()
        self._job.close(abandon=True)
        self._leave(WAITING)
        self._processors.end(kill=True)
        self._end_if_free()

    def _end_if_free(self) -> None:
        if self._fenced and not self._processors.grants:
            self._on_end()
        if self._processors.grants or self._over:
            return
        if not self._suspends:
            self._finish(*self._tasks.verdict())
        elif not self._tasks.running:
            self._close(WAITING, self._record_suspension)

    def _record_suspension(self, job: StateObject) -> None:
        if self._leaves_to:
            job.set_meta(**{HANDED_TO: self._leaves_to})
            job.set_state(WAITING, f"being moved to {self._leaves_to}: mesh job resume continues it")
        else:
            job.set_state(WAITING, "suspended: mesh job resume continues it")

    def _finish(self, state: str, cause: str) -> None:
        if not self._over:
            status = {DONE: 0, CANCELLED: 130}.get(state, 1)
            self._close(state, lambda job: job.finish(state, cause, exit_status=status, why=cause, yods="[]"))
            start_dependents(self._job.path)

    def _close(self, state: str, record: Callable[[StateObject], None]) -> None:
        self._over = True
        self._owner.commit()
        try:
            self._job.freed()
            record(self._job)
            self._job.close()
        except StateError:
            pass  # recorded as far as there was room
        if self._calls is not None and self._calls.client is None:
            import shutil  # slow to import, and needed once

            # large calls and results of a program that was killed, which nobody will read
            shutil.rmtree(beside(self._job.path, CALLS), ignore_errors=True)
        self._leave(state)
        self._on_end()

    def _leave(self, state: str) -> None:
        """Stop serving."""
        self._standby.close()
        if self._acceptor is not None and self._sock is not None:
            self._acceptor.close()
            self._sock.close()
            with contextlib.suppress(OSError):  # a directory that is read-only now keeps no dependent from starting
                os.unlink(self._path)
        for connection, number in self._waiters:
            if connection.link is not None:
                connection.link.send({"re": number, "state": state})
                connection.link.close(flush=True)

    def fail(self, reason: str) -> None:
        """End the job before it begins."""
        for first, last, state, _ in self._job.ranges():
            if state == WAITING:
                self._job.change(first, last, CANCELLED, cause=reason)
        self._finish(FAILED, reason)


def _read(data: bytes) -> Dict[str, Any]:
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}

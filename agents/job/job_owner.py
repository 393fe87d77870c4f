"""The owner of a job of tasks: gets processors, gives tasks to workers, records results in the state object.

``tasks.task_list`` and ``phase`` are its state machines. What only some jobs have is in parts (parts/part.py), whose
hooks the owner calls. One process for each job.
"""

from __future__ import annotations

import os
import sys
import time

from agents.job.description import read, yods_of
from agents.job.grants.grant import StoppedTask
from agents.job.grants.records import RecordedProcessors
from agents.job.parts.moves import Moves
from agents.job.parts.part import Part
from agents.job.parts.selection import select
from agents.job.parts.standby import AHEAD
from agents.job.phase import JobPhase, Phase, Step
from agents.job.serving.dispatch import Dispatch
from agents.job.serving.results import Results
from agents.job.start import SOCKET, beside, start_dependents
from agents.job.state_requests import Owner
from agents.job.tasks.pace import Pace
from agents.job.tasks.task_list import TaskList
from agents.job.workers.commands import CommandAnswer, Outcome, PendingCommand
from agents.job.workers.links import Links
from agents.job.workers.messages import TaskStopped, Work, Worked
from agents.job.workers.worker import Team, Worker
from agents.linux.processes import alive
from agents.linux.processes import state as process_state
from redmesh.byte_text import to_system
from redmesh.state import CANCELLED, DONE, FAILED, HANDED_TO, RUNNING, UNSURE, WAITING, StateError, StateFull, StateGone
from redmesh.state_graph import StateGraph

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional

    from agents.job.grants.grant import Grant
    from agents.job.state_requests import Operation
    from agents.job.tasks.task_list import Change
    from agents.job.workers.commands import Command, Handler
    from agents.job.workers.messages import Request
    from agents.job.workers.worker import Connection, Reply
    from agents.link.loop import Loop
    from redmesh.state import StateObject

#: Seconds for launches to end by themselves at the end of the job; and between checks of yods that an earlier owner
#: left.
_END_S, _LOOK_S = 10.0, 0.2
#: Seconds for running tasks to end before the job moves elsewhere; the others are run again there.
_STAGE_S = 10.0
#: Commands for which the owner must know the tasks. If the job is ending, they change the object afterwards.
_OF_TASKS = ("add", "cancel", "close_job", "hold", "release", "retry")


class JobOwner:
    """Runs one job to its end; ``on_end()`` is called once everything is recorded."""

    def __init__(self, loop: Loop, job: StateObject, on_end: Callable[[], None]) -> None:
        self.loop, self.job, self._on_end = loop, job, on_end
        self.described = described = read(job)
        rules = described.section_rules
        moves = Moves()
        self._parts: List[Part] = [*select(described, job), moves]
        self.owner = Owner(job, loop.after, self._on_failure, on_move=moves.move, operations=self._operations())
        self.tasks = TaskList(described.retries, described.max_fails, "task" if rules is None else "section")
        self.pace = Pace()
        self.phase = JobPhase()
        self.workers: List[Worker] = []
        self._slots = 0
        self._ranks = 1 if rules is None else rules.size  # of a section
        self.dispatch = Dispatch(self, self._parts)
        self._results = Results(self, self._parts)
        self._early: List[PendingCommand] = []  # commands that came before the tasks were known
        self._goes_to = ""  # the login processor on which the job continues
        self._waits_for = ""  # the process that must exit before the job is resumed
        path = beside(job.path, SOCKET)
        self._links = Links(loop, path, self)
        for part in self._parts:
            part.attach(self)
        self._commands: Dict[str, Handler] = {}
        for part in self._parts:
            self._commands.update(part.commands())
        self.processors = RecordedProcessors(
            loop, self.owner, self, self._worker_words(path), described.limit, self._ranks
        ).processors

    def _operations(self) -> Dict[str, Operation]:
        """The requests of programs that the parts answer."""
        found: Dict[str, Operation] = {}
        for part in self._parts:
            found.update(part.operations())
        return found

    def _worker_words(self, path: str) -> List[str]:
        """The arguments of the yods that start workers."""
        described = self.described
        words = ["-worker-of", path, "-kill", "-quiet", "-input", "none"]
        words += ["-mpi", "none", "-rendezvous", "none"] if self._ranks == 1 else []
        if described.cpus > 1:
            words += ["-cpus-per-task", str(described.cpus)]
        if described.hold_processors:
            words.append("-worker-holds")
        if described.gpus:
            words += ["-gpus-per-task", str(described.gpus)]
        for part in self._parts:
            words += part.words()
        # The command of these launches in showmesh, pingd and the history: the job, and its program.
        what = described.name or " ".join(described.command)[:200]
        return [*words, "yodwork", "job", self.job.uuid[:8], *([to_system(what)] if what else [])]

    # Start

    def begin(self) -> None:
        """Start or resume the job, as its object says. Raises StateError or OSError."""
        self._links.listen()
        left = yods_of(self.job)
        self.tasks.held = bool(self.job.meta("held"))
        try:
            self.job.set_meta(pid=os.getpid(), host=os.uname().nodename, silent=None, stopped=None, **{HANDED_TO: None})
            self.job.keep_room()
            self.job.commit()
        except StateFull as error:
            full = error  # from the loop, as below
            self.loop.after(0.0, lambda: self._on_failure(full))
            return
        for part in self._parts:
            part.begin()
        # From the loop: a job with nothing left to do ends at once, and would stop a loop that does not run yet.
        self.loop.after(0.0, lambda: self._await_left(left))

    def _await_left(self, left: List[List[int]]) -> None:
        """Wait for the end of launches of a lost owner, because no task may be started twice before."""
        if self.phase.now is not Phase.AWAITING:
            return  # suspended meanwhile
        left = [one for one in left if alive(one[0], one[1])]
        told = f"yod {left[0][0]} of the owner before" if left else ""
        if left and process_state(left[0][0]) in ("T", "t"):
            told += f", which is stopped: kill -CONT {left[0][0]}"
        if told != self._waits_for:
            self._waits_for = told
            self.owner.record(lambda job: job.set_meta(waits_for=told or None))
        if self.phase.now is not Phase.AWAITING:
            return  # the record failed, which ends the job
        if left or not all(part.is_clear() for part in self._parts):
            self.loop.after(_LOOK_S, lambda: self._await_left(left))
            return
        try:
            self._take_up()
        except StateFull as error:
            self._on_failure(error)

    def _take_up(self) -> None:
        self._list_tasks()
        for part in self._parts:
            part.on_taken_up()
        self.job.freed()
        if self.job.meta(UNSURE):
            self.job.set_meta(**{UNSURE: None})
        if not self.tasks.held:
            self._mark_running()
        self.job.commit()
        self.phase.go(Step.TAKE_UP)
        early, self._early = self._early, []
        for pending in early:
            if pending.connection.link is not None:
                self.on_command(pending.connection, pending.command)
        self.serve()

    def _list_tasks(self) -> None:
        # A copy lacks the last commits of its owner: tasks that these handed out may have begun. They were the next
        # ones (AHEAD), or, where tasks come after others, any of them.
        unsure = (sys.maxsize if StateGraph(self.job).ordered else AHEAD) if self.job.meta(UNSURE) else 0
        for first, last, state, attempts in list(self.job.ranges()):
            if state == RUNNING:
                self.job.change(first, last, WAITING, cause="the owner of the job was lost")
                self.tasks.add(first, last, attempts)
            elif state == WAITING:
                through = min(last, first + unsure - 1)
                if unsure:
                    why = "it may have begun before the owner of the job was lost"
                    self.job.change(first, through, WAITING, cause=why, attempt=attempts + 1)
                    self.tasks.add(first, through, attempts + 1)
                    unsure -= through - first + 1
                if through < last:
                    self.tasks.add(through + 1, last, attempts)
            else:
                self.tasks.ended_before(state, last - first + 1)

    def mark_running(self) -> None:
        """Record that the job runs, now or again."""
        self.owner.record(lambda _job: self._mark_running())

    def _mark_running(self) -> None:
        self._measure_anew()
        if self.job.meta("state") != RUNNING:
            self.job.set_state(RUNNING)
            if self.job.meta("begun_at") is None:
                self.job.set_meta(begun_at=time.time())

    def on_again(self) -> None:
        """Ended tasks wait again."""
        for part in self._parts:
            part.on_again()

    def measure_anew(self) -> None:
        """The rate, and the time left, count from now on: nothing ran for a while."""
        self.owner.record(lambda _job: self._measure_anew())

    def _measure_anew(self) -> None:
        ran = self.job.counts.get(DONE, 0) + self.job.counts.get(FAILED, 0)
        self.job.set_meta(paced_at=time.time(), paced_from=ran)

    # Processors

    def _need(self) -> None:
        if not self.phase.active:
            return
        given_to = self.tasks.given_to
        need = len({worker.holder for worker in self.workers if given_to(worker.holder)})
        if self.tasks.open:
            need += self.tasks.waiting or sum(part.useful() for part in self._parts)
        self.processors.want(need * self._ranks)

    def on_grant_over(self) -> None:
        """A launch is over, or its request."""
        if self.phase.active:
            self.loop.after(0.0, self.serve)
        else:
            self._end_if_free()

    def on_wanted(self) -> None:
        """Processors are to be given back: workers without a task exit at once."""
        if self.phase.active:
            self.loop.after(0.0, self.serve)

    def on_hopeless(self, reason: str) -> bool:
        """Returns whether to ask again later."""
        if any(part.keeps_asking() for part in self._parts):
            return True
        told = [part.incomplete(reason, startable=True) for part in self._parts]
        self.cancel("".join(told) or f"no processors: {reason}", fails=True)
        return False

    def on_unstartable(self, reason: str) -> None:
        """No launch can start on any node."""
        told = [part.incomplete(reason, startable=False) for part in self._parts]
        self.cancel("".join(told) or reason, fails=True)

    # Connections

    def grant_of(self, pid: int) -> Optional[Grant]:
        """The grant whose yod is the process ``pid``."""
        return self.processors.grant_of(pid)

    def on_worker(self, connection: Connection, node: str, rank: int) -> Worker:
        """Make a worker known."""
        self._slots += 1
        if self._ranks > 1 and connection.team is None:
            connection.team = Team(self._ranks)
        worker = Worker(connection, node, self._slots, rank, connection.team)
        self.workers.append(worker)
        return worker

    def on_request(self, worker: Worker, request: Request, reply: Reply) -> None:
        """Handle a request of a worker."""
        if isinstance(request, Work):
            worker.reply, worker.byte_text = reply, request.byte_text
        elif isinstance(request, Worked):
            self._results.take(worker, request.results)
        elif isinstance(request, TaskStopped) and worker.connection.grant is not None:
            task = StoppedTask(worker.node, request.number, request.pid, request.since)
            self.processors.task_stopped(worker.connection.grant, worker.rank, task)
        for part in self._parts:
            part.on_request(worker, request)
        if not isinstance(request, Work):
            reply(b"{}")
        self.serve()

    def on_program(self, data: bytes, node: str, reply: Reply) -> None:
        """Handle a request of a program of the job."""
        self.owner.ask(data, node, reply)

    def on_data(self, connection: Connection, payload: bytes) -> bool:
        """Have the part that expects data take them."""
        return any(part.on_data(connection, payload) for part in self._parts)

    def on_command(self, connection: Connection, command: Command) -> None:
        """Carry out a command."""
        if self.phase.now is Phase.AWAITING and command.op in _OF_TASKS:
            self._early.append(PendingCommand(connection, command))
            return
        if not self.phase.active and command.op in _OF_TASKS and connection.link is not None:
            connection.link.close()  # the job is ending: the command changes the object afterwards
            connection.link = None
            return
        handler = self._commands.get(command.op)
        outcome = Outcome.UNKNOWN if handler is None else handler(connection, command)
        if outcome is Outcome.UNKNOWN:
            error = f"a job's owner does not know {command.op[:40]!r}"
            CommandAnswer(error=error).send(connection, command)
        elif outcome is Outcome.EARLY:
            self._early.append(PendingCommand(connection, command))
        elif outcome is Outcome.DONE:
            self.owner.commit()
            CommandAnswer().send(connection, command)
            self.serve()

    def on_command_end(self, connection: Connection) -> None:
        """A connection that relays no workers has ended."""
        for part in self._parts:
            part.on_command_end(connection)

    def on_workers_end(self, connection: Connection) -> None:
        """The ranks of a launch have ended."""
        gone = set(connection.workers.values())
        self.workers = [worker for worker in self.workers if worker not in gone]
        self._results.lose(connection)
        self.serve()
        if not self.phase.active:
            self._end_if_free()

    # Tasks

    def serve(self) -> None:
        """Give out tasks, dismiss workers that can expect none, and end the job when all tasks have ended."""
        if self.phase.closed or self.phase.now is Phase.AWAITING:
            return
        if self.tasks.finished and self.phase.now is Phase.SERVING and not self.dispatch.expects():
            self._end()
        ready = self.dispatch.serve()
        if self.phase.now is Phase.MOVING and not self.tasks.running:
            self.suspend()
            return
        for part in self._parts:
            part.after_serve(ready)
        self._need()

    def record_change(self, change: Change, *, begun: bool = True) -> None:
        """Record a change of a task that was not run to its end; ``begun``: a program ran."""
        self._results.record_change(change, begun=begun)

    def change(self, first: int, last: int, state: str, cause: str) -> None:
        """Record the state of tasks that no worker has."""
        self.owner.record(lambda job: job.change(first, last, state, cause=cause))

    def cancel(self, reason: str, *, fails: bool = False, error: str = "") -> None:
        """Cancel the job. ``fails``: it has failed; ``error``: an exception for the program, pickled, as base64."""
        again = bool(self.tasks.cancelled)
        for first, last in self.tasks.cancel(reason, fails=fails):
            self.change(first, last, CANCELLED, reason)
        for part in self._parts:
            part.on_cancel(reason, error, again=again)
        self.tasks.held = False
        self.loop.after(0.0, self.serve)

    def _on_failure(self, error: StateError) -> None:
        if isinstance(error, StateGone):
            self.fence(f"{error.message}: its tasks were ended")
            return
        # The object is full; only the end of the job is still recorded (StateObject.finish).
        why = error.message + (f"; {error.hint}" if error.hint else "")
        self.tasks.cancel(why)
        for part in self._parts:
            part.on_cancel(why, "", again=True)
        self.processors.end(kill=True)
        self._finish(FAILED, why)

    # The end

    def leave_to(self, login: str) -> None:
        """Continue the job on another login processor, once the running tasks have ended there is time for."""
        self._goes_to = login
        self.phase.go(Step.LEAVE)
        self.owner.record(lambda job: job.log(f"the job continues on {login}: no more tasks start here"))
        self.tasks.held = True
        self.loop.after(_STAGE_S, self._leave_now)
        self.serve()

    def _leave_now(self) -> None:
        if self.phase.now is Phase.MOVING:
            self.suspend()

    def suspend(self) -> None:
        """End running tasks and leave the job to be resumed: the mesh or the machine goes down."""
        self.phase.go(Step.SUSPEND)
        self.tasks.held = True
        self.processors.end(kill=True)
        self._end_if_free()

    def _end(self) -> None:
        self.phase.go(Step.END)
        self.processors.end(kill=False)
        self.loop.after(_END_S, lambda: self.processors.end(kill=True))
        for part in self._parts:
            part.on_end()
        self._end_if_free()

    def fence(self, reason: str) -> None:
        """The standby has taken over the job, or the object is gone: write nothing any more."""
        closed = self.phase.closed
        self.phase.go(Step.FENCE)
        if closed:
            return  # the job's end is recorded, or it has been lost before
        print(f"job {self.job.uuid}: {reason}", file=sys.stderr, flush=True)
        self.owner.stop()
        self.job.close(abandon=True)
        self._leave(WAITING)
        self.processors.end(kill=True)
        self._end_if_free()

    def _end_if_free(self) -> None:
        if self.processors.grants:
            return
        now = self.phase.now
        if now is Phase.FENCED:
            self._on_end()
        elif now is Phase.ENDING:
            self._finish(*self.tasks.verdict())
        elif now is Phase.SUSPENDING and not self.tasks.running:
            self._close(WAITING, self._record_suspension)

    def _record_suspension(self, job: StateObject) -> None:
        if self._goes_to:
            job.set_meta(**{HANDED_TO: self._goes_to})
            job.set_state(WAITING, f"being moved to {self._goes_to}, where it continues by itself")
        else:
            job.set_state(WAITING, "suspended: mesh job resume continues it")

    def _finish(self, state: str, cause: str) -> None:
        if not self.phase.closed:
            status = {DONE: 0, CANCELLED: 130}.get(state, 1)
            self._close(state, lambda job: job.finish(state, cause, exit_status=status, why=cause, yods="[]"))
            start_dependents(self.job.path)

    def _close(self, state: str, record: Callable[[StateObject], None]) -> None:
        self.phase.go(Step.CLOSE)
        self.owner.commit()
        if self.phase.now is Phase.FENCED:
            return  # the object is gone
        try:
            self.job.freed()
            record(self.job)
            self.job.close()
        except StateError:
            pass  # recorded as far as there was room
        self._leave(state)
        self._on_end()

    def _leave(self, state: str) -> None:
        """Stop serving."""
        self._links.close()
        for part in self._parts:
            part.close(state, fenced=self.phase.now is Phase.FENCED)

    def fail(self, reason: str) -> None:
        """End the job before it begins."""
        for first, last, state, _ in self.job.ranges():
            if state == WAITING:
                self.job.change(first, last, CANCELLED, cause=reason)
        self._finish(FAILED, reason)

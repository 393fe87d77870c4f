"""What sections write and report: the owner records it, and gives parts of outputs their final names if it must."""

from __future__ import annotations

import json
import os

from agents.job.description import SectionInput, parts_file
from agents.job.parts.part import Part
from agents.job.workers.messages import Report
from agents.yodio.yodparts import age, held_by, is_written, not_written, of_attempt, still_open, written
from redmesh.byte_text import from_system, to_system
from redmesh.state import RUNNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

    from agents.job.description import SectionRules
    from agents.job.tasks.task_list import Change
    from agents.job.workers.messages import Request, Result
    from agents.job.workers.worker import Worker
    from agents.yodio.yodparts import Found, Written
    from redmesh.state import StateObject, Task


class Outputs(Part):
    """The files and reports of sections."""

    #: Mostly a hundred lines of each stream.
    most_lines = 32 << 10

    def __init__(self, rules: SectionRules) -> None:
        self._rules = rules
        self._parts: Dict[int, List[str]] = {}  # of running sections, if the owner renames them
        #: Files that running sections of several ranks write under their final names, each as it was before.
        self._direct: Dict[int, List[Tuple[str, Optional[Found]]]] = {}

    def words(self) -> List[str]:
        """Workers fetch files and send them back, if the rules say so."""
        return ["-io", to_system(self.context.described.cwd)] if self._rules.stage else []

    def on_assigned(self, worker: Worker, task: Task) -> Task:
        """Look at the files before an attempt."""
        if self._rules.settles:
            given = SectionInput(task.input)
            self._parts[task.number] = given.parts
            self._direct[task.number] = [
                (path, age(path, of_attempt(path, self._rules.mark, task.attempt))) for path in given.direct
            ]
        return task

    def on_result(self, worker: Worker, result: Result, *, current: bool) -> Optional[Result]:
        """Check what an attempt has written. Without its parts it has failed."""
        if self._rules.settles and not result.given_back:
            result.written = []
            good = current and not result.failed
            result.cause = self._settle(result.number, result.attempt, result.written, good=good) or result.cause
        return result

    def on_ended(self, worker: Worker, result: Result, change: Optional[Change]) -> None:
        """Record how a section has left its parts."""
        if change is not None and change.state != RUNNING:
            self._parts.pop(result.number, None)
            self._direct.pop(result.number, None)
        if result.written and not result.failed:
            self._keep_written(result.number, result.written, first=change is not None)

    def _keep_written(self, number: int, parts: List[Written], *, first: bool) -> None:
        """Record how a section has left its parts. If a copy succeeds too, they are those of either."""

        def record(job: StateObject) -> None:
            if not job.full:
                name = parts_file(number)
                before = [] if first else json.loads(job.file(name) or b"[]")
                job.add_file(name, json.dumps([*before, parts]).encode())

        self.context.owner.record(record)

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
            part = of_attempt(name, self._rules.mark, attempt)
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

    def on_request(self, worker: Worker, request: Request) -> None:
        """Record what a section's program reports."""
        if not isinstance(request, Report) or request.number not in self.context.tasks.given_to(worker.holder):
            return  # of a copy that is no longer needed
        number, part = request.number, request.part
        text = f"{request.kind} {request.text}".strip()

        def record(job: StateObject) -> None:
            if part is not None:
                job.progress(min(max(part, 0.0), 1.0), number)
            job.log(text, node=worker.node, task=number)

        self.context.owner.record(record)

"""The owner's work on a state object, without sockets: requests of programs, and batched commits.

The process around it is yod (``yod --state``) or the owner of a job of tasks. It passes in requests and facts, and a
way to be called later; replies are sent after the commit that makes them true.
"""

from __future__ import annotations

import json
import math

from redmesh.byte_text import from_system, without_surrogates
from redmesh.state import StateError, StateFull

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

    from redmesh.state import StateObject

    Request = Dict[str, Any]
    Reply = Callable[[bytes], None]
    #: Answers a request with JSON after it has recorded something. Raises StateError.
    Operation = Callable[[Request], bytes]

#: Seconds between the first record of a batch and its commit; a waiting program waits as long.
COMMIT_S = 0.02
#: Records after which a batch is committed at once.
BATCH = 5000


class Owner:
    """Owns ``job``. ``later(seconds, call)`` schedules a call. ``on_failure(error)`` is called once if the object is
    full (StateFull) or unwritable; the job then ends."""

    def __init__(
        self,
        job: StateObject,
        later: Callable[[float, Callable[[], None]], object],
        on_failure: Callable[[StateError], None],
        *,
        on_move: Optional[Callable[[str], None]] = None,
        operations: Optional[Mapping[str, Operation]] = None,
    ) -> None:
        self.job = job
        self._later, self._on_failure, self._on_move = later, on_failure, on_move
        self._operations = operations or {}
        self._replies: List[Tuple[Reply, bytes]] = []
        self._records = 0
        self._failed = False

    def record(self, write: Callable[[StateObject], object]) -> None:
        """Have ``write`` record something in the object; it is committed soon, with other records."""
        if self._failed:
            return
        try:
            write(self.job)
        except StateFull as error:
            if self.job.full and self.job.dirty:
                return  # no room for a log line or value; results still have room
            self._fail(error)
            return
        except StateError as error:
            self._fail(error)
            return
        self._wrote()

    def _wrote(self) -> None:
        self._records += 1
        if self._records == 1:
            self._later(COMMIT_S, self.commit)
        elif self._records >= BATCH:
            self.commit()

    def commit(self) -> None:
        """Commit all records, and send the replies that waited for them."""
        self._records = 0
        replies, self._replies = self._replies, []
        if not self._failed:
            try:
                self.job.check_name()
                self.job.commit()
            except StateError as error:
                self._fail(error)
                replies = [(reply, _refused(error)) for reply, _ in replies]
        for reply, answer in replies:
            reply(answer)

    def stop(self) -> None:
        """Record nothing any more, and refuse waiting requests."""
        self._failed = True
        replies, self._replies = self._replies, []
        for reply, _ in replies:
            reply(
                _refused(StateError(f"job {self.job.uuid} is now live at its former standby", "mesh job show finds it"))
            )

    def _fail(self, error: StateError) -> None:
        if not self._failed:
            self._failed = True
            self._on_failure(error)

    # Programs of the job

    def ask(self, data: bytes, node: str, reply: Reply) -> None:
        """Handle a JSON request of a program on ``node`` (docs/protocol.md, *Requests to a job's owner*).

        ``reply`` gets the JSON answer: at once if nothing was written, otherwise after the commit.
        """
        try:
            if self._failed:
                raise StateError(f"job {self.job.uuid} cannot record anything any more", "mesh job show says why")
            told, wrote = self._answer(_parsed(data), node)
        except StateError as error:
            reply(_refused(error))
            return
        if wrote:
            self._replies.append((reply, told))
            self._wrote()
        else:
            reply(told)

    def _answer(self, request: Request, node: str) -> Tuple[bytes, bool]:
        op, task = request.get("op"), request.get("task")
        if not (task is None or (isinstance(task, int) and not isinstance(task, bool) and 0 <= task < 1 << 62)):
            raise StateError("the task of a request is a number", "leave it out for the job as a whole")
        if op == "get":
            return _told(value=self.job.get(_text(request, "key"))), False
        if op == "path":
            return _told(value=from_system(self.job.path), uuid=self.job.uuid), False
        if op == "set":
            self.job.set(_text(request, "key"), _text(request, "value"), node=node, task=task)
        elif op == "log":
            self.job.log(_text(request, "text"), node=node, task=task)
        elif op == "progress":
            self._progress(request, node, task)
        elif op == "move":
            return self._move(_text(request, "node")), False
        elif isinstance(op, str) and op in self._operations:
            return self._operations[op](request), True
        else:
            what = "the owner of this job" if op == "add" else "a job's owner"
            raise StateError(f"{what} does not know {str(op)[:40]!r}", "set, get, log, progress, path, move")
        return _told(), True

    def _progress(self, request: Request, node: str, task: Optional[int]) -> None:
        part = request.get("part")
        if not isinstance(part, (int, float)) or not math.isfinite(part) or not 0 <= part <= 1:
            raise StateError(f"progress is a number from 0 to 1, not {str(part)[:40]}", "yodstate progress 0.25")
        self.job.progress(float(part), task)
        if request.get("text"):
            self.job.log(_text(request, "text"), node=node, task=task)

    def _move(self, node: str) -> bytes:
        if self._on_move is None:
            raise StateError(
                f"job {self.job.uuid} cannot move while its owner runs: it is a launch",
                "jobs of mesh submit can; mesh job move moves the object once the launch has ended",
            )
        self._on_move(node)
        return _told()


def _parsed(data: bytes) -> Request:
    try:
        request = json.loads(data)
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        raise StateError("a request to a job's owner is a JSON object", "use yodstate")
    return request


def _text(request: Request, key: str) -> str:
    text = request.get(key)
    if not isinstance(text, str):
        raise StateError(f"{request.get('op')} needs {key}, a text", "yodstate --help shows each request")
    return without_surrogates(text)  # of a yodstate of an earlier version


def _told(**members: Any) -> bytes:
    return json.dumps(members).encode()


def _refused(error: StateError) -> bytes:
    return _told(error=error.message, hint=error.hint)

"""The state of the job that a program runs in: ``yodstate set KEY VALUE``, or in Python::

    import yodstate                       # or: import redmesh; job = redmesh.job()
    job = yodstate.job()
    job.set("residual", "1e-7")
    job.progress(0.25, "iteration 100 of 400")

Values and lines go through the node's launch child to the owner of the job, which records them in the job's state
object; a call returns after they are recorded. Errors are OSError. Standard library only, Python 3.9.
"""

from __future__ import annotations

import errno
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Optional, Sequence, Tuple

    from agents.yodio.yodbytes import from_system, to_system
    from agents.yodio.yodio import Channel
else:
    try:
        from yodbytes import from_system, to_system
        from yodio import Channel
    except ImportError:  # imported by its path, with another PYTHONPATH: the modules are beside this file

        def _beside(name):
            from importlib.util import module_from_spec, spec_from_file_location

            directory = os.path.dirname(os.path.abspath(__file__))
            spec = spec_from_file_location(name, os.path.join(directory, f"{name}.py"))
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            return module

        Channel, _bytes = _beside("yodio").Channel, _beside("yodbytes")
        from_system, to_system = _bytes.from_system, _bytes.to_system

__all__ = ["Job", "job"]

_STATE = 12  # operation (docs/protocol.md)
_AT_ONCE = 1000  # tasks of one request, which has a limit
_USAGE = """usage: yodstate COMMAND
  set KEY VALUE         record a value under a name of your own; VALUE - reads standard input
  get KEY               print a value; status 1 when there is none
  log TEXT ...          add a line to the job's log; without TEXT, each line of standard input
  progress PART [TEXT]  how far this task is: 0 to 1, or 25%; TEXT goes to the log
  path                  print the path of the job's state object, on the host of its owner
  move LOGIN            have the job go on on another login processor; mesh job log says when it cannot
  tasks add [--id ID] [--after ID]... -- PROGRAM ...   add a task to this job; prints its number
  tasks add -           add a task for each line of standard input
  report WORD [TEXT]    of a section: started, progress PART [TEXT], finished, error TEXT
Options: --job: the job as a whole, not this task (progress)
"""


class Job:
    """The job of this program, as returned by :func:`job`."""

    def __init__(self) -> None:
        if not os.environ.get("YOD_JOB"):
            raise OSError(errno.ENOTCONN, "this program has no job: yod --state")
        self.uuid = os.environ["YOD_JOB"]
        self._channel = Channel()
        rank = os.environ.get("REDMESH_TASK") or os.environ.get("YOD_RANK", "")
        #: The task of this program, or None; records are made in its name.
        self.task: Optional[int] = int(rank) if rank.isdigit() else None

    def set(self, key: str, value: str) -> None:
        """Record a value under a key: at most 200 and 65,536 bytes."""
        self._ask(op="set", key=from_system(key), value=from_system(str(value)), task=self.task)

    def get(self, key: str, default: Optional[str] = None) -> Optional[str]:
        """The last value recorded under a key, by any task; ``default`` if there is none."""
        value = self._ask(op="get", key=from_system(key))["value"]
        return default if value is None else to_system(str(value))

    def log(self, text: str) -> None:
        """Add a line to the job's log."""
        self._ask(op="log", text=from_system(text), task=self.task)

    def progress(self, part: float, text: str = "", *, whole_job: bool = False) -> None:
        """Record the progress, 0 to 1, of this task, or of the whole job."""
        self._ask(op="progress", part=part, text=from_system(text), task=None if whole_job else self.task)

    def path(self) -> str:
        """The path of the job's state object on the host of its owner."""
        return to_system(str(self._ask(op="path")["value"]))

    def move(self, node: str) -> None:
        """Have the job move to another node between its stages."""
        self._ask(op="move", node=node)

    def add_task(self, line: str, *, id: str = "", after: Iterable[str] = ()) -> int:
        """Add a task to this job: a command for the shell, or the input of the job's program. It starts when the tasks
        in ``after`` have succeeded: ids, or numbers as text. Returns its number."""
        return self.add_tasks([(id, list(after), line)])[0]

    def add_tasks(self, tasks: Sequence[Tuple[str, Sequence[str], str]]) -> range:
        """Add tasks, all or none: of each its id or "", what it comes after, and its line. Returns their numbers."""
        rows = [
            [from_system(id), [from_system(str(one)) for one in after], from_system(line)] for id, after, line in tasks
        ]
        told = self._ask(op="add", tasks=rows)
        return range(told["first"], told["last"] + 1)

    def close(self) -> None:
        """Disconnect."""
        self._channel.close()

    def _ask(self, **request: Any) -> dict[str, Any]:
        try:
            _, data = self._channel.wait(self._channel.send(_STATE, data=json.dumps(request).encode()))
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                raise OSError(errno.EOPNOTSUPP, "this launch has no state object: yod --state") from None
            raise
        reply: dict[str, Any] = json.loads(bytes(data))
        if "error" in reply:
            raise OSError(errno.EINVAL, reply["error"] + (f" ({reply['hint']})" if reply.get("hint") else ""))
        return reply


def job() -> Job:
    """The job of which this program is a task. Raises OSError if there is none."""
    return Job()


def main() -> int:
    """Run the command; returns the exit status."""
    words = sys.argv[1:]
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
    whole_job = "--job" in words[:1]
    words = words[1:] if whole_job else words
    if words[:1] in (["--help"], ["-h"]):
        print(_USAGE, end="")
        return 0
    try:
        return _run(job, words, whole_job)
    except (IndexError, ValueError):
        print(_USAGE, end="", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"yodstate: {error.strerror or error}", file=sys.stderr)
        return 1


def _report(word: str, text: str) -> None:
    """Send a section's report to the server on this node's loopback (docs/sections.md)."""
    host, _, port = os.environ.get("REDMESH_REPORT", "").partition(":")
    if not port:
        raise OSError(errno.ENOTCONN, "this program is not a section: mesh sections run")
    import socket

    line = f"{os.environ['REDMESH_TOKEN']} {word} {os.environ['REDMESH_SECTION']} {text}"
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        sock.sendall(line.strip().encode("ascii", "replace") + b"\n")
        answer = sock.makefile().readline().strip()
    if answer != "ok":
        raise OSError(errno.EPROTO, answer or "the report was not answered")


def _add_tasks(connect: Any, words: list[str]) -> None:
    """``tasks add``; prints the numbers of the tasks. Raises IndexError for words that are not understood."""
    if words[:1] != ["add"]:
        raise IndexError
    words, id = words[1:], ""
    after: list[str] = []
    if words == ["-"]:
        lines = [line.rstrip("\n") for line in sys.stdin]
        tasks = [("", after, line) for line in lines if line.strip()]
    else:
        while words[0] in ("--id", "--after"):
            if words[0] == "--id":
                id = words[1]
            else:
                after.append(words[1])
            words = words[2:]
        words = words[1:] if words[0] == "--" else words
        if not words or words[0].startswith("-"):
            raise IndexError
        import shlex

        tasks = [(id, after, " ".join(map(shlex.quote, words)))]
    told = connect()
    for at in range(0, len(tasks), _AT_ONCE):
        numbers = told.add_tasks(tasks[at : at + _AT_ONCE])
        print(numbers[0] if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}")


def _run(connect: Any, words: list[str], whole_job: bool) -> int:
    command, rest = words[0], words[1:]
    if command == "report" and rest:
        _report(rest[0], " ".join(rest[1:]))
        return 0
    if command == "tasks":
        _add_tasks(connect, rest)
        return 0
    most = {"set": 2, "get": 1, "progress": 2, "path": 0, "move": 1}.get(command, len(rest))
    if len(rest) > most or command not in ("set", "get", "log", "progress", "path", "move"):
        raise IndexError
    if command == "set":
        key, value = rest
        connect().set(key, sys.stdin.read() if value == "-" else value)
    elif command == "get":
        key = rest[0]
        value = connect().get(key)
        if value is None:
            return 1
        print(value)
    elif command == "log":
        told = connect()
        for line in [" ".join(rest)] if rest else sys.stdin:
            told.log(line.rstrip("\n"))
    elif command == "progress":
        part = float(rest[0][:-1]) / 100 if rest[0].endswith("%") else float(rest[0])
        connect().progress(part, rest[1] if len(rest) > 1 else "", whole_job=whole_job)
    elif command == "path":
        print(connect().path())
    else:
        node = rest[0]
        connect().move(node)
    return 0

"""What a job of tasks is asked to do: ``mesh submit`` writes it into the state object, the owner reads it."""

from __future__ import annotations

import json

from redmesh.state import StateError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from redmesh.state import StateObject

#: The entry of ``meta`` that holds the description, and the file in the object with the environment of the tasks.
META, ENVIRONMENT = "tasks", "environment"


class Description:
    """One job. ``command`` may have ``{}`` in its words: the task's input, or its number; empty: each input is a line
    for the shell."""

    __slots__ = (
        "after", "command", "cpus", "cwd", "env", "functions", "gpus", "limit", "max_fails", "name", "output",
        "retries", "sections", "standby", "stdin", "time_s",
    )  # fmt: skip

    def __init__(self, command: List[str], cwd: str) -> None:
        self.command, self.cwd = command, cwd
        self.name = ""
        self.env: Dict[str, str] = {}
        self.stdin = self.output = ""  # files, with {} in their names
        self.retries, self.max_fails = 0, None  # type: int, Optional[int]
        self.limit = 0  # processors; 0: as many as there are tasks
        self.time_s = 0.0  # for each task; 0: none
        self.cpus, self.gpus = 1, 0  # for each task
        self.standby = True  # its object is copied to a second host, where there is one
        self.after: List[List[str]] = []  # UUID, "ok" or "any"
        #: Of redmesh.Executor: the program's Python, its minor version, cloudpickle's version, sys.path, a directory.
        self.functions: Optional[Dict[str, Any]] = None
        #: Of a job of sections, else None: ``probe`` (command, time_s, memory_mb, disk_mb), ``recheck_s``,
        #: ``same_node``, ``copies``, ``size`` (ranks of a section), ``mpi`` (of these), ``stage`` (files are fetched
        #: and sent back), ``settles`` (the owner gives parts their names). Its inputs are JSON: ``id``, ``words``,
        #: ``parts``, ``named`` (the words name them), ``inputs``.
        self.sections: Optional[Dict[str, Any]] = None

    def dump(self) -> str:
        """As JSON."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    def for_workers(self, uuid: str) -> Dict[str, Any]:
        """What a worker has to know of the job."""
        return {
            "uuid": uuid,
            "command": self.command,
            "places": any("{}" in word for word in self.command),
            "cwd": self.cwd,
            "env": self.env,
            "time_s": self.time_s,
            "stdin": self.stdin,
            "output": self.output,
            "functions": self.functions,
            "sections": self.sections,
        }


def read(job: StateObject) -> Description:
    """The description of a job. StateError where the object is not a job of tasks."""
    text = job.meta(META)
    if not isinstance(text, str):
        raise StateError(f"{job.path} is not a job of tasks", "a launch has a state object too; yod runs it")
    told = json.loads(text)
    described = Description(told["command"], told["cwd"])
    for name in Description.__slots__:
        if name in told:
            setattr(described, name, told[name])
    return described


def pack_environment(variables: Dict[bytes, bytes]) -> bytes:
    """Variables as one file."""
    return b"\0".join(name + b"=" + value for name, value in sorted(variables.items()))


def parse_environment(content: Optional[bytes]) -> Dict[bytes, bytes]:
    """The inverse of :func:`pack_environment`."""
    found = {}
    for line in (content or b"").split(b"\0"):
        name, _, value = line.partition(b"=")
        if name:
            found[name] = value
    return found

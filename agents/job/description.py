"""The description of a job of tasks: written by ``mesh submit`` into the state object, read by the owner."""

from __future__ import annotations

import json

from agents.yodio.yodfields import has_field
from redmesh.byte_text import each_from_system, each_to_system
from redmesh.state import StateError, damaged, is_uuid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

    from redmesh.state import StateObject
    from redmesh.state_reader import StateReader

#: The entry of ``meta`` with the description, and the file in the object with the tasks' environment.
META, ENVIRONMENT = "tasks", "environment"
#: The entry of ``meta`` with the yods that run for the job.
YODS = "yods"
#: The entry of ``meta`` that is 1 while tasks may be added to a job from outside.
OPEN = "open"
#: How tasks find the packaged files of their job: as the directory in which they begin, or by REDMESH_FILES alone.
BEGIN_IN, BESIDE = "begin in", "beside"


class Description:
    """A job. ``command`` may contain ``{}``, the task's input or its number, and ``{#}``, its number. If it is empty,
    each input is a line for the shell.

    Its texts are those of redmesh/byte_text.py once :meth:`escape` was called, and if it was read from an object.
    """

    __slots__ = (
        "after", "command", "cpus", "cwd", "env", "error", "functions", "gpus", "hold_processors", "limit", "max_fails",
        "name", "output", "package", "retries", "sections", "standby", "stdin", "time_s",
    )  # fmt: skip

    def __init__(self, command: List[str], cwd: str) -> None:
        self.command, self.cwd = command, cwd
        self.name = ""
        self.env: Dict[str, str] = {}
        self.stdin = self.output = self.error = ""  # files, with {} or {#} in their names
        self.retries, self.max_fails = 0, None  # type: int, Optional[int]
        self.limit = 0  # the most processors; 0: as many as there are tasks
        self.time_s = 0.0  # for each task; 0: none
        self.cpus, self.gpus = 1, 0  # for each task
        self.package = ""  # where tasks find packaged files: they BEGIN_IN their directory, or it is BESIDE; "": none
        self.hold_processors = False  # give none back to other requests before the end
        self.standby = True  # copy its object to a second host, if there is one
        #: UUID, "ok" or "any", and the final state of a job that has ended on another host.
        self.after: List[List[str]] = []
        #: For redmesh.Executor: the program's Python, its minor version, cloudpickle's version, sys.path, a directory.
        self.functions: Optional[Dict[str, Any]] = None
        #: For a job of sections, else None: ``probe`` (command, time_s, memory_mb, disk_mb), ``recheck_s``,
        #: ``same_node``, ``copies``, ``size`` (ranks of a section), ``mpi`` (their kind), ``stage`` (files are fetched
        #: and sent back), ``settles`` (the owner renames parts), ``mark`` (in the names of attempts' files). Its inputs
        #: are JSON: ``id``, ``words``, ``parts``, ``named`` (the words name the parts), ``direct`` (parts that its
        #: program writes under their final names), ``inputs``, ``output`` (the file for what it prints).
        self.sections: Optional[Dict[str, Any]] = None

    def escape(self) -> None:
        """Change every text from a string of the system to one that JSON and the object take."""
        for name in self.__slots__:
            setattr(self, name, each_from_system(getattr(self, name)))

    def dump(self) -> str:
        """As JSON."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @property
    def section_rules(self) -> Optional[SectionRules]:
        """The rules for a job of sections."""
        return None if self.sections is None else SectionRules(self.sections)

    @property
    def function_rules(self) -> Optional[FunctionRules]:
        """The rules for a job of calls of functions."""
        return FunctionRules(self.functions) if self.functions else None

    def for_workers(self, uuid: str) -> Dict[str, object]:
        """The part of the description that workers need, as members of a JSON object."""
        return {
            "uuid": uuid,
            "command": self.command,
            "places": any(map(has_field, self.command)),
            "cwd": self.cwd,
            "env": self.env,
            "time_s": self.time_s,
            "stdin": self.stdin,
            "output": self.output,
            "error": self.error,
            "functions": self.functions,
            "sections": self.sections,
        }


class SectionRules:
    """How the sections of a job are run (``Description.sections``)."""

    __slots__ = ("copies", "mark", "mpi", "recheck_s", "same_node", "settles", "size", "stage")

    recheck_s: float  # after which a node is tested again
    same_node: bool  # a section that has failed on a node may run there again
    copies: bool  # slow sections get a second copy
    size: int  # ranks of a section
    mpi: str  # the kind of MPI of these ranks
    stage: bool  # files are fetched, and sent back
    settles: bool  # the owner renames parts, not the workers
    mark: str  # in the names of attempts' files

    def __init__(self, told: Mapping[str, Any]) -> None:
        for name in self.__slots__:
            setattr(self, name, told.get(name, _RULES[name]))


class SectionInput:
    """What the owner reads of a section's input: the files that the section writes, as paths of this host."""

    __slots__ = ("direct", "parts")

    def __init__(self, text: Optional[str]) -> None:
        told = json.loads(text or "{}")
        self.parts: List[str] = each_to_system(told["parts"])  # the final names of its parts
        self.direct: List[str] = each_to_system(told.get("direct", []))  # those that its program writes itself


class FunctionRules:
    """How the calls of a program are run (``Description.functions``)."""

    __slots__ = ("directory", "initializer", "max_tasks", "program")

    directory: str  # of large calls and results
    initializer: object  # each process calls this first, pickled; None: nothing
    max_tasks: Optional[int]  # calls after which a process ends; None or 0: no such number
    program: Optional[List[int]]  # process id and start time of the program; None if they are not known

    def __init__(self, told: Mapping[str, Any]) -> None:
        for name in self.__slots__:
            setattr(self, name, told.get(name))


def read(job: Union[StateObject, StateReader]) -> Description:
    """The description of a job. Raises StateError if the object is not a job of tasks."""
    text = job.meta(META)
    if not isinstance(text, str):
        raise StateError(f"{job.path} is not a job of tasks", "a launch has a state object too; yod runs it")
    return parse(text, job.path)


def parse(text: str, path: str) -> Description:
    """The description that :meth:`Description.dump` wrote into the object ``path``. Raises StateError."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        raise damaged(path, ValueError(f"meta: {META} is not JSON")) from None
    if not isinstance(told, dict) or "command" not in told or "cwd" not in told:
        raise damaged(path, ValueError(f"meta: {META} has no command and directory"))
    described = Description(told["command"], told["cwd"])
    for name in Description.__slots__:
        if name in told:
            if not _KINDS[name](told[name]):
                raise damaged(path, ValueError(f"meta: {META}: {name} is {told[name]!r:.40}"))
            setattr(described, name, told[name])
    return described


def yods_of(job: StateObject) -> List[List[int]]:
    """Process id and start time of each yod that the job's last owner started. Raises StateError."""
    try:
        told = json.loads(str(job.meta(YODS) or "[]"))
        if type(told) is list and all(map(_is_process, told)):
            return told
    except (ValueError, RecursionError):
        pass
    raise damaged(job.path, ValueError(f"meta: {YODS} does not name processes"))


# What each part of a description may be. An object is a file that anybody may have written or damaged.


def _is_text(told: Any) -> bool:
    return type(told) is str


def _is_path(told: Any) -> bool:
    return type(told) is str and "\0" not in told


def _is_count(told: Any) -> bool:
    return type(told) is int and 0 <= told <= _MOST


def _is_time(told: Any) -> bool:
    return type(told) in (int, float) and 0 <= told <= _MOST


def _is_flag(told: Any) -> bool:
    return type(told) is bool


def _are_words(told: Any) -> bool:
    return type(told) is list and all(map(_is_text, told))


def _is_environment(told: Any) -> bool:
    return type(told) is dict and all(map(_is_text, told.values()))


def _is_after(told: Any) -> bool:
    return type(told) is list and all(_are_words(one) and len(one) in (2, 3) and is_uuid(one[0]) for one in told)


def _has(kinds: Mapping[str, Callable[[Any], bool]], told: Any, needed: Sequence[str]) -> bool:
    """True if ``told`` is an object with the keys ``needed``, and all keys that ``kinds`` knows have right values."""
    if type(told) is not dict or not all(key in told for key in needed):
        return False
    return all(kinds[key](value) for key, value in told.items() if key in kinds)


def _is_process(told: Any) -> bool:
    return type(told) is list and len(told) == 2 and _is_count(told[0]) and (told[1] is None or _is_count(told[1]))


def _are_functions(told: Any) -> bool:
    kinds = {"python": _is_text, "directory": _is_path, "program": _is_process}
    return told is None or _has(kinds, told, ("python", "directory"))


def _is_probe(told: Any) -> bool:
    kinds = {"command": _are_words, "time_s": _is_time, "memory_mb": _is_count, "disk_mb": _is_count}
    return _has(kinds, told, tuple(kinds))


def _are_sections(told: Any) -> bool:
    kinds: Dict[str, Callable[[Any], bool]] = {
        "probe": _is_probe, "recheck_s": _is_time, "same_node": _is_flag, "copies": _is_flag, "stage": _is_flag,
        "settles": _is_flag, "mpi": _is_text, "mark": lambda mark: _is_path(mark) and "/" not in mark,
        "size": lambda size: _is_count(size) and size > 0,
    }  # fmt: skip
    return told is None or _has(kinds, told, ("probe", "recheck_s", "same_node", "copies"))


_MOST = 1 << 53
#: What the rules of sections are where an object does not say it.
_RULES: Dict[str, object] = {
    "copies": False, "mark": "", "mpi": "none", "recheck_s": 0.0, "same_node": False, "settles": False, "size": 1,
    "stage": False,
}  # fmt: skip
_KINDS: Dict[str, Callable[[Any], bool]] = {
    "after": _is_after, "command": _are_words, "cpus": _is_count, "cwd": _is_path, "env": _is_environment,
    "error": _is_text, "functions": _are_functions, "gpus": _is_count, "hold_processors": _is_flag,
    "limit": _is_count,
    "max_fails": lambda told: told is None or _is_count(told), "name": _is_text, "output": _is_text,
    "package": _is_path, "retries": _is_count, "sections": _are_sections, "standby": _is_flag, "stdin": _is_text,
    "time_s": _is_time,
}  # fmt: skip


def parts_file(number: int) -> str:
    """The file in the object of a job of sections with what identifies the parts of section ``number`` as each attempt
    that succeeded has left them."""
    return f"parts of {number}"


def for_earlier_worker(message: Dict[str, object], *, sections: bool) -> Dict[str, object]:
    """A message of the owner with lone surrogates for bytes that are not UTF-8, as workers of earlier versions take it.

    ``sections``: the inputs of its tasks are JSON.
    """
    told: Dict[str, Any] = each_to_system(message)
    for task in told.get("tasks", ()) if sections else ():
        task[2] = json.dumps(each_to_system(json.loads(task[2])))
    return told


def pack_environment(variables: Dict[bytes, bytes]) -> bytes:
    """Variables as one file."""
    return b"\0".join(name + b"=" + value for name, value in sorted(variables.items()))


def parse_environment(content: Optional[bytes]) -> Dict[bytes, bytes]:
    """Parse the result of :func:`pack_environment`."""
    found = {}
    for line in (content or b"").split(b"\0"):
        name, _, value = line.partition(b"=")
        if name:
            found[name] = value
    return found

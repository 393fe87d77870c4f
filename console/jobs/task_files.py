"""Files of tasks: a task a line (``--tasks``), and tasks that come after others (``--graph``: lines, or TOML)."""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agents.job.tasks.new_tasks import NewTask, Ordered, TaskError, resolve
from console.errors import ConsoleError, UsageError
from redmesh.byte_text import from_system
from redmesh.sanitise import clean
from redmesh.state_graph import GraphReader

#: The most characters of a task's line: Linux limits one argument of a program to 128 KiB.
_LONGEST = 32_000
#: ``id: after, after: command``.
_LINE = re.compile(r"\s*([^\s:,]*)\s*:([^:]*):\s*(.*)", re.DOTALL)
_FORM = "id: after, after: command; the parts before a colon may be empty"
_TABLE = re.compile(r"\s*\[\[\s*task\s*\]\]")
_KEYS = ("after", "command", "id")


def lines(name: str) -> Iterator[str]:
    """The lines of a --tasks file that are not blank. Raises ConsoleError or UsageError."""
    for _, text in _numbered("--tasks", name):
        yield text


class GraphFile:
    """The tasks of a --graph file, with the lines on which they stand."""

    def __init__(self, name: str) -> None:
        """Read the file. Raises ConsoleError or UsageError."""
        self._name = name
        self.tasks: list[NewTask] = []
        self._lines: list[int] = []
        if name.endswith(".toml"):
            self._read_toml()
        else:
            self._read_lines()
        if not self.tasks:
            raise UsageError(f"--graph {clean(name)} has no tasks", _FORM)

    def ordered(self, graph: GraphReader | None = None) -> list[Ordered]:
        """The tasks with their numbers, in a new job or behind the tasks of another one. Raises UsageError."""
        try:
            if graph is None:
                return resolve(self.tasks)
            return resolve(self.tasks, graph.last_number() + 1, graph.number_of, graph.taken)
        except TaskError as error:
            raise self._wrong(self._lines[error.place], error.message, error.hint) from None

    def _wrong(self, line: int, what: str, hint: str) -> UsageError:
        return UsageError(f"--graph {clean(self._name)}, line {line}: {clean(what)}", hint)

    def _read_lines(self) -> None:
        for number, text in _numbered("--graph", self._name):
            if text.lstrip().startswith("#"):
                continue
            found = _LINE.fullmatch(text)
            if found is None or not found[3]:
                raise self._wrong(number, "this is not a task", _FORM)
            after = [from_system(one) for one in found[2].replace(",", " ").split()]
            self.tasks.append(NewTask(from_system(found[1]), after, found[3]))
            self._lines.append(number)

    def _read_toml(self) -> None:
        import tomllib  # most graphs are no TOML

        try:
            with open(self._name, "rb") as file:
                text = file.read().decode()
            told = tomllib.loads(text)
        except OSError as error:
            raise _unread("--graph", self._name, error) from None
        except ValueError as error:  # not TOML, or not UTF-8; a TOML error names the line
            raise UsageError(
                f"--graph {clean(self._name)}: {clean(str(error))}", "docs/jobs.md has an example"
            ) from None
        rows = told.get("task")
        at = [number for number, line in enumerate(text.splitlines(), 1) if _TABLE.match(line)]
        other = next((key for key in told if key != "task"), None)
        if other is not None or not isinstance(rows, list):
            what = f"the key {other!r} is not known" if other is not None else "it has no tasks"
            raise UsageError(f"--graph {clean(self._name)}: {clean(what)}", "[[task]] begins a task; docs/jobs.md")
        for place, row in enumerate(rows):
            self._lines.append(at[place] if len(at) == len(rows) else 1)
            self.tasks.append(self._task_of(row, self._lines[-1]))

    def _task_of(self, row: Any, line: int) -> NewTask:
        if not isinstance(row, dict):
            raise self._wrong(line, "a task is a table", "[[task]]")
        other = next((key for key in row if key not in _KEYS), None)
        if other is not None:
            raise self._wrong(line, f"the key {other!r} of a task is not known", f"a task has {', '.join(_KEYS)}")
        id, after, command = row.get("id", ""), row.get("after", []), row.get("command")
        after = [after] if isinstance(after, str) else after
        if not isinstance(id, str) or not _are_texts(after):
            raise self._wrong(line, "id is a text, and after is a list of ids", 'after = ["prepare"]')
        if _are_texts(command) and command:
            command = shlex.join(command)
        if not isinstance(command, str) or not command.strip():
            raise self._wrong(line, "command is a text for the shell, or a list of words", 'command = "./fit a"')
        if len(command) > _LONGEST or "\0" in command:
            raise self._wrong(line, f"a command of {len(command):,} characters, or with NUL", "put it into a script")
        return NewTask(id, after, os.fsdecode(command.encode()))


def _are_texts(told: object) -> bool:
    return isinstance(told, list) and all(isinstance(one, str) for one in told)


def _unread(option: str, name: str, error: OSError) -> ConsoleError:
    return ConsoleError(f"{option} {clean(name)}: {error.strerror}", "one task a line", exit_status=2)


def _numbered(option: str, name: str) -> Iterator[tuple[int, str]]:
    """The number and text of each line that is not blank. A line ends with a newline alone."""
    if name == "-":
        yield from _stripped(option, sys.stdin.buffer)
        return
    try:
        with open(name, "rb") as file:
            yield from _stripped(option, file)
    except OSError as error:
        raise _unread(option, name, error) from None


def _stripped(option: str, rows: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(rows, 1):
        text = os.fsdecode(line.removesuffix(b"\n"))
        if len(text) > _LONGEST:
            raise UsageError(f"{option}: a line of {len(text):,} characters", "a program takes no longer argument")
        if "\0" in text:
            raise UsageError(f"{option}: line {number} has a NUL character", "a program takes no argument with NUL")
        if line.strip():
            yield number, text


def inputs_for_object(tasks: Sequence[Ordered]) -> None:
    """Change the lines of tasks from strings of the system to those that an object takes."""
    for task in tasks:
        task.input = from_system(task.input)

"""The launch form's yod command line, and its start as a child process."""

from __future__ import annotations

import os
import shlex
from typing import NamedTuple

from console.errors import ConsoleError
from console.tui.actions.child import answered
from redmesh.sanitise import clean
from redmesh.start_command import start_command

_PATIENCE_S = 120.0  # a first launch may have to start a personal mesh
_ANSWER_S = 20.0

#: Values by the ids of FIELDS, without empty ones and defaults.
Form = dict[str, str]


class LaunchError(ConsoleError):
    """The launch did not start."""


class Entry(NamedTuple):
    """A line of the form. ``word`` is yod's option; ``choices`` are words, each with its arguments."""

    id: str
    label: str
    hint: str = ""
    word: str = ""
    choices: tuple[tuple[str, tuple[str, ...]], ...] = ()
    paths: bool = False  # may be completed as a path


FIELDS = (
    Entry("command", "Program", "program and arguments; → takes what is suggested", paths=True),
    Entry("size", "Size", "processors; empty: 1", "-sz"),
    Entry("where", "Nodes", "anywhere; or nodes and processors: n0,n2,8..11", "-list"),
    Entry("distribution", "Ranks", choices=(("block", ()), ("cyclic", ("-distribution", "cyclic")))),
    Entry("behaviour", "Mode", choices=(
        ("default", ()), ("batch", ("-batch",)), ("interactive", ("-interactive",)), ("nice", ("-nice",)))),
    Entry("input", "Input", choices=(
        ("none", ()), ("shared", ("-input", "shared")), ("all ranks", ("-input", "all")), ("rank 0", ("-input", "0")))),
    Entry("overcommit", "Oversubscribe", choices=(("no: a processor each", ()), ("yes", ("--overcommit",)))),
    Entry("hold", "Start", choices=(("at once", ()), ("hold for debuggers", ("--hold",)))),
    Entry("stacks", "On crash", choices=(("exit", ()), ("show the stack, then exit", ("-bt",)))),
    Entry("export", "Environment", "all of ours; or NONE,PATH,NAME=VALUE", "-export"),
    Entry("chdir", "Directory", "this one", "-chdir", paths=True),
    Entry("output", "Output to", "here; or files: out.{rank}", "-output", paths=True),
    Entry("error", "Errors to", "here; or files: err.{rank}", "-error", paths=True),
    Entry("time", "Time limit", "none; or minutes, H:M:S, 90s", "-time"),
    Entry("wait", "Wait", "not at all; or seconds for processors that are not free", "-wait-for-nodes"),
    Entry("strace", "Trace", "no; or a directory for strace: LAUNCHER.rank-N.strace", "-strace", paths=True),
    Entry("other", "More options", "any of yod's: -placement hilbert -gpus-per-task 1"),
)  # fmt: skip


def problem(form: Form) -> tuple[str, str]:
    """The field that prevents the launch, and the reason; two empty strings if there is none."""
    for name in ("command", "other"):
        try:
            words = shlex.split(form.get(name, ""))
        except ValueError as error:
            return name, f"{name.replace('command', 'program')}: {str(error).lower()}"
        if name == "command" and not words:
            return name, "which program?"
    size = form.get("size", "")
    if size and not (size.isascii() and size.isdigit() and 0 < int(size) < 10**7):
        return "size", "size is a whole number from 1"
    return "", ""


def arguments(form: Form) -> list[str]:
    """yod's arguments for the form, without ``--detach``. Fields with their default value are left out."""
    line: list[str] = []
    for entry in FIELDS:
        value = form.get(entry.id, "").strip()
        if entry.choices:
            line += dict(entry.choices).get(value, ())
        elif entry.word and value:
            line += [entry.word, value]
        elif entry.id == "other":
            line += _words(value)
    words = _words(form.get("command", ""))
    return [*line, *(["--"] if words and words[0].startswith("-") else []), *words]


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # incomplete input
        return text.split()


def yod_line(form: Form) -> str:
    """The command line that does the same in a shell."""
    return clean(shlex.join(["yod", *arguments(form)]))


def yod_command() -> list[str]:
    """The command that starts yod with the console's own interpreter, so that both have the same version."""
    return start_command("yod")


async def launch(form: Form) -> int:
    """Start ``yod --detach`` for the form; returns the launcher's id. Raises LaunchError with yod's message."""
    status, out, told = await _run(["--detach", *arguments(form)], _PATIENCE_S)
    number = next((word for word in out.split() if word.isdigit()), None)
    if status or number is None:
        raise LaunchError(told or f"yod ended with status {status}", exit_status=status or 125)
    return int(number)


async def dry_run(form: Form) -> list[str]:
    """The present placement, a line for each run of ranks. Raises LaunchError with yod's message."""
    status, out, told = await _run(["--dry-run", *arguments(form)], _ANSWER_S)
    if status:
        raise LaunchError(told or f"yod ended with status {status}", exit_status=status)
    return [clean(line) for line in out.splitlines()]


async def _run(words: list[str], patience_s: float) -> tuple[int, str, str]:
    try:
        status, out, err = await answered([*yod_command(), *words], patience_s, {**os.environ, "COLUMNS": "200"})
    except TimeoutError:
        raise LaunchError(f"yod has not begun within {patience_s:.0f} s", "mesh status") from None
    return status, out, clean(err.strip().replace("\n", " · "))

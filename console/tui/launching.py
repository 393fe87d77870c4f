"""From the launch form to a yod that runs by itself: its line, and its start as a child process."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from typing import NamedTuple

from console.errors import ConsoleError
from console.launch.sanitise import clean

_PATIENCE_S = 120.0  # a first launch may have to start a personal mesh


class LaunchError(ConsoleError):
    """The launch did not begin."""


class Form(NamedTuple):
    """What was filled in, as text."""

    command: str = ""
    size: str = ""
    where: str = ""
    distribution: str = "block"
    behaviour: str = "default"
    label: bool = False
    overcommit: bool = False


def problem(form: Form) -> str:
    """Why it cannot be launched as it stands; empty when it can."""
    try:
        words = shlex.split(form.command)
    except ValueError as error:
        return f"program: {str(error).lower()}"
    if not words:
        return "which program?"
    if form.size and not (form.size.isascii() and form.size.isdigit() and 0 < int(form.size) < 10**7):
        return "size is a whole number from 1"
    return ""


def arguments(form: Form) -> list[str]:
    """yod's arguments for the form, without ``--detach``. What stands at its default is left out."""
    line: list[str] = []
    if form.size:
        line += ["-sz", form.size]
    if form.where.strip():
        line += ["-list", form.where.strip()]
    if form.behaviour != "default":
        line.append(f"-{form.behaviour}")
    if form.distribution != "block":
        line += ["-distribution", form.distribution]
    if form.overcommit:
        line.append("--overcommit")
    if form.label:
        line.append("-label")
    try:
        words = shlex.split(form.command)
    except ValueError:  # half typed
        words = form.command.split()
    return [*line, *(["--"] if words and words[0].startswith("-") else []), *words]


def yod_line(form: Form) -> str:
    """The line that does the same in a shell."""
    return clean(shlex.join(["yod", *arguments(form)]))


def yod_command() -> list[str]:
    """How this installation's yod is started: the interpreter that runs us, so that both are of one build."""
    return [sys.executable, "-m", "console.cli.yod"]


async def launch(form: Form) -> int:
    """Starts ``yod --detach`` for the form and returns the launcher's id. LaunchError with yod's own words."""
    child = await asyncio.create_subprocess_exec(
        *yod_command(),
        "--detach",
        *arguments(form),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "COLUMNS": "200"},
    )
    try:
        async with asyncio.timeout(_PATIENCE_S):
            out, err = await child.communicate()
    except TimeoutError:
        child.kill()
        await child.wait()
        raise LaunchError(f"yod has not begun within {_PATIENCE_S:.0f} s", "mesh status") from None
    text = clean(err.decode("utf-8", "replace").strip().replace("\n", " · "))
    words = out.decode("utf-8", "replace").split()
    number = next((word for word in words if word.isdigit()), None)
    if child.returncode or number is None:
        raise LaunchError(text or f"yod ended with status {child.returncode}", exit_status=child.returncode or 125)
    return int(number)

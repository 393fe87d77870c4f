"""What one of our commands prints for a program goes to a descriptor of its own.

A user's Python may print when it starts (``sitecustomize``, a ``.pth`` file, a profiler), before a line of ours runs.
So a program that reads what a command prints gives it the writing end of a pipe in the variable ``REDMESH_ANSWERS``;
start_command.py makes that the command's standard output. What was printed before then is no part of the answer: it is
kept with what the command says to people.

Arguments that are too long for the kernel (one of 128 KiB, or all of a quarter of the stack's limit: some 12,000 names
of nodes to leave out) go through a file whose descriptor is in ``REDMESH_WORDS``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
from typing import NamedTuple

from redmesh.start_command import FIXED_WORDS, WORDS_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from io import FileIO
    from typing import IO

#: The variable that has the number of the descriptor. start_command.py, which has few imports, repeats it.
VARIABLE = "REDMESH_ANSWERS"
#: The same for the arguments.
WORDS_VARIABLE = "REDMESH_WORDS"
_PIECE = 1 << 20


class Answered(NamedTuple):
    """What a command said. ``out`` is its answer, ``said`` is what it and the start of Python said to people."""

    status: int
    out: str
    said: str

    def complaint(self, name: str) -> str:
        """What the command ``name`` said last to people, without its name; "" if it said nothing."""
        mark = f"{name}: "  # not always at the beginning of a line: what Python printed before may lack its end
        lines = [line for line in self.said.splitlines() if mark in line]
        return lines[-1].partition(mark)[2] if lines else ""


def pipe() -> tuple[int, int]:
    """A pipe (its reading end, its writing end) that takes no place of a standard stream, as it would in a program
    without one: the child's own stream would replace the writing end."""
    ends = os.pipe()
    if min(ends) > 2:
        return ends
    try:
        reader, writer = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in ends)
    finally:
        for end in ends:
            os.close(end)
    return reader, writer


def said_file() -> IO[bytes]:
    """A file for what a command says to people. It needs no disk, and no thread has to read it."""
    return open(os.memfd_create("redmesh-said"), "w+b")


def words_file(words: Sequence[str]) -> IO[bytes]:
    """A file with the arguments of a command, for ``WORDS_VARIABLE``."""
    made = os.memfd_create(WORDS_NAME)
    try:
        file = open(fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, 3), "w+b")  # noqa: SIM115  (no standard stream, as for a pipe)
    finally:
        os.close(made)
    file.write(b"\0".join(map(os.fsencode, words[FIXED_WORDS:])))
    file.seek(0)
    return file


def start(
    words: Sequence[str],
    env: Mapping[str, str] | None,
    said: IO[bytes],
    *,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    start_new_session: bool = False,
) -> tuple[subprocess.Popen[bytes], FileIO]:
    """Start one of our commands (a line of :func:`redmesh.start_command.start_command`).

    Returns the process and the pipe from which its answer is read, unbuffered; ``said`` gets all else that is printed.
    ``env`` is the whole environment, or None for ours. Raises OSError.
    """
    reader, writer = pipe()

    def begin(line: Sequence[str], more: Mapping[str, str], *kept: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            line, env={**(os.environ if env is None else env), VARIABLE: str(writer), **more}, stdin=stdin, stdout=said,
            stderr=said, pass_fds=(writer, *kept), start_new_session=start_new_session,
        )  # fmt: skip

    try:
        try:
            process = begin(words, {})
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise
            with words_file(words) as file:
                process = begin(words[:FIXED_WORDS], {WORDS_VARIABLE: str(file.fileno())}, file.fileno())
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return process, open(reader, "rb", buffering=0)


def ask(
    words: Sequence[str],
    env: Mapping[str, str] | None = None,
    undo: Callable[[str], object] | None = None,
) -> Answered:
    """Run one of our commands to its end; ``env`` as for :func:`start`. Raises OSError.

    An exception (^C) kills the command. If ``undo`` is given, the command runs to its end first, out of reach of the
    terminal's ^C, and ``undo`` gets its answer; a second exception kills it.
    """
    with said_file() as said:
        process, source = start(words, env, said, start_new_session=undo is not None)
        pieces: list[bytes] = []
        with process, source:
            try:
                try:
                    _read_all(source, pieces)
                except BaseException:
                    if undo is not None:
                        _read_all(source, pieces)
                        undo(os.fsdecode(b"".join(pieces)))
                    raise
            except BaseException:  # as subprocess.run does
                process.kill()
                raise
        said.seek(0)
        told = said.read()
    return Answered(process.returncode, os.fsdecode(b"".join(pieces)), os.fsdecode(told))


def _read_all(source: FileIO, pieces: list[bytes]) -> None:
    while piece := source.read(_PIECE):
        pieces.append(piece)

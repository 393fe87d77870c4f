"""Several programs in one launch: a load file in place of the program, or programs separated by colons."""

from __future__ import annotations

import os
import sys

from console.errors import ConsoleError, UsageError
from console.launch.options.load_file import SERVICE, Segment, is_load_file, line_of, read
from console.launch.options.program import find, run_it
from console.launch.options.request import Program
from redmesh.sanitise import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: What must follow a lone colon for it to separate programs, as with mpiexec: a number of ranks.
_SIZES = ("-n", "-np", "-sz")


def load_file(path: str, arguments: list[str], given: dict[str, Any], wanted: dict[str, Any] | None) -> list[Program]:
    """The programs of the load file ``path``, all found. Raises UsageError and ConsoleError, which name the line."""
    _refuse_pairs(given, "a load file")
    name = clean(path)
    if arguments:
        raise UsageError(
            f"{name} is a load file and takes no arguments", "its lines have their own; a script needs chmod +x"
        )
    wanted = dict(SERVICE) if "service" in given else wanted
    segments = read(os.fsencode(path), wanted, counted=_counted(given))
    programs = _found(segments, [f"{name}:{segment.line}" for segment in segments], given, wanted)
    if "sz" in given and not ("quiet" in given or "batch" in given):
        print(f"yod: -sz {given['sz']} is ignored: the lines of {name} have sizes of their own", file=sys.stderr)
    return programs


def implied_load_file(
    rest: list[str], given: dict[str, Any], wanted: dict[str, Any] | None, why: ConsoleError
) -> list[Program]:
    """The programs of ``rest[0]`` if it is a load file; otherwise raises ``why``: it is not a program."""
    if "N" in given and rest[0].isdigit():
        raise UsageError("-N takes no number: it is the original's, for unbuffered output", "-nodes N spreads over N")
    if "timing" in given and rest[0].isdigit():
        raise UsageError("-t is the original's -timing and takes no number", f"a limit is -time {rest[0]}")
    if "pty" in given and rest[0].isdigit():
        raise UsageError("-pty takes no rank: the terminal is rank 0's", f"another rank's: -pty-rank {rest[0]}")
    if not is_load_file(os.fsencode(rest[0])):
        raise why
    try:
        read(os.fsencode(rest[0]))
    except UsageError as error:
        told = f"{clean(rest[0])} is not executable, and no load file: {error.message}"
        hint = f"{run_it(rest[0])}chmod +x makes it a program; -load {clean(rest[0])} says that it is a load file"
        raise UsageError(told, hint) from None
    try:
        return load_file(rest[0], rest[1:], given, wanted)
    except ConsoleError as error:
        if error.exit_status in (126, 127):
            read_as = f"{clean(rest[0])} is not executable and is read as a load file"
            error.hint = f"{run_it(rest[0])}{read_as}; a script needs chmod +x"
        raise


def joined(rest: list[str]) -> bool:
    """True if a colon in ``rest`` separates programs: alone, before any ``--``, and followed by a number of ranks."""
    return _colon(rest) >= 0


def _colon(words: list[str]) -> int:
    for at, word in enumerate(words):
        if word == "--":
            return -1
        if (
            word == ":"
            and words[at + 1 : at + 2]
            and words[at + 1] in _SIZES
            and "".join(words[at + 2 : at + 3]).isdigit()
        ):
            return at
    return -1


def programs_of(rest: list[str], given: dict[str, Any], wanted: dict[str, Any] | None) -> list[Program]:
    """The programs of ``[-n 1] a : -n 2 b``. Raises UsageError and ConsoleError, which name the program."""
    _refuse_pairs(given, "several programs")
    wanted = dict(SERVICE) if "service" in given else wanted
    segments, sources, at = [], [], _colon(rest)
    first = [os.fsencode(word) for word in rest[:at]]
    if not first:
        raise UsageError("no program before the first colon", "yod -n 1 a : -n 2 b")
    segments.append(Segment(1, given.get("sz", 1), wanted, []))
    segments[0].argv = first
    while at >= 0:
        rest = rest[at + 1 :]
        at = _colon(rest)
        number = len(segments) + 1
        try:
            words = [os.fsencode(word) for word in (rest if at < 0 else rest[:at])]
            segments.append(line_of(number, words, wanted, counted=_counted(given)))
        except UsageError as error:
            raise UsageError(
                f"program {number}: {error.message}",
                "yod -n 1 a : -n 2 -list L b; all other options stand before the first program",
            ) from None
    sources = [f"program {segment.line}" for segment in segments]
    return _found(segments, sources, given, wanted)


def _counted(given: dict[str, Any]) -> bool:
    """True if a list of numbers has room for one rank on each."""
    return bool(given.get("cpus-per-task", 1) == 1 and "exclude" not in given)


def _refuse_pairs(given: dict[str, Any], what: str) -> None:
    for word in ("hostfile", "shape"):
        if word in given:
            raise UsageError(f"{what} and -{word} exclude each other", "leave one of them out")


def _found(
    segments: list[Segment], sources: list[str], given: dict[str, Any], wanted: dict[str, Any] | None
) -> list[Program]:
    programs = []
    for segment, source in zip(segments, sources, strict=True):
        if "overcommit" in given and (segment.wanted != wanted or not segment.size):
            told = f"{source}: -overcommit and processors of its own exclude each other"
            raise UsageError(told, "all programs share what there is, or the command line's -list")
        try:
            found = find(os.fsdecode(segment.argv[0]), os.environb)
        except ConsoleError as error:
            raise ConsoleError(f"{source}: {error.message}", error.hint, exit_status=error.exit_status) from None
        programs.append(Program(segment.line, segment.size, segment.wanted, found, segment.argv))
        programs[-1].env, programs[-1].source = segment.env, source
    return programs

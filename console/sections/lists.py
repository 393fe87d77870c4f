"""The sections of a command line: GNU parallel's ``:::``, ``:::+``, ``::::``, and lists on standard input."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Sequence
from typing import IO

from console.errors import ConsoleError, UsageError
from console.sections.template import Section
from redmesh.sanitise import clean

#: Words that begin a list of values, or of files with values.
MARKS = (":::", ":::+", "::::", "::::+")
MOST = 1_000_000  # sections of a job


def split_command(words: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The command's words, and the lists after them as rows of values. Raises UsageError or ConsoleError.

    All combinations of the lists' values are formed, the last list varying fastest. The values of ``:::+`` and
    ``::::+`` are paired with those of the list before.
    """
    at = next((place for place, word in enumerate(words) if word in MARKS), len(words))
    sources: list[list[tuple[str, ...]]] = []
    rest = list(words[at:])
    while rest:
        mark = rest.pop(0)
        end = next((place for place, word in enumerate(rest) if word in MARKS), len(rest))
        given, rest = rest[:end], rest[end:]
        values = [line for name in given for line in read_list(name)] if mark.startswith("::::") else given
        if mark.endswith("+"):
            if not sources:
                raise UsageError(f"{mark} goes along with the list before it, and there is none", "begin with :::")
            sources[-1] = [(*row, value) for row, value in zip(sources[-1], values, strict=False)]
        else:
            sources.append([(value,) for value in values])
    rows = [[value for part in parts for value in part] for parts in itertools.product(*sources)] if sources else []
    return list(words[:at]), rows


def read_list(name: str) -> list[str]:
    """The lines of a file, or of standard input (``-``), which end with a newline alone. Raises ConsoleError if it is
    unreadable."""
    try:
        if name == "-":
            return _lines(sys.stdin.buffer)
        with open(name, "rb") as file:
            return _lines(file)
    except OSError as error:
        raise ConsoleError(f"{clean(name)}: {error.strerror}", "::: takes values, :::: takes files of values") from None


def _lines(file: IO[bytes]) -> list[str]:
    return [os.fsdecode(line.removesuffix(b"\n")) for line in file]


def sections_of(rows: Iterable[Sequence[str]], column_mark: str | None = None) -> list[Section]:
    """A section for each row of values, with ids from 1. ``column_mark`` splits single values into columns.

    Raises UsageError if there are none, or too many.
    """
    found = []
    for number, row in enumerate(rows):
        values = tuple(row[0].split(column_mark)) if column_mark and len(row) == 1 else tuple(row)
        found.append(Section(number, str(number + 1), values))
        if len(found) > MOST:
            raise UsageError(f"more than {MOST} sections", "give each section more to do, or use several jobs")
    if not found:
        raise UsageError("the list of sections is empty", "mesh sections run -- program {} ::: a b c")
    return found

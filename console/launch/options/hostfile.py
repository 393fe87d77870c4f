"""Host files in the formats of Open MPI, MPICH and Slurm: a node on each line, and how many ranks it takes.

``node``, ``node slots=4`` (Open MPI), ``node:4`` (MPICH); names may be compressed (``node[01-04] slots=4``). ``#``
begins a comment. A node on several lines without a number gets one rank for each line; a node on one line gets as many
ranks as it has processors.
"""

from __future__ import annotations

import os

from console.errors import UsageError, next_step
from console.launch.options.lists import parse_list
from redmesh.sanitise import clean

#: Bytes read of a host file at most.
MOST = 16 << 20
_COUNTS = ("slots", "max_slots", "max-slots")


def read(path: str, names: str = "-list") -> dict[str, int | None]:
    """The nodes in the file ``path`` and the most ranks of each (None: its processors). Raises UsageError.

    ``names``: the option that takes names instead of a file.
    """
    name = clean(path)
    try:
        with open(os.fsencode(path), "rb") as file:
            data = file.read(MOST + 1)
    except OSError as error:
        hint = next_step(error)
        if isinstance(error, FileNotFoundError) and "/" not in path:
            hint = f"if hosts are meant: {names} {name}"
        raise UsageError(f"the host file {name} cannot be read: {error.strerror}", hint) from None
    if len(data) > MOST:
        raise UsageError(f"the host file {name} is larger than {MOST >> 20} MiB", "is it really a host file?")
    return parse(data.decode("utf-8", "replace"), name)


def parse(text: str, name: str) -> dict[str, int | None]:
    """Parse ``text``; entries keep their order. Raises UsageError, which names ``name`` and the line."""
    hosts: dict[str, int | None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            names, slots = _line(words)
        except UsageError as error:
            raise UsageError(f"{name}:{number}: {error.message}", error.hint) from None
        for host in names:
            # A line without a number counts as one rank, unless it is the node's only line.
            before = 0 if host not in hosts else hosts[host] or 1
            if slots is not None or before:
                hosts[host] = before + (1 if slots is None else slots)
            else:
                hosts[host] = None
    if not hosts:
        raise UsageError(f"{name}: no node in this host file", "a line is: node, node slots=N or node:N")
    return hosts


def _line(words: list[str]) -> tuple[list[str], int | None]:
    head, colon, count = words[0].partition(":")
    wanted = parse_list(head)
    if wanted["processors"]:
        raise UsageError(f"{clean(head)} is not a node's name", "processors by number belong into -list")
    slots = _count(count) if colon else None
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals or key not in _COUNTS:
            raise UsageError(f"{clean(word)!r} is not understood", "a line is: node, node slots=N or node:N")
        if slots is not None and key == "slots":
            raise UsageError("two numbers of ranks for one node", "a line is: node, node slots=N or node:N")
        slots = _count(value) if key == "slots" else min(slots or _count(value), _count(value))
    return wanted["nodes"], slots


def _count(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 10 and int(text):
        return int(text)
    raise UsageError(f"{clean(text)!r} is not a number of ranks", "a line is: node, node slots=N or node:N")

"""Options about output, time limits and messages of a launch."""

from __future__ import annotations

import errno
import os
import stat

from console.errors import ConsoleError, UsageError, next_step
from console.launch.options import limits
from redmesh.sanitise import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from console.launch.options.patterns import Pattern

#: The types of -d (docs/yod.md describes them).
TOPICS = (
    "io", "iomore", "load", "loadmore", "alloc", "hetero", "pbs", "environ", "progress", "failure", "debug", "bebopd",
    "comm", "phase1", "phase2",
)  # fmt: skip
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


#: How a file of ``-file`` begins: with the command line of its first launch.
_REPORT = b"yod "


class OutputOptions:
    """Options about files, limits and messages.

    ``limit_s``, ``wait_s``: None for no limit. ``warn``: a signal, and how many seconds before the limit it is sent.
    """

    __slots__ = (
        "command_line", "completion", "completion_fd", "error", "gather", "limit_s", "output", "spool_drops",
        "spool_limit", "stdin", "stdin_fd", "timing", "topics", "wait_s", "warn",
    )  # fmt: skip

    def __init__(self) -> None:
        self.output: Pattern | None = None
        self.error: Pattern | None = None
        self.stdin: Pattern | None = None
        self.gather = self.timing = self.spool_drops = False
        self.command_line: list[str] = []  # the first line of the completion table for -file
        self.completion = ""
        self.completion_fd = self.stdin_fd = -1
        self.topics: frozenset[str] = frozenset()
        self.limit_s: float | None = None
        self.wait_s: float | None = None
        self.warn: tuple[int, float] | None = None
        self.spool_limit = 0  # bytes; 0: the default

    @property
    def stdin_each(self) -> Pattern | None:
        """The pattern of ``-stdin`` if it names several files, which the nodes open; otherwise None."""
        return self.stdin if self.stdin is not None and self.stdin.fields else None

    def begin(self) -> None:
        """Open the files that do not depend on the placement, before any request. Raises ConsoleError."""
        if self.completion:
            _refuse_other_contents(self.completion)
            self.completion_fd = _open("-file", self.completion, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        if self.stdin is not None and self.stdin_each is None:
            self.stdin_fd = _open("-stdin", self.stdin.fill(0, "", 0, 0), os.O_RDONLY)


def _refuse_other_contents(name: str) -> None:
    """A report is appended to reports only: ``-f hostfile`` of MPICH would append one to the user's host file."""
    try:
        if not os.path.isfile(name):
            return  # it does not exist yet, or is a FIFO or a device
        with open(name, "rb") as file:
            begin = file.read(len(_REPORT))
    except OSError:
        return  # write-only, for example; opening it for writing says what is wrong
    if begin and begin != _REPORT:
        raise ConsoleError(
            f"-file {clean(name)}: the file has other contents than reports of yod; nothing was written",
            "-file appends the report on the ranks' ends, so name a new file; to read nodes from a file: -hostfile",
        )


def _open(option: str, name: str, flags: int) -> int:
    try:
        fd = os.open(name, flags | os.O_CLOEXEC | os.O_NOCTTY, 0o666)
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return fd
    except OSError as error:
        hint = next_step(error, writing=bool(flags & os.O_CREAT))
        if option == "-stdin" and name in ("all", "none"):  # Open MPI's --stdin
            hint = f"-stdin takes a file; -input {name} says which ranks read standard input"
        raise ConsoleError(f"{option} {clean(name)} cannot be opened: {error.strerror}", hint) from None


def read(given: Mapping[str, Any]) -> OutputOptions:
    """Read these options from a command line. Raises UsageError."""
    options = OutputOptions()
    options.gather, options.timing = "gather" in given, "timing" in given
    options.completion = given.get("file", "")
    _files(options, given)
    _refuse_pairs(options, given)
    if "D" in given:
        options.topics |= {"all"}
    for text in given.get("d", ()):
        options.topics |= _topics(text, quiet="quiet" in given or "batch" in given)
    if "time" in given:
        options.limit_s = limits.duration(given["time"])
    if "wait" in given:
        options.wait_s = given["wait"] or None  # 0: for ever, as with srun
    if "signal" in given:
        options.warn = limits.warning(given["signal"], options.limit_s)
    if "spool" in given:
        options.spool_drops = given["spool"] == "drop"
    if "spool-limit" in given:
        options.spool_limit = size(given["spool-limit"])
    return options


def _files(options: OutputOptions, given: Mapping[str, Any]) -> None:
    for word in ("output", "error", "stdin"):
        if word in given:
            from console.launch.options.patterns import parse

            quiet = "quiet" in given or "batch" in given
            setattr(options, word, parse(given[word], f"-{word}", quiet=quiet))


def _refuse_pairs(options: OutputOptions, given: Mapping[str, Any]) -> None:
    if options.gather:
        for word in ("json", "label", "output", "detach"):
            if word in given:
                raise UsageError(f"-gather and -{word} exclude each other", "leave one of them out")
    if options.stdin_each is not None and "input" in given:
        raise UsageError("-stdin with a file for each rank excludes -input", "leave -input out")
    if ("spool" in given or "spool-limit" in given) and "detach" not in given:
        raise UsageError("-spool and -spool-limit are for what is launched with -detach", "add -detach")


def _topics(text: str, *, quiet: bool) -> frozenset[str]:
    """Return the known types in ``text``; print a note about unknown ones, which the original yod ignores silently."""
    names = frozenset(text.split(","))
    unknown = sorted(clean(name) for name in names.difference(TOPICS) if name)
    if unknown and not quiet:
        import sys

        print(f"yod: -d knows no {', '.join(unknown)}; ignored (it knows {' '.join(TOPICS)})", file=sys.stderr)
    return names.intersection(TOPICS)


def size(text: str) -> int:
    """Parse ``512m``, ``2G``, ``100000`` to bytes; at least 1 MiB. Raises UsageError."""
    digits = text.lower().removesuffix("b").removesuffix("i")
    unit = digits[-1:] if digits[-1:].isalpha() else ""
    number = digits.removesuffix(unit)
    if unit not in _SIZES or not (number.isascii() and number.isdigit() and len(number) < 14):
        raise UsageError(f"-spool-limit takes bytes, like 512m or 2G, not {text!r}", "-spool-limit 512m")
    bytes_ = int(number) * _SIZES[unit]
    if bytes_ < 1 << 20:
        raise UsageError("-spool-limit is at least 1m", "-spool-limit 1m")
    return bytes_

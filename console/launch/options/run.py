"""Options about how ranks are run: parsed from the command line, and converted for the load."""

from __future__ import annotations

import os

from console.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

#: The words of -sleep → their names in the load. With "go", yod itself sleeps before GO.
PLACES = {"after-fork": "fork", "before-exec": "exec", "after-exec": "loaded", "before-go": "go"}
#: Numbers of the original yod: after the fork, before exec, at the entry of the start-up code, before main. Redmesh has
#: no start-up code in the program, so the last one means before GO.
NUMBERS = {"1": "after-fork", "2": "before-exec", "3": "after-exec", "4": "before-go"}
SLEEP_S = 60.0
PENDING_S = 60.0  # the normal time from allocation to start
NICE = 10  # added to the ranks' nice value
TRACES = 8  # how many ranks of a node have their stacks read at the same time


class RunOptions:
    """Run options. ``message`` is sent as ``run_options`` of the common frame; the other attributes are for yod.

    ``sleep_s``: how long yod sleeps before GO. ``limited``: a time limit was given, which also ends a held launch.
    ``pty``: the rank that uses yod's terminal.
    """

    __slots__ = (
        "backtrace", "confirm_after_s", "hold", "limited", "message", "mpir_file", "nice", "parent", "pty",
        "release_after_s", "sleep_s",
    )  # fmt: skip

    def __init__(self) -> None:
        self.message: dict[str, Any] = {}
        self.backtrace = self.hold = self.nice = False
        self.parent = "daemon"  # what starts the ranks: launch children ("daemon"), or the batch system ("rank")
        self.release_after_s: float | None = None
        self.limited = False
        self.sleep_s = self.confirm_after_s = 0.0
        self.pty: int | None = None
        self.mpir_file = ""  # the file for the process table at GO

    def allocation(self) -> dict[str, Any]:
        """What the CPA must know: more time before GO, and that the launch may be preempted."""
        told: dict[str, Any] = {}
        if self.nice:
            told["preemptible"] = True
        if self.sleep_s:
            told["pending_s"] = PENDING_S + self.sleep_s
        return told


def read(given: Mapping[str, Any], size: int | None, cwd: bytes) -> RunOptions:
    """Read the options. Raises UsageError for an impossible combination."""
    options = RunOptions()
    message = options.message
    # As with the original yod, -batch prevents holding, because no user could press a key.
    options.hold = not {"alloc", "attach"}.isdisjoint(given) and "batch" not in given
    options.backtrace = not {"bt", "g"}.isdisjoint(given)
    _exclude(given, options)
    if options.backtrace:
        message["backtrace"] = TRACES
    if options.hold:
        message["hold"] = True
        options.release_after_s = given.get("release-after")
        options.limited = "time" in given
    if "proctable" in given:
        options.mpir_file = os.fsdecode(os.path.join(cwd, os.fsencode(given["proctable"])))
    if "Log" in given:
        message["log"] = True
    if given.get("parent", "daemon") == "rank":
        options.parent = "rank"
        refused = sorted({"bt", "g", "sleep", "io"} & given.keys())
        if refused:
            raise UsageError(f"--parent=rank excludes -{refused[0]}", "--parent=daemon has both")
    if "nice" in given:
        message["nice"], options.nice = NICE, True
    if "strace" in given:
        message["strace"] = _strace(given, size, cwd)
    if "cpu-bind" in given and given["cpu-bind"] != "none":
        message["bind"] = bind(given["cpu-bind"], given.get("cpus-per-task", 1))
    if "sleep" in given:
        where, seconds = sleep(given["sleep"])
        options.sleep_s = seconds
        if where == "go":
            options.confirm_after_s = seconds
        else:
            message["sleep"] = {"where": where, "seconds": seconds}
    if "pty" in given or "pty-rank" in given:
        options.pty = given.get("pty-rank", 0)
        if size is not None and options.pty >= size:
            raise UsageError(f"-pty-rank {options.pty}: there is no such rank", f"ranks are 0 to {size - 1}")
        rows, columns = window()
        message["pty"] = {"rank": options.pty, "rows": rows, "columns": columns}
    return options


def _exclude(given: Mapping[str, Any], options: RunOptions) -> None:
    tracers = [
        word for word, there in (("-bt", options.backtrace), ("--hold", options.hold), ("-strace", "strace" in given))
        if there
    ]  # fmt: skip
    if len(tracers) > 1:
        raise UsageError(f"{' and '.join(tracers)} exclude each other", "a process has one tracer at a time")
    for word, needs, there in (
        ("release-after", "--hold", not {"alloc", "attach"}.isdisjoint(given)),
        ("straceoptions", "-strace", "strace" in given),
        ("stracenodes", "-strace", "strace" in given),
    ):
        if word in given and not there:
            raise UsageError(f"-{word} goes with {needs}")
    if ("pty" in given or "pty-rank" in given) and "detach" in given:
        raise UsageError("-pty and -detach exclude each other", "a launch without a terminal can lend none")
    if ("pty" in given or "pty-rank" in given) and not {"input", "label"}.isdisjoint(given):
        raise UsageError("-pty excludes -input and -label", "the terminal is one rank's")


def _strace(given: Mapping[str, Any], size: int | None, cwd: bytes) -> dict[str, Any]:
    import shlex

    try:
        options = shlex.split(given.get("straceoptions", ""))
    except ValueError as error:
        raise UsageError(f"-straceoptions: {error}", "quotes come in pairs") from None
    if any(option.startswith(("-o", "--output")) for option in options):
        raise UsageError("-straceoptions: -o is yod's own", "the files are in the directory of -strace")
    folder = os.path.join(cwd, os.fsencode(given["strace"]))
    chosen = given.get("stracenodes", "0")
    return {
        "dir": folder.decode("latin-1"),
        "options": [os.fsencode(option).decode("latin-1") for option in options],
        "ranks": None if chosen == "all" else ranks(chosen, size),
    }


def ranks(text: str, size: int | None) -> list[int]:
    """Parse ``0,4..7`` to ranks; a range has one or more dots, or a dash. Raises UsageError."""
    found: set[int] = set()
    for part in text.split(","):
        low, dots, high = part.strip().partition(".")
        if dots:
            high = high.lstrip(".")
        else:
            low, dots, high = part.strip().partition("-")
        high = high if dots else low
        if not (_number(low) and _number(high) and int(low) <= int(high)):
            raise UsageError(f"-stracenodes takes ranks (0,4..7) or all, not {text!r}", "-stracenodes 0-3,7")
        if size is not None and int(high) >= size:
            raise UsageError(f"-stracenodes {text}: there is no rank {high}", f"ranks are 0 to {size - 1}")
        found.update(range(int(low), int(high) + 1))
    return sorted(found)


def _number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 8


def bind(text: str, each: int) -> dict[str, Any]:
    """Parse ``core`` or ``map:0,2,4`` for the load. Raises UsageError."""
    kind, colon, rest = text.partition(":")
    if kind in ("core", "cores") and not colon:  # srun has the plural
        return {"each": each}
    if kind == "map" and colon and all(map(_number, rest.split(","))):
        return {"each": each, "map": [int(cpu) for cpu in rest.split(",")]}
    hint = "did you mean core?" if kind in ("rank", "hwthread") else "-cpu-bind map:0,2,4"
    raise UsageError(f"-cpu-bind takes none, core or map:0,2,4 …, not {text!r}", hint)


def sleep(text: str) -> tuple[str, float]:
    """Parse ``after-fork``, ``before-go:5`` … to place and seconds; the place may be the part after the dash."""
    word, colon, rest = text.partition(":")
    word = NUMBERS.get(word, word)
    place = PLACES.get(word) or next((short for full, short in PLACES.items() if full.endswith(f"-{word}")), "")
    if word == "exec" or not place:
        told = f"-sleep takes {', '.join(PLACES)}, or the original's 1, 2, 3 or 4, not {word!r}"
        raise UsageError(told, "before-exec:10 sleeps 10 s instead of 60")
    try:
        seconds = float(rest) if colon else SLEEP_S
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise UsageError(f"-sleep {text}: from 0 to 3600 seconds", "-sleep before-go:5")
    return place, seconds


def window() -> tuple[int, int]:
    """Rows and columns of yod's terminal."""
    for fd in (0, 1, 2):
        try:
            size = os.get_terminal_size(fd)
        except OSError:
            continue
        return size.lines, size.columns
    return 24, 80

"""Checks the options for transfers: --bcast, --io, --stage-in, --stage-out."""

from __future__ import annotations

import os

from console.errors import UsageError
from console.launch.options import patterns
from redmesh.sanitise import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

    from console.launch.options.request import TransferOptions

READ_ONLY = ":ro"


def read(given: Mapping[str, Any], options: TransferOptions) -> None:
    """Read the options. Raises UsageError for a path that is not a directory, or an invalid pattern."""
    options.bcast = given.get("bcast", "auto")
    options.bcast_libs = "bcast-libs" in given
    options.bcast_share = given.get("bcast-per", "host") == "host"
    if options.bcast_libs and options.bcast == "never":
        raise UsageError("-bcast-libs and -bcast never exclude each other", "leave one of them out")
    directories = []
    for text in given.get("io", ()):
        directory, writable = io_directory(text)
        if text in ("", READ_ONLY):
            raise UsageError("-io needs a directory, and the name given is empty", "-io . is the current directory")
        if not os.path.isdir(directory):
            _refuse_directory(text, directory)
        # resolve it now, because a daemon may have another working directory
        directories.append(directory if writable else directory + READ_ONLY)
    for text in given.get("stage-in", ()):
        stage_in(text)
    for text in given.get("stage-out", ()):
        stage_out(text)
    options.io = tuple(directories)
    options.stage_in, options.stage_out = tuple(given.get("stage-in", ())), tuple(given.get("stage-out", ()))


def _refuse_directory(text: str, directory: str) -> NoReturn:
    name, _, ending = text.rpartition(":")
    if os.path.exists(directory):
        raise UsageError(f"-io {clean(text)}: not a directory", f"-io {clean(os.path.dirname(text) or '.')}")
    if name and os.path.isdir(name):
        raise UsageError(f"-io {clean(text)}: no such directory", f"only :ro may follow a name, not :{clean(ending)}")
    raise UsageError(f"-io {clean(text)}: no such directory", "mkdir it, or name one that exists")


def with_yodio(environ: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """The environment for finding the program: PATH begins with yodio's directory, as it does for ranks."""
    from agents.pct.files.yodio import YODIO

    return {**environ, b"PATH": os.fsencode(YODIO) + b":" + environ.get(b"PATH", b"/bin:/usr/bin")}


def io_directory(text: str) -> tuple[str, bool]:
    """Parse ``DIR`` or ``DIR:ro``: the absolute directory, and whether ranks may write in it."""
    writable = not text.endswith(READ_ONLY)
    return os.path.abspath(text if writable else text.removesuffix(READ_ONLY)), writable


def stage_in(text: str) -> tuple[patterns.Pattern, patterns.Pattern | None]:
    """Parse SRC[:DST]: patterns of the local file and of its name on the nodes (None: a file in ``$YOD_STAGE``)."""
    source, destination = _parted(text)
    parsed = patterns.parse(source, "-stage-in")
    return parsed, patterns.parse(destination, "-stage-in") if destination else None


def stage_out(text: str) -> tuple[patterns.Pattern, patterns.Pattern]:
    """Parse SRC:DST: patterns of the file on the nodes and of the local file. Raises UsageError."""
    source, destination = _parted(text)
    if not destination:
        raise UsageError(
            f"-stage-out {clean(text)}: the name of the local file is missing",
            "-stage-out 'out:out-{rank}' brings each rank's out",
        )
    parsed = patterns.parse(source, "-stage-out"), patterns.parse(destination, "-stage-out")
    if not parsed[1].one_each and parsed[0].fields:
        raise UsageError(
            f"-stage-out {clean(text)}: several files would be written to the same file",
            "put {rank} (or {node} and {local}) into the second name too",
        )
    return parsed


def _parted(text: str) -> tuple[str, str]:
    # The separating colon is the first one outside braces, because {rank:04} has one too.
    depth = 0
    for at, char in enumerate(text):
        depth += (char == "{") - (char == "}")
        if char == ":" and depth <= 0:
            return text[:at], text[at + 1 :]
    return text, ""

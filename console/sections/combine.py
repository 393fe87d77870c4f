"""Combines the parts of sections into whole outputs: concatenated, summed, or by a user's command.

An output is written to a temporary file in the same directory, synced, and renamed when it is complete. After a kill,
combining starts again from the beginning, and leftovers of the earlier attempt are removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Sequence
from typing import IO

from console.errors import ConsoleError
from console.sections.arrays import add_up
from console.sections.output import Output

_PIECE = 1 << 24  # bytes in memory at once
_BESIDE = ".redmesh-part"


def combine(output: Output, path: str, parts: Sequence[str], cwd: str) -> int:
    """Make the output at ``path`` from ``parts``, in order; returns its size in bytes. Raises ConsoleError."""
    beside = f"{path}{_BESIDE}"
    lock = -1
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        lock = _locked(beside)
        if output.how == "command":
            _by_command(output, beside, parts, cwd)
        elif output.how in ("sum", "mean"):
            add_up(output, beside, parts)
        else:
            with open(beside, "wb") as whole:
                for number, part in enumerate(parts):
                    _append(whole, part, output.header if output.how == "header" and number else 0)
        with open(beside, "rb+") as whole:
            os.fsync(whole.fileno())
        os.replace(beside, path)
        _sync_directory(path)
        return os.path.getsize(path)
    except OSError as error:
        raise ConsoleError(
            f"output {output.name} cannot be combined: {error.filename or path}: {error.strerror}",
            "mend that, then: mesh sections resume; nothing that is done runs again",
        ) from None
    finally:
        if lock >= 0:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            os.close(lock)


def _locked(beside: str) -> int:
    """Open and lock the temporary file, waiting for another process that combines the output. Raises OSError.

    ``mesh sections run`` and ``mesh sections watch`` of the same job both combine.
    """
    while True:
        fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            with contextlib.suppress(OSError):  # the file system may not support locks
                fcntl.flock(fd, fcntl.LOCK_EX)
            if os.path.exists(beside) and os.path.samestat(os.fstat(fd), os.stat(beside)):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # the other process has renamed this file: open a new one


def _append(whole: IO[bytes], part: str, skip: int) -> None:
    with open(part, "rb") as file:
        if skip and os.fstat(file.fileno()).st_size < skip:
            raise ConsoleError(
                f"{part} is shorter than its header of {skip} bytes", "look at the section that wrote it"
            )
        file.seek(skip)
        while piece := file.read(_PIECE):
            whole.write(piece)


def _by_command(output: Output, beside: str, parts: Sequence[str], cwd: str) -> None:
    words: list[str] = []
    for word in output.command:
        words += parts if word == "{parts}" else [word.replace("{out}", beside)]
    names_itself = any("{out}" in word for word in output.command)
    # Without {out} in its words, the command's standard output is the output.
    with open(beside, "wb") as whole:
        done = subprocess.run(
            words, cwd=cwd, check=False, stdin=subprocess.DEVNULL, stdout=None if names_itself else whole
        )
    if done.returncode:
        raise ConsoleError(
            f"output {output.name}: {words[0]} ended with status {done.returncode}",
            "mend it, then: mesh sections resume; nothing that is done runs again",
        )


def _sync_directory(path: str) -> None:
    fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

"""Combines the parts of sections into whole outputs: concatenated, summed, or by a user's command.

Each attempt writes a file of its own in the same directory, syncs it, and renames it when it is complete. After a kill,
combining starts again from the beginning, and the file of the earlier attempt is removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Callable, Sequence
from typing import IO

from agents.linux import attempt
from agents.yodio.yodparts import is_old, settle
from console.errors import ConsoleError
from console.sections.arrays import add_up
from console.sections.output import Output

_PIECE = 1 << 24  # bytes in memory at once
_BESIDE = ".redmesh-part"


def combine(
    output: Output, path: str, parts: Sequence[str], cwd: str, *, foreign: Callable[[int], bool] = lambda _: False
) -> int:
    """Make the output at ``path`` from ``parts``, in order; returns its size in bytes. Raises ConsoleError.

    ``foreign(number)``: whether a part is not as the job has left it.
    """
    lock, own = -1, ""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        lock = _locked(f"{path}{_BESIDE}")
        own = f"{path}{_BESIDE}-{os.urandom(8).hex()}"
        os.close(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        _check_written(output, parts, foreign)
        if output.how == "command":
            _by_command(output, own, parts, cwd)
        elif output.how in ("sum", "mean"):
            add_up(output, own, parts)
        else:
            with open(own, "wb") as whole:
                for number, part in enumerate(parts):
                    _append(whole, part, output.header if output.how == "header" and number else 0)
        with open(own, "rb+") as whole:
            os.fsync(whole.fileno())
        os.replace(own, path)
        _sync_directory(path)
        return os.path.getsize(path)
    except OSError as error:
        lost = error.errno == errno.ENOENT and error.filename in parts
        raise ConsoleError(
            f"output {output.name} cannot be combined: {error.filename or path}: {error.strerror}",
            "mesh sections run makes all parts again"
            if lost
            else "mend that, then: mesh sections resume; nothing that is done runs again",
        ) from None
    finally:
        if lock >= 0:
            for name in (own, f"{path}{_BESIDE}"):
                with contextlib.suppress(OSError):
                    os.unlink(name)
            os.close(lock)


def _check_written(output: Output, parts: Sequence[str], foreign: Callable[[int], bool]) -> None:
    """Raise ConsoleError if a part is of an earlier run, or was written since: no attempt of this job has written the
    file that is here."""
    for number, part in enumerate(parts):
        if is_old(part):
            raise ConsoleError(
                f"output {output.name}: {part} is of an earlier run; no section of this job has written it here",
                "all nodes must share the directory of the parts, or set stage = true; then: mesh sections run",
            )
        if foreign(number):
            raise ConsoleError(
                f"output {output.name}: {part} has changed since its section wrote it: another job, section or program"
                " has written there",
                "mesh sections run makes all parts again (with other names, if two jobs share the directory);"
                " mesh sections resume --anyway combines what is there", exit_status=1,
            )  # fmt: skip


def _locked(name: str) -> int:
    """Create and lock the file ``name``, waiting for another process that combines the output, and remove the files of
    killed attempts. Raises OSError.

    ``mesh sections run`` and ``mesh sections watch`` of the same job both combine. Each attempt writes a file of its
    own: a command of a killed attempt may still run, and must not write to the file that gets the output's name.
    """
    while True:
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                alone = True
            except OSError:
                alone = False  # the file system does not support locks
            if os.path.exists(name) and os.path.samestat(os.fstat(fd), os.stat(name)):
                if alone:
                    _remove_dead(name)
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # the other process has removed this file: create a new one


def _remove_dead(name: str) -> None:
    """Remove the files of attempts that were killed: an attempt holds the lock ``name`` as long as its file exists."""
    directory, base = os.path.split(name)
    for entry in os.listdir(directory or "."):
        if re.fullmatch(re.escape(base) + "-[0-9a-f]{16}(-copy)?", entry):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(directory, entry))


def _append(whole: IO[bytes], part: str, skip: int) -> None:
    with open(part, "rb") as file:
        if skip and os.fstat(file.fileno()).st_size < skip:
            raise ConsoleError(
                f"{part} is shorter than its header of {skip} bytes", "look at the section that wrote it"
            )
        file.seek(skip)
        while piece := file.read(_PIECE):
            whole.write(piece)


def _by_command(output: Output, own: str, parts: Sequence[str], cwd: str) -> None:
    words: list[str] = []
    for word in output.command:
        words += parts if word == "{parts}" else [word.replace("{out}", own)]
    names_itself = any("{out}" in word for word in output.command)
    # Without {out} in its words, the command's standard output is the output.
    with open(own, "wb") as whole:
        status = attempt.run(words, cwd, None if names_itself else whole.fileno())
    if status:
        raise ConsoleError(
            f"output {output.name}: {words[0]} ended with status {status}",
            "mend it, then: mesh sections resume; nothing that is done runs again",
        )
    settle(own, own, own)  # what forks and exits without pause may have escaped


def _sync_directory(path: str) -> None:
    fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

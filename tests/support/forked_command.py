"""Runs ``mesh`` in a forked process of the tests: four fifths of the command's time are the start of a Python.

The meshes of the tests go up and down in this way. What starts, stops or asks for a mesh as its subject runs the
command's own program.
"""

import contextlib
import gc
import importlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NoReturn

_MODULES = (
    *(f"console.cli.mesh.{name}" for name in ("command", "down", "subcommands", "up")),
    "console.deploy.personal.lifecycle",
    "db.schema.migrate",
    "db.views.viewer",
)


def run_mesh(*words: str, env: Mapping[str, str], cwd: Path, patience_s: float) -> "subprocess.CompletedProcess[str]":
    """Run ``mesh WORDS`` to its end, in ``cwd`` and with no other variables than ``env``.

    Raises subprocess.TimeoutExpired, as subprocess.run does, if it does not end.
    """
    _load()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        pid = os.fork()
        if pid == 0:
            _become(words, env, cwd, out, errors)
        status = _wait(pid, patience_s)
        if status is None:
            raise subprocess.TimeoutExpired(["mesh", *words], patience_s)
        return subprocess.CompletedProcess(["mesh", *words], status, _text(out), _text(errors))


def _load() -> None:
    """Import what the commands import, so that the forked processes have it."""
    for name in _MODULES:
        importlib.import_module(name)


def _become(words: tuple[str, ...], env: Mapping[str, str], cwd: Path, out: IO[bytes], errors: IO[bytes]) -> NoReturn:
    """Be the command, in a process that has been forked."""
    status = 1
    try:
        gc.disable()  # it would write to all that the tests have loaded
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, fd in enumerate((nothing, out.fileno(), errors.fileno())):
            os.dup2(fd, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", errors="backslashreplace")  # noqa: SIM115
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        from console.cli.mesh import command

        sys.argv = ["mesh", *words]
        status = command.main(words)
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(status)


def _wait(pid: int, patience_s: float) -> int | None:
    """Return the exit status of a child, negative if a signal ended it; None if it had to be killed."""
    child, ended = os.pidfd_open(pid), []
    try:
        ended = select.select([child], [], [], patience_s)[0]
    finally:
        os.close(child)
        if not ended:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) if ended else None


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="surrogateescape")

"""Errors that a limit of the process or host has caused say which, without a traceback."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from console.cli.exits import refused
from redmesh.resource_limits import limit_hint
from redmesh.start_command import ROOT, start_command

#: Starts the command ``yod``, whose module fails as the argument says.
FAILS = """
import os, sys
sys.path.insert(0, os.environ["AT"])
from redmesh import start_command
start_command.MODULES["yod"] = "failing"
sys.exit(start_command.run_command("yod"))
"""


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (OSError(errno.EMFILE, "x"), "ulimit -n"), (OSError(errno.ENFILE, "x"), "fs.file-max"),
        (OSError(errno.ENOMEM, "x"), "ulimit -v"), (OSError(errno.EFBIG, "x"), "ulimit -f"),
        (OSError(errno.EAGAIN, "x"), "ulimit -u"), (OSError(errno.ENOENT, "x"), ""),
        (BlockingIOError(errno.EAGAIN, "x", 3), ""), (MemoryError(), "ulimit -v"), (ValueError(), ""),
        (RuntimeError("can't start new thread"), "ulimit -u"), (RuntimeError("x"), ""), (ImportError("x"), ""),
        (ImportError("libz.so: failed to map segment from shared object"), "ulimit -v"),
        (ImportError("libz.so: cannot open shared object file: Error 24"), "ulimit -n"),
    ],
)  # fmt: skip
def test_the_limit_is_named(error: Exception, hint: str) -> None:
    assert hint in limit_hint(error) and bool(hint) == bool(limit_hint(error))


def test_the_file_that_came_next_is_not_blamed_for_a_lack_of_descriptors() -> None:
    assert refused(OSError(errno.EMFILE, "Too many open files", "/a/b.py")).message == "Too many open files"
    assert refused(OSError(errno.ENOSPC, "No space left on device", "/a/b")).message == "/a/b: No space left on device"


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        ("raise MemoryError", "yod: out of memory: a limit of this process is reached (ulimit -v), or the host"),
        ("def main(*_): raise MemoryError", "yod: out of memory: a limit of this process is reached (ulimit -v), or"),
        ("raise ImportError('libz.so: failed to map segment from shared object')", "ulimit -v, free -m)"),
        ("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3)); open('/dev/null')", "ulimit -n"),
    ],
)
def test_a_command_that_gets_no_more_says_so_in_one_line(tmp_path: Path, fails: str, told: str) -> None:
    (tmp_path / "failing.py").write_text(fails + "\n")
    env = {**os.environ, "AT": str(tmp_path), "PYTHONPATH": ROOT}
    done = subprocess.run([sys.executable, "-P", "-c", FAILS], env=env, capture_output=True, text=True)
    assert done.returncode == 125 and told in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


@pytest.mark.parametrize("command", (["yod", "-sz", "1", "true"], ["mesh", "job", "list"], ["mesh", "submit", "true"]))
def test_commands_without_descriptors_name_the_limit(tmp_path: Path, command: list[str]) -> None:
    env = {**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    words = [*start_command(command[0]), *command[1:]]
    done = subprocess.run(["sh", "-c", 'ulimit -n 4; exec "$@"', "sh", *words], env=env, capture_output=True, text=True)
    assert "Traceback" not in done.stderr and "this is a bug" not in done.stderr, done.stderr
    assert done.returncode == 0 or "ulimit -n" in done.stderr, done.stderr

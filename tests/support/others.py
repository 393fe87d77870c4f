"""Redmesh's commands for another user of this machine, who may not be able to run our Python."""

from __future__ import annotations

import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hosts import PROJECT, NamespaceHost

_ROOT = str(Path(__file__).parents[2])
_PATH = [_ROOT, *site.getsitepackages()]
INSTALLED = "/run/host/bin"
_COMMANDS = ("yod", "showmesh", "pingd", "mesh")
_ASK = """
import sys
sys.path[:0] = {path}
assert sys.version_info >= (3, 11) and sys.base_prefix == {prefix!r}
import agents.pct.daemon, console.cli.yod, peewee, pymysql
"""
_COMMAND = """#!{python}
import sys
sys.path[:0] = {path}
from console.cli.{name} import main
sys.exit(main())
"""


def python_for_others() -> str:
    """A Python that other users can run, which can load what ours does: ours, or the system's. Skips without one."""
    for python, prefix in ((sys.executable, sys.base_prefix), ("/usr/bin/python3", "/usr")):
        # by a shell: setpriv would still find the program with what root may, and Python then another one's library
        command = ["setpriv", "--reuid", "21001", "--regid", "21001", "--clear-groups", "--", "sh", "-c", 'exec "$@"']
        ask = _ASK.format(path=_PATH, prefix=prefix)
        if not subprocess.run([*command, "sh", python, "-c", ask], capture_output=True, cwd="/").returncode:
            return python
    ours = os.path.realpath(sys.executable)
    pytest.skip(f"other users can run neither {ours} nor /usr/bin/python3 with our packages")


def commands_for_others(directory: Path, root: str = _ROOT) -> Path:
    """``directory``, made, with ``yod`` and the others' commands for such a Python, and ``python``.

    ``root``: where our files stand for those who run them.
    """
    python = python_for_others().replace(_ROOT, root)
    path = [name.replace(_ROOT, root) for name in _PATH]
    directory.mkdir(mode=0o755)
    for name in _COMMANDS:
        (directory / name).write_text(_COMMAND.format(python=python, path=path, name=name))
        (directory / name).chmod(0o755)
    (directory / "python").write_text(f'#!/bin/sh\nPYTHONPATH={":".join(path)} exec {python} "$@"\n')
    (directory / "python").chmod(0o755)
    directory.chmod(0o755)
    return directory


def install(host: NamespaceHost) -> None:
    """redmesh on a host, in INSTALLED, as a package manager would put it there: daemons find what commands find."""
    where = commands_for_others(host.directory / "bin", PROJECT)
    for name in _COMMANDS:
        (where / name).rename(where / f"{name}.py")
        (where / name).write_text(f'#!/bin/sh\nexec {INSTALLED}/python {INSTALLED}/{name}.py "$@"\n')
        (where / name).chmod(0o755)

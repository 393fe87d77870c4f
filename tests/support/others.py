"""Redmesh's commands for another user of this machine, who may not be allowed to run this Python."""

from __future__ import annotations

import atexit
import functools
import importlib.metadata
import os
import re
import shutil
import site
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hosts import PROJECT, NamespaceHost
from tests.support.reaper import private_directory

_ROOT = str(Path(__file__).parents[2])
#: Where Redmesh and what it requires are.
LIBRARIES = [_ROOT, *site.getsitepackages()]
INSTALLED = "/run/host/bin"
#: Directories that a namespace host replaces by its own, so that it does not see the machine's.
_HIDDEN = ("/root", "/home", "/tmp", "/run", "/dev/shm")
_COMMANDS = ("yod", "showmesh", "pingd", "mesh")
_ASK = """
import sys
sys.path[:0] = {path}
assert sys.version_info[:2] == {version} and sys.base_prefix == {prefix!r}
"""
_LOADS = "import agents.pct.node.daemon, console.cli.yod.command, peewee, pymysql\n"
_COMMAND = """#!{python}
import sys
sys.path[:0] = {path}
{start}"""


def _others_run(python: str, prefix: str, path: list[str], loads: str = _LOADS) -> bool:
    # Run by a shell: setpriv looks up the program with root's capabilities, and could start a Python that the user
    # cannot read, which then uses another Python's library.
    command = ["setpriv", "--reuid", "21001", "--regid", "21001", "--clear-groups", "--", "sh", "-c", 'exec "$@"']
    ask = _ASK.format(path=path, prefix=prefix, version=tuple(sys.version_info[:2])) + loads
    return not subprocess.run([*command, "sh", python, "-P", "-c", ask], capture_output=True, cwd="/").returncode


def _pythons() -> tuple[tuple[str, str], ...]:
    # this Python and the system's, each with its prefix
    return (sys.executable, sys.base_prefix), ("/usr/bin/python3", "/usr")


@functools.cache
def python_for_others() -> str:
    """Return a Python that other users can run and that can import Redmesh; skip the test if there is none.

    It is this Python, the system's, or a virtual environment with copies of the files, which other users may not be
    allowed to read in the source tree.
    """
    for python, prefix in _pythons():
        if _others_run(python, prefix, LIBRARIES):
            return python
    for python, prefix in _pythons():
        base = os.path.realpath(python)
        if _others_run(base, prefix, [], "") and _others_run(copy := _python_with_copies(base), prefix, []):
            return copy
    ours = os.path.realpath(sys.executable)
    pytest.skip(f"other users can run neither {ours} nor /usr/bin/python3 with our packages")


def _python_with_copies(base: str) -> str:
    # Make a virtual environment of the interpreter ``base`` with redmesh and its requirements; return its Python.
    directory = str(private_directory("rm-python-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    os.chmod(directory, 0o755)
    subprocess.run([base, "-m", "venv", "--without-pip", directory], check=True, capture_output=True)
    into = next(Path(directory).glob("lib/python3.*/site-packages"))
    for name in ("agents", "console", "db", "redmesh", "simulated"):
        shutil.copytree(f"{_ROOT}/{name}", into / name)
    for name in _required("redmesh", set()):
        for file in importlib.metadata.files(name) or ():
            if ".." not in file.parts:
                (into / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), into / file)
    return f"{directory}/bin/python"


def _required(name: str, found: set[str]) -> set[str]:
    # Add the distributions that ``name`` requires to ``found``, recursively.
    for requirement in importlib.metadata.requires(name) or ():
        wanted = re.match(r"[\w.-]+", requirement)
        if wanted and "extra ==" not in requirement and wanted[0] not in found:
            try:
                importlib.metadata.distribution(wanted[0])
            except importlib.metadata.PackageNotFoundError:
                continue  # a requirement for another system or Python version
            found.add(wanted[0])
            _required(wanted[0], found)
    return found


def _python_on_host() -> str:
    # Hosts see the source tree below PROJECT, where every user can read it. The interpreter must be executable by other
    # users and outside of the directories that hosts replace, such as /root.
    for python, prefix in _pythons():
        hidden = any(Path(os.path.realpath(file)).is_relative_to(top) for file in (python, prefix) for top in _HIDDEN)
        if not hidden and _others_run(os.path.realpath(python), prefix, [], ""):
            return python.replace(_ROOT, PROJECT)
    pytest.skip(f"hosts have neither {os.path.realpath(sys.executable)} nor a /usr/bin/python3 of its version")


def commands_for_others(directory: Path, root: str = _ROOT) -> Path:
    """Make ``directory`` with Redmesh's commands and ``python``, which other users can run; return it.

    ``root``: the path of the source tree for those users.
    """
    python = python_for_others() if root == _ROOT else _python_on_host()
    path = [name.replace(_ROOT, root) for name in LIBRARIES]
    directory.mkdir(mode=0o755)
    for name in _COMMANDS:
        _, begin, rest = Path(_ROOT, "bin", name).read_text().partition("try:\n    from redmesh.")
        (directory / name).write_text(_COMMAND.format(python=python, path=path, start=begin + rest))
        (directory / name).chmod(0o755)
    (directory / "python").write_text(f'#!/bin/sh\nPYTHONPATH={":".join(path)} exec {python} "$@"\n')
    (directory / "python").chmod(0o755)
    directory.chmod(0o755)
    return directory


def install(host: NamespaceHost) -> None:
    """Install redmesh in INSTALLED on a host, like a package manager, so that daemons and commands find it."""
    where = commands_for_others(host.directory / "bin", PROJECT)
    for name in _COMMANDS:
        (where / name).rename(where / f"{name}.py")
        (where / name).write_text(f'#!/bin/sh\nexec {INSTALLED}/python {INSTALLED}/{name}.py "$@"\n')
        (where / name).chmod(0o755)

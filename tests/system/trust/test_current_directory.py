"""Nothing that we start imports code of the current directory, with relative entries in PYTHONPATH and without."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.cli.mesh.overview import GROUPS
from redmesh.start_command import start_command
from tests.support.look import look
from tests.support.mesh import PrivateMesh, while_up
from tests.support.tmux import Tmux
from tests.support.waiting import wait_until

#: Packages of ours, of what we need, and of who writes start-up files; and then all of the standard library.
NAMES = {
    "agents", "console", "db", "redmesh", "simulated", "yodio", "peewee", "playhouse", "pymysql", "rich", "textual",
    "tomlkit", "cryptography", "paramiko", "textual_serve", "aiohttp", "sitecustomize", "usercustomize",
}  # fmt: skip
#: What an interpreter imports by PYTHONPATH before the first line of its program: no program can prevent it.
BEFORE_US = {"encodings", "sitecustomize", "usercustomize"}
COMMANDS = ("yod", "mesh", "pingd", "showmesh")
#: With every kind of relative entry: one that is not dropped finds the packages.
PATHS = {"without": None, "relative": ".:/nowhere::../work:/nowhere/else"}
#: A launch through the library, out of a program that has loaded its own modules before it stands in that directory.
LIBRARY = """
import os, sys
import json, subprocess, asyncio, tempfile
import redmesh
os.chdir(sys.argv[1])
if len(sys.argv) > 2:
    os.environ["PYTHONPATH"] = sys.argv[2]
print(redmesh.run(["sh", "-c", "echo $PYTHONPATH"], size=1).text.strip())
"""

#: Runs commands one after another, each as its program in bin/ begins, in a child of one interpreter: an interpreter
#: for each would cost more than all of them.
CHAIN = """
import os, sys
for line in sys.stdin:
    words = line.split()
    child = os.fork()
    if not child:
        sys.argv = [os.path.join(sys.argv[1], words[0]), *words[1:]]
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        with open(sys.argv[0]) as file:
            exec(compile(file.read(), sys.argv[0], "exec"), {"__name__": "__main__", "__file__": sys.argv[0]})
        os._exit(99)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("status", status, line, end="", flush=True)
"""


class HostileMesh(PrivateMesh):
    """A mesh whose commands run where packages stand that say when they are imported."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        super().__init__(processors=2, nodes=1, **({} if path is None else {"PYTHONPATH": path}))
        if path is None:
            self.env.pop("PYTHONPATH", None)
        self.said = self.home / "imported"
        code = f"import os, sys\nwith open({str(self.said)!r}, 'a') as file:\n" \
            "    file.write(f'{__name__} in {sys.orig_argv}\\n')\nraise SystemExit('hostile')\n"  # fmt: skip
        names = NAMES | set(sys.stdlib_module_names)
        for name in names if path is None else names - BEFORE_US:
            (self.work / name).mkdir()
            (self.work / name / "__init__.py").write_text(code)

    def imported(self) -> str:
        """Which package was imported by which program."""
        return self.said.read_text() if self.said.exists() else ""


@pytest.fixture(params=PATHS)
def hostile(request: pytest.FixtureRequest) -> Iterator[HostileMesh]:
    made = HostileMesh(PATHS[request.param])
    with while_up(made, up=False):
        yield made


def test_nothing_imports_from_the_current_directory(hostile: HostileMesh) -> None:
    a_launch_and_the_mesh_that_it_starts(hostile)
    the_library_leaves_pythonpath_as_it_is(hostile)
    commands(hostile)
    what_the_console_starts(hostile)


def a_launch_and_the_mesh_that_it_starts(hostile: HostileMesh) -> None:
    told = hostile.run("yod", "-sz", "2", "sh", "-c", "echo $PYTHONPATH", check=True).stdout
    assert told == f"{hostile.env.get('PYTHONPATH', '')}\n" * 2, "ranks get the variable as it is"
    (hostile.home / "data").mkdir()
    (hostile.home / "data" / "hello").write_text("hello\n")
    out = hostile.run("yod", "-io", str(hostile.home / "data"), "yodio", "cat", "hello", check=True).stdout
    assert out == "hello\n"
    lost = hostile.start("yod", "-sz", "2", "sleep", "600")
    wait_until(lambda: look(hostile)["launchers"], "a launch runs")
    lost.send_signal(signal.SIGKILL)  # the clean-up executable runs then
    lost.wait()
    wait_until(lambda: not look(hostile)["launchers"], "it has been cleaned up")
    for daemon in ("rca", "cpa-0", "n0", "keeper"):
        hostile.kill(daemon)  # each is started again by us
    wait_until(lambda: hostile.run("mesh", "up", "--processors", "2", "--nodes", "1").returncode == 0, "it is up")
    hostile.run("yod", "-sz", "2", "true", check=True)
    assert not hostile.imported()


def the_library_leaves_pythonpath_as_it_is(hostile: HostileMesh) -> None:
    path = hostile.env.pop("PYTHONPATH", None)
    words = [sys.executable, "-P", "-c", LIBRARY, str(hostile.work), *([] if path is None else [path])]
    assert hostile.run(*words, cwd=hostile.home, check=True).stdout.strip() == (path or "")
    assert not hostile.imported()
    if path is not None:
        hostile.env["PYTHONPATH"] = path


#: One that each program in bin/ reads the machine with, and those that start others.
FEW = (
    ("mesh", "status"), ("showmesh",), ("pingd",), ("yod", "--version"), ("mesh", "doctor"),
    ("mesh", "record", "tape", "--seconds", "0.1"), ("mesh", "upgrade"),
)  # fmt: skip
MORE = (
    ("mesh", "history"), ("mesh", "nodes", "list"), ("mesh", "drain", "n0"), ("mesh", "resume", "n0"),
    ("mesh", "db", "init"), ("mesh", "topology", "show"), ("mesh", "completion", "bash"), ("yod", "--help"),
    ("yod", "-sz", "1", "true"), ("mesh", "procs", "1"), ("mesh", "stacks", "1"), ("mesh", "debug", "1", "0", "gdb"),
)  # fmt: skip


def commands(hostile: HostileMesh) -> None:
    """What a program in bin/ does before its first import is the same for every verb: most begin in one interpreter."""
    for words in (*FEW, *((*start_command(name), "--help") for name in COMMANDS)):
        done = hostile.run(*words)
        assert "Traceback" not in done.stderr and "hostile" not in done.stderr, (words, done.stderr)
        assert words[-1] != "--help" or done.returncode == 0, (words, done.stderr)
        assert not hostile.imported(), words
    verbs = [name for _, few, others in GROUPS for name in (*few, *others)]
    assert {"up", "status", "console", "serve", "completion"} <= set(verbs)
    asked = [*MORE, *(("mesh", verb, "--help") for verb in verbs)]
    (hostile.home / "chain").mkdir()
    (hostile.home / "chain" / "chain.py").write_text(CHAIN)
    chain = (sys.executable, str(hostile.home / "chain" / "chain.py"), str(Path(sys.executable).parent))
    done = hostile.run(*chain, input="".join(f"{' '.join(words)}\n" for words in asked), check=True)
    assert "Traceback" not in done.stderr and "hostile" not in done.stderr, done.stderr
    ended = [line.split(maxsplit=2) for line in done.stdout.splitlines() if line.startswith("status ")]
    assert [words for _, _, words in ended] == list(map(" ".join, asked))
    assert not [one for one in ended if one[2].endswith("--help") and one[1] != "0"], done.stderr
    assert not hostile.imported(), done.stderr


def what_the_console_starts(hostile: HostileMesh) -> None:
    screen = Tmux(hostile)
    try:
        screen.until("n0")
        screen.press("q")
        screen.until("ended with 0")
    finally:
        screen.close()
    assert not hostile.imported()

"""Another user of the machine: attach, signal, query and every socket of a mesh that is not theirs (root only)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from redmesh.start_command import start_command
from tests.support.look import look, processors
from tests.support.mesh import PrivateMesh, while_up
from tests.support.others import commands_for_others, python_for_others
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")

_NOBODY = 65534
#: Tries each socket; prints those that let it in.
_KNOCK = """
import errno, os, socket, sys
for path in sys.argv[1:]:
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(path)
        print("open", path)
    except OSError as error:
        print(errno.errorcode[error.errno], path)
"""


def _as_nobody(mesh: PrivateMesh, *command: str) -> subprocess.CompletedProcess[str]:
    def become() -> None:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)

    return subprocess.run(
        command, env=mesh.env, cwd="/", preexec_fn=become, capture_output=True, text=True, timeout=PATIENCE_S,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture(scope="module")
def commands() -> Iterator[Path]:
    """yod and the others, as nobody can run them."""
    with tempfile.TemporaryDirectory(prefix="rm-others-", dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        yield commands_for_others(Path(directory) / "bin")


@pytest.fixture(scope="module")
def mesh(commands: Path) -> Iterator[PrivateMesh]:
    with while_up(PrivateMesh(processors=2, nodes=1)) as mesh:
        yield mesh


@pytest.fixture(scope="module")
def launcher(mesh: PrivateMesh) -> Iterator[int]:
    """A launch of root's that has its socket for observers, and what it is called."""
    yod = mesh.start("yod", "-sz", "1", "sleep", "600")
    wait_until(lambda: processors(mesh, "busy") == 1, "it runs")
    number = int(look(mesh)["launchers"][0]["id"])
    wait_until(lambda: (mesh.run_dir / f"yod-{number}.sock").exists(), "it has its socket")
    yield number
    yod.terminate()
    yod.wait()


@pytest.mark.parametrize(
    "command",
    [
        ("yod", "--attach", "{}"),
        ("pingd", "-job", "{}", "-kill", "-N"),
        ("pingd", "-job", "{}", "-interrupt", "-N"),
        ("pingd", "-all"),
        ("showmesh",),
        ("mesh", "status"),
        ("mesh", "stacks", "{}"),
        ("mesh", "down", "--force"),
        ("yod", "-sz", "1", "true"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_commands_of_another_user(mesh: PrivateMesh, launcher: int, commands: Path, command: tuple[str, ...]) -> None:
    done = _as_nobody(mesh, str(commands / command[0]), *(word.format(launcher) for word in command[1:]))
    assert done.returncode != 0
    assert done.stderr and "Traceback" not in done.stderr
    assert processors(mesh, "busy") == 1, "and the launch has not noticed"


@pytest.mark.parametrize("directory_mode", [0o700, 0o755], ids=["directory closed", "directory opened"])
def test_sockets_of_another_user(mesh: PrivateMesh, launcher: int, directory_mode: int) -> None:
    paths = sorted(str(path) for path in mesh.run_dir.iterdir() if path.name.endswith(".sock"))
    kinds = {os.path.basename(path).partition("-")[0].removesuffix(".sock") for path in paths}
    assert {"cpa", "rca", "keeper", "n0", "yod", "launch"} <= kinds
    opened = [mesh.run_dir, *list(mesh.run_dir.parents)[:3]]
    before = [path.stat().st_mode & 0o7777 for path in opened]
    try:
        for path in opened if directory_mode == 0o755 else ():
            path.chmod(directory_mode)
        done = _as_nobody(mesh, python_for_others(), "-I", "-c", _KNOCK, *paths)
    finally:
        for path, mode in zip(opened, before, strict=True):
            path.chmod(mode)
    assert done.stdout.splitlines() == [f"EACCES {path}" for path in paths], done.stderr


def test_a_command_that_another_starts_finds_the_packages_or_says_what_is_missing(tmp_path: Path) -> None:
    """A bare interpreter, which has neither our packages nor what they require on its path."""
    start = [sys.executable, "-I", "-S", start_command("")[2]]
    told = subprocess.run([*start, "yod", "--version"], capture_output=True, text=True, cwd="/")
    assert (told.returncode, told.stderr) == (0, "") and told.stdout.startswith("yod")
    alone = tmp_path / "redmesh"
    alone.mkdir()
    shutil.copy(start[-1], alone)
    start[-1] = str(alone / "start_command.py")
    told = subprocess.run([*start, "mesh", "status"], capture_output=True, text=True, cwd="/")
    assert told.returncode == 125 and told.stderr.count("\n") == 1
    assert told.stderr.startswith(f"mesh: the packages in {tmp_path} cannot be loaded: ModuleNotFoundError")

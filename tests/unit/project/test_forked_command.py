"""The meshes of the tests go up and down by a forked ``mesh``, which answers as the program does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agents.linux import processes
from tests.support.forked_command import run_mesh
from tests.support.mesh import BIN
from tests.support.waiting import PATIENCE_S


@pytest.mark.parametrize("words", [("version",), ("no-such-command",), ("status",)])
def test_it_answers_as_the_program_does(tmp_path: Path, words: tuple[str, ...]) -> None:
    """With the variables, the directory, both streams and the exit status of the program."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REDMESH_", "XDG_"))}
    env = {**kept, "XDG_STATE_HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    (tmp_path / "mesh.toml").write_text("processors = 1\n")
    program = subprocess.run([BIN / "mesh", *words], env=env, cwd=tmp_path, capture_output=True, text=True)
    before = dict(os.environ), Path.cwd(), sys.argv
    forked = run_mesh(*words, env=env, cwd=tmp_path, patience_s=PATIENCE_S)
    assert (forked.returncode, forked.stdout, forked.stderr) == (program.returncode, program.stdout, program.stderr)
    assert (dict(os.environ), Path.cwd(), sys.argv) == before


def test_one_that_does_not_end_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "mesh.toml"
    os.mkfifo(file)  # nobody writes
    before = processes.children(os.getpid())
    with pytest.raises(subprocess.TimeoutExpired):
        run_mesh("--config", str(file), "status", env={**os.environ}, cwd=tmp_path, patience_s=0.5)
    assert processes.children(os.getpid()) == before

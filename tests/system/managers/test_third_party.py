"""The example of a manager of one's own: installed by pip, used with no change of ours."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.linux import processes
from tests.support.waiting import PATIENCE_S, wait_until


def left(place: Path) -> list[int]:
    """Living processes that were started with ``place`` as their TMPDIR."""
    mine = str(place)
    return [
        pid for pid in processes.pids() if processes.environment(pid).get("TMPDIR") == mine and processes.alive(pid)
    ]


EXAMPLE = Path(__file__).parents[3] / "examples" / "manager"


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose name leaves room for those of sockets."""
    with tempfile.TemporaryDirectory(prefix="rj", dir="/tmp", ignore_cleanup_errors=True) as name:
        yield Path(name)


def test_a_manager_of_one_s_own_is_installed_and_used(tmp_path: Path, short: Path) -> None:
    place, run = tmp_path / "site", tmp_path / "run"
    words = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(place)]
    done = subprocess.run([*words, str(EXAMPLE)], capture_output=True, text=True)
    if done.returncode and "hatchling" in done.stderr:
        pytest.skip("hatchling is not installed here")
    assert done.returncode == 0, done.stderr
    run.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    run.chmod(0o755)
    (tmp_path / "hosts").write_text("a 1\nb 2\n")
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(place),
        "TMPDIR": str(short),
        "XDG_STATE_HOME": str(tmp_path / "state"),  # where archives of the agent are kept
        "LISTED_HOSTS": str(tmp_path / "hosts"),
        "LISTED_RUN": str(run),
        "REDMESH_MANAGER": "listed_hosts",
    }
    script = "yod -sz 3 sh -c 'echo $YOD_RANK' && mesh manager list && mesh down"
    done = subprocess.run(["sh", "-c", script], env=environ, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: not left(short), "nothing of the mesh is left")
    assert sorted(done.stdout.split("\n")[:3]) == ["0", "1", "2"] and "listed_hosts-1" in done.stdout

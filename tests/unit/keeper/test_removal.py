"""A directory is removed although another process creates files in it meanwhile."""

from pathlib import Path

import pytest

from agents.linux.removal import remove_all_but, remove_empty, remove_tree
from tests.support.removals import at_first_removal


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory with files and directories."""
    path = tmp_path / "jobs" / "17"
    for name in ("log", "nodes/n0", "program/agents"):
        (path / name).mkdir(parents=True)
        (path / name / "file").touch()
    (path / "keeper.json").touch()
    (path / "run").symlink_to(tmp_path)
    return path


def test_a_file_that_is_created_during_the_removal_is_removed_too(state: Path) -> None:
    with at_first_removal((state / "usage.log").touch):
        remove_tree(str(state))
    assert not state.exists() and state.parent.exists()
    remove_tree(str(state))


def test_one_entry_is_kept(state: Path) -> None:
    with at_first_removal((state / "usage.log").touch):
        remove_all_but(str(state), "nodes")
    assert [path.relative_to(state).as_posix() for path in sorted(state.rglob("*"))] == [
        "nodes",
        "nodes/n0",
        "nodes/n0/file",
    ]
    assert state.parent.parent.exists(), "a link's target is left alone"
    remove_all_but(str(state / "nowhere"), "nodes")


def test_empty_directories_are_removed_upwards(state: Path) -> None:
    (state / "nodes" / "n0" / "file").unlink()
    remove_empty(str(state / "nodes" / "n0" / "redmesh"), 2)
    assert (state / "nodes").exists() and not (state / "nodes" / "n0").exists()
    remove_empty(str(state / "nodes"), 3)
    assert sorted(path.name for path in state.iterdir()) == ["keeper.json", "log", "program", "run"]

"""A directory is removed although another process creates files in it meanwhile."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agents.linux.removal import remove_all_but, remove_empty, remove_tree

_on_removal: list[Callable[[], None]] = []


def _hook(event: str, _arguments: tuple[Any, ...]) -> None:
    if event == "os.remove" and _on_removal:
        _on_removal.pop()()


@functools.cache
def _install() -> None:
    sys.addaudithook(_hook)  # Python cannot remove it again


@contextmanager
def _at_first_removal(do: Callable[[], None]) -> Iterator[None]:
    """Call ``do`` once, when the first file is about to be removed: by then its directory has been listed."""
    _install()
    _on_removal[:] = [do]
    try:
        yield
        assert not _on_removal, "nothing was removed"
    finally:
        _on_removal.clear()


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
    with _at_first_removal((state / "usage.log").touch):
        remove_tree(str(state))
    assert not state.exists() and state.parent.exists()
    remove_tree(str(state))


def test_one_entry_is_kept(state: Path) -> None:
    with _at_first_removal((state / "usage.log").touch):
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

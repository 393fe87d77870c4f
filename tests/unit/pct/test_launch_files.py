"""The files of a launch on a node: made again while it runs, never after it ended."""

import os
from pathlib import Path

import pytest

from agents.link.journal import Journal
from agents.link.loop import Loop
from agents.linux.controllers import MemoryGroup
from agents.pct.launch.load import read_load
from agents.pct.launch_child import endpoint
from agents.pct.launch_child.endpoint import LaunchEndpoint, NodeContext
from tests.unit.pct.test_load import LOAD


def test_files_that_were_removed_are_made_again_until_the_launch_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch that ended as the next look was due left a socket that nobody removed."""
    monkeypatch.setattr(endpoint, "LOOK_S", 0.0)
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    loop = Loop()
    host = NodeContext("m", "n1", str(run), Journal("", "pct"), MemoryGroup())
    files = LaunchEndpoint(loop, host, read_load(LOAD), lambda *_: None)
    try:
        files.write_map("0 n1")
        names = sorted(os.listdir(run))
        assert names == ["launch-n1-7.ranks", "launch-n1-7.sock"]
        for name in names:
            (run / name).unlink()
        loop.run_once(0.0)
        assert sorted(os.listdir(run)) == names
        files.clear()
        loop.run_once(0.0)
        assert os.listdir(run) == []
    finally:
        files.close()
        loop.close()

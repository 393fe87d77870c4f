"""Which SIGTERM a daemon in a job of Slurm obeys."""

import os
from pathlib import Path

import pytest

from agents.linux import ending


def test_a_signal_is_meant_if_the_end_is_announced_or_state_is_gone_for_certain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    assert ending.is_meant(), "outside of such a job"
    monkeypatch.setattr(ending, "_state", str(state))
    assert not ending.is_meant()
    ending.announce(str(state), "")
    assert ending.is_meant()
    ending.forget(str(state))
    assert not ending.is_meant()
    os.rmdir(state)
    assert ending.is_meant()
    tmp_path.joinpath("file").touch()
    monkeypatch.setattr(ending, "_state", str(tmp_path / "file" / "state"))
    assert not ending.is_meant(), "an error is no evidence"

"""Jobs of a lost login processor go on as their users in system mode, with nothing of root's environment."""

import os
import subprocess

import pytest

from agents.cpa.cleanup.jobs import as_user

NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_command_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDMESH_SECRET", "of root")
    monkeypatch.setenv("XDG_STATE_HOME", "/root/state")
    done = subprocess.run(["sh", "-c", "id -u; id -ru; id -G; env"], capture_output=True, text=True, **as_user(NOBODY))
    lines = done.stdout.splitlines()
    assert lines[:2] == [str(NOBODY)] * 2 and "0" not in lines[2].split()
    names = {line.partition("=")[0] for line in lines[3:]}
    assert {"HOME", "USER", "LOGNAME"} <= names and not names & {"REDMESH_SECRET", "XDG_STATE_HOME"}
    with pytest.raises(KeyError):
        as_user(4_000_000_000)

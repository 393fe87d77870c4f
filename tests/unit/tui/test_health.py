"""What of ``mesh status --json`` is a problem."""

import json
from pathlib import Path
from typing import Any

import pytest

from console.cli.mesh.command import main
from console.tui.model.health import problems
from tests.support.fixed_database import FixedDatabase

GOOD: dict[str, Any] = {
    "trouble": "", "state": "/s", "state_free": 1 << 33, "another_program": False, "database_error": "", "rca": True,
    "daemons": [{"name": "n0", "state": "running", "restarts": 0}], "cpas": {"cpa-0": True}, "nodes_told": [],
}  # fmt: skip


def test_a_healthy_mesh_has_none() -> None:
    assert problems(GOOD, 0.01) == []


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"daemons": [{"name": "n0", "state": "running", "restarts": 2}]}, "n0: died and was started again 2 times"),
        ({"daemons": [{"name": "n0", "state": "waits", "restarts": 0}]}, "n0: waits"),
        ({"cpas": {"cpa-0": False}}, "cpa-0: does not answer"),
        ({"rca": False}, "rca: does not answer"),
        ({"nodes_told": ["n3 is down: no heartbeat"]}, "node n3 is down: no heartbeat"),
        ({"state_free": 1 << 20}, "/s: only 1.0 MiB are free"),
        ({"database_error": "no answer\x1b[2J"}, "database: no answer␛[2J"),
        (
            {"adoptable": True},
            "keeper: has exited, so that no daemon is started again: mesh up gives the mesh a new one",
        ),
        ({"another_program": True}, "the daemons run another program than this one: mesh upgrade"),
    ],
)
def test_each_problem_has_a_line(changed: dict[str, Any], told: str) -> None:
    assert problems({**GOOD, **changed}, 0.01) == [told]


def test_a_slow_database_is_one() -> None:
    assert problems(GOOD, 2.5) == ["database: a reading took 2.5 s"]


def test_nodes_are_told_as_mesh_status_tells_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They stood there as Python's dictionaries."""
    database = FixedDatabase(tmp_path)
    database.down("n2", "power supply")
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("REDMESH_DATABASE", database.url)
    assert main(["status", "--json"]) == 1
    assert "node n2 is down: power supply" in problems(json.loads(capsys.readouterr().out), 0.01)
    database.close()

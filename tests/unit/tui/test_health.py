"""What of ``mesh status --json`` is a problem."""

from typing import Any

import pytest

from console.tui.model.health import problems

GOOD: dict[str, Any] = {
    "trouble": "", "state": "/s", "state_free": 1 << 33, "another_program": False, "database_error": "", "rca": True,
    "daemons": [{"name": "n0", "state": "running", "restarts": 0}], "cpas": {"cpa-0": True}, "nodes_out": [],
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
        ({"nodes_out": ["n3 is down: no beat"]}, "node n3 is down: no beat"),
        ({"state_free": 1 << 20}, "/s: only 1.0 MiB are free"),
        ({"database_error": "no answer\x1b[2J"}, "database: no answer␛[2J"),
        ({"another_program": True}, "the daemons run another program than this one: mesh upgrade"),
    ],
)
def test_each_problem_has_a_line(changed: dict[str, Any], told: str) -> None:
    assert problems({**GOOD, **changed}, 0.01) == [told]


def test_a_slow_database_is_one() -> None:
    assert problems(GOOD, 2.5) == ["database: a reading took 2.5 s"]

"""The CPA's part of keeper.json."""

import json
from pathlib import Path
from typing import Any

import pytest

from agents.cpa.config import read


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        ({}, True),
        ({"users": False, "show_commands": False}, True),
        ({"users": True}, False),
        ({"users": True, "show_commands": False}, False),
        ({"users": True, "show_commands": True}, True),
    ],
)
def test_only_a_system_mesh_hides_commands_unless_the_site_shows_them(
    keys: dict[str, Any], shown: bool, tmp_path: Path
) -> None:
    """A keeper.json of an earlier version has no ``show_commands``."""
    whole = {
        "run": "/r", "state": "/s", "login": "login1", "database": "sqlite:///x", "mesh": "m", "boot_id": "b",
        "nodes": [], "cpas": 1, **keys,
    }  # fmt: skip
    path = tmp_path / "keeper.json"
    path.write_text(json.dumps(whole))
    assert read(str(path)).show_commands is shown

"""The CPA's part of keeper.json."""

import json
from pathlib import Path
from typing import Any

import pytest

from agents.cpa.config import read
from agents.wire.keeper_json import ConfigError

WHOLE = {
    "run": "/r", "state": "/s", "login": "login1", "database": "sqlite:///x", "mesh": "m", "boot_id": "b", "nodes": [],
    "cpas": 1,
}  # fmt: skip


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
    path = tmp_path / "keeper.json"
    path.write_text(json.dumps({**WHOLE, **keys}))
    assert read(str(path)).show_commands is shown


def test_a_cpa_says_which_database_it_lacks(tmp_path: Path) -> None:
    path, url = tmp_path / "keeper.json", tmp_path / "cpa.url"
    path.write_text(json.dumps({**WHOLE, "database": ""}))
    with pytest.raises(ConfigError, match=r"keeper\.json lacks 'database'"):
        read(str(path))
    url.write_bytes(b"mysql://mesh:\xe9@db/redmesh\n")
    url.chmod(0o600)
    path.write_text(json.dumps({**WHOLE, "database_file": str(url)}))
    with pytest.raises(ConfigError, match=r"cpa\.url holds no database URL: it is not UTF-8"):
        read(str(path))

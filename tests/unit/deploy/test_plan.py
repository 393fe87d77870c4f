"""What a personal mesh consists of."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.deploy.personal.logs import tail
from console.deploy.personal.plan import (
    Size,
    cpa_url,
    cpa_url_file,
    keeper_config,
    login_name,
    size_of,
    spread,
    wanted_size,
)
from console.errors import ConsoleError, UsageError
from console.settings import load


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.chdir(tmp_path)
    return {"XDG_STATE_HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}


@given(st.integers(1, 64), st.integers(0, 200))
def test_processors_are_spread_evenly_and_in_order(nodes: int, more: int) -> None:
    size = Size(nodes + more, nodes, 1)
    made = spread(size)
    assert [one for node in made for one in node.processors] == list(range(size.processors))
    lengths = [len(node.processors) for node in made]
    assert max(lengths) - min(lengths) <= 1 and lengths == sorted(lengths, reverse=True)
    assert [node.id for node in made] == list(range(1, nodes + 1))


def test_a_size_that_makes_no_sense_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="cannot be spread"):
        wanted_size(load({"processors": 3, "nodes": 4}, environ=environ))
    with pytest.raises(UsageError, match="at most"):
        wanted_size(load({"processors": 9999, "nodes": 9999}, environ=environ))


def test_by_default_there_are_as_many_processors_as_cores_and_one_for_each_node(environ: dict[str, str]) -> None:
    assert wanted_size(load(environ=environ)).processors >= 1
    assert wanted_size(load({"nodes": 500}, environ=environ)) == Size(500, 500, 1)


def test_the_plan_has_the_size_and_the_database(environ: dict[str, str]) -> None:
    settings = load({"processors": 5, "nodes": 2}, environ=environ)
    config = keeper_config(settings, wanted_size(settings), "b0", auto=True)
    assert size_of(config) == Size(5, 2, 1) and config.auto is True and config.boot_id == "b0"
    assert config.database == settings.database and not config.database_file


def test_a_password_never_stands_in_the_plan(environ: dict[str, str]) -> None:
    settings = load({"database": "mysql://ada:secret@db/redmesh"}, environ=environ)
    config = keeper_config(settings, Size(1, 1, 1), "b0", auto=False)
    assert "secret" not in repr(config)
    assert config.database_file == cpa_url_file(settings) == f"{settings.state_dir}/cpa.url"


def test_the_file_with_the_url_must_be_private(environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text("mysql://cpa:x@db/redmesh\n")
    settings = load({"cpa_database_file": str(path)}, environ=environ)
    path.chmod(0o640)
    with pytest.raises(ConsoleError, match="mode 0600"):
        cpa_url(settings)
    path.chmod(0o600)
    assert cpa_url(settings) == "mysql://cpa:x@db/redmesh"
    path.write_text("hello\n")
    with pytest.raises(ConsoleError, match="no database URL"):
        cpa_url(settings)
    path.unlink()
    with pytest.raises(ConsoleError, match="No such file"):
        cpa_url(settings)


def test_the_login_processor_has_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Name:
        nodename = "n1.example.org"

    monkeypatch.setattr(os, "uname", lambda: Name)
    assert login_name(spread(Size(1, 1, 1))) == "n1"
    assert login_name(spread(Size(2, 2, 1))) == "n1-login"


def test_the_tail_shows_who_wrote_last_and_lets_no_escape_through(tmp_path: Path) -> None:
    (tmp_path / "old.jsonl").write_text('{"event": "long ago"}\n')
    os.utime(tmp_path / "old.jsonl", (1, 1))
    (tmp_path / "rca.jsonl").write_text('{"at": 1, "event": "failed", "reason": "no \\u001b]0;x\\u0007 room"}\n')
    (tmp_path / "keeper.stderr").write_text("ModuleNotFoundError: no module\n")
    said = tail(str(tmp_path), 1000.0)
    assert "ModuleNotFoundError" in said and "no " in said and "long ago" not in said and "\x1b" not in said
    assert said.index("keeper.stderr") < said.index("rca.jsonl")
    assert tail(str(tmp_path / "nowhere"), 0) == ""

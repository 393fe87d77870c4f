"""Settings: which layer wins, which mistakes are named, what is loaded for them."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from console.settings import ConfigurationError, load

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An empty working directory and an environment with nothing of ours in it."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    (tmp_path / "run").mkdir(mode=0o700)
    return {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }


def user_file(place: dict[str, str], text: str) -> Path:
    path = Path(place["XDG_CONFIG_HOME"]) / "redmesh" / "mesh.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def here(text: str, mode: int = 0o644) -> Path:
    path = Path("mesh.toml")
    path.write_text(text)
    path.chmod(mode)
    return path


def test_settings_have_defaults_without_a_file(place: dict[str, str]) -> None:
    settings = load(environ=place)
    assert settings.database == f"sqlite://{place['XDG_STATE_HOME']}/redmesh/mesh.db"
    assert (settings.nodes, settings.fanout, settings.idle_s) == (1, 32, 1800)
    assert settings.where == {} and settings.file == ""


def test_each_layer_wins_over_the_one_below(place: dict[str, str]) -> None:
    path = user_file(place, "fanout = 4\nnodes = 2\nprocessors = 8\n")
    settings = load({"fanout": 16, "nodes": None}, environ={**place, "REDMESH_FANOUT": "8", "REDMESH_NODES": "3"})
    assert (settings.fanout, settings.nodes, settings.processors) == (16, 3, 8)
    assert settings.where == {"processors": str(path), "nodes": "REDMESH_NODES", "fanout": "--fanout"}


def test_the_first_file_found_wins_alone(place: dict[str, str], tmp_path: Path) -> None:
    user_file(place, "fanout = 4\nnodes = 2\n")
    here("nodes = 3\n")
    settings = load(environ=place)
    assert (settings.nodes, settings.fanout) == (3, 32)
    named = tmp_path / "other.toml"
    named.write_text("nodes = 7\n")
    assert load(config=str(named), environ=place).nodes == 7
    assert load(environ={**place, "REDMESH_CONFIG": str(named)}).nodes == 7


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
def test_a_file_here_that_others_can_write_is_left_out_and_said_so(
    place: dict[str, str], mode: int, capsys: pytest.CaptureFixture[str]
) -> None:
    here("nodes = 3\n", mode)
    assert load(environ=place).nodes == 1
    assert "./mesh.toml is left out" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_here_of_somebody_else_is_left_out(place: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    os.chown(here("nodes = 3\n"), 65534, 65534)
    assert load(environ=place).nodes == 1
    assert "belong to you or root" in capsys.readouterr().err


def test_an_unknown_key_names_the_nearest(place: dict[str, str]) -> None:
    path = user_file(place, "procesors = 4\n")
    with pytest.raises(ConfigurationError) as caught:
        load(environ=place)
    assert str(path) in caught.value.message and "procesors" in caught.value.message
    assert "'processors'" in caught.value.hint and caught.value.exit_status == 2


@pytest.mark.parametrize(
    "line",
    [
        "processors = -1",
        "processors = 'four'",
        "processors = true",
        "processors = 1.5",
        "nodes = 0",
        "fanout = 1",
        "suspect_s = nan",
        "suspect_s = 20",
        "hosts = 'n1'",
        "hosts = [1]",
        "database = 3",
        "nodes = 99999999999",
        "nodes =",
    ],
)
def test_a_wrong_value_is_an_error_that_says_where(place: dict[str, str], line: str) -> None:
    path = user_file(place, line + "\n")
    with pytest.raises(ConfigurationError) as caught:
        load(environ=place)
    assert str(path) in caught.value.message or "over down_s" in caught.value.message


@pytest.mark.parametrize("value", ["", "x", "0", "1e3", "nan"])
def test_a_wrong_variable_is_named(place: dict[str, str], value: str) -> None:
    with pytest.raises(ConfigurationError, match="REDMESH_NODES"):
        load(environ={**place, "REDMESH_NODES": value})


def test_a_missing_named_file_is_an_error(place: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        load(config="nowhere.toml", environ=place)


def test_lists_and_paths(place: dict[str, str]) -> None:
    path = user_file(place, "cleanup = 'bin/clean'\nbatch_accounts = ['pbs']\n")
    settings = load(environ={**place, "REDMESH_ADMINS": "ada, grace,"})
    assert settings.cleanup == str(path.parent / "bin/clean")
    assert settings.batch_accounts == ("pbs",) and settings.admins == ("ada", "grace")


def test_settings_are_frozen(place: dict[str, str]) -> None:
    with pytest.raises(AttributeError):
        load(environ=place).fanout = 3  # type: ignore[misc]


def test_the_page_has_the_table_that_the_settings_make() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "settings_page.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_run_is_found_where_mesh_up_put_it(place: dict[str, str]) -> None:
    settings = load(environ=place)
    assert settings.run_dir == f"{place['XDG_RUNTIME_DIR']}/redmesh/{settings.mesh}"
    os.makedirs(settings.state_dir)
    os.symlink("/elsewhere/redmesh/run", f"{settings.state_dir}/run")
    assert settings.run_dir == "/elsewhere/redmesh/run"
    assert settings.new_run_dir.startswith(place["XDG_RUNTIME_DIR"])


@pytest.mark.parametrize("value", [None, "", "relative/path", "/no/such/directory"])
def test_without_a_usable_runtime_directory_the_fallback_is_used(place: dict[str, str], value: str | None) -> None:
    environ = {key: text for key, text in place.items() if key != "XDG_RUNTIME_DIR"}
    if value is not None:
        environ["XDG_RUNTIME_DIR"] = value
    assert load(environ=environ).run_dir.startswith(f"/tmp/redmesh-{os.geteuid()}/")


def test_it_is_light_to_import(place: dict[str, str]) -> None:
    code = (
        "import sys, os; before = set(sys.modules); import console.settings as s; s.load();"
        "print(sorted(m for m in set(sys.modules) - before if not m.startswith('console')))"
    )
    got = subprocess.run([sys.executable, "-P", "-S", "-c", code], env={**place, "PYTHONPATH": str(ROOT)}, text=True,
                         capture_output=True, check=True)  # fmt: skip
    assert set(ast.literal_eval(got.stdout)) - {
        "redmesh",
        "redmesh.settings",
        "redmesh.settings.groups",
        "redmesh.settings.record",
    } <= {
        "__future__",
        "binascii",
    }


@pytest.mark.parametrize(("written", "meant"), [('"auto"', "auto"), ("0", 0), ("4", 4)])
def test_gpus_are_a_number_or_auto(place: dict[str, str], tmp_path: Path, written: str, meant: int | str) -> None:
    file = tmp_path / "gpus.toml"
    file.write_text(f"gpus = {written}\n")
    assert load(config=str(file), environ=place).gpus == meant
    assert load(environ={**place, "REDMESH_GPUS": written.strip('"')}).gpus == meant


@pytest.mark.parametrize("written", ['"some"', "-1", "true", "1.5", "[1]"])
def test_gpus_are_nothing_else(place: dict[str, str], tmp_path: Path, written: str) -> None:
    file = tmp_path / "gpus.toml"
    file.write_text(f"gpus = {written}\n")
    with pytest.raises(ConfigurationError):
        load(config=str(file), environ=place)


def test_a_file_that_is_nested_too_deeply_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mesh.toml"
    file.write_text("nodes = " + "[" * 20_000)
    with pytest.raises(ConfigurationError, match="cannot be read: its tables or lists are nested too deeply"):
        load(config=str(file), environ={})

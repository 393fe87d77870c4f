"""What every command has: --version, --config, --quiet, --json for facts, a manual page."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from console.cli.mesh.command import parser
from console.cli.mesh.manual import mesh_reference, write_pages
from console.cli.mesh.subcommands import subcommands
from console.cli.options.tables import COMMANDS, table_of
from redmesh.version import VERSION

BIN = Path(sys.executable).parent
LEAVES = {path: below for path, _told, below in subcommands(parser())}
#: Subcommands that do something, show something on the screen, or write a file: they print no facts.
NO_FACTS = {
    "mesh init", "mesh nodes add", "mesh nodes set", "mesh nodes remove", "mesh login grant", "mesh login join",
    "mesh console", "mesh record", "mesh serve", "mesh debug", "mesh partition destroy", "mesh mode", "mesh reserve",
    "mesh unreserve", "mesh drain", "mesh shrink", "mesh resume", "mesh side set", "mesh completion", "mesh demo",
    "mesh docs", "mesh help", "mesh version",
    "mesh db init", "mesh db migrate", "mesh db release", "mesh job watch", "mesh job fetch", "mesh job serve",
    "mesh job purge", "mesh cancel", "mesh hold", "mesh job move", "mesh job resume", "mesh purge", "mesh release",
    "mesh retry", "mesh wait", "mesh sections init", "mesh sections watch", "mesh sections resume",
    "mesh sections report", "mesh sections cancel", "mesh sections retry", "mesh job standby", "mesh job take-over",
    "mesh job follow", "mesh job close",
}  # fmt: skip


def words_of(below: argparse.ArgumentParser) -> set[str]:
    return {word for action in below._actions for word in action.option_strings}


@pytest.mark.parametrize("path", LEAVES)
def test_config_and_quiet_stand_on_either_side_of_a_subcommand(path: str) -> None:
    assert {"--config", "--quiet"} <= words_of(LEAVES[path])


def test_what_stands_before_a_subcommand_is_kept_unless_it_is_said_again() -> None:
    assert parser().parse_args(["--config", "a", "status"]).config == "a"
    assert parser().parse_args(["status", "--config", "b"]).config == "b"
    assert parser().parse_args(["--config", "a", "job", "list", "--config", "b"]).config == "b"
    assert parser().parse_args(["--quiet", "nodes", "list"]).quiet
    assert parser().parse_args(["nodes", "list", "--quiet"]).quiet
    assert not parser().parse_args(["nodes", "list"]).quiet


def test_every_subcommand_that_prints_facts_has_json() -> None:
    without = {path for path, below in LEAVES.items() if "--json" not in words_of(below)}
    assert without - NO_FACTS == set(), "give it --json, or say in NO_FACTS why it prints no facts"


def test_quiet_does_not_swallow_a_result() -> None:
    done = subprocess.run([BIN / "mesh", "completion", "bash", "--quiet"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "") and "--quiet does not fit" in done.stderr


def test_a_subcommand_may_have_a_quiet_of_its_own() -> None:
    for words in (["submit", "--quiet", "true"], ["--quiet", "submit", "true"]):
        given = parser().parse_args(words)
        assert given.quiet and given.own_quiet, "what it prints is not swallowed"
    assert not parser().parse_args(["submit", "true"]).quiet


@pytest.mark.parametrize("command", [*COMMANDS, "mesh"])
def test_version(command: str) -> None:
    done = subprocess.run([BIN / command, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{command} (Redmesh) {VERSION}\n")


def test_python_knows_the_version() -> None:
    code = "import redmesh; print(redmesh.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{VERSION}\n"
    done = subprocess.run([sys.executable, "-m", "redmesh", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"redmesh {VERSION}\n"


def test_manual_pages_have_every_option(tmp_path: Path) -> None:
    pages = {page.stem: page.read_text() for page in write_pages(tmp_path)}
    for command in COMMANDS:
        for word in table_of(command).words:
            assert word.long.replace("-", "\\-") in pages[command]
    reference = mesh_reference()
    for path, below in LEAVES.items():
        assert f".SS {path}" in pages["mesh"].replace("\\-", "-") and f"\n## {path}\n" in reference
        for word in words_of(below) - {"-h", "--help", "--config", "--quiet"}:
            assert word.replace("-", "\\-") in pages["mesh"]

"""``mesh init --hostfile``: MPI's host files become a configuration."""

from pathlib import Path

import pytest

from console.cli.mesh import command
from console.deploy.hosts.description import read_hosts
from console.settings import load


def test_mpi_host_files_become_tables(tmp_path: Path) -> None:
    file, made = tmp_path / "hosts", tmp_path / "mesh.toml"
    file.write_text("node01:4\nnode02:4\nbig slots=16 max_slots=32\nplain\n")
    assert command.main(["init", str(made), "--hostfile", str(file)]) == 0
    hosts = read_hosts(load(config=str(made)))
    assert [(host.name, host.processors) for host in hosts] == [
        ("node01", 4), ("node02", 4), ("big", 16), ("plain", -1),
    ]  # fmt: skip
    assert 'name = "node[01-02]"' in made.read_text()


@pytest.mark.parametrize(
    ("text", "told"),
    [("localhost slots=2\n", "mesh up starts"), ("10.0.0.1\n", "address=10.0.0.1"), ("a b\n", "slots=N")],
)
def test_what_is_no_list_of_hosts(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, told: str) -> None:
    file, made = tmp_path / "hosts", tmp_path / "mesh.toml"
    file.write_text(text)
    assert command.main(["init", str(made), "--hostfile", str(file)]) == 2
    assert told in capsys.readouterr().err and not made.exists()

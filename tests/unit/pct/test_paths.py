"""The files of a launch in RUN: who removes which."""

from pathlib import Path

from agents.pct.launch.paths import clear_files, launch_socket, pmix_directory, rank_map
from tests.support.removals import at_first_removal


def test_a_pmix_server_keeps_its_files_while_a_launch_child_of_its_launch_is_left(tmp_path: Path) -> None:
    """Ranks of n0 may connect to it after the launch child of n1 was killed."""
    run = str(tmp_path)
    server, other = Path(pmix_directory(run, 7, 0)), Path(pmix_directory(run, 71, 0))
    for directory in (server, other):
        directory.mkdir(parents=True)
    for node in ("n0", "n1"):
        for path in (launch_socket(run, node, 7), rank_map(run, node, 7)):
            Path(path).touch()
    clear_files(run, "n1", 7)
    assert server.is_dir() and Path(rank_map(run, "n0", 7)).exists() and not Path(rank_map(run, "n1", 7)).exists()
    clear_files(run, "n0", 7)
    assert not server.exists() and other.is_dir()


def test_a_pmix_server_s_files_go_although_a_killed_rank_creates_one_meanwhile(tmp_path: Path) -> None:
    server = Path(pmix_directory(str(tmp_path), 7, 0))
    (server / "0").mkdir(parents=True)
    (server / "0" / "file").touch()
    with at_first_removal((server / "1").mkdir):
        clear_files(str(tmp_path), "n0", 7)
    assert not server.exists()

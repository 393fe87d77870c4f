"""How commands end when their output cannot be written, or is not there."""

import pytest

from tests.support.mesh import PrivateMesh, Run
from tests.support.shared_mesh import borrowed_mesh as one_mesh
from tests.support.yods import yods as quiet_mesh

__all__ = ["one_mesh", "quiet_mesh"]

COMMANDS = ["showmesh", "showmesh --json", "pingd", "mesh status", "mesh history", "mesh partition list", "yod echo hi"]
HELP = ["showmesh --help", "pingd --help", "mesh --help", "mesh up --help", "yod --help"]


def shell(mesh: PrivateMesh, text: str) -> Run:
    return mesh.run("sh", "-c", text)


def complaints(got: Run) -> list[str]:
    """The lines of stderr, without how yod ended a rank that had not ended by itself yet."""
    return [line for line in got.stderr.splitlines() if "SIGTERM (Terminated) from yod" not in line]


@pytest.mark.parametrize("command", COMMANDS + HELP)
def test_a_full_disk_behind_stdout_is_one_line(quiet_mesh: PrivateMesh, command: str) -> None:
    got = shell(quiet_mesh, f"{command} >/dev/full")
    assert got.returncode == 125 and len(complaints(got)) == 1, got.stderr
    assert "No space left on device" in got.stderr and "standard output" in got.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_stdout_is_output_that_is_lost(quiet_mesh: PrivateMesh, command: str) -> None:
    got = shell(quiet_mesh, f"{command} >&-")
    assert got.returncode == 125 and len(complaints(got)) == 1, got.stderr
    assert "standard output" in got.stderr and "Bad file descriptor" in got.stderr
    got = shell(quiet_mesh, f"{command} <&- >&- 2>&-")
    assert (got.returncode, got.stderr) == (125, "")


@pytest.mark.parametrize("command", ["yod true >&-", "yod echo hi <&-", "yod echo hi <&- 2>&-", "showmesh 2>&-"])
def test_closed_descriptors_that_nobody_needs_are_no_fault(quiet_mesh: PrivateMesh, command: str) -> None:
    got = shell(quiet_mesh, command)
    assert (got.returncode, got.stderr) == (0, "")


def test_how_much_history_is_a_number_of_rows(quiet_mesh: PrivateMesh) -> None:
    for number in ("-5", "x", "9" * 30):
        got = shell(quiet_mesh, f"mesh history -n {number}")
        assert got.returncode == 2 and got.stderr.count("\n") == 1, got.stderr

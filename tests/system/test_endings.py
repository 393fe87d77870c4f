"""How commands end when their output cannot be written, or is not there."""

from collections.abc import Iterator

import pytest

from tests.support.mesh import PrivateMesh, Run

COMMANDS = ["showmesh", "showmesh --json", "pingd", "mesh status", "mesh history", "mesh partition list", "yod echo hi"]
HELP = ["showmesh --help", "pingd --help", "mesh --help", "mesh up --help", "yod --help"]


@pytest.fixture(scope="module")
def quiet_mesh() -> Iterator[PrivateMesh]:
    private = PrivateMesh(2, 1)
    try:
        private.up()
        yield private
    finally:
        left = private.close()
    assert not left


def shell(mesh: PrivateMesh, text: str) -> Run:
    return mesh.run("sh", "-c", text)


@pytest.mark.parametrize("command", COMMANDS + HELP)
def test_a_full_disk_behind_stdout_is_one_line(quiet_mesh: PrivateMesh, command: str) -> None:
    got = shell(quiet_mesh, f"{command} >/dev/full")
    assert got.returncode == 125 and got.stderr.count("\n") == 1, got.stderr
    assert "No space left on device" in got.stderr and "standard output" in got.stderr


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", COMMANDS)
def test_closed_descriptors_are_no_fault(quiet_mesh: PrivateMesh, command: str, closed: str) -> None:
    got = shell(quiet_mesh, f"{command} {closed}")
    assert got.returncode == 0 and got.stderr == ""


def test_how_much_history_is_a_number_of_rows(quiet_mesh: PrivateMesh) -> None:
    for number in ("-5", "x", "9" * 30):
        got = shell(quiet_mesh, f"mesh history -n {number}")
        assert got.returncode == 2 and got.stderr.count("\n") == 1, got.stderr

"""PCTs on service nodes: in no pool, reached by -service, under lower priority and limits; one launch over both."""

import pytest

from tests.support.mesh import MakeMesh, PrivateMesh

TELL = ("sh", "-c", "echo $YOD_RANK $YOD_NODE $(nice) $(ulimit -v)")


@pytest.fixture
def served(mesh: MakeMesh) -> PrivateMesh:
    made = mesh(6, 3, up=False, REDMESH_SERVICE_MEMORY_MB="4096")
    made.up("--service-nodes", "1")
    return made


def told(text: str) -> dict[int, tuple[str, int, str]]:
    lines = [line.split() for line in text.splitlines()]
    return {int(rank): (node, int(nice), limit) for rank, node, nice, limit in lines}


def test_service_processors_are_in_no_pool(served: PrivateMesh) -> None:
    everywhere = told(served.run("yod", "-sz", "4", *TELL, check=True).stdout)
    assert {node for node, _, _ in everywhere.values()} == {"n0", "n1"}
    refused = served.run("yod", "-sz", "5", "true")
    assert refused.returncode == 125 and "4" in refused.stderr
    shown = served.run("showmesh", check=True).stdout
    assert ",," in shown


def test_service_processors_are_reached_by_name_and_run_behind(served: PrivateMesh) -> None:
    usual = told(served.run("yod", "-sz", "1", *TELL, check=True).stdout)[0]
    there = told(served.run("yod", "-service", "-sz", "2", *TELL, check=True).stdout)
    assert {node for node, _, _ in there.values()} == {"n2"}
    assert all(nice == usual[1] + 10 for _, nice, _ in there.values())
    assert usual[2] == "unlimited" and all(limit == str(4096 << 10) for _, _, limit in there.values())
    assert served.run("yod", "-service", "-sz", "3", "true").returncode == 125
    assert served.run("yod", "-service", "-list", "0", "true").returncode == 2


def test_a_solver_and_its_viewer_in_one_launch(served: PrivateMesh) -> None:
    load = served.work / "coupled"
    load.write_text(
        "-sz 3 sh -c 'echo $YOD_RANK $YOD_NODE $(nice) solver'\n"
        "-service sh -c 'echo $YOD_RANK $YOD_NODE $(nice) viewer'\n"
    )
    done = served.run("yod", str(load), check=True)
    found = told(done.stdout)
    assert {rank: (node, what) for rank, (node, _, what) in found.items() if rank == 3} == {3: ("n2", "viewer")}
    assert {node for rank, (node, _, _) in found.items() if rank < 3} <= {"n0", "n1"}
    assert found[3][1] == min(19, found[0][1] + 10)
    load.write_text("-sz 5 true\n-service true\n")  # a line without -service never gets service processors
    assert served.run("yod", str(load)).returncode == 125


def test_a_mesh_without_service_nodes_says_so(mesh: MakeMesh) -> None:
    made = mesh(2, 1)
    refused = made.run("yod", "-service", "true")
    assert refused.returncode != 0 and "service" in refused.stderr
    made.down()
    assert made.run("mesh", "up", "--nodes", "1", "--service-nodes", "1").returncode == 2

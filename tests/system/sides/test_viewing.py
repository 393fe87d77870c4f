"""What viewers see while the machine's sides change: each its own side, by the rights of its account or of its host."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from db.store.url import in_database, mysql_options
from db.views.viewer import Picture, Viewer, open_viewer
from tests.support.look import seen_by
from tests.support.mariadb import Server
from tests.support.mesh import MakeMesh, PrivateMesh
from tests.support.waiting import wait_until
from tests.system.sides.test_sides import ALL, EACH, LEFT, MACHINE, RIGHT, set_switches

Side = dict[str, str]  # the variables of a command on one of its login processors


class Machine(NamedTuple):
    """A simulated Red Storm, and what a viewer's variables are on each side."""

    mesh: PrivateMesh
    left: Side
    right: Side

    def viewer(self, side: Side) -> Viewer:
        """A viewer as showmesh opens it there."""
        return open_viewer(side.get("REDMESH_DATABASE", self.mesh.database), side["REDMESH_LOGIN"])


@pytest.fixture(params=("rights", "filter"))
def storm(request: pytest.FixtureRequest, mesh: MakeMesh) -> Iterator[Machine]:
    made = mesh(up=False)
    (made.work / "storm.toml").write_text(MACHINE)
    if request.param == "filter":  # an SQLite file of one owner
        made.run("mesh", "up", "--cpas", "2", "--simulate", "storm.toml", check=True)
        yield Machine(made, LEFT, RIGHT)
        return
    server: Server = request.getfixturevalue("sql_server")
    url = server.new_database()
    name = str(mysql_options(url)["database"])
    accounts = ("--cpa-account", f"{name[-12:]}_c@localhost", "--view-account", f"{name[-12:]}_v@localhost")
    logins = [side["REDMESH_LOGIN"] for side in (LEFT, RIGHT)]
    views = [word for login in logins for word in ("--view-login", login)]
    for _ in range(2):  # the second time changes nothing
        made.run("mesh", "db", "init", "--run", "--url", url, *accounts, *views, check=True)
    made.env["REDMESH_DATABASE"] = (made.state / "view.url").read_text().strip()
    made.env["REDMESH_CPA_DATABASE_FILE"] = str(made.state / "cpa.url")
    files = [made.state / f"view-{login}.url" for login in logins]
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    made.run("mesh", "up", "--cpas", "2", "--simulate", "storm.toml", check=True)
    left, right = (
        {**side, "REDMESH_DATABASE": file.read_text().strip()} for side, file in zip((LEFT, RIGHT), files, strict=True)
    )
    yield Machine(made, left, right)
    made.run("mesh", "down", "--force")
    for login in logins:
        server.drop_database(in_database(url, f"{name}_{login}"))
    server.drop_database(url)


def started(storm: Machine, side: Side, size: int) -> "subprocess.Popen[Any]":
    yod = storm.mesh.start("yod", "-sz", str(size), "sleep", "1000", env=side)

    def runs() -> bool:
        return any(one["pid"] == yod.pid and one["state"] == "busy" for one in shown(storm, side)["launchers"])

    wait_until(runs, "it runs on its processors")
    return yod


def ended(yod: "subprocess.Popen[Any]") -> None:
    yod.terminate()
    yod.wait()


def shown(storm: Machine, side: Side) -> Any:
    with storm.viewer(side) as viewer:
        return seen_by(viewer)


def columns(storm: Machine, side: Side) -> set[int]:
    return {int(node["name"][1:].partition("-")[0]) for node in shown(storm, side)["nodes"]}


def sizes(storm: Machine, side: Side) -> list[int]:
    return [one["size"] for one in shown(storm, side)["launchers"]]


class Poller:
    """A viewer that reads what changed, as the console does."""

    def __init__(self, viewer: Viewer) -> None:
        self.viewer, self.picture = viewer, Picture()
        self.poll()

    def poll(self) -> Picture:
        self.picture.update(self.viewer)
        return self.picture

    def holds(self, processors: int, launchers: list[int]) -> None:
        """That this is what it sees, by what was read once and kept up to date, and read anew."""
        picture, anew = self.poll(), Picture()
        anew.update(self.viewer)
        assert len(picture.processors) == processors
        assert sorted(row.size for row in picture.launchers.values()) == launchers
        for kept, read in ((picture.nodes, anew.nodes), (picture.processors, anew.processors)):
            assert kept.keys() == read.keys()
        assert {one: picture.state(one) for one in picture.processors} == {
            one: anew.state(one) for one in anew.processors
        }
        assert picture.launchers.keys() == anew.launchers.keys() and picture.partitions.keys() == anew.partitions.keys()


SERVICE = 2 * 2 * 3 * 2  # service processors of two columns


def test_each_side_sees_what_came_and_loses_what_left(storm: Machine) -> None:
    left, right = Poller(storm.viewer(storm.left)), Poller(storm.viewer(storm.right))
    for one in (left, right):
        one.holds(ALL + 2 * SERVICE, [])
    set_switches(storm.mesh, "right-quarter=open")
    for one, processors in ((left, 3 * EACH + SERVICE), (right, 2 * EACH + SERVICE)):
        one.holds(processors, [])
    yods = [started(storm, storm.left, 7), started(storm, storm.right, 5)]
    left.holds(3 * EACH + SERVICE, [7])
    right.holds(2 * EACH + SERVICE, [5])
    assert (columns(storm, storm.left), columns(storm, storm.right)) == ({0, 1, 2, 3, 4}, {5, 6, 7, 8})
    assert (sizes(storm, storm.left), sizes(storm, storm.right)) == ([7], [5])
    every_command_sees_its_side(storm)
    for yod in yods:
        ended(yod)
    # all compute columns but the first are the right's now
    set_switches(storm.mesh, "right-quarter=closed", "left-quarter=open")
    yod = started(storm, storm.right, 4 * EACH)
    left.holds(EACH + SERVICE, [])
    right.holds(4 * EACH + SERVICE, [4 * EACH])
    assert [row["size"] for row in storm.mesh.json("mesh", "history", env=storm.left)] == [7]
    assert [row["size"] for row in storm.mesh.json("mesh", "history", env=storm.right)] == [5]
    assert shown(storm, storm.left)["states"]["free"] == EACH + SERVICE
    ended(yod)
    # together again: what each did apart stays its own
    set_switches(storm.mesh, "left-quarter=closed")
    for one in (left, right):
        one.holds(ALL + 2 * SERVICE, [])
    assert [row["size"] for row in storm.mesh.json("mesh", "history", env=storm.left)] == [7]
    assert [row["size"] for row in storm.mesh.json("mesh", "history", env=storm.right)] == [5, 4 * EACH]
    assert [row["size"] for row in storm.mesh.json("mesh", "history")] == [7, 5, 4 * EACH]


def every_command_sees_its_side(storm: Machine) -> None:
    """One side by each kind of viewer: the commands do not know more of it, and the viewers see both sides before."""
    run = storm.mesh.run
    by_rights = "REDMESH_DATABASE" in storm.right
    left, right = (storm.left, 1, 2, 3 * EACH + SERVICE), (storm.right, 2, 1, 2 * EACH + SERVICE)
    side, own, other, processors = right if by_rights else left
    drawn = run("showmesh", env=side, check=True).stdout
    assert f"side {own}, columns" in drawn and drawn.count("sleep 1000") == 1
    assert f"Total: {processors} " in run("pingd", "-summary", env=side, check=True).stdout
    found = storm.mesh.json("mesh", "side", "show", env=side)["sides"]
    assert [one["seen"] for one in found] == [own == 1, own == 2]
    assert f"side {other}: columns" in run("mesh", "side", "show", env=side).stdout
    assert f"side {own}," in run("mesh", "topology", "check", env=side, check=True).stdout
    status = storm.mesh.json("mesh", "status", env=side)
    assert (status["launchers"], sum(status["processors"].values())) == (1, processors)
    assert len(storm.mesh.json("mesh", "partition", "list", env=side)) == 1
    tape = storm.mesh.work / f"{own}.tape"
    run("mesh", "record", str(tape), "--seconds", "0.1", env=side, check=True)
    assert sides_recorded(tape.read_text()) == {own}


def sides_recorded(tape: str) -> set[int]:
    head, *readings = map(json.loads, tape.splitlines())
    side = head["columns"]["nodes"].index("side")
    return {node[side] for reading in readings for node in reading["nodes"]}

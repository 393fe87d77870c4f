"""Our wheel in an environment where others have packages that are called like our rooms."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mesh import BIN, MakeMesh, PrivateMesh
from tests.support.waiting import wait_until
from tests.support.wheels import ROOT, Environment, build, write_wheel

#: Top-level packages of somebody else's; openai-agents has ``agents``.
THEIRS = ("agents", "console", "db", "simulated")
#: A program of a user, who imports their packages and our library.
PROGRAM = """
import sys
import redmesh
import agents, console, db, simulated
from agents import run
assert run.WHO == "theirs" and not hasattr(console, "cli") and not hasattr(db, "schema")
assert callable(redmesh.debug_here) and callable(redmesh.debug_on_request)
print(redmesh.run(["echo", "ran"], size=2).text, redmesh.__all__, end="")
running = redmesh.launch(["sleep", "600"])
print(running.launcher > 0 and len(redmesh.stacks(running.launcher)["tree"]))
running.kill()
print(sorted(name for name in sys.modules if name.startswith("agents.")))
"""
#: A placement of somebody else's, which imports ``redmesh`` alone, and their own package called ``agents`` not at all.
PLACEMENT = """
from collections.abc import Sequence

from redmesh import Geometry, Layout, Placement, PlacementError


def backwards(free: Sequence[int], count: int, geometry: Geometry) -> list[int]:
    if geometry is not None:
        assert geometry.curve().sort(free) and geometry.topology.kind and geometry.size
    return list(free)[-count:][::-1]


def refuses(free: Sequence[int], count: int, geometry: Geometry) -> list[int]:
    raise PlacementError("no two processors of one colour are free", "paint one")


def waits(free: Sequence[int], count: int, geometry: Geometry) -> list[int]:
    if len(free) < 2:
        raise PlacementError("another one is needed", may_wait=True)
    return list(free)[:count]


known: Placement = backwards
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    into = tmp_path_factory.mktemp("theirs")
    names = {name: "openai-agents" if name == "agents" else f"their-{name}" for name in THEIRS}
    return [
        write_wheel(into, names[name], {
            f"{name}/__init__.py": "",
            f"{name}/run.py": "WHO = 'theirs'\n",
            f"{name}/keeper/__main__.py": "raise SystemExit('theirs')\n",
            f"{name}/wire/__init__.py": "raise SystemExit('theirs')\n",
        })
        for name in THEIRS
    ]  # fmt: skip


def use_everything(private: PrivateMesh) -> None:
    """All commands with a mesh that comes up and goes down."""
    bin = private.env["PATH"].partition(":")[0]
    assert all(Path(bin, name).exists() for name in ("mesh", "pingd", "showmesh", "yod"))
    private.up()
    private.run("mesh", "status", check=True)
    assert private.run("yod", "-sz", "2", "echo", "ran", check=True).stdout == "ran\n" * 2
    assert "n0" in private.run("showmesh", check=True).stdout
    assert "Total: 2" in private.run("pingd", check=True).stdout
    assert private.run("python", "-P", "-m", "redmesh", "yod", "true").returncode == 0
    private.kill("rca")
    private.run("mesh", "doctor")
    lost = private.start("yod", "-sz", "2", "sleep", "600")
    private.run("mesh", "down", "--force", check=True)
    lost.wait()


def test_only_our_name_is_in_site_packages(ours: Path) -> None:
    listed = subprocess.run([sys.executable, "-m", "zipfile", "-l", str(ours)], capture_output=True, text=True).stdout
    names = {line.split("/")[0].split()[0] for line in listed.splitlines()[1:]}
    assert {name.partition("-")[0] for name in names} == {"redmesh"}
    assert "redmesh/_rooms/agents/yodio/yodio " in listed and "redmesh/_rooms/console/tui/app.tcss" in listed
    assert "__pycache__" not in listed


def test_both_in_one_environment_in_both_orders(
    mesh: MakeMesh, environment: Environment, ours: Path, theirs: list[Path]
) -> None:
    private = mesh(2, 1, up=False, PATH=f"{environment.bin}:{BIN}:/usr/bin:/bin")
    environment.install(ours)
    alone = environment.files()
    environment.install(*theirs)
    both = environment.files()
    assert alone.items() <= both.items()
    use_everything(private)
    told = private.run("python", "-c", PROGRAM, check=True).stdout
    assert told.startswith("ran\nran\n") and told.endswith("['agents.run']\n"), told
    environment.uninstall("redmesh")
    assert not (environment.packages / "redmesh").exists()
    left = environment.files()
    assert left == {name: content for name, content in both.items() if name not in alone or name.endswith(".pth")}
    assert private.run("python", "-c", "from agents import run; import console, db").returncode == 0

    environment.install(ours)
    assert environment.files() == both, "the same files as in the other order, which all commands have used"
    environment.uninstall("openai-agents", "their-console", "their-db", "their-simulated")
    assert environment.files() == alone
    use_everything(private)


def test_a_placement_of_somebody_elses_needs_our_name_alone(
    mesh: MakeMesh, environment: Environment, ours: Path, tmp_path: Path
) -> None:
    entries = "".join(f"{name} = colours:{name}\n" for name in ("backwards", "refuses", "waits"))
    files = {"colours.py": PLACEMENT, "colours-1.0.dist-info/entry_points.txt": f"[redmesh.placement]\n{entries}"}
    missing = [] if "redmesh/__init__.py" in environment.files() else [ours]
    environment.install(*missing, write_wheel(tmp_path, "colours", files))
    private = mesh(2, 2, up=False, PATH=f"{environment.bin}:{BIN}:/usr/bin:/bin")
    private.up()
    told = private.run("yod", "--dry-run", "--placement", "backwards", "-sz", "2", "true", check=True).stdout
    assert told.index("n1") < told.index("n0")
    refused = private.run("yod", "--placement", "refuses", "true")
    assert refused.returncode == 125
    assert "no two processors of one colour are free (paint one)" in refused.stderr, refused.stderr
    running = private.start("yod", "sh", "-c", "until [ -e go ]; do sleep 0.05; done")
    wait_until(lambda: private.json("mesh", "status")["launchers"], "one processor is in use")
    assert private.run("yod", "--placement", "waits", "true").returncode == 125
    waiting = private.start("yod", "-wait-for-nodes", "60", "--placement", "waits", "true")
    (private.work / "go").touch()
    assert (running.wait(), waiting.wait()) == (0, 0)

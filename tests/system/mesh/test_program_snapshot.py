"""What becomes of a mesh whose installed program is changed or removed while its daemons run."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.deploy.personal import program_snapshot
from tests.support.mesh import PrivateMesh
from tests.support.waiting import wait_until

ROOT = Path(program_snapshot.__file__).parents[3]
#: What daemons and launch children load when it is first asked for.
LATER = (
    ("yod", "-bt", "sh", "-c", "kill -SEGV $$"),
    ("yod", "--pty", "echo", "ran"),
    ("yod", "--bcast=always", "-sz", "2", "/bin/echo", "ran"),
    ("yod", "--io", ".", "sh", "-c", "yodio ls . > /dev/null; echo ran"),
    ("yod", "--hold", "-release-after", "0.1", "echo", "ran"),
    ("yod", "-mpi", "pmix", "-sz", "2", "echo", "ran"),
    ("yod", "-placement", "hilbert", "-sz", "3", "echo", "ran"),
    ("yod", "--export", "ALL,A=b", "--umask", "077", "--cpu-bind", "core", "echo", "ran"),
)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A program of its own to change."""
    for package in ("agents", "console", "db", "redmesh", "simulated"):
        shutil.copytree(ROOT / package, tmp_path / "installed" / package)
    return tmp_path / "installed"


@pytest.fixture
def private(installed: Path) -> Iterator[PrivateMesh]:
    mesh = PrivateMesh(4, 2)
    mesh.run("mesh", "up", "--processors", "4", "--nodes", "2", check=True, env={"PYTHONPATH": str(installed)})
    yield mesh
    assert not mesh.close()


def test_daemons_outlive_the_program_that_was_installed(private: PrivateMesh, installed: Path) -> None:
    shutil.rmtree(installed)
    for command in LATER:
        done = private.run(*command)
        if "-bt" in command:
            assert done.returncode == 139 and "stack (by " in done.stderr, done.stderr
        else:
            assert done.returncode == 0 and set(done.stdout.split()) == {"ran"}, (command, done.stderr)
    os.kill(private.pid_of("cpa-0"), 9)
    os.kill(private.pid_of("n0"), 9)
    again = private.run("yod", "-wait-for-nodes", "20", "-sz", "4", "echo", "ran", check=True)
    assert again.stdout == "ran\n" * 4, "what the keeper starts anew is there too"


def test_another_version_is_told_of_and_taken_up_under_what_runs(private: PrivateMesh, installed: Path) -> None:
    theirs = {"PYTHONPATH": str(installed)}
    assert "another version" not in private.run("mesh", "status", env=theirs, check=True).stdout
    ran = private.start("yod", "sh", "-c", "touch begun; until [ -e go ]; do sleep 0.05; done", env=theirs)
    crash_queue = installed / "agents" / "pct" / "debug" / "crash_queue.py"
    crash_queue.unlink()  # as an upgrade does, before it writes the new one
    crash_queue.write_text((ROOT / "agents/pct/debug/crash_queue.py").read_text() + "# new\n")
    assert "mesh upgrade" in private.run("mesh", "status", env=theirs, check=True).stdout
    wait_until((private.work / "begun").exists, "it runs")
    private.run("mesh", "upgrade", env=theirs, check=True)
    assert "another version" not in private.run("mesh", "status", env=theirs, check=True).stdout
    (private.work / "go").touch()
    assert ran.wait() == 0
    kept = private.state / program_snapshot.PLACE
    assert len(list(kept.iterdir())) == 3, "what runs on may still want its own"
    private.run("mesh", "down", check=True)
    private.run("mesh", "up", "--processors", "4", "--nodes", "2", env=theirs, check=True)
    assert len(list(kept.iterdir())) == 2


def test_the_same_version_installed_again_is_no_other_version(private: PrivateMesh, installed: Path) -> None:
    theirs = {"PYTHONPATH": str(installed)}
    kept = private.state / program_snapshot.PLACE
    before = {one.name for one in kept.iterdir()}
    shutil.rmtree(installed)
    for package in ("agents", "console", "db", "redmesh", "simulated"):
        shutil.copytree(ROOT / package, installed / package, copy_function=shutil.copyfile)  # other inodes and times
    assert "another version" not in private.run("mesh", "status", env=theirs, check=True).stdout
    private.run("mesh", "upgrade", env=theirs, check=True)
    assert {one.name for one in kept.iterdir()} == before


def test_where_no_link_can_be_made_it_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "somebody else's file")

    linked = program_snapshot.keep(str(tmp_path))
    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "other").mkdir()
    copied = program_snapshot.keep(str(tmp_path / "other"))
    name = "agents/pct/launch_child/child.py"
    assert Path(linked, name).stat().st_ino == (ROOT / name).stat().st_ino != Path(copied, name).stat().st_ino
    assert Path(linked, name).read_bytes() == Path(copied, name).read_bytes()
    assert Path(linked).stat().st_mode & 0o077 == Path(linked).parent.stat().st_mode & 0o077 == 0
    assert not program_snapshot.runs_another(str(tmp_path))


def test_what_a_killed_one_left_does_not_stand_in_the_way(tmp_path: Path) -> None:
    kept = tmp_path / program_snapshot.PLACE
    kept.mkdir()
    (kept / "current.new").symlink_to("nowhere")
    (kept / "0123456789abcdef.77").mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").touch()
    (kept / "link").symlink_to(elsewhere)
    place = Path(program_snapshot.keep(str(tmp_path), alone=True))
    assert {one.name for one in kept.iterdir()} == {place.name, "current"}
    assert (elsewhere / "mine").exists() and not program_snapshot.runs_another(str(tmp_path))


def test_one_that_lost_files_is_made_anew(tmp_path: Path) -> None:
    place = Path(program_snapshot.keep(str(tmp_path)))
    for name in ("agents/pct/launch_child/child.py", "db/machine/nodes.py"):
        (place / name).unlink()
        (place / name).touch()  # as a copy may stand there after a power cut
    same_size = place / "agents/pct/node/daemon.py"
    same_size.unlink()
    same_size.write_bytes(b"#" * (ROOT / "agents/pct/node/daemon.py").stat().st_size)
    assert program_snapshot.keep(str(tmp_path)) == str(place)
    for name in ("db/machine/nodes.py", "agents/pct/node/daemon.py"):
        assert (place / name).read_bytes() == (ROOT / name).read_bytes()


def test_where_nothing_can_be_kept_no_other_version_is_told_of(tmp_path: Path) -> None:
    Path(program_snapshot.keep(str(tmp_path))).rename(tmp_path / "gone")
    mark = tmp_path / program_snapshot.PLACE / "current"
    mark.unlink()
    mark.symlink_to("0123456789abcdef")
    assert program_snapshot.runs_another(str(tmp_path))
    with pytest.MonkeyPatch.context() as full:
        full.setattr(os, "mkdir", _no_space)
        with pytest.raises(OSError, match="no space"):
            program_snapshot.keep(str(tmp_path))
    assert not program_snapshot.runs_another(str(tmp_path)), "the daemons run what is installed"


def _no_space(*_: object) -> None:
    raise OSError(28, "no space left on device")

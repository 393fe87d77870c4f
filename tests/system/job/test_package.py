"""Application code that travels in a job's state object: ``mesh submit --file``."""

import os
import signal
import sqlite3
from pathlib import Path

import pytest

from tests.support.mesh import PrivateMesh
from tests.support.waiting import wait_until
from tests.support.yods import one_mesh, yods
from tests.system.job.test_tasks import ran, sql, submit

__all__ = ["one_mesh", "yods"]

_APP = """\
import os, sys
from parts import square
assert os.getcwd() == os.environ["REDMESH_FILES"]
try:
    open("parts/square.py", "w")
    print("written")
except PermissionError:
    pass
print(os.environ["YOD_NODE"], square.of(int(sys.argv[1])), os.environ["REDMESH_FILES"])
"""


def _application(mesh: PrivateMesh) -> Path:
    """A program of two files in a directory of its own."""
    home = Path(mesh.work / "application")
    (home / "parts" / "__pycache__").mkdir(parents=True)
    (home / "app.py").write_text(_APP)
    (home / "parts" / "square.py").write_text("def of(x):\n    return x * x\n")
    (home / "parts" / "__pycache__" / "old.pyc").write_text("")
    return home


def _remove(directory: Path) -> None:
    for path in sorted(directory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    directory.rmdir()


def test_every_node_finds_the_files_and_keeps_none(yods: PrivateMesh) -> None:
    home = _application(yods)
    (yods.work / "given.txt").write_text("from a file")
    words = ("--file", f"{home}/", "--file", "given.txt", "--array", "1-16", "--hold", "--stdin", "given.txt")
    user = "python3 app.py {} && cat"
    if os.geteuid() == 0:  # root may write whatever the mode says
        user = "setpriv --bounding-set=-all --inh-caps=-all --ambient-caps=-all " + user
    job = submit(yods, *words, "--", "sh", "-c", user)
    _remove(home)
    (yods.work / "given.txt").unlink()
    yods.run("mesh", "release", job, check=True)
    yods.run("mesh", "wait", job, check=True)
    lines = [one["lines"].split() for one in sql(yods, job, "SELECT lines FROM task ORDER BY first")]
    assert [line[1] for line in lines] == [str(number * number) for number in range(1, 17)]
    assert all(line[3:] == ["from", "a", "file"] for line in lines), lines
    wait_until(lambda: not any(os.path.exists(line[2]) for line in lines), "the files are removed")
    assert sql(yods, job, "SELECT name, size FROM file WHERE name LIKE 'package/%' ORDER BY name") == [
        {"name": "package/app.py", "size": len(_APP)},
        {"name": "package/given.txt", "size": 11},
        {"name": "package/parts/square.py", "size": 28},
    ]


def test_a_job_that_lost_its_owner_goes_on_with_its_files(yods: PrivateMesh) -> None:
    script = Path(yods.work / "step.sh")
    script.write_text("until test -e $2/go || test $1 = 1; do sleep 0.1; done; echo $1 >> $2/stepped\n")
    job = submit(
        yods, "--file", "step.sh", "--array", "1-3", "--limit", "1", "--", "sh", "step.sh", "{}", str(yods.work)
    )
    script.unlink()
    wait_until(lambda: ran(yods, "stepped") == [1], "the first task has ended")
    [owner] = sql(yods, job, "SELECT value AS pid FROM meta WHERE key = 'pid'")
    os.kill(owner["pid"], signal.SIGKILL)
    (yods.work / "go").touch()
    wait_until(lambda: yods.run("mesh", "job", "resume", job).returncode == 0, "it is resumed")
    yods.run("mesh", "wait", job, check=True)
    assert sorted(set(ran(yods, "stepped"))) == [1, 2, 3]
    (yods.work / "go").unlink()


def test_with_a_directory_of_ones_own_the_files_are_beside_it(yods: PrivateMesh) -> None:
    (yods.work / "run.sh").write_text("pwd\n")
    where = Path(yods.work / "results")
    where.mkdir()
    words = ("--file", "run.sh", "--cwd", str(where), "--output", "{}.txt", "--wait")
    yods.run("mesh", "submit", *words, "--", "sh", "-c", "sh $REDMESH_FILES/run.sh", check=True)
    assert (where / "1.txt").read_text() == f"{where}\n"


def test_a_damaged_file_runs_nowhere(yods: PrivateMesh) -> None:
    (yods.work / "x.sh").write_text("echo ran\n")
    job = submit(yods, "--file", "x.sh", "--hold", "--", "sh", "x.sh")
    with sqlite3.connect(yods.state / "jobs" / f"{job}.job") as db:
        db.execute("UPDATE file SET content = 'echo bad\n' WHERE name = 'package/x.sh'")
    db.close()
    yods.run("mesh", "release", job, check=True)
    assert yods.run("mesh", "wait", job).returncode == 1
    [told] = sql(yods, job, "SELECT exit, lines FROM task")
    assert told["exit"] == 127 and "its bytes are not those of its SHA-256 in the state object: x.sh" in told["lines"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--file", "missing"), "No such file or directory"),
        (("--file", "pipe"), "not a regular file"),
        (("--file", "a/x", "--file", "b/x"), "is packaged as x already"),
        (("--file", "a/x", "--file", "x"), "is packaged as a file and as a directory"),
        (("--file", "loop"), "is a link to a directory"),
        (("--file", "large"), "the files of a job take more than 256 MiB"),
        (("--file", "a/x", "--output", "{}.txt"), "begin in a directory that is deleted with the job"),
    ],
)
def test_what_cannot_be_packaged_is_refused(yods: PrivateMesh, words: tuple[str, ...], why: str) -> None:
    here = Path(yods.work / "refused")
    if not here.exists():
        for name in ("a", "b", "x/x", "loop"):
            (here / name).mkdir(parents=True)
        (here / "a" / "x").touch()
        (here / "b" / "x").touch()
        (here / "x" / "x" / "y").touch()
        (here / "loop" / "again").symlink_to("..")
        os.mkfifo(here / "pipe")
        with open(here / "large", "wb") as file:
            file.truncate(300 << 20)
    done = yods.run("mesh", "submit", *words, "--", "true", cwd=here)
    assert done.returncode == 2 and why in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) <= 2

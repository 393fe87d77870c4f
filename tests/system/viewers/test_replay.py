"""Traces replayed through real CPAs: never a processor twice, never one lost, the same books on both databases."""

import gzip
import subprocess

from db.views.viewer import open_viewer
from simulated.traces import generated
from tests.support.look import processors
from tests.support.mariadb import Server
from tests.support.mesh import MakeMesh, PrivateMesh
from tests.support.waiting import wait_until

MACHINE = """[topology]
kind = "mesh"
rows = 2
columns = 6
cages = 2
boards = 3
service_columns = [0, 5]
"""
COMPUTE, ALL = 192, 240
JOBS = 60
Book = list[tuple[str, int, int | None, bool, str]]


def simulated(mesh: MakeMesh, cpas: int, database: str = "") -> PrivateMesh:
    made = mesh(1, 1, cpas, database, up=False)
    (made.work / "machine.toml").write_text(MACHINE)
    made.run("mesh", "up", "--cpas", str(cpas), "--simulate", "machine.toml", check=True)
    return made


def replayed(mesh: MakeMesh, database: str, *words: str) -> Book:
    """The books after a replay: every launcher's command, size, exit status, abnormal end and reason."""
    made = simulated(mesh, 4, database)
    told = made.json("mesh", "replay", *words)
    assert told["jobs"] == JOBS and told["too_large"] == 0 and 0 < told["utilisation"] <= 1
    assert made.json("showmesh")["states"] == dict.fromkeys(
        ("pending", "busy", "stale", "down", "drained", "reserved"), 0
    ) | {"free": ALL}
    with open_viewer(made.database) as viewer:
        rows = viewer.history(10 * JOBS)
        assert not viewer.waiting()
    return sorted((row.command, row.size, row.exit_status, bool(row.abnormal), row.reason) for row in rows)


def test_the_books_are_the_same_on_both_databases(mesh: MakeMesh, sql_server: Server) -> None:
    words = ("--jobs", str(JOBS), "--seed", "3")
    ours = replayed(mesh, "", *words)
    theirs = replayed(mesh, sql_server.new_database(), *words)
    assert ours == theirs
    expected = sorted((f"job {job.number}", job.size, 0, False, "") for job in generated(COMPUTE, JOBS, seed=3))
    assert ours == expected


def test_a_trace_from_a_file_in_another_placement(mesh: MakeMesh) -> None:
    made = mesh(1, 1, 2, up=False)
    (made.work / "machine.toml").write_text(MACHINE)
    made.run("mesh", "simulate", "machine.toml", "--cpas", "2", check=True)
    lines = ["; a trace"] + [
        f"{n} {n * 10} -1 {60 + n} {1 + n * 4} -1 -1 -1 -1 -1 1 1 1 -1 1 -1 -1 -1" for n in range(1, 41)
    ]
    (made.work / "trace.swf").write_text("\n".join([*lines, lines[-1].replace(" 161 ", " 2000 ")]) + "\n")
    told = made.json("mesh", "replay", "trace.swf", "--placement", "snake")
    assert told["jobs"] == 40 and told["too_large"] == 1 and told["longest_wait_s"] > 0
    packed = gzip.compress((made.work / "trace.swf").read_bytes())
    (made.work / "trace.swf.gz").write_bytes(packed)
    (made.work / "cut.swf.gz").write_bytes(packed[:-20])
    again = made.json("mesh", "replay", "trace.swf.gz", "--placement", "snake")
    assert [again[key] for key in ("jobs", "span_s")] == [told[key] for key in ("jobs", "span_s")]
    cut = made.run("mesh", "replay", "cut.swf.gz")
    assert cut.returncode == 2 and cut.stderr.startswith("mesh: cut.swf.gz: ")
    (made.work / "none.swf").write_text("; nothing\n")
    assert "no job of none.swf ever ran" in made.run("mesh", "replay", "none.swf").stderr
    busy = made.start("yod", "-sz", "3", "sleep", "1000")
    wait_until(lambda: processors(made, "busy") == 3, "somebody else is at work", step_s=0.1)
    refused = made.run("mesh", "replay", "trace.swf")
    assert refused.returncode != 0 and "not free" in refused.stderr
    busy.terminate()
    busy.wait()


def test_a_cpa_that_goes_is_named_and_nothing_stays_taken(mesh: MakeMesh) -> None:
    made = simulated(mesh, 2)
    player = made.start(
        "mesh", "replay", "--jobs", "10000", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    with open_viewer(made.database) as viewer:
        wait_until(lambda: viewer.read().launchers, "it plays")
    made.kill("cpa-1")
    _, said = player.communicate()
    assert player.returncode == 125 and "cpa-1 went away" in said
    wait_until(lambda: processors(made, "free") == ALL, "the RCA has noticed, and all is free", step_s=0.1)

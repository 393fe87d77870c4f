"""Traces replayed through real CPAs: never a processor twice, never one lost, the same books on both databases."""

import gzip
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from db.views.viewer import open_viewer
from simulated.traces import generated
from tests.support.mariadb import Server, find_server, private_server
from tests.support.mesh import MakeMesh, PrivateMesh
from tests.support.waiting import wait_until

MACHINE = Path(__file__).parents[3] / "examples" / "red_storm.toml"
JOBS = 60
Book = list[tuple[str, int, int | None, bool, str]]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if find_server() is None:
        pytest.skip("no MariaDB here")
    with private_server() as running:
        yield running


def replayed(mesh: MakeMesh, database: str, *words: str) -> tuple[PrivateMesh, Book]:
    """The books after a replay: every launcher's command, size, exit status, abnormal end and reason."""
    made = mesh(1, 1, 4, database, up=False)
    made.run("mesh", "up", "--cpas", "4", "--simulate", str(MACHINE), check=True)
    told = made.json("mesh", "replay", *words)
    assert told["jobs"] == JOBS and told["too_large"] == 0 and 0 < told["utilisation"] <= 1
    assert made.json("showmesh")["states"] == dict.fromkeys(
        ("pending", "busy", "stale", "down", "drained", "reserved"), 0
    ) | {"free": 11136}
    with open_viewer(made.database) as viewer:
        rows = viewer.history(10 * JOBS)
        assert not viewer.waiting()
    return made, sorted((row.command, row.size, row.exit_status, bool(row.abnormal), row.reason) for row in rows)


def test_the_books_are_the_same_on_both_databases(mesh: MakeMesh, server: Server) -> None:
    words = ("--jobs", str(JOBS), "--seed", "3")
    _, ours = replayed(mesh, "", *words)
    _, theirs = replayed(mesh, server.new_database(), *words)
    assert ours == theirs
    expected = sorted((f"job {job.number}", job.size, 0, False, "") for job in generated(10368, JOBS, seed=3))
    assert ours == expected


def test_a_trace_from_a_file_in_another_placement(mesh: MakeMesh) -> None:
    made = mesh(1, 1, 2, up=False)
    made.run("mesh", "simulate", str(MACHINE), "--cpas", "2", check=True)
    lines = ["; a trace"] + [
        f"{n} {n * 10} -1 {60 + n} {1 + n * 40} -1 -1 -1 -1 -1 1 1 1 -1 1 -1 -1 -1" for n in range(1, 41)
    ]
    (made.work / "trace.swf").write_text("\n".join([*lines, lines[-1].replace(str(1 + 1600), "20000")]) + "\n")
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
    wait_until(lambda: made.json("showmesh")["states"]["busy"] == 3, "somebody else is at work")
    refused = made.run("mesh", "replay", "trace.swf")
    assert refused.returncode != 0 and "not free" in refused.stderr
    busy.terminate()
    busy.wait()


def test_a_cpa_that_goes_is_named_and_nothing_stays_taken(mesh: MakeMesh) -> None:
    made = mesh(1, 1, 2, up=False)
    made.run("mesh", "up", "--cpas", "2", "--simulate", str(MACHINE), check=True)
    player = made.start(
        "mesh", "replay", "--jobs", "100000", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: made.json("showmesh")["states"]["busy"] + made.json("showmesh")["states"]["pending"], "it plays")
    made.kill("cpa-1")
    _, said = player.communicate()
    assert player.returncode == 125 and "cpa-1 went away" in said
    wait_until(lambda: made.json("showmesh")["states"]["free"] == 11136, "the RCA has noticed, and all is free")

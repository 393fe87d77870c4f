"""Jobs of sections through the real commands: nodes left out, failures, copies, reports, resumption, outputs."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.look import queue
from tests.support.mesh import MakeMesh, PrivateMesh
from tests.support.waiting import silence, wait_until
from tests.support.yods import one_mesh, yods
from tests.system.job.test_tasks import row, sql

__all__ = ["one_mesh", "yods"]

EXAMPLES = Path(__file__).parents[3] / "examples" / "sections"
HEAD = """
command = '''sh -c "{script}"'''
retries = {retries}
[sections]
count = {count}
[[output]]
name = "whole"
part = "part.{{section}}"
"""


SUM = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int rank, size, mine, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    mine = atoi(argv[1]) + rank;
    MPI_Reduce(&mine, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        FILE *file = fopen(argv[2], "w");
        fprintf(file, "%d ranks: %d\\n", size, sum);
        fclose(file);
    }
    return MPI_Finalize();
}
"""


def job_file(mesh: PrivateMesh, script: str, count: int = 12, retries: int = 3, **keys: str) -> None:
    lines = "".join(f"{key} = {value}\n" for key, value in keys.items())
    (mesh.work / "JOB.toml").write_text(lines + HEAD.format(script=script, count=count, retries=retries))
    for old in (*mesh.work.glob("part.*"), mesh.work / "whole"):
        old.unlink(missing_ok=True)


def newest(mesh: PrivateMesh) -> str:
    return str(queue(mesh, ended=True)[-1]["uuid"])


def test_the_first_job_of_all_knows_that_its_mesh_has_one_node(mesh: MakeMesh) -> None:
    """The job starts the mesh; on a mesh of one node a section is tried again on that node."""
    private = mesh(2, 1, up=False, REDMESH_PROCESSORS="2")
    command = 'echo {%} >>tried; [ "$(wc -l <tried)" = 3 ]'
    done = private.run("mesh", "sections", "run", "--", "sh", "-c", command, "{}", ":::", "a")
    assert done.returncode == 0, done.stderr
    assert "the job starts a personal mesh of 2 processors (mesh down ends it)" in done.stderr
    assert "{%} stays as it is" in done.stderr and (private.work / "tried").read_text() == "{%}\n" * 3


def test_a_section_that_fails_finishes_on_another_node_and_the_output_is_whole(yods: PrivateMesh) -> None:
    job_file(yods, "echo {section} >{part}; test $REDMESH_TASK_ATTEMPT != 1 || {{ echo bad luck; exit 3; }}", 6)
    done = yods.run("mesh", "sections", "run", "JOB.toml")
    assert done.returncode == 0, done.stderr
    assert (yods.work / "whole").read_text() == "0\n1\n2\n3\n4\n5\n"
    job = newest(yods)
    assert not list(yods.work.glob("part.*.redmesh-*")), "no attempt leaves its file"
    log = yods.run("mesh", "sections", "report", "--joblog", job, check=True).stdout.splitlines()
    ran_on = [line.split("\t")[:2] for line in log[1:]]
    assert len(ran_on) == 12 and len({tuple(one) for one in ran_on}) == 12, "no section twice on one node"


def test_a_command_line_has_limits_columns_and_a_file_for_each_section(yods: PrivateMesh) -> None:
    (yods.work / "table").write_text("d/x.gz\t1\nd/y.gz\t2\n")
    words = ["mesh", "sections", "run", "--time", "1s", "--max-fails", "0", "--retries", "0", "--limit", "1"]
    named = ["--output", "printed/{1}.{#}", "--colsep", "\\t", "--"]
    done = yods.run(*words, *named, "echo", "{1/.}", "{2}", "::::", "table")
    assert done.returncode == 0, done.stderr
    found = {path.name: path.read_text() for path in (yods.work / "printed").iterdir()}
    assert found == {"d_x.gz.1": "x 1\n", "d_y.gz.2": "y 2\n"}
    same = yods.run(*words, "--output", "same/{.}", "--", "echo", ":::", "a.b", "a.c")
    assert same.returncode == 2 and "sections 1 and 2 would both write" in same.stderr
    slow = yods.run(*words, "--", "sleep", ":::", "60", "60")
    assert slow.returncode == 1 and "the time limit of 1 s" in slow.stderr
    assert "1 section failed, 0 may (--max-fails)" in slow.stderr


def test_a_node_that_fails_the_probe_is_left_out_with_its_reason(yods: PrivateMesh) -> None:
    probe = """'''sh -c "test $YOD_NODE != n2 || { echo no scratch; exit 1; }"'''"""
    job_file(yods, "echo {section} >{part}", probe=probe)
    assert yods.run("mesh", "sections", "run", "JOB.toml").returncode == 0
    told = yods.run("mesh", "sections", "status", check=True).stdout
    ran_there = sql(yods, newest(yods), "SELECT count(*) AS n FROM transition WHERE node = 'n2'")
    assert ran_there == [{"n": 0}]
    left_out = sql(yods, newest(yods), "SELECT text FROM log WHERE node = 'n2'")
    if left_out:  # it had a worker before the sections were over
        assert "n2 is left out: the probe sh ended with 1: no scratch" in told


FLOOD = """
import os, socket, sys, threading
host, port = os.environ["REDMESH_REPORT"].split(":")
report = f"{os.environ['REDMESH_TOKEN']} progress {os.environ['REDMESH_SECTION']} 0.5 x"
data = ({"blank": "", "valid": report, "invalid": "x"}[sys.argv[1]] + chr(10)).encode() * 1000
sock = socket.create_connection((host, int(port)))
threading.Thread(target=lambda: [None for _ in iter(lambda: sock.recv(65536), b"")], daemon=True).start()
open(sys.argv[2], "w").close()
while True:
    sock.sendall(data)
"""


def test_programs_that_report_without_a_pause_end_at_their_time_limit(yods: PrivateMesh) -> None:
    (yods.work / "flood.py").write_text(FLOOD)
    kinds = ["blank", "valid", "invalid"]
    begun: list[str] = []
    # Python may need longer to start than a short limit lasts: then the program has reported nothing.
    for limit_s in (silence(1.0), silence(4.0), silence(16.0)):
        words = ["mesh", "sections", "run", "--retries", "0", "--max-fails", "9", "--time", f"{limit_s:g}s", "--"]
        done = yods.run(*words, sys.executable, "flood.py", "{1}", "{1}.begun", ":::", *kinds)
        assert done.returncode != 0 and f"the time limit of {limit_s:g} s is reached" in done.stderr, done.stderr
        ended = sql(yods, newest(yods), "SELECT first, last, exit FROM task ORDER BY first")
        exits = [one["exit"] for one in ended for _ in range(one["first"], one["last"] + 1)]
        assert dict(zip(kinds, exits, strict=True)) == dict.fromkeys(kinds, 124)
        begun = [kind for kind in kinds if (yods.work / f"{kind}.begun").exists()]
        if begun == kinds:
            break
    assert begun == kinds, "every program has begun to report before its time limit"


def test_a_program_that_reports_without_a_pause_is_cancelled(yods: PrivateMesh) -> None:
    (yods.work / "flood.py").write_text(FLOOD)
    words = ["mesh", "sections", "run", "--retries", "0", "--detach", "--"]
    yods.run(*words, sys.executable, "flood.py", "valid", "{1}", ":::", "cancel-me", check=True)
    wait_until((yods.work / "cancel-me").exists, "it floods")
    yods.run("mesh", "cancel", newest(yods), check=True)
    assert yods.run("mesh", "wait", newest(yods)).returncode == 130


def test_programs_report_and_an_error_fails_whatever_the_exit_status(yods: PrivateMesh) -> None:
    script = (
        f". {EXAMPLES}/report.sh; report started; report progress 0.5 halfway;"
        " yodstate report progress 0.75 nearly || exit 9; yodstate report nonsense 2>/dev/null && exit 9;"
        " test {section} = 1 && report error 'no input'; echo {section} >{part}; exit 0"
    )
    job_file(yods, script, count=2, retries=0)
    text = (yods.work / "JOB.toml").read_text().replace('sh -c "', 'bash -c "')
    (yods.work / "JOB.toml").write_text(text)
    done = yods.run("mesh", "sections", "run", "JOB.toml")
    assert done.returncode == 1 and "section 1 failed: exit status 0" in done.stderr, done.stderr
    assert "the program reported: no input" in done.stderr
    assert not (yods.work / "whole").exists() and not (yods.work / "part.1").exists()
    logged = sql(yods, newest(yods), "SELECT task, text FROM log WHERE task IS NOT NULL ORDER BY id")
    assert {(one["task"], one["text"]) for one in logged} >= {
        (1, "started"), (2, "started"), (1, "progress halfway"), (1, "progress nearly"), (2, "error no input"),
    }  # fmt: skip


def test_a_section_that_hangs_on_one_node_gets_a_second_copy_and_counts_once(yods: PrivateMesh) -> None:
    script = "mkdir first.{section} 2>/dev/null && test {section} = 3 && sleep 600; echo {section} >{part}"
    job_file(yods, script, count=6)
    done = yods.run("mesh", "sections", "run", "JOB.toml")
    assert done.returncode == 0, done.stderr
    assert (yods.work / "whole").read_text() == "0\n1\n2\n3\n4\n5\n"
    assert sql(yods, newest(yods), "SELECT count(*) AS n FROM transition WHERE cause = 'a second copy'")[0]["n"] >= 1
    assert sql(yods, newest(yods), "SELECT count(*) AS n FROM transition WHERE state = 'done'")[0]["n"] == 6 + 1


def test_the_owner_is_killed_and_the_job_resumed_with_what_is_missing(yods: PrivateMesh) -> None:
    (yods.work / "in").write_text("input")
    script = "echo x >>ran.{section}; test -e go || test {section} -lt 4 || sleep 600; echo {section} >{part}"
    job_file(yods, script, count=8, inputs='["in"]')
    yods.run("mesh", "sections", "run", "--detach", "JOB.toml", check=True)
    job = newest(yods)
    wait_until(lambda: row(yods, job)["ended"] == 4, "half of it has finished")
    os.kill(int(row(yods, job)["owner"].rpartition(":")[2]), signal.SIGKILL)
    (yods.work / "go").touch()
    (yods.work / "in").write_text("other input")
    refused = yods.run("mesh", "sections", "resume", job)
    assert refused.returncode == 1 and f"input {yods.work}/in: was 5 bytes" in refused.stderr
    done = yods.run("mesh", "sections", "resume", "--anyway", job)
    assert done.returncode == 0, done.stderr
    assert (yods.work / "whole").read_text() == "".join(f"{number}\n" for number in range(8))
    assert [(yods.work / f"ran.{number}").read_text() for number in range(4)] == ["x\n"] * 4, "finished ones ran once"


def test_a_section_of_several_ranks_is_a_launch_of_its_own(yods: PrivateMesh) -> None:
    ranks = "test $YOD_RANK = 0 && echo {section} of $YOD_SIZE >{part}; sleep 0.$YOD_RANK; echo said by $YOD_RANK"
    job_file(yods, ranks + "; test $YOD_RANK.$REDMESH_TASK_ATTEMPT.{section} != 1.1.2", count=4, size="2")
    done = yods.run("mesh", "sections", "run", "JOB.toml")
    assert done.returncode == 0, done.stderr
    assert (yods.work / "whole").read_text() == "".join(f"{number} of 2\n" for number in range(4))
    assert not list(yods.work.glob("part.*.redmesh-*")), "the attempt that failed leaves no file"
    job = newest(yods)
    tried = {one["section"]: one["attempt"] for one in yods.json("mesh", "sections", "status", job)["sections"]}
    assert tried == {"0": 1, "1": 1, "2": 2, "3": 1}, "a rank that fails fails its section"
    told = str(sql(yods, job, "SELECT lines FROM task WHERE first = 4")[0]["lines"])
    assert "--- rank 0 on" in told and "said by 1" in told, told
    refused = yods.run("mesh", "sections", "run", "--size", "4", "--limit", "3", "JOB.toml")
    assert refused.returncode == 2 and "a section has 4 ranks" in refused.stderr


def test_of_two_copies_of_a_section_of_several_ranks_one_counts_and_the_other_is_ended(yods: PrivateMesh) -> None:
    ranks = (
        "test $YOD_RANK = 0 || exit 0; mkdir team.{section} 2>/dev/null && test {section} = 3 && sleep 600;"
        " echo {section} >{part}"
    )
    job_file(yods, ranks, count=4, size="2")
    done = yods.run("mesh", "sections", "run", "JOB.toml")
    assert done.returncode == 0, done.stderr
    assert (yods.work / "whole").read_text() == "0\n1\n2\n3\n"
    job = newest(yods)
    assert sql(yods, job, "SELECT count(*) AS n FROM transition WHERE cause = 'a second copy'")[0]["n"] == 1
    assert sql(yods, job, "SELECT count(*) AS n FROM transition WHERE state = 'done'")[0]["n"] == 4 + 1
    assert not list(yods.work.glob("part.*.redmesh-*")), "the copy that did not count leaves no file"


def test_a_job_whose_sections_have_more_ranks_than_the_mesh_has_processors_says_so(yods: PrivateMesh) -> None:
    done = yods.run("mesh", "sections", "run", "--size", "1000", "--", "true", ":::", "1")
    assert done.returncode == 1 and "a section has 1000 ranks: " in done.stderr, done.stderr


def test_an_mpi_program_of_several_ranks_is_a_section(yods: PrivateMesh) -> None:
    source = yods.work / "sum.c"
    source.write_text(SUM)
    compiler = next((name for name in ("mpicc.mpich", "mpicc") if shutil.which(name)), None)
    if compiler is None:
        pytest.skip("no MPI compiler")
    subprocess.run([compiler, "-o", "sum", "sum.c"], cwd=yods.work, check=True)
    command = ("mesh", "sections", "run", "--size", "3", "--", "./sum", "{}", "sum.{}", ":::", "5", "6")
    done = yods.run(*command)
    assert done.returncode == 0, done.stderr
    assert [(yods.work / f"sum.{one}").read_text() for one in (5, 6)] == ["3 ranks: 18\n", "3 ranks: 21\n"]


def test_failed_sections_are_retried_by_name_and_show_both_their_streams(yods: PrivateMesh) -> None:
    script = "echo out {section}; echo err {section} >&2; test -e mended || test {section} = 0; echo {section} >{part}"
    job_file(yods, "set -e; " + script, count=3, retries=0)
    done = yods.run("mesh", "sections", "run", "JOB.toml")
    assert done.returncode == 1
    shown = "    --- stdout\n    out 2\n    --- stderr\n    err 2\n"
    assert shown in done.stderr and "section 1 failed: exit status 1" in done.stderr
    job = newest(yods)
    for section, told in (("0", "section 0 is done"), ("9", "the job has no section '9'")):
        refused = yods.run("mesh", "sections", "retry", job, "--section", section)
        assert refused.returncode and told in refused.stderr
    (yods.work / "mended").touch()
    assert yods.run("mesh", "sections", "retry", job, "--section", "1").returncode == 1
    states = {one["section"]: one["state"] for one in yods.json("mesh", "sections", "status", job)["sections"]}
    assert states == {"0": "done", "1": "done", "2": "failed"}
    done = yods.run("mesh", "sections", "retry")
    assert done.returncode == 0, done.stderr
    assert (yods.work / "whole").read_text() == "0\n1\n2\n"

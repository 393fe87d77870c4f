"""Outputs of sections have only what an attempt of this job has written: after kill -9, and among files of before."""

import json
import os
import signal
import subprocess

import pytest

from tests.support.mesh import PrivateMesh
from tests.support.waiting import wait_until
from tests.support.yods import one_mesh, yods
from tests.system.job.test_sections import job_file, newest

__all__ = ["one_mesh", "yods"]

#: Writes its first part, leaves a process in a session of its own, and waits before it goes on.
COMBINER = """
o=$1; shift
setsid sh -c 'until test -e end; do sleep 0.05; done; : combiner' &
for f; do cat $f >>$o; until test -e go; do sleep 0.05; done; done
touch end
"""
STAGED = """
command = "sh update.sh part.{section} {section}"
inputs = ["update.sh", "part.{section}"]
stage = true
retries = 0
[sections]
count = 3
[[output]]
name = "whole"
part = "part.{section}"
"""


def direct_job(mesh: PrivateMesh, script: str, count: int = 3, retries: int = 0, **keys: str) -> None:
    """A job whose sections write ``part.{section}`` under that name, beside parts of an earlier run."""
    job_file(mesh, script, count, retries, **keys)
    for number in range(count):
        (mesh.work / f"part.{number}").write_text("STALE\n")


def combiners(mesh: PrivateMesh) -> list[str]:
    return [command for command in mesh.processes().values() if "combiner" in command]


def test_a_combiner_ends_with_the_command_that_was_killed_and_the_output_is_right(yods: PrivateMesh) -> None:
    job_file(yods, "printf %10000d {section} >{part}", 4)
    text = (yods.work / "JOB.toml").read_text()
    (yods.work / "combiner").write_text(COMBINER)
    (yods.work / "JOB.toml").write_text(text + '\ncombine = ["sh", "combiner", "{out}", "{parts}"]\n')
    run = yods.start("mesh", "sections", "run", "JOB.toml")
    wait_until(lambda: len(combiners(yods)) >= 2, "the combiner and what it has started run")
    wait_until(lambda: any(one.stat().st_size for one in yods.work.glob("whole.*")), "it has begun")
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    wait_until(lambda: not combiners(yods), "the combiner and what it has started have ended")
    assert not (yods.work / "whole").exists()
    (yods.work / "go").touch()
    done = yods.run("mesh", "sections", "resume", newest(yods))
    assert done.returncode == 0, done.stderr
    assert (yods.work / "whole").read_text() == "".join(f"{number:10000}" for number in range(4))
    assert not list(yods.work.glob("whole.*")), "no attempt leaves its file"


@pytest.mark.parametrize("size", ("1", "2"))
def test_a_section_that_writes_nothing_does_not_pass_with_the_part_of_an_earlier_run(
    yods: PrivateMesh, size: str
) -> None:
    script = "test {section} = 1 && ! test -e mended || echo new {section} >part.{section}; echo x >>ran.{section}"
    direct_job(yods, script, size=size)
    for old in (*yods.work.glob("ran.*"), yods.work / "mended"):
        old.unlink(missing_ok=True)
    done = yods.run("mesh", "sections", "run", "JOB.toml")
    assert done.returncode == 1, done.stderr
    assert "section 1 failed: exit status 0" in done.stderr
    assert "part.1 was not written: the file there is of an earlier run" in done.stderr
    assert (yods.work / "part.1").read_text() == "STALE\n", "a file that Redmesh has not made stays"
    ran = (yods.work / "ran.0").read_text()
    (yods.work / "mended").touch()
    done = yods.run("mesh", "sections", "resume", newest(yods))
    assert done.returncode == 0, done.stderr
    assert (yods.work / "whole").read_text() == "new 0\nnew 1\nnew 2\n"
    assert (yods.work / "ran.0").read_text() == ran, "what was done counts, and ran once"


def test_half_a_part_of_an_attempt_that_failed_is_not_the_part_of_the_next_one(yods: PrivateMesh) -> None:
    script = "test $REDMESH_TASK_ATTEMPT != 1 || { printf half >part.{section}; exit 3; }"
    direct_job(yods, script, count=1, retries=1)
    done = yods.run("mesh", "sections", "run", "JOB.toml")
    assert done.returncode == 1 and "part.0 was not written" in done.stderr, done.stderr
    assert not (yods.work / "whole").exists()


def test_parts_that_are_written_in_place_continued_or_put_there_count(yods: PrivateMesh) -> None:
    (yods.work / "saved").write_text("STALE\n")
    os.utime(yods.work / "saved", ns=(0, 1_700_000_000 * 10**9))
    ways = (
        "echo STALE | dd of=part.{section} conv=notrunc 2>err",  # the same bytes in the same file
        "echo more >>part.{section}",
        "cp -p saved part.{section}",  # with the time of an old file
        "ln -f saved part.{section}",
        "touch part.{section}",
        ": >part.{section}",
        "echo >part.{section}; touch -d @946684800 part.{section}",  # midnight, as reproducible builds set it
    )
    script = "case {section} in " + " ".join(f"{number}) {way};;" for number, way in enumerate(ways)) + " esac"
    direct_job(yods, script, count=len(ways))
    os.utime(yods.work / "part.2", ns=(0, 1_700_000_000 * 10**9))
    done = yods.run("mesh", "sections", "run", "JOB.toml")
    assert done.returncode == 0, done.stderr
    assert (yods.work / "whole").read_text() == "STALE\nSTALE\nmore\nSTALE\nSTALE\nSTALE\n\n"


def test_parts_that_are_one_file_with_two_names_are_two_parts(yods: PrivateMesh) -> None:
    direct_job(yods, "test {section} = 1 || echo new >part.{section}", count=2, limit="1")
    (yods.work / "part.1").unlink()
    os.link(yods.work / "part.0", yods.work / "part.1")
    (yods.work / "backup").unlink(missing_ok=True)
    os.link(yods.work / "part.0", yods.work / "backup")
    done = yods.run("mesh", "sections", "run", "JOB.toml")
    assert done.returncode == 1 and "part.1 was not written" in done.stderr, done.stderr
    assert (yods.work / "backup").read_text() == (yods.work / "part.1").read_text() == "STALE\n"


def test_a_staged_input_that_the_section_leaves_as_it_is_is_not_its_part(yods: PrivateMesh) -> None:
    (yods.work / "JOB.toml").write_text(STAGED)
    for number in range(3):
        (yods.work / f"part.{number}").unlink(missing_ok=True)  # it may have a further name of another test
        (yods.work / f"part.{number}").write_text(f"{number}\n")
    (yods.work / "update.sh").write_text("test $2 = 1 || echo updated >>$1\n")
    done = yods.run("mesh", "sections", "run", "JOB.toml")
    assert done.returncode == 1 and "part.1 was not written" in done.stderr, done.stderr
    (yods.work / "update.sh").write_text("echo updated >>$1\n")
    done = yods.run("mesh", "sections", "resume", "--anyway", newest(yods))
    assert done.returncode == 0, done.stderr
    assert (yods.work / "whole").read_text() == "0\nupdated\n1\nupdated\n2\nupdated\n"


def test_a_staged_input_that_a_failed_attempt_has_changed_is_fetched_again(yods: PrivateMesh) -> None:
    text = STAGED.replace("retries = 0", "retries = 1\nlimit = 1\nsame_node = true").replace("count = 3", "count = 1")
    (yods.work / "JOB.toml").write_text(text)
    (yods.work / "part.0").unlink(missing_ok=True)
    (yods.work / "part.0").write_text("0\n")
    (yods.work / "update.sh").write_text("test -s $1 && echo updated >>$1 && test $REDMESH_TASK_ATTEMPT != 1\n")
    done = yods.run("mesh", "sections", "run", "JOB.toml")
    assert done.returncode == 0, done.stderr
    assert (yods.work / "whole").read_text() == "0\nupdated\n"


def test_the_file_of_a_killed_attempt_of_another_job_is_no_part(yods: PrivateMesh) -> None:
    job_file(yods, "test {section} = 1 || echo new >{part}", 2, 0)
    (yods.work / "part.1.redmesh-1").write_text("STALE\n")
    done = yods.run("mesh", "sections", "run", "JOB.toml")
    assert done.returncode == 1 and "part.1 was not written: No such file" in done.stderr, done.stderr
    (yods.work / "part.1.redmesh-1").unlink()


def test_what_a_section_leaves_running_writes_to_its_part_no_more(yods: PrivateMesh) -> None:
    late = "until test -e go; do sleep 0.05; done; echo late >>part.0; : >done"
    ends = "touch go; while kill -0 $(cat writer) 2>/dev/null && ! test -e done; do sleep 0.05; done"
    first = f"{{ ({late}) >&- 2>&- & echo $! >writer; }}"
    script = f"test {{section}} = 0 && {first} || {{ {ends}; }}; echo new >part.{{section}}"
    direct_job(yods, script, count=2, limit="1")
    for old in ("go", "done"):
        (yods.work / old).unlink(missing_ok=True)
    done = yods.run("mesh", "sections", "run", "JOB.toml")
    assert done.returncode == 0, done.stderr
    assert (yods.work / "whole").read_text() == "new\nnew\n"


def test_a_probe_that_leaves_processes_behind_takes_no_longer_than_its_limit(yods: PrivateMesh) -> None:
    keys = {"probe": "'''sh -c \"sleep 987654 & wait\"'''", "probe_time": "1"}
    job_file(yods, "echo {section} >{part}", 1, 0, **keys)
    done = yods.run("mesh", "sections", "run", "JOB.toml")
    assert done.returncode == 1 and "the probe sh has not ended within 1 s" in done.stderr + done.stdout, done.stderr
    assert not [one for one in yods.processes().values() if "987654" in one]


@pytest.mark.parametrize("part", ("{part}", "part.{section}"))
def test_a_part_that_something_else_has_written_over_is_named_and_not_combined(yods: PrivateMesh, part: str) -> None:
    direct_job(yods, f"printf new{{section}} >{part}")
    done = yods.run("mesh", "sections", "run", "JOB.toml")
    assert done.returncode == 0, done.stderr
    job, whole = newest(yods), yods.work / "whole"
    (yods.work / "kept").mkdir(exist_ok=True)
    for number in range(3):
        subprocess.run(["cp", "-p", f"part.{number}", f"kept/part.{number}"], cwd=yods.work, check=True)
        (yods.work / f"part.{number}").unlink()
        subprocess.run(["cp", "-p", f"kept/part.{number}", f"part.{number}"], cwd=yods.work, check=True)
    whole.unlink()
    done = yods.run("mesh", "sections", "resume", job)
    assert done.returncode == 0 and whole.read_text() == "new0new1new2", "the owner's copies count"
    whole.unlink()
    (yods.work / "part.1").write_text("four")  # of the same size
    done = yods.run("mesh", "sections", "resume", job)
    assert done.returncode == 1 and not whole.exists()
    assert "part.1 has changed since its section wrote it" in done.stderr and "--anyway" in done.stderr
    done = yods.run("mesh", "sections", "resume", "--anyway", job)
    assert done.returncode == 0 and whole.read_text() == "new0fournew2", done.stderr


@pytest.mark.parametrize("part", ("{part}", "part.{section}"))
def test_what_a_section_leaves_behind_in_a_session_of_its_own_cannot_write_to_its_part(
    yods: PrivateMesh, part: str
) -> None:
    (yods.work / "section").write_text(
        "printf mine >$1; exec 3>>$1\n"
        "setsid sh -c ': >left; until test -e late; do sleep 0.05; done; echo LATE >&3; : >wrote' &\n"
        "until test -e left; do sleep 0.05; done; rm left\n"
    )
    for name in ("late", "wrote"):
        (yods.work / name).unlink(missing_ok=True)
    script = f"if test {{section}} != 2; then sh section {part}; else echo end >{part}; touch late;"
    script += " until test -e wrote; do sleep 0.05; done; fi"
    direct_job(yods, script, limit="1")
    done = yods.run("mesh", "sections", "run", "JOB.toml")
    assert done.returncode == 0, done.stderr
    assert (yods.work / "whole").read_text() == "minemineend\n"
    told = json.loads(yods.run("mesh", "job", "tasks", newest(yods), "1", "--json").stdout)["lines"]
    assert "is a copy: process" in told and "has the file open for writing" in told, told
    assert not list(yods.work.glob("part.*.redmesh-*"))

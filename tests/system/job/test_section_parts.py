"""Outputs of sections have only what an attempt of this job has written: after kill -9, and among files of before."""

import os
import signal

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


def combiners(mesh: PrivateMesh) -> list[str]:
    return [command for command in mesh.processes().values() if "combiner" in command]


def test_a_combiner_ends_with_the_command_that_was_killed_and_the_output_is_right(yods: PrivateMesh) -> None:
    job_file(yods, "printf %10000d {section} >{part}", 4)
    text = (yods.work / "JOB.toml").read_text()
    (yods.work / "combiner").write_text(COMBINER)
    (yods.work / "JOB.toml").write_text(text + '\ncombine = ["sh", "combiner", "{out}", "{parts}"]\n')
    run = yods.start("mesh", "sections", "run", "JOB.toml")
    wait_until(lambda: len(combiners(yods)) >= 2, "the combiner and what it has started run", 60.0)
    wait_until(lambda: any(one.stat().st_size for one in yods.work.glob("whole.*")), "it has begun", 20.0)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    wait_until(lambda: not combiners(yods), "the combiner and what it has started have ended", 20.0)
    assert not (yods.work / "whole").exists()
    (yods.work / "go").touch()
    done = yods.run("mesh", "sections", "resume", newest(yods), timeout_s=120)
    assert done.returncode == 0, done.stderr
    assert (yods.work / "whole").read_text() == "".join(f"{number:10000}" for number in range(4))
    assert not list(yods.work.glob("whole.*")), "no attempt leaves its file"

"""Tasks and calls that the kernel kills because their control group has no memory left."""

import json
import os
import re
import sys

import pytest

from tests.support.groups import inside, limited_group
from tests.support.mesh import MakeMesh, PrivateMesh

LIMIT = 300 << 20
KILLED = r"out of memory, SIGKILL from the kernel on n0: it had \d{2,3} MiB, its control group may have 300 MiB"
HOG = "x = b'x' * (1 << 30)"
TASKS = f"""\
{sys.executable} -c "{HOG}"
echo begun; {sys.executable} -c "{HOG}"; exit $?
kill -9 $$
"""
CALLS = """
import redmesh
with redmesh.Executor(1) as executor:
    print(executor.submit(bytes, 1 << 30).exception())
    print(executor.submit(pow, 2, 3).result())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a control group needs root")
def test_a_task_that_runs_out_of_memory_is_named_and_one_that_is_killed_is_not(mesh: MakeMesh) -> None:
    private = mesh(2, 1, up=False)
    with limited_group("memory", LIMIT) as group:
        private.run(*inside(group, "mesh", "up"), check=True)
        try:
            _check(private)
        finally:
            private.down()


def _check(mesh: PrivateMesh) -> None:
    (mesh.work / "tasks").write_text(TASKS)
    done = mesh.run("mesh", "submit", "--wait", "--tasks", "tasks")
    failed = "SELECT first, cause FROM transition WHERE state = 'failed' AND first"
    rows = map(json.loads, mesh.run("mesh", "job", "sql", done.stdout.split()[0], "--json", failed).stdout.splitlines())
    why = {row["first"]: row["cause"] for row in rows}
    for number in (1, 2):  # a process, and the child of a shell
        assert re.fullmatch(KILLED, why[number]), why
    assert why[3] == "signal 9", "a signal is no evidence"
    assert "exit 137 (out of memory, SIGKILL from the kernel on n0: it had " in done.stderr
    broken, result = mesh.run(sys.executable, "-c", CALLS, check=True).stdout.splitlines()
    assert re.fullmatch(f"its process ended: {KILLED}", broken), broken
    assert result == "8"

"""Whom the keeper takes for an agent, among the children that came to it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agents.linux.processes import is_agent

ROOT = Path(__file__).parents[3]
NAMED = """
import os, sys
from agents.linux import prctl as kernel
kernel.set_name(sys.argv[1].encode())
if sys.argv[2:]:
    os.setresuid(*map(int, sys.argv[2:]))
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize(
    ("words", "agent"),
    [
        (["redmesh-launch"], True),
        (["sleep"], False),
        (["redmesh-launch", "21001", "21001", "0"], True),  # a launch child in system mode
        (["redmesh-launch", "21001", "21001", "21001"], False),  # a user's process that calls itself one
        (["redmesh-launch", "0", "21001", "21001"], False),
    ],
)
def test_an_agent_has_its_name_and_a_way_to_our_rights(words: list[str], agent: bool) -> None:
    if len(words) > 1 and os.geteuid():
        pytest.skip("another uid needs root")
    command = [sys.executable, "-P", "-c", NAMED, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        assert is_agent(process.pid) is agent
        process.kill()

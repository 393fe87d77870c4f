"""What ``mesh status`` says of launches that nobody knows of, and what it loads."""

import subprocess
import sys
from typing import Any

from console.cli.mesh.status import _unknown_lines, launchers_unknown
from db.views.rows import LauncherRow, NodeRow
from db.views.viewer import Picture
from tests.support.waiting import PATIENCE_S


def _picture(nodes: dict[int, tuple[str, str]], launchers: dict[int, tuple[str, int, int]]) -> Picture:
    """A machine of login processors (name, state) and launchers (user, login processor, pid)."""

    def row(kind: Any, **given: Any) -> Any:
        return kind(**{**dict.fromkeys(kind._fields), **given})

    made = Picture()
    for number, (name, state) in nodes.items():
        made.nodes[number] = row(NodeRow, id=number, name=name, role="login", state=state)
    for number, (user, login, pid) in launchers.items():
        made.launchers[number] = row(LauncherRow, id=number, user=user, login_processor=login, pid=pid)
    return made


def test_a_launch_is_named_if_nobody_can_know_whether_its_process_runs() -> None:
    nodes = {0: ("login1", "up"), 70: ("login2", "suspect"), 71: ("login3", "down"), 72: ("login4", "drained")}
    launchers = {1: ("ada", 0, 4711), 2: ("ada", 70, 4711), 3: ("bob", 71, 9), 4: ("ada", 70, 5), 5: ("ada", 72, 6)}
    found = launchers_unknown(_picture(nodes, {**launchers, 6: ("bo\x1bb", 0, 0), 7: ("ada", 99, 8)}))
    assert [(one["launcher"], one["login"]) for one in found] == [
        (2, "login2"), (3, "login3"), (4, "login2"), (6, "login1"),
    ]  # fmt: skip
    lines = _unknown_lines(found)
    assert lines[:2] == [
        "launcher    2,4 of ada may have ended: login2, where it was started, does not answer"
        " (pingd -job 2 -kill ends 2 and frees its processors)",
        "launcher    3 of bob may have ended: login3, where it was started, does not answer"
        " (pingd -job 3 -kill ends 3 and frees its processors)",
    ]
    assert "pid namespace" in lines[2] and "\x1b" not in lines[2]


def test_the_console_runs_it_again_and_again_so_it_loads_nothing_of_the_deployment() -> None:
    code = "import sys, console.cli.mesh.status; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    heavy = {"cryptography", "concurrent", "logging", "asyncio", "peewee", "paramiko", "console.deploy.ssh"}
    assert not heavy.intersection(done.stdout.split())

"""What the console costs: until its first picture, and on each screen while nothing changes."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.bench.consoles import Screen
from tests.bench.meshes import mesh
from tests.bench.ratios import Bar, Row
from tests.support.mesh import PrivateMesh
from tests.support.waiting import wait_until

PAIRS = 15
REST_S, SETTLED_S = 30.0, 5.0
#: Screens with the keys that lead to each from the map, and a text that the screen shows.
_ALONE = (
    ("the map", "", "processors"),
    ("the launch form", "n", "program"),
    ("the table of launchers", "1", "launchers"),
    ("the table of nodes", "3", "nodes"),
    ("the table of events", "4", "events"),
    ("the table of jobs", "7", "jobs"),
    ("the help", "?", "escape"),
    ("the palette", "\x10", "actions"),
)


def console_start() -> list[Row]:
    """CPU seconds until the first picture of a real mesh, in turn with an import of Textual alone."""
    ours: list[float] = []
    theirs: list[float] = []
    checked: list[float] = []
    with mesh(8, 4) as made:
        for _ in range(PAIRS + 1):
            theirs.append(_import())
            with _console(made) as one:
                ours.append(one.cpu_s)
                _await_status(one)
                checked.append(one.cpu_s)
    took, whole, bare = (statistics.median(some[1:]) for some in (ours, checked, theirs))
    return [
        Row("console's CPU until its first picture, children included (s)", "`import textual.app`", took, bare,
            Bar(1.35, 1.2)),
        Row("console's CPU until `mesh status` has ended for the first time (s)", "`import textual.app`", whole, bare,
            Bar(2.1, 1.8)),
    ]  # fmt: skip


def console_rest() -> list[Row]:
    """The share of a core on each screen of a real mesh, while nothing changes."""
    rows = []
    with mesh(8, 4) as made:
        for what, keys, shown in _ALONE:
            with _console(made) as one:
                if keys:
                    one.key(keys, shown)
                rows.append(_at_rest(one, what))
        number = _submit(made)
        with _console(made) as one:
            one.key("7", "jobs")
            one.key("e", number)  # the table shows a job that has ended only with the other ended ones
            one.key("\r", "of 1 task")
            rows.append(_at_rest(one, "a job that has ended"))
        made.run("yod", "--detach", "-sz", "4", "sleep", "1000", check=True)
        with _console(made) as one:
            one.key("a", "4 ranks")
            rows.append(_at_rest(one, "a launch that writes nothing"))
            one.key("s", "stacks")
            rows.append(_at_rest(one, "its stacks"))
        made.run("pingd", "-NoInquire", "-kill", "-all")
        with _console(made) as one:  # with the tab of the console before
            one.key(">", "4 ranks")
            rows.append(_at_rest(one, "a launch that has ended"))
        with _console(made) as one:
            one.key("1", "launchers")
            one.key("e", "ended")
            rows.append(_at_rest(one, "the history of launches"))
    return rows


def _at_rest(one: Screen, what: str) -> Row:
    time.sleep(SETTLED_S)
    cpu, own, written, began = one.cpu_s, one.own_s, one.written, time.perf_counter()
    time.sleep(REST_S)
    took = time.perf_counter() - began
    share, alone = (100 * used / took for used in (one.cpu_s - cpu, one.own_s - own))
    print(
        f"{what}: {share:.2f} % of a core, {alone:.2f} without children, {(one.written - written) / took:.0f} B/s",
        file=sys.stderr,
    )
    return Row(f"console's share of a core at rest: {what} (%)", "a core", share, 1.0, Bar(3, 1.5))


@contextmanager
def _console(made: PrivateMesh) -> Iterator[Screen]:
    one = Screen(made.database, made.home, 120, 40, variables=made.env)
    try:
        one.until(" of 8 free")
        yield one
    finally:
        one.close()


def _submit(made: PrivateMesh) -> str:
    """Run a job of tasks to its end; return its short name."""
    return made.run("mesh", "submit", "--wait", "--", "true", check=True).stdout.split()[-1][:8]


def _await_status(one: Screen) -> None:
    wait_until(lambda: one.children_s > 0, "mesh status ended")


def _import() -> float:
    """CPU seconds of the import of Textual alone."""
    child = subprocess.Popen([sys.executable, "-P", "-c", "import textual.app"], stdin=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime

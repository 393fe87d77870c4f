"""The merged stacks: one tree, what changed, and from a branch to its ranks; the launch and its yod are real."""

import sys
from pathlib import Path

import pytest

from console.settings import load
from console.tui.app import ConsoleApp
from console.tui.model.stacks import members, remarks, rows
from console.tui.screens.launch import RunScreen
from console.tui.screens.stacks import StacksScreen
from console.tui.widgets.output import OutputPane
from console.tui.widgets.stack_tree import StackTree
from tests.support.console import Keyboard, screen_text, until
from tests.support.mesh import MakeMesh


def call(function: str, ranks: str, *children: object, **facts: object) -> dict[str, object]:
    return {"function": function, "file": "x.c", "line": 3, "language": "c", "ranks": ranks, **facts,
            "children": list(children)}  # fmt: skip


TREE = [
    call("main", "0-3", call("MPI_Barrier", "0-2", call("poll", "0-2")), call("MPI_Recv", "3", file="\x1b]0;t\x07"))
]


def test_calls_inside_mpi_are_folded_and_branches_on_demand() -> None:
    assert [row.call for row in rows(TREE, whole=False)] == ["main", "MPI_Barrier", "MPI_Recv"]
    assert [row.call for row in rows(TREE, whole=True)] == ["main", "MPI_Barrier", "poll", "MPI_Recv"]
    [row] = rows(TREE, whole=True, closed=frozenset([(0,)]))
    assert row.closed and row.size == 4


def test_helper_threads_of_libraries_are_folded_under_one_line_after_the_programs_own() -> None:
    tree = [
        call("clone3", "0-3",
             call("start_thread", "0-3",
                  call("ucs_async_thread_func", "0-3", call("epoll_wait", "0-3")),
                  call("progress_engine", "0-1", file="libpmix.so.2"),
                  call("worker", "2", call("compute", "2")))),
        call("main", "0-3", call("MPI_Barrier", "0-3", file="libmpi.so.40")),
    ]  # fmt: skip
    shown = rows(tree, whole=False)
    assert [row.call for row in shown] == [
        "clone3", "start_thread", "worker", "compute", "main", "MPI_Barrier", "helper threads of PMIx, UCX",
    ]  # fmt: skip
    last = shown[-1]
    assert last.closed and last.helpers and last.ranks == "0-3" and last.size == 4
    unfolded = rows(tree, whole=False, closed=frozenset([last.path]))
    assert [row.call for row in unfolded][-4:-2] == ["helper threads of PMIx, UCX", "ucs_async_thread_func"]
    assert [row.call for row in rows(tree[1:], whole=False)] == ["main", "MPI_Barrier"], "main is never a helper"


def test_nothing_a_terminal_would_act_on_comes_out() -> None:
    assert all("\x1b" not in row.where + row.call + row.ranks for row in rows(TREE, whole=True))
    told = {"hints": [{"text": "\x1b]0;t\x07"}], "missing": [{"ranks": "3", "node": "\x1b[2J", "why": "\x9b31m"}]}
    assert all("\x1b" not in text and "\x9b" not in text for _, text in remarks(told))


@pytest.mark.parametrize(("ranks", "found"), [("", set()), ("0-2,7", {0, 1, 2, 7}), ("nonsense", set())])
def test_the_ranks_of_a_branch(ranks: str, found: set[int]) -> None:
    assert members(ranks) == found


WAITS = """
import os, signal, time
def left(): time.sleep(100)
def right(): signal.pause()
signal.signal(signal.SIGUSR1, lambda *_: None)
print("begun", flush=True)
if os.environ["YOD_RANK"] < "2": left()
right()
print("moved on", flush=True)
time.sleep(100)
"""


async def test_from_the_tree_to_the_ranks_of_a_branch(mesh: MakeMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    small = mesh(processors=4, nodes=2)
    program = Path(small.work) / "waits.py"
    program.write_text(WAITS)
    launcher = int(small.run("yod", "--detach", "-sz", "4", sys.executable, str(program), check=True).stdout)
    app = ConsoleApp(load(environ=small.env))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        keys = Keyboard(pilot)
        app.attach(launcher)
        await until(keys, lambda: screen_text(app).count("begun") == 4, "all ranks run")
        await keys.press("s")
        await until(keys, lambda: isinstance(app.screen, StacksScreen) and app.screen._told, "the stacks")
        await until(keys, lambda: "left" in screen_text(app) and "right" in screen_text(app), "both branches")
        tree = app.screen.query_one(StackTree)
        at = next(at for at, row in enumerate(tree._rows) if row.call == "right")
        assert tree._rows[at].ranks == "2-3"
        pids = app.runs[launcher].pids

        def stopped() -> list[bool]:
            return [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T" for pid in pids]

        await keys.press(*["j"] * at, "H")
        await until(keys, lambda: stopped() == [False, False, True, True], "the ranks of the branch are stopped")
        await until(keys, lambda: app.screen._before, "the stacks are taken again by themselves")  # type: ignore
        await keys.press("C")
        await until(keys, lambda: not any(stopped()), "they go on")
        await until(keys, lambda: not app.screen._busy, "nothing is being taken")  # type: ignore
        await keys.press("Y", "D")
        small.run("yod", "-signal", "USR1", str(launcher), check=True)
        await keys.press("s")
        await until(keys, lambda: app.screen._before and "−2-3" in screen_text(app), "what changed")  # type: ignore
        await keys.press("D", "enter")
        await until(keys, lambda: isinstance(app.screen, RunScreen), "back")
        scope = app.screen.query_one(OutputPane).scope
        assert scope == members(tree._rows[at].ranks) or scope
        small.run("yod", "-signal", "KILL", str(launcher), check=True)
        await until(keys, lambda: "SIGKILL" in screen_text(app), "the end")

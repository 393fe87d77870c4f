"""The merged stacks: one tree, what changed, and from a branch to its ranks; the launch and its yod are real."""

import sys
from pathlib import Path

import pytest

from console.settings import load
from console.tui.app import ConsoleApp
from console.tui.model.stacks.beside import first_difference, pairs
from console.tui.model.stacks.rows import Row, members, outlier, remarks, rows
from console.tui.screens.launch import RunScreen
from console.tui.screens.stacks.beside import BesideScreen
from console.tui.screens.stacks.stacks import StacksScreen
from console.tui.sources.source_files import SourceFiles
from console.tui.widgets.output import OutputPane
from console.tui.widgets.stacks.source_pane import ending
from console.tui.widgets.stacks.stack_tree import StackTree
from tests.support.console import Keyboard, screen_text, until
from tests.support.mesh import MakeMesh


def call(function: str, ranks: str, *children: object, **facts: object) -> dict[str, object]:
    return {"function": function, "file": "x.c", "line": 3, "language": "c", "ranks": ranks, **facts,
            "children": list(children)}  # fmt: skip


def test_the_end_of_a_long_path_has_whole_names() -> None:
    path = "/home/ada/programs/mesh/work/deadlock.c:11"
    assert [ending(path, width) for width in (42, 30, 24, 14)] == [
        path, "…/mesh/work/deadlock.c:11", "…/work/deadlock.c:11", "…deadlock.c:11",
    ]  # fmt: skip


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
        at = next(at for at, row in enumerate(tree.rows) if row.call == "right")
        assert tree.rows[at].ranks == "2-3"
        pids = app.runs[launcher].pids

        def stopped() -> list[bool]:
            return [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T" for pid in pids]

        await keys.press("g", *["j"] * at, "H")
        await until(keys, lambda: stopped() == [False, False, True, True], "the ranks of the branch are stopped")
        await until(keys, lambda: app.screen._before, "the stacks are taken again by themselves")  # type: ignore
        held = app.screen._told  # type: ignore
        await keys.press("C")
        await until(keys, lambda: not any(stopped()), "they go on")
        await until(keys, lambda: app.screen._told is not held, "the stacks are taken again after SIGCONT, too")  # type: ignore
        await keys.press("Y", "D")
        small.run("yod", "-signal", "USR1", str(launcher), check=True)
        await keys.press("s")
        await until(keys, lambda: app.screen._before and "−2-3" in screen_text(app), "what changed")  # type: ignore
        await keys.press("D", "enter")
        await until(keys, lambda: isinstance(app.screen, RunScreen), "back")
        scope = app.screen.query_one(OutputPane).scope
        assert scope == members(tree.rows[at].ranks) or scope
        small.run("yod", "-signal", "KILL", str(launcher), check=True)
        await until(keys, lambda: "SIGKILL" in screen_text(app), "the end")


DEADLOCK = """
import os, signal, time
def wait_for_news():
    signal.pause()
def wait_for_everybody():
    time.sleep(1000)
if os.environ["YOD_RANK"] == "1":
    wait_for_news()
wait_for_everybody()
"""


async def test_six_keys_to_the_source_line_and_two_more_to_a_debugger(
    mesh: MakeMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = mesh(4)
    small.up()
    program = small.work / "deadlock.py"
    program.write_text(DEADLOCK)
    launcher = int(small.run("yod", "--detach", "-sz", "4", sys.executable, str(program), check=True).stdout)
    app = ConsoleApp(load(environ=small.env))
    asked: list[tuple[int, int, str]] = []
    monkeypatch.setattr("console.tui.app.lend", lambda _app, *words: asked.append(words) or "")
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        keys = Keyboard(pilot)
        await until(keys, lambda: "launchers (1)" in screen_text(app), "the map")
        await keys.press("a")  # 1: the launch under the cursor
        await until(keys, lambda: app.runs and app.runs[launcher].live, "the run")
        await keys.press("s")  # 2: its stacks
        await until(keys, lambda: "▶" in screen_text(app), "a source line")
        shown = screen_text(app)
        assert "wait_for_news deadlock.py:8" not in shown and "wait_for_news deadlock.py:4" in shown
        assert "wait_for_everybody deadlock.py:6" in shown, "who waits where"
        tree = app.screen.query_one(StackTree)
        assert tree.row is not None
        at = next(at for at, row in enumerate(tree.rows) if row.call == "wait_for_news")
        await keys.press("g", *["j"] * at)
        await until(keys, lambda: "1 ▶4      signal.pause()" in screen_text(app), "the line, and who stands there")
        await keys.press("d", "enter")  # two more
        assert asked == [(launcher, 1, "gdb")]
        await until(keys, lambda: app.screen._before, "taken again after a debugger")  # type: ignore
        await keys.press("S", "enter")
        await until(keys, lambda: screen_text(app).count("▶") == 2, "two ranks")
        assert isinstance(app.screen, BesideScreen)
        shown = screen_text(app)
        assert "rank 1 on" in shown and "rank 0 on" in shown and " ≠ " in shown
        await keys.press("x", "y", "escape")
        await keys.press("S", "ctrl+u", *"1 before", "enter")
        await until(keys, lambda: "no difference" in screen_text(app), "two moments")
        await keys.press("escape", "S", "ctrl+u", *"1 9")
        assert "rank 9 is not among these stacks" in screen_text(app)
        await keys.press("escape", "v")
        assert "▶" not in screen_text(app)
        program.unlink()
        await keys.press("v")
        app.screen._files = SourceFiles(app.settings.run_dir, launcher)  # type: ignore
        await keys.press("g", "j")
        await until(keys, lambda: "No such file" in screen_text(app), "why there is no source")
        small.run("yod", "-signal", "KILL", str(launcher), check=True)
        await until(keys, lambda: not app.runs[launcher].live, "the end")


def test_calls_that_are_equal_stand_beside_each_other() -> None:
    def row(name: str, line: int, depth: int, ranks: str = "0-1") -> Row:
        return Row((0,) * depth, depth, ranks, 2, name, f"x.c:{line}", "", "", False)

    left = [row("main", 1, 0), row("step", 5, 1), row("send", 9, 2)]
    right = [row("main", 1, 0), row("step", 6, 1), row("wait", 3, 2), row("poll", 4, 3)]
    found = pairs(left, right)
    assert [(a and a.call, b and b.call, differs) for a, b, differs in found] == [
        ("main", "main", False), ("step", "step", True), ("send", "wait", True), (None, "poll", True),
    ]  # fmt: skip
    assert first_difference(found) == 1 and first_difference(pairs(left, left)) == 0


def test_what_is_missing_is_said_once_for_all_nodes() -> None:
    missing = [{"ranks": "0-1", "node": "n0", "why": "no py-spy"}, {"ranks": "2", "node": "n1", "why": "no py-spy"}]
    told = {"hints": [], "missing": missing, "lacks": ["n0-n1: no source lines: install binutils"]}
    assert remarks(told) == [("missing", "rank 0-2 on n0-n1: no py-spy"),
                             ("missing", "n0-n1: no source lines: install binutils")]  # fmt: skip


def test_the_first_look_is_at_the_innermost_line_of_the_fewest_ranks() -> None:
    tree = [
        call("main", "0-3", call("all", "0,2-3"), call("one", "1", call("inner", "1", call("MPI_Recv", "1", line=0))))
    ]
    shown = rows(tree, whole=False)
    assert shown[outlier(shown, [{"ranks": "0-3"}])].call == "inner"
    assert shown[outlier(shown, [{"ranks": "0"}])].call == "all" and shown[outlier(shown, [])].call == "inner"
    assert outlier([], []) == 0


def test_the_first_look_at_python_is_at_the_users_line_not_in_a_library() -> None:
    library, own = {"path": "/usr/lib/python3.11/threading.py"}, {"path": "/home/ada/solve.py"}
    wait = call("wait", "1", **library)
    tree = [call("<module>", "0-1", call("step", "1", call("join", "1", wait, **library), **own), **own)]
    shown = rows(tree, whole=False)
    assert shown[outlier(shown, [])].call == "step"
    shown = rows([call("run", "0-1", wait, **library)], whole=False)
    assert shown[outlier(shown, [])].call == "wait", "no line is the user's"

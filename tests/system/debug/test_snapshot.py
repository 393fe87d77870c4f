"""A node's own part of mesh stacks, with each of the tools alone, with none, and with tools that fail or never end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.link.loop import Loop
from agents.linux import processes
from agents.pct.debug import crash, faulthandler, snapshot, stack_tree
from agents.pct.debug import libdw as unwinding
from agents.pct.debug.snapshot import Snapshot
from agents.pct.files.yodio import YODIO
from redmesh import idset
from tests.support.places import paths, places
from tests.support.waiting import PATIENCE_S, freeze, wait_until

__all__ = ["places"]

Begin = Callable[..., list[list[int]]]
Told = tuple[Any, list[list[Any]]]  # tree, missing


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit for one tool on one rank is that of an idle machine, on which gdb takes a fifth of it."""
    monkeypatch.setattr(snapshot, "RANK_S", PATIENCE_S)


@pytest.fixture
def ranks(places: str) -> Iterator[Begin]:
    """Processes as a launch child has them: ``ranks(3)`` begins three and returns [rank, pid] of each."""
    begun: list[subprocess.Popen[bytes]] = []

    def begin(count: int, *command: str) -> list[list[int]]:
        for rank in range(count):
            env = {**os.environ, "YOD_RANK": str(rank)}
            begun.append(subprocess.Popen(command or [places], env=env, stdin=subprocess.DEVNULL))
        pids = [one.pid for one in begun[-count:]]
        wait_until(lambda: all(arrived(pid) for pid in pids), "they are there")
        return [[rank, pid] for rank, pid in enumerate(pids)]

    yield begin
    for one in begun:
        one.kill()
        one.wait()


def arrived(pid: int) -> bool:
    """Whether it sleeps in pause, or has computed for longer than it takes to begin (field 14: ticks of user time)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return "pause" in Path(f"/proc/{pid}/wchan").read_text() or int(fields[11]) >= 5


def take(ranks: list[list[int]], which: str = "all", **tools: str) -> Told:
    loop = Loop()
    told: list[Told] = []
    Snapshot(loop, "n0", ranks, which, tools, lambda tree, missing: told.append((tree, missing)))
    wait_until(lambda: loop.run_once(0.1) or told, "something is told", step_s=0.0)
    loop.close()
    reap(ranks)
    return told[0]


def reap(ranks: list[list[int]]) -> None:
    """The tools, as the launch child's loop does; the ranks are the fixture's."""
    ours = {pid for _, pid in ranks}
    for pid in processes.children(os.getpid()):
        if pid not in ours and processes.state(pid) == "Z":
            os.waitpid(pid, 0)


def found(told: Told) -> dict[str, str]:
    def nested(tree: stack_tree.Tree) -> list[dict[str, object]]:
        return [
            {"function": call[0], "ranks": idset.text(node.ranks), "children": nested(node.below)}
            for call, node in tree.items()
        ]

    return paths(nested(told[0]))


def only(monkeypatch: pytest.MonkeyPatch, *names: str, libdw: bool = False) -> None:
    real = crash.find
    monkeypatch.setattr(crash, "find", lambda name: real(name) if name in names else "")
    if not libdw:
        monkeypatch.setattr(unwinding, "LIBRARY", "libnosuch.so.1")


@pytest.mark.parametrize("tool", ["libdw", "eu-stack", "gdb"])
def test_each_tool_alone(ranks: Begin, monkeypatch: pytest.MonkeyPatch, tool: str) -> None:
    here = ranks(3)
    only(monkeypatch, tool, "eu-addr2line", libdw=tool == "libdw")
    told = take(here)
    assert told[1] == []
    calls = found(told)
    assert calls["main/wait_here"] == "0,2" and calls["main/compute"] == "1" and calls["helper/wait_here"] == "0"
    lines = {(call[0], call[1], call[2]) for _, call, _ in stack_tree.walk(told[0])}
    assert ("compute", "places.c", 5) in lines
    assert all(processes.alive(pid) and processes.state(pid) in "SR" for _, pid in here)


@pytest.mark.parametrize("pie", [True, False])
def test_lines_come_from_binutils_where_elfutils_has_no_addr2line(
    ranks: Begin, places: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pie: bool
) -> None:
    source = tmp_path / "here.c"
    source.write_text("#include <unistd.h>\nint wait_here(void) {\n  return pause();\n}\nint main(void) {\n"
                      "  return wait_here();\n}\n")  # fmt: skip
    program = str(tmp_path / "here")
    subprocess.run(["gcc", "-g", "-O0", *([] if pie else ["-no-pie"]), "-o", program, source], check=True)
    here = ranks(1, program)
    only(monkeypatch, "addr2line", libdw=True)
    loop, told = Loop(), []
    shot = Snapshot(loop, "n0", here, "all", {}, lambda tree, _: told.append(tree))
    wait_until(lambda: loop.run_once(0.1) or told, "something is told", step_s=0.0)
    loop.close()
    reap(here)
    calls = {call[:3] for _, call, _ in stack_tree.walk(told[0])}
    assert {("main", "here.c", 6), ("wait_here", "here.c", 3)} <= calls
    assert shot.sources.path("wait_here", "here.c") == str(source) and not shot.sources.lacks


def test_what_is_missing_for_lines_is_said_once_with_its_package(
    ranks: Begin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    only(monkeypatch, libdw=True)
    loop, told = Loop(), []
    shot = Snapshot(loop, "n0", here := ranks(2), "all", {}, lambda tree, _: told.append(tree))
    wait_until(lambda: loop.run_once(0.1) or told, "something is told", step_s=0.0)
    loop.close()
    reap(here)
    [[text, nodes]] = shot.sources.as_message()["lacks"]
    assert nodes == ["n0"] and "elfutils (eu-addr2line) or binutils (addr2line)" in text


def test_no_tool_at_all(ranks: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    here = ranks(2)
    only(monkeypatch)
    tree, missing = take(here)
    assert tree == {} and {row[0] for row in missing} == {"0", "1"}
    for _, node, why in missing:
        assert node == "n0" and "no stack tool on n0: install elfutils (eu-stack) or gdb there; it stands in" in why


def test_names_are_kept_where_lines_cannot_be_had(ranks: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    here = ranks(1)
    only(monkeypatch, libdw=True)
    told = take(here)
    assert found(told)["main/wait_here"] == "0" and {call[2] for _, call, _ in stack_tree.walk(told[0])} == {0}


def test_a_tool_that_never_ends(ranks: Begin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = ranks(2)
    slow = tmp_path / "eu-stack"
    slow.write_text(f'#!/bin/sh\n[ $3 = {here[0][1]} ] && exec sleep 600\nexec {crash.find("eu-stack")} "$@"\n')
    slow.chmod(0o755)
    only(monkeypatch)
    monkeypatch.setattr(crash, "find", lambda name: str(slow) if name == "eu-stack" else "")
    monkeypatch.setattr(snapshot, "RANK_S", 0.5)
    before = set(processes.children(os.getpid()))  # other fixtures' servers among them
    told = take(here)
    assert found(told)["main/compute"] == "1"
    assert [row[0] for row in told[1]] == ["0"] and "eu-stack was not done in time" in told[1][0][2]
    wait_until(lambda: reap(here) or set(processes.children(os.getpid())) <= before, "the tool has been killed")


def test_a_helper_that_never_ends_or_dies(ranks: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    here = ranks(3)
    real = unwinding._Stacks.of
    stuck, dies = here[0][1], here[1][1]

    def of(self: Any, pid: int) -> Any:
        if pid == stuck:
            signal.pause()
        if pid == dies:
            os.kill(os.getpid(), signal.SIGSEGV)
        return real(self, pid)

    monkeypatch.setattr(unwinding._Stacks, "of", of)
    monkeypatch.setattr(snapshot, "RANK_S", 1.0)
    told = take(here)
    assert found(told)["main/wait_here"] == "0,2" and found(told)["main/compute"] == "1", "the tools went on"
    assert told[1] == []


def test_a_rank_that_has_ended_is_named_and_the_others_are_taken(ranks: Begin) -> None:
    here = ranks(2)
    os.kill(here[0][1], signal.SIGKILL)
    wait_until(lambda: processes.state(here[0][1]) == "Z", "it is a zombie")
    told = take(here)
    assert told[1] == [["0", "n0", "its process has ended"]] and found(told)["main/compute"] == "1"


def test_nobody_elses_py_spy_is_run(ranks: Begin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = ranks(1, sys.executable, "-c", "import signal; signal.pause()")
    marker = tmp_path / "ran"
    spy = tmp_path / "py-spy"
    spy.write_text(f"#!/bin/sh\ntouch {marker}\n")
    spy.chmod(0o777)  # anybody may change it
    only(monkeypatch, "eu-stack", libdw=True)
    told = take(here, **{"py-spy": str(spy)})
    assert not marker.exists() and "Python's own calls need py-spy" in told[1][0][2]
    assert told[0], "its C calls are there"
    spy.chmod(0o755)
    told = take(here, **{"py-spy": str(spy)})
    assert marker.exists() and "Python's own calls: py-spy found none" in told[1][0][2]


SAYS_ITSELF = """
import threading, signal, sys
sys.path.insert(0, {yodio!r})
import yodpdb
def helper():
    threading.Event().wait()
def stand():
    signal.pause()
threading.Thread(target=helper, daemon=True).start()
yodpdb.debug_on_request()
while True:
    stand()
"""


def test_a_python_rank_says_itself_where_it_stands(ranks: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no tool at all, and no ptrace."""
    here = ranks(2, sys.executable, "-c", SAYS_ITSELF.format(yodio=YODIO))
    wait_until(lambda: all(faulthandler.offered(pid)[0] for _, pid in here), "they offer it")
    only(monkeypatch, "none")
    for _ in range(2):
        told = take(here)
        calls = found(told)
        assert calls["<module>/stand"] == "0-1" and any(path.endswith("helper/wait") for path in calls), calls
        assert all("py-spy" not in why for _, _, why in told[1])
    told = take(here, "python")
    assert told[1] == [] and found(told)["<module>/stand"] == "0-1"
    freeze(here[1][1])  # who is stopped says nothing, and is not waited for
    told = take(here, "python")
    assert found(told)["<module>/stand"] == "0" and told[1][0][0] == "1" and "py-spy" in told[1][0][2]

"""mesh stacks: real ranks in C, MPI, Python and scripts, that run, wait, are stopped, held, traced or gone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agents.link.client import Client
from agents.linux import processes
from console.launch.attach.client import send_signal
from console.launch.attach.stacks import as_told, take
from console.launch.daemons.connect import yod_socket
from tests.support.mesh import PrivateMesh
from tests.support.mpis import compiled, needs_mpich, with_mpi4py
from tests.support.places import Begin, begin, paths, pid_of, places
from tests.support.shared_mesh import borrowed_mesh as one_mesh
from tests.support.waiting import PATIENCE_S, freeze, wait_until
from tests.support.yods import ranks_left, yods

__all__ = ["begin", "one_mesh", "places", "yods"]

pytestmark = pytest.mark.skipif(not shutil.which("eu-stack"), reason="no eu-stack here (Debian: elfutils)")


def taken(yods: PrivateMesh, launcher: str, **options: Any) -> Any:
    """What ``mesh stacks LAUNCHER --json`` prints, without the start of a command."""
    return take(str(yods.run_dir), int(launcher), **options)


def until_there(yods: PrivateMesh, launcher: str, path: str, ranks: str, **options: Any) -> Any:
    """What is told once ``ranks`` have come to ``path``."""
    last: list[Any] = [None]

    def there() -> bool:
        last[0] = taken(yods, launcher, **options)
        return paths(last[0]["tree"]).get(path) == ranks

    missed = lambda: f"{ranks} in {path}: {paths(last[0]['tree'])}, {last[0]['missing']}"  # noqa: E731
    wait_until(there, missed, step_s=0.1)  # each look starts processes on every node
    return last[0]


def ask(yods: PrivateMesh, launcher: str, py_spy: str) -> Any:
    """What is told to somebody whose py-spy is a certain file."""
    with Client(yod_socket(str(yods.run_dir), int(launcher)), "observer", 60) as client:
        client.tell({"op": "stacks", "limit_s": 30, "tools": {"py-spy": py_spy}})
        return as_told(client.receive())


def test_who_waits_and_who_computes(yods: PrivateMesh, begin: Begin, places: str) -> None:
    launcher = begin("-sz", "6", places, "5")
    told = until_there(yods, launcher, "main/wait_here", "0,2,4")
    found = paths(told["tree"])
    assert found["main/compute"] == "1,5" and found["helper/wait_here"] == "0"
    assert told["missing"] == [{"ranks": "3", "node": "", "why": "it has ended"}]
    assert told["ranks"] == 6 and told["launcher"] == int(launcher) and told["hints"] == []
    here = [one for root in told["tree"] for one in root["children"] if one["function"] == "compute"]
    assert [(one["file"], one["line"], one["language"]) for one in here] == [("places.c", 5, "c")]
    some = yods.json("mesh", "stacks", launcher, "--ranks", "4..5", "--native")
    assert {one["ranks"] for one in some["tree"]} == {"4", "5"} and not some["missing"]
    lines = yods.run("mesh", "stacks", launcher, check=True).stdout.splitlines()
    assert "  [1,5] compute places.c:5" in lines
    assert any(line.startswith("[0,2,4] main places.c:") for line in lines), lines


def test_a_rank_is_as_it_was_before(yods: PrivateMesh, begin: Begin, places: str) -> None:
    launcher = begin("-sz", "2", places, "1")
    until_there(yods, launcher, "main/compute", "1")
    ranks = (waiting, computing) = [pid_of(yods, launcher, rank) for rank in range(2)]
    assert processes.state(computing) == "R" and processes.state(waiting) == "S"
    send_signal(str(yods.run_dir), int(launcher), signal.SIGSTOP)
    wait_until(lambda: all(processes.state(pid) == "T" for pid in ranks), "both are stopped")
    assert paths(taken(yods, launcher)["tree"])["main/compute"] == "1"
    assert all(processes.state(pid) == "T" for pid in ranks), "stopped they were, stopped they stay"
    send_signal(str(yods.run_dir), int(launcher), signal.SIGCONT)
    wait_until(lambda: processes.state(computing) == "R", "it computes again")


def test_ranks_that_cannot_be_read(yods: PrivateMesh, begin: Begin, places: str) -> None:
    launcher = begin("-sz", "4", places)
    until_there(yods, launcher, "main/compute", "1")
    rank = pid_of(yods, launcher, 2)
    strace = subprocess.Popen(["strace", "-p", str(rank)], stderr=subprocess.PIPE)
    try:
        assert strace.stderr is not None and strace.stderr.readline()
        told = taken(yods, launcher)
        assert {(one["ranks"], one["why"]) for one in told["missing"]} == {
            ("2", f"it is traced by strace {strace.pid}"), ("3", "it has ended"),
        }  # fmt: skip
        assert paths(told["tree"])["main/wait_here"] == "0"
    finally:
        strace.terminate()
        strace.communicate()


def test_ranks_that_yod_itself_watches(yods: PrivateMesh, begin: Begin, places: str, tmp_path: Path) -> None:
    for word, why in (("-bt", "it is watched for faults (yod -bt)"), (f"-strace={tmp_path}", "it is traced by strace")):
        both = ("-stracenodes", "all") if word.startswith("-strace") else ()
        launcher = begin(word, *both, "-sz", "2", places)
        wait_until(lambda: why in str(taken(yods, launcher)["missing"]), "they are watched")  # noqa: B023
        done = yods.run("mesh", "stacks", launcher, "--json")
        told = json.loads(done.stdout)
        assert done.returncode == 1, "nothing could be read"
        assert told["tree"] == [] and told["missing"], told
        assert all(one["why"].startswith(why) for one in told["missing"]), told["missing"]
    plain = yods.run("mesh", "stacks", launcher)
    assert plain.stdout == "" and why in plain.stderr


def test_while_it_is_held(yods: PrivateMesh, begin: Begin, places: str) -> None:
    launcher = begin("--hold", "-sz", "4", places)
    wait_until(lambda: taken(yods, launcher)["tree"] != [], "stacks of a held launch")
    told = taken(yods, launcher)
    assert [(one["function"], one["ranks"]) for one in told["tree"]] == [("_start", "0-3")] and not told["missing"]
    assert all(processes.state(pid) == "T" for pid in ranks_left(yods))
    yods.run("yod", "--release", launcher, check=True)
    until_there(yods, launcher, "main/wait_here", "0,2")


def test_what_a_script_runs(yods: PrivateMesh, begin: Begin, places: str) -> None:
    launcher = begin("-sz", "2", "bash", "-c", f"{places}; echo done")
    assert paths(until_there(yods, launcher, "main/wait_here", "0")["tree"])["main/compute"] == "1"


def test_a_node_that_stands_still_holds_nobody_up(yods: PrivateMesh, begin: Begin, places: str) -> None:
    launcher = begin("-sz", "6", places)
    until_there(yods, launcher, "main/wait_here", "0,2,4")
    child = processes.parent(pid_of(yods, launcher, 4))
    freeze(child)
    try:
        told = yods.json("mesh", "stacks", launcher, "--limit", "1.5")
    finally:
        os.kill(child, signal.SIGCONT)
    assert {"ranks": "4-5", "node": "n2", "why": "no answer in time"} in told["missing"]
    assert paths(told["tree"])["main/wait_here"] == "0,2"
    until_there(yods, launcher, "main/wait_here", "0,2,4")


def test_several_ask_at_once(yods: PrivateMesh, begin: Begin, places: str) -> None:
    launcher = begin("-sz", "4", places)
    until_there(yods, launcher, "main/wait_here", "0,2")
    with ExitStack() as stack:
        path = yod_socket(str(yods.run_dir), int(launcher))
        asking = [stack.enter_context(Client(path, "observer", PATIENCE_S)) for _ in range(3)]
        for one in asking:
            one.tell({"op": "stacks"})
        for one in asking:
            assert paths(as_told(one.receive())["tree"])["main/wait_here"] == "0,2"
    ends = yods.start("mesh", "stacks", launcher, "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    send_signal(str(yods.run_dir), int(launcher), signal.SIGKILL)
    ends.communicate()
    assert ends.returncode in (0, 1, 125), "the end of the launch is the end of the question"


PY_SPY = Path(sys.executable).parent / "py-spy"
SCRIPT = """
import os, threading, time

def work():
    threading.Event().wait()

def wait_here():
    time.sleep(600)

def count(n):
    while True:
        n += time.sleep(0.001) or 1

threading.Thread(target=work, daemon=True).start()
wait_here() if os.environ["YOD_RANK"] != "1" else count(0)
"""


def test_python_and_c_in_one_tree(yods: PrivateMesh, begin: Begin, tmp_path: Path) -> None:
    if not (Path(sys.executable).parent / "py-spy").exists() and not shutil.which("py-spy"):
        pytest.skip("no py-spy here (pip install py-spy)")
    (tmp_path / "work.py").write_text(SCRIPT)
    launcher = begin("-sz", "4", sys.executable, str(tmp_path / "work.py"))
    told = until_there(yods, launcher, "<module>/wait_here", "0,2-3")
    found = paths(told["tree"])
    assert found["<module>/count"] == "1" and not told["missing"]
    assert found["<module>/wait_here/clock_nanosleep"] == "0,2-3", "below Python's call the C call that it made"
    assert found["Thread._bootstrap/Thread._bootstrap_inner/Thread.run/work/Event.wait/Condition.wait"] == "0-3"
    module = told["tree"][0]
    assert (module["ranks"], module["file"], module["line"], module["language"]) == ("0-3", "work.py", 15, "python")
    python = paths(yods.json("mesh", "stacks", launcher, "--python")["tree"])
    assert "<module>/wait_here" in python and not any("clock_nanosleep" in path for path in python)
    native = paths(taken(yods, launcher, which="native")["tree"])
    assert any(path.endswith("/clock_nanosleep") for path in native) and "<module>" not in native


def travelled(mesh: PrivateMesh) -> set[Path]:
    """Directories of tools that came to nodes of this mesh: ``launch-NAMESPACE-PID-…-tools``."""
    found = Path(f"/dev/shm/redmesh-{os.geteuid()}").glob("*-tools")
    return {path for path in found if int(path.name.split("-")[2]) in mesh.processes()}


def test_py_spy_travels_to_nodes_that_lack_it(yods: PrivateMesh, begin: Begin, tmp_path: Path) -> None:
    if not PY_SPY.exists():
        pytest.skip("no py-spy here (pip install py-spy)")
    (tmp_path / "work.py").write_text(SCRIPT)
    launcher = begin("-sz", "3", "-nodes", "3", sys.executable, str(tmp_path / "work.py"))
    kept = tmp_path / "py-spy"
    shutil.copy(PY_SPY, kept)
    kept.chmod(0o644)  # nodes cannot run it where it stands

    for _ in range(2):  # the second time it is there
        told = ask(yods, launcher, str(kept))
        assert told["missing"] == [] and paths(told["tree"])["<module>/wait_here"] == "0,2", told["missing"]
    new = travelled(yods)
    assert len(new) == 3, "one on each node"
    send_signal(str(yods.run_dir), int(launcher), signal.SIGKILL)
    wait_until(lambda: not any(path.exists() for path in new), "gone with the launch")


def test_through_a_narrow_tree(yods: PrivateMesh, begin: Begin, tmp_path: Path) -> None:
    """What is asked, told, fetched and typed passes through the nodes between."""
    if not PY_SPY.exists():
        pytest.skip("no py-spy here (pip install py-spy)")
    (tmp_path / "work.py").write_text(SCRIPT)
    launcher = begin("--fanout", "2", "-sz", "4", "-nodes", "4", sys.executable, str(tmp_path / "work.py"))
    told = until_there(yods, launcher, "<module>", "0-3", which="python")
    assert not told["missing"]
    said = yods.run(
        "mesh", "debug", launcher, "3", "--", "sh", "-c", "echo {pid}; read line; echo $line", input="yes\n"
    )
    # what is typed early is echoed before the program says anything
    assert {str(pid_of(yods, launcher, 3)), "yes"} == set(said.stdout.split())
    kept = tmp_path / "py-spy"
    shutil.copy(PY_SPY, kept)
    kept.chmod(0o644)
    told = ask(yods, launcher, str(kept))
    assert told["missing"] == [] and paths(told["tree"])["<module>/wait_here"] == "0,2-3", told["missing"]


def test_no_py_spy_anywhere(yods: PrivateMesh, begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(SCRIPT)
    launcher = begin("-sz", "4", sys.executable, str(tmp_path / "work.py"))
    anybodys = tmp_path / "py-spy"
    anybodys.write_text("#!/bin/sh\n")
    anybodys.chmod(0o777)
    for path, why in (("/nowhere/py-spy", "cannot be read: No such file"), (str(anybodys), "there is no py-spy")):
        told = ask(yods, launcher, path)
        assert {one["ranks"] for one in told["missing"]} == {"0-1", "2-3"} and told["tree"], "C's calls are there"
        assert all(why in one["why"] for one in told["missing"]), told["missing"]


@needs_mpich
def test_a_deadlock_is_named(yods: PrivateMesh, begin: Begin, tmp_path: Path) -> None:
    launcher = begin("-sz", "4", compiled("examples/deadlock/deadlock.c", tmp_path, "-g"))
    told = until_there(yods, launcher, "main/wait_for_everybody/PMPI_Barrier", "0,2-3")
    send_signal(str(yods.run_dir), int(launcher), signal.SIGSTOP)  # ranks that wait in MPICH need whole processors
    assert paths(told["tree"])["main/wait_for_news/PMPI_Recv"] == "1"
    (hint,) = told["hints"]
    assert hint["kind"] == "deadlock" and hint["ranks"] == "0-3"
    assert "ranks 0,2-3 in MPI_Barrier (deadlock.c:16); rank 1 in MPI_Recv (deadlock.c:11)" in hint["text"]
    said = yods.run("mesh", "stacks", launcher)
    assert "mesh: hint (deadlock): ranks 0,2-3 in MPI_Barrier (deadlock.c:16)" in said.stderr
    assert "MPIR_" not in said.stdout
    page = (Path(__file__).parents[3] / "docs/stacks.md").read_text()
    shown = [line for line in said.stdout.splitlines() if "deadlock.c" in line]
    assert len(shown) == 4 and all(f"\n{line}\n" in page for line in shown)
    assert said.stderr.strip() in page
    one = taken(yods, launcher, ranks="1")
    assert paths(one["tree"])["main/wait_for_news/PMPI_Recv"] == "1" and one["missing"] == []
    assert one["hints"] == [], "ranks that were not looked at may send"
    (hint,) = taken(yods, launcher, ranks="0-1")["hints"]
    assert (hint["kind"], hint["ranks"]) == ("different-calls", "0-1")
    assert hint["text"].startswith("of the 2 ranks looked at (of 4 that run): rank 0 in MPI_Barrier")


def test_a_deadlock_of_mpi4py_is_named(yods: PrivateMesh, begin: Begin) -> None:
    launcher = begin("-sz", "4", *with_mpi4py(), str(Path(__file__).parents[3] / "examples/deadlock/deadlock.py"))
    told = until_there(yods, launcher, "<module>/meet", "0,2-3")
    (hint,) = [hint for hint in told["hints"] if hint["kind"] == "deadlock"]
    assert "ranks 0,2-3 in MPI_Barrier (deadlock.py:13)" in hint["text"] and "(deadlock.py:9)" in hint["text"]


def test_what_there_is_not(yods: PrivateMesh, begin: Begin, places: str) -> None:
    nobody = yods.run("mesh", "stacks", "99999")
    assert nobody.returncode == 125 and "launcher 99999 does not run" in nobody.stderr
    launcher = begin("-sz", "2", places)
    beyond = yods.run("mesh", "stacks", launcher, "--ranks", "1-2")
    assert beyond.returncode == 125 and f"launcher {launcher} has ranks 0 to 1" in beyond.stderr
    assert yods.run("mesh", "stacks", launcher, "--ranks", "x").returncode == 2


OTHER = """
import os, sys
sys.path.insert(0, sys.argv[1])
from agents.link.sockets import connect  # before: the other one may not read our Python's library
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
try:
    connect(sys.argv[2])
except OSError as error:
    print(type(error).__name__)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_nobody_else_sees_into_it(yods: PrivateMesh, begin: Begin, places: str) -> None:
    launcher = begin("-sz", "2", places)
    until_there(yods, launcher, "main/wait_here", "0")
    sock = yods.run_dir / f"yod-{launcher}.sock"
    root = str(Path(__file__).parents[3])
    command = [sys.executable, "-P", "-c", OTHER, root, str(sock)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "PermissionError\n", done.stderr
    # and if the directory were open and the socket too, yod itself looks who it is
    opened = [yods.home, yods.home / "run", yods.run_dir.parent, yods.run_dir]
    before = [path.stat().st_mode for path in opened]
    try:
        for path in opened:
            path.chmod(0o755)
        sock.chmod(0o666)
        asking = f"""
import socket
import os
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
sock = socket.socket(socket.AF_UNIX)
sock.settimeout(20)
sock.connect({str(sock)!r})
print(sock.recv(100))
"""
        done = subprocess.run([sys.executable, "-P", "-c", asking], capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.stdout == "b''\n" or "ConnectionResetError" in done.stderr, (done.stdout, done.stderr)
    finally:
        for path, mode in zip(opened, before, strict=True):
            path.chmod(mode)


def test_without_a_launcher_the_only_one_of_mine_is_meant(yods: PrivateMesh, begin: Begin) -> None:
    none = yods.run("mesh", "stacks")
    assert none.returncode == 2 and none.stderr.startswith("mesh: no launch of yours runs"), none.stderr
    first = begin("-sz", "1", "sleep", "600")
    assert yods.json("mesh", "stacks")["launcher"] == int(first)
    assert len(yods.json("mesh", "procs")) == 1
    second = begin("-sz", "1", "sleep", "600")
    two = yods.run("mesh", "procs")
    assert two.returncode == 2 and f"{first} (sleep 600), {second} (sleep 600)" in two.stderr

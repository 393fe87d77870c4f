"""yod beyond the plain way, by the real commands: stacks, hold, sleep, strace, log, priority, terminal, binding."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.linux import processes
from tests.support.compilers import has_rustc
from tests.support.mesh import PrivateMesh
from tests.support.shared_mesh import borrowed_mesh as one_mesh
from tests.support.terminals import Typist
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.yods import ranks_left, yods

__all__ = ["one_mesh", "yods"]  # fixtures

CRASH = """
#include <stdlib.h>
#include <string.h>
__attribute__((noinline)) static int inner(int *p) { return *p + 1; }
__attribute__((noinline)) static int outer(int *p) { return inner(p) * 2; }
int main(int argc, char **argv) { if (argc > 1 && !strcmp(argv[1], "abort")) abort(); return outer(0); }
"""
GO = """package main
import ("fmt"; "os"; "syscall"; "time")
//go:noinline
func deep(p *int) int {
	if os.Args[1] == "abort" { syscall.Kill(os.Getpid(), syscall.SIGABRT); time.Sleep(time.Minute) }
	return *p
}
func main() { fmt.Println(deep(nil)) }
"""
RUST = """
#[inline(never)] fn deep(p: *const i32) -> i32 { unsafe { std::ptr::read_volatile(p) } }
fn main() { println!("{}", deep(8 as *const i32)); }
"""
has_tool = any(os.access(f"/usr/bin/{name}", os.X_OK) for name in ("eu-stack", "gdb"))


@pytest.fixture(scope="module")
def crash(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("crash")
    (folder / "crash.c").write_text(CRASH)
    subprocess.run(["gcc", "-g", "-O0", "-o", folder / "crash", folder / "crash.c"], check=True)
    return str(folder / "crash")


# --- stacks


@pytest.mark.parametrize(("argument", "name", "status"), [("segv", "SIGSEGV", 139), ("abort", "SIGABRT", 134)])
def test_the_stack_of_a_c_program_stands_behind_its_completion_line(
    yods: PrivateMesh, crash: str, argument: str, name: str, status: int
) -> None:
    done = yods.run("yod", "-bt", "-sz", "3", crash, argument)
    assert done.returncode == status
    lines = done.stderr.splitlines()
    completion = next(at for at, line in enumerate(lines) if f"rank 0-2 on n0-n1: {name}" in line)
    stacks = [at for at, line in enumerate(lines) if ": stack" in line]
    assert stacks == [completion + 1] and "rank 0-2 on n0-n1" in lines[stacks[0]]
    if has_tool:
        wanted = ("main",) if argument == "abort" else ("inner at", "crash.c:4", "outer at", "main at")
        for part in wanted:
            assert any(part in line for line in lines[stacks[0] :]), part
    else:
        assert "symbols are missing" in done.stderr


def test_the_stack_of_a_python_program(yods: PrivateMesh) -> None:
    code = "import ctypes\ndef deep():\n    ctypes.string_at(0)\ndeep()\n"
    (yods.work / "crash.py").write_text(code)
    done = yods.run("yod", "-g", sys.executable, "crash.py")
    assert done.returncode == 139
    assert 'crash.py", line 3 in deep' in done.stderr, "its own run-time tells its frames"
    assert "rank 0 on n0: stack" in done.stderr and "Python's own frames" in done.stderr


def test_the_stack_of_a_rust_program(yods: PrivateMesh) -> None:
    if not has_rustc() or not has_tool:
        pytest.skip("no rustc here, or nothing that takes stacks")
    (yods.work / "crash.rs").write_text(RUST)
    subprocess.run(["rustc", "-g", "crash.rs", "-o", "crash-rs"], cwd=yods.work, check=True, capture_output=True)
    done = yods.run("yod", "-bt", "./crash-rs")
    assert done.returncode == 139 and "crash::deep" in done.stderr and "crash.rs:2" in done.stderr


@pytest.mark.skipif(not shutil.which("go") or not has_tool, reason="no Go here, or nothing that takes stacks")
@pytest.mark.parametrize("how", ["segv", "abort"])
def test_the_stack_of_a_go_program(yods: PrivateMesh, how: str) -> None:
    (yods.work / "crash.go").write_text(GO)
    build = {**os.environ, "GOCACHE": str(yods.home / "go"), "GO111MODULE": "off"}
    subprocess.run(
        ["go", "build", "crash.go"], cwd=yods.work, env=build, check=True, capture_output=True, timeout=PATIENCE_S
    )
    done = yods.run("yod", "-bt", "-sz", "2", "./crash", how)
    assert done.returncode == 134
    assert done.stderr.count("main.deep(") == 2 and "crash.go:" in done.stderr, "its run-time tells what it called"
    ours = [line for line in done.stderr.splitlines() if line.startswith("yod:")]
    assert any("runtime.sigtramp" in line for line in ours) and any("what Go called is in" in line for line in ours)


def test_every_rank_crashes_and_the_stack_is_told_once(yods: PrivateMesh, crash: str) -> None:
    done = yods.run("yod", "-bt", "-overcommit", "-list", "n0,n3", "-sz", "6", crash)
    assert done.returncode == 139
    assert done.stderr.count(": stack") == 1 and "rank 0-5 on n0,n3: stack" in done.stderr


def test_a_stack_is_an_event_of_the_stream(yods: PrivateMesh, crash: str) -> None:
    done = yods.run("yod", "-bt", "-json", crash)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (stack,) = [event for event in events if event["event"] == "backtrace"]
    assert (stack["rank"], stack["node"], stack["signal"]) == (0, "n0", signal.SIGSEGV)
    assert [event["event"] for event in events].index("backtrace") < [event["event"] for event in events].index("exit")


def test_signals_from_outside_and_handled_ones_make_no_stack(yods: PrivateMesh) -> None:
    done = yods.run("yod", "-bt", "-sz", "2", "bash", "-c", "trap 'exit 3' SEGV; kill -SEGV $$; sleep 9")
    assert done.returncode == 3 and "stack" not in done.stderr
    done = yods.run("yod", "-bt", "bash", "-c", "kill -TERM $$")
    assert done.returncode == 143 and "stack" not in done.stderr


def test_threads_and_children_go_on_as_ever_under_bt(yods: PrivateMesh) -> None:
    code = (
        "import threading,subprocess\nt=[threading.Thread(target=subprocess.run,args=(['true'],)) for _ in range(20)]\n"
    )
    code += "[x.start() for x in t];[x.join() for x in t];print('all')"
    done = yods.run("yod", "-bt", "-sz", "2", sys.executable, "-c", code, check=True)
    assert done.stdout == "all\nall\n"


# --- hold


def held(mesh: PrivateMesh, process: "subprocess.Popen[str]", size: int) -> dict[int, int]:
    """Rank → pid as yod has told on stderr."""
    assert process.stderr is not None
    found = {}
    for _ in range(size):
        words = process.stderr.readline().split()
        found[int(words[2])] = int(words[6])
    assert "held at the first instruction" in process.stderr.readline()
    return found


def launcher_of(mesh: PrivateMesh) -> str:
    (name,) = [name for name in os.listdir(mesh.run_dir) if name.startswith("yod-")]
    return name.removeprefix("yod-").removesuffix(".sock")


def launcher_soon(mesh: PrivateMesh) -> str:
    wait_until(lambda: any(name.startswith("yod-") for name in os.listdir(mesh.run_dir)), "its socket is there")
    return launcher_of(mesh)


def start(mesh: PrivateMesh, *command: str) -> "subprocess.Popen[str]":
    return mesh.start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_held_ranks_have_run_nothing_and_a_debugger_may_attach(yods: PrivateMesh, crash: str) -> None:
    yod = start(yods, "yod", "--hold", "-sz", "3", crash)
    pids = held(yods, yod, 3)
    assert sorted(pids) == [0, 1, 2]
    for pid in pids.values():
        wait_until(lambda pid=pid: processes.state(pid) == "T", "it is stopped")
        status = Path(f"/proc/{pid}/status").read_text()
        assert "TracerPid:\t0\n" in status
    if os.access("/usr/bin/gdb", os.X_OK):
        looked = subprocess.run(
            ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-p", str(pids[0]), "-ex", "backtrace"],
            capture_output=True, text=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert "_start" in looked.stdout, looked.stdout + looked.stderr  # the loader's: nothing of the program has run
    yods.run("yod", "--release", launcher_soon(yods), check=True)
    assert yod.wait() == 139


def test_held_ranks_are_released_by_time(yods: PrivateMesh) -> None:
    done = yods.run("yod", "-alloc", "-release-after", "0.3", "-sz", "2", "echo", "ran", check=True)
    assert done.stdout == "ran\nran\n" and "released" in done.stderr


def test_ctrl_c_ends_a_held_launch(yods: PrivateMesh) -> None:
    yod = start(yods, "yod", "-attach", "-sz", "2", "sleep", "100")
    held(yods, yod, 2)
    yod.send_signal(signal.SIGINT)
    assert yod.wait() == 130


def test_held_ranks_go_with_their_yod(yods: PrivateMesh) -> None:
    yod = start(yods, "yod", "--hold", "-sz", "2", "sleep", "100")
    pids = held(yods, yod, 2)
    yod.kill()
    for pid in pids.values():
        wait_until(lambda pid=pid: not processes.alive(pid), "it is gone")


def test_a_detached_launch_is_held_and_its_stack_is_kept(yods: PrivateMesh, crash: str) -> None:
    launcher = yods.run("yod", "--detach", "--hold", "-sz", "2", "echo", "ran", check=True).stdout.strip()
    yods.run("yod", "--release", launcher, check=True)
    done = yods.run("yod", "--attach", launcher, check=True)
    assert done.stdout == "ran\nran\n" and f"yod --release {launcher}" in done.stderr
    launcher = yods.run("yod", "--detach", "-bt", "-sz", "2", crash, check=True).stdout.strip()
    done = yods.run("yod", "--attach", launcher)
    assert done.returncode == 139 and done.stderr.count("rank 0-1 on n0: stack") == 1


def test_ctrl_c_while_a_rank_is_looked_at(yods: PrivateMesh, crash: str) -> None:
    parked = False
    while not parked:  # they are parked for a moment, which a busy test may miss
        yod = start(yods, "yod", "-bt", "-overcommit", "-sz", "24", crash)
        wait_until(
            lambda: any(processes.state(pid) == "T" for pid in ranks_left(yods)) or yod.poll() is not None,  # noqa: B023
            "a rank is parked, or all have ended",
        )
        parked = yod.poll() is None
    for _ in range(2):
        yod.send_signal(signal.SIGINT)
    yod.communicate()
    assert yod.returncode in (130, 139)


def test_a_launch_that_is_not_held_is_not_released(yods: PrivateMesh) -> None:
    yod = start(yods, "yod", "sleep", "100")
    wait_until(lambda: any(name.startswith("yod-") for name in os.listdir(yods.run_dir)), "its socket is there")
    done = yods.run("yod", "--release", launcher_of(yods))
    assert done.returncode == 125 and "is not held" in done.stderr
    yod.terminate()
    yod.wait()


def test_a_program_that_gets_privilege_at_its_exec_keeps_it(yods: PrivateMesh) -> None:
    program = yods.work / "privileged"
    shutil.copy("/usr/bin/id", program)
    program.chmod(0o4755)
    done = yods.run("yod", "--hold", "-release-after", "0.2", "./privileged", "-u", check=True)
    assert done.stdout == f"{os.geteuid()}\n" and "held" in done.stderr
    done = yods.run("yod", "-bt", "./privileged", "-u", check=True)
    assert "no stacks of ranks here" in done.stderr


# --- sleep


@pytest.mark.parametrize("where", ["after-fork", "before-exec", "after-exec", "before-go"])
def test_a_launch_sleeps_and_then_runs(yods: PrivateMesh, where: str) -> None:
    done = yods.run("yod", "-sleep", f"{where}:0.5", "-sz", "3", "echo", "ran", check=True)
    assert done.stdout == "ran\n" * 3


@pytest.mark.parametrize("where", ["after-fork", "before-exec", "after-exec", "before-go"])
def test_a_sleeping_launch_can_be_interrupted(yods: PrivateMesh, where: str) -> None:
    yod = start(yods, "yod", "-sleep", where, "-sz", "3", "echo", "ran")
    wait_until(lambda: len(asleep(yods)) == 3, "its processes are there")
    yod.send_signal(signal.SIGINT)
    assert yod.wait() == 130
    assert yod.stdout is not None and yod.stdout.read() == ""


def asleep(mesh: PrivateMesh) -> list[int]:
    """Processes of ranks: after the fork they still have the launch child's name, and are its children."""
    children = [pid for pid in mesh.processes() if Path(f"/proc/{pid}/comm").read_text().strip() == "redmesh-launch"]
    tops = [pid for pid in children if processes.parent(pid) not in children]
    return [child for pid in tops for child in processes.children(pid)]


# --- strace, log, priority, binding


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace here")
def test_strace_by_rank(yods: PrivateMesh) -> None:
    script = "echo rank $YOD_RANK; exit $YOD_RANK"
    words = ("-strace", "traces", "-straceoptions", "-f -e trace=write", "-stracenodes", "0,2")
    done = yods.run("yod", *words, "-sz", "3", "sh", "-c", script)
    assert done.returncode == 2 and sorted(done.stdout.splitlines()) == ["rank 0", "rank 1", "rank 2"]
    job = os.listdir(yods.work / "traces")[0].partition(".")[0]
    assert sorted(os.listdir(yods.work / "traces")) == [f"{job}.rank-0.strace", f"{job}.rank-2.strace"]
    assert 'write(1, "rank 2\\n", 7)' in (yods.work / "traces" / f"{job}.rank-2.strace").read_text()


def test_strace_into_a_place_where_nothing_can_be(yods: PrivateMesh) -> None:
    (yods.work / "file").write_text("")
    done = yods.run("yod", "-strace", "file", "touch", "started")
    assert done.returncode == 125 and "file" in done.stderr and not (yods.work / "started").exists()


def test_the_steps_of_a_load_are_in_the_nodes_log(yods: PrivateMesh) -> None:
    file = yods.state / "log" / "pct-n1.jsonl"
    before = len(file.read_text().splitlines())
    yods.run("yod", "-Log", "-list", "n1", "true", check=True)
    log = [json.loads(line) for line in file.read_text().splitlines()[before:]]
    steps = [line for line in log if line["event"] == "step"]
    assert [step["step"] for step in steps][:3] == ["start", "report ready", "release"]
    times = [step["ms"] for step in steps]
    assert times == sorted(times)


def test_nice_ranks_have_a_nice_value(yods: PrivateMesh) -> None:
    assert yods.run("yod", "-nice", "nice", check=True).stdout == f"{min(19, os.nice(0) + 10)}\n"


def test_ranks_are_bound_to_cores(yods: PrivateMesh) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    code = "import os;w=' '.join(map(str,[os.environ['YOD_RANK'],*sorted(os.sched_getaffinity(0))]));"
    code += "os.write(1,w.encode()+b'\\n')"
    free = yods.run("yod", "-cpu-bind", "none", sys.executable, "-c", code, check=True)
    assert free.stdout.split()[1:] == list(map(str, allowed))
    bound = yods.run("yod", "-cpu-bind", "core", "-sz", "4", sys.executable, "-c", code, check=True)
    assert sorted(bound.stdout.splitlines()) == [f"{rank} {allowed[rank % len(allowed)]}" for rank in range(4)]
    assert f"rank 0: {allowed[0]}" in bound.stderr
    mapped = yods.run("yod", "-cpu-bind", f"map:{allowed[-1]}", "-sz", "2", sys.executable, "-c", code, check=True)
    assert sorted(mapped.stdout.splitlines()) == [f"{rank} {allowed[-1]}" for rank in range(2)]
    refused = yods.run("yod", "-cpu-bind", "map:4095", "true")
    assert refused.returncode == 125 and "no processor core 4095" in refused.stderr


# --- the terminal


@pytest.fixture
def typist(yods: PrivateMesh) -> Iterator[Callable[..., Typist]]:
    made: list[Typist] = []

    def make(*command: str) -> Typist:
        made.append(Typist(list(command), {**yods.env, "PS1": "> ", "TERM": "dumb"}, yods.work))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_shell_on_a_rank(typist: Callable[..., Typist]) -> None:
    shell = typist("yod", "--pty", "-sz", "1", "bash", "--norc", "--noprofile", "-i")
    before = shell.modes
    shell.read("> ")
    assert not shell.cooked
    shell.type("echo rank $YOD_RANK; stty size; test -t 0 -a -t 1 -a -t 2 && echo all three\r")
    shell.read("\nrank 0")
    shell.read("30 100")
    shell.read("\nall three")
    shell.read("> ")
    shell.resize(50, 132)
    shell.type("while [ \"$(stty size)\" != '50 132' ]; do sleep 0.05; done; echo res''ized\r")
    shell.read("\nresized")
    shell.read("> ")
    shell.type("sleep 100; echo st''atus $?\r")
    shell.read("sleep 100")
    wait_until(lambda: any(line == "sleep 100" for line in commands()), "it sleeps")
    shell.type("\x03")  # to the program, not to yod
    shell.read("^C")
    shell.read("> ")
    shell.type("exit 7\r")
    assert shell.wait() == 7
    assert shell.modes == before


def commands() -> list[str]:
    found = []
    for pid in processes.pids():
        try:
            found.append(
                Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            )
        except OSError:
            pass
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_terminal_is_as_it_was_whatever_ends_yod(typist: Callable[..., Typist], number: int) -> None:
    yod = typist("yod", "--pty", "cat")
    before = yod.modes
    wait_until(lambda: not yod.cooked, "the terminal is raw")
    os.kill(yod.pid, number)
    yod.wait()
    wait_until(lambda: yod.modes == before, "it is as it was")


def test_enter_releases_a_held_launch_and_what_comes_then_is_its_input(typist: Callable[..., Typist]) -> None:
    yod = typist("yod", "--hold", "cat")
    yod.read("Enter")
    yod.type("\r")
    yod.read("released")
    yod.type("to cat\r")
    yod.read("to cat")
    yod.read("to cat")
    yod.type("\x04")
    assert yod.wait() == 0


def test_a_held_launch_without_a_terminal_says_who_can_let_it_run(yods: PrivateMesh) -> None:
    yod = yods.start("yod", "--hold", "echo", "ran", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    launcher = launcher_soon(yods)
    yods.run("yod", "--release", launcher, check=True)
    out, told = yod.communicate()
    assert yod.returncode == 0 and out == "ran\n"
    assert f"yod --release {launcher} as " in told and "until then it keeps its processors" in told
    timed = yods.run("yod", "--hold", "-time", "0.5s", "sleep", "100")
    assert timed.returncode == 124 and "until then" not in timed.stderr, "the limit ends it"
    by_itself = yods.run("yod", "--hold", "-release-after", "0.2", "echo", "ran", check=True)
    assert by_itself.stdout == "ran\n" and "until then" not in by_itself.stderr


# --- what must hold whatever is asked


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("-bt",),
        ("-nice",),
        ("-cpu-bind", "core"),
        ("--hold", "-release-after", "0.1"),
        ("-strace", "t"),
        ("--pty",),
    ],
    ids=" ".join,
)
def test_nothing_outlives_its_job(yods: PrivateMesh, words: tuple[str, ...]) -> None:
    code = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            time.sleep(60)
    os._exit(0)
os.wait()
print("ended", flush=True)
"""
    # the grandchild holds stdout, and that does not keep the job from ending
    done = yods.run("yod", *words, "-sz", "2", sys.executable, "-c", code)
    assert done.returncode == 0 and done.stdout.split() == ["ended", "ended"]
    wait_until(lambda: not ranks_left(yods), "nothing is left")

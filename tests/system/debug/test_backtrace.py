"""Stack traces of programs that really die, taken as a launch child takes them."""

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.linux import prctl, processes
from agents.pct.debug import crash as backtrace
from agents.pct.debug.parsers import Backtrace
from agents.pct.launch.options import RANK_ENVIRONMENT
from redmesh.byte_text import to_bytes
from tests.support.compilers import has_rustc
from tests.support.waiting import PATIENCE_S, wait_until

PROGRAM = """
#include <signal.h>
#include <stdlib.h>
#include <string.h>
static void caught(int n) { _Exit(40 + n); }
__attribute__((noinline)) static int inner(int *p) { return *p + 1; }
__attribute__((noinline)) static int outer(int *p) { return inner(p) * 2; }
int main(int argc, char **argv) {
    if (argc > 2) signal(SIGSEGV, caught);
    if (!strcmp(argv[1], "abort")) abort();
    return outer(0);
}
"""


@pytest.fixture(scope="module")
def crash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("crash")
    (folder / "crash.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-g", "-O0", "-o", folder / "crash", folder / "crash.c"], check=True)
    return folder / "crash"


@pytest.fixture
def start() -> Iterator[Callable[..., int]]:
    """Start a program traced, with its exec stop behind it."""
    begun: list[int] = []

    def begin(*argv: str, env: dict[str, str] | None = None) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                prctl.trace_me()
                null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, 2)
                os.execve(argv[0], argv, env or {})
            finally:
                os._exit(127)
        begun.append(pid)
        assert os.WSTOPSIG(os.waitpid(pid, 0)[1]) == signal.SIGTRAP
        prctl.resume(pid, 0)
        return pid

    yield begin
    for pid in begun:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def stopped_for(pid: int) -> int:
    _, status = os.waitpid(pid, 0)
    assert os.WIFSTOPPED(status), status
    return os.WSTOPSIG(status)


def functions(taken: Backtrace) -> list[str]:
    return [frame.function for frame in taken.threads[0].frames]


def only(monkeypatch: pytest.MonkeyPatch, *tools: str) -> None:
    real = backtrace.find
    monkeypatch.setattr(backtrace, "find", lambda name: real(name) if name in tools else "")


@pytest.mark.parametrize("tool", ["eu-stack", "gdb"])
@pytest.mark.parametrize("how", ["segv", "abort"])
def test_the_stack_and_then_the_same_death(crash, start, monkeypatch, how: str, tool: str) -> None:  # type: ignore[no-untyped-def]
    only(monkeypatch, tool)
    pid = start(str(crash), how)
    number = stopped_for(pid)
    assert number == (signal.SIGABRT if how == "abort" else signal.SIGSEGV)
    assert backtrace.fatal(pid, number)
    taken = backtrace.collect(pid, number)
    assert (taken.pid, taken.tool, taken.note) == (pid, tool, "")
    called = functions(taken)
    assert "main" in called and (
        any("abort" in name for name in called) if how == "abort" else called[:2] == ["inner", "outer"]
    )
    assert any(
        frame.where.endswith("crash.c:10" if how == "abort" else "crash.c:6") for frame in taken.threads[0].frames
    )
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == number


@pytest.mark.skipif(not backtrace.find("eu-stack"), reason="gdb writes such bytes as octal numbers")
def test_bytes_of_file_names_that_are_not_utf8_are_kept(tmp_path: Path, crash, start) -> None:  # type: ignore[no-untyped-def]
    program = os.path.join(os.fsencode(tmp_path), b"caf\xe9")
    shutil.copy(crash, program)
    pid = start(os.fsdecode(program), "segv")
    taken = backtrace.collect(pid, stopped_for(pid))
    assert program in [to_bytes(frame.module) for frame in taken.threads[0].frames]


def test_without_any_tool_it_says_where_and_what_to_install(crash, start, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    only(monkeypatch)
    pid = start(str(crash), "segv")
    taken = backtrace.collect(pid, stopped_for(pid))
    assert taken.tool == "proc" and "eu-stack" in taken.note and "install" in taken.note
    module, _, offset = taken.threads[0].frames[0].module.rpartition("+")
    assert module == str(crash)
    symbols = subprocess.run(
        ["addr2line", "-f", "-e", crash, offset], capture_output=True, text=True, check=True
    ).stdout
    assert symbols.startswith("inner\n")
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGSEGV


def test_a_handler_gets_its_turn(crash, start) -> None:  # type: ignore[no-untyped-def]
    pid = start(str(crash), "segv", "caught")
    number = stopped_for(pid)
    assert not backtrace.fatal(pid, number)
    prctl.resume(pid, number)
    _, status = os.waitpid(pid, 0)
    assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 40 + signal.SIGSEGV


def test_signals_from_outside_are_no_faults(crash, start) -> None:  # type: ignore[no-untyped-def]
    pid = start("/bin/sleep", "60")
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGPIPE, signal.SIGHUP):
        assert not backtrace.fatal(pid, number)


def finish(looking: backtrace.Looking) -> Backtrace:
    while True:
        assert select.select([looking.fd], [], [], 20)[0], "the helper says nothing"
        taken = looking.result()
        if taken is not None:
            os.waitpid(looking.helper, 0)
            return taken


def test_a_helper_looks_while_the_tracer_goes_on(crash, start) -> None:  # type: ignore[no-untyped-def]
    pids = [start(str(crash), "segv") for _ in range(4)]
    looking = [backtrace.begin(pid, stopped_for(pid)) for pid in pids]
    for pid, each in zip(pids, looking, strict=True):
        assert functions(finish(each))[:2] == ["inner", "outer"]
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGSEGV


def test_a_helper_that_is_killed_costs_the_trace_and_not_the_signal(crash, start) -> None:  # type: ignore[no-untyped-def]
    pid = start(str(crash), "abort")
    looking = backtrace.begin(pid, stopped_for(pid))
    os.kill(looking.helper, signal.SIGKILL)
    taken = finish(looking)
    assert taken.note or taken.threads
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGABRT


def test_cancelling_lets_it_die_at_once(crash, start) -> None:  # type: ignore[no-untyped-def]
    pid = start(str(crash), "segv")
    looking = backtrace.begin(pid, stopped_for(pid))
    looking.cancel()
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGSEGV
    os.waitpid(looking.helper, 0)


def test_a_tool_that_hangs_is_given_up(tmp_path: Path, crash, start, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    slow = tmp_path / "eu-stack"
    slow.write_text("#!/bin/sh\necho PID 1\nsleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(backtrace, "_PATHS", (str(tmp_path),))
    pid = start(str(crash), "segv")
    taken = backtrace.collect(pid, stopped_for(pid), limit_s=0.5)
    assert taken.tool == "proc" and "in time" in taken.note
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGSEGV


def test_a_python_program_tells_its_own_stack_and_then_dies_of_it(tmp_path: Path, start) -> None:  # type: ignore[no-untyped-def]
    script = tmp_path / "crash.py"
    told = tmp_path / "told"
    script.write_text(
        "import ctypes, os, sys\n"
        "os.dup2(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY), 2)\n"
        "def inner():\n    ctypes.string_at(0)\n"
        "inner()\n"
    )
    env = {name.decode(): value.decode() for name, value in RANK_ENVIRONMENT.items()}
    pid = start(sys.executable, str(script), str(told), env=env)
    number = stopped_for(pid)
    assert number == signal.SIGSEGV and not backtrace.fatal(pid, number)  # faulthandler has it first
    prctl.resume(pid, number)
    number = stopped_for(pid)
    assert number == signal.SIGSEGV and backtrace.fatal(pid, number)
    taken = backtrace.collect(pid, number)
    assert any("python" in frame.module or frame.function for frame in taken.threads[0].frames)
    if not backtrace.find("py-spy"):
        assert "PYTHONFAULTHANDLER" in taken.note
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGSEGV
    assert 'crash.py", line 4 in inner' in told.read_text()


THREADS = """
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
static void *idle(void *x) { for (;;) pause(); return x; }
static volatile int created;  /* until then the stack of main ends in clone */
static void *faulty(void *x) { while (!created) usleep(1000); return (void *)(long)*(volatile int *)x; }
int main(int argc, char **argv) {
    pthread_t one, two;
    if (argc > 1) execl(argv[0], argv[0], (char *)0);
    pthread_create(&one, 0, idle, 0);
    pthread_create(&two, 0, faulty, 0);
    created = 1;
    pthread_join(two, 0);
    return 0;
}
"""


@pytest.mark.parametrize("again", [[], ["exec"]])
@pytest.mark.parametrize("helper", [False, True])
def test_a_fault_in_another_thread_also_after_another_exec(tmp_path, again: list[str], helper: bool) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "threads.c").write_text(THREADS)
    path = str(tmp_path / "threads")
    subprocess.run(["gcc", "-g", "-O0", "-pthread", "-o", path, tmp_path / "threads.c"], check=True)
    pid = os.fork()
    if pid == 0:
        prctl.trace_me()
        os.execve(path, [path, *again], {})
    known = {pid}
    wall = 0x40000000
    try:
        assert os.WSTOPSIG(os.waitpid(pid, 0)[1]) == signal.SIGTRAP
        prctl.keep_watch(pid)
        prctl.resume(pid, 0)
        while True:
            tid, status = os.waitpid(-1, wall)
            assert os.WIFSTOPPED(status), status
            look, number = backtrace.decide(tid, status, known=tid in known)
            known.add(tid)
            if look:
                break
            prctl.resume(tid, number)
        assert tid != pid and number == signal.SIGSEGV
        taken = finish(backtrace.begin(tid, number)) if helper else backtrace.collect(tid, number)
        assert taken.pid == pid and len(taken.threads) == 3
        assert taken.threads[0].tid == tid and functions(taken)[0] == "faulty"
        assert {thread.frames[-1].function for thread in taken.threads[1:]} & {"_start", "main"}
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGSEGV
    finally:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, wall)
        except (ProcessLookupError, ChildProcessError):
            pass


RUST = """
#[inline(never)] fn inner(p: *const i32) -> i32 { unsafe { std::ptr::read_volatile(p) } }
#[inline(never)] fn outer(p: *const i32) -> i32 { inner(p) + 1 }
fn main() { println!("{}", outer(std::ptr::null())); }
"""


@pytest.mark.skipif(not has_rustc(), reason="rustc is not installed")
def test_a_rust_program_whose_own_handler_comes_first(tmp_path: Path, start) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "crash.rs").write_text(RUST)
    subprocess.run(["rustc", "-g", "-o", tmp_path / "crash", tmp_path / "crash.rs"], check=True, timeout=PATIENCE_S)
    pid = start(str(tmp_path / "crash"))
    number = stopped_for(pid)
    if not backtrace.fatal(pid, number):  # std looks whether it is a stack overflow, then lets it happen again
        prctl.resume(pid, number)
        number = stopped_for(pid)
    called = functions(backtrace.collect(pid, number))
    assert [name.split("::")[1] for name in called if name.startswith("crash::")] == ["inner", "outer", "main"]
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGSEGV


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_tools_run_as_the_user_whose_program_it_is(tmp_path: Path) -> None:
    out, why = backtrace.run(["/usr/bin/id"], time.monotonic() + 20, (65534, 65534, []))
    assert why == "" and "uid=65534" in out and "gid=65534" in out and "groups=65534" in out and "root" not in out
    process = subprocess.Popen(["/bin/sleep", "60"], user=65534, group=65534, extra_groups=[])
    try:
        wait_until(lambda: processes.state(process.pid) == "S", "it sleeps")
        taken = backtrace.take(process.pid, as_user=(65534, 65534, []))
        assert taken.tool == "eu-stack" and any("sleep" in frame.function for frame in taken.threads[0].frames)
    finally:
        process.kill()
        process.wait()


def test_a_process_that_only_stands_still_is_left_as_it_was() -> None:
    process = subprocess.Popen(["/bin/sleep", "60"])
    try:
        wait_until(lambda: processes.state(process.pid) == "S", "it sleeps")
        taken = backtrace.take(process.pid)
        assert taken.threads
        wait_until(lambda: processes.state(process.pid) == "S", "it sleeps")
    finally:
        process.kill()
        process.wait()


def test_a_process_that_is_gone_gives_no_frames_and_no_error() -> None:
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    taken = backtrace.take(process.pid, 2.0)
    assert taken.threads == [] and taken.note


def test_tools_get_nothing_of_our_environment(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("REDMESH_SECRET", "x")
    out, why = backtrace.run(["/usr/bin/env"], time.monotonic() + 20, None)
    assert why == "" and "REDMESH_SECRET" not in out and "DEBUGINFOD_URLS=\n" in out

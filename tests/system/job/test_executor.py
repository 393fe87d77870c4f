"""redmesh.Executor on a real mesh: results, exceptions, lost processes, large arguments, cancellation."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import redmesh
from tests.support.look import asked, job, processors, queue
from tests.support.mesh import MakeMesh, PrivateMesh
from tests.support.mpis import python_with
from tests.support.waiting import wait_until
from tests.support.yods import one_mesh, yods

__all__ = ["one_mesh", "yods"]

PROGRAM = """
import json, os, sys, time
from concurrent.futures import CancelledError, as_completed
import redmesh

def square(n):
    return n * n

def refuse(n):
    raise LookupError(n)

told = {}
with redmesh.Executor(2, name="test") as executor:
    told["submit"] = executor.submit(pow, 2, exp=10).result()
    told["map"] = list(executor.map(square, range(300)))
    told["chunks"] = list(executor.map(lambda a, b: a + b, range(10), range(10), chunksize=4))
    told["completed"] = sorted(one.result() for one in as_completed([executor.submit(square, n) for n in range(5)]))
    try:
        executor.submit(refuse, 3).result()
    except LookupError as error:
        told["error"] = [repr(error), "in refuse" in str(error.__cause__)]
    told["large"] = len(executor.submit(lambda data: data + b"y", b"x" * 2_000_000).result())
    try:
        executor.submit(os._exit, 5).result()
    except Exception as error:
        told["lost"] = str(error)
    told["after"] = executor.submit(square, 9).result()
    results = executor.map(abs, range(2000))
    next(results)
    results.close()  # cancels what nobody reads
    told["closed"] = executor.submit(square, 8).result()
told["uuid"] = executor.uuid
try:
    executor.submit(square, 1)
except RuntimeError as error:
    told["shut"] = str(error)
print(json.dumps(told))
"""


def test_functions_are_called_on_the_mesh(yods: PrivateMesh) -> None:
    (yods.work / "program.py").write_text(PROGRAM)
    process = yods.start(sys.executable, "program.py", stdout=subprocess.PIPE, text=True)
    out, _ = process.communicate()
    told = json.loads(out)
    uuid = told.pop("uuid")
    assert told == {
        "submit": 1024,
        "map": [n * n for n in range(300)],
        "chunks": [2 * n for n in range(10)],
        "completed": [0, 1, 4, 9, 16],
        "error": ["LookupError(3)", True],
        "large": 2_000_001,
        "lost": "its process ended with status 5",
        "after": 81,
        "closed": 64,
        "shut": "cannot schedule new futures after shutdown",
    }
    wait_until(lambda: queue(yods) == [], "the job has ended")
    row = next(one for one in yods.json("mesh", "queue", "--all") if one["uuid"] == uuid)
    assert (row["name"], row["state"], row["failed"]) == ("test", "failed", 2)


def test_the_job_ends_with_its_program(yods: PrivateMesh) -> None:
    program = "import os, redmesh, time; e = redmesh.Executor(1); e.submit(pow, 2, 2).result()"
    program += "; e.submit(time.sleep, 1000); print(e.uuid, flush=True); time.sleep(0.5); os._exit(0)"
    uuid = yods.run(sys.executable, "-c", program, check=True).stdout.strip()
    assert yods.run("mesh", "wait", uuid).returncode == 130


JOBLIB = """
import joblib, redmesh

with redmesh.Executor(2, name="joblib") as executor, joblib.parallel_config("threading", n_jobs=8):
    call = joblib.delayed(lambda n: executor.submit(pow, n, 2).result())
    print(sum(joblib.Parallel()(call(n) for n in range(100))))
"""
DASK = """
import dask, redmesh

with redmesh.Executor(2, name="dask") as executor, dask.config.set(scheduler=executor, num_workers=8):
    print(sum(dask.compute(*[dask.delayed(pow)(n, 2) for n in range(100)])))
"""


@pytest.mark.parametrize("library, program", [("joblib", JOBLIB), ("dask", DASK)])
def test_libraries_call_through_it_as_the_page_says(yods: PrivateMesh, library: str, program: str) -> None:
    python, root = python_with(library), str(Path(redmesh.__file__).parents[1])
    done = yods.run(python, "-c", program, env={"PYTHONPATH": root})
    assert (done.returncode, done.stdout) == (0, "328350\n"), done.stderr
    wait_until(lambda: queue(yods) == [], "the job has ended")
    [row] = [one for one in queue(yods, ended=True) if one["name"] == library]
    query = "SELECT sum(last - first + 1) AS done FROM task WHERE state = 'done'"
    assert row["state"] == "done" and asked(yods.state / "jobs" / f"{row['uuid']}.job", query) == [{"done": 100}]


FROM_OUTSIDE = """
import json, sys, time
import redmesh

def refuse(n):
    raise LookupError(n)

def nested(n):
    import redmesh
    with redmesh.Executor(1) as inner:
        return inner.submit(pow, n, 2).result()

with redmesh.Executor(1) as executor:
    try:
        executor.submit(refuse, 3).result()
    except LookupError:
        print(executor.uuid, executor.submit(nested, 4).result(), flush=True)
    waiting = [executor.submit(time.sleep, 60) for _ in range(600)]
    sys.stdin.readline()
    print(json.dumps(sorted({str(one.exception()) for one in waiting})))
"""


def test_commands_on_the_job_of_a_running_program(yods: PrivateMesh) -> None:
    """Nobody can retry its calls from outside, a call may open an Executor, and ``mesh cancel`` is named to each."""
    (yods.work / "outside.py").write_text(FROM_OUTSIDE)
    pipe = subprocess.PIPE
    process = yods.start(sys.executable, "outside.py", stdin=pipe, stdout=pipe, text=True)
    try:
        assert process.stdout is not None
        uuid, square = process.stdout.readline().split()
        assert square == "16" and not list(yods.work.glob("*-*-*-*-*")), "the inner job has its object in STATE"
        failed = yods.run("mesh", "job", "tasks", uuid, "--state", "failed", check=True).stdout
        assert "LookupError: 3" in failed
        refused = yods.run("mesh", "retry", uuid)
        assert refused.returncode == 1 and "submit them again in the program" in refused.stderr
        yods.run("mesh", "cancel", uuid, check=True)
        out, _ = process.communicate("\n")
        assert json.loads(out) == ["cancelled by mesh cancel"]
        refused = yods.run("mesh", "retry", uuid)
        assert refused.returncode == 1 and "submit them again in the program" in refused.stderr
    finally:
        process.kill()
        process.wait()


MANY = """
import os, sys, time, redmesh

def call(n):
    if n >= 100:
        time.sleep(600)
    if n % 40 == 7:
        raise ValueError(f"{n} is too many")

executor = redmesh.Executor(1, name="many")
calls = [executor.submit(call, n) for n in range(2000)]
print(executor.uuid, flush=True)
if sys.stdin.readline() == "end\\n":
    executor.shutdown(cancel_futures=True)
    print(sum(one.cancelled() for one in calls), flush=True)
os._exit(0)
"""


def test_an_executor_that_fails_before_it_is_used_leaves_no_job(yods: PrivateMesh) -> None:
    """A warning that the program has made an error, and a program that is killed before it has connected."""
    program = "import redmesh; redmesh.Executor(100)"
    done = yods.run(sys.executable, "-W", "error", "-c", program)
    assert done.returncode == 1 and "max_workers is 100, but the mesh has" in done.stderr
    told = r"""{\"python\": \"python3\", \"program\": $$}"""
    submit = f'mesh submit --json --functions "{told}" --name killed; kill -9 $$'
    uuid = json.loads(yods.run("sh", "-c", submit).stdout)["uuid"]
    wait_until(lambda: queue(yods) == [], "both jobs have ended")
    assert job(yods, uuid)["cause"] == "the program has exited"


FORKED = """
import os, signal, sys
import redmesh
pool = redmesh.Executor(1, name="forked")
pool.submit(os.getpid).result()
if os.fork():
    os.kill(os.getpid(), signal.SIGKILL)
sys.stdin.read()
"""


def test_a_killed_program_ends_its_job_though_a_process_that_it_has_forked_lives(yods: PrivateMesh) -> None:
    """The process has the program's connection too, as those of a multiprocessing pool have."""
    with yods.start(sys.executable, "-c", FORKED, stdin=subprocess.PIPE) as program:
        assert program.wait() == -signal.SIGKILL
        wait_until(lambda: queue(yods) == [], "the job has ended")
    (uuid,) = (row["uuid"] for row in queue(yods, ended=True) if row["name"] == "forked")
    assert job(yods, uuid)["cause"] == "the program has exited"


IN_A_FORK = """
import multiprocessing, sys, redmesh
def child(executor, future):
    for call in (future.result, lambda: executor.submit(pow, 2, 3), lambda: list(executor.map(abs, [1]))):
        try:
            print(call())
        except Exception as error:
            print(type(error).__name__, error, flush=True)
    executor.shutdown()
executor = redmesh.Executor(1)
future = executor.submit(input)
forked = multiprocessing.get_context("fork").Process(target=child, args=(executor, future))
forked.start()
forked.join()
print(forked.exitcode, type(future.exception()).__name__, executor.submit(pow, 2, 5).result())
"""


def test_a_forked_process_is_told_that_the_executor_is_its_parents(yods: PrivateMesh) -> None:
    """It has none of the threads, so that its calls waited for ever."""
    *told, last = yods.run(sys.executable, "-c", IN_A_FORK, check=True).stdout.splitlines()
    assert len(told) == 3, told
    assert all(line.startswith("BrokenProcessPool this redmesh.Executor belongs to the process") for line in told)
    assert last == "0 EOFError 32", "the parent's calls go on"


def test_calls_that_are_not_sent_yet_are_tasks_that_wait(yods: PrivateMesh) -> None:
    """``mesh queue`` knows all calls. Those that the program never sent are cancelled with it."""
    (yods.work / "many.py").write_text(MANY)
    pipe = subprocess.PIPE
    process = yods.start(sys.executable, "many.py", stdin=pipe, stdout=pipe, text=True)
    try:
        assert process.stdout is not None
        uuid = process.stdout.readline().strip()

        def row() -> dict[str, Any]:
            found: dict[str, Any] = next(one for one in queue(yods, ended=True) if one["uuid"] == uuid)
            return found

        def known() -> bool:
            now = row()
            return (now["tasks"], now["ended"], now["failed"]) == (2000, 100, 3)

        wait_until(known, "all calls are known")
        assert row()["left_s"] > 0
        rows = yods.run("mesh", "job", "tasks", uuid, "--json", "--state", "waiting", check=True).stdout.splitlines()
        assert json.loads(rows[-1])["last"] == 2000
        process.communicate("exit\n")
        done = yods.run("mesh", "wait", uuid)
        assert done.returncode == 130 and "task 8 failed first: exit 1 on n0: ValueError: 7 is too many" in done.stderr
        assert yods.json("mesh", "job", "show", uuid)["counts"] == {"done": 97, "failed": 3, "cancelled": 1900}
        log, shown = (yods.run("mesh", "job", what, uuid, check=True).stdout for what in ("log", "show"))
        assert "task 48: failed: exit 1 on n0: ValueError: 47 is too many" in log
        assert "first task 8, exit 1 on n0: ValueError: 7 is too many" in shown
    finally:
        process.kill()
        process.wait()


CANCELLED = """
import os, time, redmesh

def hold():
    open("holds", "w").close()
    while not os.path.exists("cancelled"):
        time.sleep(0.02)

with redmesh.Executor(1, name="cancelled") as executor:
    # the worker ends no call before they are cancelled, however busy the machine is
    calls = [executor.submit(hold), *(executor.submit(pow, n, 2) for n in range(3000))]
    while not os.path.exists("holds"):
        time.sleep(0.02)
    cancelled = sum(one.cancel() for one in calls)
    try:
        next(executor.map(pow, range(5), range(5), timeout=0))
    except TimeoutError:
        while len(executor._sent) > 1:  # these five are withdrawn
            time.sleep(0.02)
    open("cancelled", "w").close()
    print(executor.uuid, cancelled, sum(not one.cancelled() for one in calls), executor.submit(pow, 2, 2).result())
"""


def test_calls_that_the_program_cancels_are_cancelled_tasks(yods: PrivateMesh) -> None:
    uuid, *told = yods.run(sys.executable, "-c", CANCELLED, check=True).stdout.split()
    cancelled, others, result = map(int, told)
    shown = wait_until(lambda: (now := job(yods, uuid))["state"] != "running" and now, "the job has ended")
    assert (cancelled, others, result) == (3000, 1, 4), "those sent ahead too: all but the one that runs"
    assert (shown["state"], shown["counts"]) == ("done", {"done": others + 1, "cancelled": cancelled + 5})


STOPPED = """
import os, sys, time, redmesh

def call():
    open("begun", "w").close()
    while not os.path.exists("stop"):
        time.sleep(0.02)

for name in ("begun", "stop"):
    if os.path.exists(name):
        os.unlink(name)
executor = redmesh.Executor(1, name="stopped")
calls = [executor.submit(call) for _ in range(int(sys.argv[1]))]
while not os.path.exists("begun"):
    time.sleep(0.02)
if sys.argv[2] == "late":
    executor.shutdown(wait=False)
    while not executor._told_end:  # it has told the owner that there are no more calls
        time.sleep(0.02)
executor.shutdown(wait=False, cancel_futures=True)
for _ in range(1000):
    if calls[20].cancelled():  # it had been sent
        break
    time.sleep(0.02)
else:
    sys.exit("what no worker has was not cancelled while a call runs")
open("stop", "w").close()
executor.shutdown()
print(executor.uuid, sum(one.cancelled() for one in calls), sum(one.done() for one in calls))
"""


@pytest.mark.parametrize("count, when", [(40, "first"), (40, "late"), (300, "first")])
def test_a_shutdown_cancels_the_calls_that_no_worker_has(yods: PrivateMesh, count: int, when: str) -> None:
    """Also after an earlier shutdown, and if there are more calls than are sent ahead."""
    done = yods.run(sys.executable, "-c", STOPPED, str(count), when, check=True)
    uuid, cancelled, ended = done.stdout.split()
    shown = wait_until(lambda: (now := job(yods, uuid))["state"] != "running" and now, "the job has ended")
    assert (int(cancelled), int(ended)) == (count - 1, count)
    assert (shown["state"], shown["counts"]) == ("done", {"done": count - int(cancelled), "cancelled": int(cancelled)})


LAST = """
import os, time, redmesh

class Slow(redmesh.Executor):
    def _send_control(self, message):
        if message["op"] == "close":
            open("closing", "w").close()
            last.result()
            time.sleep(0.3)  # the thread that took the result ends, or waits for this one
        super()._send_control(message)

def call():
    while not os.path.exists("closing"):
        time.sleep(0.02)

executor = Slow(1, name="last")
last = executor.submit(call)
executor.shutdown()
try:
    executor.submit(call)
except Exception as error:
    print(repr(error))
"""


def test_the_last_result_closes_no_connection_that_is_still_in_use(yods: PrivateMesh) -> None:
    """A result that came just before the end was sent broke the Executor: the owner seemed to have exited."""
    told = yods.run(sys.executable, "-c", LAST, check=True).stdout
    assert told == "RuntimeError('cannot schedule new futures after shutdown')\n"


def test_large_arguments_of_a_program_that_was_killed_do_not_stay(yods: PrivateMesh) -> None:
    program = "import os, redmesh, signal; e = redmesh.Executor(1); e.submit(pow, 2, 2).result(); print(e.uuid)"
    program += "; e.submit(len, bytes(8 << 20)); f = e.submit(__import__('time').sleep, 1000)"
    program += "; e.submit(len, bytes(8 << 20)); os.sys.stdout.flush(); wait = __import__('time').sleep"
    program += "\nwhile not f._state == 'RUNNING' or e._waiting: wait(0.01)\nos.kill(os.getpid(), signal.SIGKILL)"
    uuid = yods.run(sys.executable, "-c", program).stdout.strip()
    yods.run("mesh", "wait", uuid)
    directory = yods.state / "jobs" / f"{uuid}.calls"
    wait_until(lambda: not directory.exists(), "the calls' files are deleted")


INTERRUPTED = """
import os, time, redmesh

def call():
    while not os.path.exists("go on"):
        time.sleep(0.05)

with redmesh.Executor(500, name="interrupted") as executor:
    calls = [executor.submit(call) for _ in range(20)]
    print(executor.uuid, flush=True)
    calls[-1].result()
"""


def test_a_program_is_told_of_a_small_machine_and_of_what_the_first_interrupt_does(yods: PrivateMesh) -> None:
    pipe = subprocess.PIPE
    process = yods.start(sys.executable, "-c", INTERRUPTED, stdout=pipe, stderr=pipe, text=True)
    try:
        assert process.stdout is not None and process.stderr is not None
        uuid = process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        error = ""
        while "^C" not in error and (line := process.stderr.readline()):
            error += line
        assert "UserWarning: max_workers is 500, but the mesh has 8 processors" in error, error
        assert "redmesh: ^C: waiting for 20 calls that are left; another ^C ends the program, and with it" in error
        (yods.work / "go on").touch()
        process.communicate()
        wait_until(lambda: job(yods, uuid)["counts"] == {"done": 20}, lambda: f"all are done: {job(yods, uuid)}")
    finally:
        process.kill()
        process.wait()


LOST = """
import json, os, signal
import redmesh

def end_the_worker():
    os.kill(os.getppid(), signal.SIGKILL)

nowhere = {"python": "/nowhere/python3", "minor": "3", "cloudpickle": "3", "path": [], "program": os.getpid()}
told = []
for options in ([], ["--functions", json.dumps(nowhere)]):  # the last of two --functions holds
    with redmesh.Executor(1, options=options) as executor:
        error = executor.submit(end_the_worker).exception()
        told.append([type(error).__name__, str(error)])
print(json.dumps(told))
"""


def test_calls_fail_with_the_reason_if_no_worker_is_left_to_run_them(yods: PrivateMesh) -> None:
    done = yods.run(sys.executable, "-c", LOST, check=True)
    lost, nowhere = json.loads(done.stdout)
    assert lost[0] == "BrokenProcessPool" and "workers were lost with this task" in lost[1]
    assert nowhere[0] == "BrokenProcessPool" and "the program's Python /nowhere/python3 cannot be run on" in nowhere[1]


NESTED = """
import os, sys, time, redmesh

def nested(n, of):
    import redmesh
    open(f"call-{of}-{n}", "w").close()
    while not all(os.path.exists(f"call-{of}-{one}") for one in range(of)):
        time.sleep(0.02)
    with redmesh.Executor(1, name="inner") as inner:
        return inner.submit(pow, n, 2).result()

count = int(sys.argv[1])
with redmesh.Executor(count, name="outer") as executor:
    calls = [executor.submit(nested, n, count) for n in range(count)]
    print(executor.uuid, flush=True)
    print([str(one.exception() or one.result()) for one in calls])
    try:
        executor.submit(lambda: executor)
    except TypeError as error:
        print(error)
"""


def test_a_call_whose_executor_can_never_run_fails_and_one_that_only_waits_does_not(mesh: MakeMesh) -> None:
    private = mesh(2, 1)
    (private.work / "nested.py").write_text(NESTED)
    held = private.start("yod", "cat", stdin=subprocess.PIPE)
    assert held.stdin is not None
    wait_until(lambda: processors(private, "busy") == 1, "a launch has a processor")
    outer = private.start(sys.executable, "nested.py", "1", stdout=subprocess.PIPE, text=True)

    def inner() -> list[tuple[str, bool]]:
        rows = queue(private)
        return [(one["why"], one["stuck"]) for one in rows if one["name"] == "inner" and one["why"]]

    told = wait_until(inner, lambda: f"the inner job waits: {queue(private, ended=True)}")
    assert told == [("first in the line: 1 processor not free yet", False)]
    held.stdin.close()
    out, _ = outer.communicate()
    _, results, refused = out.splitlines()
    assert results == "['0']" and "a redmesh.Executor cannot be sent to a call" in refused

    done = private.run(sys.executable, "nested.py", "2", check=True)
    uuid, results = done.stdout.splitlines()[:2]
    reason = f"an Executor in a call of job {uuid[:8]} can never run: job {uuid[:8]}, which waits for it, has all 2"
    assert results.count(reason) == 2 and "max_workers" in results

    # Two programs, each with one of the two processors: the one that came last gives up, the other goes on.
    for call in private.work.glob("call-*"):
        call.unlink()
    two = NESTED.replace("call-{of}-{n}", "call-{of}-{os.getpid()}")
    two = two.replace(
        'all(os.path.exists(f"call-{of}-{one}") for one in range(of))',
        "sum(name.startswith('call-') for name in os.listdir()) == 2",
    )
    (private.work / "two.py").write_text(two)
    programs = [private.start(sys.executable, "two.py", "1", stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [program.communicate()[0].splitlines()[:2] for program in programs]
    (gone,) = (uuid for uuid, results in told if results != "['0']")
    (other, _), (_, results) = sorted(told, key=lambda one: one[0] == gone)
    reason = f"job {gone[:8]}, which waits for it, and job {other[:8]}, whose calls wait for processors too, have all 2"
    assert reason in results


PREPARED = """
import json, os, time, redmesh

data, cache = None, {}

def prepare(value):
    global data
    data = value
    cache["pid"] = os.getpid()

def call(n):
    return data + n, cache["pid"] == os.getpid(), os.getpid()

def refuse(name):
    raise LookupError(name)

with redmesh.Executor(1, initializer=prepare, initargs=(100,), max_tasks_per_child=3) as executor:
    results = [one.result() for one in [executor.submit(call, n) for n in range(7)]]
    large = executor.submit(len, bytes(3_000_000)).result()
told = {"sums": [one for one, _, _ in results], "own": all(one for _, one, _ in results), "large": large}
told["processes"] = len({pid for *_, pid in results})
with redmesh.Executor(1, initializer=refuse, initargs=("a model",)) as executor:
    errors = [one.exception() for one in [executor.submit(pow, n, 2) for n in range(5)]]
told["broken"] = sorted({type(one).__name__ for one in errors})
told["cause"] = [repr(errors[0].__cause__), "in refuse" in str(errors[0].__cause__.__cause__)]
with redmesh.Executor(2, initializer=os._exit, initargs=(7,)) as executor:
    calls = [executor.submit(int) for _ in range(9)]
    told["exits"] = sorted({str(one.exception()).partition(": ")[2] for one in calls})
print(json.dumps(told))
"""


def test_an_initializer_prepares_each_process_and_a_process_runs_some_calls_alone(yods: PrivateMesh) -> None:
    told = json.loads(yods.run(sys.executable, "-c", PREPARED, check=True).stdout)
    assert told == {
        "sums": list(range(100, 107)), "own": True, "large": 3_000_000, "processes": 3,
        "broken": ["BrokenProcessPool"], "cause": ["LookupError('a model')", True],
        "exits": ["its process ended with status 7"],
    }  # fmt: skip


INTERRUPTED_EARLY = """
import os, signal, sys, threading, time, redmesh

os.makedirs(sys.argv[1], mode=0o700, exist_ok=True)

def interrupt(before):
    while set(os.listdir(sys.argv[1])) <= before:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, args=(set(os.listdir(sys.argv[1])),)).start()
try:
    executor = redmesh.Executor(1, name="early")
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", "executor" in globals(), flush=True)
    sys.stdin.readline()
"""


def test_an_interrupted_constructor_leaves_no_job_though_its_program_goes_on(yods: PrivateMesh) -> None:
    """The interrupt comes when ``mesh submit`` has made the job's object."""
    pipe = subprocess.PIPE
    words = (sys.executable, "-c", INTERRUPTED_EARLY, str(yods.state / "jobs"))
    with yods.start(*words, stdin=pipe, stdout=pipe, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "interrupted False\n"
        wait_until(lambda: queue(yods) == [], "the job has ended")
    (uuid,) = (row["uuid"] for row in queue(yods, ended=True) if row["name"] == "early")
    assert job(yods, uuid)["cause"] == "the program gave up before its first call"


SHORT_AND_LONG = """
import os, time, redmesh

def call(n):
    if n >= 20:
        open(f"ran-{n}", "w").close()
        while not os.path.exists("end them"):
            time.sleep(0.02)

first = []
executor = redmesh.Executor(1, name="ahead")
calls = [executor.submit(call, n) for n in range(200)]
calls[0].add_done_callback(lambda _: first.append(calls[-1].cancel()))  # in the thread that takes results
while not os.path.exists("ran-20"):
    time.sleep(0.02)
one = calls[40].cancel(), calls[20].cancel()
executor.shutdown(wait=False, cancel_futures=True)
while not all(one.cancelled() for one in calls[21:]):
    time.sleep(0.02)
open("end them", "w").close()
executor.shutdown()
print(first, one, sum(one.cancelled() for one in calls), sum(name.startswith("ran-") for name in os.listdir()))
"""


def test_a_call_in_the_hands_of_a_worker_can_be_cancelled_until_it_begins(yods: PrivateMesh) -> None:
    """Short calls come first, so that the worker gets many in advance; then one that lasts."""
    assert yods.run(sys.executable, "-c", SHORT_AND_LONG, check=True).stdout == "[True] (True, False) 179 1\n"


IN_ODD_PLACES = """
import gc, redmesh

class Cycle:
    pass

executor = redmesh.Executor(1, name="odd places")
cycle = Cycle()
cycle.myself, cycle.results = cycle, executor.map(pow, range(9), range(9))
next(cycle.results)
del cycle
with executor._lock:
    gc.collect()  # it closes the iterator, wherever it runs

def end(_):
    try:
        executor.shutdown()
    except RuntimeError as error:
        print(error)

call = executor.submit(pow, 2, 2)
call.add_done_callback(end)
call.result()
executor.shutdown()
"""


def test_the_collector_and_a_callback_do_not_wait_for_themselves(yods: PrivateMesh) -> None:
    """Both hung for ever."""
    told = yods.run(sys.executable, "-c", IN_ODD_PLACES, check=True).stdout
    assert told == "shutdown in a callback of a call cannot wait for the calls: shutdown(wait=False)\n"


FUTURES = """
import json, time
import redmesh

def add(*numbers, more=()):
    return sum(numbers) + sum(more)

def refuse():
    raise LookupError(3)

told = {}
with redmesh.Executor(2) as executor:
    one = executor.submit(add, 1, 2)
    told["sum"] = executor.submit(add, one, executor.submit(add, one, one), more=[one]).result()
    told["map"] = list(executor.map(add, [one, 1, one], [1, one, 2], chunksize=2))
    refused = executor.submit(refuse)
    told["refused"] = repr(executor.submit(add, executor.submit(add, refused)).exception())
    slow = executor.submit(time.sleep, 0.5)
    waits = executor.submit(add, slow)
    after = executor.submit(add, waits)
    told["cancelled"] = [waits.cancel(), after.cancelled()]
    last = executor.submit(str, executor.submit(str, slow))
told["last"] = last.result(0)  # shutdown has waited for it
executor = redmesh.Executor(2)
waits = executor.submit(add, executor.submit(time.sleep, 0.5))
executor.shutdown(cancel_futures=True)
told["dropped"] = waits.cancelled()
print(json.dumps(told))
"""


def test_a_call_waits_for_the_futures_among_its_arguments(yods: PrivateMesh) -> None:
    done = yods.run(sys.executable, "-c", FUTURES, check=True)
    assert json.loads(done.stdout) == {
        "sum": 12, "map": [4, 4, 5], "refused": "LookupError(3)", "cancelled": [True, True], "last": "None",
        "dropped": True,
    }  # fmt: skip

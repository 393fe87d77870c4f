"""redmesh.launch over a real mesh: in one line, event by event, asynchronously, and gone when its block is left."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import redmesh
from console.tui.actions.commands import answer
from redmesh.start_command import start_command
from tests.support.mesh import PrivateMesh
from tests.support.shared_mesh import borrowed_mesh as one_mesh
from tests.support.waiting import wait_until
from tests.support.yods import ranks_left, yods

__all__ = ["one_mesh", "yods"]


@pytest.fixture
def here(yods: PrivateMesh, monkeypatch: pytest.MonkeyPatch) -> PrivateMesh:
    """The mesh is the one that this process's environment names."""
    for name, value in yods.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(yods.work)
    return yods


def test_run_returns_output_exits_and_nodes_of_every_rank(here: PrivateMesh) -> None:
    result = redmesh.run(["sh", "-c", "echo $YOD_RANK; echo e >&2"], size=4)
    assert sorted(result.text.split()) == ["0", "1", "2", "3"] and result.stderr == b"e\n" * 4
    assert result.by_rank == {rank: b"%d\n" % rank for rank in range(4)}
    assert result.exit_status == 0 and list(result.exits) == [0, 1, 2, 3] and result.launcher > 0
    assert {one.node for one in result.exits.values()} == {"n0", "n1"}


def test_events_as_they_come(here: PrivateMesh) -> None:
    with redmesh.launch(["sh", "-c", "echo out; read line; echo $line; exit 3"], size=2, stdin=redmesh.PIPE) as job:
        kinds = []
        for event in job:
            kinds.append(event.kind)
            if isinstance(event, redmesh.Started):
                assert len(event.pids) == 2 and event.nodes == ("n0", "n0") and job.started
            if isinstance(event, redmesh.Output) and event.text.startswith("out\n"):
                job.write(b"answer\n" * 2)  # one may be told twice before the other has said anything
            if isinstance(event, redmesh.Exit):
                assert (event.status, event.signal, event.by_yod) == (3, 0, False)
        assert kinds[:3] == ["allocated", "loading", "started"] and kinds[-1] == "end" and kinds.count("exit") == 2
        result = job.wait(check=False)
        assert result.exit_status == 3 and result.stdout == b"", "what was iterated over is not kept"


def test_input_is_bytes(here: PrivateMesh) -> None:
    data = os.urandom(1 << 20)
    assert redmesh.run("cat", stdin=data).stdout == data
    assert redmesh.run("cat", stdin=data, size=2, options=["-input", "all"]).by_rank == {0: data, 1: data}
    assert redmesh.run("cat").stdout == b""
    with redmesh.launch("cat") as job, pytest.raises(redmesh.RedmeshError, match=r"stdin=redmesh\.PIPE"):
        job.write(b"x")


def test_what_fails_is_said(here: PrivateMesh) -> None:
    with pytest.raises(redmesh.NotLaunched, match="no such program in PATH") as refused:
        redmesh.run("nosuchprogram")
    assert refused.value.exit_status == 127
    with pytest.raises(redmesh.NotLaunched, match="9 processors asked for, 8 are free"):
        redmesh.run("true", size=9)
    with pytest.raises(redmesh.LaunchFailed, match="rank 1 on n0: exit 4") as failed:
        redmesh.run(["sh", "-c", "exit $((4 * YOD_RANK))"], size=2)
    assert failed.value.exit_status == 4 and failed.value.result.exits[1].status == 4
    assert redmesh.run("false", check=False).exit_status == 1


AT_START = "import os; print('x'); print('{', end='', flush=True); os.write(1, b'x')\n"
AT_EXIT = "import atexit; atexit.register(print, 'x')\n"


def test_what_python_prints_when_it_starts_or_ends_is_no_part_of_an_answer(
    here: PrivateMesh, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(AT_START + AT_EXIT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8:strict")  # as in most users' locales
    assert redmesh.run(["sh", "-c", "echo $YOD_RANK$REDMESH_ANSWERS"]).stdout == b"0\n"
    with redmesh.launch(["sh", "-c", "echo out; exec sleep 600"]) as job:
        assert job.stacks()["ranks"] == 1
    with redmesh.Executor(1) as pool:
        assert pool.submit(divmod, 7, 2).result() == (3, 1)
    assert asyncio.run(answer(["mesh", "status", "--json"]))["up"] is True, "the console asks this way"
    with pytest.raises(redmesh.RedmeshError, match="launcher 999 does not run"):
        redmesh.stacks(999)


WITHOUT_STREAMS = """
import json, sys
import redmesh
results = [redmesh.run(["echo", str(n)], size=2) for n in range(2)]
with redmesh.Executor(1) as pool:
    told = [pool.submit(divmod, 7, 2).result(), *(result.text for result in results)]
with open("told", "w") as file:
    json.dump(told, file)
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_a_program_without_standard_streams(here: PrivateMesh, closed: str) -> None:
    """Descriptors that are opened get the numbers of the closed streams."""
    here.run("sh", "-c", f'exec python -c "$0" {closed}', WITHOUT_STREAMS, check=True)
    assert json.loads((here.work / "told").read_text()) == [[3, 1], "0\n0\n", "1\n1\n"]


def test_a_launch_that_is_not_waited_for_leaves_no_descriptor(here: PrivateMesh) -> None:
    def descriptors() -> list[str]:
        return os.listdir("/proc/self/fd")

    redmesh.run("true")
    before = len(descriptors())
    for _ in range(3):
        redmesh.run("true")
        with redmesh.launch(["sleep", "600"]) as job:
            next(iter(job))
        job = redmesh.launch("true")
        with pytest.warns(ResourceWarning):
            del job
    assert len(descriptors()) == before


NOT_TAKEN = """
import os, sys
from redmesh import start_command
for number in ["0", "1", "2", "99", "9" * 9, "9" * 5000, "\u00b2", "x"]:
    os.environ["REDMESH_ANSWERS"] = number
    before, out = os.fstat(1), sys.stdout
    taken = start_command._take_answers()
    print(taken, sys.stdout is out, os.fstat(1) == before, "REDMESH_ANSWERS" in os.environ)
"""


def test_the_variable_of_answers_without_its_descriptor_changes_nothing(here: PrivateMesh) -> None:
    told = here.run(*start_command("mesh"), "status", "--json", env={"REDMESH_ANSWERS": "99"}, check=True)
    assert json.loads(told.stdout)["up"] is True and told.stderr == ""
    told = here.run(sys.executable, "-P", "-c", NOT_TAKEN, check=True)
    assert told.stdout == "-1 True True False\n" * 8 and told.stderr == ""


@pytest.mark.parametrize("what", ["a pipe without an end", "a file of others"])
def test_the_variable_of_long_arguments_with_another_descriptor_changes_nothing(what: str, tmp_path: Path) -> None:
    """The command read the pipe for ever, and took the words of the file for its own."""
    reader, writer = os.pipe()
    (tmp_path / "file").write_text("--version")
    given = reader if what == "a pipe without an end" else os.open(tmp_path / "file", os.O_RDONLY)
    code = (
        f"import os, sys; sys.argv = ['x']; from redmesh import start_command; start_command._take_words(); "
        f"os.fstat({given}); print(sys.argv, 'REDMESH_WORDS' in os.environ)"
    )
    for number in (given, "9" * 5000):
        told = subprocess.run(
            [sys.executable, "-P", "-c", code], env={**os.environ, "REDMESH_WORDS": str(number)}, pass_fds=(given,),
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (told.stdout, told.stderr) == ("['x'] False\n", "")
    for end in {reader, writer, given}:
        os.close(end)


def test_arguments_that_are_too_long_for_the_kernel(here: PrivateMesh) -> None:
    """They were a traceback: one of more than 128 KiB (nodes to leave out), and all together more than 2 MiB."""
    names = [f"node-{number:06}.cluster.example" for number in range(12_000)]
    with pytest.raises(redmesh.RedmeshError, match="there is no node 'node-000000"):
        redmesh.run("true", options=["-exclude", ",".join(names)])
    many = ["x" * 1000] * 4000
    with pytest.raises(redmesh.RedmeshError, match="Argument list too long"):
        redmesh.run(["true", *many])  # on the node, whose kernel has the same limit


def test_a_signal_for_some_ranks(here: PrivateMesh) -> None:
    script = "trap 'echo told; exit' USR1; echo ready; while :; do sleep 0.05; done"
    with redmesh.launch(["sh", "-c", script], size=4) as job:
        heard: set[int] = set()
        ended: set[int] = set()
        ready = 0
        for event in job:
            if isinstance(event, redmesh.Output):
                ready += event.text.count("ready")
                if "told" in event.text:
                    heard.add(event.rank)
                elif ready == 4:
                    job.signal(signal.SIGUSR1, ranks=[1, 3])
            if isinstance(event, redmesh.Exit):
                ended.add(event.rank)
                if ended == {1, 3}:
                    job.signal(signal.SIGKILL, [0, 2])
        assert heard == {1, 3}
        ends = {rank: one.signal for rank, one in job.wait(check=False).exits.items()}
        assert ends == {0: signal.SIGKILL, 1: 0, 2: signal.SIGKILL, 3: 0}


@pytest.mark.skipif(not shutil.which("eu-stack"), reason="no eu-stack here (Debian: elfutils)")
def test_stacks_of_a_launch(here: PrivateMesh) -> None:
    with redmesh.launch(["sleep", "60"], size=4) as job:
        told = job.stacks()
        assert told["launcher"] == job.launcher and told["ranks"] == 4
        assert "nanosleep" in json.dumps(redmesh.stacks(job.launcher, ranks="1-2", which="native")["tree"])
        with pytest.raises(redmesh.RedmeshError, match="has ranks 0 to 3"):
            job.stacks("4")
    with pytest.raises(redmesh.RedmeshError, match="launcher 99999 does not run"):
        redmesh.stacks(99999)


def test_a_signal_reaches_every_rank(here: PrivateMesh) -> None:
    script = "trap 'echo caught; exit 0' USR1; echo ready; while :; do sleep 0.05; done"
    with redmesh.launch(["sh", "-c", script], size=3) as job:
        ready = 0
        for event in job:
            ready += isinstance(event, redmesh.Output) and event.text == "ready\n"
            if ready == 3:
                job.signal(signal.SIGUSR1)
                break
        assert job.wait().text == "caught\n" * 3


def test_nothing_is_left_when_the_block_is(here: PrivateMesh) -> None:
    with pytest.raises(KeyError), redmesh.launch(["sh", "-c", "trap '' TERM; sleep 60 & wait; wait"], size=4) as job:
        next(event for event in job if isinstance(event, redmesh.Started))
        raise KeyError
    wait_until(lambda: not ranks_left(here), "no rank is left")
    with redmesh.launch(["sleep", "60"], size=2):
        pass  # left before anything of it ran
    with redmesh.launch(["yes"], size=2) as job:
        next(event for event in job if isinstance(event, redmesh.Output))  # and nobody reads the rest


async def test_several_side_by_side(here: PrivateMesh) -> None:
    async def one(number: int) -> str:
        async with redmesh.launch(["sh", "-c", f"sleep 0.3; echo {number}"], size=2) as job:
            return (await job.finished()).text

    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.02)
            ticks += 1

    ticker = asyncio.create_task(tick())
    assert await asyncio.gather(*(one(number) for number in range(4))) == [f"{number}\n" * 2 for number in range(4)]
    ticker.cancel()
    assert ticks > 5, "the event loop was held up"


async def test_asynchronous_events_and_a_cancelled_task(here: PrivateMesh) -> None:
    seen = asyncio.Event()

    async def follow() -> None:
        async with redmesh.launch(["sh", "-c", "echo one; sleep 60"], size=2) as job:
            async for event in job:
                if isinstance(event, redmesh.Output):
                    seen.set()

    task = asyncio.create_task(follow())
    await asyncio.wait_for(seen.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(wait_until, lambda: not ranks_left(here), "no rank is left")
    with pytest.raises(redmesh.NotLaunched):
        await redmesh.launch("nosuchprogram").finished()


def test_following_a_launch_that_somebody_else_began(here: PrivateMesh) -> None:
    number = int(here.run("yod", "-sz", "2", "-detach", "sh", "-c", "echo told; sleep 0.5", check=True).stdout)
    with redmesh.attach(number) as follower:
        result = follower.wait()
    assert result.stdout == b"told\n" * 2 and result.launcher == number
    endless = int(here.run("yod", "-detach", "sleep", "60", check=True).stdout)
    with redmesh.attach(endless):
        pass
    assert ranks_left(here), "leaving a follower's block ends nothing"
    here.run("yod", "-signal", "KILL", str(endless), check=True)

"""yod while and after the processes run: files, gathering, limits, steps told, through the real command."""

import json
import os
import re
import signal
import subprocess
import time

import pytest

from tests.support.look import look
from tests.support.mesh import PrivateMesh
from tests.support.shared_mesh import borrowed_mesh as one_mesh
from tests.support.waiting import SLOWNESS, freeze, wait_until
from tests.support.yods import yods

__all__ = ["one_mesh", "yods"]

BOTH = "echo out$YOD_RANK; echo err$YOD_RANK >&2"


def text(yods: PrivateMesh, name: str) -> str:
    return (yods.work / name).read_text()


def test_a_file_for_each_rank_and_one_for_all(yods: PrivateMesh) -> None:
    done = yods.run("yod", "-sz", "4", "--output", "o.{node}.{local}.{rank:03}", "--error=all.err", "sh", "-c", BOTH)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [text(yods, f"o.n{rank // 2}.{rank % 2}.{rank:03}") for rank in range(4)] == [f"out{r}\n" for r in range(4)]
    assert sorted(text(yods, "all.err").split()) == ["err0", "err1", "err2", "err3"]
    again = yods.run("yod", "-output", "all.err", "-error", "./all.err", "-label", "sh", "-c", BOTH, check=True)
    assert again.stdout == "" and sorted(text(yods, "all.err").splitlines()) == ["0: err0", "0: out0"]


def test_only_one_of_the_streams_to_a_file(yods: PrivateMesh) -> None:
    done = yods.run("yod", "-error", "e.{launcher}", "sh", "-c", BOTH, check=True)
    assert done.stdout == "out0\n" and done.stderr == ""
    assert len([name for name in os.listdir(yods.work) if re.fullmatch(r"e\.\d+", name)]) == 1


def test_links_are_followed_only_where_nobody_else_writes(yods: PrivateMesh) -> None:
    (yods.work / "there").write_text("old")
    (yods.work / "link").symlink_to("there")
    yods.run("yod", "-output", "link", "echo", "new", check=True)
    assert text(yods, "there") == "new\n"
    (yods.work / "open").mkdir()
    (yods.work / "open").chmod(0o1777)
    (yods.work / "open" / "link").symlink_to("../there")
    done = yods.run("yod", "-output", "open/link", "echo", "worse")
    assert done.returncode == 125 and "not followed" in done.stderr and text(yods, "there") == "new\n"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["-output", "no/such"], "no/such cannot be opened: No such file or directory"),
        (["-output", "/dev/full"], "/dev/full cannot be written: No space left on device"),
        (["-error", "/dev/full"], "/dev/full cannot be written: No space left on device"),
        (["-output", "fifo"], "fifo cannot be opened: it is a pipe that nobody reads"),
        (["-stdin", "nothere"], "nothere cannot be opened: No such file or directory"),
        (["-stdin", "nothere.{rank}"], "nothere.0: No such file or directory"),
        (["-stdin", "/proc"], "/proc cannot be opened: Is a directory"),
        (["-stdin", "{node}"], "/n0: Is a directory"),
        (["-file", "no/such"], "no/such cannot be opened: No such file or directory"),
        (["-file", "/dev/full"], "/dev/full cannot be written: No space left on device"),
    ],
)
def test_what_cannot_be_written_or_read_is_one_line(yods: PrivateMesh, options: list[str], told: str) -> None:
    if not (yods.work / "fifo").exists():
        os.mkfifo(yods.work / "fifo")
        os.mkdir(yods.work / "n0")
    done = yods.run("yod", *options, "sh", "-c", BOTH)
    assert done.returncode == 125
    [line] = [line for line in done.stderr.splitlines() if line.startswith("yod: ")]
    assert told in line


def test_a_launch_that_fails_empties_no_file(yods: PrivateMesh) -> None:
    (yods.work / "kept").write_text("kept")
    (yods.work / "bad").write_text("#!/no/such/interpreter\n")
    (yods.work / "bad").chmod(0o755)
    assert yods.run("yod", "-output", "kept", "./bad").returncode in (126, 127)
    assert text(yods, "kept") == "kept"


def test_a_reader_of_a_fifo_gets_it_all(yods: PrivateMesh) -> None:
    os.mkfifo(yods.work / "pipe")
    reader = yods.start("sh", "-c", "sleep 0.3; exec cat pipe", stdout=subprocess.PIPE)
    process = yods.start("sh", "-c", "exec 3<>pipe; exec yod -output pipe head -c 3000000 /dev/zero")
    out, _ = reader.communicate()
    assert out == bytes(3_000_000) and process.wait() == 0


def test_gather_prints_equal_output_once(yods: PrivateMesh) -> None:
    done = yods.run("yod", "-sz", "8", "-gather", "sh", "-c", "echo same; [ $YOD_RANK != 3 ] || echo more; echo e >&2")
    rule = "---------------\n"
    same = f"{rule}ranks 0..2,4..7 (7)\n{rule}same\n"
    assert done.stdout == f"{same}{rule}rank 3\n{rule}same\nmore\n" and done.stderr == "e\n" * 8
    killed = yods.run("yod", "-sz", "2", "-gather", "-time", "0.5s", "sh", "-c", "echo partly; exec sleep 3600")
    assert killed.returncode == 124 and killed.stdout.endswith("partly\n")


def test_what_is_gathered_waits_for_a_slow_reader(yods: PrivateMesh) -> None:
    command = "yod -sz 4 -gather sh -c 'head -c 9000000 /dev/zero; echo $YOD_RANK' | (sleep 0.5; wc -c)"
    done = yods.run("sh", "-c", command, check=True)
    assert int(done.stdout) > 4 * 9_000_000


def test_stdin_from_files(yods: PrivateMesh) -> None:
    for rank in range(4):
        (yods.work / f"in.{rank}").write_text(f"in{rank}\n")
    done = yods.run("yod", "-sz", "4", "-label", "-stdin", "in.{rank}", "cat", check=True)
    assert sorted(done.stdout.splitlines()) == [f"{rank}: in{rank}" for rank in range(4)]
    done = yods.run("yod", "-sz", "4", "-label", "-stdin", "in.2", "cat", check=True)
    assert sorted(done.stdout.splitlines()) == [f"{rank}: in2" for rank in range(4)]
    done = yods.run("yod", "-sz", "4", "-label", "-stdin", "in.1", "-input", "3", "cat", check=True)
    assert done.stdout == "3: in1\n"
    launcher = yods.run("yod", "-detach", "-stdin", "in.3", "cat", check=True).stdout.strip()
    assert yods.run("yod", "--attach", launcher, check=True).stdout == "in3\n"


def test_completion_lines_go_to_a_file(yods: PrivateMesh) -> None:
    done = yods.run("yod", "-sz", "4", "-f", "done", "sh", "-c", "exit $YOD_RANK")
    assert done.returncode == 3 and done.stderr == ""
    lines = text(yods, "done").splitlines()
    assert lines.pop(0) == "yod -sz 4 -f done sh -c 'exit $YOD_RANK'"
    assert len(lines) == 4 and all(
        re.fullmatch(rf"rank {rank} on n{rank // 2}: exit {rank}, \d+\.\d{{3}} s", lines[rank]) for rank in range(4)
    )


def test_every_step_in_order_with_its_time(yods: PrivateMesh) -> None:
    done = yods.run("yod", "-D", "-sz", "4", "true", check=True)
    steps = [re.fullmatch(r"yod: +(\d+\.\d+) B(\d+) +(\w+): .+", line) for line in done.stderr.splitlines()]
    assert all(steps)
    times = [float(step.group(1)) for step in steps if step]
    numbers = [int(step.group(2)) for step in steps if step]
    assert times == sorted(times) and numbers == sorted(numbers) and set(numbers) == set(range(1, 14))


def test_types_of_steps(yods: PrivateMesh) -> None:
    told = yods.run("yod", "-d", "alloc,io", "-d", "bebopd", "-sz", "2", "echo", "hi", check=True).stderr
    assert {line.split()[2].rstrip(":") for line in told.splitlines()} <= {
        "bebopd",
        "io",
        "alloc",
        "B9",
        "B1",
        "B2",
        "B13",
    }
    assert "to the CPA: finish" in told and "6 bytes of stdout" in told
    first = yods.run("yod", "-d", "phase1", "true", check=True).stderr
    second = yods.run("yod", "-d", "phase2", "true", check=True).stderr
    assert "B7 " in first and "B9 " not in first and "B9 " in second and "B3 " not in second
    moves = yods.run("yod", "-d", "debug", "true", check=True).stderr
    assert "loading + ready -> confirming" in moves
    frames = yods.run("yod", "-d", "iomore", "-d", "comm", "-sz", "2", "echo", "hi", check=True).stderr
    assert "3 bytes of stdout from rank 1" in frames and "from the root: exits" in frames
    failed = yods.run("yod", "-d", "failure", "-sz", "99", "true").stderr
    assert re.fullmatch(
        r"yod: +\d\.\d{6} B2  failure: refused: 99 processors asked for, 8 are free\nyod: 99 .*\n", failed
    )
    for line in told, moves, frames:
        assert "cookie" not in line


def test_steps_tell_a_signal_that_has_no_name(yods: PrivateMesh) -> None:
    process = yods.start("yod", "-d", "phase2", "sleep", "60", stderr=subprocess.PIPE, text=True)
    wait_until(lambda: [n for n in os.listdir(yods.run_dir) if n.startswith("yod-")], "it runs")
    launcher = yods.run("pingd", "-parse", "-mine", check=True).stdout.split()[4]
    yods.run("yod", "--signal", "40", launcher, check=True)
    _, told = process.communicate()
    assert process.returncode == 168
    assert "signal 40 to every rank" in told and "rank 0 on n0: signal 40 (Real-time signal 6)" in told


def test_timing_says_where_the_seconds_went(yods: PrivateMesh) -> None:
    said = yods.run("yod", "-timing", "sleep", "0.3", check=True).stderr
    row = dict(part.rsplit(" ", 1) for part in said.removeprefix("yod: seconds: ").strip().split(", "))
    assert {"allocation", "load", "start", "run", "freeing", "all"} <= set(row)
    assert 0.3 <= float(row["run"]) < float(row["all"])
    between = float(row["all"]) - sum(float(value) for name, value in row.items() if name != "all")
    assert -0.001 < between < float(row["all"]) / 2  # where another process had the processor


def test_time_limit_and_the_warning_before_it(yods: PrivateMesh) -> None:
    done = yods.run("yod", "-sz", "2", "--time", "0.7s", "sleep", "3600")
    assert done.returncode == 124 and "time limit of 0.7 s" in done.stderr
    script = "trap 'echo warned; exit 0' USR1; while :; do sleep 0.05; done"
    soon = f"USR1@{3600 - 2 * SLOWNESS:.1f}"  # when each shell has set its trap
    warned = yods.run("yod", "-sz", "2", "--time", "3600s", "--signal", soon, "sh", "-c", script)
    assert (warned.returncode, warned.stdout.split()) == (0, ["warned", "warned"])
    deaf = yods.run("yod", "--time", "0.3s", "sh", "-c", "trap '' TERM; sleep 3600 & wait; wait")
    assert deaf.returncode == 124
    assert yods.run("yod", "--time", "1", "true").returncode == 0


def test_signal_of_a_running_launch_is_another_form(yods: PrivateMesh) -> None:
    launcher = yods.run("yod", "-detach", "sleep", "60", check=True).stdout.strip()
    assert yods.run("yod", "-signal", "TERM", launcher).returncode == 0
    assert yods.run("yod", "--attach", launcher).returncode == 143
    for words in (
        ["-signal", "USR1@5", "true"],
        ["-time", "1", "-signal", "NO@5", "true"],
        ["-signal", "USR1", "true"],
    ):
        assert yods.run("yod", *words).returncode == 2


def test_a_signal_to_some_ranks(yods: PrivateMesh) -> None:
    script = "echo up; exec sleep 60"
    launcher = yods.run("yod", "-detach", "-sz", "3", "sh", "-c", script, check=True).stdout.strip()
    assert yods.run("yod", "-signal", "TERM", launcher, "0,2").returncode == 0
    beyond = yods.run("yod", "-signal", "KILL", launcher, "1-3")
    assert beyond.returncode == 125 and "has no rank 3" in beyond.stderr
    assert yods.run("yod", "-signal", "TERM", launcher, "most").returncode == 2
    assert yods.run("yod", "-signal", "USR1", launcher, "1").returncode == 0
    done = yods.run("yod", "--attach", launcher, "-json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    ends = {event["rank"]: event["signal"] for event in events if event["event"] == "exit"}
    assert ends == {0: signal.SIGTERM, 1: signal.SIGUSR1, 2: signal.SIGTERM}


def test_wait_after_the_first_exit(yods: PrivateMesh) -> None:
    begun = time.monotonic()
    done = yods.run("yod", "-sz", "3", "-wait", "0.4", "sh", "-c", "[ $YOD_RANK != 1 ] || exit 4; exec sleep 3600")
    assert done.returncode == 4 and "(-wait)" in done.stderr and time.monotonic() - begun > 0.4
    assert yods.run("yod", "-sz", "2", "-wait", "5", "sh", "-c", "sleep 0.$YOD_RANK").returncode == 0


@pytest.mark.parametrize("word", ["-kill", "--kill-on-bad-exit", "-K", "-batch"])
def test_kill_on_bad_exit(yods: PrivateMesh, word: str) -> None:
    done = yods.run("yod", "-sz", "3", word, "sh", "-c", "[ $YOD_RANK != 1 ] || exit 4; exec sleep 3600")
    assert done.returncode == 4


@pytest.mark.parametrize(
    "words",
    [
        ["-gather", "-json"], ["-gather", "-output", "x"], ["-time", "x"], ["-time", "1:2:3:4"],
        ["-output", "{nix}"], ["-output", "{rank"], ["-stdin", "{rank}", "-input", "0"], ["-spool", "drop"],
        ["-detach", "-spool-limit", "1k"], ["-time"],
    ],
)  # fmt: skip
def test_nonsense_is_status_2(yods: PrivateMesh, words: list[str]) -> None:
    done = yods.run("yod", *words, "true")
    assert done.returncode == 2 and done.stderr.startswith("yod: ") and done.stderr.count("\n") == 1


def test_a_spool_that_drops_its_oldest(yods: PrivateMesh) -> None:
    script = "import sys\nfor i in range(12000): sys.stdout.write('%08d %s\\n' % (i, 'x' * 990))"
    launcher = yods.run(
        "yod", "-detach", "-spool", "drop", "-spool-limit", "3m", "python3", "-c", script, check=True
    ).stdout.strip()
    wait_until(lambda: not (yods.run_dir / f"yod-{launcher}.sock").exists(), "it is over, though nobody read")
    assert (yods.state / "spool" / f"{launcher}.frames").stat().st_size <= 3 << 20
    done = yods.run("yod", "--attach", launcher, check=True)
    numbers = [int(line[:8]) for line in done.stdout.splitlines()]
    assert numbers == list(range(numbers[0], 12000)) and numbers[0] > 0
    assert f"{numbers[0] * 1000} bytes were skipped: dropped" in done.stderr
    events = [
        json.loads(line) for line in yods.run("yod", "-json", "--attach", launcher, check=True).stdout.splitlines()
    ]
    assert [e["event"] for e in events[:4]] == ["hello", "allocated", "loading", "started"]


def test_a_spool_that_is_full_holds_the_job_up(yods: PrivateMesh) -> None:
    command = ("sh", "-c", "head -c 40000000 /dev/zero; echo never")  # much more than may be on its way
    launcher = yods.run("yod", "-detach", "-spool-limit", "1m", *command, check=True).stdout.strip()
    spool = yods.state / "spool" / f"{launcher}.frames"
    wait_until(lambda: b"the spool is full" in spool.read_bytes(), "it is full")
    assert yods.run("yod", "-signal", "KILL", launcher).returncode == 0
    told = yods.run("yod", "--attach", launcher)
    assert told.returncode == 137 and len(told.stdout) < 20 << 20 and "never" not in told.stdout


def test_quit_detaches_and_nothing_is_lost(yods: PrivateMesh) -> None:
    script = "for i in $(seq 1 60); do echo $YOD_RANK.$i; sleep 0.05; done; cat; exit 3"
    process = yods.start(
        "yod", "-sz", "2", "sh", "-c", script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdin is not None
    seen = b""
    while seen.count(b"\n") < 20:
        seen += os.read(process.stdout.fileno(), 4096)
    process.send_signal(signal.SIGQUIT)
    out, said = process.communicate(input=b"")
    seen += out
    assert process.returncode == 0, said
    launcher = re.search(rb"detached; launcher (\d+) goes on", said)
    assert launcher is not None
    entry = [row.split() for row in yods.run("pingd", "-parse", "-mine").stdout.splitlines()]
    assert entry[0][4] == launcher.group(1).decode() and int(entry[0][6]) != process.pid
    done = yods.run("yod", "--attach", launcher.group(1).decode())
    assert done.returncode == 3
    every = [f"{rank}.{i}" for rank in range(2) for i in range(1, 61)]
    together = seen.decode() + done.stdout
    assert sorted(together.split()) == sorted(every)
    for rank in "01":
        assert [word for word in together.split() if word[0] == rank] == [word for word in every if word[0] == rank]


def test_who_took_it_over_is_watched_by_the_rca(yods: PrivateMesh) -> None:
    process = yods.start("yod", "-sz", "2", "sleep", "60", stderr=subprocess.PIPE, text=True)
    wait_until(lambda: [n for n in os.listdir(yods.run_dir) if n.startswith("yod-")], "it runs")
    process.send_signal(signal.SIGQUIT)
    assert process.wait() == 0
    row = yods.run("pingd", "-parse", "-mine", check=True).stdout.split()
    os.kill(int(row[6]), signal.SIGKILL)
    wait_until(lambda: not look(yods)["launchers"], "the RCA had it cleaned up")


def test_quit_without_a_cpa_changes_nothing(yods: PrivateMesh) -> None:
    script = "for i in $(seq 1 50); do echo $i; sleep 0.1; done; exit 3"
    process = yods.start("yod", "-sz", "2", "sh", "-c", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: [n for n in os.listdir(yods.run_dir) if n.startswith("yod-")], "it runs")
    cpa = yods.pid_of("cpa-0")
    freeze(cpa)
    try:
        process.send_signal(signal.SIGQUIT)
        assert process.stderr is not None
        assert b"not detached" in process.stderr.readline()
    finally:
        os.kill(cpa, signal.SIGCONT)
    out, _ = process.communicate()
    assert process.returncode == 3
    assert sorted(map(int, out.split())) == sorted(list(range(1, 51)) * 2)

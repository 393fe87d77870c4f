"""yod over a real mesh: what runs where, exit statuses, standard input and output."""

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from redmesh.events import BadExit, read_event
from tests.support.mesh import PrivateMesh
from tests.support.shared_mesh import borrowed_mesh as one_mesh
from tests.support.terminals import Typist
from tests.support.waiting import freeze, wait_until, wait_until_still
from tests.support.yods import ranks_left, yods

__all__ = ["one_mesh", "yods"]


def where(output: str) -> dict[int, str]:
    return {int(rank): node for rank, node in (line.split() for line in output.splitlines())}


TELL = ("sh", "-c", "echo $YOD_RANK $YOD_NODE")


def test_block_and_cyclic(yods: PrivateMesh) -> None:
    block = where(yods.run("yod", "-sz", "6", *TELL, check=True).stdout)
    assert block == {0: "n0", 1: "n0", 2: "n1", 3: "n1", 4: "n2", 5: "n2"}
    cyclic = where(yods.run("yod", "-sz", "8", "-distribution", "cyclic", *TELL, check=True).stdout)
    assert cyclic == {rank: f"n{rank % 4}" for rank in range(8)}


def test_a_list_of_processors_and_of_nodes(yods: PrivateMesh) -> None:
    assert where(yods.run("yod", "-list", "2..3,7", *TELL, check=True).stdout) == {0: "n1", 1: "n1", 2: "n3"}
    assert where(yods.run("yod", "-l", "n[2-3]", *TELL, check=True).stdout) == {0: "n2", 1: "n2", 2: "n3", 3: "n3"}
    assert where(yods.run("yod", "-l", "n3,n0", *TELL, check=True).stdout) == {0: "n3", 1: "n3", 2: "n0", 3: "n0"}
    assert where(yods.run("yod", "-l", "7,0", *TELL, check=True).stdout) == {0: "n3", 1: "n0"}
    assert where(yods.run("yod", "-l", "n2", "-sz", "1", *TELL, check=True).stdout) == {0: "n2"}


def test_overcommit_and_cpus_per_task(yods: PrivateMesh) -> None:
    many = where(yods.run("yod", "-sz", "20", "-overcommit", *TELL, check=True).stdout)
    assert sorted(many) == list(range(20))
    assert {node: list(many.values()).count(node) for node in many.values()} == {f"n{n}": 5 for n in range(4)}
    wide = yods.run("yod", "-sz", "4", "-c", "2", *TELL, check=True)
    assert where(wide.stdout) == {rank: f"n{rank}" for rank in range(4)}
    refused = yods.run("yod", "-sz", "5", "-c", "2", "true")
    assert refused.returncode == 125 and "room for 4" in refused.stderr and refused.stderr.count("\n") == 1


def test_what_every_rank_is_told(yods: PrivateMesh) -> None:
    script = (
        "echo $YOD_RANK $YOD_SIZE $YOD_LOCAL_RANK $YOD_LOCAL_SIZE $YOD_NODE $YOD_NNODES"
        ' "$SLURM_PROCID$PMIX_RANK$REDMESH_ALLOCATION_COOKIE" "$MINE" $(wc -l < $YOD_RANK_MAP) $PWD'
    )
    theirs = {"SLURM_PROCID": "1", "PMIX_RANK": "7", "MINE": "a  b", "REDMESH_ALLOCATION_COOKIE": "c0ffee"}
    done = yods.run("yod", "-sz", "3", "sh", "-c", script, env=theirs, check=True)
    assert sorted(done.stdout.splitlines()) == [
        f"0 3 0 2 n0 2  a  b 3 {yods.work}",
        f"1 3 1 2 n0 2  a  b 3 {yods.work}",
        f"2 3 0 1 n1 2  a  b 3 {yods.work}",
    ]


@pytest.mark.parametrize(
    ("script", "status", "row"),
    [
        ("exit 0", 0, ""),
        ("exit $YOD_RANK", 3, "rank 3 on n1: exit 3"),
        ("kill -SEGV $$", 139, "rank 0-3 on n0-n1: SIGSEGV (Segmentation fault)"),
        ("[ $YOD_RANK = 1 ] && kill -KILL $$; exit 4", 137, "rank 1 on n0: SIGKILL (Killed)"),
        ("exit 255", 255, "rank 0-3 on n0-n1: exit 255"),
    ],
)
def test_yod_exits_with_the_highest_status_of_a_rank(yods: PrivateMesh, script: str, status: int, row: str) -> None:
    done = yods.run("yod", "-sz", "4", "sh", "-c", script)
    assert done.returncode == status
    assert row in done.stderr
    assert bool(row) or not done.stderr
    assert yods.run("yod", "-sz", "4", "-quiet", "sh", "-c", script).stderr == ""


@pytest.fixture
def dies(yods: PrivateMesh) -> Iterator[list[str]]:
    """A program of which rank 1 dies, and the others run until there is a file ``end``."""
    (yods.work / "end").unlink(missing_ok=True)
    yield ["sh", "-c", "[ $YOD_RANK = 1 ] && kill -SEGV $$; until [ -e end ]; do sleep 0.02; done"]
    (yods.work / "end").touch()


def test_a_dead_rank_is_announced_while_others_run(yods: PrivateMesh, dies: list[str]) -> None:
    yod = yods.start("yod", "-sz", "4", *dies, stderr=subprocess.PIPE, text=True)
    assert yod.stderr is not None
    first = yod.stderr.readline()
    assert yod.poll() is None, "it is told while the others run"
    (yods.work / "end").touch()
    rest = yod.communicate()[1]
    assert re.fullmatch(
        r"yod: rank 1 on n0: SIGSEGV \(Segmentation fault.*\), \d\.\d s; rank 0,2-3 still run"
        r" \(yod -signal TERM \d+ ends them\)\n",
        first,
    ), first
    assert yod.returncode == 139 and rest.count("SIGSEGV") == 1, "and in the table at the end, once"


def test_the_command_that_an_announcement_names_ends_the_launch(yods: PrivateMesh, dies: list[str]) -> None:
    yod = yods.start("yod", "-sz", "2", *dies, stderr=subprocess.PIPE, text=True)
    assert yod.stderr is not None
    named = re.search(r"\((yod -signal TERM \d+) ends it\)", yod.stderr.readline())
    assert named
    yods.run(*named[1].split(), check=True)
    yod.communicate()
    assert yod.returncode == 139


def test_on_a_terminal_the_way_to_end_it_is_ctrl_c(yods: PrivateMesh, dies: list[str]) -> None:
    typist = Typist(["yod", "-sz", "2", *dies], yods.env, yods.work)
    try:
        said = typist.read("(^C ends it)")
        assert "rank 1 on n0: SIGSEGV" in said and "rank 0 still runs" in said
        typist.type("\x03")
        typist.read("interrupted: SIGTERM went to every rank")
        assert typist.wait() == 139
    finally:
        typist.close()


@pytest.mark.parametrize("word", ["-quiet", "-batch", "-kill"])
def test_who_wants_no_status_lines_or_ends_the_others_gets_no_announcement(yods: PrivateMesh, word: str) -> None:
    script = "[ $YOD_RANK = 1 ] && exit 3; trap '' TERM; sleep 0.4"
    done = yods.run("yod", word, "-sz", "2", "sh", "-c", script)
    assert done.returncode == 3 and "still run" not in done.stderr, done.stderr


def test_ranks_that_end_together_are_told_once(yods: PrivateMesh) -> None:
    done = yods.run("yod", "-sz", "8", "sh", "-c", "exit 3")
    assert done.stderr.count("rank") == 1 and "still run" not in done.stderr, done.stderr


def test_a_dead_rank_is_an_event(yods: PrivateMesh, dies: list[str]) -> None:
    yod = yods.start("yod", "-json", "-quiet", "-sz", "4", *dies, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert yod.stdout is not None
    events = [{}]
    while events[-1].get("event") != "bad_exit":
        events.append(json.loads(yod.stdout.readline()))
    (yods.work / "end").touch()
    _, said = yod.communicate()
    told = events[-1]
    (end,) = told["ends"]
    assert (end["ranks"], end["nodes"], end["status"], end["signal"]) == ([1], ["n0"], 0, 11)
    assert (told["running"], told["size"], told["still"]) == (3, 4, "0,2-3")
    assert told["stop"] == f"yod -signal TERM {told['launcher']}" and said == b""
    typed = read_event(told)
    assert isinstance(typed, BadExit) and typed.ends[0].ranks == (1,) and typed.running == 3


def test_a_dead_rank_of_a_detached_launch_is_in_its_spool(yods: PrivateMesh, dies: list[str]) -> None:
    launcher = yods.run("yod", "-detach", "-sz", "2", *dies, check=True).stdout.strip()
    attached = yods.start("yod", "--attach", launcher, stderr=subprocess.PIPE, text=True)
    assert attached.stderr is not None
    said = attached.stderr.readline()
    assert "yod: rank 1 on n0: SIGSEGV" in said and f"rank 0 still runs (yod -signal TERM {launcher} ends it)" in said
    (yods.work / "end").touch()
    attached.communicate()
    assert attached.returncode == 139
    wait_until(lambda: not (yods.run_dir / f"yod-{launcher}.sock").exists(), "it is over")
    later = yods.run("yod", "--attach", launcher)
    assert "rank 1 on n0: SIGSEGV" in later.stderr and "yod -signal" not in later.stderr, "nothing is left to end"


def test_verbose_tells_when_all_went_well(yods: PrivateMesh) -> None:
    assert "yod: rank 0-7 on n0-n3: exit 0, 0." in yods.run("yod", "-sz", "8", "-verbose", "true", check=True).stderr


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["nosuchprogram"], 127, "no such program in PATH"),
        (["./plain"], 126, "is not executable"),
        (["./bad"], 127, "interpreter /no/such does not exist"),
        (["./load"], 126, "looks like a load file"),
        (["-sz", "9", "true"], 125, "9 processors asked for, 8 are free"),
        (["-list", "n9", "true"], 125, "n9"),
        (["-list", "0..99", "true"], 125, "no processor"),
        (["-list", "n[0-7]", "true"], 125, "n4"),
        (["-list", "1,1", "true"], 2, "twice"),
        (["-sz", "0", "true"], 2, "at least 1"),
        (["-list", "0", "-sz", "2", "true"], 125, ""),
    ],
)
def test_bad_input_is_one_clear_line(yods: PrivateMesh, arguments: list[str], status: int, text: str) -> None:
    (yods.work / "plain").write_bytes(b"\0")
    for name, content in (("bad", "#!/no/such\n"), ("load", "-sz 2 date\n")):
        (yods.work / name).write_text(content)
        (yods.work / name).chmod(0o755)
    done = yods.run("yod", *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert text in done.stderr and done.stderr.startswith("yod: ") and done.stderr.count("\n") == 1


def test_a_program_that_exec_refuses(yods: PrivateMesh) -> None:
    (yods.work / "noexec").write_bytes(b"\x7fELF" + b"\0" * 60)
    (yods.work / "noexec").chmod(0o755)
    done = yods.run("yod", "-sz", "4", "./noexec")
    assert done.returncode == 126
    assert any(f"yod: n{node}: " in done.stderr for node in range(4)), "whichever says so first"
    assert "noexec" in done.stderr and done.stderr.count("\n") == 1


def test_the_usage_log(yods: PrivateMesh) -> None:
    yods.run("yod", "-sz", "3", "sh", "-c", "exit 6")
    entry = json.loads((yods.state / "usage.log").read_text().splitlines()[-1])
    assert entry["command"] == "sh -c exit 6" and entry["exit_status"] == 6 and entry["uid"] == os.getuid()
    assert entry["nodes"] == ["n0", "n1"] and entry["processors"] == 3 and abs(entry["at"] - time.time()) < 60
    assert (yods.state / "usage.log").stat().st_mode & 0o777 == 0o600


def test_json_has_an_event_for_every_step(yods: PrivateMesh) -> None:
    import base64

    done = yods.run("yod", "-json", "-sz", "2", "sh", "-c", "printf 'out\\377'; printf err >&2; exit $YOD_RANK")
    assert done.returncode == 1
    events = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[:3] == ["allocated", "loading", "started"] and kinds[-1] == "end"
    assert sorted((e["rank"], e["status"]) for e in events if e["event"] == "exit") == [(0, 0), (1, 1)]
    output = [(e["rank"], e["stream"], base64.b64decode(e["data"])) for e in events if e["event"] == "output"]
    assert sorted(output) == [(r, s, d) for r in (0, 1) for s, d in (("stderr", b"err"), ("stdout", b"out\xff"))]
    assert events[-1]["exit_status"] == 1


# Output


def test_many_binary_streams_arrive_byte_for_byte(yods: PrivateMesh) -> None:
    """16 MiB over 8 ranks, told apart afterwards by position: every rank fills its own region of a pattern."""
    dice = random.Random(7)
    seeds = [dice.randbytes(65_536 - 1) for _ in range(8)]
    for rank, seed in enumerate(seeds):
        (yods.work / f"seed{rank}").write_bytes(bytes([rank]) + seed)
    program = (
        "import os,sys\nd=open('seed'+os.environ['YOD_RANK'],'rb').read()\n"
        "for _ in range(32): sys.stdout.buffer.write(d)"
    )
    with open(yods.work / "out", "wb") as out:
        process = yods.start("yod", "-sz", "8", "-json", "python3", "-c", program, stdout=out)
        assert process.wait() == 0
    import base64

    got = [hashlib.sha256() for _ in range(8)]
    sizes = [0] * 8
    with open(yods.work / "out", encoding="ascii") as lines:
        for line in lines:
            event = json.loads(line)
            if event["event"] == "output":
                data = base64.b64decode(event["data"])
                got[event["rank"]].update(data)
                sizes[event["rank"]] += len(data)
    assert sizes == [2 << 20] * 8
    for rank, seed in enumerate(seeds):
        wanted = hashlib.sha256()
        for _ in range(32):
            wanted.update(bytes([rank]) + seed)
        assert got[rank].digest() == wanted.digest()


def test_raw_output_is_whole_and_stderr_apart(yods: PrivateMesh) -> None:
    big = yods.work / "big"
    big.write_bytes(random.Random(1).randbytes(16 << 20))
    with open(yods.work / "o", "wb") as out, open(yods.work / "e", "wb") as err:
        script = "[ $YOD_RANK = 0 ] && cat big || cat big >&2"
        assert yods.start("yod", "-sz", "2", "sh", "-c", script, stdout=out, stderr=err).wait() == 0
    assert (yods.work / "o").read_bytes() == big.read_bytes()
    assert (yods.work / "e").read_bytes() == big.read_bytes()


def rss_peak_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1])
    raise AssertionError("no VmHWM")


@pytest.mark.parametrize(("option", "writes"), [([], "big"), ([], "small"), (["-label"], "empty"), (["-json"], "tiny")])
def test_a_reader_that_stands_still_costs_no_memory(yods: PrivateMesh, option: list[str], writes: str) -> None:
    """The job waits, yod and the PCTs stay small; exits and ^C still work; nothing is lost.

    Tiny lines grow most of all in yod: with labels six times, as JSON objects eighty times.
    """
    for pid in yods.processes():
        with suppress(OSError):  # it has exited meanwhile
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # its peak is one of this launch, not of an earlier one
    program = {
        "big": "import os\nb=b'x'*65535+b'\\n'\nwhile True: os.write(1,b)",
        "small": "import os\nwhile True: os.write(1,b'so small a line is a piece of its own at first\\n')",
        "tiny": "import os\nwhile True: os.write(1,b'y\\n')",
        "empty": "import os\nb=b'\\n'*4096\nwhile True: os.write(1,b)",
    }[writes]
    process = yods.start(
        "yod", *option, "-sz", "4", "python3", "-c", program, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    wait_until_still(lambda: ranks_left(yods))
    peaks = {pid: rss_peak_kib(pid) for pid, command in yods.processes().items() if "while True" not in command}
    peaks[process.pid] = rss_peak_kib(process.pid)
    assert max(peaks.values()) < 64 * 1024, peaks
    assert "-json" not in option or peaks[process.pid] < 32 * 1024, "with a window of 16 MiB it holds 43 MiB"
    os.kill(process.pid, 2)
    wait_until(lambda: not [c for c in yods.processes().values() if c.startswith("python3 -c")], "^C ended the ranks")
    assert process.poll() is None, "yod waits for its reader"
    last = b""
    total = 0
    while piece := process.stdout.read1(1 << 20):
        total, last = total + len(piece), piece
    assert total > 65536 and last.endswith(b"\n")
    assert process.wait() == 130


def test_labels_name_the_rank_of_every_line(yods: PrivateMesh) -> None:
    done = yods.run("yod", "-sz", "3", "-label", "sh", "-c", "printf 'a\\nb'; printf 'e\\n' >&2", check=True)
    assert sorted(done.stdout.splitlines()) == ["0: a", "0: b", "1: a", "1: b", "2: a", "2: b"]
    assert sorted(done.stderr.splitlines()) == ["0: e", "1: e", "2: e"]


def test_no_final_newline_and_no_output(yods: PrivateMesh) -> None:
    assert yods.run("yod", "printf", "abc", check=True).stdout == "abc"
    assert yods.run("yod", "true", check=True).stdout == ""


def test_a_reader_that_goes_ends_the_job_quietly(yods: PrivateMesh) -> None:
    done = yods.run("bash", "-c", "yod -sz 4 yes | head -1; echo ${PIPESTATUS[0]}")
    assert done.stdout == "y\n141\n" and done.stderr == ""


def test_a_full_disk_is_said(yods: PrivateMesh) -> None:
    with open("/dev/full", "wb") as full:
        process = yods.start("yod", "-sz", "2", "yes", stdout=full, stderr=subprocess.PIPE, text=True)
        _, err = process.communicate()
    assert process.returncode == 125
    assert "standard output cannot be written: No space left on device" in err


def test_events_that_nobody_can_have_end_the_launch_before_it_is_loaded(yods: PrivateMesh) -> None:
    """No clean-up of what was never loaded is waited for: no node could answer."""
    nobody, gone = os.pipe()
    os.close(nobody)
    full = os.open("/dev/full", os.O_WRONLY)
    pids = [yods.pid_of(f"n{number}") for number in range(4)]
    try:
        for pid in pids:
            freeze(pid)
        for stdout, status in ((full, 125), (gone, 141)):
            command = "yod -json sleep 3600; exit $?"  # of one that SIGPIPE ends too
            yod = yods.start("sh", "-c", command, stdout=stdout, stderr=subprocess.PIPE, text=True)
            _, err = yod.communicate()
            told = "yod: standard output cannot be written: No space left on device" if status == 125 else ""
            assert (yod.returncode, err.partition(" [RM-")[0]) == (status, told)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        os.close(gone)
        os.close(full)
    assert ranks_left(yods) == {}


def test_yod_runs_with_closed_descriptors(yods: PrivateMesh) -> None:
    script = "echo out; echo err >&2; cat; exit 3"
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        done = yods.run("bash", "-c", f"yod -sz 2 sh -c '{script}' {closed}")
        lost = ">&-" in closed.replace("2>&-", "")
        assert done.returncode == (125 if lost else 3), closed
        assert done.stdout == ("" if lost else "out\nout\n")


def test_names_that_are_no_utf8_are_names_like_others(yods: PrivateMesh) -> None:
    program = os.fsencode(yods.work) + b"/say\xff"
    Path(os.fsdecode(program)).write_text('#!/bin/sh\n[ "${0##*/}" = "$(printf \'say\\377\')" ] && echo said\n')
    os.chmod(program, 0o755)
    for bcast in ("auto", "always"):
        assert yods.run("yod", "-bcast", bcast, os.fsdecode(program), check=True).stdout == "said\n"
    for word, told in (("-chdir", "cannot enter"), ("-stdin", "standard input of rank 0:"), ("-stage-in", "stage-in:")):
        done = yods.run("yod", "-json", word, "none\udcff{rank}" if word != "-chdir" else "none\udcff", "true")
        assert done.returncode == 125 and told in done.stderr and done.stderr.count("\n") == 1, done.stderr
        assert [event["event"] for event in map(json.loads, done.stdout.splitlines())][-2:] == ["note", "end"]
    assert yods.json("showmesh")["states"]["down"] == 0, "nothing of this is a node's fault"


# Standard input


def test_input_shared_all_none_and_a_rank(yods: PrivateMesh) -> None:
    text = "".join(f"line {n}\n" for n in range(2000))
    assert yods.run("yod", "cat", input=text, check=True).stdout == text
    shared = yods.run("yod", "-sz", "3", "cat", input=text, check=True).stdout
    assert sorted(shared) == sorted(text), "each byte to one reader"
    assert yods.run("yod", "-sz", "3", "-input", "all", "wc", "-l", input=text, check=True).stdout == "2000\n" * 3
    assert yods.run("yod", "-sz", "3", "-input", "none", "cat", input=text, check=True).stdout == ""
    third = yods.run("yod", "-sz", "3", "-label", "-input", "2", "wc", "-l", input=text, check=True).stdout
    assert sorted(third.splitlines()) == ["0: 0", "1: 0", "2: 2000"]


def test_input_that_cannot_be_read_is_told(yods: PrivateMesh) -> None:
    for options in ("", "-timing -q"):
        done = yods.run("bash", "-c", f"yod {options} cat </proc/$$/mem; exit $?")  # its first page: EIO
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.startswith("yod: standard input cannot be read: Input/output error [RM-")


def test_input_is_byte_exact_and_has_back_pressure(yods: PrivateMesh) -> None:
    data = random.Random(3).randbytes(8 << 20)
    (yods.work / "data").write_bytes(data)
    done = yods.run("bash", "-c", "cat data | yod sh -c 'sleep 0.3; cat' | cmp - data", check=True)
    assert done.stdout == ""
    assert yods.run("bash", "-c", "yod cat < data | cmp - data", check=True).stdout == ""
    # a program that never reads does not make yod take all of it
    process = yods.start("yod", "sleep", "30", stdin=subprocess.PIPE)
    assert process.stdin is not None
    os.set_blocking(process.stdin.fileno(), False)
    taken = 0
    quiet_since = time.monotonic()
    began = quiet_since
    while time.monotonic() - quiet_since < 0.5 or (taken <= 200_000 and time.monotonic() - began < 20.0):
        try:
            taken += os.write(process.stdin.fileno(), b"x" * 65536)
            quiet_since = time.monotonic()
        except BlockingIOError:
            time.sleep(0.02)
    assert 200_000 < taken < 1_500_000
    process.terminate()
    assert process.wait() == 143


def test_a_job_ends_while_its_input_stays_open(yods: PrivateMesh) -> None:
    process = yods.start("yod", "-sz", "2", "true", stdin=subprocess.PIPE)
    assert process.wait() == 0

"""The original's words, row by row: what yod does with each of them, in status, output and files.

One table: a command line, its status, a pattern of its output, a pattern of stderr.
"""

import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress

import pytest

from tests.support.mesh import PrivateMesh
from tests.support.shared_mesh import borrowed_mesh as one_mesh
from tests.support.waiting import freeze, wait_until
from tests.support.yods import PROCESSORS, free, ranks_left, yods

__all__ = ["one_mesh", "yods"]

NODES = "echo $YOD_NODE"

#: Words, status, stdout, stderr: whole lines in any order for stdout, a pattern that is found for stderr ("": nothing).
ROWS: dict[str, tuple[list[str], int, list[str], str]] = {
    "program": (["sh", "-c", "echo $0 $1", "a", "b c"], 0, ["a b c"], ""),
    "program here": (["mine", "x"], 0, ["mine x"], r"yod: mine is not in PATH: running \./mine"),
    "program here, quiet": (["-quiet", "mine", "x"], 0, ["mine x"], ""),
    "no such program": (["nosuch"], 127, [], "nosuch: no such program in PATH or in the current directory"),
    "load file": (["jobs"], 0, ["a", "a", "b"], ""),
    "load file, sized": (["-sz", "7", "jobs"], 0, ["a", "a", "b"], "-sz 7 is ignored: the lines of jobs have sizes"),
    "load file, said so": (["-load", "jobs"], 0, ["a", "a", "b"], ""),
    "load file, list": (["-list", "n3", "here"], 0, ["n3"], ""),
    "load file, all of a list": (["lists"], 0, ["n1", "n1", "n2"], ""),
    "load file, arguments": (["jobs", "x"], 2, [], "jobs is a load file and takes no arguments"),
    "no load file": (
        ["text"],
        2,
        [],
        "text is not executable, and no load file: text:2: the quote .* -load text says",
    ),
    "no load file, said so": (["-load", "text"], 2, [], "text:2: the quote that begins here has no end"),
    "load file, in truth a source": (["-sz", "2", "source.c"], 127, [], "^yod: source.c:1: /.: no such .*is read as a"),
    "load file, no room": (["twice"], 125, [], "twice:2: 1 rank .* there is no room beside the other programs"),
    "-sz": (["-sz", "3", "echo", "x"], 0, ["x", "x", "x"], ""),
    "-sz, default": (["echo", "x"], 0, ["x"], ""),
    "-sz too large": (["-sz", "99999999999", "true"], 2, [], "-sz 99999999999: the number is too large"),
    "-list": (["-list", "1,n2", "sh", "-c", NODES], 0, ["n0", "n2", "n2"], ""),
    "-list, some of it": (["-list", "2,5,9", "-sz", "2", "sh", "-c", NODES], 0, ["n1", "n2"], ""),
    "-list, all of it": (["-list", "2,5,9", "true"], 125, [], "there is no processor 9 in this mesh"),
    "-list, too few": (["-list", "2,9", "-sz", "2", "true"], 125, [], "there is no processor 9 in this mesh"),
    "-list, no such node": (["-list", "n77", "true"], 125, [], "no node 'n77' .*showmesh shows .*mesh init --host"),
    "-list, one dot": (["-list", "1.3", "sh", "-c", NODES], 0, ["n0", "n1", "n1"], ""),
    "-list, three dots": (["-list", "1...3", "sh", "-c", NODES], 0, ["n0", "n1", "n1"], ""),
    "-batch": (["-batch", "-sz", "2", "sh", "-c", "[ $YOD_RANK = 1 ] && exit 3; exec sleep 60"], 3, [], "SIGTERM"),
    "-batch and -alloc": (["-batch", "-alloc", "echo", "x"], 0, ["x"], ""),
    "-batch and -attach": (["-batch", "-attach", "echo", "x"], 0, ["x"], ""),
    "-interactive": (["-interactive", "sh", "-c", "exit 4"], 4, [], "rank 0 on n0: exit 4"),
    "-alloc": (["-alloc", "-release-after", "0.1", "echo", "x"], 0, ["x"], "rank 0 on n0: pid .*held .* --release"),
    "-kill": (["-kill", "-sz", "2", "sh", "-c", "[ $YOD_RANK = 1 ] && exit 3; exec sleep 60"], 3, [], "ending the oth"),
    "-bt": (["-bt", "sh", "-c", "kill -SEGV $$"], 139, [], "rank 0 on n0: SIGSEGV.*rank 0 on n0: stack"),
    "-D": (["-D", "true"], 0, [], "B1 .*B13"),
    "-d load": (["-d", "load", "true"], 0, [], r"B3  load: group"),
    "-d io": (
        ["-d", "io", "-io", ".", "yodio", "cat", "text"],
        0,
        ["it's", "one"],
        r"io: file \d+: open text \(r\), from",
    ),
    "-d, unknown": (["-d", "nonsense", "echo", "x"], 0, ["x"], "-d knows no nonsense; ignored"),
    "-d, unknown, quiet": (["-quiet", "-d", "nonsense", "echo", "x"], 0, ["x"], ""),
    "-nid": (["-nid", "0", "echo", "x"], 0, ["x"], ""),
    "-nid, none": (["-nid", "9", "true"], 125, [], "the CPA 9 does not answer: .*mesh status names the CPAs"),
    "-pid, none": (["-pid", "999999", "true"], 125, [], "of process 999999 does not answer: no CPA here is that proc"),
    "-Log": (["-Log", "echo", "x"], 0, ["x"], ""),
    "-nice": (["-nice", "nice"], 0, [str(min(19, os.nice(0) + 10))], ""),
    "-NOBUF": (["-NOBUF", "echo", "x"], 0, ["x"], ""),
    "-quiet": (["-quiet", "sh", "-c", "exit 3"], 3, [], ""),
    "-sleep 1": (["-sleep", "1:0.1", "echo", "x"], 0, ["x"], ""),
    "-sleep 2": (["-sleep", "2:0.1", "echo", "x"], 0, ["x"], ""),
    "-sleep 3": (["-sleep", "3:0.1", "echo", "x"], 0, ["x"], ""),
    "-sleep 4": (["-sleep", "4:0.1", "echo", "x"], 0, ["x"], "every process is held; sleeping 0.1 s"),
    "-sleep 5": (["-sleep", "5", "true"], 2, [], "the original's 1, 2, 3 or 4, not '5'"),
    "-timing": (["-timing", "true"], 0, [], "yod: seconds: allocation .* load .* run .* all "),
    "exit status, all well": (["-sz", "2", "true"], 0, [], ""),
    "several": (["-n", "1", "echo", "a", ":", "-n", "2", "echo", "b"], 0, ["a", "b", "b"], ""),
    "several, -np and -list": (["echo", "a", ":", "-np", "1", "-list", "n3", "sh", "-c", NODES], 0, ["a", "n3"], ""),
    "a colon that separates nothing": (["echo", "a", ":", "b"], 0, ["a : b"], ""),
    "a colon behind --": (["--", "echo", "a", ":", "-n", "2", "b"], 0, ["a : -n 2 b"], ""),
    "several, one is missing": (["true", ":", "-n", "1", "nosuch"], 127, [], "program 2: nosuch: no such program"),
    "--oversubscribe": (["--oversubscribe", "x"], 2, [], "no option is called --oversubscribe .-overcommit."),
    "--map-by": (["--map-by", "node", "x"], 2, [], "-distribution block|cyclic"),
    "--bind-to": (["--bind-to", "core", "x"], 2, [], "-cpu-bind core"),
    "-env": (["-env", "A", "B", "x"], 2, [], "-export ALL,NAME=VALUE"),
    "-genv": (["-genv", "A", "B", "x"], 2, [], "-export ALL,NAME=VALUE"),
    "-x NAME=V": (["-x", "A=B", "true"], 2, [], "-export ALL,A=B"),
    "-x NAME": (["-x", "NAME", "true"], 125, [], "no node 'NAME' .*-export ALL,NAME"),
    "-x, no node": (["-x", "n77", "true"], 125, [], "no node 'n77' .*showmesh shows"),
    "-l -n 2": (["-l", "-n", "2", "x"], 2, [], "-list needs a value, and -n is an option .*-label"),
    "-l program": (["-l", "true"], 2, [], "no program to launch: -l took 'true' as its value .*-label"),
    "-d program": (["-d", "true"], 2, [], "no program to launch: -d took 'true' as its value .*-D"),
    "--debug -n": (["--debug", "-n", "2", "x"], 2, [], "--debug needs a value, and -n is an option .*-D"),
    "-list, no program": (["-list", "0"], 2, [], "no program to launch .usage"),
    "-straceoptions -f": (["-straceoptions", "-f", "true"], 2, [], "-straceoptions .*-strace"),
    "-D DIR": (["-D", "/tmp", "true"], 126, [], "-D DIR is -chdir DIR"),
    "-i FILE": (["-i", "text.txt", "cat"], 127, [], "-i FILE is -stdin FILE"),
    "-j N": (["-j", "8", "echo", "x"], 127, [], "--limit N of mesh sections run"),
    "-s all": (["-s", "all", "x"], 2, [], "-s WHO is -input WHO"),
    "-p": (["-p", "debug", "x"], 2, [], "a mesh has no partitions"),
    "--kill-on-bad-exit=1": (["--kill-on-bad-exit=1", "x"], 2, [], "leave out =1"),
    "-stdin all": (["-stdin", "all", "cat"], 125, [], "-stdin all cannot be opened: .*-input all"),
    "-gdb": (["-gdb", "x"], 2, [], "mesh debug ID RANK"),
    "-tv": (["-tv", "x"], 2, [], "--mpir-stub"),
    "-outfile-pattern": (["-outfile-pattern", "x", "x"], 2, [], "-output FILE, with {rank} in it"),
    "-errfile-pattern": (["-errfile-pattern=x", "x"], 2, [], "-error FILE, with {rank} in it"),
    "--stop-on-exec": (["--stop-on-exec", "x"], 2, [], "[(]-hold"),
    "a hostfile without room": (["-hostfile", "slots", "-n", "2", "true"], 125, [], "--overcommit allows more ranks"),
    "a hostfile, -overcommit": (["-hostfile", "slots", "-overcommit", "-n", "2", "echo", "x"], 0, ["x", "x"], ""),
    "-host localhost": (["-host", "localhost", "-n", "3", "sh", "-c", NODES], 0, ["n0", "n0", "n1"], ""),
    "-exclude localhost": (["-exclude", "127.0.0.1", "true"], 125, [], "0 are free beside those excluded"),
    "--host n1:2": (["--host", "n1:2", "true"], 2, [], "-list n1 -n 2"),
    "localhost in a host file": (["-hostfile", "local", "sh", "-c", NODES], 0, ["n0", "n1", "n2", "n3"], ""),
    "-V": (["-V"], 2, [], "-version"),
    "-output %t": (["-output", "out.%t", "echo", "x"], 0, [], "%t stays as it is; did you mean {rank}"),
    "-output 100%": (["-output", "out100%.%20x", "echo", "x"], 0, [], ""),
    "-stdin, none": (["-stdin", "nofile", "cat"], 125, [], "-stdin nofile cannot be opened: .*check the name"),
    "-output, none": (["-output", "no/o", "cat"], 125, [], "no/o cannot be opened: .*mkdir -p"),
    "-N 2": (["-N", "2", "x"], 2, [], "-nodes N spreads over N"),
    "-t 10": (["-t", "10", "x"], 2, [], "-time 10"),
    "--mpi=pmix": (["--mpi=pmix_v3", "x"], 2, [], "did you mean pmix"),
    "a word of nobody": (["--zzz", "x"], 2, [], "no option is called --zzz .-help lists them."),
    "a removed directory": (["-chdir", "/", "pwd"], 0, ["/"], ""),
}


@pytest.fixture
def files(yods: PrivateMesh) -> PrivateMesh:
    """The mesh, and the files that the rows name."""
    texts = {
        "jobs": "# two programs\n-sz 2 echo a\necho b\n",
        "here": f"sh -c '{NODES}'\n",
        "lists": f"-list n1 sh -c '{NODES}'\n-list 4 sh -c '{NODES}'\n",
        "text": "one\nit's\n",
        "local": "localhost slots=4\n",
        "slots": "n1 slots=1\n",
        "source.c": "/* a program\n * in C */\nint main(void) { return 0; }\n",
        "twice": "-list 1 true\n-list 1 true\n",
    }
    for name, text in texts.items():
        (yods.work / name).write_text(text)
    (yods.work / "mine").write_text('#!/bin/sh\necho mine "$@"\n')
    (yods.work / "mine").chmod(0o755)
    return yods


def test_every_row(files: PrivateMesh) -> None:
    """All in one test: what is seen to be free behind each test takes longer than a row."""
    wrong = {}
    for row, (words, status, lines, told) in ROWS.items():
        done = files.run("yod", *words)
        fits = re.search(told, done.stderr, re.DOTALL) if told else done.stderr == ""
        if done.returncode != status or sorted(done.stdout.splitlines()) != lines or not fits:
            wrong[row] = done
    assert not wrong, "\n".join(f"{row}: {done}" for row, done in wrong.items())


def test_a_removed_directory_is_named(yods: PrivateMesh) -> None:
    gone = yods.work / "gone"
    script = f"mkdir {gone}; cd {gone}; rmdir {gone}; yod pwd; echo $?; yod -chdir / pwd; echo $?"
    done = yods.run("sh", "-c", script)
    assert done.stdout.splitlines() == ["125", "/", "0"]
    assert f"the current directory {gone} has been removed" in done.stderr and "-chdir" in done.stderr


def test_the_completion_lines_are_appended_behind_the_command_line(yods: PrivateMesh) -> None:
    words = (["-sz", "2", "true"], ["sh", "-c", "exit 3"], ["sh", "-c", "kill -KILL $$"])
    assert [yods.run("yod", "-file", "ends", *one).returncode for one in words] == [0, 3, 137]
    lines = (yods.work / "ends").read_text().splitlines()
    assert [re.sub(r"\d+\.\d+ s", "T", line) for line in lines] == [
        "yod -file ends -sz 2 true",
        "rank 0 on n0: exit 0, T",
        "rank 1 on n0: exit 0, T",
        "yod -file ends sh -c 'exit 3'",
        "rank 0 on n0: exit 3, T",
        "yod -file ends sh -c 'kill -KILL $$'",
        "rank 0 on n0: SIGKILL (Killed), T",
    ]


def test_a_host_file_gets_no_report(yods: PrivateMesh) -> None:
    (yods.work / "hosts").write_text("n0 slots=2\n")
    done = yods.run("yod", "-f", "hosts", "-sz", "2", "true")  # MPICH's word for a host file
    assert done.returncode == 125 and "nothing was written" in done.stderr and "-hostfile" in done.stderr
    assert (yods.work / "hosts").read_text() == "n0 slots=2\n"
    (yods.work / "empty").touch()
    assert yods.run("yod", "-file", "empty", "true").returncode == 0 and (yods.work / "empty").stat().st_size


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace here")
def test_strace_is_of_rank_0_unless_ranks_are_given(yods: PrivateMesh) -> None:
    for place, words, ranks in (
        ("one", [], [0]),
        ("some", ["-stracenodes", "1.2"], [1, 2]),
        ("all", ["-stracenodes", "all"], [0, 1, 2]),
    ):
        yods.run("yod", "-strace", place, *words, "-sz", "3", "true", check=True)
        names = sorted(os.listdir(yods.work / place))
        assert [re.sub(r"^\d+\.", "JOB.", name) for name in names] == [f"JOB.rank-{rank}.strace" for rank in ranks]


def test_help_explains_load_files(yods: PrivateMesh) -> None:
    short, long = yods.run("yod", "-help"), yods.run("yod", "-vhelp")
    assert (short.returncode, long.returncode) == (1, 1), "as in the original"
    assert "load files" in short.stdout and "Load files: several programs" in long.stdout
    shown = yods.run("yod", "-show", "true", check=True).stdout
    assert "Redmesh" in shown and "/true (a binary, " in shown


def test_what_one_rank_reads_no_other_gets(yods: PrivateMesh) -> None:
    text = "".join(f"{number}\n" for number in range(200))
    done = yods.run("yod", "-sz", "3", "cat", input=text)
    assert done.returncode == 0 and sorted(map(int, done.stdout.split())) == list(range(200))


def test_signals(yods: PrivateMesh) -> None:
    _signalled(yods, [signal.SIGUSR1], 0, "usr1")
    _signalled(yods, [signal.SIGUSR2], 0, "usr2")
    _signalled(yods, [signal.SIGINT], 0, "term")
    _signalled(yods, [signal.SIGINT] * 2, 130, "")


def _signalled(yods: PrivateMesh, signals: list[signal.Signals], status: int, told: str) -> None:
    end = "trap 'echo usr1; exit 0' USR1; trap 'echo usr2; exit 0' USR2; "
    end += "trap 'echo term; exit 0' TERM; " if told else "trap '' TERM; "
    script = f"{end} echo up; while :; do sleep 0.1; done"
    process = yods.start("yod", "sh", "-c", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    for number in signals:
        process.send_signal(number)
        if len(signals) > 1 and number is signals[0]:
            assert process.stderr is not None
            process.stderr.readline()  # it says what the second one does
    out, _ = process.communicate()
    assert (process.returncode, out.strip()) == (status, told)


def test_the_third_interrupt_resets_the_nodes_and_leaves(yods: PrivateMesh) -> None:
    """Also where a node does not move: there the second one cannot kill."""
    script = "echo $PPID; trap '' TERM; while :; do sleep 0.1; done"
    process = yods.start(
        "yod", "-list", "0", "sh", "-c", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stderr is not None
    child = int(process.stdout.readline())
    freeze(child)
    try:
        for told in (
            "interrupted: SIGTERM went to every rank",
            "interrupted again: killing",
            "the RCA cleans up behind us",
        ):
            process.send_signal(signal.SIGINT)
            assert told in process.stderr.readline()
        assert process.wait() == 130
        wait_until(lambda: free(yods) == PROCESSORS and not ranks_left(yods), "the node is free again")
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGCONT)


def test_a_held_launch_without_a_terminal_ends_on_sigterm(yods: PrivateMesh) -> None:
    process = yods.start("yod", "-alloc", "echo", "never", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    wait_until(lambda: "held" in process.stderr.readline(), "it is held")
    process.terminate()
    out, _ = process.communicate()
    assert (process.returncode, out) == (143, "")

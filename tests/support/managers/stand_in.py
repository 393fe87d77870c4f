#!/usr/bin/env python3
"""Stands in for the clients of batch systems that are not installed here: every "host" is this machine.

The name of the symbolic link chooses the client: srun, sbatch, squeue, scancel, scontrol, qrsh, blaunch, pbs_tmrsh,
pbsdsh, flux. An option that is not in the client's documentation ends it with status 64, and is written to
$STAND_IN_REFUSED. Sources: srun(1), sbatch(1), squeue(1), scancel(1), scontrol(1) of Slurm 22.05; qrsh(1) of Grid
Engine 8.1.9; the reference of LSF 10.1, "blaunch"; pbs_tmrsh(8) and pbsdsh(1B) of OpenPBS 20; flux-exec(1),
flux-resource(1), flux-getattr(1).
"""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

HOSTS = os.environ.get("STAND_IN_HOSTS", "").split()


def refuse(why: str) -> None:
    with open(os.environ["STAND_IN_REFUSED"], "a", encoding="utf-8") as file:
        file.write(f"{os.path.basename(sys.argv[0])}: {why}: {sys.argv[1:]}\n")
    sys.exit(64)


def options(words: list[str], valued: dict[str, str], flags: set[str]) -> tuple[dict[str, str], list[str]]:
    """Parse the documented options before the first operand; ``valued`` maps an option to the pattern of its value."""
    found: dict[str, str] = {}
    while words and words[0].startswith("-") and words[0] != "--":
        name, equals, value = words.pop(0).partition("=")
        if name in flags and not equals:
            found[name] = ""
        elif name in valued:
            value = value if equals else words.pop(0)
            if not re.fullmatch(valued[name], value):
                refuse(f"{name} takes no {value!r}")
            found[name] = value
        else:
            refuse(f"{name} is not documented")
    if words[:1] == ["--"]:
        words.pop(0)
    return found, words


def descendants(pid: int) -> list[int]:
    """The processes that descend from ``pid``, as far as their parents live."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            children = [int(child) for child in file.read().split()]
    except OSError:
        return []
    return [one for child in children for one in (child, *descendants(child))]


def signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass  # it has just ended


def run(
    commands: list[tuple[list[str], dict[str, str]]],
    given: bool,
    taken: bool,
    label: bool,
    on_signal: "Callable[[], None] | None" = None,
    of_step: bool = False,
) -> int:
    """Run ``commands`` like one client, which forwards input and signals to all of them; return the largest status.

    ``given``: forward standard input. ``taken``: forward standard output and error. ``label``: prefix output lines with
    the task's number. The status of a command that a signal killed is the signal's number, and
    ``on_signal`` is called then. ``of_step``: as srun does it.
    """
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    tasks = [
        subprocess.Popen(
            argv, stdin=pipe if given else null, stdout=(pipe if label else None) if taken else null,
            stderr=None if taken else null, env={**os.environ, **env}, start_new_session=True,
        )
        for argv, env in commands
    ]  # fmt: skip

    def pass_on(number: int, _frame: object) -> None:
        for task in tasks:
            if task.poll() is None:
                if of_step:  # seen with 22.05: all processes of the step get it; SIGTERM to srun is SIGKILL for them
                    signal_all([task.pid, *descendants(task.pid)], signal.SIGKILL if number == 15 else number)
                else:  # qrsh -inherit 8.1.9: SIGTERM to it is SIGKILL for its task
                    os.killpg(task.pid, number if on_signal is None else signal.SIGKILL)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, pass_on)
    lock = threading.Lock()

    def read(index: int, task: "subprocess.Popen[bytes]") -> None:
        assert task.stdout is not None
        for line in task.stdout:
            # srun ends a longer line after 1,024 bytes, and labels the rest as a line of its own (seen with 22.05)
            for at in range(0, len(line), 1024):
                part = line[at : at + 1024]
                with lock:
                    sys.stdout.buffer.write(b"%d: %s" % (index, part if part.endswith(b"\n") else part + b"\n"))
                    sys.stdout.buffer.flush()

    def feed() -> None:
        while data := os.read(0, 1 << 16):
            for task in tasks:
                assert task.stdin is not None
                try:
                    task.stdin.write(data)
                    task.stdin.flush()
                except OSError:
                    pass
        for task in tasks:
            try:
                task.stdin.close()  # type: ignore[union-attr]
            except OSError:
                pass

    if label:
        for index, task in enumerate(tasks):
            threading.Thread(target=read, args=(index, task), daemon=True).start()
    if given:
        threading.Thread(target=feed, daemon=True).start()
    statuses = [task.wait() for task in tasks]
    if on_signal is not None and min(statuses) < 0:
        on_signal()
    return max(map(abs, statuses))


def on_host(name: str) -> str:
    if name not in HOSTS:
        refuse(f"no host of the job is called {name}")
    return name


def srun(words: list[str]) -> int:
    number, text = r"\d+", r".+"
    found, argv = options(
        words,
        {"--jobid": number, "--job-name": text, "--nodes": number, "--ntasks": number, "--ntasks-per-node": number,
         "--nodelist": text, "--input": "all|none|[0-9]+", "--mpi": "none|pmi2|pmix", "--cpu-bind": text,
         "--mem": number,
         "--chdir": "/.*", "--export": text, "--kill-on-bad-exit": "[01]", "--wait": number,
         "--distribution": "arbitrary", "--output": "none"},
        {"--overlap", "--overcommit", "--label", "--no-kill", "--quiet"},
    )  # fmt: skip
    names = [on_host(name) for name in found["--nodelist"].split(",")]
    each = names if "--distribution" not in found else set(names)  # with "arbitrary", the list has a name for each task
    if found["--nodes"] != str(len(each)) or found["--ntasks"] != str(len(names)):
        refuse("nodes, tasks and the list differ")
    os.chdir(found.get("--chdir", "."))
    with open("/proc/self/comm", "w", encoding="ascii") as comm:  # this process is the parent of the tasks too
        comm.write("slurmstepd")
    return run([(argv, {"SLURMD_NODENAME": name}) for name in names], True, True, "--label" in found, of_step=True)


def _job_file() -> str:
    return os.environ["STAND_IN_REFUSED"] + ".job"  # one line: the number of the job that runs, and when it ends


def _jobs() -> dict[str, float]:
    try:
        with open(_job_file(), encoding="utf-8") as file:
            number, ends = file.read().split()
    except (OSError, ValueError):
        return {}
    return {number: float(ends)}


def sbatch(words: list[str]) -> int:
    found, rest = options(
        words,
        {"--nodes": r"\d+", "--job-name": ".+", "--output": ".+", "--chdir": "/.*", "--export": "NONE|ALL",
         "--time": r"[\d:-]+", "--nodelist": ".+", "--wrap": ".+"},
        {"--parsable", "--no-requeue"},
    )  # fmt: skip
    if rest or "--wrap" not in found:
        refuse("a script and --wrap exclude each other")
    if int(found["--nodes"]) > len(HOSTS):
        print(
            "sbatch: error: Batch job submission failed: Requested node configuration is not available", file=sys.stderr
        )
        return 1
    seconds = 0
    for field in found.get("--time", "8760:00:00").split(":"):
        seconds = seconds * 60 + int(field)
    number = "18" if os.path.exists(_job_file()) else "17"
    with open(_job_file(), "w", encoding="utf-8") as file:
        file.write(f"{number} {time.time() + seconds}")
    print(f"{number};here")
    return 0


def squeue(words: list[str]) -> int:
    found, _rest = options(words, {"--format": ".+", "--jobs": r"\d+", "--states": "all"}, {"--noheader"})
    if found["--format"] == "%t":  # of the job that this runs in; a test may have written its state, "": no answer
        try:
            with open(os.environ["STAND_IN_REFUSED"] + ".state", encoding="utf-8") as file:
                state = file.read()
        except OSError:
            state = "R"
        if not state:
            with open(os.environ["STAND_IN_REFUSED"] + ".asked", "a", encoding="utf-8"):
                pass
            print("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", file=sys.stderr)
            return 1
        print(state)
        return 0
    ends = _jobs().get(found["--jobs"])
    if ends is None:
        print("slurm_load_jobs error: Invalid job id specified", file=sys.stderr)
        return 1
    minutes, seconds = divmod(int(ends - time.time()), 60)
    left = f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    count = len(HOSTS)
    fields = {"%T": "RUNNING", "%N": ",".join(HOSTS), "%C": str(count * int(os.environ["STAND_IN_SLOTS"]))}
    fields |= {"%D": str(count), "%L": left}
    print("|".join(fields[field] for field in found["--format"].split("|")))
    return 0


def scontrol(words: list[str]) -> int:
    if words != ["show", "config"]:
        refuse("not documented, or not known here")
    print("KillOnBadExit           = 0\nKillWait                = 5 sec\nProctrackType           = proctrack/linuxproc")
    return 0


def scancel(words: list[str]) -> int:
    _found, rest = options(words, {}, {"--quiet"})
    if rest:
        if rest[0] in _jobs():
            with open(_job_file(), "w", encoding="utf-8") as file:
                file.write("")
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as command:
                    if f"--jobid={rest[0]}".encode() not in command.read().split(b"\0"):
                        continue
                with open(f"/proc/{entry}/environ", "rb") as variables:
                    ours = f"STAND_IN_REFUSED={os.environ['STAND_IN_REFUSED']}".encode()
                    if ours not in variables.read().split(b"\0"):
                        continue
                signal_all(descendants(int(entry)), signal.SIGTERM)
            except OSError:
                pass
    return 0


def qrsh(words: list[str]) -> int:
    found, rest = options(words, {}, {"-inherit", "-noshell", "-nostdin", "-V", "-verbose"})
    if "-inherit" not in found:
        refuse("outside of a job")
    take_slot(on_host(rest[0]))
    # sge_qmaster: "tightly integrated parallel task failed - killing job" (seen with 8.1.9).
    return run([(rest[1:], {})], "-nostdin" not in found, True, False, on_signal=kill_job)


def take_slot(host: str) -> None:
    """A host runs as many tasks of a job as the job has slots there (seen with 8.1.9)."""
    for slot in range(int(os.environ["STAND_IN_SLOTS"])):
        fd = os.open(f"{os.environ['STAND_IN_REFUSED']}.slot.{host}.{slot}", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until this process ends
            return
        except OSError:
            os.close(fd)
    print(f"error: executing task of job 17 failed: failed sending task to execd@{host}: didn't accept task",
          file=sys.stderr)  # fmt: skip
    sys.exit(1)


def kill_job() -> None:
    """Kill every process of the job, its script too."""
    mark = f"STAND_IN_REFUSED={os.environ['STAND_IN_REFUSED']}".encode()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if mark in file.read().split(b"\0") and int(entry) != os.getpid():
                    os.kill(int(entry), signal.SIGKILL)
        except OSError:
            continue


def blaunch(words: list[str]) -> int:
    found, rest = options(words, {"-z": ".+", "-u": ".+"}, {"-n", "-no-shell", "-use-login-shell"})
    names = found["-z"].split() if "-z" in found else [rest.pop(0)]
    return run([(rest, {}) for name in names if on_host(name)], "-n" not in found, True, False)


def pbs_tmrsh(words: list[str]) -> int:
    on_host(words[0])
    _found, argv = options(words[1:], {"-l": ".+"}, {"-n"})
    return run([(argv, {})], False, False, False)


def pbsdsh(words: list[str]) -> int:
    found, argv = options(words, {"-n": r"\d+", "-c": r"\d+"}, {"-v", "-s", "-o"})
    with open(os.environ["PBS_NODEFILE"], encoding="utf-8") as file:
        lines = file.read().split()
    on_host(lines[int(found["-n"])])
    return run([(argv, {})], False, False, False)


def flux(words: list[str]) -> int:
    if words[:2] == ["getattr", "jobid"] and len(words) == 2:
        print("ƒ2oLkTLb")
        return 0
    if words[:2] == ["resource", "R"] and len(words) == 2:
        slots = int(os.environ["STAND_IN_SLOTS"])
        children = {"core": f"0-{slots - 1}"}
        lite = [{"rank": f"0-{len(HOSTS) - 1}", "children": children}]
        execution = {"R_lite": lite, "nodelist": HOSTS, "starttime": 0, "expiration": 0}
        print(json.dumps({"version": 1, "execution": execution}))
        return 0
    if words[:1] == ["exec"]:
        found, argv = options(
            words[1:], {"--rank": r"\d+", "-r": r"\d+", "--dir": "/.*", "-d": "/.*"}, {"--noinput", "-n"}
        )
        on_host(HOSTS[int(found.get("--rank", found.get("-r", "0")))])
        os.chdir(found.get("--dir", "."))
        return run([(argv, {})], True, True, False)
    refuse("not documented, or not known here")
    return 64


if __name__ == "__main__":
    commands = {
        "srun": srun, "sbatch": sbatch, "squeue": squeue, "scancel": scancel, "scontrol": scontrol,
        "qrsh": qrsh, "blaunch": blaunch, "pbs_tmrsh": pbs_tmrsh, "pbsdsh": pbsdsh, "flux": flux,
    }  # fmt: skip
    sys.exit(commands[os.path.basename(sys.argv[0])](sys.argv[1:]))

"""Compare ``mesh sections`` and GNU parallel when a node dies, hangs, is cut off, is slow, or has a full disk.

    python -m tests.support.sections_beside_parallel [--hosts 4] [--sections 48] [--limit 45]

Needs root (for the hosts) and GNU parallel. Both run the same script, one section at a time on each host, over the same
sshds; the fault strikes one host when a quarter of the sections have finished, and stays. A run that has not ended
after ``--limit`` seconds is interrupted. GNU parallel is then started a second time with ``--resume-failed``.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.sections import parallel_words
from tests.support.far_mesh import FarMesh
from tests.support.hosts import NamespaceHost, NamespaceHosts
from tests.support.sections_storm import cut, fill, kill, shared_directory
from tests.support.waiting import freeze, wait_until

#: A section computes on its host's own disk, which is its /tmp, and copies the result to the shared directory.
_SCRIPT = """\
echo "$1 $(hostname)" >>{directory}/ran
[ -e /tmp/slow ] && sleep 15
sleep 0.3
seq $(($1 * 1000)) $(($1 * 1000 + 999)) >/tmp/section.$1 || exit 1
cat /tmp/section.$1 >"$2" && rm /tmp/section.$1
"""
_JOB = """
probe = "sh -c 'head -c 65536 /dev/zero >/tmp/probe.$$ && rm /tmp/probe.$$'"
command = "sh {directory}/section.sh {{section}} {{part}}"
[sections]
count = {sections}
[[output]]
name = "whole"
part = "part.{{section}}"
"""


def slow(host: NamespaceHost) -> Callable[[], None]:
    """Make sections take about fifty times as long on this host."""
    host.run("touch", "/tmp/slow")
    return lambda: None


def none(_host: NamespaceHost) -> Callable[[], None]:
    """Do nothing: the case without a fault."""
    return lambda: None


def hang(host: NamespaceHost) -> Callable[[], None]:
    """Stop all processes of this host, its sshd included; its kernel still accepts connections."""
    inside = os.readlink(f"/proc/{host.init}/ns/pid")
    stopped: set[int] = set()
    while more := {int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _space(pid) == inside} - stopped:
        stopped |= more
        for pid in more:
            with contextlib.suppress(ProcessLookupError):
                freeze(pid)

    def heal() -> None:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    return heal


def _space(pid: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


CASES = {"no fault": none, "dies": kill, "hangs": hang, "cut off": cut, "slow": slow, "disk full": fill}


class Contest:
    """Runs one of the two programs with one fault, on new hosts."""

    def __init__(self, options: argparse.Namespace, fault: str) -> None:
        self.options, self.fault = options, fault
        self.directory = shared_directory()
        self.numbers = [str(number) for number in range(options.sections)]
        (self.directory / "section.sh").write_text(_SCRIPT.format(directory=self.directory))
        (self.directory / "JOB.toml").write_text(_JOB.format(directory=self.directory, sections=options.sections))
        (self.directory / "ran").touch()

    def run(self, program: str) -> str:
        """Run ``program`` and return its row of the table."""
        hosts = NamespaceHosts(self.options.hosts)
        mesh = FarMesh(hosts, processors=1)
        try:
            if program == "mesh sections":
                mesh.up()
                commands = [["mesh", "sections", "run", f"{self.directory}/JOB.toml"]]
            else:
                log = ["--joblog", str(self.directory / "joblog"), "--retries", "3"]
                words = ["sh", f"{self.directory}/section.sh", "{}", f"{self.directory}/part.{{}}", ":::"]
                commands = [
                    parallel_words(mesh, hosts, *log, *more, *words, *self.numbers)
                    for more in ((), ["--resume-failed"])
                ]
            told = []
            heal: Callable[[], None] | None = None
            for command in commands:
                began = time.monotonic()
                process = mesh.start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                if heal is None:
                    wait_until(lambda: self.parts() >= self.options.sections // 4, "a quarter has finished")
                    heal = CASES[self.fault](hosts[1])
                told.append(self._end(process, began))
                if told[-1].startswith("exit 0"):
                    break
            if heal is not None:
                heal()
            return f"| {self.fault} | {program} | {'; again: '.join(told)} | {self._outcome()} |"
        finally:
            with contextlib.suppress(Exception):
                mesh.close()
            hosts.close()
            shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self, process: subprocess.Popen[str], began: float) -> str:
        try:
            _, said = process.communicate(timeout=self.options.limit)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            try:
                process.communicate()
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
            return f"not ended after {time.monotonic() - began:.0f} s"
        last = said.strip().splitlines()[-1:] or [""]
        print(f"    {self.fault}: {said.strip()[-600:]}", file=sys.stderr)
        words = f" ({last[0][:90]})" if process.returncode else ""
        return f"exit {process.returncode} after {time.monotonic() - began:.1f} s{words}"

    def parts(self) -> int:
        """Return how many sections have written their part file."""
        return sum(name.startswith("part.") and ".redmesh" not in name for name in os.listdir(self.directory))

    def _logged(self, number: int) -> list[str]:
        """Return the lines of GNU parallel's job log for a section."""
        log = self.directory / "joblog"
        lines = log.read_text().splitlines() if log.exists() else []
        return [" ".join(line.split("\t")) for line in lines if line.split("\t")[0] == str(number + 1)]

    def _outcome(self) -> str:
        right = 0
        hosts = dict(line.split() for line in (self.directory / "ran").read_text().splitlines())
        for number in map(int, self.numbers):
            wanted = "".join(f"{one}\n" for one in range(number * 1000, number * 1000 + 1000))
            path = self.directory / f"part.{number}"
            found = path.read_text() if path.exists() else None
            right += found == wanted
            if found != wanted:
                size = "no part" if found is None else f"{len(found)} bytes"
                print(f"    section {number}, last on {hosts.get(str(number))}: {size}", file=sys.stderr)
                for line in self._logged(number):
                    print(f"        joblog: {line[:100]}", file=sys.stderr)
        starts = collections.Counter(line.split()[0] for line in (self.directory / "ran").read_text().splitlines())
        again = sum(count - 1 for count in starts.values())
        whole = Path(self.directory / "whole")
        output = "whole" if whole.exists() and whole.stat().st_size else "none"
        return f"{right} of {len(self.numbers)} right | {again} | {output}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.sections_beside_parallel", description=__doc__)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--sections", type=int, default=48)
    parser.add_argument("--limit", type=float, default=45.0)
    parser.add_argument("--only", choices=CASES, help="this fault alone")
    options = parser.parse_args()
    if shutil.which("parallel") is None:
        parser.error("GNU parallel is not installed")
    print("| fault of one host | program | what it did | parts | started again | combined |\n|---|---|---|---|---|---|")
    for fault in CASES if options.only is None else (options.only,):
        for program in ("mesh sections", "GNU parallel"):
            print(Contest(options, fault).run(program), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs a campaign (tests/storm, tests/monkey) in mount and process namespaces of its own, where root may make some.

Small disks can be mounted and filled, and whatever becomes of the campaign, the kernel ends every process of it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from tests.support.once import SHARED

PROJECT = Path(__file__).resolve().parents[2]
#: /tmp is the campaign's own; what of it must stay visible (project, report, what is made once) is bound into it.
_INSIDE = """
n=3
for keep in "$PROJECT" "$REPORT" "$WORK" "$SHARED"; do
    case $keep in /tmp/*) eval "exec $n<\\"\\$keep\\""; n=$((n+1));; esac
done
mount -t tmpfs -o mode=1777 campaign /tmp || exit 125
n=3
for keep in "$PROJECT" "$REPORT" "$WORK" "$SHARED"; do
    case $keep in /tmp/*) mkdir -p "$keep"; mount -c --bind "/proc/self/fd/$n" "$keep" || exit 125; n=$((n+1));; esac
done
exec 3<&- 4<&- 5<&- 6<&-
"$@" &
child=$!
wait $child
status=$?
while kill -0 $child 2>/dev/null; do wait $child; status=$?; done
exit $status
"""


def run_isolated(module: str, words: Sequence[str], seed: int, report: Path) -> int:
    """Run ``python -m module words --seed S --report R --inside KIND:WORK``; clear up behind it; its exit status.

    KIND is ``root`` in namespaces and ``user`` where there are none; WORK is a directory that is removed at the end.
    """
    work = Path(tempfile.mkdtemp(prefix="redmesh-storm-", dir="/var/tmp"))
    work.chmod(0o755)
    command = [sys.executable, "-m", module, *words, "--seed", str(seed), "--report", str(report)]
    isolated = _can_isolate()
    command += ["--inside", f"{'root' if isolated else 'user'}:{work}"]
    if isolated:
        unshare = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = ["setpriv", "--pdeathsig", "KILL", *unshare, "sh", "-c", _INSIDE, "campaign", *command]
    env = {**os.environ, "PROJECT": str(PROJECT), "REPORT": str(report), "WORK": str(work)}
    env["SHARED"] = env.get(SHARED, "")
    child = subprocess.Popen(command, cwd=PROJECT, env=env, start_new_session=True)

    def pass_on(number: int, _frame: FrameType | None) -> None:
        os.killpg(child.pid, number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    try:
        return child.wait()
    finally:
        shutil.rmtree(work, ignore_errors=True)


def interruptible() -> None:
    """Have every signal that asks for an end raise KeyboardInterrupt, so that a campaign takes its mesh down."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGHUP, interrupt)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _can_isolate() -> bool:
    """Whether mount and process namespaces can be had."""
    if os.geteuid() or not all(shutil.which(name) for name in ("unshare", "setpriv", "mount")):
        return False
    return subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode == 0

"""Jobs whose state directory has no room left: a small tmpfs in a mount namespace of its own."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.mesh import MakeMesh

SCRIPT = r"""
umask 077
jobs="$STATE/jobs" && mkdir -p "$jobs"
mount --make-rprivate / && mount -t tmpfs -o size=2m,mode=700 tmpfs "$jobs" || exit 77
say() { printf '\n== %s\n' "$1"; shift; "$@" 2>&1; echo "status $?"; }
job=$(mesh submit --array 1-150 -- sh -c 'head -c 3000 /dev/zero | tr "\0" x; echo {} >> ran') || exit 1
say wait mesh wait $job
say states mesh job sql $job --json "SELECT state, sum(last - first + 1) AS n FROM task GROUP BY state"
# the last process that closes the object removes its log: the owner or a reader may still have it open
for try in $(seq 600); do [ "$(ls "$jobs" | wc -l)" -gt 2 ] || break; sleep 0.1; done
say kept sh -c "ls $jobs | wc -l"
say ran sh -c 'sort -n ran | uniq -d; wc -l < ran'
say queue mesh queue --all --json
say calls "$PYTHON" -c "$CALLS"
mount -o remount,size=64m "$jobs"
mesh retry $job || exit 1
say again mesh wait $job
say twice mesh job sql $job --json "SELECT first FROM task WHERE attempt > 1 ORDER BY first"
say all sh -c 'sort -n ran | uniq -d'
head -c 80m /dev/zero > "$jobs/fill" 2>/dev/null
say submit mesh submit --array 1-10 -- true
mesh down --force >&2
"""
CALLS = """
import redmesh
with redmesh.Executor(1) as executor:
    large = executor.submit(len, b"x" * 3_000_000)
    print(large.exception(), "|", executor.submit(pow, 2, 3).result())
"""


def mounts() -> bool:
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not mounts(), reason="needs root, for a mount namespace")
def test_a_job_on_a_full_disk_ends_with_that_reason_and_goes_on_later(mesh: MakeMesh) -> None:
    private = mesh(2, 1, up=False)
    env = {"STATE": str(private.state), "CALLS": CALLS, "PYTHON": sys.executable}
    done = private.run("unshare", "-m", "sh", "-c", SCRIPT, env=env)
    assert done.returncode == 0, done.stderr
    steps = dict(step.split("\n", 1) for step in done.stdout.split("\n== ")[1:])
    full = f"the disk of {private.state}/jobs is full"
    assert f"failed: {full}" in steps["wait"] and "mesh retry" in steps["wait"] and "status 1" in steps["wait"]
    counts = {one["state"]: one["n"] for one in map(json.loads, steps["states"].splitlines()[:-1])}
    assert sum(counts.values()) == 150 and counts["done"] > 5 and "failed" not in counts
    # what is not recorded as done may have run: it is recorded as begun
    ran = int(steps["ran"].split()[0])
    assert counts["done"] <= ran <= counts["done"] + counts["running"], (ran, counts)
    assert steps["kept"].split()[0] == "2", "the object and the owner's errors, without a log beside it"
    assert json.loads(steps["queue"].splitlines()[0])[0]["state"] == "failed"
    assert "No space left on device" in steps["calls"] and steps["calls"].splitlines()[-2].endswith("| 8")
    assert "150 done" in steps["again"] and "status 0" in steps["again"]
    named = {json.loads(line)["first"] for line in steps["twice"].splitlines()[:-1]}
    assert set(map(int, steps["all"].split()[:-2])) <= named, "a task ran twice, and the object does not say so"
    assert "full" in steps["submit"] and "status 1" in steps["submit"] and "Traceback" not in done.stdout

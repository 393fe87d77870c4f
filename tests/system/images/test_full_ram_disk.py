"""A RAM disk that is too small, and one that is really full (row B4): a /dev/shm in a mount namespace of its own."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mesh import MakeMesh

BYTES = 6_000_000
#: Prints which file its library is.
MAPPED = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int tell(void);
int main(void) {
    char command[99];
    snprintf(command, sizeof command, "grep -o '/.*libtell.so' /proc/%d/maps | head -1", getpid());
    return system(command) + tell();
}
"""
SCRIPT = r"""
mount --make-rprivate / && mount -t tmpfs -o size=20m tmpfs /dev/shm || exit 77
mesh up --processors 4 --nodes 4 >&2 || exit 1
say() { printf '\n== %s\n' "$1"; shift; "$@" 2>&1; echo "status $?"; }
always="yod -sz 4 --bcast=always -bcast-per node"
say elsewhere $always ./blob
head -c 20m /dev/zero > /dev/shm/fill 2>/dev/null
say elsewhere-full $always ./blob
say elsewhere-libs yod -sz 1 --bcast=always --bcast-libs ./uses
say elsewhere-staged yod -sz 2 --stage-in blob sh -c 'echo "$YOD_STAGE"; sha256sum < "$YOD_STAGE/blob"'
say elsewhere-job mesh submit --quiet --wait --file blob ./blob
rm /dev/shm/fill
mount --rbind "$0" "$0" && mount --rbind /tmp /tmp && mount -o remount,ro,bind /tmp || exit 77
say too-small $always ./blob
say placed env PARALLEL_FILE_SYSTEM="$PWD/pfs" $always ./blob
say one-copy yod -sz 4 --bcast=always ./blob
head -c 20m /dev/zero > /dev/shm/fill 2>/dev/null
say full $always ./blob
say full-placed env PARALLEL_FILE_SYSTEM="$PWD/pfs" $always ./blob
say plain yod -sz 4 ./blob
say staged yod -sz 2 --stage-in blob:/dev/shm/staged true
mesh submit --wait --file blob true >full-job 2>&1 & job=$!
until grep -q 'try [5-9] of 10' full-job || ! kill -0 $job; do sleep 0.2; done
rm /dev/shm/fill
wait $job; status=$?
printf '\n== full-job\n'; cat full-job; echo "status $status"
say left find pfs /dev/shm -name blob -o -name 'staged*'
umount -l /tmp; mesh down --force >&2
"""


def mounts() -> bool:
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


READ_ONLY = r"""
mount --make-rprivate / && mount -t tmpfs -o ro tmpfs /dev/shm || exit 77
mkdir -m 700 tmp && export TMPDIR="$PWD/tmp"
mesh up --processors 4 --nodes 2 >&2 || exit 1
say() { printf '\n== %s\n' "$1"; shift; "$@" 2>&1; echo "status $?"; }
always() { yod -sz 4 --bcast=always /bin/sh -c 'readlink /proc/$$/exe'; }
say read-only always
say job mesh submit --quiet --wait sh -c 'echo ran > job'
say left find tmp -type f -size +0
mount -t tmpfs -o noexec tmpfs tmp
say noexec always
umount tmp && mount -t tmpfs -o size=1m tmpfs tmp
say small always
mount --rbind /tmp /tmp && mount --rbind "$0" "$0" && mount -o remount,ro,bind /tmp || exit 77
say nowhere always
umount tmp && mount -t tmpfs -o noexec tmpfs tmp
mesh submit --wait true >nowhere.submit 2>&1 & submit=$!
mesh sections run -- true {} ::: a >nowhere.sections 2>&1 & sections=$!
"$PYTHON" -c "import redmesh; redmesh.Executor(1).submit(pow, 2, 3).result()" >nowhere.executor 2>&1 & executor=$!
for name in submit sections executor; do
    eval wait \$$name; status=$?
    printf '\n== nowhere-%s\n' "$name"; cat "nowhere.$name"; echo "status $status"
done
printf '\n== status\n'; mesh status --json
umount -l "$0" && umount -l /tmp && umount -l tmp; mesh down --force >&2
printf '\n== after\n'; find tmp
"""


@pytest.mark.skipif(not mounts(), reason="needs root, for a mount namespace")
def test_a_read_only_ram_disk_takes_no_node_out(mesh: MakeMesh) -> None:
    """Two nodes were down after one launch with -bcast, and every other user's launch was refused."""
    private = mesh(4, 2, up=False, REDMESH_FAILED_S="600")  # a node that failed is not tried again meanwhile
    sh = shutil.which("sh") or "/bin/sh"
    done = private.run("unshare", "-m", sh, "-c", READ_ONLY, str(private.home), env={"PYTHON": sys.executable})
    assert done.returncode == 0, done.stderr
    steps = dict(step.split("\n", 1) for step in done.stdout.split("\n== ")[1:])
    tmp = f"{private.work}/tmp"
    for name, place, left in (
        ("read-only", tmp, "/dev/shm is read-only"),
        ("noexec", "/tmp", "/dev/shm is read-only"),
        ("small", "/tmp", f"/dev/shm is read-only, {tmp} has too little room"),
    ):
        assert f"yod: n0-n1: {left}: programs are copied to {place} instead\n" in steps[name], steps[name]
        assert steps[name].count("instead") == 1
        assert steps[name].count(f"{place}/redmesh-programs-") == 4 and "status 0" in steps[name]
    assert steps["job"].endswith("status 0\n") and (private.work / "job").read_text() == "ran\n"
    assert steps["left"].strip() == "status 0", "nothing of it is left"
    for reason in ("/dev/shm/redmesh-", ": Read-only file system", f"{tmp}/redmesh-programs-0 has room for 0 bytes"):
        assert reason in steps["nowhere"]
    assert steps["nowhere"].count("\n") == 2 and "status 125" in steps["nowhere"]
    for name in ("submit", "sections", "executor"):
        ended = steps[f"nowhere-{name}"]
        assert "no worker can start (4 tries on each node): n0-n1: /dev/shm/redmesh-" in ended, ended
        assert f"{tmp} is mounted noexec" in ended and ended.strip().endswith("status 1"), ended
        # while it waits, it says why
        assert "no processors: n" in ended and "beside those excluded" not in ended, ended
    assert json.loads(steps["status"])["nodes_out"] == []
    assert steps["after"].strip() == "tmp"
    programs = Path(f"/tmp/redmesh-programs-{os.geteuid()}")
    assert private.home.name not in " ".join(os.listdir(programs) if programs.exists() else ())


READ_ONLY_RUN = r"""
mount --make-rprivate / && mesh up --processors 4 --nodes 2 >&2 || exit 1
run=$(readlink "$0/run")
mount --bind "$run" "$run" && mount -o remount,ro,bind "$run" || exit 77
yod -sz 2 true; echo "status $?"
mesh status --json; mount -o remount,rw,bind "$run"; mesh down --force >&2
"""


@pytest.mark.skipif(not mounts(), reason="needs root, for a mount namespace")
def test_nodes_whose_run_is_read_only_are_taken_out(mesh: MakeMesh) -> None:
    """No launch can run there: the nodes are broken, whatever the launch."""
    private = mesh(4, 2, up=False, REDMESH_FAILED_S="600")  # a node that failed is not tried again meanwhile
    done = private.run("unshare", "-m", shutil.which("sh") or "/bin/sh", "-c", READ_ONLY_RUN, str(private.state))
    _, _, status = done.stdout.partition("status 125\n")
    assert "Read-only file system" in done.stderr and "trying other nodes" in done.stderr
    assert {one["name"] for one in json.loads(status)["nodes_out"]} == {"n0", "n1"}


@pytest.mark.skipif(not mounts(), reason="needs root, for a mount namespace")
def test_a_ram_disk_without_room(mesh: MakeMesh) -> None:
    private = mesh(4, 4, up=False)
    tell = b'#!/bin/sh\necho "$(sha256sum < "$0" | cut -c1-64) $0"; exit 0\n'
    blob = tell + os.urandom(BYTES - len(tell))
    digest = hashlib.sha256(blob).hexdigest()
    (private.work / "blob").write_bytes(blob)
    (private.work / "blob").chmod(0o755)
    (private.work / "pfs").mkdir()
    if shutil.which("cc"):
        (private.work / "lib.c").write_text("int tell(void) { return 0; }\n")
        (private.work / "main.c").write_text(MAPPED)
        private.run("cc", "-shared", "-fPIC", "-o", "libtell.so", "-Wl,-soname,libtell.so", "lib.c", check=True)
        private.run("cc", "-o", "uses", "main.c", "./libtell.so", "-Wl,-rpath,$ORIGIN", check=True)
    sh = shutil.which("sh") or "/bin/sh"
    done = private.run("unshare", "-m", sh, "-c", SCRIPT, str(private.home), env={"PARALLEL_FILE_SYSTEM": "/nowhere"})
    assert done.returncode == 0, done.stderr
    steps = dict(step.split("\n", 1) for step in done.stdout.split("\n== ")[1:])
    instead = "/dev/shm has too little room: programs are copied to /tmp instead\n"
    for name, least in (("elsewhere", 1), ("elsewhere-full", 4)):  # two or three copies have room in the RAM disk
        told = steps[name]
        assert told.count(instead) == 1 and told.count(f"{digest} ") == 4 and "status 0" in told, told
        assert told.count(f"{digest} /tmp/redmesh-programs-") >= least, told
    assert f"yod: n0-n3: {instead}" in steps["elsewhere-full"]
    told = steps["elsewhere-staged"]
    assert f"yod: n0-n1: {instead}" in told and told.count(digest) == 2 == told.count("/tmp/redmesh-programs-"), told
    assert steps["elsewhere-job"].endswith("status 0\n"), steps["elsewhere-job"]
    if shutil.which("cc"):
        told = steps["elsewhere-libs"]
        assert "/tmp/redmesh-programs-" in told and "/libtell.so" in told and "status 0" in told, told
    for name in ("too-small", "full"):
        assert "has room for" in steps[name] and "/nowhere: No such file" in steps[name] and "status 125" in steps[name]
        assert steps[name].count("\n") <= 3, "one line, and the status"
    for name in ("placed", "full-placed"):
        assert "goes by the parallel file system" in steps[name] and "status 0" in steps[name]
        assert steps[name].count(f"{digest} " if name == "placed" else f"{digest} {private.work}/pfs/redmesh-") == 4
    assert "yod:" not in steps["one-copy"] and "status 0" in steps["one-copy"]
    assert "status 0" in steps["plain"], "what runs in place needs no room"
    full = "No space left on device (its file system is full: free room there (df -h; du -xsh shows what fills it))"
    assert steps["staged"].strip() == f"yod: n0: stage-in: /dev/shm/staged: {full}\nstatus 125"
    told = steps["full-job"]
    assert "n0-n3: /dev/shm/redmesh-" in told and " has room for 0 bytes" in told, told
    assert "its file system is full: free room there" in told and told.endswith("status 0\n"), "room came back"
    assert steps["left"].strip() == "status 0", "nothing of it is left"
    assert not any((private.work / "pfs").iterdir()), "and no directory of it either"

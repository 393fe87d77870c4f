"""Programs that travel: over a real mesh, from nodes that have them not, with no room, under kills; nothing stays."""

import contextlib
import hashlib
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from agents.pct.images.store import Store
from tests.support.look import processors, states
from tests.support.mesh import PrivateMesh, while_up
from tests.support.waiting import freeze, wait_until
from tests.support.yods import PROCESSORS, free, one_mesh, yods

__all__ = ["one_mesh", "yods"]
STORE = Path(f"/dev/shm/redmesh-{os.geteuid()}")
WHERE = "readlink /proc/$$/exe"


MESH_IDS: dict[Path, str] = {}


def stored(mesh: PrivateMesh) -> list[str]:
    """Directories of launch children of this mesh: ``launch-NAMESPACE-PID-STARTED-MESH-NODE-LAUNCHER``."""
    if mesh.home not in MESH_IDS:
        told = mesh.run("yod", "sh", "-c", "echo $REDMESH_LAUNCH", check=True).stdout
        MESH_IDS[mesh.home] = told.split("/")[0]
    names = os.listdir(STORE) if STORE.exists() else []
    return [name for name in names if name.startswith("launch-") and name.split("-")[4] == MESH_IDS[mesh.home]]


def images_of(program: Path) -> list[str]:
    """Images of this program, whole or arriving. Other meshes of this account share the directory, and remove it."""
    data = program.read_bytes()
    name = f"{len(data)}-{hashlib.sha256(data).hexdigest()}"
    with contextlib.suppress(FileNotFoundError):
        return [one for one in os.listdir(STORE / "images") if one.startswith(name)]
    return []


def script(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of 12 MiB: a script, and behind its end what only makes it long."""
    path = tmp_path_factory.mktemp("large") / "large job"
    path.write_bytes(b'#!/bin/sh\necho "$(sha256sum < "$0" | cut -c1-64) $0"; exit 0\n' + os.urandom(12 << 20))
    path.chmod(0o755)
    return path


def test_auto_runs_in_place_and_loads_nothing(yods: PrivateMesh) -> None:
    exe = yods.run("yod", "-sz", "4", "sh", "-c", WHERE, check=True).stdout.split()
    assert set(exe) == {os.path.realpath(shutil.which("sh") or "")}
    code = (
        "import sys; from console.cli.yod import command as yod; status = yod.main(['-sz', '2', 'true']);"
        "loaded = [name for name in ('console.launch.transfer.transfer', 'console.launch.options.transfer',"
        " 'agents.pct.images.store',"
        " 'hashlib') if name in sys.modules]; sys.exit(status or repr(loaded) * bool(loaded) or None)"
    )
    done = yods.run("python", "-c", code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("per", ["host", "node"])
def test_always_runs_a_checked_copy_under_its_own_name(yods: PrivateMesh, large: Path, per: str) -> None:
    done = yods.run("yod", "-bcast", "always", "-bcast-per", per, "-sz", "8", str(large), check=True)
    digests, paths = zip(*(line.split(" ", 1) for line in done.stdout.splitlines()), strict=True)
    assert set(digests) == {hashlib.sha256(large.read_bytes()).hexdigest()}
    assert len(set(paths)) == 4 and all(Path(path).name == large.name and STORE in Path(path).parents for path in paths)
    assert not stored(yods) and not images_of(large)


def test_one_copy_for_a_host_or_one_for_each_pct(yods: PrivateMesh, large: Path) -> None:
    tell = script(yods.work / "tell", '#!/bin/sh\nstat -c %i:%a "$0"\n' + "#" * (2 << 20))
    for per, copies in (("host", 1), ("node", 4)):
        out = yods.run("yod", "-bcast", "always", "-bcast-per", per, "-sz", "8", str(tell), check=True).stdout.split()
        assert len(out) == 8 and len(set(out)) == copies and all(line.endswith(":500") for line in out)


def open_files(pid: int) -> list[str]:
    """What a process has open, without numbers."""
    links = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return sorted(link.partition("[")[0] for link in links)


def test_a_launch_child_that_brought_a_program_serves_again_and_keeps_nothing_of_it(yods: PrivateMesh) -> None:
    def launch_children(*command: str) -> set[int]:
        pids = set(map(int, yods.run("yod", *command, check=True).stdout.split()))
        assert len(pids) == 4
        wait_until(lambda: all("anon_inode:" not in open_files(pid) for pid in pids), "they are at rest")
        return pids

    first = launch_children("-sz", "8", "sh", "-c", "echo $PPID")
    was = {pid: open_files(pid) for pid in first}
    for number in range(3):
        tell = script(yods.work / f"tell-{number}", "#!/bin/sh\necho $PPID\n" + "#" * (2 << 20) + secrets.token_hex(8))
        assert launch_children("-bcast", "always", "-bcast-per", "node", "-sz", "8", str(tell)) == first
        assert {pid: open_files(pid) for pid in first} == was
        assert not stored(yods) and not images_of(tell)


def test_a_large_program_is_read_before_processors_are_held(yods: PrivateMesh) -> None:
    large = script(yods.work / "large", "#!/bin/sh\necho ran\nexit\n")  # before the shell reads all the zeros behind
    os.truncate(large, 600 << 20)
    file = os.stat(large)

    name = "-".join(map(str, (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, file.st_ctime_ns)))
    digest, lock = STORE / "digests" / name, STORE / "digests" / f"{name}.lock"

    with yods.start("yod", "-bcast", "always", str(large)) as yod:
        try:
            wait_until(lock.exists, "yod reads it", step_s=0.002)
            freeze(yod.pid)
            assert yod.poll() is None and not digest.is_symlink(), "it has been stopped while it reads"
            assert free(yods) == PROCESSORS
        finally:
            yod.send_signal(signal.SIGCONT)
            yod.terminate()  # it would bring 600 MB to every node
        yod.wait()
    lock.unlink(missing_ok=True)


def test_small_programs_scripts_and_interpreters(yods: PrivateMesh) -> None:
    job = script(yods.work / "job", "#!/usr/bin/env -S python3 -E\nimport sys; print(sys.argv[1], __file__)\n")
    out = yods.run("yod", "-bcast", "always", "-sz", "3", str(job), "a b", check=True).stdout.splitlines()
    assert len(out) == 3 and all(line.startswith(f"a b {STORE}/launch-") and line.endswith("/job") for line in out)
    gone = script(yods.work / "gone", "#!/nowhere/sh\n")
    done = yods.run("yod", "-bcast", "always", str(gone))
    assert done.returncode == 127 and "/nowhere/sh" in done.stderr


def test_what_yod_may_not_read_is_told(yods: PrivateMesh) -> None:
    if os.geteuid() == 0:
        empty = script(yods.work / "empty", "")
        done = yods.run("yod", "-bcast", "always", str(empty))
        assert done.returncode == 126 and done.stderr.count("\n") == 1
    done = yods.run("yod", "-bcast", "sometimes", "true")
    assert done.returncode == 2 and "auto, always, never" in done.stderr
    done = yods.run("yod", "-bcast", "never", "-bcast-libs", "true")
    assert done.returncode == 2


def test_libraries_travel_and_are_found(yods: PrivateMesh) -> None:
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    (yods.work / "libs").mkdir()
    (yods.work / "lib.c").write_text('#include <stdio.h>\nvoid tell(void) { puts("from the library"); }\n')
    (yods.work / "main.c").write_text("void tell(void);\nint main(void) { tell(); return 0; }\n")
    yods.run("cc", "-shared", "-fPIC", "-o", "libs/libtell.so.1", "-Wl,-soname,libtell.so.1", "lib.c", check=True)
    yods.run("cc", "-o", "uses", "main.c", "libs/libtell.so.1", "-Wl,-rpath,$ORIGIN/libs", check=True)
    # alone in the RAM disk it does not find by $ORIGIN what stood beside it
    alone = yods.run("yod", "-bcast", "always", "-sz", "2", "./uses")
    assert alone.returncode == 127 and "libtell.so.1" in alone.stderr
    both = yods.run("yod", "-bcast", "always", "-bcast-libs", "-sz", "6", "./uses", check=True)
    assert both.stdout == "from the library\n" * 6
    in_place = yods.run("yod", "-bcast-libs", "-sz", "2", "./uses", check=True)
    assert in_place.stdout == "from the library\n" * 2
    assert not stored(yods)


def test_a_writer_elsewhere_on_the_host_that_stands_still_stops_nobody(yods: PrivateMesh, large: Path) -> None:
    """Another launch writes the same image and has been stopped: after a moment everybody takes a copy of his own."""
    data = large.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    elsewhere = Store("the other launch")  # a mesh that ends meanwhile removes the directory of no living launch
    try:
        written = elsewhere.want(digest, len(data), large.name)
        assert written.state == "mine"
        done = yods.run("yod", "-bcast", "always", "-sz", "8", str(large), check=True)
        assert done.stdout.count(digest) == 8
        assert Path(written.part).exists()
        written.abandon()
    finally:
        elsewhere.remove()
    assert not stored(yods) and not images_of(large)


def test_killed_at_any_moment_nothing_stays(yods: PrivateMesh, large: Path) -> None:
    job = script(yods.work / "sleeper", "#!/bin/sh\nsleep 60\n" + "#" * (3 << 20) + secrets.token_hex(8))
    for whom in ("yod", "launch child"):
        assert not stored(yods)
        yod = yods.start("yod", "-quiet", "-bcast", "always", "-sz", "8", str(job), stderr=subprocess.DEVNULL)
        wait_until(lambda: len(stored(yods)) == 4, "every node has its copy")
        victim = yod.pid if whom == "yod" else int(stored(yods)[1].split("-")[2])
        os.kill(victim, signal.SIGKILL)
        if whom != "yod":
            yod.terminate()
        yod.wait()
        wait_until(lambda: not stored(yods), f"nothing is left after a kill of {whom}")
        wait_until(lambda: not images_of(job), "the host's copy is gone too")
        wait_until(lambda: free(yods) == PROCESSORS, "its processors are free")


class Apart(NamedTuple):
    """A mesh whose nodes see a directory otherwise than yod does."""

    mesh: PrivateMesh
    #: There, yod alone has ``missing-*`` and ``endless``, the nodes have the same ``same``, and another ``other``.
    #: They have ``large`` in a file of their own, as on another machine.
    elsewhere: Path


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apart]:
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("mounts of one's own need root")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for size in (100, 5 << 20):
        script(elsewhere / f"missing-{size}", 'echo "$0"\n'.join(["#!/bin/sh\n", "#" * size]))
    for name in ("same", "other"):
        script(elsewhere / name, '#!/bin/sh\necho "$0"\n')
    for name, length in (("large", 512 << 20), ("endless", 4 << 40)):  # to read the latter takes more than an hour
        os.truncate(script(elsewhere / name, "#!/bin/sh\necho $0; exit 0\n"), length)
    mounts = (
        f"mount -t tmpfs none /mnt && cp {elsewhere}/same /mnt && printf '#!/bin/sh\\necho wrong one' > /mnt/other"
        f" && head -c 27 {elsewhere}/large > /mnt/large && truncate -s 512M /mnt/large && chmod 755 /mnt/*"
        f" && mount --bind /mnt {elsewhere}"
    )
    up = "mesh up --processors 4 --nodes 4"
    with while_up(PrivateMesh(4, 4), up=False) as private:
        private.run("unshare", "-m", "--propagation", "private", "sh", "-ec", f"{mounts} && {up}", check=True)
        yield Apart(private, elsewhere)


def test_nodes_without_the_file_get_it_and_nodes_with_the_same_do_not(apart: Apart) -> None:
    private, elsewhere = apart
    for name, in_place in (("missing-100", False), (f"missing-{5 << 20}", False), ("same", True), ("other", False)):
        path = str(elsewhere / name)
        out = private.run("yod", "-sz", "4", path, check=True).stdout.split()
        assert len(out) == 4 and all((line == path) is in_place for line in out), (name, out)
    never = private.run("yod", "-bcast", "never", str(elsewhere / "missing-100"))
    assert never.returncode == 127 and str(elsewhere / "missing-100") in never.stderr
    assert not stored(private)


def test_a_yod_that_reads_a_large_program_hears_its_user(apart: Apart) -> None:
    """The nodes ask for what they have not, while processors are held: it was deaf until it had read all of it."""
    private, elsewhere = apart
    with private.start("yod", "-sz", "4", str(elsewhere / "endless"), stderr=subprocess.PIPE, text=True) as yod:
        assert yod.stderr is not None
        assert yod.stderr.readline() == "yod: reading endless, which travels\n"
        yod.send_signal(signal.SIGINT)
        assert yod.wait() == 130
    assert processors(private, "free") == 4 and not stored(private)


def test_a_node_that_compares_a_large_program_is_not_silent(apart: Apart) -> None:
    """Each machine has a file of its own there: nodes read theirs, and answer their parents meanwhile.

    That a file is read in steps, however large it is: tests/unit/images/test_digests.py.
    """
    private, large = apart.mesh, apart.elsewhere / "large"
    time.sleep(2.1)  # or what has just changed would be read by each of them
    done = private.run("yod", "-sz", "4", str(large))
    assert (done.returncode, done.stdout) == (0, f"{large}\n" * 4), done.stderr
    assert "silent" not in done.stderr and "trying" not in done.stderr
    assert set(states(private).values()) == {"up"}

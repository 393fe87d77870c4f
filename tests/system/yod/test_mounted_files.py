"""``yod --io DIR`` for programs that know nothing of it: DIR is mounted on hosts that have no such directory."""

import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.far_mesh import FarMesh
from tests.support.mesh import PrivateMesh, while_up
from tests.support.waiting import wait_until
from tests.support.yods import free

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="the kernel has no FUSE here")

C = r"""
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    FILE *text = fopen("c.txt", "w+");
    for (int i = 0; i < 20000; i++) fprintf(text, "%d\n", i);
    fflush(text);
    int fd = fileno(text), other = dup(fd);
    pwrite(other, "x", 1, 0);
    if (!fork()) { lseek(other, 0, SEEK_END); dup2(other, 1); execlp("echo", "echo", "from exec", (char *)0); }
    wait(0);
    char *map = mmap(0, 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    printf("%c%c\n", map[0], map[2]);
    map[2] = 'y';
    munmap(map, 16);
    if (ftruncate(fd, lseek(fd, 0, SEEK_END) - 5)) return 1;
    return fclose(text);
}
"""
FORTRAN = """
program p
  integer :: i, total, value
  open(10, file='numbers', status='replace')
  do i = 1, 1000
    write(10, *) i
  end do
  close(10)
  open(11, file='numbers', status='old', action='read')
  total = 0
  do i = 1, 1000
    read(11, *) value
    total = total + value
  end do
  close(11)
  open(12, file='direct', access='direct', form='unformatted', recl=8)
  write(12, rec=3) 2.5d0
  close(12)
  print *, total
end program
"""
TOOLS = r"""
set -e
cat in/a in/b
grep -r needle in | sort
seq 1 5000 > n; sort -rn n -o n; head -1 n
tar -C in -cf t.tar . && mkdir x && tar -xf t.tar -C x && diff -r in x && echo same
python3 -c "open('p', 'w').write('python'); print(open('p').read())"
mv p q; ln q r; ln -s q s; stat -c '%h %s' q; readlink s; cat s; echo
(echo one; echo two >&2) > o 2>&1; cat o; echo three >> o; wc -l < o
truncate -s 3 o; stat -c %s o; chmod 640 o; stat -c %a o; test ! -w ro/x || echo writable
cat none 2>&1 || true
rm -r x n t.tar q r s o
"""


@pytest.fixture(scope="module")
def mesh(netns_hosts: Any) -> Iterator[FarMesh]:
    with while_up(FarMesh(netns_hosts(2))) as made:
        yield made


@pytest.fixture
def data(mesh: FarMesh) -> Iterator[Path]:
    """A directory that no host has."""
    path = mesh.work / "data"
    (path / "in" / "sub").mkdir(parents=True)
    for name in ("a", "b", "sub/c"):
        (path / "in" / name).write_text(f"{name} has a needle\n")
    yield path
    shutil.rmtree(path)


def on_hosts(mesh: FarMesh, data: Path, script: str, *options: str, size: int = 1) -> subprocess.CompletedProcess[str]:
    """A shell script in ranks, in ``data``."""
    words = ("yod", "-io", str(data), "-chdir", str(data), *options, "-sz", str(size), "sh", "-c", script)
    return mesh.run(*words)


def test_tools_read_and_write_through_the_mount(mesh: FarMesh, data: Path) -> None:
    done = on_hosts(mesh, data, TOOLS)
    assert done.stdout.splitlines() == [
        "a has a needle", "b has a needle", "in/a:a has a needle", "in/b:b has a needle",
        "in/sub/c:sub/c has a needle", "5000", "same", "python", "2 6", "q", "python", "one", "two", "3", "3", "640",
        "cat: none: No such file or directory",
    ], done.stderr  # fmt: skip
    assert sorted(os.listdir(data)) == ["in"]


def test_programs_in_c_and_fortran_run_from_it_and_keep_their_descriptors(mesh: FarMesh, data: Path) -> None:
    (data / "c.c").write_text(C)
    (data / "f.f90").write_text(FORTRAN)
    subprocess.run(["gcc", "-w", "-o", data / "c", data / "c.c"], check=True)
    assert on_hosts(mesh, data, "./c").stdout == "x1\n"
    text = (data / "c.txt").read_text()
    assert text.startswith("x\ny\n2\n") and text.endswith("19999\nfrom ")
    if shutil.which("gfortran"):
        subprocess.run(["gfortran", "-o", data / "f", data / "f.f90"], check=True)
        assert on_hosts(mesh, data, "./f").stdout.split() == ["500500"]
        assert (data / "direct").stat().st_size == 24


def test_what_one_node_closes_another_opens_and_appends_are_kept(mesh: FarMesh, data: Path) -> None:
    random = os.urandom((3 << 20) + 17)
    (data / "random").write_bytes(random)
    script = textwrap.dedent("""
        import hashlib, os, time
        rank = int(os.environ["YOD_RANK"])
        print(hashlib.sha256(open("random", "rb").read()).hexdigest())
        log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        for at in range(200):
            os.write(log, b"%d %d\\n" % (rank, at))
        part = os.open("parts", os.O_WRONLY | os.O_CREAT)
        os.pwrite(part, bytes([65 + rank]) * 1000, rank * 1000)
        os.close(part), os.close(log)
        for turn in range(20):
            if turn % 4 == rank:
                with open("turns", "a") as file: file.write(f"{turn}\\n")
            else:
                while True:
                    with open("turns", "a+") as file:
                        file.seek(0)
                        if len(file.read().split()) > turn: break
        try:
            os.open("nowhere/x", os.O_WRONLY | os.O_CREAT)
        except OSError as error:
            print(error.errno)
    """)
    (data / "script.py").write_text(script)
    out = on_hosts(mesh, data, "exec python3 script.py", size=4).stdout.split()
    assert sorted(out) == sorted([hashlib.sha256(random).hexdigest()] * 4 + [str(errno.ENOENT)] * 4)
    assert (data / "parts").read_bytes() == b"".join(bytes([65 + rank]) * 1000 for rank in range(4))
    lines = (data / "log").read_text().splitlines()
    assert len(lines) == 800
    for rank in range(4):
        own = [int(line.split()[1]) for line in lines if line.startswith(f"{rank} ")]
        assert own == list(range(200))
    assert (data / "turns").read_text().split() == [str(turn) for turn in range(20)]


def test_links_lead_nowhere_else_and_errors_reach_the_program(mesh: FarMesh, data: Path) -> None:
    """A link out of the directory is followed on the node, where only its own files are."""
    secret = mesh.work / "secret"
    secret.write_text("secret\n")
    (data / "out").symlink_to(secret)
    (data / "up").symlink_to("../secret")
    (data / "inner").symlink_to("in/a")
    done = on_hosts(mesh, data, "cat inner; cat out; cat up; cat ../secret")
    assert done.stdout == "a has a needle\n" and done.stderr.count("No such file or directory") == 3
    done = on_hosts(mesh, Path(f"{data}:ro"), f"cd {data}; cat inner; echo x > new", "-chdir", "/")
    assert done.stdout == "a has a needle\n" and "Read-only file system" in done.stderr
    assert not (data / "new").exists()


def test_a_full_disk_is_told_by_close(mesh: FarMesh) -> None:
    small = mesh.work / "small"
    small.mkdir()
    mounted = f'mount -t tmpfs -o size=1m small {small} && exec "$@"'
    python = "import os; f = open('big', 'wb', 0)\ntry:\n for _ in range(64): f.write(bytes(65536))\n f.close()\n"
    python += "except OSError as e: print(e.errno)"
    words = ("yod", "-io", str(small), "-chdir", str(small), "python3", "-c", python)
    done = mesh.run("unshare", "-m", "sh", "-c", mounted, "sh", *words)
    assert done.stdout == f"{errno.ENOSPC}\n", done.stderr


def test_nothing_is_left_on_a_host_and_a_lost_launcher_is_no_hang(mesh: FarMesh, data: Path) -> None:
    yod = mesh.start("yod", "-io", str(data), "-chdir", str(data), "-sz", "4", "sh", "-c", "while cat in/a; do :; done")
    wait_until(lambda: all(mesh.pids_on(host, "cat") for host in mesh.hosts), "ranks read")
    yod.kill()
    yod.wait()
    for host in mesh.hosts:
        wait_until(lambda host=host: not mesh.pids_on(host, "sh"), f"no rank is left on {host.name}")
        wait_until(lambda host=host: not host.run("ls", "-d", str(data)).stdout, f"{data} is removed on {host.name}")
    wait_until(lambda: free(mesh) == mesh.size[0], "its processors are free")


def test_a_directory_that_cannot_be_mounted_is_told_in_a_line(mesh: FarMesh, data: Path) -> None:
    done = mesh.run("yod", "-io", "/dev", "sh", "-c", "yodio ls /dev | grep -c null")
    assert done.stdout == "1\n", done.stderr
    told = [line for line in done.stderr.splitlines() if "cannot be mounted" in line]
    assert len(told) == 1 and "yodio" in told[0], done.stderr


#: Commands under which a machine's agents may not mount, and what yod then says.
_SECCOMP = """
import ctypes, os, struct, sys
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 272), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)]  # unshare: EPERM
filter = b"".join(struct.pack("HBBI", *one) for one in code)
program = struct.pack("HxxxxxxP", len(code), ctypes.cast(filter, ctypes.c_void_p).value)
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
os.execvp(sys.argv[1], sys.argv[1:])
"""
_LIMIT = "echo 0 > /proc/sys/user/max_mnt_namespaces && exec "
_NO_DEVICE = (
    "d=$(mktemp -d) && mount -t tmpfs dev $d && cd /dev && cp -a null zero random urandom tty ptmx $d && cd / &&"
    " mkdir $d/shm $d/pts && mount --rbind /dev/shm $d/shm && mount --rbind /dev/pts $d/pts &&"
    " mount --move $d /dev && rmdir $d && exec "
)
RESTRICTED = {
    "seccomp": ([sys.executable, "-I", "-c", _SECCOMP], "", "does not allow namespaces"),
    "limit": (["unshare", "--user", "--map-root-user"], _LIMIT, "allows no further namespaces .sysctl user.max_mnt_n"),
    "device": (["unshare", "--mount"], _NO_DEVICE, "/dev/fuse: No such file"),
}


@pytest.mark.skipif(os.geteuid() != 0 or os.uname().machine != "x86_64", reason="root, and this processor's calls")
@pytest.mark.parametrize("how", RESTRICTED)
def test_where_nothing_may_be_mounted_one_line_says_why_and_the_old_ways_stay(how: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello\n")
    before, script, said = RESTRICTED[how]
    mesh = PrivateMesh(processors=2, nodes=2)
    try:
        up = "mesh up --processors 2 --nodes 2"
        mesh.run(*before, "sh", "-c", script + up, check=True)
        options = ("-sz", "2", "-io", f"{tmp_path}:ro")
        done = mesh.run("yod", *options, "sh", "-c", "yodio cat text", check=True)
        assert done.stdout == "hello\n" * 2
        told = [line for line in done.stderr.splitlines() if "cannot be mounted" in line]
        assert len(told) == 1, done.stderr
        assert re.match(rf"yod: n0-n1: -io {tmp_path} cannot be mounted: .*{said}.*yodio", told[0]), told
        events = mesh.run("yod", "-json", *options, "true", check=True).stdout
        assert events.count('"event": "note"') + events.count('"event":"note"') == 2, events
    finally:
        left = mesh.close()
    assert not left

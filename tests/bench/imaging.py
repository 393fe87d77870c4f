"""What travels: a 20 MB program to every node beside ``srun --bcast``, a file to a rank beside ``cat`` over ssh."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.meshes import PEERS, mesh, slurm
from tests.bench.ratios import Bar, Row, in_turn, seconds
from tests.support.mesh import BIN

YOD = str(BIN / "yod")
IMAGE_BYTES, FILE_BYTES = 20_000_000, 256 << 20
RUNS = 5
#: must and aim by nodes and by whether PCTs of one host share a copy.
BARS = {
    (16, "node"): Bar(0.4, 0.25),
    (64, "node"): Bar(0.3, 0.2),
    (16, "host"): Bar(0.25, 0.12),
    (64, "host"): Bar(0.15, 0.08),
}


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A directory on disk with a program of 20 MB (``true``, and behind it what no compression shortens) and a file."""
    folder = Path(tempfile.mkdtemp(prefix="redmesh-b-"))
    try:
        program = folder / "blob"
        head = Path("/bin/true").read_bytes()
        program.write_bytes(head + os.urandom(IMAGE_BYTES - len(head)))
        program.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def held(peer: dict[str, str], nodes: int) -> Iterator[list[str]]:
    """An allocation of Slurm's that is held, so that its steps are measured alone: the words of a step in it."""
    made = subprocess.run(
        ["salloc", f"-N{nodes}", "--no-shell"], env=peer, check=True, capture_output=True, text=True, timeout=60
    )
    job = next(word for word in made.stderr.split()[::-1] if word.isdigit())
    try:
        yield ["srun", f"--jobid={job}", "--overlap", f"-N{nodes}", f"-n{nodes}"]
    finally:
        subprocess.run(["scancel", job], env=peer, timeout=60)


def broadcast() -> list[Row]:
    """20 MB to 16 and to 64 PCTs and run, one copy for each PCT and one for the machine."""
    rows = []
    with workplace() as folder, slurm(64) as peer:
        for nodes in (16, 64):
            with mesh(nodes, nodes) as one, contextlib.ExitStack() as stack:
                step = stack.enter_context(held(peer, nodes)) if peer is not None else []
                for per, how in (("node", "a copy for each PCT"), ("host", "one copy for the machine")):
                    words = [YOD, "-bcast", "always", "-bcast-per", per, "-sz", str(nodes), str(folder / "blob")]

                    def theirs(step: list[str] = step) -> float:
                        # a directory: this Slurm adds each virtual node's name to the file's
                        target = Path(tempfile.mkdtemp(prefix="redmesh-b-", dir="/dev/shm"))
                        try:
                            return seconds([*step, f"--bcast={target}/", str(folder / "blob")], peer)
                        finally:
                            shutil.rmtree(target)

                    mine, other = in_turn(
                        lambda words=words, env=one.env: seconds(words, env),  # type: ignore[misc]
                        theirs if peer is not None else None,
                        RUNS,
                    )
                    what = f"20 MB program to {nodes} PCTs, {how} (s)"
                    rows.append(Row(what, f"srun --bcast, {nodes} nodes", mine, other, BARS[nodes, per]))
    return rows


@contextlib.contextmanager
def sshd() -> Iterator[list[str] | None]:
    """The words of an ssh to loopback, or None where there is no sshd."""
    script = PEERS / "setup_sshd.sh"
    if not script.exists() or not shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") or os.geteuid() != 0:
        print("no sshd here: the figure stands alone", file=sys.stderr)
        yield None
        return
    home = os.environ.get("PEERS") or os.path.join(tempfile.gettempdir(), "peers")
    env = dict(os.environ, PEERS=home)
    os.makedirs(home, exist_ok=True)
    subprocess.run([str(script), "1"], env=env, check=True, stdout=subprocess.DEVNULL, timeout=60)
    try:
        yield [os.path.join(home, "ssh", "bin", "ssh"), "-n", "127.0.0.2"]
    finally:
        subprocess.run([str(script), "stop"], env=env, timeout=30)


def files() -> list[Row]:
    """256 MiB read by one rank through yod beside ``cat`` over ssh; both whole commands, in MiB a second."""
    with workplace() as folder, mesh(2, 1) as one, sshd() as ssh:
        (folder / "data").write_bytes(os.urandom(1 << 20) * (FILE_BYTES >> 20))
        ours = [YOD, "-io", str(folder), "sh", "-c", "yodio cat data > /dev/null"]
        theirs = ["sh", "-c", 'exec "$@" > /dev/null', "sh", *(ssh or []), "cat", str(folder / "data")]
        size = FILE_BYTES / (1 << 20)
        mine, other = in_turn(
            lambda: size / seconds(ours, one.env), (lambda: size / seconds(theirs)) if ssh else None, RUNS
        )
    return [
        Row("256 MiB read by a rank through yod (MiB/s)", "cat over ssh to loopback", mine, other, Bar(0.7, 1.5, True))
    ]

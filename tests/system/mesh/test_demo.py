"""``mesh demo``: the picture is whole, the mesh is seen, nothing is left."""

import os
import re
import subprocess
from pathlib import Path

from tests.support.mesh import BIN
from tests.support.waiting import PATIENCE_S


def test_the_demo_runs_without_a_terminal_and_leaves_nothing(tmp_path: Path) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [BIN / "mesh", "demo"],
        env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert "n0 aaaa  n1 aaaa  n2 aaaa  n3 aaaa" in lines, "the mesh while it runs"
    assert "n0 ....  n1 ....  n2 ....  n3 ...." in lines, "the mesh afterwards"
    picture = [line for line in lines if len(line) == 96 and set(line) <= set(" .:-=+*#%@")]
    assert len(picture) == 32 and sum(line.count("@") for line in picture) > 300
    assert "\x1b" not in done.stdout
    assert re.match(r"A mesh of its own .* About \d+ seconds", " ".join(lines[:2])), "it says what it does and how long"
    assert list(tmp_path.iterdir()) == []
    mark = f"{tmp_path}/".encode()
    left = [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid() and carries(pid, mark)]
    assert left == []


def carries(pid: str, mark: bytes) -> bool:
    try:
        return b"XDG_STATE_HOME=" + mark in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False

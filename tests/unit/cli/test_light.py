"""Commands and daemons start without the modules that cost more than what they do."""

import subprocess
import sys

import pytest

from tests.support.waiting import PATIENCE_S


def _loaded(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"import sys; {code}; print(*sys.modules, file=sys.stderr)"],
        capture_output=True, text=True, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    return set(done.stderr.split())


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        # what every command loads; shutil, which loads three compressors, comes in argparse's own formatter
        (
            "console.cli.mesh.command; console.cli.mesh.command.main(['version'])",
            "shutil subprocess json sqlite3 socket signal hashlib tempfile threading datetime ctypes logging inspect",
        ),
        # what asks a daemon or reads a job
        (
            "console.cli.mesh.queue, console.cli.mesh.job_wait, console.cli.mesh.job, console.cli.mesh.down",
            "subprocess socket hashlib tempfile tomllib string ctypes random logging inspect dataclasses queue"
            " peewee pymysql paramiko cryptography asyncio ssl console.deploy.personal.program_snapshot"
            " console.tracker.standby",
        ),
        ("console.cli.mesh.nodes", "tempfile difflib random peewee paramiko tomlkit"),
        # daemons: what the RCA and the keeper load stays loaded, too
        (
            "agents.rca.__main__",
            "typing enum re collections functools subprocess socket signal glob threading",
        ),
        ("agents.keeper.__main__", "typing enum re collections functools subprocess socket signal glob json"),
        ("agents.cpa.__main__", "subprocess secrets hmac pymysql"),
    ],
)
def test_nothing_heavy_is_loaded_at_the_start(modules: str, heavy: str) -> None:
    assert _loaded(f"import {modules}") & set(heavy.split()) == set()

"""A launcher killed while the system database is away: cleared away within 3 s of its return."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemons import Make
from tests.support.mariadb import Server
from tests.support.stores import server
from tests.support.waiting import wait_until

__all__ = ["server"]


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_killed_while_the_database_is_away(server: Server, make_daemons: Make, tmp_path: Path, how: str) -> None:
    script = tmp_path / "cleanup"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    made = make_daemons(8, 2, database=server.new_database(), cleanup=str(script))
    for name in ("cpa-0", "cpa-1", "rca"):
        made.start(name)
    made.nodes_up()
    words = [sys.executable, "-P", "-m", "tests.support.small_launcher", str(made.run), "8"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None and json.loads(launcher.stdout.readline())["launcher"] == 1
        if how == "killed":
            server.kill()
        else:
            server.signal(signal.SIGSTOP)
        launcher.kill()
    asked = lambda: any(line.get("code") == "database" for line in made.log("rca"))  # noqa: E731
    wait_until(asked, "a CPA has told the RCA that the database is away")
    if how == "killed":
        server.start()
    else:
        server.signal(signal.SIGCONT)
    wait_until(lambda: not made.owners(), "its processors are free")
    wait_until(lambda: made.rows("SELECT state, abnormal FROM launcher") == [("ended", 1)], "and it has ended")

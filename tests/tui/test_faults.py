"""A fault of the console's own: people get a line, the log gets the traceback."""

import subprocess
import sys
from pathlib import Path

from tests.support.fixed_database import busy_machine

BROKEN = """
import sys
from types import SimpleNamespace
from console.tui import app

class Broken(app.ConsoleApp):
    def on_mount(self):
        super().on_mount()
        self.set_timer(0.3, self.fault)

    def fault(self):
        raise RuntimeError("the sky is \\x1b[31m falling")

folder = sys.argv[2]
broken = Broken(
    SimpleNamespace(database=sys.argv[1], login="", run_dir=folder, state_dir=folder, mesh="", console=None)
)
broken.run(headless=True)
sys.exit(broken.return_code)
"""


def test_no_traceback_reaches_a_person(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    (tmp_path / "log").mkdir()
    command = [sys.executable, "-P", "-c", BROKEN, database.url, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    told = "".join((done.stdout + done.stderr).split())  # it is wrapped wherever the terminal ends
    assert done.returncode == 1
    assert "afaultoftheconsoleitself:RuntimeError:theskyis" in told and "console.log" in told
    assert "Traceback" not in told and "\x1b[31m" not in told
    assert "Traceback" in (tmp_path / "log" / "console.log").read_text()

"""A fault of the console's own: people get a line, a report gets the traceback."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from rich.traceback import Traceback
from textual import events
from textual.notifications import Notification
from textual.widgets._toast import Toast
from textual.worker import WorkerFailed

from console.tui.terminal import crash
from tests.support.console import console_on, opened, until
from tests.support.fixed_database import busy_machine
from tests.support.waiting import PATIENCE_S

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
    SimpleNamespace(
        database=sys.argv[1], login="", system="", run_dir=folder, state_dir=folder, mesh="", console=None
    )
)
broken.run(headless=True)
sys.exit(broken.return_code)
"""


def test_no_traceback_reaches_a_person(tmp_path: Path) -> None:
    database = busy_machine(tmp_path)
    command = [sys.executable, "-P", "-c", BROKEN, database.url, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    told = "".join((done.stdout + done.stderr).split())  # it is wrapped wherever the terminal ends
    assert done.returncode == 1
    assert "afaultoftheconsoleitself:RuntimeError:theskyis" in told and "console-crash-" in told
    assert (done.stdout + done.stderr).count("\n") == 1, "one line, however wide the terminal is"
    assert "Traceback" not in told and "\x1b[31m" not in told
    (report,) = tmp_path.glob("console-crash-*.txt")
    text = report.read_text()
    assert report.stat().st_mode & 0o777 == 0o600
    assert "Traceback" in text and "in fault" in text and f"Textual {version('textual')}" in text


def test_a_report_has_no_secrets_and_reports_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDMESH_ALLOCATION_COOKIE", "sesame open")
    message = "mysql://ada:s3cret@db1/mesh refused 0123456789abcdef0123 and sesame open"
    try:
        raise RuntimeError(message)
    except RuntimeError as error:
        where = crash.write_report(str(tmp_path / "state"), crash.fault(message), error)
    (report,) = (tmp_path / "state").glob("console-crash-*.txt")
    text = report.read_text()
    assert where == f"the report is in {report}" and "test_faults.py" in text and "mysql://ada:***@db1/mesh" in text
    line = crash.told(crash.fault(message), where)
    for secret in ("s3cret", "0123456789abcdef0123", "sesame open"):
        assert secret not in text and secret not in line
    for i in range(12):
        (tmp_path / "state" / f"console-crash-20000101-0000{i:02}-1.txt").touch()
    report.unlink()
    crash.write_text(str(tmp_path / "state"), "again", "")
    assert len(list((tmp_path / "state").glob("console-crash-*"))) == crash.KEPT
    (tmp_path / "file").touch()
    assert "cannot be written" in crash.write_text(str(tmp_path / "file" / "state"), "x", "")


def test_a_fault_in_the_thread_that_reads_keys_is_told_likewise(tmp_path: Path) -> None:
    app = console_on("sqlite:///none", tmp_path)
    try:
        raise RuntimeError("no keys")
    except RuntimeError:
        app.panic(Traceback())
    assert "a fault of the console itself: RuntimeError: no keys (the report is in" in app.crash_line
    assert app.return_code == 1


def test_a_fault_of_a_worker_is_its_cause(tmp_path: Path) -> None:
    app = console_on("sqlite:///none", tmp_path)
    app._exception_event  # noqa: B018 - Textual makes it while it runs
    try:
        raise RuntimeError("the worker fell")
    except RuntimeError as error:
        app._handle_exception(WorkerFailed(error))
    assert "itself: RuntimeError: the worker fell (" in app.crash_line
    (report,) = tmp_path.glob("console-crash-*")
    assert "test_faults.py" in report.read_text(), "the traceback of the cause"


async def test_a_note_that_expired_before_it_was_mounted_goes(tmp_path: Path) -> None:
    """Textual's timer of such a note never ended, and with it nothing else was handled."""
    async with opened(busy_machine(tmp_path).url, tmp_path) as (app, pilot):
        note = Toast(Notification("late", timeout=-0.002))
        await app.screen.mount(note)
        await until(pilot, lambda: not note.is_attached, "the end of the note")


async def test_keys_after_the_end_open_nothing(tmp_path: Path) -> None:
    """Textual mounts no widgets then, and a form without its widgets was a crash."""
    database = busy_machine(tmp_path)
    async with opened(database.url, tmp_path, (100, 30)) as (app, _):
        app.exit()
        app.post_message(events.Key("n", "n"))
    assert app.current_mode == "mesh"
    database.close()

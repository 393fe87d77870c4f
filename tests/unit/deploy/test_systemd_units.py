"""The units in docs/systemd, as systemd reads them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S

UNITS = sorted((Path(__file__).parents[3] / "docs" / "systemd").glob("*.service"))


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze here")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in UNITS:
        text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE)
        (tmp_path / unit.name).write_text(text)
    paths = [str(path) for path in sorted(tmp_path.glob("*.service"))]
    done = subprocess.run(["systemd-analyze", "verify", *paths], capture_output=True, text=True, timeout=PATIENCE_S)
    assert len(paths) == 2 and done.returncode == 0 and not done.stderr, done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_no_daemon_takes_launches_with_it(unit: Path) -> None:
    assert "KillMode=process" in unit.read_text()

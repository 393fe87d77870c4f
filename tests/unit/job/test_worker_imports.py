"""Every worker of every job is a new interpreter: what it imports is time that each of its nodes waits."""

import subprocess
import sys
from pathlib import Path

YODIO = Path(__file__).parents[3] / "agents" / "yodio"


def test_a_worker_loads_nothing_that_few_jobs_need() -> None:
    code = f"import sys; sys.path.insert(0, {str(YODIO)!r}); import yodwork; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-S", "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"shutil", "subprocess", "typing", "ctypes", "yodstage", "yodreport"} & set(loaded.split())

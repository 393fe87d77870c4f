"""The file of results of ``python -m tests.batch``."""

from pathlib import Path

import pytest

from tests.batch.table import MixedResultsError, Results


def test_every_run_is_recorded_and_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    results = Results(path, "a1")
    results.add("cgroup", "rank", "signals", "")
    results.add("cgroup", "rank", "signals", "SIGUSR1 to the job: [2, 1]")
    assert Results(path, "a1").cell("cgroup", "rank", "signals") == "1 of 2"
    assert Results(path).commit == "a1", "read only"
    assert "[2, 1]" in path.read_text()
    with pytest.raises(MixedResultsError, match="a1"):
        Results(path, "b2")

"""What a PCT says of dead launch children."""

import signal
from pathlib import Path

from agents.pct.errors import FAULT
from agents.pct.launch.deaths import Deaths, write_fault


def test_the_death_of_one_launch_child_explains_no_other_launch(tmp_path: Path) -> None:
    """A launch that lost its child within 3 s of another's death was told the other's cause."""
    deaths = Deaths(str(tmp_path), "n0")
    deaths.died([signal.SIGBUS], [1])
    write_fault(str(tmp_path), "n0", 2, ValueError("odd"), [])
    deaths.died([FAULT << 8], [])
    assert "SIGBUS" in str(deaths.told(1)) and "ValueError: odd" in str(deaths.told(2))
    assert deaths.told(3) is None, "it is looked for again"
    deaths.died([signal.SIGSEGV], [])
    assert "SIGSEGV" in str(deaths.told(3)), "one that died before it was registered"

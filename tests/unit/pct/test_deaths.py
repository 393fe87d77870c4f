"""What a PCT says of dead launch children."""

import signal
from pathlib import Path

import pytest

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


def test_a_fault_whose_launch_child_has_not_exited_yet_explains_no_other_status(tmp_path: Path) -> None:
    deaths = Deaths(str(tmp_path), "n0")
    write_fault(str(tmp_path), "n0", 2, ValueError("odd"), [])
    deaths.died([signal.SIGSEGV], [])
    assert "SIGSEGV" in str(deaths.told(1)) and "ValueError: odd" in str(deaths.told(2))
    deaths.died([FAULT << 8], [])
    assert "SIGSEGV" in str(deaths.told(1)), "the other's exit is known"


@pytest.mark.parametrize("exited", [[], [2]])
def test_a_fault_that_left_its_launch_s_files_is_counted_once(tmp_path: Path, exited: list[int]) -> None:
    deaths = Deaths(str(tmp_path), "n0")
    write_fault(str(tmp_path), "n0", 2, ValueError("odd"), [])
    write_fault(str(tmp_path), "n0", 3, KeyError("even"), [])
    deaths.died([FAULT << 8, signal.SIGSEGV], [3])
    deaths.died([FAULT << 8], exited)
    assert "SIGSEGV" in str(deaths.told(1))
    assert "ValueError: odd" in str(deaths.told(2)) and "KeyError" in str(deaths.told(3))


def test_the_status_of_a_fault_that_could_not_be_written_goes_to_whoever_asks(tmp_path: Path) -> None:
    deaths = Deaths(str(tmp_path), "n0")
    write_fault(str(tmp_path), "n0", 2, ValueError("odd"), [])
    deaths.died([], [2])
    deaths.died([FAULT << 8], [])
    assert "a fault of its own" in str(deaths.told(1)), "others had reaped the first"

"""What yod's plain launches cost a node: its launch children serve again, and its ranks are not forked."""

from pathlib import Path

from agents.linux import processes
from agents.pct.ranks import vfork
from tests.support.mesh import MakeMesh, PrivateMesh
from tests.support.waiting import wait_until


def _children(one: PrivateMesh) -> list[int]:
    pcts = [daemon["pid"] for daemon in one.keeper()["daemons"] if daemon["name"].startswith("n")]
    return [child for pct in pcts for child in processes.children(pct)]


def _faults(pid: int) -> int:
    """Minor page faults of a process and of its children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[7]) + int(fields[8])


def test_a_second_launch_costs_hardly_more_than_its_ranks(mesh: MakeMesh) -> None:
    one = mesh(4, 2)
    for _ in range(3):  # the first is paid for, the second meets what the first has not touched
        one.run("yod", "-sz", "4", "/bin/true", check=True)
        wait_until(lambda: [processes.state(pid) for pid in _children(one)] == ["S", "S"], "one waits on every node")
    first = _children(one)
    before = sum(map(_faults, first))
    one.run("yod", "-sz", "4", "/bin/true", check=True)
    assert _children(one) == first
    each = (sum(map(_faults, first)) - before) / 4
    assert each < (110 if vfork.RUN_SYSCALLS is not None else 250), "faults a rank"

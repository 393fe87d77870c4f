"""The lines below the map: nodes with the launchers on them."""

from rich.cells import cell_len

from console.tui.model.machine import Machine
from console.tui.model.usage import Usage, lines
from tests.unit.tui.test_machine import NODES, ROWS, launcher, picture


def nodes(width: int, *commands: str) -> list[str]:
    """The lines of both nodes; each command runs on one processor of n0."""
    machine = Machine()
    held = [row._replace(launcher=at + 1 if at < len(commands) else None) for at, row in enumerate(ROWS)]
    launchers = [launcher(at + 1, command=command) for at, command in enumerate(commands)]
    machine.apply(picture(held, launchers, nodes=NODES, whole=True))
    found = ["".join(text for text, _ in line) for line in lines(machine, Usage(), width, 12)]
    assert all(cell_len(line.rstrip()) <= width for line in found), found
    return [line for line in found if line.startswith("n")]


def test_every_launcher_of_a_node_has_its_name_while_there_is_room() -> None:
    long = "/home/ada/simulate --grid 512x512x64 --steps 100000"
    one, other = nodes(140, "ring 4", long)
    assert "ring 4" in one and "simulate --grid 512x512x64 --steps 100000" in one and "0 of 4 processors" in other
    crowd = ("ring 4", long, long, "python3 train.py --model large")
    [one, other] = nodes(104, *crowd)
    assert "1× ring  " in one and one.count("simulate") == 2 and "train.py" in one and "--grid" not in one
    assert one.index("4/4") == other.index("0/4")  # the gauges of all rows are as wide
    assert "ring" not in nodes(44, *crowd)[0] and " a   b   c   d " in nodes(44, *crowd)[0]
    assert "漢字漢字" in nodes(104, *["漢字" * 9] * 3)[0]

"""The launchers' colours: neighbours never look alike, whoever looks, and none looks like a state."""

import itertools
import math
import re
from pathlib import Path

import pytest
from rich.color import Color, ColorSystem

from console.tui import app
from console.tui.model.machine import ALIKE, HUES, ONE_FAMILY, Launcher, Machine, Node, Picture, Processor
from console.tui.terminal.themes import DARK

Triple = tuple[float, float, float]

#: Machado, Oliveira and Fernandes, 2009, at full severity: linear RGB as somebody with the deficiency sees it.
VISIONS = {
    "all colours": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
CSS = Path(app.__file__).with_name("app.tcss").read_text()
LAUNCHERS = [re.search(rf"\.cell-grid--hue-{n},[^}}]*background: (#\w+)", CSS)[1] for n in range(HUES)]  # type: ignore[index]
STATES = [DARK.warning, DARK.error, DARK.success, DARK.variables["alarm"]]


def seen(colour: str, vision: str) -> Triple:
    """The colour in CIELAB, where a distance of 2 can just be told."""
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4
              for one in (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))]  # fmt: skip
    red, green, blue = (
        min(1.0, max(0.0, sum(part * one for part, one in zip(row, linear, strict=True)))) for row in VISIONS[vision]
    )
    xyz = ((0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047, 0.2126 * red + 0.7152 * green + 0.0722 * blue,
           (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883)  # fmt: skip
    x, y, z = (one ** (1 / 3) if one > 0.008856 else 7.787 * one + 16 / 116 for one in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("vision", VISIONS)
def test_launchers_look_different_from_each_other_and_from_every_state(vision: str) -> None:
    looks = [seen(colour, vision) for colour in LAUNCHERS]
    assert min(math.dist(one, other) for one, other in itertools.combinations(looks, 2)) > 15
    states = [seen(colour or "", vision) for colour in STATES]
    assert min(math.dist(one, state) for one, state in itertools.product(looks, states)) > 20


def test_they_do_so_on_a_terminal_of_16_colours() -> None:
    numbers = [Color.parse(colour).downgrade(ColorSystem.STANDARD).number for colour in LAUNCHERS]
    assert len(set(numbers)) == HUES
    assert not set(numbers) & {1, 2, 3, 9, 10, 11}, "red, green or yellow is a state's"


def machine(nodes: int, slots: int, launchers: dict[int, list[int]]) -> Machine:
    """A machine whose launchers have these cells."""
    made = Machine()
    holder = {cell: number for number, cells in launchers.items() for cell in cells}
    made.apply(
        Picture(
            True, 1, 10.0, "m", [Node(n, f"n{n}") for n in range(nodes)],
            [Processor(cell, cell // slots, cell % slots, launcher=holder.get(cell)) for cell in range(nodes * slots)],
            [Launcher(n, "ada", 1, "x", len(cells), "busy", "l", 1, None, "", 1.0, 1.0)
             for n, cells in launchers.items()], [],
        )
    )  # fmt: skip
    return made


def test_launchers_that_live_at_the_same_time_have_different_colours_while_there_are_any() -> None:
    made = machine(4, 8, {number: [number] for number in (1, 9, 17, 25)})  # the same by their numbers
    assert len({made.hue(number) for number in (1, 9, 17, 25)}) == 4


def test_neighbours_never_look_alike_however_many_launchers_there_are() -> None:
    launchers = {cell + 1: [cell] for cell in range(256) if cell % 5}
    made = machine(16, 16, launchers)
    holder = {cells[0]: number for number, cells in launchers.items()}
    for cell, number in holder.items():
        for other in (holder.get(cell + 1), holder.get(cell + 16)):
            assert other is None or made.hue(other) != made.hue(number), (number, other)
    assert len({made.letter(number) for number in (2, 3, 4, 5)}) == 4


def test_the_table_of_likeness_is_true() -> None:
    """Two hues that count as different are at least 50 apart; those that nearly look the same are the nearest."""
    looks = [seen(colour, "all colours") for colour in LAUNCHERS]
    for one, other in itertools.product(range(HUES), repeat=2):
        distance, likeness = math.dist(looks[one], looks[other]), ALIKE[one][other]
        assert likeness == ALIKE[other][one] and (likeness == 4) == (one == other)
        assert (distance >= 50) if likeness == 0 else likeness >= ONE_FAMILY or distance < 50, (one, other)
        assert likeness != 3 or distance < 60, (one, other)


def test_side_by_side_there_are_no_two_purples() -> None:
    made = machine(1, 64, {number: [number] for number in range(64)})
    for number in range(63):
        assert ALIKE[made.hue(number)][made.hue(number + 1)] < ONE_FAMILY, number


def test_without_colours_launchers_side_by_side_differ_in_their_greys() -> None:
    """The greys were in the order of the hues: launchers whose colours differ most had nearly the same grey."""
    mono = [re.search(rf"redmesh-mono \.cell-grid--hue-{n},[^}}]*background: (#\w+)", CSS) for n in range(HUES)]
    lightness = [seen(found[1], "all colours")[0] for found in mono if found]
    assert len(lightness) == HUES
    for one, other in itertools.combinations(range(HUES), 2):
        least = 10 if ALIKE[one][other] < ONE_FAMILY else 5
        assert abs(lightness[one] - lightness[other]) > least, (one, other)

"""Where cells stand on the map: nothing overlaps, nothing is lost, everything can be reached."""

import sys
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from console.tui.map.layout import Block, Layout, merge


def blocks_of(sizes: list[int], name: str = "n{}") -> list[Block]:
    blocks, first = [], 0
    for index, size in enumerate(sizes):
        blocks.append(Block(name.format(index), first, size))
        first += size
    return blocks


SIZES = st.lists(st.integers(1, 70), min_size=1, max_size=30)


@given(SIZES, st.integers(20, 200), st.integers(1, 60))
def test_every_cell_has_a_place_of_its_own_and_is_found_there(sizes: list[int], width: int, height: int) -> None:
    layout = Layout(blocks_of(sizes), width, height)
    tile, tall = layout.density.tile, layout.density.height
    taken: dict[tuple[int, int], int] = {}
    for cell in range(sum(sizes)):
        x, y = layout.place(cell)
        for dx in range(tile):
            for dy in range(tall):
                assert (x + dx, y + dy) not in taken
                taken[x + dx, y + dy] = cell
                assert layout.at(x + dx, y + dy) == cell
        assert x + tile <= layout.width <= max(width, 20)
    labels = [s.label for line in layout.lines for s in line if s.label]
    assert labels[0] == "n0"
    for y, line in enumerate(layout.lines):
        for stretch in line:
            assert all((stretch.label_x + i, y) not in taken for i in range(len(stretch.label)))


@given(SIZES, st.integers(20, 200), st.integers(1, 60))
def test_up_and_down_reach_the_first_and_the_last_line(sizes: list[int], width: int, height: int) -> None:
    layout = Layout(blocks_of(sizes), width, height)
    cell = 0
    for _ in range(sum(sizes) + 1):
        below = layout.vertical(cell, 1)
        assert below == cell or layout.place(below)[1] > layout.place(cell)[1]
        cell = below
    last_line = max(layout.place(cell)[1] for cell in range(sum(sizes)))
    assert layout.place(cell)[1] == last_line
    for _ in range(sum(sizes) + 1):
        cell = layout.vertical(cell, -1)
    assert layout.place(cell)[1] == layout.place(0)[1]


def test_a_small_machine_gets_tall_tiles_and_a_large_one_single_characters() -> None:
    assert Layout(blocks_of([4] * 4), 70, 30).density.height == 3
    assert Layout(blocks_of([16] * 64), 100, 40).density.tile == 1


def test_a_block_is_broken_only_where_it_must_be() -> None:
    whole = Layout(blocks_of([8] * 4), 40, 20, halves=False)
    assert len({whole.place(cell)[1] for cell in range(8)}) == 1
    halves = Layout(blocks_of([16] * 4), 62, 34)
    assert halves.density.height == 3  # worth it
    rows = [halves.place(cell)[1] for cell in range(16)]
    assert rows[:8] == [rows[0]] * 8 and rows[8:] == [rows[8]] * 8
    assert halves.vertical(0, 1) == 8 and halves.vertical(8, 1) == 16


def test_red_storm_fits_in_few_screens() -> None:
    # 10,368 nodes of one processor: with a label for each the map would be 700 lines long
    layout = Layout(blocks_of([1] * 10_368, "c{}"), 118, 36)
    assert len(layout.lines) <= 170
    assert layout.place(10_367)[1] == len(layout.lines) - 1


def test_only_what_is_shown_is_laid_out() -> None:
    made = Counter[str]()
    sys.setprofile(lambda frame, event, _: made.update([frame.f_code.co_name] if event == "call" else []))
    try:
        layout = Layout(blocks_of([1] * 300, "c{}"), 60, 30)
    finally:
        sys.setprofile(None)
    assert made["_line"] <= len(layout.lines), "not every density"


def test_merged_blocks_hold_the_same_cells() -> None:
    blocks = blocks_of([3] * 40)
    merged = merge(blocks)
    assert sum(block.cells for block in merged) == 120
    assert all(block.cells <= 32 for block in merged)
    assert [block.first for block in merged] == sorted(block.first for block in merged)


def test_a_node_without_processors_and_no_node_at_all() -> None:
    assert Layout([], 80, 24).lines == []
    layout = Layout([Block("n0", 0, 0), Block("n1", 0, 2)], 80, 24)
    assert layout.at(*layout.place(1)) == 1
    assert 2 not in layout


def test_a_node_whose_processors_have_gone_has_an_empty_layout() -> None:
    for width in (1, 8, 80):
        assert not any(stretch.cells for line in Layout([Block("", 0, 0)], width, 10).lines for stretch in line)

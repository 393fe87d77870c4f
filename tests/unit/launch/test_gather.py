"""Gathering against its definition: ranks are together when, and only when, they wrote the same bytes."""

import os
import tracemalloc
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from console.launch.stdio.gather import Gather

# few different long texts, so that ranks agree often, part company in the middle, and are prefixes of each other
TEXT = st.lists(st.sampled_from([b"a" * 5000, b"b" * 5000, b"x\n", b"\0\xff"]), max_size=6).map(b"".join)


def gathered(gather: Gather) -> dict[bytes, list[int]]:
    return {b"".join(gather.output(group)): group.ranks for group in gather.groups()}


@given(st.lists(TEXT, max_size=8), st.randoms(use_true_random=False), st.sampled_from([0, 1 << 14, 1 << 20]))
def test_groups_are_the_classes_of_equal_output(texts: list[bytes], random, memory: int) -> None:  # type: ignore[no-untyped-def]
    gather = Gather(len(texts), memory=memory)
    left = dict(enumerate(texts))
    while left:
        rank = random.choice(sorted(left))
        # at least a tenth, or too many choices would be drawn
        cut = max(random.choice([1, 100, 4096, 7000]), len(left[rank]) // 10)
        gather.feed(rank, left[rank][:cut])
        left[rank] = left[rank][cut:]
        if not left[rank]:
            del left[rank]
    wanted: dict[bytes, list[int]] = defaultdict(list)
    for rank, text in enumerate(texts):
        if text:
            wanted[text].append(rank)
    assert gathered(gather) == wanted
    gather.close()


def test_the_report_is_clushs() -> None:
    gather = Gather(6)
    for rank in (5, 1, 0, 2):
        gather.feed(rank, b"6.1.0\n")
    gather.feed(3, b"5.10 without an end")
    gather.feed(4, b"")
    rule = b"---------------\n"
    assert b"".join(gather.report()) == (
        rule + b"ranks 0..2,5 (4)\n" + rule + b"6.1.0\n" + rule + b"rank 3\n" + rule + b"5.10 without an end\n"
    )


def test_it_may_be_asked_before_the_end() -> None:
    gather = Gather(2)
    gather.feed(0, b"half")
    assert gathered(gather) == {b"half": [0]}
    gather.feed(0, b" and half")
    gather.feed(1, b"half and half")
    assert gathered(gather) == {b"half and half": [0, 1]}


def test_what_there_is_no_room_for_is_left_out_and_said() -> None:
    gather = Gather(3, memory=0, disk=8192)
    block = 4096
    same = os.urandom(3 * block + 10)
    for rank in range(2):
        gather.feed(rank, same)
    gather.feed(2, same[: 2 * block] + os.urandom(block + 10))
    groups = gather.groups()
    assert [group.ranks for group in groups] == [[0, 1], [2]]
    assert [group.left_out for group in groups] == [block + 10, block + 10]
    assert all(b"".join(gather.output(group)) == same[: 2 * block] for group in groups)
    assert f"ranks 0..1 (2); {block + 10} bytes left out".encode() in groups[0].header
    gather.close()


def test_a_thousand_ranks_that_agree_take_the_memory_of_one() -> None:
    gather = Gather(1000, memory=4 << 20)
    data = os.urandom(1 << 18)
    tracemalloc.start()
    try:
        for rank in range(1000):
            gather.feed(rank, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [group.ranks for group in gather.groups()] == [list(range(1000))]
    assert peak < 16 << 20
    gather.close()


def test_ranks_that_differ_stay_within_the_memory_given() -> None:
    gather = Gather(16, memory=1 << 20)
    tracemalloc.start()
    try:
        for rank in range(16):
            for _ in range(16):
                gather.feed(rank, os.urandom(1 << 17))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
    assert len(gather.groups()) == 16
    gather.close()


def test_its_file_has_no_name_and_goes_with_it(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    gather = Gather(1, memory=0)
    data = os.urandom(100_000)
    gather.feed(0, data)
    assert os.listdir(tmp_path) == [] and len(os.listdir("/proc/self/fd")) == before + 1
    assert gathered(gather) == {data: [0]}
    gather.close()
    assert len(os.listdir("/proc/self/fd")) == before

"""Gathering against its definition: ranks are together when, and only when, they wrote the same bytes."""

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from console.launch.stdio.gather import Gather

ROOT = Path(__file__).parents[3]
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


#: In a process of its own: beside the threads of other tests, tracemalloc of Python 3.11 can crash.
PEAK = """
import os, sys, tracemalloc
from console.launch.stdio.gather import Gather

ranks, memory, times, agree = map(int, sys.argv[1:])
gather = Gather(ranks, memory=memory)
same = os.urandom(1 << 18)
tracemalloc.start()
for rank in range(ranks):
    for _ in range(times):
        gather.feed(rank, same if agree else os.urandom(1 << 17))
print(tracemalloc.get_traced_memory()[1], *(len(group.ranks) for group in gather.groups()))
"""


def peak(ranks: int, memory: int, times: int, *, agree: bool) -> tuple[int, list[int]]:
    """The most memory that gathering took, and the sizes of the groups."""
    words = [sys.executable, "-c", PEAK, *map(str, (ranks, memory, times, int(agree)))]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    most, *sizes = map(int, done.stdout.split())
    return most, sizes


def test_a_thousand_ranks_that_agree_take_the_memory_of_one() -> None:
    most, sizes = peak(1000, 4 << 20, 1, agree=True)
    assert sizes == [1000]
    assert most < 16 << 20


def test_ranks_that_differ_stay_within_the_memory_given() -> None:
    most, sizes = peak(16, 1 << 20, 16, agree=False)
    assert sizes == [1] * 16
    assert 1 << 17 < most < 4 << 20


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

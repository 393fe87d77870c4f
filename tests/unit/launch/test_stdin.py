"""Load files' lines dealt over an allocation, and GPUs to ranks; what the PCT makes of both."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.pct.errors import LoadFailed
from agents.pct.launch import load as pct
from agents.pct.launch.line_and_gpu_variables import OwnVariables
from agents.wire.control import encode
from console.errors import ConsoleError
from console.launch.options.request import Program, ProgramOptions, Request
from console.launch.plan import common_message, deal_gpus, load_message, place, place_request, place_segments


def part(node: int, *processors: int) -> dict[str, Any]:
    return {"id": node + 1, "name": f"n{node}", "address": f"/run/n{node}.sock", "processors": list(processors)}


def request_of(*sizes: int, **more: Any) -> Request:
    request = Request(ProgramOptions(b"/bin/a", [b"a"], {b"A": b"1"}, b"/", 18))
    request.where.size = sum(sizes)
    for name, value in more.items():
        setattr(request.where, name, value)
    request.program.segments = [
        Program(line, size, None, b"/bin/p%d" % line, [b"p", b"%d" % line]) for line, size in enumerate(sizes, 1)
    ]
    return request


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=5),
    st.integers(1, 3),
    st.sampled_from(["block", "cyclic"]),
    st.data(),
)
def test_every_line_has_its_own_processors_in_its_order(
    sizes: list[int], each: int, distribution: str, data: st.DataObject
) -> None:
    """As the CPA gives them: line after line, whole tasks on nodes that may come again."""
    parts, node_of_task, next_id = [], [], 0
    for size in sizes:
        for _ in range(size):
            node = data.draw(st.integers(0, 3))
            ids = list(range(next_id, next_id + each))
            next_id += each
            node_of_task.append(node)
            if parts and parts[-1]["name"] == f"n{node}":
                parts[-1]["processors"] += ids
            else:
                parts.append(part(node, *ids))
    plan = place_segments(parts, sizes, each, distribution)
    assert plan.size == sum(sizes) == len(plan.node_of)
    first = 0
    for size in sizes:
        ranks = range(first, first + size)
        mine = {processor for rank in ranks for processor in range(rank * each, (rank + 1) * each)}
        assert {plan.first_processor[rank] for rank in ranks} <= mine, "a line's ranks stay on its processors"
        if distribution == "block":
            there = sorted(f"n{node}" for node in node_of_task[first : first + size])
            assert sorted(plan.nodes[plan.node_of[rank]].name for rank in ranks) == there
        first += size
    for at, node in enumerate(plan.nodes):
        assert node.ranks == sorted(node.ranks) == [rank for rank in range(plan.size) if plan.node_of[rank] == at]
        assert len(node.processors) == each * len(node.ranks)


def test_a_cpa_that_gives_another_number_is_told_of() -> None:
    with pytest.raises(ConsoleError, match="3 processors came for 4"):
        place_segments([part(0, 0, 1, 2)], [2, 2], 1, "block")


def test_the_common_part_names_every_program() -> None:
    request = request_of(2, 1)
    common = common_message(request, 3)
    assert [(one["first"], one["count"], one["path"]) for one in common["segments"]] == [
        (0, 2, "/bin/p1"),
        (2, 1, "/bin/p2"),
    ]
    program = pct.read_program(encode(common))
    assert program.subgroups and program.segment_of(2).argv == [b"p", b"2"]
    plain = request_of(2)
    plain.program.segments = None
    assert "subgroups" not in common_message(plain, 2)


def loaded(request: Request, nodes: list[dict[str, Any]], **more: Any) -> list[pct.Load]:
    reply = {"launcher": 7, "partition": 5, "mesh": "m", "pending_s": 60.0, "nodes": nodes, **more}
    message = load_message(place_request(reply, request), reply, request)
    return [pct.read_load({**message, "nodes": message["nodes"][at:]}) for at in range(len(message["nodes"]))]


def test_ranks_know_their_line_and_their_gpus() -> None:
    request = request_of(1, 2)
    request.where.gpus_per_task = 2
    devices = {"n0": {"gpu": [0, 1, 2, 3]}, "n1": {"gpu": [1, 3]}}
    first, second = loaded(request, [part(0, 0), part(0, 1), part(1, 4)], resources=devices)
    program = pct.read_program(encode(common_message(request, 3)))
    here = OwnVariables(first, program, range(4))
    assert here.of(1) == {
        b"CUDA_VISIBLE_DEVICES": b"2,3", b"ROCR_VISIBLE_DEVICES": b"2,3", b"HIP_VISIBLE_DEVICES": b"0,1",
        b"ZE_AFFINITY_MASK": b"2,3", b"YOD_SEGMENT": b"1", b"YOD_SEGMENT_RANK": b"0", b"YOD_SEGMENT_SIZE": b"2",
    }  # fmt: skip
    there = OwnVariables(second, program, [8, 9, 10, 11])
    assert there.of(2)[b"CUDA_VISIBLE_DEVICES"] == b"9,11", "as that machine numbers them"
    for own, rank in ((here, 0), (here, 1), (there, 2)):
        assert set(own.names()) == set(own.of(rank)) and len(own.entries(rank)) == len(own.names())
    with pytest.raises(LoadFailed) as error:
        OwnVariables(second, program, [8])
    assert error.value.fault == "node"


def test_too_few_gpus_are_an_old_cpa() -> None:
    with pytest.raises(ConsoleError, match="0 GPUs came for 2 ranks"):
        deal_gpus(place([part(0, 0, 1)], 2, 1, "block", overcommit=False), {}, 1)

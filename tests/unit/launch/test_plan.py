"""Ranks over nodes, by hand and against what must hold for any allocation."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.errors import ConsoleError
from console.launch.options.request import ProgramOptions, Request, forwarded
from console.launch.plan import Plan, common_message, load_message, place


def nodes(*counts: int) -> list[dict[str, Any]]:
    given_nodes, first = [], 10
    for number, count in enumerate(counts):
        processors = list(range(first, first + count))
        given_nodes.append({"id": number + 1, "name": f"n{number}", "address": f"/n{number}", "processors": processors})
        first += count
    return given_nodes


def by_node(plan: Plan) -> dict[str, list[int]]:
    return {node.name: node.ranks for node in plan.nodes}


def test_block_fills_node_after_node() -> None:
    plan = place(nodes(2, 3, 1), 6, 1, "block", overcommit=False)
    assert by_node(plan) == {"n0": [0, 1], "n1": [2, 3, 4], "n2": [5]}
    assert plan.first_processor == [10, 11, 12, 13, 14, 15]


def test_cyclic_goes_round_and_passes_full_nodes() -> None:
    plan = place(nodes(2, 3, 1), 6, 1, "cyclic", overcommit=False)
    assert by_node(plan) == {"n0": [0, 3], "n1": [1, 4, 5], "n2": [2]}
    assert plan.first_processor == [10, 12, 15, 11, 13, 14]


def test_cpus_per_task() -> None:
    plan = place(nodes(4, 2), 3, 2, "block", overcommit=False)
    assert by_node(plan) == {"n0": [0, 1], "n1": [2]}
    assert plan.first_processor == [10, 12, 14]


def test_overcommit_shares_evenly() -> None:
    plan = place(nodes(2, 2), 8, 1, "block", overcommit=True)
    assert by_node(plan) == {"n0": [0, 1, 2, 3], "n1": [4, 5, 6, 7]}
    plan = place(nodes(2, 2), 6, 1, "cyclic", overcommit=True)
    assert by_node(plan) == {"n0": [0, 2, 4], "n1": [1, 3, 5]}


def test_overcommit_with_more_cpus_a_task_than_a_node_has() -> None:
    plan = place(nodes(2), 3, 4, "block", overcommit=True)
    assert by_node(plan) == {"n0": [0, 1, 2]}


def test_the_size_of_a_list() -> None:
    assert place(nodes(3, 4), None, 1, "block", overcommit=False).size == 7
    assert place(nodes(3, 4), None, 2, "block", overcommit=False).size == 3


def test_a_rank_is_not_cut_in_two() -> None:
    with pytest.raises(ConsoleError) as caught:
        place(nodes(3, 3), 3, 2, "block", overcommit=False)
    assert "room for 2 of 3: " in caught.value.message


def test_a_node_that_comes_twice_is_one_node() -> None:
    parts = nodes(1, 1)
    parts.append({**parts[0], "processors": [40]})
    plan = place(parts, 3, 1, "block", overcommit=False)
    assert by_node(plan) == {"n0": [0, 2], "n1": [1]}
    assert plan.first_processor == [10, 11, 40]


def test_a_node_without_ranks_is_not_loaded() -> None:
    plan = place(nodes(2, 2), 2, 1, "block", overcommit=False)
    assert [node.name for node in plan.nodes] == ["n0"]
    assert plan.node_of == [0, 0]


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=6),
    st.integers(1, 40),
    st.integers(1, 3),
    st.sampled_from(["block", "cyclic"]),
    st.booleans(),
)
def test_any_allocation_places_every_rank_once(
    counts: list[int], size: int, each: int, distribution: str, overcommit: bool
) -> None:
    try:
        plan = place(nodes(*counts), size, each, distribution, overcommit=overcommit)
    except ConsoleError:
        assert not overcommit
        assert sum(count // each for count in counts) < size
        return
    assert sorted(rank for node in plan.nodes for rank in node.ranks) == list(range(size))
    assert all(plan.nodes[plan.node_of[rank]].ranks.count(rank) == 1 for rank in range(size))
    assert all(node.ranks == sorted(node.ranks) for node in plan.nodes)
    assert plan.node_of[0] == 0, "the first node hosts rank 0"
    for node in plan.nodes:
        assert len(set(node.processors)) == len(node.processors)
    if not overcommit:
        assert len(set(plan.first_processor)) == size
        for node in plan.nodes:
            # the PCT deals them out in order
            dealt = [node.processors[at * each] for at in range(len(node.ranks))]
            assert dealt == [plan.first_processor[rank] for rank in node.ranks]
            assert len(node.processors) >= each * len(node.ranks)
    if distribution == "block":
        assert plan.node_of == sorted(plan.node_of)


def request(**more: Any) -> Request:
    made = Request(ProgramOptions(b"/bin/a\xff", [b"a\xff", b""], more.pop("environ", {}), b"/", 0o22))
    for name, value in more.items():
        setattr(made.where if hasattr(made.where, name) else made.stdio, name, value)
    return made


def test_messages_are_what_the_protocol_says() -> None:
    from agents.wire.control import decode, encode, to_bytes
    from agents.wire.messages import CPA, DOWN, check

    plan = place(nodes(2, 2), 4, 1, "block", overcommit=False)
    reply = {"launcher": 7, "partition": 5, "mesh": "1f2e3d4c", "pending_s": 60.0}
    load = decode(encode(load_message(plan, reply, request(input=2))))
    assert check(DOWN, load) == "load"
    assert [node["index"] for node in load["nodes"]] == [0, 1]
    common = decode(encode(common_message(request(environ={b"A": b"\xfe=\x80"}), 4)))
    assert to_bytes(common["segments"][0]["path"]) == b"/bin/a\xff"
    assert [to_bytes(entry) for entry in common["env"]] == [b"A=\xfe=\x80"]
    assert check(CPA, request(size=4).allocation("0" * 32, "login1", 1, 2)) == "allocate"


def test_what_is_not_forwarded() -> None:
    ours = {
        b"PATH": b"/bin",
        b"OMP_NUM_THREADS": b"2",
        b"YODRETRYCOUNT": b"1",
        b"PMIXTURE": b"x",
        b"OMPI_MCA_btl": b"tcp",
        b"SLURM_JOB_ID": b"1",
    }
    theirs = {
        b"SLURM_PROCID": b"1",
        b"PMI_RANK": b"0",
        b"PMIX_NAMESPACE": b"n",
        b"YOD_RANK": b"3",
        b"REDMESH_ALLOCATION_COOKIE": b"secret",
        b"PALS_RANKID": b"2",
        b"MPI_LOCALRANKID": b"0",
        b"OMPI_COMM_WORLD_RANK": b"1",
        b"REDMESH_LAUNCH": b"other/n0/1",
    }
    assert dict(forwarded({**ours, **theirs})) == ours

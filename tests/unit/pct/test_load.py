"""Loads read, trees cut, environments cleaned."""

import copy
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.pct.errors import LoadFailed
from agents.pct.launch import load as plan
from agents.wire.control import encode

NODE = {"id": 2, "name": "n1", "index": 0, "address": "/x", "processors": [4, 5], "ranks": [0, 1]}
LOAD: dict[str, Any] = {
    "op": "load", "launcher": 7, "partition": 5, "mesh": "m", "size": 4, "nnodes": 2, "fanout": 32, "window": 1 << 24,
    "pending_s": 60.0, "input": "shared", "nodes": [NODE, {**NODE, "name": "n2", "index": 1, "ranks": [2, 3]}],
}  # fmt: skip
COMMON: dict[str, Any] = {
    "segments": [
        {"first": 0, "count": 3, "path": "/a", "argv": ["a", "\xff"]},
        {"first": 3, "count": 1, "path": "/b", "argv": []},
    ],
    "env": ["A=1", "B==", "nonsense", "=x", "SLURM_JOB_ID=3", "C=\xe9"],
    "cwd": "/", "umask": 18, "cpus_per_task": 1, "hold": "exec",
}  # fmt: skip


@given(st.integers(0, 300), st.integers(1, 64))
def test_runs_cut_everything_once_and_evenly(count: int, fanout: int) -> None:
    nodes: list[Any] = list(range(count))
    cut = plan.runs(nodes, fanout)
    assert [node for run in cut for node in run] == nodes
    assert len(cut) == min(count, fanout)
    assert not cut or max(map(len, cut)) - min(map(len, cut)) <= 1


def test_a_load_is_read() -> None:
    load = plan.read_load(LOAD)
    assert (load.name, load.place, load.ranks, load.window) == ("n1", 0, [0, 1], 1 << 24)
    assert plan.mark(load) == "m/n1/7"


@pytest.mark.parametrize(
    "change",
    [
        {"op": "go", "ranks": []},
        {"nodes": []},
        {"fanout": 0},
        {"nodes": [1]},
        {"nodes": [{"name": "x"}]},
        {"launcher": "7"},
    ],
)
def test_wrong_loads_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(LoadFailed) as error:
        plan.read_load({**LOAD, **change})
    assert error.value.fault == "launch"


def test_a_program_is_read() -> None:
    program = plan.read_program(encode(COMMON))
    assert program.segment_of(2).argv == [b"a", b"\xff"]
    assert program.segment_of(3).path == b"/b"
    # what of the environment ranks get is the launcher's business, but for what is each rank's own
    assert program.env == {b"A": b"1", b"B": b"=", b"C": b"\xe9", b"SLURM_JOB_ID": b"3"}
    with pytest.raises(LoadFailed):
        program.segment_of(4)


@pytest.mark.parametrize("key", ["segments", "env", "cwd", "umask"])
def test_wrong_programs_are_refused(key: str) -> None:
    without = copy.deepcopy(COMMON)
    del without[key]
    for wrong in (without, {**COMMON, key: None}, {**COMMON, key: ["\u0100"]}):
        with pytest.raises(LoadFailed):
            plan.read_program(encode(wrong))


@pytest.mark.parametrize(
    ("input", "root", "expected"),
    [
        ("shared", True, None),
        ("shared", False, []),
        ("all", False, [0, 1]),
        ("none", True, []),
        (1, False, [1]),
        (2, True, []),
    ],
)
def test_where_stdin_goes(input: str | int, root: bool, expected: object) -> None:
    assert plan.stdin_goes(plan.read_load({**LOAD, "input": input}), root) == expected


def test_windows_and_maps() -> None:
    assert plan.child_window(16 << 20, 32) == 512 << 10
    assert plan.child_window(64 << 10, 32) == 64 << 10
    assert plan.rank_map([[901, 0], [902, 1], [9, 7]], {0: "n1", 1: "n2"}) == "0 n1 901\n1 n2 902\n2 ? 9\n"


def test_variables_that_describe_a_node_are_those_of_the_rank_s_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environb, b"SLURM_CPUS_ON_NODE", b"8")
    monkeypatch.delitem(os.environb, b"SLURM_GPUS_ON_NODE", raising=False)
    yods = [b"SLURM_CPUS_ON_NODE=16", b"SLURM_GPUS_ON_NODE=2", b"SLURM_JOB_ID=3"]
    env = {**plan.clean_environment(yods), **plan.node_environment(plan.read_load(LOAD), b"")}
    assert env[b"SLURM_CPUS_ON_NODE"] == b"8" and env[b"SLURM_JOB_ID"] == b"3"
    assert b"SLURM_GPUS_ON_NODE" not in env, "those of yod's node"

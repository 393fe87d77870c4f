"""What a node makes of the manner of a load: who is bound where, what runs under strace, what it refuses."""

import os
from pathlib import Path
from typing import Any

import pytest

from agents.pct.errors import LoadFailed
from agents.pct.launch import options as module
from agents.pct.launch.load import Load, Segment
from agents.pct.launch.options import RANK_ENVIRONMENT, RunOptions

ALLOWED = sorted(os.sched_getaffinity(0))
SEGMENT = Segment(0, 8, b"/bin/job", [b"job", b"-x"])


def load(ranks: list[int], processors: list[int]) -> Load:
    node = {"id": 1, "name": "n1", "index": 0, "address": "/x", "processors": processors, "ranks": ranks}
    keys = {"op": "load", "launcher": 7, "partition": 5, "mesh": "m", "size": 8, "nnodes": 1, "fanout": 32}
    return Load({**keys, "window": 1 << 20, "pending_s": 60.0, "input": "none", "nodes": [node]})


def manner(wanted: dict[str, Any], ranks: list[int] | None = None, processors: list[int] | None = None) -> RunOptions:
    return RunOptions(wanted, load(ranks or [4, 5], processors or [10, 11]))


def test_a_rank_is_bound_to_its_processors_core() -> None:
    bound = manner({"bind": {"each": 1}}).cpus
    assert bound == {4: [ALLOWED[10 % len(ALLOWED)]], 5: [ALLOWED[11 % len(ALLOWED)]]}
    wide = manner({"bind": {"each": 2}}, [0, 1], [0, 1, 2, 3]).cpus
    assert wide[0] == sorted({ALLOWED[0], ALLOWED[1 % len(ALLOWED)]})


def test_a_map_is_gone_round() -> None:
    cpus = manner({"bind": {"each": 1, "map": [ALLOWED[-1], ALLOWED[0]]}}, [4, 5, 6]).cpus
    assert cpus == {4: [ALLOWED[-1]], 5: [ALLOWED[0]], 6: [ALLOWED[-1]]}


def test_a_core_that_is_not_there_is_the_programs_fault_and_says_which_are() -> None:
    with pytest.raises(LoadFailed, match="no processor core 4095") as refused:
        manner({"bind": {"each": 1, "map": [4095]}})
    assert refused.value.fault == "program" and str(ALLOWED[0]) in refused.value.hint


def test_strace_runs_the_ranks_named_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "strace"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setattr(module, "_STRACE", (str(tool),))
    made = manner({"strace": {"dir": str(tmp_path / "a" / "b"), "options": ["-f"], "ranks": [5, 6]}})
    file = os.fsencode(tmp_path / "a" / "b" / "7.rank-5.strace")
    assert made.command(4, SEGMENT) is None
    assert made.command(5, SEGMENT) == [os.fsencode(tool), b"-f", b"-o", file, b"--", b"/bin/job", b"-x"]


def test_without_strace_nothing_starts_and_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STRACE", (str(tmp_path / "strace"),))
    with pytest.raises(LoadFailed, match="n1: strace is not installed") as refused:
        manner({"strace": {"dir": str(tmp_path), "options": [], "ranks": None}})
    assert refused.value.fault == "launch" and refused.value.hint
    manner({"strace": {"dir": str(tmp_path), "options": [], "ranks": [0]}})  # none of them is here


def test_ranks_that_are_looked_at_get_the_run_times_variables() -> None:
    made = manner({"backtrace": 8})
    env = {b"RUST_BACKTRACE": b"full"}
    made.complete(env)
    assert env[b"RUST_BACKTRACE"] == b"full", "what the user has set stays"
    assert all(name in env for name in RANK_ENVIRONMENT)
    assert made.at_once == 8


def test_where_a_rank_sleeps() -> None:
    assert manner({"sleep": {"where": "loaded", "seconds": 3}}).after_exec_s == 3
    assert manner({"sleep": {"where": "fork", "seconds": 3}}).after_exec_s == 0
    assert manner({"sleep": {"where": "fork", "seconds": 3}}).patience_s == 3
    assert manner({}).patience_s == 0


def test_the_terminal_is_one_ranks() -> None:
    wanted = {"pty": {"rank": 5, "rows": 24, "columns": 80}}
    assert manner(wanted).pty == 5 and manner(wanted, [0, 1]).pty is None


@pytest.mark.parametrize(
    "wanted",
    [{"sleep": 3}, {"bind": {}}, {"bind": 1}, {"strace": {}}, {"pty": {"rank": 4}}, {"nice": "x"}, {"backtrace": []}],
)
def test_what_makes_no_sense_is_refused(wanted: dict[str, Any]) -> None:
    with pytest.raises(LoadFailed) as refused:
        manner(wanted)
    assert refused.value.fault == "launch"

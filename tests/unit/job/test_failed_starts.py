"""Nodes on which launches of a job could not start, and when the job gives up."""

from agents.job.grants.failed_starts import FORGIVE_MOST_S, FORGIVE_S, ROUNDS, ROUNDS_LATER, FailedStarts
from agents.wire.launch_events import NodeCannotStart


def failed(starts: FailedStarts, *nodes: str, now: float = 0.0, hint: str = "", of_room: bool = False) -> float:
    again_s = 0.0
    for node in nodes:
        text = f"{node}: /dev/shm is {'full' if of_room else 'read-only'}"
        again_s = starts.failed(NodeCannotStart(node, text, hint, lasting=True, of_room=of_room), now)
    return again_s


def test_a_node_is_left_out_once_and_all_are_tried_again_in_the_next_round() -> None:
    starts = FailedStarts()
    failed(starts, "n1", "n0", "n1")
    assert starts.nodes == ["n0", "n1"]
    assert starts.end_round() == "" and starts.nodes == []
    failed(starts, "n1")
    assert starts.nodes == ["n1"]


def test_the_job_ends_after_some_rounds_with_the_reasons_of_all_nodes() -> None:
    starts = FailedStarts()
    for _ in range(ROUNDS - 1):
        failed(starts, "n9", "n10", "n2", hint="mount")
        assert starts.end_round() == ""
    failed(starts, "n9", "n10", hint="mount")
    starts.failed(NodeCannotStart("n2", "no such program", lasting=True), 0.0)
    assert starts.end_round() == (
        f"no worker can start ({ROUNDS} tries on each node): n2: no such program; n9-n10: /dev/shm is read-only (mount)"
    )


def test_rounds_count_from_the_last_launch_that_started_and_a_job_that_has_run_waits_longer() -> None:
    starts = FailedStarts()
    for _ in range(ROUNDS - 1):
        failed(starts, "n0")
        assert starts.end_round() == ""
    starts.started(["n1"])
    for _ in range(ROUNDS_LATER - 1):
        failed(starts, "n0")
        assert starts.end_round() == ""
    failed(starts, "n0")
    assert starts.end_round().startswith("no worker can start")


def test_a_job_that_lacks_only_room_on_a_node_waits_longer() -> None:
    starts = FailedStarts()
    for _ in range(ROUNDS_LATER - 1):
        failed(starts, "n0")
        failed(starts, "n1", of_room=True)
        assert starts.end_round() == ""
    failed(starts, "n0", "n1", of_room=True)
    assert starts.end_round().startswith(f"no worker can start ({ROUNDS_LATER} tries on each node): n0-n1: ")


def test_while_it_tries_it_says_why_and_how_often() -> None:
    starts = FailedStarts()
    assert starts.why() == ""
    failed(starts, "n0", hint="mount")
    assert starts.why() == f"n0: /dev/shm is read-only (mount); try 1 of {ROUNDS}"
    failed(starts, "n1", of_room=True)
    assert starts.why().endswith(f"n1: /dev/shm is full; try 1 of {ROUNDS_LATER}")
    starts.end_round()
    assert starts.why(8.0).endswith(f"n1: /dev/shm is full; try 2 of {ROUNDS_LATER}, in 8 s"), "as in the round"
    starts.clear()
    starts.started(["n0"])
    assert starts.why() == ""


def test_the_reasons_of_many_nodes_are_some() -> None:
    starts = FailedStarts()
    for node in range(100):
        starts.failed(NodeCannotStart(f"n{node}", f"n{node}: room for {node} bytes", lasting=True), 0.0)
    assert starts.why().endswith(f"n4: room for 4 bytes; 95 more nodes for other reasons; try 1 of {ROUNDS}")


def test_nodes_are_forgiven_when_the_last_failure_is_long_ago() -> None:
    starts = FailedStarts()
    assert not starts.forgive(FORGIVE_S)
    failed(starts, "n0")
    failed(starts, "n1", now=FORGIVE_S)
    assert not starts.forgive(2 * FORGIVE_S - 1) and starts.nodes == ["n0", "n1"]
    assert starts.forgive(2 * FORGIVE_S) and starts.nodes == []


def test_the_pause_of_a_node_doubles_until_a_launch_starts_there() -> None:
    starts, now, pauses = FailedStarts(), 1000.0, []
    for _ in range(6):
        pauses.append(failed(starts, "bad", now=now))
        assert not starts.forgive(now + pauses[-1] - 1)
        now += pauses[-1]
        assert starts.forgive(now)
        starts.started(["good"])
    assert pauses == [60.0, 120.0, 240.0, 480.0, 960.0, FORGIVE_MOST_S]
    starts.started(["bad"])
    assert failed(starts, "bad", now=now) == FORGIVE_S


def test_a_node_that_fails_for_the_first_time_does_not_wait_for_one_that_fails_for_long() -> None:
    starts, now = FailedStarts(), 1000.0
    for _ in range(4):
        failed(starts, "bad", now=now)
    failed(starts, "new", now=now)
    assert starts.forgive(now + FORGIVE_S) and starts.nodes == ["bad"]


def test_a_round_on_a_large_mesh_ends_however_long_the_tries_on_its_nodes_take() -> None:
    starts, now = FailedStarts(), 0.0
    for node in range(1000):
        failed(starts, f"n{node}", now=now)
        now += 0.5
        starts.forgive(now)
    assert len(starts.nodes) == 1000, "the CPA says that no node is left"

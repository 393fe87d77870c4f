"""Nodes on which launches of a job could not start, and when the job gives up."""

from agents.job.failed_starts import FORGIVE_S, ROUNDS, ROUNDS_LATER, FailedStart, FailedStarts


def failed(starts: FailedStarts, *nodes: str, now: float = 0.0, hint: str = "") -> bool:
    return starts.failed([FailedStart(node, f"{node}: /dev/shm is full", hint) for node in nodes], starts.nodes, now)


def test_a_node_is_left_out_once_and_all_are_tried_again_in_the_next_round() -> None:
    starts = FailedStarts()
    assert failed(starts, "n1", "n0", "n1") and not failed(starts, "n1")
    assert starts.nodes == ["n0", "n1"]
    assert starts.end_round() == "" and starts.nodes == []
    assert failed(starts, "n1")


def test_a_request_from_before_a_nodes_first_failure_is_repeated_at_once() -> None:
    starts = FailedStarts()
    before = starts.nodes
    assert failed(starts, "n0")
    assert starts.failed([FailedStart("n0", "n0: /dev/shm is full", "")], before, 0.0)


def test_the_job_ends_after_some_rounds_with_the_reasons_of_all_nodes() -> None:
    starts = FailedStarts()
    for _ in range(ROUNDS - 1):
        failed(starts, "n0", "n1", "n2", hint="df")
        assert starts.end_round() == ""
    failed(starts, "n0", "n1", hint="df")
    starts.failed([FailedStart("n2", "no such program", "")], (), 0.0)
    assert starts.end_round() == (
        f"no worker can start ({ROUNDS} tries on each node): n0-n1: /dev/shm is full (df); n2: no such program"
    )


def test_rounds_count_from_the_last_launch_that_started_and_a_job_that_has_run_waits_longer() -> None:
    starts = FailedStarts()
    for _ in range(ROUNDS - 1):
        failed(starts, "n0")
        assert starts.end_round() == ""
    starts.started()
    for _ in range(ROUNDS_LATER - 1):
        failed(starts, "n0")
        assert starts.end_round() == ""
    failed(starts, "n0")
    assert starts.end_round().startswith("no worker can start")


def test_nodes_are_forgiven_when_the_last_failure_is_long_ago() -> None:
    starts = FailedStarts()
    assert not starts.forgive(FORGIVE_S)
    failed(starts, "n0")
    failed(starts, "n1", now=FORGIVE_S)
    assert not starts.forgive(2 * FORGIVE_S - 1) and starts.nodes == ["n0", "n1"]
    assert starts.forgive(2 * FORGIVE_S) and starts.nodes == []


def test_a_round_on_a_large_mesh_ends_however_long_the_tries_on_its_nodes_take() -> None:
    starts, now = FailedStarts(), 0.0
    for node in range(1000):
        assert failed(starts, f"n{node}", now=now)
        now += 0.5
        starts.forgive(now)
    assert len(starts.nodes) == 1000, "the CPA says that no node is left"

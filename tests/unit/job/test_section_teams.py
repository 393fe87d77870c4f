"""Several ranks that run one section: the first that fails decides, and every rank's last lines are kept."""

from agents.job.workers.messages import Result
from agents.job.workers.worker import Connection, Team, Worker


def result(status: int, lines: str, began: float = 1.0, cause: str = "") -> Result:
    return Result(7, 1, status, began, began + 1, lines, cause)


def team() -> tuple[Team, list[Worker]]:
    made, connection = Team(3), Connection()
    ranks = [Worker(connection, node, 1, rank, made) for node, rank in (("n1", 1), ("n1", 0), ("n2", 2))]
    return made, ranks


def test_a_section_has_succeeded_when_every_rank_has() -> None:
    made, ranks = team()
    assert made.complete and made.node == "n1,n2"
    for number, rank in enumerate(ranks):
        assert not made.ended
        assert made.take(rank, result(0, f"of {rank.rank}\n", began=number)) == []
    assert made.ended
    whole = made.result()
    assert (whole.status, whole.started_at, whole.ended_at, whole.cause) == (0, 0, 3, "")
    assert whole.lines.endswith("--- rank 0 on n1\nof 0\n") and "--- rank 2 on n2\nof 2\n" in whole.lines


def test_the_rank_that_failed_first_decides_and_the_others_are_killed() -> None:
    made, ranks = team()
    assert made.take(ranks[1], result(0, "")) == []
    assert made.take(ranks[2], result(3, "boom\n")) == [ranks[0]]
    assert made.take(ranks[0], result(124, "killed\n", cause="another")) == []
    assert made.result().status == 3 and made.result().blamed == "n2"
    assert made.result().lines == "--- rank 1 on n1\nkilled\n--- rank 2 on n2\nboom\n"

"""Several ranks that run one section: the first that fails decides, and every rank's last lines are kept."""

from typing import Any, NamedTuple

from agents.job.sections.teams import Team


class Rank(NamedTuple):
    node: str
    rank: int


def row(status: int, lines: str, began: float = 1.0, cause: str = "") -> list[Any]:
    return [7, 1, status, began, began + 1, lines, cause]


def team() -> tuple[Team, list[Rank]]:
    made, ranks = Team(3), [Rank("n1", 1), Rank("n1", 0), Rank("n2", 2)]
    made.members += ranks
    return made, ranks


def test_a_section_has_succeeded_when_every_rank_has() -> None:
    made, ranks = team()
    assert made.complete and made.node == "n1,n2"
    for number, rank in enumerate(ranks):
        assert not made.ended
        assert made.take(rank, row(0, f"of {rank.rank}\n", began=number)) == []
    assert made.ended
    _, _, status, began, ended, lines, cause = made.result()
    assert (status, began, ended, cause) == (0, 0, 3, "")
    assert lines.endswith("--- rank 0 on n1\nof 0\n") and "--- rank 2 on n2\nof 2\n" in lines


def test_the_rank_that_failed_first_decides_and_the_others_are_killed() -> None:
    made, ranks = team()
    assert made.take(ranks[1], row(0, "")) == []
    assert made.take(ranks[2], row(3, "boom\n")) == [ranks[0]]
    assert made.take(ranks[0], row(124, "killed\n", cause="another")) == []
    assert made.result()[2] == 3 and made.blamed == "n2"
    assert made.result()[5] == "--- rank 1 on n1\nkilled\n--- rank 2 on n2\nboom\n"

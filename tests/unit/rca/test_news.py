"""What the questions of other login processors' RCAs say of changes there."""

from agents.rca.logins.news import QUIET_S, News
from agents.wire.heartbeat import RCA, Beat


def question(sequence: int, changes: int, life: str = "life-1", node: str = "login2") -> Beat:
    return Beat(node, life, changes, sequence, kind=RCA)


def test_a_change_is_news_once_and_a_lost_question_loses_none() -> None:
    news = News()
    assert news.take(question(1, 1), 100.0)  # what it changed before is not known
    assert not news.take(question(2, 1), 101.0)
    assert news.take(question(5, 4), 104.0)  # two were lost
    assert not news.take(question(6, 4), 105.0)


def test_replayed_and_late_questions_are_no_news() -> None:
    news = News()
    news.take(question(1, 1), 100.0)
    news.take(question(3, 2), 101.0)
    assert not news.take(question(2, 1), 101.1) and not news.take(question(3, 2), 101.2)
    assert news.take(question(1, 0, "life-2"), 102.0)  # a new RCA there
    assert not news.take(question(9, 9, "life-1"), 103.0)
    assert not news.take(question(2, 0, "life-2"), 104.0)


def test_an_rca_that_is_not_heard_may_have_changed_something() -> None:
    news = News()
    assert not news.is_quiet([], 100.0) and news.is_quiet(["login2"], 100.0)
    news.take(question(1, 1), 100.0)
    assert not news.is_quiet(["login2"], 100.0 + QUIET_S)
    assert news.is_quiet(["login2"], 100.1 + QUIET_S) and news.is_quiet(["login2", "login3"], 100.0)
    news.take(question(1, 1), 200.0)  # a replay is no sign of life
    assert news.is_quiet(["login2"], 200.0)


def test_an_rca_of_an_earlier_version_announces_nothing() -> None:
    news = News()
    assert news.take(question(1, 0), 100.0) and not news.take(question(2, 0), 101.0)
    assert news.is_quiet(["login2"], 101.0)

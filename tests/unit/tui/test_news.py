"""Begins and ends of launches as events: each once, with numbers that no event of the database has."""

from console.tui.model.machine import Launcher, Machine
from console.tui.model.news import Ended, Ends, News, ended


def row(number: int, status: int | None = None, ended_at: float | None = None) -> Launcher:
    return Launcher(
        number, "ada", 1000, f"/home/ada/heat {number}", 4, "busy", "login", 9, None, "", 10.0, 11.0,
        ended_at=ended_at, exit_status=status,
    )  # fmt: skip


def test_each_begin_and_end_is_told_once() -> None:
    news = News()
    [begun] = news.begun([row(7)])
    assert begun.kind == "launch_began" and begun.text == "ada: heat on 4 processors" and begun.at == 11.0
    assert news.begun([row(7)]) == []
    gone = [row(9, 139, 13.0), row(7, 0, 12.0), row(8, None, 14.0)]
    ended = [event for _, event in news.ended(gone)]
    assert [(event.launcher, event.kind) for event in ended] == [
        (7, "launch_ended"), (9, "launch_failed"), (8, "launch_failed"),
    ]  # fmt: skip
    assert "exit 139 (SIGSEGV)" in ended[1].text and "nobody knows how" in ended[2].text
    assert news.ended(gone) == []
    assert len({event.id for event in news.events}) == 4 and all(event.id < 0 for event in news.events)


def test_a_new_database_that_counts_from_1_again_has_news_of_its_own() -> None:
    news, machine = News(), Machine()
    machine.tell(news.events, news.begun([row(1), row(2)]))
    other = row(1)._replace(command="other", created_at=50.0, started_at=51.0)
    begun = news.begun([other])
    machine.tell(news.events, begun)
    assert [(event.launcher, event.text) for event in machine.events] == [(1, "ada: other on 4 processors")]
    [(_, ended)] = news.ended([other._replace(ended_at=52.0, exit_status=0)])
    machine.tell(news.events, [ended])
    assert [event.at for event in machine.events] == [51.0, 52.0]


def test_events_of_launches_stay_when_all_is_read_anew_and_stand_by_their_times() -> None:
    news, machine = News(), Machine()
    machine.tell(news.events, [event for _, event in news.ended([row(7, 0, 12.0)])] + news.begun([row(8)]))
    assert [event.at for event in machine.events] == [11.0, 12.0]
    machine.tell(news.events, [])
    assert machine.news == news.events


def told(rows: list[Launcher]) -> Ends:
    ends = Ends("launch")
    ends.add(map(ended, rows))
    return ends


def test_many_ends_are_one_note() -> None:
    assert "exit 255 after" in told([row(7, 255, 12.0)]).text  # no signal has the number 127
    assert told([row(7, 3, 12.0)]).text.startswith("launcher 7, heat: exit 3 after")
    assert told([row(number, 0, 12.0) for number in range(1234)]).text == "1,234 launches ended"


def test_a_failed_one_keeps_its_number_among_many_ends() -> None:
    ends = told([row(number, int(number == 3), 12.0) for number in range(12)])
    assert ends.bad and ends.text == "12 launches ended, 1 failed: 3\nlauncher 3, heat: exit 1 after 1s"
    ends.add([ended(row(number, 1, 12.0)) for number in range(20, 30)])
    assert ends.text.startswith("22 launches ended, 11 failed: 26, 27, 28, 29 and 7 before\nlauncher 29, ")
    ends.add([Ended("31", "launcher 31, heat: exit 0", False)])
    assert ends.bad and ends.text.startswith("23 launches ended, 11 failed: 26,")

"""A launch as the console knows it: events and output in, ranks, lines and the completion table out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.tui.model.filter import Selection
from console.tui.model.launch import Phase, RankState, Run
from console.tui.model.output import MAX_LINE, MAX_LINES, NOTE, STDERR, STDOUT, Line, Output


def started(size: int = 4) -> Run:
    run = Run(7)
    run.take(
        {"event": "hello", "at": 1.0, "launcher": 7, "command": "x", "size": size, "user": "ada", "state": "loading"}
    )
    run.take({"event": "allocated", "at": 1.0, "launcher": 7, "partition": 5, "nodes": []})
    run.take({"event": "started", "at": 2.0, "ranks": [[900 + rank, f"n{rank // 2}"] for rank in range(size)]})
    return run


def ended(run: Run, rank: int, status: int = 0, signal: int = 0, *, by_yod: bool = False) -> None:
    run.take({"event": "exit", "at": 3.0, "rank": rank, "node": "n0", "status": status, "signal": signal,
              "elapsed_s": 1.0 + rank, "by_yod": by_yod})  # fmt: skip


def test_a_launch_from_hello_to_end() -> None:
    run = Run(7)
    assert run.phase is Phase.ATTACHING
    run = started()
    assert run.phase is Phase.RUNNING and run.live
    assert run.counts() == {RankState.RUNNING: 4}
    ended(run, 0)
    ended(run, 1, 3)
    ended(run, 2, signal=11)
    run.take({"event": "lost", "at": 3.0, "nodes": ["n1"], "ranks": [3], "reason": "n1: the connection ended"})
    assert [RankState(state).name for state in run.states] == ["EXITED", "FAILED", "SIGNALLED", "LOST"]
    run.take({"event": "end", "at": 4.0, "exit_status": 139, "elapsed_s": 3.0})
    assert run.phase is Phase.ENDED and run.failed and not run.live


def test_ranks_died_when_the_first_of_them_ended_not_when_the_launch_was_over() -> None:
    run = started()
    ended(run, 3, signal=11)
    ended(run, 1, 3)
    run.take({"event": "end", "at": 90.0, "exit_status": 139, "elapsed_s": 88.0})
    assert run.died_at(frozenset((1, 3))) == 4.0 and run.died_at(frozenset((3,))) == 6.0
    assert run.died_at(frozenset((0,))) is None


def test_like_ends_are_folded_and_the_bad_come_first() -> None:
    run = started(6)
    for rank in (0, 1, 3):
        ended(run, rank)
    ended(run, 2, 3)
    ended(run, 4, signal=15, by_yod=True)
    ended(run, 5, signal=15, by_yod=True)
    rows = [(row.ranks, row.what, row.shortest_s, row.longest_s) for row in run.completion()]
    assert rows == [("2", "exit 3", 3.0, 3.0), ("4-5", "SIGTERM (by yod)", 5.0, 6.0), ("0-1,3", "exit 0", 1.0, 4.0)]


def killed_after(run: Run, first: int, size: int) -> None:
    for rank in range(size):
        if rank != first:
            run.take({"event": "exit", "at": 3.0, "rank": rank, "node": "n0", "status": 0, "signal": 15,
                      "elapsed_s": 9.0, "by_yod": True})  # fmt: skip


def test_the_rank_that_failed_first_is_told_from_those_that_yod_ended() -> None:
    run = started(9)
    ended(run, 5, signal=11)
    assert not run.first_to_fail, "it is the only one so far"
    killed_after(run, 5, 9)
    assert run.first_to_fail == {5} and run.ended_badly == 1
    assert run.counts() == {RankState.SIGNALLED: 1, RankState.STOPPED: 8}
    rows = [(row.ranks, row.what, row.first) for row in run.completion()]
    assert rows == [("5", "SIGSEGV", {5}), ("0-4,6-8", "SIGTERM (by yod)", frozenset())]
    run.restart()
    assert not run.first_to_fail


def test_the_first_to_fail_is_the_earliest_by_the_ranks_time_whatever_arrives_first() -> None:
    run = started(6)
    ended(run, 4, 1)  # after 5 s
    ended(run, 2, signal=6)  # after 3 s; its node's message came later
    ended(run, 5, 1)
    assert run.first_to_fail == {2}
    rows = [(row.ranks, row.what, row.first) for row in run.completion()]
    assert rows == [("2", "SIGABRT", {2}), ("4-5", "exit 1", frozenset())]


def test_a_rank_that_fails_because_it_was_ended_is_not_the_first_to_fail() -> None:
    run = started(4)
    run.take({"event": "signalled", "at": 2.5, "signal": 15, "ranks": None})
    for rank in range(4):
        ended(run, rank, 1)
    assert not run.first_to_fail, "the user ended all of them"
    run = started(4)
    ended(run, 0, signal=15, by_yod=True)  # at the time limit
    ended(run, 1, 1)  # it handles SIGTERM
    assert not run.first_to_fail


def test_the_ranks_of_a_node_that_was_lost_first_and_the_rank_that_called_abort_are_the_first() -> None:
    run = started(4)
    run.take({"event": "lost", "at": 3.0, "nodes": ["n1"], "ranks": [2, 3], "reason": "n1: the connection ended"})
    ended(run, 0, 1)
    assert run.first_to_fail == {2, 3}
    assert [row.ranks for row in run.completion()] == ["2-3", "0"]
    run = started(4)
    run.take({"event": "aborted", "at": 3.0, "rank": 1, "node": "n0", "text": "rank 1 called MPI_Abort(7)"})
    for rank in range(4):
        ended(run, rank, signal=9, by_yod=True)
    rows = [(row.ranks, row.first) for row in run.completion()]
    assert rows == [("1", {1}), ("0,2-3", frozenset())]


def test_ranks_that_exit_badly_are_noted_while_others_run() -> None:
    run = started()
    ended(run, 1, signal=11)
    text = "rank 1 on n0: SIGSEGV \x1b[2J, 0.5 s"
    ends = [{"ranks": [1], "nodes": ["n0"], "status": 0, "signal": 11, "core": False, "text": text}]
    event = {"launcher": 7, "ends": ends, "running": 3, "size": 4, "still": "0,2-3", "stop": "yod -signal TERM 7"}
    run.take({"event": "bad_exit", "at": 2.0, **event})
    note = "rank 1 on n0: SIGSEGV ␛[2J, 0.5 s; rank 0,2-3 still run (yod -signal TERM 7 ends them)"
    assert "; ".join(line.text for line in run.output.lines(0)) == note == run.last_bad_exit, "a line each"
    assert (run.phase, run.bad_exits, run.ended_badly) == (Phase.RUNNING, 1, 1)
    run.take({"event": "bad_exit", "at": 2.0})
    assert "could not be read" in list(run.output.lines(0))[-1].text and run.bad_exits == 1
    run.restart()
    assert (run.bad_exits, run.last_bad_exit) == (0, "")


def test_a_rank_that_has_ended_is_not_lost_later() -> None:
    run = started()
    ended(run, 2)
    run.take({"event": "lost", "at": 3.0, "nodes": ["n1"], "ranks": [2, 3], "reason": "gone"})
    assert run.states[2] == RankState.EXITED and run.states[3] == RankState.LOST


def test_exits_that_come_before_started_stay_exits() -> None:
    run = Run(7)
    ended(run, 1)
    run.take({"event": "started", "at": 2.0, "ranks": [[1, "n0"], [2, "n0"]]})
    assert run.states[1] == RankState.EXITED and run.states[0] == RankState.RUNNING


def test_the_connection_ends_before_the_launch_does() -> None:
    run = started()
    run.output.feed(0, STDOUT, b"half a li")
    run.disconnected()
    assert run.phase is Phase.GONE and not run.live
    assert run.output.line(0).text == "half a li"
    run.restart()
    assert run.phase is Phase.ATTACHING and len(run.output) == 0


def test_the_connection_ends_after_the_launch_did() -> None:
    run = started()
    run.take({"event": "end", "at": 4.0, "exit_status": 0, "elapsed_s": 3.0})
    run.disconnected()
    assert run.phase is Phase.ENDED


@pytest.mark.parametrize(
    "event",
    [
        {"event": "exit"},
        {"event": "exit", "rank": "x", "status": 0, "signal": 0},
        {"event": "started", "at": 1.0, "ranks": [[1]]},
        {"event": "started", "at": "?", "ranks": 7},
        {"event": "end"},
        {"event": "lost", "ranks": [None]},
        {"event": ["exit"]},
        {"event": "of next year"},
        {},
    ],
)
def test_an_event_that_makes_no_sense_changes_no_state(event: dict[str, object]) -> None:
    run = started()
    run.take(event)
    assert run.phase is Phase.RUNNING
    assert run.counts() == {RankState.RUNNING: 4}


def test_a_rank_number_out_of_all_reason_takes_no_memory() -> None:
    run = started()
    ended(run, 1 << 40)
    assert len(run.states) <= 1 << 20


def test_lines_are_cut_at_their_ends_whatever_the_pieces() -> None:
    output = Output()
    for piece in (b"on", b"e\ntwo\nth", b"ree"):
        output.feed(3, STDOUT, piece)
    output.feed(3, STDERR, b"oops\n")
    assert [line.text for line in output.lines(0)] == ["one", "two", "oops"]
    output.finish()
    assert output.line(3) == Line(3, STDOUT, "three")


@given(st.text(alphabet=st.characters(exclude_categories=["C"]), max_size=60), st.data())
def test_characters_survive_any_cut(text: str, data: st.DataObject) -> None:
    raw = text.encode() + b"\n"
    output = Output()
    start = 0
    while start < len(raw):
        end = data.draw(st.integers(start + 1, len(raw)))
        output.feed(0, STDOUT, raw[start:end])
        start = end
    assert [line.text for line in output.lines(0)] == [text]


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_nothing_a_terminal_would_act_on_comes_out(pieces: list[bytes]) -> None:
    output = Output()
    for piece in pieces:
        output.feed(0, STDOUT, piece)
    output.finish()
    for line in output.lines(0):
        assert not any(ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for character in line.text)


def test_colours_are_left_out_and_a_progress_line_counts_as_last_drawn() -> None:
    output = Output()
    output.feed(0, STDOUT, b"\x1b[1;31mred\x1b[0m\n 10%\r 20%\r100%\r\na\tb\n")
    assert [line.text for line in output.lines(0)] == ["red", "100%", "a       b"]


def test_escapes_put_together_by_leaving_colours_out_are_made_visible() -> None:
    output = Output()
    output.feed(0, STDOUT, b"\x1b\x1b[m]52;c;AAAA\x07\n")
    assert output.line(0).text == "␛]52;c;AAAA␇"


def test_memory_is_bounded_by_lines_and_by_characters() -> None:
    output = Output(max_lines=1000, max_characters=50_000)
    for number in range(20_000):
        output.feed(number % 4, STDOUT, b"line %d\n" % number)
    assert len(output) <= 1000 + 2048 + 1
    assert output.end == 20_000
    assert output.line(19_999).text == "line 19999"
    with pytest.raises(IndexError):
        output.line(0)
    output.feed(0, STDOUT, b"x" * 400_000)
    assert sum(len(line.text) for line in output.lines(0)) <= 50_000
    assert all(len(line.text) <= MAX_LINE for line in output.lines(0))


def test_a_selection_follows_what_comes() -> None:
    output = Output(max_lines=100)
    chosen = Selection(output, lambda line: line.rank == 1)
    for number in range(10_000):
        output.feed(number % 4, STDOUT, b"%d\n" % number)
        if number % 97 == 0:
            chosen.refresh()
    chosen.refresh()
    assert [chosen.line(at).text for at in range(len(chosen))] == [str(number) for number in range(1, 10_000, 4)]
    assert not chosen.dropped and output.first > 8_000, "what passes stays when the output drops it"


def test_a_selection_keeps_the_newest_lines_alone() -> None:
    output = Output()
    chosen = Selection(output, lambda line: True)
    for number in range(60):
        output.feed(0, STDOUT, b"".join(b"%d %d\n" % (number, line) for line in range(1_000)))
        while not chosen.scan.caught_up:
            chosen.refresh()
    assert chosen.dropped and MAX_LINES <= len(chosen) < MAX_LINES * 1.2
    assert chosen.number(len(chosen) - 1) == 59_999 and chosen.line(len(chosen) - 1).text == "59 999"


def test_notes_stand_between_the_lines() -> None:
    run = started()
    run.take({"event": "note", "at": 1.0, "node": "n1", "text": "out of \x1b[31m memory"})
    run.take({"event": "signalled", "at": 1.0, "signal": 10, "ranks": [3, 1, 2]})
    lines = run.output.lines(0)
    assert [line.stream for line in lines] == [NOTE, NOTE]
    assert [line.text for line in lines] == ["n1: out of ␛[31m memory", "SIGUSR1 sent to ranks 1-3"]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("./solve 1e-6", "solve"),
        ("python3 /home/ada/heat.py --grid 5", "heat.py"),
        ("python3 -m heat", "python3"),
        ("/usr/bin/hostname", "hostname"),
        ("shuffle cards", "shuffle"),
        ("", ""),
    ],
)
def test_a_launch_is_named_by_its_program_or_script(command: str, name: str) -> None:
    assert Run(1, command).name == name

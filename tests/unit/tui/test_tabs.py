"""Tabs of launches and jobs: their order, and which close by themselves."""

from console.tui.model.tabs import KEPT_S, Finished, Tab, in_order

RUNNING, DONE, FAILED = Tab("run-1", True, False), Tab("run-2", False, True), Tab("run-3", False, False)


def test_running_tabs_stand_first_and_the_rest_as_they_were_opened() -> None:
    later = Tab("run-4", True, False)
    assert in_order([FAILED, RUNNING, DONE, later]) == [RUNNING, later, FAILED, DONE]


def test_what_succeeded_closes_after_a_while_and_failures_never() -> None:
    finished, tabs = Finished(), [RUNNING, DONE, FAILED]
    assert not finished.due(tabs, (), 100.0)
    assert not finished.due(tabs, (), 100.0 + KEPT_S - 1)
    assert finished.due(tabs, (), 100.0 + KEPT_S) == ["run-2"]
    assert finished.due(tabs, (), 1e9) == ["run-2"]


def test_the_time_begins_again_when_a_tab_was_in_front() -> None:
    finished = Finished()
    assert not finished.due([DONE], (), 0.0)
    assert not finished.due([DONE], ("run-2",), KEPT_S)
    assert not finished.due([DONE], (), KEPT_S + 15), "it was looked at"
    assert finished.due([DONE], (), 2 * KEPT_S + 15) == ["run-2"]

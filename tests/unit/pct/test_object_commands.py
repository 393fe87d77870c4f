"""Commands left beside a copy for the owner that feeds it: each is taken once, and answered to the one that asked."""

import threading
from pathlib import Path
from typing import Any

import pytest

from agents.objects import commands


def test_each_is_taken_once_and_its_answer_comes_back(tmp_path: Path) -> None:
    copy = str(tmp_path / "x.job.standby")
    assert commands.take(copy) == []
    numbers = [commands.leave(copy, op, {"reason": op}) for op in ("hold", "cancel")]
    taken = commands.take(copy)
    assert {one["number"]: one["command"] for one in taken} == dict(zip(numbers, ("hold", "cancel"), strict=True))
    assert commands.take(copy) == []
    answers: dict[str, Any] = {}
    waits = [
        threading.Thread(target=lambda number=number: answers.update({number: commands.await_answer(copy, number)}))
        for number in numbers
    ]
    for thread in waits:
        thread.start()
    for one in taken:
        commands.answer(copy, one["number"], {"done": one["command"]})
    for thread in waits:
        thread.join()
    assert answers == {one["number"]: {"done": one["command"]} for one in taken}
    commands.answer(copy, "../../elsewhere", {})
    commands.forget(copy)
    commands.answer(copy, numbers[0], {})
    assert list(tmp_path.iterdir()) == [], "nothing is left, and nothing was written elsewhere"


def test_one_that_nobody_answers_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = str(tmp_path / "x.job.standby")
    monkeypatch.setattr(commands, "ANSWER_S", 0.1)
    number = commands.leave(copy, "hold", {})
    assert commands.await_answer(copy, number) is None
    assert commands.take(copy) == [], "an owner that comes later does not carry it out"

"""Commands that the console runs: their answers, and what becomes of them when the console ends."""

import asyncio
import gc
import os
import sys
from pathlib import Path

import pytest

from console.tui.actions.child import answered
from tests.support.waiting import wait_until


def test_what_a_command_answers_and_says() -> None:
    answer = asyncio.run(answered(("sh", "-c", "echo refused >&2; exit 3"), 60.0))
    assert (answer.status, answer.said) == (3, "refused\n")


def test_a_command_without_an_end_is_killed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    with pytest.raises(TimeoutError):
        asyncio.run(answered(("cat", str(tmp_path / "gate")), 0.1))


def test_a_command_has_ended_and_another_process_holds_its_stream(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    try:
        with pytest.raises(TimeoutError):
            asyncio.run(answered(("sh", "-c", f"cat < {gate} & exit 0"), 0.5))
    finally:
        gate.write_text("")  # the end of cat


def test_a_command_goes_on_without_a_word_when_the_console_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gate, ran = tmp_path / "begun", tmp_path / "gate", tmp_path / "ran"
    os.mkfifo(gate)
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)

    async def main() -> None:
        command = f"touch {begun}; read line < {gate}; touch {ran}"
        running = asyncio.ensure_future(answered(("sh", "-c", command), 60.0))
        while not begun.exists():
            await asyncio.sleep(0.01)
        assert not running.done()

    asyncio.run(main())
    gc.collect()
    gate.write_text("\n")
    wait_until(ran.exists, "the command has gone on")
    gc.collect()
    assert not unraisable

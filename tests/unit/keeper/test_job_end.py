"""What a keeper in a batch system's job does when a process of the job was killed, or a signal arrives."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.keeper.job_end import KNOWN_S, JobEnd
from agents.keeper.manager_questions import AGAIN_S, ReachQuestion
from agents.link.journal import Journal
from agents.link.loop import Loop
from agents.linux import ending
from agents.linux.batch_signals import Reach
from tests.support.waiting import PATIENCE_S

SQUEUE = """#!/bin/sh
echo >>{0}/asked
test -e {0}/state || {{ echo 'squeue: error: Unable to contact slurm controller' >&2; exit 1; }}
cat {0}/state
"""
SCONTROL = """#!/bin/sh
test -e {0}/config || exit 1
cat {0}/config
"""


class Keeper:
    """A loop with a JobEnd, and a Slurm whose answers are files of ``place``."""

    def __init__(self, place: Path, manager: str) -> None:
        self.place, self.loop = place, Loop()
        self.loop.on_signal(signal.SIGCHLD, self._reap)
        self.log = Journal(str(place / "log"), "keeper")
        self.ends: list[str] = []
        self.job_end = JobEnd(self.loop, self.log, manager, [], lambda: True, self.ends.append)
        self.replies: list[float | None] = []
        self._late = False
        (place / "config").write_text("KillWait = 30 sec\nProctrackType = proctrack/linuxproc\n")

    def _reap(self) -> None:
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    return
            except ChildProcessError:
                return

    def ask(self) -> None:
        self.job_end.asked(self.replies.append)

    def asked(self) -> int:
        path = self.place / "asked"
        return len(path.read_text()) if path.exists() else 0

    def run_until(self, done: Callable[[], object]) -> None:
        late: list[bool] = []
        timer = self.loop.after(PATIENCE_S, lambda: late.append(True))
        while not done() and not late:
            self.loop.run_once(0.02)
        timer.cancel()
        assert not late, "in vain"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keeper]:
    for name, text in (("squeue", SQUEUE), ("scontrol", SCONTROL)):
        (tmp_path / name).write_text(text.format(tmp_path))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    keeper = Keeper(tmp_path, "slurm")
    yield keeper
    keeper.loop.close()


def test_many_who_ask_share_one_question_and_are_told_that_the_job_goes_on(slurm: Keeper) -> None:
    (slurm.place / "state").write_text("R\n")
    for _ in range(20):
        slurm.ask()
    assert not slurm.asked() and not slurm.replies, "nothing waits for squeue"
    slurm.run_until(lambda: slurm.replies)
    assert slurm.replies == [None] * 20 and not slurm.ends
    assert slurm.asked() == 1 + KNOWN_S / AGAIN_S, "the second time when Slurm must know it"


def test_ranks_keep_their_time_while_slurm_does_not_answer(slurm: Keeper) -> None:
    slurm.ask()
    slurm.run_until(lambda: slurm.asked() >= 1 + KNOWN_S / AGAIN_S + 1)
    assert not slurm.replies
    (slurm.place / "state").write_text("CG\n")
    slurm.run_until(lambda: slurm.replies)
    assert slurm.replies[0] and 20 < slurm.replies[0] < 30 and not slurm.ends
    slurm.ask()
    assert len(slurm.replies) == 2, "it is known now"


def test_a_signal_of_a_user_ends_nothing(slurm: Keeper) -> None:
    (slurm.place / "state").write_text("R\n")
    slurm.job_end.signalled()
    slurm.run_until(lambda: slurm.asked() and not slurm.job_end._asking)
    assert not slurm.ends and not slurm.job_end.killed_at


@pytest.mark.parametrize("manager", ["pbs", "lsf", "flux", "grid_engine", "nobody_s"])
def test_a_killed_yod_ends_no_mesh_of_a_manager_that_cannot_say_whether_the_job_ends(
    tmp_path: Path, manager: str
) -> None:
    keeper = Keeper(tmp_path, manager)
    try:
        keeper.ask()
        assert keeper.replies == [None] and not keeper.job_end.killed_at
        keeper.job_end.signalled()
        keeper.ask()
        keeper.run_until(lambda: len(keeper.replies) == 2)
        assert keeper.replies[1] and keeper.job_end.killed_at, "after its signal the job ends"
    finally:
        keeper.loop.close()


def test_the_reach_of_signals_is_asked_again_and_kept(slurm: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.keeper.manager_questions.REACH_S", 0.05)
    state, config = slurm.place / "STATE", (slurm.place / "config").read_text()
    state.mkdir()
    (slurm.place / "config").unlink()
    monkeypatch.setattr(ending, "_state", str(state))
    ReachQuestion(slurm.loop, slurm.log, "slurm", str(state))
    slurm.run_until(lambda: "scontrol show config ended" in (slurm.place / "log").read_text())
    assert not ending.reaches_ranks()
    (slurm.place / "config").write_text(config)
    slurm.run_until(lambda: ending.learned_reach(str(state)))
    assert ending.learned_reach(str(state)) == Reach.ALL and ending.reaches_ranks()

"""How far a change of keys goes where somebody was revoked who knows some of them; with real keys in a directory."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agents.wire import keys
from console.deploy.trust.authority import Authority, Stage, authority

MESH = "fa12fa12"


class Away(Exception):
    pass


def accepted(here: Path) -> set[bytes]:
    return set(keys.read(str(here / "trust" / "master.key")))


def stops_at(stage: Stage) -> Callable[[Authority], None]:
    def tell(now: Authority) -> None:
        if now.stage is stage:
            raise Away

    return tell


@pytest.mark.parametrize("stage", Stage)
def test_all_that_a_revoked_one_may_know_is_replaced(tmp_path: Path, stage: Stage) -> None:
    """It was granted what a change under way was to bring; that change is finished by another command, and goes on."""
    if stage is not Stage.SETTLED:
        with pytest.raises(Away):
            authority(str(tmp_path), MESH).rotate(stops_at(stage))
    doubtful = authority(str(tmp_path), MESH)
    knew = accepted(tmp_path)
    doubtful.distrust("login2")
    for _ in range(2):  # nodes do not answer, and the command is said again
        with pytest.raises(Away):
            authority(str(tmp_path), MESH).rotate(stops_at(Stage.TURNED))
        assert authority(str(tmp_path), MESH).revoked.keys() == {"login2"}
    stages: list[Stage] = []
    now = authority(str(tmp_path), MESH)
    now.rotate(lambda one: stages.append(one.stage))
    assert stages[-1] is now.stage is Stage.SETTLED and not now.revoked
    assert len(accepted(tmp_path)) == 1 and not knew & accepted(tmp_path)


def test_one_that_was_none_changes_nothing(tmp_path: Path) -> None:
    before = authority(str(tmp_path), MESH)
    before.distrust("login2")
    before.absolve("login2")
    stages: list[Stage] = []
    after = authority(str(tmp_path), MESH)
    assert not after.revoked and after.fingerprints == before.fingerprints
    after.rotate(lambda one: stages.append(one.stage))
    assert stages == [Stage.INTRODUCED, Stage.TURNED, Stage.SETTLED]

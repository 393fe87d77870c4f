"""Rows of the database without a CPA that could tell more of them."""

import os
from pathlib import Path

import pytest

from agents.link.sockets import listen
from console.own_texts import OwnTexts
from console.settings import load
from db.views.rows import LauncherRow

ROW = LauncherRow(**dict.fromkeys(LauncherRow._fields))._replace(id=7, uid=os.geteuid(), command="sh", reason="")


def test_rows_stay_as_they_are_where_no_cpa_answers(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "REDMESH_SYSTEM": str(tmp_path), "REDMESH_SYSTEM_RUN": str(tmp_path)}
    settings = load(environ=environ)
    os.mkdir(settings.run_dir)
    assert OwnTexts(settings).put_into([ROW]) == [ROW], "no CPA is there"
    path = f"{settings.run_dir}/cpa-0.sock"
    with listen(path) as silent:
        assert OwnTexts(settings).put_into(iter([ROW, ROW._replace(id=8)])) == [ROW, ROW._replace(id=8)], "no reply"
        silent.accept()[0].close()
    assert os.path.exists(path) and OwnTexts(settings).put_into([ROW]) == [ROW], "nobody listens"


def test_a_personal_mesh_asks_nobody(tmp_path: Path) -> None:
    settings = load(environ={"HOME": str(tmp_path), "XDG_RUNTIME_DIR": ""})
    os.makedirs(f"{tmp_path}/run")
    os.makedirs(settings.state_dir)
    os.symlink(f"{tmp_path}/run", f"{settings.state_dir}/run")
    with listen(f"{settings.run_dir}/cpa-0.sock") as cpa:
        assert OwnTexts(settings).put_into([ROW]) == [ROW]
        cpa.settimeout(0)
        with pytest.raises(BlockingIOError):
            cpa.accept()

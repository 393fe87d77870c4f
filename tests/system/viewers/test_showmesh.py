"""showmesh and pingd over a real database, with no daemon anywhere."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.cli import showmesh
from console.cli.pingd import command
from db.machine.nodes import shut_down
from db.machine.nodes_bulk import drain
from tests.support.fixed_database import FixedDatabase, Row
from tests.support.waiting import PATIENCE_S, wait_until

BIN = Path(sys.executable).parent
Captured = pytest.CaptureFixture[str]
ESCAPE = re.compile("\x1b\\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FixedDatabase]:
    """Four nodes of four processors; what the commands open."""
    made = FixedDatabase(tmp_path, 4, 4)
    monkeypatch.setenv("REDMESH_DATABASE", made.url)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield made
    made.close()


def set_ranks(database: FixedDatabase, launcher: int, ranks: list[int]) -> None:
    database.store.run(
        lambda t: t.change(
            f"UPDATE launcher SET ranks = ?, changed = {t.stamp} WHERE id = ?", (json.dumps(ranks), launcher)
        )
    )


def set_use(database: FixedDatabase) -> None:
    """A bit of everything."""
    database.put(Row((0, 1, 2, 3, 4), "./solve --deep"), Row((5, 6), "hostname", "grace", "pending"))
    database.reserve(7, "lin")
    database.suspect("n2")
    database.down("n3")


def printed(capsys: Captured) -> list[str]:
    """The lines on stdout, with the seconds that the test itself took set to nothing."""
    return re.sub("52:30:0[0-9]", "52:30:00", capsys.readouterr().out).splitlines()


def test_the_map_the_legend_and_the_launchers(database: FixedDatabase, capsys: Captured) -> None:
    set_use(database)
    assert showmesh.main([]) == 0
    out = printed(capsys)
    assert out[0] == "n0 aaaa  n1 a++=  n2 ----  n3 ####"
    assert out[2] == ". free 0   + pending 2   a busy 5   - suspect 4   # down 4   = reserved 1"
    assert out[4].split() == ["launcher", "user", "size", "elapsed", "from", "command"]
    assert out[5].split() == ["a", "1", "ada", "5", "52:30:00", "login1/4711", "./solve", "--deep"]
    assert out[6].split() == ["b", "2", "grace", "2", "pending", "login1/4711", "hostname"]
    assert "n3 is down: its PCT is gone" in out and "n2 is suspect: no heartbeat for 5 s" in out


def test_json_says_the_same(database: FixedDatabase, capsys: Captured) -> None:
    set_use(database)
    assert showmesh.main(["--json"]) == 0
    got = json.loads(capsys.readouterr().out)
    assert got["states"] == {"free": 0, "pending": 2, "busy": 5, "stale": 4, "down": 4, "drained": 0, "reserved": 1}
    assert [node["name"] for node in got["nodes"]] == ["n0", "n1", "n2", "n3"]
    cell = got["nodes"][1]["processors"][3]
    assert (cell["id"], cell["state"], cell["reserved_for"]) == (7, "reserved", "lin")
    assert [(one["id"], one["letter"], one["state"]) for one in got["launchers"]] == [
        (1, "a", "busy"),
        (2, "b", "pending"),
    ]
    assert "cookie" not in json.dumps(got)


def test_a_mesh_that_was_taken_down_is_told_from_one_whose_nodes_are_down(
    database: FixedDatabase, capsys: Captured
) -> None:
    for node in ("n0", "n1", "n2"):
        database.down(node)
    drain(database.store, ["n3"], "disk", "root")
    assert showmesh.main([]) == 0
    out, error = capsys.readouterr()
    assert "# down 12   ! drained 4" in out and out.startswith("n0 ####") and "n3 !!!!" in out and not error
    [(boot_id,)] = database.store.read("SELECT boot_id FROM mesh")
    shut_down(database.store, boot_id, "mesh down by ada")
    for words in ([], ["--json"]):
        assert showmesh.main(words) == 1
        out, error = capsys.readouterr()
        assert (
            error.startswith("showmesh: the mesh is not up: mesh down by ada (mesh up starts it) [RM-") and "n3" in out
        )


def test_processors_kept_for_a_batch_job_are_marked(database: FixedDatabase, capsys: Captured) -> None:
    database.store.run(lambda t: t.change(f"UPDATE processor SET `partition` = 9, changed = {t.stamp} WHERE id < 3"))
    assert showmesh.main([]) == 0
    out = capsys.readouterr().out
    assert out.startswith("n0 :::.  n1 ....") and ". free 16 " in out and "3 of the free are kept" in out
    assert command.main(["-l", "0"]) == 0
    assert "in partition 9" in capsys.readouterr().out


def test_what_a_program_calls_itself_cannot_reach_the_terminal(database: FixedDatabase, capsys: Captured) -> None:
    database.put(Row((0,), "evil\x1b]52;c;aGk=\x07\x9b2J\u202e", "mal\x1b[2Jlory"))
    for main in (showmesh.main, command.main):
        assert main([]) == 0
        out = capsys.readouterr().out
        assert not set(out) & set("\x1b\x07\x9b\u202e") and "mal" in out


def test_pingd_in_the_form_of_the_first(database: FixedDatabase, capsys: Captured) -> None:
    [launcher] = database.put(Row((8, 9, 10)))
    set_ranks(database, launcher, [10, 9, 8])
    database.down("n3")
    assert command.main([]) == 0
    out = printed(capsys)
    assert out[7] == "    7 ( n1 )"
    assert out[8] == "    8 ( n2 )  1  login1/4711  2 ada  52:30:00"
    assert out[10] == "   10 ( n2 )  1  login1/4711  0 ada  52:30:00"
    assert out[12] == "   12 ( n3 )  down"
    assert out[17] == "Total: 16   free: 9   pending: 0   busy: 3   suspect: 0   down: 4   reserved: 0"
    assert out[18] == "Launchers: 1   partitions: 1"


def test_pingd_shows_every_processor_of_a_rank_and_every_rank_of_a_processor(
    database: FixedDatabase, capsys: Captured
) -> None:
    wide, many = database.put(Row((0, 1, 2, 3)), Row((4, 5)))
    set_ranks(database, wide, [0, 2])
    set_ranks(database, many, [4, 5, 4, 5])
    assert command.main(["--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["processors"]
    assert [row["ranks"] for row in rows[:6]] == [[0], [0], [1], [1], [0, 2], [1, 3]]
    assert command.main(["-list", "4"]) == 0
    assert " 0+1 ada " in capsys.readouterr().out


def test_pingd_verbose_has_columns_of_state(database: FixedDatabase, capsys: Captured) -> None:
    set_use(database)
    assert command.main(["-v", "-l", "7,n3"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split()[4:] == ["reserved", "reserved", "interactive", "for", "lin", "partition", "-", "node", "up"]
    assert [line.split()[-1] for line in out[1:5]] == ["down"] * 4
    assert out[6].startswith("Total: 5   free: 0") and "down: 4   reserved: 1" in out[6]


@pytest.mark.parametrize("wanted", ["99", "n9", "0..99"])
def test_pingd_names_what_is_not_there(database: FixedDatabase, capsys: Captured, wanted: str) -> None:
    assert command.main(["-list", wanted]) == 0, "a listing, if a short one"
    out, err = capsys.readouterr()
    assert "Total: " in out and err.startswith("pingd: this mesh has no") and err.count("\n") == 1


def test_without_a_database_one_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("REDMESH_DATABASE", f"sqlite://{tmp_path}/none.db")
    assert showmesh.main([]) == 125
    out, err = capsys.readouterr()
    assert out == "" and "mesh up" in err and err.count("\n") == 1


def test_a_newer_database_is_refused(database: FixedDatabase, capsys: Captured) -> None:
    database.store.run(lambda t: t.change("UPDATE mesh SET schema_version = 99 WHERE id = 1"))
    assert command.main([]) == 125
    assert "schema 99, newer" in capsys.readouterr().err


def test_watching_without_a_terminal_prints_once_for_every_change(database: FixedDatabase, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with out.open("wb") as file:
        process = subprocess.Popen([BIN / "showmesh", "--watch", "--every", "0.1", "--json"], stdout=file)
    try:
        wait_until(lambda: out.read_bytes().count(b"\n") == 1, "the first line")
        database.put(Row((0,)))
        wait_until(lambda: out.read_bytes().count(b"\n") == 2, "a line for the change")
        assert [len(json.loads(line)["launchers"]) for line in out.read_text().splitlines()] == [0, 1]
    finally:
        process.send_signal(2)
        assert process.wait(PATIENCE_S) == 0


def test_watching_on_a_terminal_redraws_in_place(database: FixedDatabase) -> None:
    leader, follower = pty.openpty()
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "72"}
    process = subprocess.Popen([BIN / "showmesh", "-w", "-e", "0.1"], stdout=follower, stdin=follower, env=environ)
    os.close(follower)
    seen = b""

    def read_until(text: bytes) -> None:
        nonlocal seen
        deadline = time.monotonic() + PATIENCE_S
        while text not in seen:
            assert select.select([leader], [], [], deadline - time.monotonic())[0], seen
            seen += os.read(leader, 65536)

    try:
        read_until(b"n3")
        database.put(Row((0, 1)))
        read_until(b"hostname")
        screens = seen.split(b"\x1b[H")
        assert len(screens) > 2 and seen.count(b"\x1b[2J") == 1, "the screen is wiped once, then overwritten"
        lines = [ESCAPE.sub("", line) for line in screens[-1].decode().split("\r\n")]
        assert all(len(line) <= 72 for line in lines), lines
    finally:
        process.send_signal(2)
        assert process.wait(PATIENCE_S) == 0
        os.close(leader)


def test_a_reader_that_goes_is_no_fault(database: FixedDatabase) -> None:
    got = subprocess.run(f"{BIN}/pingd | head -1", shell=True, capture_output=True, text=True)
    assert got.stdout == "    0 ( n0 )\n" and got.stderr == ""


def test_neither_loads_what_it_does_not_need(database: FixedDatabase) -> None:
    code = (
        "import sys; from console.cli.pingd import command as pingd; from console.cli import showmesh\n"
        "showmesh.main(['--json']); pingd.main([]);"
        "print(sorted({m.partition('.')[0] for m in sys.modules}), file=sys.stderr)"
    )
    got = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    for heavy in ("peewee", "pymysql", "rich", "textual", "asyncio", "argparse", "subprocess", "logging", "agents"):
        assert f"'{heavy}'" not in got.stderr

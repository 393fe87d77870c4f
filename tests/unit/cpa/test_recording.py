"""The change stream in a file, and what it comes to at any instant."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console import recording_format
from console.recording_format import Fold, Recording, RecordingError
from console.tui.model.machine import Machine
from console.tui.replay_app import instant
from console.tui.sources.replay import Player
from db.views.rows import EventRow, LauncherRow, MeshRow, NodeRow, ProcessorRow, Reading
from tests.support.chance import examples

MESH = MeshRow("b007", "main", None, 1, 0, 0, 0.0)


def node(id: int, state: str = "up") -> object:
    return NodeRow(id, f"n{id}", "compute", "/run/x", state, "", "", "b007", 1, "0.1.0", 1.0, 1, None, "", 1)


def processor(id: int, launcher: int | None = None) -> object:
    return ProcessorRow(id, 1, id, "interactive", None, launcher, launcher, 1)


def launcher(id: int, ended_at: float | None = None) -> object:
    return LauncherRow(id, id, 0, 1, 1, "ada", 1000, f"./job{id}", 1, "0", None, "n1", "busy", 1.0, 2.0, 3.0, ended_at,
                       0 if ended_at else None, False, "", "{}", 1)  # fmt: skip


def reading(counter: int, now: float, *, whole: bool = False, **rows: list[object]) -> object:
    tables = (rows.get(name, []) for name in ("nodes", "processors", "launchers", "partitions"))
    return Reading(whole, counter, now, MESH, *tables)


def first(now: float = 100.0) -> object:
    return reading(1, now, whole=True, nodes=[node(1)], processors=[processor(i) for i in range(4)])


def written(folder: Path, *lines: str) -> str:
    path = folder / "tape.jsonl"
    path.write_text("".join((recording_format.head(), *lines)))
    return str(path)


def job(folder: Path) -> str:
    event = EventRow(3, 110.0, "launcher_started", None, 7, 7, "")
    return written(
        folder,
        recording_format.write(first(), []),
        recording_format.write(reading(2, 110.0, processors=[processor(0, 7)], launchers=[launcher(7)]), [event]),
        recording_format.write_gap(115.0, "the database is away"),
        recording_format.write(reading(3, 120.0, processors=[processor(0)], launchers=[launcher(7, 120.0)]), []),
    )


async def test_it_is_shown_as_it_was(tmp_path: Path) -> None:
    player, machine = Player(job(tmp_path)), Machine()
    player.pause()
    machine.apply(await player.read())
    for at, live in ((100.0, []), (109.9, []), (110.0, [7]), (119.0, [7]), (105.0, []), (120.0, []), (1e9, [])):
        player.seek(at)
        machine.apply(await player.read())
        assert sorted(machine.launchers) == live, at
        assert [row.launcher for row in machine.processors] == [7 if live else None, None, None, None]
    assert [row.id for row in await player.history(10)] == [7]
    player.close()


async def test_backwards_from_the_end(tmp_path: Path) -> None:
    player = Player(job(tmp_path))
    player.pause()
    machine = Machine()
    machine.apply(await player.read())
    player.seek(1e9)
    machine.apply(await player.read())
    assert not machine.launchers
    player.seek(111.0)
    machine.apply(await player.read())
    assert sorted(machine.launchers) == [7] and machine.events[-1].kind == "launcher_started"
    assert await player.history(10) == []
    player.close()


def test_a_file_that_was_cut_off_is_shown_up_to_there(tmp_path: Path) -> None:
    path = Path(job(tmp_path))
    path.write_bytes(path.read_bytes()[:-10])
    assert len(Recording(str(path))) == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not a recording"),
        ("hello\n", "not a recording"),
        ("[1]\n", "not a recording"),
        ("[" * 5000 + "\n", "not a recording"),
        ('{"format": "redmesh recording", "version": 99}\n', "version 99"),
        ('{"format": "redmesh recording", "version": 1}\n', "name its columns"),
    ],
)
def test_what_is_no_recording_is_told(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "tape"
    path.write_text(text)
    with pytest.raises(RecordingError, match=told):
        Recording(str(path))


def test_one_that_begins_in_the_middle_is_told(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="whole picture"):
        Recording(written(tmp_path, recording_format.write(reading(2, 1.0), [])))
    with pytest.raises(RecordingError, match="No such file"):
        Recording(str(tmp_path / "none"))


def test_columns_of_another_version_are_found_by_name(tmp_path: Path) -> None:
    head, line = recording_format.head(), recording_format.write(first(), [])
    columns, record = json.loads(head), json.loads(line)
    names = columns["columns"]["nodes"]
    names.insert(0, "of_tomorrow")
    record["nodes"] = [["?", *row] for row in record["nodes"]]
    at = names.index("agent")
    del names[at]
    for row in record["nodes"]:
        del row[at]
    path = tmp_path / "tape"
    path.write_text(json.dumps(columns) + "\n" + json.dumps(record) + "\n")
    [found] = Recording(str(path)).record(0).reading.nodes
    assert found.name == "n1" and found.state == "up" and found.agent is None


def test_instants_as_people_write_them(tmp_path: Path) -> None:
    player = Player(job(tmp_path))
    player.pause()
    assert instant("50%", player) == 110.0
    assert instant("+5", player) == player.at + 5
    for text in ("", "soon", "12:xx", "1e999%", "%"):
        if text != "1e999%":
            with pytest.raises(RecordingError):
                instant(text, player)
    player.close()


changes = st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(1, 5))), max_size=4)


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.tuples(changes, st.booleans()), min_size=1, max_size=12), st.data())
async def test_any_way_through_it_comes_to_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[list[tuple[int, int | None]], bool]],
    data: st.DataObject,
) -> None:
    """Wherever one jumps, what is shown is what a reader of the database saw then."""
    now, state = 100.0, dict.fromkeys(range(4))
    lines, seen = [recording_format.write(first(now), [])], {now: dict(state)}
    for counter, (changed, whole) in enumerate(steps, 2):
        now += 10.0
        state.update(changed)
        rows = [processor(id, state[id]) for id in (range(4) if whole else sorted({id for id, _ in changed}))]
        nodes = [node(1)] if whole else []
        lines.append(recording_format.write(reading(counter, now, whole=whole, nodes=nodes, processors=rows), []))
        seen[now] = dict(state)
    player = Player(written(tmp_path_factory.mktemp("tape"), *lines))
    player.pause()
    machine = Machine()
    machine.apply(await player.read())
    for at in data.draw(st.lists(st.sampled_from(sorted(seen)), min_size=1, max_size=6)):
        player.seek(at + 1.0)
        machine.apply(await player.read())
        assert {row.id: row.launcher for row in machine.processors} == seen[at]
    player.close()


def test_a_fold_forgets_what_came_before_a_whole_picture() -> None:
    fold = Fold()
    fold.take(recording_format.Record(1.0, reading(1, 1.0, whole=True, nodes=[node(1)], processors=[processor(9)])))
    fold.take(recording_format.Record(2.0, first(2.0)))
    found = fold.result(3.0)
    assert found is not None and [row.id for row in found[0].processors] == [0, 1, 2, 3] and found[0].now == 3.0

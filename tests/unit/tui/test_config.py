"""The section [console], copying, the session, bars of use."""

import base64
import re
from pathlib import Path

import pytest

from console.settings import ConfigurationError, load
from console.tui.actions.action import command_line
from console.tui.actions.docs_page import BEGIN, updated
from console.tui.actions.registry import ALL, bindings
from console.tui.config import Session, preferences
from console.tui.model import usage as activity
from console.tui.model.usage import Usage
from console.tui.terminal.clipboard import sequence
from console.tui.terminal.themes import NAMES
from tests.support.console import console_on


def test_keys_are_changed_by_the_names_of_actions() -> None:
    found = preferences({"theme": "light", "read_only": True, "keys": {"run.kill": "ctrl+k, X", "run.pause": "?"}})
    assert found.theme == "light" and found.read_only
    assert dict(found.keys) == {"run.kill": "ctrl+k,X", "run.pause": "question_mark"}


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"them": "dark"}, "'theme'"),
        ({"theme": "pink"}, "dark, light, contrast, mono"),
        ({"read_only": "yes"}, "true or false"),
        ({"keys": {"run.kil": "x"}}, "'run.kill'"),
        ({"keys": {"run.kill": "hyper+x"}}, "modifiers"),
        ({"keys": {"run.kill": "ctrl+nokey"}}, "not a key"),
        ({"keys": {"run.kill": "t"}}, "both"),
        ({"keys": {"run.kill": ""}}, "wants keys"),
        ({"keys": "x"}, "table"),
    ],
)
def test_what_can_not_be_says_what_can(section: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        preferences(section)
    assert told in f"{error.value.message} {error.value.hint}"


def test_keys_may_be_swapped() -> None:
    found = preferences({"keys": {"run.kill": "t", "run.term": "K"}})
    assert dict(found.keys) == {"run.kill": "t", "run.term": "K"}


def test_the_section_comes_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mesh.toml"
    path.write_text('[console]\ntheme = "mono"\n[console.keys]\n"app.quit" = "Q"\n')
    settings = load(config=str(path), environ={"XDG_STATE_HOME": str(tmp_path)})
    assert preferences(settings.console).keys == {"app.quit": "Q"}


def test_every_theme_of_the_configuration_is_the_consoles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name in ("dark", "light", "contrast", "mono"):
        app = console_on(f"sqlite:///{tmp_path}/none.db", tmp_path, {"theme": name})
        assert app.theme == f"redmesh-{name}" == app.current_theme.name
    assert set(NAMES) == {"dark", "light", "contrast", "mono"}


def test_every_action_has_one_place_and_every_place_its_bindings() -> None:
    for action in ALL.values():
        ids = {binding.id for binding in bindings(action.place)}  # type: ignore[union-attr]
        assert (action.name in ids) == bool(action.keys), action.name


def test_a_command_line_names_what_it_does_not_know() -> None:
    assert command_line(ALL["run.kill"], {"launcher": "7", "ranks": ""}) == "yod -signal KILL 7"
    assert command_line(ALL["run.kill"], {"launcher": "7", "ranks": " 0-3,8"}) == "yod -signal KILL 7 0-3,8"
    assert command_line(ALL["run.kill"], {}) == "yod -signal KILL LAUNCHER [RANKS]"


@pytest.mark.parametrize(
    ("environ", "begin", "end"),
    [
        ({}, "\x1b]52;c;", "\x07"),
        ({"TMUX": "/tmp/x,1,0"}, "\x1bPtmux;\x1b\x1b]52;c;", "\x07\x1b\\"),
        ({"STY": "1.x"}, "\x1bP\x1b]52;c;", "\x07\x1b\\"),
    ],
)
def test_the_copy_sequence_suits_the_terminal(environ: dict[str, str], begin: str, end: str) -> None:
    told = sequence("é\n", environ)
    assert told.startswith(begin) and told.endswith(end)
    assert base64.b64encode("é\n".encode()).decode() in told


def test_long_text_reaches_screen_in_pieces_it_takes() -> None:
    told = sequence("x" * 5000, {"STY": "1.x"})
    pieces = told.removesuffix("\x1b\\").split("\x1b\\")
    assert max(map(len, pieces)) < 760
    whole = "".join(piece.removeprefix("\x1bP") for piece in pieces)
    assert whole == sequence("x" * 5000, {})


@pytest.mark.parametrize("text", ["", "[]", '{"theme": "pink", "launchers": [1, "x", -3, 99999999999999999999]}', "{"])
def test_a_session_that_makes_no_sense_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "console-session.json").write_text(text)
    session = Session(str(tmp_path))
    assert session.theme() == "" and session.launchers() in ([], [1])


def test_a_session_is_kept_private_and_comes_back(tmp_path: Path) -> None:
    Session(str(tmp_path)).keep("light", [3, 7])
    assert (tmp_path / "console-session.json").stat().st_mode & 0o777 == 0o600
    again = Session(str(tmp_path))
    assert (again.theme(), again.launchers()) == ("light", [3, 7])


def test_bars_of_use() -> None:
    usage = Usage()
    for busy in (0, 4, 8):
        usage.add(busy, 8)
    usage.add(0, 0)
    assert usage.bars(10) == "▁▅█ " and usage.bars(2) == "█ " and usage.bars(0) == "", "nothing was up"


def test_a_chart_of_use() -> None:
    usage = Usage()
    for busy in (0, 1, 4, 8):
        usage.add(busy, 8)
    assert usage.chart(6, 2) == ["     █", "   ▂██"]
    assert usage.chart(2, 2) == [" █", "██"] and usage.seconds(2) == 2 and usage.seconds(9) == 4 and usage.now == 1.0
    usage = Usage()
    for _ in range(40):
        usage.add(1, 2)
    told = ["".join(text for text, _ in line) for line in activity._chart(usage, 80, 3)]
    assert told[3].index("40s ago") == told[2].index("█")  # the time stands where the bars begin


def test_a_chart_of_use_fits_in_every_width() -> None:
    for known in (0, 1, 40, 400):
        usage = Usage()
        for _ in range(known):
            usage.add(2, 2)
        for width in range(140):
            assert 0 <= usage.seconds(width - 5) <= max(0, width - 5)
            told = activity._chart(usage, width, 4)
            assert len(told) == 5
            for line in told:
                text = "".join(text for text, _ in activity.fitted(line, width))
                assert len(text.rstrip()) <= width, (known, width, text)


def test_the_page_has_every_action() -> None:
    page = (Path(__file__).parents[3] / "docs/console.md").read_text()
    assert updated(page) == page, "python -m console.tui.actions.docs_page docs"


def test_every_key_in_the_pages_text_is_bound() -> None:
    text, _, _ = (Path(__file__).parents[3] / "docs/console.md").read_text().partition(BEGIN)
    bound = {key for action in ALL.values() for key in action.keys.split(",")}
    assert not set(re.findall(r"`([A-Za-z]|ctrl\+[a-z])`", text)) - bound

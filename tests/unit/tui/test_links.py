"""Places by name, what they go on with, and the way back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.tui.navigation.links import ALIASES, KINDS, Link, LinkError, Trail, completions, parse
from tests.unit.tui.test_expressions import MACHINE


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("node n12", Link("node", "n12")),
        ("n n12", Link("node", "n12")),
        ("nodes", Link("nodes")),
        ("nodes n1", Link("node", "n1")),
        ("launcher 7", Link("launcher", "7")),
        ("l 7", Link("launcher", "7")),
        ("  events ", Link("events")),
        ("ev", Link("events")),
        ("part 3", None),
        ("mes", Link("mesh")),
        ("select free & n1", Link("select", "free & n1")),
        ("q", Link("quit")),
        ("rack r1", Link("cabinet", "r1")),
    ],
)
def test_what_is_typed(text: str, link: Link | None) -> None:
    if link is None:  # partition and partitions both begin so
        with pytest.raises(LinkError):
            parse(text)
    else:
        assert parse(text) == link


@pytest.mark.parametrize(
    "text", ["", "nowhere", "node", "launcher x", "launcher", "mesh 7", "launcher 99999999999999999999"]
)
def test_mistakes_are_told(text: str) -> None:
    with pytest.raises(LinkError) as caught:
        parse(text)
    assert caught.value.message


def test_aliases_lead_to_places() -> None:
    assert set(ALIASES.values()) <= set(KINDS)


def test_commands_complete_with_what_exists() -> None:
    assert completions("no", MACHINE) == ["nodes", "node "]
    assert completions("node n", MACHINE) == ["node n0", "node n1", "node n2"]
    assert completions("l ", MACHINE) == ["l 7", "l 8"]
    assert completions("partition ", MACHINE) == ["partition 5", "partition 9"]
    assert completions("user a", MACHINE) == ["user ada"]
    assert completions("events x", MACHINE) == []


@given(st.text(max_size=20))
def test_nothing_typed_is_a_fault(text: str) -> None:
    completions(text, MACHINE)
    try:
        parse(text)
    except LinkError:
        pass


@given(st.lists(st.one_of(st.integers(-3, 3), st.sampled_from(["nodes", "events", "launchers"]))))
def test_a_trail_is_a_browsers(steps: list[int | str]) -> None:
    trail, back, here, forth = Trail(), [], "mesh", []  # type: ignore[var-annotated]
    for step in steps:
        if isinstance(step, str):
            if step != here:
                back.append(here)
                here, forth = step, []
            trail.visit(Link(step))
        elif step:
            went = trail.step(1 if step > 0 else -1)
            source, target = (forth, back) if step > 0 else (back, forth)
            if source:
                target.append(here)
                here = source.pop()
            else:
                assert went is None
        assert trail.here == Link(here)

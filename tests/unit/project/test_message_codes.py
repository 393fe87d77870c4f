"""Every message has a number of its own, is found by its words, and stands on the page."""

from console.message_codes import code_of, coded, fits, numbers


def test_numbers_and_templates_are_unique() -> None:
    rows = numbers()
    assert len({number for number, _file, _template in rows}) == len(rows) > 700
    assert len({template for _number, _file, template in rows}) == len(rows)


def test_each_message_is_found_by_its_words() -> None:
    wrong = []
    for number, _file, template in numbers():
        told = template.replace("{}", "7")
        if code_of(told) != f"RM-{number}":
            wrong.append((number, template, code_of(told)))
    assert wrong == []
    assert code_of("n1: the console needs a terminal") == "RM-1004", "whoever passes it on writes a name before it"


def test_what_fits_a_template() -> None:
    assert fits("no host is called {}", "no host is called n1") and fits("{} and {}", "a and b")
    assert not fits("no host is called {}", "no host") and not fits("a{}a", "a")
    assert not fits("{} and {} or {}", "a or b and c")


def test_what_has_no_number_stays_as_it_is() -> None:
    assert coded("Argh", "try again") == "Argh (try again)"
    forwarded = coded(f"no personal mesh: {coded('not a database file: x', 'give one')}")
    assert forwarded == "no personal mesh: not a database file: x (give one) [RM-3093]"
    assert coded("the console needs a terminal", "showmesh").endswith(" (showmesh) [RM-1004]")

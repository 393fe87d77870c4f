"""Regular expressions of the user: what Python's re takes, and a limit of time."""

import re
import subprocess
import sys
import time

import pytest

from console.tui.model.patterns import MOST_S, FilterError, Pattern, TooSlowError

#: Texts that re would search for years, each with an expression.
ENDLESS = [("(a|aa)+$", "a" * 60 + "!"), (r"(x+x+)+y", "x" * 4000), (r"(\w+\s?)+$", "word " * 800 + "!")]

TEXTS = [
    "",
    "rank 3: residual 1.5e-03",
    "[ERROR] disk full",
    "aa bb aa",
    "Ärger\tim Büro",
    "a{2",
    "foo.bar(baz)",
    "a\\b",
]


@pytest.mark.parametrize(("words", "text"), ENDLESS)
def test_an_expression_that_would_block_the_console_is_given_up(words: str, text: str) -> None:
    began = time.process_time()
    with pytest.raises(TooSlowError) as told:
        Pattern(words).search(text)
    assert time.process_time() - began < 20 * MOST_S
    assert repr(words) in told.value.message and told.value.hint
    assert Pattern(words).spans(text, 0.01) == []


@pytest.mark.parametrize(
    "words",
    [
        "residual", "Residual", r"\d+\.\d+e-?\d+", r"^\[ERROR\]", "full$", r"(?P<w>\w+) bb (?P=w)", r"(\w)\1",
        "(?!rank)r",
        "(?<=disk )full", "(?<!x)a", "a|b", "[^a-z ]+", r"[^\W\d_]+", "[]a]", r"[\w.-]+\(", r"\bim\b",
        "(?i)ERROR", "(?s:.)a",
        "(?-i:ERROR)", "(?x) disk \\s full", "a{2}", "a{2", "a{1,}?", "a{,2}", "x*", r"\\", r"\.", "(?:a+) b",
        "(?>a+)b", "a++b", r"\AÄ", "ä", r"\t", r"\x41", "\\u00e4", "(?#why)a", "(a)?(?(1)a|b)",
        "é|ü", ".", "", r"\S+@|\Z",
    ],
)  # fmt: skip
def test_expressions_that_users_know_from_python_match_the_same(words: str) -> None:
    same = re.compile(words, 0 if any(c.isupper() for c in words) else re.IGNORECASE)
    made = Pattern(words)
    for text in TEXTS:
        assert made.search(text) == (same.search(text) is not None), text
        spans = [match.span() for match in same.finditer(text) if match.end() > match.start()]
        assert made.spans(text, MOST_S) == spans, text


@pytest.mark.parametrize(
    "words", ["(", "*a", "a**", "[a", "\\", "(?P<n", "(?(1)a|b)", "x{1" + "0" * 30 + "}", "(" * 9999]
)
def test_what_is_no_expression_is_told(words: str) -> None:
    with pytest.raises(FilterError, match="is not a regular expression"):
        Pattern(words)


def test_the_start_of_the_console_does_not_import_the_package() -> None:
    words = "import sys, console.tui.app, console.tui.screens.launch, console.tui.screens.tables"
    words += "; print('regex' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", words], capture_output=True, text=True).stdout == "False\n"


@pytest.mark.parametrize(
    "words", ["((a{1000}){1000}){1000}", "a{500000}", "(a{100}){100}{100}", "(?:x(y|z{900}){900})+"]
)
def test_an_expression_that_is_too_long_when_written_out_is_refused_at_once(words: str) -> None:
    began = time.process_time()
    with pytest.raises(FilterError, match="repeats too much"):
        Pattern(words)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("words", "text"), [
        (r"\({7}", "(" * 7), ("[(]{3}[]x)]{2}", "((()]"), (r"\d{4}-(\d{2}){2}", "2024-1231"), ("a{2000}", "a" * 2000),
    ],
)  # fmt: skip
def test_usual_repetitions_are_taken(words: str, text: str) -> None:
    assert Pattern(words).search(text)

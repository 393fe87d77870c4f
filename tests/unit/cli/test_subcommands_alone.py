"""A command's parser is built without those of the other commands."""

import argparse

import pytest

from console.cli.mesh.command import parser


def choices(top: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next(dict(one.choices) for one in top._actions if isinstance(one, argparse._SubParsersAction))


ALL = choices(parser())


@pytest.mark.parametrize("word", ALL)
def test_it_is_the_same_parser_and_not_among_all(word: str) -> None:
    alone = choices(parser(word))
    assert len(alone) < 12, f"{word} stands in no group of _GROUPS"
    assert alone[word].format_help() == ALL[word].format_help()


def test_an_unknown_word_is_compared_with_all_commands() -> None:
    assert choices(parser("statsu")).keys() == choices(parser("--quiet")).keys() == ALL.keys()

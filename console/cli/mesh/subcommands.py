"""What an argparse parser has: its subcommands and options, for manual pages and help."""

from __future__ import annotations

import argparse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

#: Options that every subcommand has; they are not repeated in the subcommands' sections.
_COMMON = ("--help", "--config", "--quiet")


def subcommands(
    parser: argparse.ArgumentParser, path: str = "mesh"
) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Every executable subcommand: its words, its line of help, its parser."""
    for name, told, below in subcommands_of(parser):
        deeper = list(subcommands(below, f"{path} {name}"))
        yield from deeper or [(f"{path} {name}", told, below)]


def subcommands_of(parser: argparse.ArgumentParser) -> list[tuple[str, str, argparse.ArgumentParser]]:
    """The commands directly below a parser: the word, its line of help ("": for Redmesh's own use), its parser."""
    found: list[tuple[str, str, argparse.ArgumentParser]] = []
    for action in parser._actions:  # argparse has no other way to ask it
        if isinstance(action, argparse._SubParsersAction):
            told = {choice.dest: choice.help or "" for choice in action._choices_actions}
            found += [(name, told.get(name, ""), below) for name, below in action.choices.items()]
    return found


def own_options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The options and arguments of a command without those that every one has."""
    return [one for one in parser._actions if not set(one.option_strings) & set(_COMMON)]


def form(action: argparse.Action) -> str:
    """The forms of an option with its value: ``-n N, --ntasks N``."""
    if isinstance(action.metavar, str):
        value = action.metavar
    elif action.choices:
        value = "|".join(map(str, action.choices))
    else:
        value = action.dest.upper()
    if not action.option_strings:
        return value
    return ", ".join(f"{word} {value}" if action.nargs != 0 else word for word in action.option_strings)


def sentence(text: str) -> str:
    """A line of help as a sentence."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")

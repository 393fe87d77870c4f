"""Parses command lines in the style of the original yod and pingd (of Cplant and Red Storm), from a table per command.

A word (``-list``) may be shortened to any prefix that no other original word has (``-l``), and has a GNU form
(``--list``). Original words have priority over later words: ``-l`` is ``-list`` however many newer words begin with l.
The help and the docs page are made from the same table. argparse is not used: it supports neither rule, and would cost
yod 6 ms of its 30 (docs/decisions).
"""

from __future__ import annotations

import sys

from console.errors import UsageError, numbered

TYPE_CHECKING = False  # importing typing would cost every yod 3 ms
if TYPE_CHECKING:
    from collections.abc import Sequence

    Value = str | int | float | bool | list[str]


class Word:
    """An option.

    ``kind``: flag, int (≥ 0), seconds (float ≥ 0), text, texts (may be repeated), options (text that may look like an
    option), or words separated by ``|``.
    ``twins``: the GNU form without dashes (default: the name), followed by other launchers' words for the same option;
    these may have one dash or two, and cannot be shortened. ``letter``: a short form that is not a prefix of the name.
    ``original``: a word of the original yod or pingd.
    """

    __slots__ = ("group", "help", "kind", "letter", "longs", "metavar", "name", "original")

    def __init__(
        self,
        name: str,
        kind: str,
        help: str,
        twins: str = "",
        letter: str = "",
        metavar: str = "",
        original: bool = False,
        group: str = "Options",
    ) -> None:
        self.name, self.kind, self.help, self.longs = name, kind, help, tuple(twins.split()) or (name,)
        self.letter, self.metavar, self.original, self.group = letter, metavar, original, group

    @property
    def long(self) -> str:
        """The GNU long form."""
        return self.longs[0]

    @property
    def also(self) -> tuple[str, ...]:
        """Other launchers' words for it."""
        return self.longs[1:]

    def as_flag(self) -> Word:
        """The same word without a value."""
        longs = " ".join(self.longs)
        return Word(self.name, "flag", self.help, longs, self.letter, self.metavar, self.original, self.group)


class OptionError(UsageError):
    """An option that cannot be understood. ``word``: as written, without a value after ``=``.

    ``name``: the option that it is; "" if it is none, or may be several.
    """

    def __init__(self, message: str, hint: str, word: str, name: str = "") -> None:
        super().__init__(message, hint)
        self.word, self.name = word, name


class Parsed:
    """The values of the given options by name, and the words after the options (``rest``).

    ``ended``: the options ended with ``--``. ``last``: the name of the last option, as it was written, and the
    following word if that is its value; three times "" if there is no option.
    """

    __slots__ = ("ended", "last", "rest", "values")

    def __init__(
        self, values: dict[str, Value], rest: list[str], *, ended: bool, last: tuple[str, str, str] = ("", "", "")
    ) -> None:
        self.values, self.rest, self.ended, self.last = values, rest, ended, last


def parse(table: Sequence[Word], arguments: Sequence[str], *, stop: bool) -> Parsed:
    """Parse ``arguments``. With ``stop``, the first non-option ends the options (``yod -sz 4 program -sz``).

    Raises UsageError for an unknown or ambiguous word, or an invalid value.
    """
    values: dict[str, Value] = {}
    rest: list[str] = []
    ended = False
    last = ("", "", "")
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        if argument == "--":
            rest += waiting
            ended = True
            break
        if len(argument) < 2 or argument[0] != "-":
            if stop:
                rest += [argument, *waiting]
                break
            rest.append(argument)
            continue
        word, value = _split(table, argument)
        last = (word.name, argument, "")
        if word.kind == "flag":
            if value is not None:
                told = f"{_shown(word, argument)} takes no value"
                raise OptionError(told, f"leave out ={value}", argument, word.name)
            values[word.name] = True
            continue
        if value is None:
            if not waiting:
                raise OptionError(f"{_shown(word, argument)} needs a value", word.help, argument, word.name)
            value = waiting.pop(0)
            last = (word.name, argument, value)
            if word.kind != "options" and _is_option(table, value):
                told = f"{_shown(word, argument)} needs a value, and {value} is an option"
                raise OptionError(told, word.help, argument, word.name)
        converted = _convert(word, value, _shown(word, argument))
        before = values.get(word.name)
        values[word.name] = (
            [*before, *converted] if isinstance(before, list) and isinstance(converted, list) else converted
        )
    return Parsed(values, rest, ended=ended, last=last)


def _is_option(table: Sequence[Word], argument: str) -> bool:
    if argument[:1] != "-" or len(argument) < 2:
        return False
    try:
        _split(table, argument)
    except OptionError as error:
        return error.message.startswith("-")  # it may be several
    return True


def _split(table: Sequence[Word], argument: str) -> tuple[Word, str | None]:
    if argument.startswith("--"):
        name, equals, value = argument[2:].partition("=")
        return _find_long(table, name), value if equals else None
    name, equals, value = argument[1:].partition("=")
    for word in table:
        # srun's -n4: a letter and its value in one word, accepted only if the value is a number.
        if word.letter and name[:1] == word.letter and name[1:].isdigit() and word.kind != "flag":
            return word, name[1:]
    return _find(table, name), value if equals else None


def _find(table: Sequence[Word], name: str) -> Word:
    for word in table:
        if name and name in (word.name, word.letter, *word.also):  # mpiexec's -np and -ppn have one dash
            return word
    for originals in (True, False):
        matches = [word for word in table if word.original is originals and word.name.startswith(name)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            choices = ", ".join(f"-{word.name}" for word in matches)
            raise OptionError(f"-{name} may be one of: {choices}", "write more of the word", f"-{name}")
    raise _unknown(table, f"-{name}")


def _find_long(table: Sequence[Word], name: str) -> Word:
    matches = [word for word in table if name in word.longs] or [
        word for word in table if any(long.startswith(name) for long in word.longs)
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        choices = ", ".join(f"--{word.long}" for word in matches)
        raise OptionError(f"--{name} may be one of: {choices}", "write more of the word", f"--{name}")
    raise _unknown(table, f"--{name}")


def _unknown(table: Sequence[Word], argument: str) -> UsageError:
    import difflib  # needed only after a typing error

    known = [f"-{one}" for word in table for one in (word.name, *word.also)]
    known += [f"--{long}" for word in table for long in word.longs]
    near = difflib.get_close_matches(argument, known, 1, cutoff=0.75)  # no suggestion is better than a wrong one
    hint = f"did you mean {near[0]}?" if near else "-help lists them"
    return OptionError(f"no option is called {argument}", hint, argument)


def _convert(word: Word, value: str, shown: str) -> Value:
    if word.kind == "int":
        if value.isascii() and value.isdigit():
            if len(value) < 10:
                return int(value)
            raise UsageError(f"{shown} {value}: the number is too large", "999999999 is the largest that is taken")
        raise OptionError(f"{shown} takes a whole number, not {value!r}", word.help, shown, word.name)
    if word.kind == "seconds":
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if 0 <= seconds < 1e9:
            return seconds
        if seconds >= 1e9:
            raise UsageError(f"{shown} {value}: the number is too large", "a billion seconds are 31 years")
        raise OptionError(f"{shown} takes a number of seconds, not {value!r}", word.help, shown, word.name)
    if word.kind == "texts":
        return [value]
    if "|" in word.kind and value not in word.kind.split("|"):
        # srun's pmix_v3 and similar values.
        near = next((one for one in word.kind.split("|") if value.startswith((f"{one}_", f"{one}:"))), "")
        hint = f"did you mean {near}?" if near else word.help
        raise UsageError(f"{shown} takes {word.kind.replace('|', ', ')}, not {value!r}", hint)
    return value


def _shown(word: Word, argument: str) -> str:
    """The complete word, with the dashes of the form that the user wrote."""
    return f"--{word.long}" if argument.startswith("--") else f"-{word.name}"


def help_text(usage: str, about: str, table: Sequence[Word], width: int = 100) -> str:
    """The help page of a command: usage, description, every word by group."""
    lines = [f"usage: {usage}", "", about]
    groups = list(dict.fromkeys(word.group for word in table))
    for group in groups:
        lines += ["", f"{group}:"]
        for word in table:
            if word.group == group:
                lines += _help_lines(forms(word), word.help, width, 34)
    return "\n".join(lines) + "\n"


def short_help(usage: str, examples: str, words: Sequence[Word], more: str, width: int = 100) -> str:
    """A page of a few options, with one form of each."""
    lines = [f"usage: {usage}", "", examples, ""]
    for word in words:
        lines += _help_lines(_form(word), word.help, width, 24)
    return "\n".join([*lines, "", more]) + "\n"


def _form(word: Word) -> str:
    """The form of a word that most launchers have: ``-n N``, ``--label``."""
    metavar = "" if word.kind == "flag" else " " + (word.metavar or word.kind)
    return f"-{word.letter}{metavar}" if word.letter else f"--{word.long}{metavar}"


def forms(word: Word) -> str:
    """The forms of the word: ``-sz N, -n N, --size N``."""
    metavar = "" if word.kind == "flag" else " " + (word.metavar or word.kind)
    shorter = [f"-{word.letter}{metavar}"] if word.letter else []
    return ", ".join([f"-{word.name}{metavar}", *shorter, *(f"--{long}{metavar}" for long in word.longs)])


def _help_lines(left: str, told: str, width: int, indent: int) -> list[str]:
    lines, line = [], ""
    for part in told.split():
        if line and len(line) + len(part) + 1 > width - indent:
            lines.append(line)
            line = ""
        line = f"{line} {part}" if line else part
    lines.append(line)
    first = f"  {left:<{indent - 4}}  {lines[0]}" if len(left) <= indent - 4 else f"  {left}\n{' ' * indent}{lines[0]}"
    return [first, *(" " * indent + line for line in lines[1:])]


def complain(command: str, error: Exception) -> int:
    """Print an error with ``message`` and ``hint`` on stderr; returns its exit status."""
    message, hint = getattr(error, "message", str(error)), getattr(error, "hint", "")
    print(f"{command}: {numbered(message, hint)}", file=sys.stderr)
    return int(getattr(error, "exit_status", 125))

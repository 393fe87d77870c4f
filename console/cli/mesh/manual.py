"""Manual pages and the reference page of ``mesh``, generated from the tables and the parser of the command lines."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from console.cli.options.parser import forms
from console.cli.options.tables import COMMANDS, table_of
from redmesh.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Options that every subcommand has; they are not repeated in the subcommands' sections.
_COMMON = ("--help", "--config", "--quiet")


def write_pages(folder: Path) -> list[Path]:
    """Write yod.1, pingd.1, showmesh.1 and mesh.1 into ``folder``; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = []
    for command in (*COMMANDS, "mesh"):
        pages.append(folder / f"{command}.1")
        pages[-1].write_text(_mesh_page() if command == "mesh" else _table_page(command), encoding="utf-8")
    return pages


def subcommands(
    parser: argparse.ArgumentParser, path: str = "mesh"
) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Every executable subcommand: its words, its line of help, its parser."""
    for action in parser._actions:  # argparse has no other way to ask it
        if isinstance(action, argparse._SubParsersAction):
            told = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, below in action.choices.items():
                deeper = list(subcommands(below, f"{path} {name}"))
                yield from deeper or [(f"{path} {name}", told.get(name, ""), below)]


def mesh_reference() -> str:
    """The reference page of ``mesh`` in Markdown: usage and options of every subcommand."""
    from console.cli.mesh.command import parser

    lines = [
        "# mesh: every subcommand", "",
        "`--config FILE` (the configuration file to read), `--quiet` (print nothing but errors) and `--help` may",
        "stand before the subcommand and behind it. `mesh --version` prints the version. [mesh](mesh.md) says what",
        "the subcommands are for.", "",
    ]  # fmt: skip
    for path, told, below in subcommands(parser()):
        lines += [f"## {path}", "", f"{_sentence(told)}", "", "```text", _usage(path, below), "```", ""]
        rows = [(_form(action), action.help or "") for action in _own(below)]
        if rows:
            lines += ["| | |", "|---|---|"]
            lines += [f"| `{_cell(left)}` | {_cell(right)} |" for left, right in rows] + [""]
    return "\n".join(lines)


def _table_page(command: str) -> str:
    table = table_of(command)
    about = " ".join(table.about.split("\n\n")[0].split())
    first = about.split(". ")[0].split(": ")[0].rstrip(".")
    lines = [
        _title(command), ".SH NAME", f"{command} \\- {_roff(first[0].lower() + first[1:])}",
        ".SH SYNOPSIS", f".B {_roff(table.usage)}", ".SH DESCRIPTION", *_paragraphs(table.about), ".SH OPTIONS",
    ]  # fmt: skip
    for group in dict.fromkeys(word.group for word in table.words):
        lines.append(f".SS {_roff(group)}")
        for word in table.words:
            if word.group == group:
                lines += [".TP", f".B {_roff(forms(word))}", _roff(word.help)]
    return "\n".join([*lines, *_see_also(command)])


def _mesh_page() -> str:
    from console.cli.mesh.command import parser

    top = parser()
    lines = [
        _title("mesh"), ".SH NAME", "mesh \\- bring a mesh up and down, and look after it",
        ".SH SYNOPSIS", ".B mesh [\\-\\-config FILE] [\\-\\-quiet] COMMAND ...", ".SH OPTIONS",
    ]  # fmt: skip
    for action in top._actions:
        if action.option_strings:
            lines += [".TP", f".B {_roff(_form(action))}", _roff(action.help or "")]
    lines.append(".SH COMMANDS")
    for path, told, below in subcommands(top):
        lines += [f".SS {_roff(_usage(path, below))}", _roff(_sentence(told))]
        for action in _own(below):
            lines += [".TP", f".B {_roff(_form(action))}", _roff(action.help or "")]
    return "\n".join([*lines, *_see_also("mesh")])


def _own(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [one for one in parser._actions if not set(one.option_strings) & set(_COMMON)]


def _form(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        value = action.metavar
    elif action.choices:
        value = "|".join(map(str, action.choices))
    else:
        value = action.dest.upper()
    if not action.option_strings:
        return value
    return ", ".join(f"{word} {value}" if action.nargs != 0 else word for word in action.option_strings)


def _usage(path: str, parser: argparse.ArgumentParser) -> str:
    words = [path]
    for action in sorted(_own(parser), key=lambda one: not one.option_strings):
        form = _form(action).split(", ")[-1]
        wanted = action.required if action.option_strings else action.nargs not in ("?", "*", argparse.REMAINDER)
        words.append((form if wanted else f"[{form}]") + (" …" if action.nargs in ("*", "+") else ""))
    return " ".join(words)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _title(command: str) -> str:
    return f'.TH {command.upper()} 1 "" "Redmesh {VERSION}" "Redmesh"'


def _see_also(command: str) -> list[str]:
    others = ", ".join(f"\\fB{name}\\fR(1)" for name in (*COMMANDS, "mesh") if name != command)
    return [".SH SEE ALSO", f"{others}; \\fBmesh docs\\fR opens the whole documentation.", ""]


def _paragraphs(text: str) -> list[str]:
    lines: list[str] = []
    for part in text.split("\n\n"):
        literal = any(line.startswith("  ") for line in part.splitlines())
        lines += [".PP", *([".nf"] if literal else []), *map(_roff, part.splitlines()), *([".fi"] if literal else [])]
    return lines


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def main(arguments: Sequence[str] | None = None) -> int:
    """``manual FOLDER``: write the manual pages."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for page in write_pages(Path(given[0] if given else "build/man")):
        print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Manual pages and the reference page of ``mesh``, generated from the tables and the parser of the command lines."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from console.cli.mesh.subcommands import form, own_options, sentence, subcommands
from console.cli.options.parser import forms
from console.cli.options.tables import COMMANDS, table_of
from redmesh.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def write_pages(folder: Path) -> list[Path]:
    """Write yod.1, pingd.1, showmesh.1 and mesh.1 into ``folder``; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = []
    for command in (*COMMANDS, "mesh"):
        pages.append(folder / f"{command}.1")
        pages[-1].write_text(_mesh_page() if command == "mesh" else _table_page(command), encoding="utf-8")
    return pages


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
        lines += [f"## {path}", "", f"{sentence(told)}", "", "```text", _usage(path, below), "```", ""]
        rows = [(form(action), action.help or "") for action in own_options(below)]
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
            lines += [".TP", f".B {_roff(form(action))}", _roff(action.help or "")]
    lines.append(".SH COMMANDS")
    for path, told, below in subcommands(top):
        lines += [f".SS {_roff(_usage(path, below))}", _roff(sentence(told))]
        for action in own_options(below):
            lines += [".TP", f".B {_roff(form(action))}", _roff(action.help or "")]
    return "\n".join([*lines, *_see_also("mesh")])


def _usage(path: str, parser: argparse.ArgumentParser) -> str:
    words = [path]
    for action in sorted(own_options(parser), key=lambda one: not one.option_strings):
        shown = form(action).split(", ")[-1]
        wanted = action.required if action.option_strings else action.nargs not in ("?", "*", argparse.REMAINDER)
        words.append((shown if wanted else f"[{shown}]") + (" …" if action.nargs in ("*", "+") else ""))
    return " ".join(words)


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

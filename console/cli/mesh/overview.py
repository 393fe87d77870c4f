"""What ``mesh``, ``mesh help`` and ``mesh help COMMAND`` print: at most 30 lines each. ``mesh help --all`` prints every
command, ``mesh COMMAND --help`` every option of one."""

from __future__ import annotations

import argparse
from shutil import get_terminal_size
from textwrap import wrap

from console.cli.map.drawing import cut
from console.cli.mesh.subcommands import form, own_options, sentence, subcommands_of
from console.errors import UsageError

#: The most lines of a page, and its width where no terminal has another.
LINES, WIDTH, _WIDEST = 30, 80, 120
#: What the commands are for: the commands of the overview, and the others.
GROUPS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("run", ("submit", "sections", "demo"), ("simulate", "replay")),
    ("jobs", ("queue", "wait", "cancel", "retry", "job"), ("hold", "release", "purge")),
    ("see", ("status", "console", "stacks", "debug", "history"), ("procs", "record", "serve", "topology")),
    (
        "machine",
        ("up", "down", "drain", "resume"),
        ("mode", "reserve", "unreserve", "partition", "side", "grow", "shrink", "manager"),
    ),
    ("many hosts", ("init", "nodes", "doctor"), ("trust", "login")),
    ("operate", ("upgrade", "docs"), ("db", "completion", "help", "version")),
)
_ABOUT = "yod runs programs, pingd and showmesh list processors, mesh does the rest."
_MORE = """mesh help COMMAND     what a command does, and its options
mesh help --all       every command; mesh docs opens the documentation"""


def overview(parser: argparse.ArgumentParser, *, every: bool = False) -> str:
    """The commands by group: those that people use, or ``every`` one."""
    told = {name: about for name, about, _ in subcommands_of(parser)}
    lines = ["usage: mesh COMMAND ...", "", _ABOUT, ""]
    for group, few, others in GROUPS:
        names = (*few, *others) if every else few
        lines += [f"{group if not at else '':<12}{name:<12}{told[name]}" for at, name in enumerate(names)]
    return "\n".join([*lines, "", _MORE])


def page(parser: argparse.ArgumentParser, words: list[str]) -> str:
    """What a command does, with a line for each option or subcommand. Raises UsageError for an unknown command."""
    path, about, below = "mesh", "", parser
    for word in words:
        known = {name: (told, inner) for name, told, inner in subcommands_of(below)}
        if word not in known:
            hint = f"mesh help {' '.join(words[: words.index(word)])}".rstrip()
            raise UsageError(f"{path} has no command {word!r}", f"{hint} lists the commands")
        about, below = known[word]
        path = f"{path} {word}"
    if not words:
        return overview(parser)
    rows = [(name, told) for name, told, _ in subcommands_of(below) if told]
    if not rows:
        shown = [one for one in own_options(below) if one.help is not argparse.SUPPRESS]
        rows = [(form(one), (one.help or "").replace("%%", "%")) for one in shown]
    width = min(get_terminal_size((WIDTH, LINES)).columns, _WIDEST)
    lines = [cut(_usage(path, below), width), "", *wrap(sentence(about), width), ""]
    room = LINES - len(lines) - 2
    left = min(max((len(name) for name, _ in rows), default=0), 28) + 2
    for name, told in rows if len(rows) <= room else rows[: room - 1]:
        lines.append(cut(f"  {name:<{left}}{told}".rstrip(), width))
    if len(rows) > room:
        lines.append(f"  … and {len(rows) - room + 1} more")
    full = f"mesh help {' '.join(words)} COMMAND" if subcommands_of(below) else f"{path} --help"
    return "\n".join([*lines, "", f"{full} tells everything"])


def _usage(path: str, below: argparse.ArgumentParser) -> str:
    if subcommands_of(below):
        return f"usage: {path} COMMAND ..."
    words = [form(one) for one in own_options(below) if not one.option_strings]
    options = any(one.option_strings for one in own_options(below))
    return " ".join(["usage:", path, *(["[OPTIONS]"] if options else []), *words])


def asked(parser: argparse.ArgumentParser, words: list[str], *, every: bool) -> str:
    """What ``mesh help [--all] [COMMAND …]`` prints. Raises UsageError."""
    if every and words:
        raise UsageError("--all excludes COMMAND", f"mesh {' '.join(words)} --help prints all of a command")
    return overview(parser, every=True) if every else page(parser, words)

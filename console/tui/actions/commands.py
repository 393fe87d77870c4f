"""Commands for processors, nodes and launches on a screen: their command lines, and running them.

The console changes nothing by itself: it runs the command that it shows, so that users learn the commands.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from console.errors import ConsoleError
from console.launch.options.lists import fold, fold_nodes
from console.tui.actions.child import answered
from console.tui.format import several
from console.tui.model.machine import Launcher, Machine
from redmesh.answers import Answered
from redmesh.sanitise import clean
from redmesh.start_command import start_command

_PATIENCE_S = 60.0


class ActionError(ConsoleError):
    """A command failed; the message is the command's own."""


class Target(NamedTuple):
    """The processors, nodes and launchers of a selection."""

    processors: list[int]
    nodes: list[str]
    launchers: list[Launcher]

    @property
    def processor_list(self) -> str:
        """``0..3,8``, as every command takes it."""
        return fold(self.processors)

    @property
    def node_list(self) -> str:
        """``n0,n[2-4]``, as every command takes it."""
        return fold_nodes(self.nodes)

    @property
    def told(self) -> str:
        """``4 processors on 2 nodes``."""
        return _told(len(self.processors), len(self.nodes))


class Verb(NamedTuple):
    """A command. ``of``: what its list contains; ``effect``: the consequence, for the question."""

    name: str
    label: str
    words: tuple[str, ...]
    of: str  # nodes or processors
    effect: str
    needs_launch: bool = False
    asks: str = ""  # what the user must type: a user, or an optional reason
    ends_launches: bool = False


VERBS = {
    verb.name: verb
    for verb in (
        Verb("drain", "Drain", ("mesh", "drain"), "nodes", "What runs there runs on; nothing new starts there.",
             asks="reason"),
        Verb("resume", "Resume", ("mesh", "resume"), "nodes", "Their PCTs clean up, and they are used again."),
        Verb("reserve", "Reserve", ("pingd", "-reserve"), "processors", "Nobody else gets them.", asks="user"),
        Verb("unreserve", "Unreserve", ("pingd", "-unreserve"), "processors", "Everybody may have them."),
        Verb("term", "Send TERM", ("pingd", "-interrupt"), "processors", "Their ranks may clean up and end.", True,
             ends_launches=True),
        Verb("kill", "Kill", ("pingd", "-kill"), "processors", "They cannot refuse it, nor clean up.", True,
             ends_launches=True),
        Verb("reset", "Reset", ("pingd", "-reset"), "nodes",
             "Everything that runs there ends; nodes that stay unclean are drained.", ends_launches=True),
    )
}  # fmt: skip


class JobVerb(NamedTuple):
    """A command for jobs. ``otherwise``: the message if it is impossible; ``did``: afterwards."""

    label: str
    words: tuple[str, ...]
    otherwise: str
    effect: str = ""
    asks: bool = False
    did: str = "done"


JOB_VERBS = {
    "hold": JobVerb("Hold", ("mesh", "hold"), "the job has ended, or is held",
                    did="no more tasks begin; those that run go on"),
    "release": JobVerb("Release", ("mesh", "release"), "the job is not held", did="tasks begin again"),
    "retry": JobVerb("Retry", ("mesh", "retry"), "no task has failed", did="failed and cancelled tasks wait again"),
    "resume": JobVerb("Resume", ("mesh", "job", "resume"), "the job's owner has not been lost"),
    "cancel": JobVerb("Cancel", ("mesh", "cancel"), "the job has ended", asks=True,
                      effect="What runs is terminated, what waits is not begun.", did="the job ends"),
}  # fmt: skip


def _told(processors: int, nodes: int) -> str:
    return f"{several(processors, 'processor')} on {several(nodes, 'node')}"


def told(machine: Machine, cells: Iterable[int]) -> str:
    """What the target of these cells says of itself, without the target: ten thousand are chosen with one key."""
    rows = [machine.processors[cell] for cell in cells if 0 <= cell < machine.cells]
    return _told(len(rows), len({row.node for row in rows}))


def target(machine: Machine, cells: Iterable[int]) -> Target:
    """The target of these cells."""
    cells = [cell for cell in cells if 0 <= cell < machine.cells]
    rows = [machine.processors[cell] for cell in cells]
    nodes = sorted({machine.node_of(cell) for cell in cells})
    on = {row.launcher for row in rows}
    launchers = [row for number, row in sorted(machine.launchers.items()) if number in on]
    return Target([row.id for row in rows], [machine.nodes[index].name for index in nodes], launchers)


def overtaken(verb: Verb, found: Target, machine: Machine, boot_id: str) -> str:
    """Why an answer is no longer about what the question named: the numbers of ``found`` are those of other processors
    or launches now. Empty if it is. ``boot_id``: the boot of the mesh in which the question was asked."""
    if machine.boot_id != boot_id:
        return "the mesh was started anew since the question; nothing was done"
    cells = (machine.cell_of(number) for number in found.processors)
    there = target(machine, [cell for cell in cells if cell is not None]).launchers
    known = {(row.id, row.created_at) for row in found.launchers}
    others = [row.id for row in there if (row.id, row.created_at) not in known]
    if verb.ends_launches and others:
        what = "launcher " + ", ".join(map(str, others[:3])) + (" …" if len(others) > 3 else "")
        return f"{what} began there after the question; nothing was done"
    return ""


def problem(verb: Verb, chosen: Target) -> str:
    """Why the command is impossible here; empty if it is possible."""
    if not chosen.processors:
        return "nothing is selected"
    if verb.needs_launch and not chosen.launchers:
        return "nothing runs there"
    return ""


def command(verb: Verb, chosen: Target, answer: str = "") -> list[str]:
    """The command line. In a shell it asks for confirmation; here the user has been asked. ``answer``: the user, or
    the reason."""
    names = chosen.node_list if verb.of == "nodes" else chosen.processor_list
    if verb.words[0] == "mesh":
        return [*verb.words, names, *(["--reason", answer] if answer and verb.asks == "reason" else [])]
    return [*verb.words, *([answer] if verb.asks == "user" else []), "-list", names]


def line(words: Sequence[str]) -> str:
    """The command line as typed in a shell."""
    return clean(shlex.join(words))


def question(verb: Verb, chosen: Target) -> str:
    """The question before a command: ``Drain n[3-4]?``"""
    if verb.needs_launch:
        told = ", ".join(f"{row.id} ({row.user}: {row.command[:30]})" for row in chosen.launchers[:3])
        more = f" and {len(chosen.launchers) - 3} more" if len(chosen.launchers) > 3 else ""
        noun = "launcher" if len(chosen.launchers) == 1 else "launchers"
        return f"{verb.label} {'to ' * (verb.name == 'term')}{noun} {told}{more}?"
    one = chosen.processor_list.isdigit()
    names = chosen.node_list if verb.of == "nodes" else f"processor{'' if one else 's'} {chosen.processor_list}"
    return f"{verb.label} {shortened(names)}?"


def shortened(names: str, most: int = 60) -> str:
    """A list, cut off if it would fill the screen."""
    return names if len(names) <= most else names[:most].rpartition(",")[0] + ",…"


def consequence(verb: Verb, chosen: Target, words: Sequence[str]) -> str:
    """The text of the question: the consequence, its extent, and the command."""
    parts = [f"{chosen.told}. {verb.effect}"]
    if verb.ends_launches and not verb.needs_launch and chosen.launchers:
        parts.append(f"It ends {several(len(chosen.launchers), 'launch')}.")
    parts.append(shortened(line(words), 200))
    return "\n".join(parts)


async def answer(words: Sequence[str]) -> dict[str, Any]:
    """Run a Redmesh command; returns its JSON output, whatever its exit status. Raises ActionError if there is none."""
    status, out, err = await _finished(words)
    try:
        found = json.loads(out)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ActionError(clean(err.strip().replace("\n", " · ")) or f"{words[0]} ended with status {status}")
    return found


async def run(words: Sequence[str]) -> str:
    """Run a Redmesh command without confirmation; returns its output. Raises ActionError with its message."""
    status, out, err = await _finished(words)
    told = clean(" · ".join((err or out if status else out).split("\n")).strip(" ·"))
    if status:
        raise ActionError(told or f"{words[0]} ended with status {status}", exit_status=status)
    return told


async def _finished(words: Sequence[str]) -> Answered:
    """Run a command. Raises ActionError after a time-out."""
    extra = ["-NoInquire"] if words[0] == "pingd" else []
    try:
        return await answered([*start_command(words[0]), *extra, *words[1:]], _PATIENCE_S)
    except TimeoutError:
        raise ActionError(f"{words[0]} has not ended within {_PATIENCE_S:.0f} s", "mesh status") from None

"""pingd's actions on processors, launches and nodes: asks the user, then sends the request to a CPA.

The CPA checks permissions.
"""

import sys

from console.cli.pingd.selection import Selection
from console.errors import ConsoleError
from console.launch.options.lists import fold
from console.own_texts import OwnTexts
from console.settings import Settings
from db.views.viewer import Picture, open_viewer
from redmesh.idset import fold_names
from redmesh.sanitise import clean
from redmesh.text import counted

TYPE_CHECKING = False  # typing is slow to import; checkers know the name
if TYPE_CHECKING:
    from typing import Any

_SIGTERM = 15
_ANSWER_S = 30.0  # a clean-up may take 10 s, and there may be many


class Target:
    """The targets of a selection: processors, their launchers, their nodes."""

    def __init__(self, picture: Picture, ids: "set[int]") -> None:
        self.ids = sorted(ids)
        on = {picture.processors[one].launcher for one in ids}
        self.launchers = [row for _, row in sorted(picture.launchers.items()) if row.id in on]
        nodes = {picture.processors[one].node for one in ids}
        self.nodes = [picture.nodes[node].name for node in sorted(nodes)]

    @property
    def told_launchers(self) -> str:
        """``launcher 7 (ada, 4 processors: ./solver)``, for the first few."""
        told = [
            f"{row.id} ({clean(row.user)}, {counted(row.size, 'processor')}: {clean(row.command)[:40]})"
            for row in self.launchers
        ]
        more = f" and {len(told) - 5} more" if len(told) > 5 else ""
        return ("launcher " if len(told) == 1 else "launchers ") + ", ".join(told[:5]) + more


def do(verb: str, value: str, settings: Settings, selection: Selection, *, ask: bool) -> int:
    """Run the action; returns the exit status. Raises ConsoleError, UsageError, or a CPA's error."""
    picture = Picture()
    with open_viewer(settings.database, settings.login) as viewer:
        picture.update(viewer)
    ids = selection.ids(picture)
    target = Target(picture, set(picture.processors) if ids is None else ids)
    target.launchers = OwnTexts(settings).put_into(target.launchers)
    request, question = _request(verb, value, target)
    if ask and not _confirmed(question):
        print("pingd: nothing was done", file=sys.stderr)
        return 1
    from console.deploy.mesh.cpas import ask_cpa

    if settings.login:
        request["login"] = settings.login
    reply = ask_cpa(settings, request, timeout_s=_ANSWER_S)
    missed = _signal_here(settings, reply)
    for line in _told(verb, reply, target, len(missed)):
        print(line)
    for line in missed:
        print(f"pingd: {line}", file=sys.stderr)
    return 1 if missed else 0


def _signal_here(settings: Settings, reply: "dict[str, Any]") -> "list[str]":
    """Signal launches of this login processor that the CPA, on another one, could not; returns the remaining errors."""
    from console.launch.attach.client import send_signal
    from console.launch.daemons.connect import login_name

    missed = []
    for launcher, login in sorted(reply.get("elsewhere", {}).items()):
        if login != login_name(settings):
            missed.append(f"launcher {launcher} is on login processor {clean(login)}: pingd -interrupt there")
            continue
        try:
            send_signal(settings.run_dir, int(launcher), _SIGTERM)
            reply["launchers"].append(int(launcher))
        except ConsoleError as error:
            missed.append(f"launcher {launcher}: {error.message}")
    return missed


def _request(verb: str, value: str, target: Target) -> "tuple[dict[str, Any], str]":
    processors = {"processors": [[one, one] for one in target.ids], "nodes": []}
    numbers, nodes = fold(target.ids), fold_names(target.nodes)
    launchers = [row.id for row in target.launchers]
    if not target.ids or (verb in ("interrupt", "kill") and not launchers):
        what = "no launch" if target.ids else "no processor"
        raise ConsoleError(f"-{verb}: {what} is selected", "pingd without the verb lists what would be", exit_status=1)
    if verb == "interrupt":
        request = {"op": "signal_launchers", "launchers": launchers, "signal": _SIGTERM, "elsewhere": True}
        return request, f"Send SIGTERM to {target.told_launchers}?"
    if verb == "kill":
        return {"op": "kill_launchers", "launchers": launchers}, f"Kill {target.told_launchers}?"
    if verb == "reset":
        what = f" and end {target.told_launchers}" if launchers else ""
        return {"op": "reset", "launchers": launchers, "nodes": target.nodes}, f"Reset {nodes}{what}?"
    if verb == "gone":
        return {"op": "drain", "nodes": target.nodes}, f"Take {nodes} out of service?"
    if verb == "reserve":
        return {
            "op": "reserve",
            "wanted": processors,
            "user": value,
        }, f"Reserve processors {numbers} for {clean(value)}?"
    return {"op": "reserve", "wanted": processors, "user": None}, f"Give processors {numbers} back to all?"


def _confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise ConsoleError(
            "standard input is not a terminal, so the question cannot be asked",
            "say -NoInquire to do it without a question",
            exit_status=2,
        )
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _told(verb: str, reply: "dict[str, Any]", target: Target, missed: int) -> "list[str]":
    nodes = fold_names(target.nodes)
    if verb in ("interrupt", "kill"):
        done = [int(one) for one in reply.get("launchers", ())]
        word = "SIGTERM sent to" if verb == "interrupt" else "killed:"
        over = len(target.launchers) - len(done) - missed
        return [f"{word} launcher {fold(done)}"] * bool(done) + [f"{over} had ended already"] * bool(over)
    if verb == "reset":
        unclean = reply.get("unclean", {})
        lines = [f"{clean(str(name))} is drained: {clean(str(why))}" for name, why in unclean.items()]
        if clean_nodes := [name for name in target.nodes if name not in unclean]:
            lines.append(f"reset: {fold_names(clean_nodes)}")
        return lines
    if verb == "gone":
        return [f"out of service: {nodes}; pingd -reset puts it back"]
    return [f"{'reserved' if verb == 'reserve' else 'not reserved any more'}: {fold(target.ids)}"]

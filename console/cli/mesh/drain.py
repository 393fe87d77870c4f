"""``mesh drain`` and ``mesh resume``: take nodes out of service, and return them."""

import argparse
import sys
import time
from datetime import datetime

from console.cli.options.times import seconds_until
from console.deploy.mesh.cpas import ask_cpa
from console.errors import UsageError
from console.launch.options.lists import parse_list
from console.settings import Settings
from redmesh.byte_text import from_system
from redmesh.text import counted


def drain(settings: Settings, options: argparse.Namespace) -> int:
    """Drain nodes: what runs there continues, nothing new starts; state objects move to other nodes.

    With ``--at``, the CPAs do so at that time, and state objects stay.
    """
    names = _nodes(options.list)
    if options.at is not None:
        return _later(settings, names, options)
    ask_cpa(settings, {"op": "drain", "nodes": names, "reason": from_system(options.reason)})
    from console.tracker.evacuation import evacuate, hand_over_all

    def say(text: str) -> None:
        print(f"mesh: {text}", file=sys.stderr)

    evacuate(settings, names, say)
    hand_over_all(settings, names, say)
    return 0


def _later(settings: Settings, names: list[str], options: argparse.Namespace) -> int:
    after_s = seconds_until(options.at, datetime.now())
    # The clock that counts is the database's: it gets a number of seconds.
    # A request of its own, because CPAs of an earlier version would drain the nodes now.
    reply = ask_cpa(
        settings, {"op": "drain_later", "nodes": names, "reason": from_system(options.reason), "after_s": after_s}
    )
    for name in names:
        if name not in reply["nodes"]:
            print(f"mesh: {name} is drained already", file=sys.stderr)
    if reply["nodes"]:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(reply["drain_at"]))
        print(f"{counted(len(reply['nodes']), 'node')} will be drained at {at}; mesh resume takes it back")
    return 0


def resume(settings: Settings, options: argparse.Namespace) -> int:
    """Return drained nodes to service; nodes that would be drained later stay in service."""
    names = _nodes(options.list)
    back = ask_cpa(settings, {"op": "resume", "nodes": names})["nodes"]
    for name in names:
        if name not in back:
            print(f"mesh: {name} was in service", file=sys.stderr)
    return 0


def _nodes(text: str) -> list[str]:
    wanted = parse_list(text)
    if wanted["processors"]:
        raise UsageError("a node can only be drained or resumed as a whole", "their names, like n[0-3]")
    names: list[str] = wanted["nodes"]
    return names

"""``mesh nodes``: the hosts in the configuration."""

import argparse
import json
import shutil
import sys
import time
from typing import Any

from console.cli.map.drawing import table
from console.deploy.hosts import inventory
from console.deploy.hosts.description import Host, read_hosts, selected
from console.settings import Settings
from db.errors import StoreError


def show(settings: Settings, options: argparse.Namespace) -> int:
    """Print the described hosts, and the states of their nodes."""
    hosts = selected(read_hosts(settings), options.only, options.label)
    states = _states(settings)
    if options.json:
        print(json.dumps([_as_row(host, states) for host in hosts]))
        return 0
    if not hosts:
        print("no hosts are described (mesh init writes a file with examples)")
        return 0
    head = ("node", "address", "processors", "role", "mode", "state", "labels")
    rows = [
        (
            host.name,
            f"{host.user}@{host.address}" if host.user else host.address,
            "auto" if host.processors < 0 else str(host.processors),
            host.role,
            host.mode or "-",
            _state_text(states.get(host.name)),
            " ".join(host.labels),
        )
        for host in hosts
    ]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 1 << 20
    print("\n".join(line.rstrip() for line in table(head, rows, width, right=(2,))))
    return 0


def _states(settings: Settings) -> dict[str, dict[str, Any]]:
    from db.views.viewer import open_viewer

    try:
        with open_viewer(settings.database, settings.login) as viewer:
            return {
                node.name: {"state": node.state, "reason": node.reason, "drain_at": node.drain_at}
                for node in viewer.read().nodes
            }
    except StoreError:
        return {}


def _state_text(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    at = found["drain_at"]
    return str(found["state"]) + ("" if at is None else time.strftime(", drain %m-%d %H:%M", time.localtime(at)))


def _as_row(host: Host, states: dict[str, dict[str, Any]]) -> dict[str, Any]:
    row = host._asdict()
    row.update({key: "auto" for key in ("processors", "gpus") if row[key] < 0})
    return {**row, "state": None, "reason": None, "drain_at": None, **states.get(host.name, {})}


def add(settings: Settings, options: argparse.Namespace) -> int:
    """Add hosts to the description."""
    added = inventory.add(settings, {"name": options.name, **inventory.values_of(options.value)})
    return _say(settings, "added", [host.name for host in added])


def remove(settings: Settings, options: argparse.Namespace) -> int:
    """Remove hosts from the description."""
    when = "a mesh that is up keeps its nodes until mesh down"
    return _say(settings, "removed", inventory.remove(settings, options.names), when)


def change(settings: Settings, options: argparse.Namespace) -> int:
    """Change keys of described hosts."""
    return _say(settings, "changed", inventory.change(settings, options.names, inventory.values_of(options.value)))


def _say(settings: Settings, what: str, names: list[str], when: str = "the next mesh up takes it up") -> int:
    some = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    print(f"{what} in {settings.file}: {some}; {when}")
    return 0

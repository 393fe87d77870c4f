"""``mesh up`` and ``mesh down``."""

import argparse
import sys

from console.deploy import personal
from console.errors import ConsoleError
from console.settings import Settings


def up(settings: Settings, options: argparse.Namespace) -> int:
    """Start the mesh, or say that it is up."""
    done = personal.up(settings, auto=options.auto)
    if options.auto:
        return 0  # yod speaks for itself
    if done.started:
        print(f"mesh up: {done.size} ({done.took_s:.1f} s)")
    elif done.adopted:
        print(f"mesh up: {done.size}, under a new keeper ({done.took_s:.1f} s)")
    else:
        print(f"mesh is up already: {done.size}")
    return 0


def down(settings: Settings, options: argparse.Namespace) -> int:
    """End the mesh; with launches on it only by --force or a yes."""
    running = 0 if options.force else personal.launches(settings)
    if running and not _sure(running):
        return 1
    print("mesh down" if personal.down(settings, force=True) else "no mesh is up")
    return 0


def _sure(running: int) -> bool:
    are = "1 launch runs" if running == 1 else f"{running} launches run"
    if not sys.stdin.isatty() or not sys.stderr.isatty():
        raise ConsoleError(f"{are} on this mesh", "mesh down --force ends them too", exit_status=1)
    print(f"{are} on this mesh. End them too? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")

"""``mesh console``."""

import argparse
import gc
import os
import sys
from typing import Any

from console.errors import ConsoleError
from console.settings import Settings


def console(settings: Settings, options: argparse.Namespace) -> int:
    """Run the full-screen console."""
    served = "TEXTUAL_DRIVER" in os.environ  # mesh serve: a browser is the terminal
    if not served and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConsoleError(
            "the console needs a terminal", "showmesh, pingd and mesh status need no terminal", exit_status=2
        )
    gc.disable()  # until the first picture: there is no garbage yet, and collections take a fifth of the start
    from console.tui.app import ConsoleApp, run

    make: Any = ConsoleApp
    if options.replay:
        from functools import partial

        from console.tui.replay_app import ReplayApp
        from console.tui.sources.replay import Player

        make = partial(ReplayApp, player=Player(options.replay, options.speed))
    return int(run(settings, read_only=options.read_only, theme=options.theme or "", make=make) or 0)

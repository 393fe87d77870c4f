"""``mesh debug``: a debugger on one rank, on any node, in this terminal."""

import argparse

from console.launch.attach.debugger import Debugging
from console.launch.daemons.connect import stay_on_side
from console.settings import Settings


def debug(settings: Settings, options: argparse.Namespace) -> int:
    """Run the debugger until it ends."""
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    stay_on_side(settings, options.launcher)
    return Debugging(settings.run_dir, options.launcher, options.rank, words or ["gdb"]).run()

"""``mesh init``: writes an initial configuration file."""

import argparse

from console.deploy.hosts import inventory
from console.settings import Settings


def init(settings: Settings, options: argparse.Namespace) -> int:
    """Write a configuration file with comments."""
    inventory.init(options.file, options.host)
    hosts = "" if options.host else "say which hosts there are, then "
    print(f"{options.file} is written: {hosts}mesh doctor, then mesh up")
    return 0

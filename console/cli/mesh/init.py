"""``mesh init``: writes an initial configuration file."""

import argparse

from console.deploy.hosts import inventory
from console.errors import UsageError
from console.launch.options import hostfile
from console.launch.options.lists import LOOPBACK
from console.settings import Settings
from redmesh.text import counted


def init(settings: Settings, options: argparse.Namespace) -> int:
    """Write a configuration file with comments."""
    sizes = hostfile.read(options.hostfile, "--host") if options.hostfile else {}
    if sizes and sizes.keys() <= {"localhost", *LOOPBACK}:
        told = f"{options.hostfile} names no host besides this machine"
        raise UsageError(told, "mesh up starts a mesh on this machine without a configuration")
    inventory.init(options.file, options.host, sizes)
    found = f" with {counted(len(sizes), 'host')} of {options.hostfile}" if sizes else ""
    hosts = "" if options.host or sizes else "say which hosts there are, then "
    print(f"{options.file} is written{found}: {hosts}mesh doctor, then mesh up")
    return 0

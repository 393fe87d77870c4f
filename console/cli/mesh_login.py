"""``mesh login``: other login processors of a mesh."""

import argparse
import json
import os

from console.deploy import logins
from console.deploy.trust import write_private
from console.settings import Settings


def grant(settings: Settings, options: argparse.Namespace) -> int:
    """Write the file that another machine needs to be a login processor of this mesh."""
    given = logins.grant(settings, options.name, cpas=options.own_cpas)
    write_private(os.path.abspath(options.file), json.dumps(given).encode("ascii"))
    print(f"{options.file} lets one machine be {options.name}: take it there, run mesh login join, and remove it")
    return 0


def join(settings: Settings, options: argparse.Namespace) -> int:
    """Be the login processor that the file is for."""
    name = logins.join(settings, logins.read_file(options.file))
    print(f"this is {name} now: yod launches from here")
    if os.path.exists(logins.view_file(settings, name)):
        print(f"showmesh and the console: database = the line in {logins.view_file(settings, name)}")
    return 0

"""``mesh login``: other login processors of a mesh."""

import argparse
import json
import os
import sys

from console.deploy.mesh import logins
from console.deploy.trust.authority import write_private
from console.settings import Settings


def grant(settings: Settings, options: argparse.Namespace) -> int:
    """Write the file that another machine needs to become a login processor of this mesh."""
    given = logins.grant(settings, options.name, cpas=options.own_cpas)
    write_private(os.path.abspath(options.file), json.dumps(given).encode("ascii"))
    print(f"{options.file} lets one machine be {options.name}: take it there, run mesh login join, and remove it")
    return 0


def join(settings: Settings, options: argparse.Namespace) -> int:
    """Make this machine the login processor that the file names."""
    name = logins.join(settings, logins.read_file(options.file))
    print(f"this is {name} now: yod launches from here")
    if os.path.exists(logins.view_file(settings, name)):
        print(f"showmesh and the console: database = the line in {logins.view_file(settings, name)}")
    return 0


def revoke(settings: Settings, options: argparse.Namespace) -> int:
    """Revoke a login processor; returns 1 if something of it is left."""
    from console.deploy.mesh import revocation

    def say(line: str) -> None:
        print(line, file=sys.stderr if options.json else sys.stdout, flush=True)

    force = options.force
    while True:
        try:
            done = revocation.revoke(settings, options.name, say, force=force)
            break
        except revocation.LaunchesRun as running:
            if force or options.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise
            print(f"{running.message}. End them? [y/N] ", end="", file=sys.stderr, flush=True)
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                return 1
            force = True
    if options.json:
        print(json.dumps({"login": options.name, **done._asdict()}))
    elif done.down:
        print(f"{', '.join(done.down)}: down, and not told of new keys; mesh up gives them their files")
    return 1 if done.left else 0

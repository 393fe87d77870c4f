"""``mesh trust``: the mesh's certificates and keys."""

import argparse
import json
import os
import time
from typing import Any

from console.deploy.trust.authority import Stage, authority
from console.errors import ConsoleError
from console.settings import Settings, as_root
from redmesh.sanitise import clean


def show(settings: Settings, options: argparse.Namespace) -> int:
    """Print the accepted CAs, and the stage of a key rotation. Users of a system mesh are told whose the keys are."""
    if settings.system and os.geteuid():
        return _of_root(settings, options)
    if not os.path.exists(os.path.join(settings.state_dir, "trust", "ca.key")):
        raise ConsoleError(
            "this mesh has no certificates: its nodes are on this machine", "mesh up of a mesh over SSH creates them"
        )
    keys = authority(settings.state_dir, settings.mesh)
    told: dict[str, Any] = {
        "mesh": settings.mesh,
        "directory": keys.directory,
        "stage": keys.stage.value,
        "fingerprints": keys.fingerprints,
        "expires_at": keys.expires_at,
        "revoked": sorted(keys.revoked),
    }
    if options.json:
        print(json.dumps(told))
        return 0
    print(f"mesh {settings.mesh}, keys in {keys.directory}")
    for number, fingerprint in enumerate(keys.fingerprints):
        what = "in force" if number == 0 else ("next" if keys.stage is Stage.INTRODUCED else "former")
        print(f"{what:9} SHA-256 {fingerprint}")
    print(f"until {time.strftime('%Y-%m-%d', time.gmtime(keys.expires_at))}")
    if keys.stage is not Stage.SETTLED:
        print("a change of keys is under way: mesh trust rotate continues it")
    for name in sorted(keys.revoked):
        print(f"{clean(name)} was revoked, and knows keys that are accepted: mesh login revoke {clean(name)} goes on")
    return 0


def _of_root(settings: Settings, options: argparse.Namespace) -> int:
    """A user may not even see which files root has: that there are none would be a guess."""
    if options.json:
        print(json.dumps({"mesh": settings.mesh, "of_root": True}))
    else:
        ask = as_root(settings, "mesh trust show")
        print(f"mesh {settings.mesh} is root's, for all users: its keys are root's too ({ask})")
    return 0


def rotate(settings: Settings, options: argparse.Namespace) -> int:
    """Rotate the CA and the keys of a running mesh."""
    from console.deploy.trust.key_rotation import rotate as change

    down = change(settings, (lambda _line: None) if options.json else print)
    if options.json:
        print(json.dumps({"down": down}))
    elif down:
        print(f"{', '.join(down)}: down, and not told; mesh up gives them their files")
    return 0

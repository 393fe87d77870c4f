"""Login processors without a CPA (row A12): what one needs is granted here, as a file, and taken there.

The file holds a private key and names the CPAs; it goes to the other machine by scp, as any key would.
"""

import json
import os
from typing import Any

from agents.link.sockets import own_directory
from console.deploy import personal
from console.deploy.plan import cpa_url
from console.deploy.schema import extend
from console.deploy.trust import TrustError, authority, identity, write_private
from console.errors import ConsoleError
from console.settings import Settings
from db.connection import Store, open_store
from db.machine import FIRST_GRANTED

#: What its keeper and its RCA take over from the mesh's own.
SHARED = ("mesh", "fanout", "silent_s", "register_again_s")
VERSION = 1


def grant(settings: Settings, name: str) -> dict[str, Any]:
    """What login processor ``name`` needs, its key among it; the system database knows it from now on.

    ConsoleError where no CPA can be reached from elsewhere. StoreError.
    """
    config = personal.read_config(settings)
    if config is None or not personal.lives(config):
        raise ConsoleError("no mesh is up", "mesh up")
    listen = str(config.get("cpa_listen") or "")
    if not listen:
        raise ConsoleError(
            "the CPAs of this mesh are reached on this machine alone",
            "cpa_port in mesh.toml, then mesh down and mesh up",
        )
    keys = authority(settings.state_dir, settings.mesh)
    own = keys.issue([identity(settings.mesh, "rca", name)], [])
    with open_store(cpa_url(settings)) as store:
        known = _known(store)
    if known.get(name, "login") != "login":
        raise ConsoleError(f"{name} is a {known[name]} node of this mesh", "another name, as the processor's own is")
    if name not in known:
        count = sum(role == "login" for role in known.values())
        node = {"id": FIRST_GRANTED + count, "name": name, "role": "login", "processors": []}
        extend(cpa_url(settings), config["boot_id"], [node])
    host, _, port = listen.rpartition(":")
    cpas = [f"tls://{host}:{int(port) + number}/cpa/{config['login']}" for number in range(int(config.get("cpas", 1)))]
    shared = {key: config[key] for key in SHARED if key in config}
    # its keeper is of a life of its own: that it ends says nothing of the mesh
    return {
        "version": VERSION,
        "keeper": {**shared, "boot_id": f"{config['boot_id']}-{name}", "login": name, "cpas_afar": cpas},
        "ca.pem": keys.ca_pem.decode("ascii"),
        "login.pem": own.decode("ascii"),
    }


def _known(store: Store) -> dict[str, str]:
    return dict(store.read("SELECT name, role FROM node"))


def granted(settings: Settings) -> list[str]:
    """Login processors that were granted it. StoreError."""
    with open_store(cpa_url(settings)) as store:
        return [name for (name,) in store.read("SELECT name FROM node WHERE id >= ? ORDER BY id", (FIRST_GRANTED,))]


def join(settings: Settings, given: dict[str, Any]) -> str:
    """Be a login processor of the mesh that ``given`` is of, and start what that needs; its name. ConsoleError."""
    try:
        wanted = dict(given["keeper"])
        files = {name: str(given[name]).encode("ascii") for name in ("ca.pem", "login.pem")}
        name, mesh = str(wanted["login"]), str(wanted["mesh"])
        if given["version"] != VERSION or not wanted["cpas_afar"] or not (mesh.isalnum() and mesh.isascii()):
            raise ValueError(given["version"])
    except (KeyError, TypeError, ValueError, UnicodeError):
        raise TrustError("this is no file of mesh login grant", "mesh login grant, of the same version") from None
    personal.make_directories(settings)
    with personal.locked(settings):
        there = personal.read_config(settings)
        if there is not None and personal.lives(there):
            if not there.get("cpas_afar"):
                raise ConsoleError("a mesh of this machine is up here", "mesh down, then join the other one")
            personal.down_locked(settings, force=True)  # it goes on with the new keys; launches are not asked
        run = os.path.join(os.path.dirname(settings.new_run_dir), mesh)
        config = {**wanted, "auto": False, "run": run, "state": settings.state_dir, "nodes": [], "cpas": 0}
        personal.write_config(settings, config)
        trust = os.path.join(settings.state_dir, "trust")
        own_directory(trust)
        for file, content in files.items():
            write_private(os.path.join(trust, file), content)
        write_private(os.path.join(run, "ca.pem"), files["ca.pem"])
        personal.spawn_keeper(config)
        personal.until(
            lambda: personal.answers(os.path.join(run, "cpa-0.sock")), personal.UP_S, "the RCA of this processor"
        )
    return name


def read_file(path: str) -> dict[str, Any]:
    """What :func:`grant` gave, from the file at ``path``. ConsoleError."""
    try:
        with open(path, encoding="ascii") as file:
            found = json.load(file)
        return dict(found)
    except OSError as error:
        raise ConsoleError(f"{path}: {error.strerror}") from None
    except (ValueError, TypeError):
        raise TrustError(f"{path} is no file of mesh login grant") from None

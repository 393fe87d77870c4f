"""Further login processors of a mesh: ``grant`` makes a file on the first one, and ``join`` reads it on the new one.

Each has an RCA that also receives nodes' heartbeats. Its requests go to the CPAs of the first login processor, or of
another one if that is lost; with access to the system database it has CPAs of its own. The file contains private keys;
copy it by scp, like any private key.
"""

import json
import os
from collections.abc import Sequence
from typing import Any

from agents.link.sockets import own_directory
from agents.wire import heartbeat
from agents.wire.address import parse
from agents.wire.errors import AgentError
from console.deploy.mesh.cpas import announce_change
from console.deploy.mesh.plan import joined, route_to
from console.deploy.personal import evidence_of_life, lifecycle
from console.deploy.personal.plan import cpa_url
from console.deploy.personal.schema import extend
from console.deploy.trust.authority import TrustError, authority, identity, write_private
from console.errors import ConsoleError
from console.settings import Settings
from db.machine.nodes import FIRST_GRANTED
from db.schema.login_views import label
from db.store.store import open_store
from db.views import deployment_reads
from redmesh.settings.keeper_file import CpaSettings, KeeperFile, NodeEntry, ServedSettings, read_keeper_file
from redmesh.start_command import ROOT

VERSION = 2
#: What a grant does not know: the new login processor adds it.
_NOT_YET: dict[str, Any] = {"run": "", "state": "", "nodes": ()}


def grant(settings: Settings, name: str, *, cpas: int = 0) -> dict[str, Any]:
    """Add login processor ``name`` to the system database; return its grant, which includes its keys.

    ``cpas``: how many CPAs it gets. Raises ConsoleError if other machines cannot reach a CPA or, with ``cpas``, the
    database; StoreError.
    """
    config = lifecycle.read_config(settings)
    if config is None or not evidence_of_life.lives(config):
        raise ConsoleError("no mesh is up", "mesh up")
    if config.granted:
        raise ConsoleError("this login processor was granted by another one", f"mesh login grant {name} there")
    url = cpa_url(settings)
    if cpas and url.startswith("sqlite:"):
        raise ConsoleError("SQLite is reached on one machine alone", "MySQL or MariaDB: docs/database.md")
    places = [] if cpas else _places_of_cpas(config)
    files = _files(settings, name, cpa=bool(cpas))
    _enter(url, config, name)
    announce_change(settings)
    # The new keeper gets a boot id of its own, so that its end is not the mesh's end.
    keeper = KeeperFile(
        **config.values_of(ServedSettings),
        **(config.values_of(CpaSettings) if cpas else {}),
        managers=config.managers if cpas else (),
        topology=config.topology if cpas else None,
        mesh=config.mesh,
        users=config.users,
        register_again_s=config.register_again_s,
        boot_id=f"{config.boot_id}-{name}",
        login=name,
        granted=True,
        cpas=cpas,
        cpas_afar=tuple(places),
        # The port of CPAs for login processors without one, on every login processor (agents/rca/logins/routes.py).
        cpa_port=int(config.cpa_listen.rpartition(":")[2] or 0),
        **_NOT_YET,
    )
    near = config.rca[0] if config.rca else ""  # empty if every node is on this machine
    return {
        "version": VERSION, "keeper": keeper.to_json(), "near": near, "url": url if cpas else "", "files": files,
        "view": _view(settings, name),
    }  # fmt: skip


def _view(settings: Settings, name: str) -> str:
    """The database URL for the viewers of login processor ``name``, or "": never a URL that shows the whole machine."""
    try:
        with open(view_file(settings, name), encoding="utf-8") as file:
            return file.readline().strip()
    except FileNotFoundError:
        return ""


def view_file(settings: Settings, login: str) -> str:
    """The file with the URL of a login processor's viewers; ``mesh db init --view-login`` creates it."""
    return f"{settings.state_dir}/view-{label(login)}.url"


def _places_of_cpas(config: KeeperFile) -> list[str]:
    if not config.cpa_listen:
        raise ConsoleError(
            "the CPAs of this mesh are reached on this machine alone",
            "cpa_port in mesh.toml, then mesh down and mesh up; or --cpas, for some of its own",
        )
    host, _, port = config.cpa_listen.rpartition(":")
    return [f"tls://{host}:{int(port) + number}/cpa/{config.login}" for number in range(config.cpas)]


def _files(settings: Settings, name: str, *, cpa: bool) -> dict[str, str]:
    keys = authority(settings.state_dir, settings.mesh)
    files = keys.login_files(name, [])
    if not cpa:  # without CPAs it signs no credentials
        del files["master.key"]
        files["login.pem"] = keys.issue([identity(settings.mesh, "rca", name)], [])
    return {file: content.decode("ascii") for file, content in files.items()}


def _enter(url: str, config: KeeperFile, name: str) -> None:
    """Add the login processor to the system database, under an unused id."""
    with open_store(url) as store:
        known = {node.name: (node.role, node.id) for node in deployment_reads.places(store)}
        # Launches and partitions of a revoked login processor keep its id in the history.
        used = deployment_reads.last_login(store)
    role = known.get(name, ("login", 0))[0]
    if role != "login" or name == config.login:
        what = "this login processor" if role == "login" else f"a {role} node of this mesh"
        raise ConsoleError(f"{name} is {what}", "another name, as the processor's own is")
    if name not in known:
        number = 1 + max(used, *(number for _, number in known.values()))
        node = NodeEntry(id=max(FIRST_GRANTED, number), name=name, role="login", processors=())
        extend(url, config.boot_id, [node])


def join(settings: Settings, given: dict[str, Any]) -> str:
    """Make this machine the login processor of the grant ``given``, and start its daemons; returns its name.

    If it is that login processor already, with the same keys, nothing changes. Raises ConsoleError.
    """
    try:
        wanted = read_keeper_file({**_NOT_YET, **given["keeper"]})
        near, url = str(given["near"]), str(given["url"])
        view = str(given.get("view", ""))
        files = {name: str(given["files"][name]).encode("ascii") for name in given["files"]}
        name, mesh = wanted.login, wanted.mesh
        bad = set(files) - {"ca.pem", "login.pem", "beat.key", "master.key"} or not (wanted.cpas_afar or url)
        if given["version"] != VERSION or bad or not (mesh.isalnum() and mesh.isascii()):
            raise ValueError(given["version"])
    except (KeyError, TypeError, ValueError, UnicodeError):
        raise TrustError("this is not a file of mesh login grant", "mesh login grant, of the same version") from None
    _need_mode(settings, wanted)
    lifecycle.make_directories(settings)
    with lifecycle.locked(settings):
        config = _config(settings, wanted, near, url)
        there = lifecycle.read_config(settings)
        if there is not None and evidence_of_life.lives(there):
            if there == config and lifecycle.keeper_lives(there) and _has(config, files):
                return name
            _leave(settings, there)
        lifecycle.write_config(settings, config)
        _write_files(config, files, url)
        if view:
            lifecycle.write_private(view_file(settings, name), view + "\n")
        lifecycle.spawn_keeper(config)
        place = os.path.join(config.run, "cpa-0.sock")
        lifecycle.until(
            lambda: evidence_of_life.answers(place), lifecycle.UP_S, "nobody takes requests on this processor"
        )
    return name


def _need_mode(settings: Settings, wanted: KeeperFile) -> None:
    """Raise ConsoleError unless both meshes are in system mode, or neither is: root joins a system mesh."""
    if wanted.users != bool(settings.system and os.geteuid() == 0):
        if not wanted.users:
            raise ConsoleError("that mesh is its owner's own, and this is system mode", "without `system`, mesh.toml")
        raise ConsoleError("that mesh is everybody's", "as root, with `system` in this machine's configuration")
    if settings.system and settings.mesh != wanted.mesh:
        raise ConsoleError(
            f"`system` is another directory there: users here would look for mesh {settings.mesh}",
            "the same `system` in both configurations",
        )


def _leave(settings: Settings, there: KeeperFile) -> None:
    if not there.granted:
        raise ConsoleError("a mesh of this machine is up here", "mesh down, then join the other one")
    lifecycle.down_locked(settings, force=True)  # even if launches run: it starts again, with the new keys


def _has(config: KeeperFile, files: dict[str, bytes]) -> bool:
    """True if this machine has the keys in ``files``. The certificate is not compared: each grant has a new one."""
    for file in set(files) - {"login.pem"}:
        try:
            with open(os.path.join(config.state, "trust", file), "rb") as there:
                if there.read() != files[file]:
                    return False
        except OSError:
            return False
    return True


def _config(settings: Settings, wanted: KeeperFile, near: str, url: str) -> KeeperFile:
    """The ``keeper.json`` of the new login processor (docs/architecture.md)."""
    address = settings.login_address or _own_address(near, wanted.cpas_afar)
    port = settings.cpa_port or wanted.cpa_port
    return wanted.replace(
        run=os.path.join(os.path.dirname(settings.new_run_dir), wanted.mesh),
        state=settings.state_dir,
        rca=(joined((address, settings.agent_port)),) if near else (),
        cleanup=settings.cleanup,
        installed=ROOT,
        database_file=f"{settings.state_dir}/cpa.url" if url else "",
        cpa_listen=joined((address, port)) if url and port else "",
    )


def _own_address(near: str, cpas: Sequence[str]) -> str:
    """This machine's address on the route to the mesh; nodes use it too. Raises ConsoleError."""
    try:
        host = parse(cpas[0]).host if cpas else heartbeat.split_address(near)[0]
    except AgentError as error:
        raise TrustError(error.message, "mesh login grant, of the same version") from None
    address = route_to(host)
    if not address:
        raise ConsoleError(
            f"no network route leads from here to {host}", "login_address in mesh.toml says where nodes reach us"
        )
    return address


def _write_files(config: KeeperFile, files: dict[str, bytes], url: str) -> None:
    trust = os.path.join(config.state, "trust")
    own_directory(trust)
    for file in ("login.pem", "beat.key", "master.key", "ca.pem"):
        path = os.path.join(trust, file)
        if file in files:
            write_private(path, files[file])
        elif os.path.lexists(path):
            os.unlink(path)  # an earlier grant had more files
    if url:
        lifecycle.write_private(config.database_file, url + "\n")
    public = os.path.join(config.run, "ca.pem")
    write_private(public, files["ca.pem"])
    if config.users:
        os.chmod(public, 0o644)  # every user's yod verifies nodes with it


def read_file(path: str) -> dict[str, Any]:
    """Read a grant from the file at ``path``; ``-``: standard input. Raises ConsoleError."""
    try:
        with open(0 if path == "-" else path, encoding="ascii") as file:
            found = json.load(file)
        return dict(found)
    except OSError as error:
        raise ConsoleError(f"{path}: {error.strerror}", "mesh login grant NAME FILE writes one") from None
    except (ValueError, TypeError):
        raise TrustError(f"{path} is not a file of mesh login grant") from None

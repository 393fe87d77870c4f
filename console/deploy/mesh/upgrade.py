"""Installs this version's agent on a running mesh, while its launches continue.

Keepers and PCTs are killed (SIGKILL), because after SIGTERM they would end the launches; their successors adopt what
runs. Running launch children keep their version until they exit; adjacent versions are compatible.
"""

import json
import signal
import time
from collections.abc import Sequence

from agents.wire.messages import OLDEST, PROTOCOL
from console.deploy.agent import build
from console.deploy.hosts.description import read_hosts, selected
from console.deploy.hosts.host_states import Event, HostFailed, State
from console.deploy.mesh.lifecycle import Outcome
from console.deploy.mesh.waiting import await_them
from console.deploy.personal import evidence_of_life, lifecycle
from console.deploy.personal.plan import cpa_url
from console.deploy.ssh.worker_pool import HostTask, Report, WorkerPool, crew
from console.errors import ConsoleError
from console.settings import Settings
from db.schema.migrate import migrate, version
from db.schema.version import SCHEMA_VERSION
from db.store.store import Store, open_store
from db.views.daemon_reads import Life
from db.views.deployment_reads import lives
from redmesh.settings.keeper_file import KeeperFile, ServedSettings, read_keeper_file

#: The most seconds for a node to register again.
AGAIN_S = 15.0


def upgrade(settings: Settings, report: Report, only: str = "", labels: Sequence[str] = ()) -> Outcome:
    """Replace the agents of the hosts, then the daemons here. Raises ConsoleError if no mesh is up."""
    begun = time.monotonic()
    hosts = selected(read_hosts(settings), only, labels)
    lifecycle.make_directories(settings)
    with lifecycle.locked(settings), crew(settings, report) as workers:
        config = lifecycle.read_config(settings)
        if config is None or not evidence_of_life.lives(config):
            raise ConsoleError("no mesh is up", "mesh up brings this version", exit_status=1)
        if evidence_of_life.lives_elsewhere(config):
            raise ConsoleError(
                f"the mesh is up, but none of it is seen from here: its keeper holds {settings.state_dir}/mesh.lock",
                "mesh upgrade on the host, or in the container, where mesh up was run",
            )
        errands = workers.errands(host for host in hosts if _is_of(host.name, config))
        workers.each(errands, workers.look)
        with open_store(cpa_url(settings), any_schema=True) as store:
            before = lives(store)
        workers.each(errands, lambda errand: _replace(errand, workers, config))
        if not only and not labels:
            _change_login(settings, config, before)
        _await(settings, config, errands, before)
        return Outcome(errands, config, True, time.monotonic() - begun)


def _is_of(name: str, config: KeeperFile) -> bool:
    return any(node.name == name for node in config.nodes)


def _replace(errand: HostTask, workers: WorkerPool, config: KeeperFile) -> None:
    """Replace the agent of one host, unless it is current. Raises HostFailed."""
    facts = errand.facts
    theirs = _config_of(errand)
    if not facts["keeper"] or theirs is None or theirs.mesh_boot != config.boot_id:
        raise HostFailed("agent", "no agent of this mesh runs there", "mesh up")
    refuse_strangers(theirs.protocol)
    program = build.agent_for(str(facts["tag"]), build.archives(workers.settings))
    errand.handle(Event.ORDERED)
    current = workers.settings.values_of(ServedSettings)
    if facts["agent"] == program.sha and theirs.values_of(ServedSettings) == current:
        errand.handle(Event.DONE)
        return
    errand.ask(
        "replace",
        blobs={} if program.sha in facts["agents"] else {"agent": program.content},
        sha=program.sha,
        config=json.dumps(theirs.replace(**current, protocol=PROTOCOL).to_json()),
    )
    errand.handle(Event.STARTED)


def refuse_strangers(theirs: int, ours: int = PROTOCOL, oldest: int = OLDEST) -> None:
    """Raise HostFailed unless an agent with protocol ``theirs`` is compatible with this version."""
    if not oldest <= theirs <= ours + 1:
        told = f"its agent speaks protocol {theirs}, this version {oldest} to {ours}"
        raise HostFailed("protocol", told, "mesh down with the version it was started by, then mesh up")


def _config_of(errand: HostTask) -> KeeperFile | None:
    try:
        return read_keeper_file(json.loads(errand.facts["config"]))
    except ValueError:
        return None


def _change_login(settings: Settings, config: KeeperFile, before: dict[str, Life]) -> None:
    """Replace CPAs, RCA, keeper and PCTs here, and migrate the schema; interrupted requests are repeated."""
    with open_store(cpa_url(settings), any_schema=True) as store:
        there = version(store)
    if there != SCHEMA_VERSION:
        migrate(cpa_url(settings), make_file=False)  # before anything is ended, because the account may lack the rights
    lifecycle.write_config(settings, config.replace(**settings.values_of(ServedSettings)))
    daemons = lifecycle.daemons(config)
    pcts = {node.name for node in config.nodes if not node.address}
    lifecycle.kill(daemons.pop("keeper", 0), signal.SIGKILL)  # after SIGTERM it would end the mesh
    for name, pid in daemons.items():  # after SIGTERM a PCT would end its launches
        lifecycle.kill(pid, signal.SIGKILL if name in pcts else lifecycle.end_signal(config))
    lifecycle.spawn_keeper(config)
    lifecycle.until(lambda: lifecycle.keeper_lives(config), AGAIN_S, "the keeper does not answer")
    # Wait for the CPAs too: otherwise the next launch may find none, because no local node is waited for.
    cpas = [f"{config.run}/{name}.sock" for name in daemons if name.startswith("cpa-")]
    lifecycle.until(lambda: all(map(evidence_of_life.answers, cpas)), AGAIN_S, "the CPAs do not answer")
    with open_store(cpa_url(settings)) as store:

        def again() -> bool:
            now = lives(store)
            return all(now.get(name) != before.get(name) for name in pcts)

        lifecycle.until(again, AGAIN_S + lifecycle.UP_EACH_S * len(pcts), "nodes here have not registered again")


def _await(settings: Settings, config: KeeperFile, errands: Sequence[HostTask], before: dict[str, Life]) -> None:
    """Wait until every changed node has registered again."""
    waiting = {errand.name: errand for errand in errands if errand.state is State.STARTED}

    def changed(store: Store) -> list[str]:
        now = lives(store)
        return [name for name in waiting if now.get(name, before[name]) != before[name]]

    await_them(cpa_url(settings), config, waiting, AGAIN_S, changed)

"""A mesh over SSH: brings it up on every reachable host, and takes it down with nothing left behind.

As for the personal mesh, ``up`` and ``down`` hold ``STATE/up.lock``, and the login processor's daemons are started and
ended by console/deploy/personal/lifecycle.py.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from agents.managers import registry
from console.deploy.agent import build
from console.deploy.hosts.allocation import find_manager
from console.deploy.hosts.description import Host, read_hosts, selected
from console.deploy.hosts.host_state_file import HostStateFile
from console.deploy.hosts.host_states import Event, HostFailed, State
from console.deploy.managed import steps
from console.deploy.managed.notice import give_notice
from console.deploy.mesh import login_hosts, plan, sharing
from console.deploy.mesh.cpas import announce_change
from console.deploy.mesh.waiting import await_nodes
from console.deploy.personal import evidence_of_life, lifecycle
from console.deploy.personal.plan import cpa_url, size_of
from console.deploy.personal.schema import extend
from console.deploy.ssh.worker_pool import HostTask, Report, WorkerPool, crew
from console.deploy.trust.authority import authority
from console.errors import ConsoleError
from console.jobs.objects import directory_of
from console.settings import Settings, state_directory
from db.store.store import open_store
from db.views.deployment_reads import registered
from redmesh.settings.keeper_file import KeeperFile, NodeEntry

#: Bytes that the agent, its log and its keys need on a host.
ROOM = 8 << 20
#: Seconds for the first CPA to listen before hosts are started, and between two checks.
_CPA_S, _POLL_S = 1.0, 0.01


class Outcome(NamedTuple):
    """The result of a command: every host's task, and for ``mesh up`` the mesh."""

    errands: list[HostTask]
    config: KeeperFile | None
    started: bool
    took_s: float

    @property
    def failed(self) -> list[HostTask]:
        """Tasks of hosts that failed."""
        return [errand for errand in self.errands if errand.state is State.FAILED]


class LaunchesRun(ConsoleError):
    """The mesh cannot be ended without ``force``, because launches run on it."""

    code = "busy"


def up(settings: Settings, report: Report, only: str = "", labels: Sequence[str] = (), *, accept_new: bool) -> Outcome:
    """Bring the mesh up, or the missing hosts of a running one. Raises ConsoleError if no host is usable."""
    begun = time.monotonic()
    if settings.system:
        plan.need_system(settings)
    described = read_hosts(settings)
    hosts = [host for host in described if host.role != login_hosts.ROLE]
    chosen = selected(described, only, labels)
    if not chosen:
        raise ConsoleError("there is no such host to bring up", "mesh nodes list", exit_status=2)
    lifecycle.make_directories(settings)
    starter = _starter(settings)
    with (
        lifecycle.locked(settings),
        crew(settings, report, accept_new=accept_new, starter=starter) as workers,
    ):
        config = _living(settings)
        ledger = HostStateFile(settings.state_dir)
        if config is not None and settings.allocation:
            chosen = _not_up(settings, chosen)
        errands = workers.errands(chosen)
        workers.each(errands, workers.look)
        all_of_them, (errands, logins) = errands, login_hosts.parted(errands)
        workers.each(errands, lambda errand: _check(errand, settings))
        _refuse_one_place_for_two(errands, settings)
        started = config is None
        if started:
            _need_one(errands)
        if config is None:
            config = _begin(settings, hosts, errands, ledger, starter)
        else:
            if not lifecycle.adopt(settings, config):
                lifecycle.try_now(config)
            config = _grow(settings, config, hosts, errands, ledger)
        try:
            _place_all(workers, settings, config, errands, ledger)
            await_nodes(cpa_url(settings), config, errands)
            if started:
                _need_one(errands)
            login_hosts.join_all(workers, settings, logins, ledger)
        except BaseException:  # including an interrupt: do not leave a partial mesh
            if started:
                _undo(workers.quiet(), ledger, {errand.name for errand in errands})
            raise
        return Outcome(all_of_them, config, started, time.monotonic() - begun)


def _starter(settings: Settings) -> steps.Steps | None:
    """What starts processes on a batch job's hosts; None for hosts that are reached over SSH."""
    return steps.Steps(settings) if settings.allocation else None


def _not_up(settings: Settings, hosts: list[Host]) -> list[Host]:
    """The hosts of a job whose nodes are not up; only on these does the manager start processes."""
    with open_store(cpa_url(settings)) as store:
        up_there = set(registered(store))
    return [host for host in hosts if host.name not in up_there]


def _living(settings: Settings) -> KeeperFile | None:
    """keeper.json of the running mesh; None if there is none. Raises ConsoleError for a mesh of this machine alone."""
    config = lifecycle.living_config(settings)
    if config is None:
        return None
    if config.granted:
        raise ConsoleError(f"this is login processor {config.login} of another mesh", "mesh down leaves it")
    if not config.rca:
        raise ConsoleError(f"a mesh of this machine is up already: {size_of(config)}", "mesh down, then mesh up")
    return config


def _check(errand: HostTask, settings: Settings) -> None:
    facts = errand.facts
    policy = sharing.judge(errand.facts)
    if policy.refusal and not facts["keeper"]:  # what runs there runs on
        raise HostFailed("policy", policy.refusal, policy.hint)
    if not facts["writable"]:
        raise HostFailed("permission", f"{facts['state']} cannot be made there", "XDG_STATE_HOME of that account")
    if 0 <= facts["state_free"] < ROOM:
        raise HostFailed("space", f"the file system of {facts['state']} is full", "the agent needs 8 MiB there")
    plan.agent_place(errand, settings)


def _refuse_one_place_for_two(errands: Sequence[HostTask], settings: Settings) -> None:
    # Two names in the configuration may mean the same host.
    taken: dict[tuple[str, tuple[str, int]], str] = {}
    for errand in errands:
        if errand.state is State.FAILED:
            continue
        place = plan.agent_place(errand, settings)
        first = taken.setdefault((str(errand.facts["boot"]), place), errand.name)
        if first != errand.name:
            told = f"the agent of {first} is to listen at {plan.joined(place)} too: are both the same host?"
            errand.fail(HostFailed("port", told, "give one of them another agent_port"))


def _need_one(errands: Sequence[HostTask]) -> None:
    if all(errand.state is State.FAILED for errand in errands):
        raise NoHost(list(errands))


class NoHost(ConsoleError):
    """No host is usable; ``errands`` have the reasons."""

    exit_status = 1

    def __init__(self, errands: list[HostTask]) -> None:
        super().__init__("no host could be had: nothing is up", "mesh doctor looks at each of them")
        self.errands = errands


def _begin(
    settings: Settings, hosts: list[Host], errands: Sequence[HostTask], ledger: HostStateFile,
    starter: steps.Steps | None,
) -> KeeperFile:  # fmt: skip
    """Define the machine, and start the login processor's daemons."""
    answered = {errand.name: errand for errand in errands if errand.state is not State.FAILED}
    nodes = plan.plan_nodes(hosts, answered, ledger, settings)
    ours = plan.login_place(settings, list(answered.values()))
    port = plan.login_port(settings, ours)
    sharing.need_free((ours, port))
    listen = plan.joined((ours, port))
    config = plan.login_config(settings, nodes, os.urandom(4).hex(), listen)
    if settings.allocation:
        manager = find_manager(settings)
        config = config.replace(
            ends_with=steps.job_process(manager),
            signalled_by=registry.find(os.environ, settings.manager)[0],
            signals_reach=steps.signals_reach(manager),
            supervisor=plan.supervisor(settings),
            keep_jobs=directory_of(state_directory(os.environ)),
        )
    lifecycle.define_mesh(settings, config)
    _set_modes(settings, hosts, nodes)
    lifecycle.write_config(settings, config)
    keys = authority(settings.state_dir, settings.mesh)
    keys.equip_login(config.login, [ours], config.run)
    lifecycle.spawn_keeper(config, anew=True, lifelines=starter.lifelines() if starter is not None else ())
    return config


def _grow(
    settings: Settings, config: KeeperFile, hosts: list[Host], errands: Sequence[HostTask], ledger: HostStateFile
) -> KeeperFile:
    """Add hosts to a running mesh; returns its new keeper.json. Raises StoreError if it cannot grow."""
    answered = {errand.name: errand for errand in errands if errand.state is not State.FAILED}
    nodes, grown = plan.plan_growth(config.nodes, hosts, answered, ledger, settings)
    if not grown:
        return config
    extend(cpa_url(settings), config.boot_id, grown)
    announce_change(settings)
    _set_modes(settings, hosts, grown)
    known = {node.name for node in config.nodes}
    config = config.replace(nodes=tuple(nodes))
    lifecycle.write_config(settings, config)
    if any(node.name not in known for node in grown):
        lifecycle.restart(config, "rca")  # the RCA accepts heartbeats only of nodes that it read at its start
    return config


def grow_by(
    workers: WorkerPool,
    settings: Settings,
    config: KeeperFile,
    members: list[Host],
    errands: Sequence[HostTask],
    ledger: HostStateFile,
) -> KeeperFile:
    """Add the hosts of a batch job to a running mesh and start their agents; returns the new keeper.json."""
    config = _grow(settings, config, members, errands, ledger)
    _place_all(workers, settings, config, errands, ledger)
    return config


def _set_modes(settings: Settings, hosts: Sequence[Host], nodes: Sequence[NodeEntry]) -> None:
    from db.machine.reservations import set_mode
    from db.store.store import open_store

    for mode in ("interactive", "batch"):
        names = {host.name for host in hosts if host.mode == mode}
        ids = [one for node in nodes if node.name in names for one in node.processors]
        if ids:
            with open_store(cpa_url(settings)) as store:
                set_mode(store, ids, mode, "mesh.toml")


def _place_all(
    workers: WorkerPool, settings: Settings, config: KeeperFile, errands: Sequence[HostTask], ledger: HostStateFile
) -> None:
    keys = authority(settings.state_dir, settings.mesh)
    nodes = {node.name: node for node in config.nodes}
    agents: dict[str, build.Agent] = {}
    papers: dict[str, dict[str, bytes]] = {}
    for errand in errands:
        if errand.state is State.FAILED:
            continue
        if errand.name not in nodes:
            told = "the mesh that is up was started without it"
            errand.fail(HostFailed("unknown", told, "mesh down, then mesh up"))
            continue
        tag = str(errand.facts["tag"])
        if tag not in agents:
            agents[tag] = build.agent_for(tag, build.archives(settings))
        papers[errand.name] = keys.node_files(errand.name, [plan.agent_place(errand, settings)[0]])
        ledger.put(errand.host, *plan.size_of(errand.host, errand, ledger))
    ledger.write()
    _await_cpa(config)

    def place(errand: HostTask) -> None:
        program = agents[str(errand.facts["tag"])]
        _place(errand, settings, config, nodes[errand.name], program, papers[errand.name])

    workers.each(errands, place)


def _await_cpa(config: KeeperFile) -> None:
    # A PCT that starts before the CPAs repeats its registration; if no CPA comes up, await_nodes reports it.
    deadline = time.monotonic() + _CPA_S
    while not evidence_of_life.answers(f"{config.run}/cpa-0.sock") and time.monotonic() < deadline:
        time.sleep(_POLL_S)  # poll: a socket does not report its creation


def _place(
    errand: HostTask,
    settings: Settings,
    config: KeeperFile,
    node: NodeEntry,
    program: build.Agent,
    papers: dict[str, bytes],
) -> None:
    """Put agent, keys and configuration on a host, and start its keeper."""
    errand.handle(Event.ORDERED)
    place = plan.agent_place(errand, settings)
    try:
        errand.ask(
            "start",
            blobs={} if program.sha in errand.facts["agents"] else {"agent": program.content},
            sha=program.sha,
            config=json.dumps(plan.node_config(config, node, errand, settings).to_json()),
            files=papers,
            listen=place,
        )
    except HostFailed as failure:
        raise sharing.explained(errand, failure, place) from None
    errand.handle(Event.STARTED)


def _undo(workers: WorkerPool, ledger: HostStateFile, ours: set[str]) -> None:
    """Take down what was started on the hosts ``ours``; those that are unreachable stay in STATE/hosts.json.

    Nothing is taken down if a launch runs on the mesh, or if that cannot be determined.
    """
    workers.close()
    try:
        _refuse_while_launches_run(workers.settings)
    except ConsoleError as error:
        print(f"mesh: what was started stays up: {error.message}", file=sys.stderr)
        return
    _stop_all(workers, ledger, keep_agent=False, only=ours)
    lifecycle.down_locked(workers.settings, force=True)


def down(settings: Settings, report: Report, *, force: bool, keep_agent: bool = False) -> Outcome:
    """End the mesh on all hosts, leave nothing there, and end the login processor's daemons. Raises LaunchesRun."""
    begun = time.monotonic()
    lifecycle.make_directories(settings)
    with lifecycle.locked(settings), crew(settings, report, starter=_starter(settings)) as workers:
        config, _ = lifecycle.found_config(settings)
        if lifecycle.is_up(settings) and not force:
            _refuse_while_launches_run(settings)
        elif settings.allocation or settings.job:
            give_notice(settings)
        ledger = HostStateFile(settings.state_dir)
        clients = steps.recorded(settings)
        if steps.job_ends_with_input(settings, config):
            was_up = lifecycle.down_locked(settings, force=True)  # the nodes end with the keeper
            _end_clients(clients, patient=True)
            return Outcome([], config if was_up else None, was_up, time.monotonic() - begun)
        errands = _stop_all(workers, ledger, keep_agent=keep_agent)
        was_up = lifecycle.down_locked(settings, force=True)
        return Outcome(errands, config if was_up else None, was_up, time.monotonic() - begun)


def _stop_all(
    workers: WorkerPool, ledger: HostStateFile, *, keep_agent: bool, only: set[str] | None = None
) -> list[HostTask]:
    """End the mesh's processes on all recorded hosts (or ``only`` these); unmark the hosts where nothing is left."""
    if workers.settings.allocation or workers.settings.job:
        return _stop_job(workers, ledger)
    there = [host for host in ledger.has_ours() if only is None or host.name in only]
    errands = workers.errands(_as_described(workers.settings, there))
    workers.each(errands, workers.look)
    ca = _read(os.path.join(workers.settings.state_dir, "trust", "ca.pem"))
    workers.each(errands, lambda errand: _stop(errand, keep_agent, ca))
    ledger.clear(errand.name for errand in errands if errand.state is State.DONE)
    return errands


def _stop_job(workers: WorkerPool, ledger: HostStateFile) -> list[HostTask]:
    """End the manager's clients: the starter process on each host then ends its node and removes its files."""
    patient = bool(workers.settings.allocation) and steps.end_with_input(find_manager(workers.settings))
    if patient:
        lifecycle.down_locked(workers.settings, force=True)  # its keeper holds the clients' input
    _end_clients(steps.recorded(workers.settings), patient=patient)
    ledger.clear(host.name for host in ledger.has_ours())
    return []


def _end_clients(clients: list[tuple[int, int]], *, patient: bool) -> None:
    if steps.end(clients, patient=patient):
        raise ConsoleError("the manager's client processes do not exit", "cancel the job")


def _as_described(settings: Settings, placed: list[Host]) -> list[Host]:
    """Replace hosts by their present description, if there is one, because their addresses may have changed."""
    described = {host.name: host for host in read_hosts(settings)}
    return [described.get(host.name, host) for host in placed]


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _stop(errand: HostTask, keep_agent: bool, ca: str) -> None:
    if errand.host.role == login_hosts.ROLE:
        login_hosts.leave(errand)
        return
    errand.handle(Event.ORDERED)
    errand.kept_jobs = errand.ask("stop", keep_agent=keep_agent, started_on=os.uname().nodename, ca=ca)["jobs"]
    errand.handle(Event.DONE)
    errand.close()


def _refuse_while_launches_run(settings: Settings) -> None:
    from db.errors import StoreError
    from db.views.viewer import open_viewer

    try:
        with open_viewer(cpa_url(settings)) as viewer:  # a viewer of all sides
            running = sorted(one.id for one in viewer.read().launchers)
    except (StoreError, ConsoleError) as error:
        raise ConsoleError(f"whether launches run is not known: {error.message}", "mesh down --force") from None
    if running:
        some = ", ".join(map(str, running[:5])) + (" …" if len(running) > 5 else "")
        what = f"launcher {some} runs" if len(running) == 1 else f"{len(running)} launchers run ({some})"
        hint = "wait for them, or end them too with mesh down --force"
        raise LaunchesRun(f"{what} on this mesh", hint, exit_status=1)

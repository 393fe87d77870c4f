"""Checks the hosts of a mesh and explains how to fix what is wrong. Changes nothing."""

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from console.deploy.agent import build
from console.deploy.hosts import other_meshes
from console.deploy.hosts.description import read_hosts, selected
from console.deploy.hosts.host_states import Event, HostFailed, State
from console.deploy.mesh import plan, sharing
from console.deploy.mesh.waiting import silent_pct, unreachable
from console.deploy.personal import evidence_of_life, lifecycle
from console.deploy.personal.plan import cpa_url
from console.deploy.ssh import bootstrap
from console.deploy.ssh.worker_pool import HostTask, Report, WorkerPool, crew
from console.errors import ConsoleError
from console.settings import Settings
from redmesh.settings.keeper_file import KeeperFile, read_keeper_file
from redmesh.text import counted

#: Bytes needed in the RAM disk for images, on disk for the agent and its log, and in /tmp.
SHM_LEAST, DISK_LEAST, TMP_LEAST = 64 << 20, 64 << 20, 1 << 20
#: Clock differences in seconds: noted from the first on; certificates fail from the second on.
CLOCK_NOTED_S, CLOCK_MOST_S = 2.0, 300.0
#: Seconds in which a datagram must arrive.
DATAGRAM_S = 1.0


class Finding(NamedTuple):
    """A problem of a host, or (``grave`` false) a note."""

    code: str
    message: str
    hint: str
    grave: bool = True


class Examined(NamedTuple):
    """A host with its findings."""

    errand: HostTask
    findings: list[Finding]

    @property
    def well(self) -> bool:
        """True if the host can be used as it is."""
        return not any(finding.grave for finding in self.findings)


def examine(settings: Settings, report: Report, only: str = "", labels: Sequence[str] = ()) -> list[Examined]:
    """Check all hosts. Raises ConsoleError if there is none."""
    hosts = selected(read_hosts(settings), only, labels)
    if not hosts:
        raise ConsoleError("the configuration describes no such hosts", "mesh init writes one", exit_status=2)
    config = lifecycle.read_config(settings)
    config = config if config is not None and evidence_of_life.lives(config) else None
    with crew(settings, report) as workers:
        errands = workers.errands(hosts)
        workers.each(errands, workers.look)
        found = {errand.name: _from_facts(errand, settings, config) for errand in errands}
        _from_network(workers, settings, config, errands, found)
        _from_mesh(settings, config, errands, found)
        for errand in errands:
            errand.handle(Event.ORDERED)
            errand.handle(Event.DONE)
        return [Examined(errand, found[errand.name]) for errand in errands]


def _without_ram_disk(why: str, instead: str) -> Finding:
    place = f"programs are copied to {instead} instead" if instead else "they cannot be copied to TMPDIR or /tmp either"
    hint = "mount -t tmpfs -o mode=1777 tmpfs /dev/shm; MPI programs need it too"
    return Finding("ram_disk", f"/dev/shm {why}: {place}", hint, grave=not instead)


def ram_disk_here() -> list[Finding]:
    """What is wrong with the RAM disk of this machine, and where programs are copied instead."""
    instead = next((path for path in bootstrap.program_places() if not bootstrap.unusable(path)), "")
    why = bootstrap.unusable(bootstrap.RAM_DISK)
    return [_without_ram_disk(why, instead)] if why else []


def _from_facts(errand: HostTask, settings: Settings, config: KeeperFile | None) -> list[Finding]:
    if errand.failure is not None:
        return [Finding(errand.failure.code, errand.failure.message, errand.failure.hint)]
    facts = errand.facts
    found = [] if settings.allocation else from_neighbours(facts)
    if not facts["writable"]:
        hint = "does the account own its home? XDG_STATE_HOME names another place"
        found.append(Finding("permission", f"{facts['state']} cannot be made", hint))
    programs = facts["programs"] or "/dev/shm"
    if facts["ram_disk"]:
        found.append(_without_ram_disk(facts["ram_disk"], facts["programs"]))
    for name, place, least in (
        ("shm_free", programs, SHM_LEAST),
        ("state_free", facts["state"], DISK_LEAST),
        ("tmp_free", "/tmp", TMP_LEAST),
    ):
        if 0 <= facts[name] < least:
            told = f"{facts[name] >> 20} MiB are free at {place}, less than {least >> 20}"
            found.append(Finding("space", told, f"df -h {place}", grave=facts[name] < least // 16))
    off = errand.clock_off_s
    if abs(off) > CLOCK_NOTED_S:
        told = f"its clock is {abs(off):.0f} s {'ahead' if off > 0 else 'behind'}"
        found.append(
            Finding("clock", told, "chronyd or systemd-timesyncd keep it right", grave=abs(off) > CLOCK_MOST_S)
        )
    host = errand.host
    if host.processors > facts["processors"]:
        told = f"it is described with {counted(host.processors, 'processor')}, and has {facts['processors']}"
        found.append(Finding("processors", told, 'processors = "auto" in mesh.toml', grave=False))
    return found + _from_agent(errand, settings, config)


def from_neighbours(facts: Mapping[str, Any]) -> list[Finding]:
    """What other meshes there are on a host, and whether it takes part in this one."""
    policy, shared = sharing.judge(facts), sharing.told(facts)
    found = []
    if policy.refusal:
        found.append(Finding("policy", policy.refusal, policy.hint))
    if policy.warning:
        found.append(Finding("policy", policy.warning, "root: chown and chmod, or remove it", grave=False))
    if shared:
        found.append(Finding("shared", f"it is {shared}", other_meshes.MEANING, grave=False))
    return found


def _from_agent(errand: HostTask, settings: Settings, config: KeeperFile | None) -> list[Finding]:
    facts = errand.facts
    if not facts["keeper"]:
        return [Finding("agent", "no agent runs there, and the mesh is up", "mesh up")] if config is not None else []
    try:
        there = read_keeper_file(json.loads(facts["config"]))
        boot, started_on = there.mesh_boot, there.started_on
    except ValueError:
        boot, started_on = "", None
    if config is None or boot != config.boot_id:
        if started_on and started_on != os.uname().nodename:
            told = f"the agent there belongs to a mesh of the same name that was brought up on {started_on}"
            return [Finding("agent", told, f"{bootstrap.OTHER_HOME} (none is needed if this machine was called so)")]
        return [Finding("agent", "an agent of a mesh that is no more runs there", "mesh up replaces it", grave=False)]
    ours = build.agent_for(str(facts["tag"]), build.archives(settings)).sha
    if facts["agent"] != ours:
        told = f"its agent is {str(facts['agent'])[:12]}, this version's is {ours[:12]}"
        return [Finding("version", told, "mesh upgrade", grave=False)]
    return []


def _from_network(
    workers: WorkerPool,
    settings: Settings,
    config: KeeperFile | None,
    errands: Sequence[HostTask],
    found: dict[str, list[Finding]],
) -> None:
    """Check that this machine reaches the hosts' agent ports, and that hosts reach the RCA's UDP port.

    Where nothing listens yet, a temporary listener is used.
    """
    there = [errand for errand in errands if errand.state is not State.FAILED]
    if not there:
        return
    ours = plan.login_place(settings, there), settings.agent_port
    if config is None:
        try:
            sharing.need_free(ours)
        except ConsoleError as error:
            for errand in there:
                found[errand.name].append(Finding("port", error.message, error.hint))
    with _listener(ours) as beats:
        words: dict[str, str] = {}

        def probe(errand: HostTask) -> None:
            place = plan.agent_place(errand, settings)
            try:
                answer = errand.ask("probe", listen=place, rca=ours)
                words[errand.name] = answer["word"]
            except HostFailed as failure:
                failure = sharing.explained(errand, failure, place)
                found[errand.name].append(Finding(failure.code, failure.message, failure.hint))
                return
            # An agent runs there, of an earlier mesh or of another machine's: it may listen at another port.
            why = unreachable(plan.joined(place)) if answer["open"] or config is not None else ""
            if why:
                told = f"TCP to its agent's place, {plan.joined(place)}, does not get through: {why}"
                found[errand.name].append(Finding("firewall", told, "open that port on the host"))

        workers.each(there, probe)
        heard = _hear(beats, set(words.values()))
    for errand in there:
        if beats is not None and errand.name in words and words[errand.name] not in heard:
            told = f"UDP from it to us, {plan.joined(ours)}, does not get through"
            found[errand.name].append(Finding("firewall", told, "open that port here; login_address says where we are"))


@contextlib.contextmanager
def _listener(place: tuple[str, int]) -> Iterator[socket.socket | None]:
    """A listener at the RCA's address; None if something listens there already."""
    family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        try:
            sock.bind(place)
        except OSError:
            yield None
            return
        yield sock


def _hear(sock: socket.socket | None, awaited: set[str]) -> set[str]:
    heard: set[str] = set()
    deadline = time.monotonic() + DATAGRAM_S
    while sock is not None and not awaited <= heard and (left := deadline - time.monotonic()) > 0:
        sock.settimeout(left)
        try:
            heard.add(sock.recvfrom(64)[0].decode("ascii", "replace"))
        except OSError:
            break
    return heard


def _from_mesh(
    settings: Settings, config: KeeperFile | None, errands: Sequence[HostTask], found: dict[str, list[Finding]]
) -> None:
    """Add findings about hosts whose agent runs, but whose node is not registered in the database."""
    if config is None:
        return
    from db.errors import StoreError
    from db.store.store import open_store
    from db.views.deployment_reads import registered

    try:
        with open_store(cpa_url(settings)) as store:
            there = set(registered(store))
    except StoreError as error:
        raise ConsoleError(error.message, error.hint) from None
    for errand in errands:
        if errand.state is not State.FAILED and errand.facts.get("keeper") and errand.name not in there:
            stopped = silent_pct(errand)
            if stopped:
                hint = "mesh up brings its files anew, and has it tried at once"
                found[errand.name].append(Finding("agent", stopped, hint))
                continue
            told = f"its agent runs, but the mesh does not hear of it at {config.rca[0]} (UDP)"
            found[errand.name].append(Finding("beats", told, "a firewall? mesh up tries again, and tells more"))

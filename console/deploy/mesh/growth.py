"""Nodes of a batch job that join a standing mesh, and their leaving: ``mesh grow`` and ``mesh shrink``.

The login processor submits the job and starts the agents through the manager, as in a mesh of a job (steps.py).
``STATE/grown.json`` records each job with its nodes and the time at which the manager ends it.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from agents.managers import registry
from agents.objects.changes import Changes
from agents.wire.errors import AgentError
from console.deploy.hosts.description import Host, read_hosts
from console.deploy.hosts.host_state_file import HostStateFile
from console.deploy.managed import steps
from console.deploy.mesh import lifecycle as hosts
from console.deploy.mesh.cpas import ask_cpa
from console.deploy.mesh.waiting import await_nodes
from console.deploy.personal import lifecycle
from console.deploy.personal.plan import cpa_url
from console.deploy.ssh.worker_pool import HostTask, Report, crew
from console.deploy.trust.authority import write_private
from console.errors import ConsoleError
from console.settings import Settings, job_directory
from db.store.store import open_store
from db.views.deployment_reads import node_sizes
from redmesh.managers import ManagerError
from redmesh.settings.keeper_file import KeeperFile

#: Nodes are drained this long before the manager's limit, or for the last quarter of a shorter job.
DRAIN_S = 60.0
_POLL_S = 0.5
#: Seconds between two looks at the record of a process that waits for a job's limit, if nobody changes the record.
_LOOK_S = 5.0


class Grown(NamedTuple):
    """A job whose nodes joined the mesh. ``ends_at``: seconds since the epoch, None without a limit."""

    manager: str
    job: str
    nodes: list[str]
    began_at: float
    ends_at: float | None

    @property
    def drain_at(self) -> float | None:
        """When its nodes are drained."""
        if self.ends_at is None:
            return None
        return self.ends_at - min(DRAIN_S, (self.ends_at - self.began_at) / 4)


def _record_path(settings: Settings) -> str:
    return f"{settings.state_dir}/grown.json"


def recorded(settings: Settings) -> list[Grown]:
    """The jobs whose nodes belong to the mesh. Raises ConsoleError if the record is unreadable."""
    path = _record_path(settings)
    try:
        with open(path, encoding="utf-8") as file:
            return [Grown(**row) for row in json.load(file)]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        hint = "it lists the batch jobs of the mesh: cancel them by the batch system's command, then remove it"
        raise ConsoleError(f"{path} cannot be read: {error}", hint) from None


def _record(settings: Settings, rows: Sequence[Grown]) -> None:
    write_private(_record_path(settings), json.dumps([row._asdict() for row in rows]).encode() + b"\n")


def _manager(name: str) -> Any:
    try:
        manager = registry.load(name)
    except ManagerError as error:
        raise ConsoleError(error.message, error.hint, exit_status=2) from None
    if not hasattr(manager, "submit"):
        raise ConsoleError(f"the manager {name} cannot submit jobs", "mesh grow --manager slurm", exit_status=2)
    return manager


def grow(
    settings: Settings, name: str, count: int, limit: str, options: Sequence[str], report: Report,
    tell: Callable[[str], None],
) -> tuple[Grown, list[HostTask]]:  # fmt: skip
    """Submit a job, wait until it runs, and bring its nodes up in the mesh. Raises ConsoleError; then the job is
    cancelled."""
    manager = _manager(name)
    _living(settings)
    try:
        job = manager.submit(os.environ, count, limit, options)
    except ManagerError as error:
        raise ConsoleError(error.message, error.hint) from None
    try:
        with lifecycle.locked(settings):  # recorded at once: `mesh down` cancels it even if this process is killed
            _record(settings, [*recorded(settings), Grown(name, job, [], time.time(), None)])
        tell(f"job {job} was submitted; waiting for its nodes")
        variables = _await_job(manager, job)
        os.environ.update(variables)  # steps.py and the manager read the job from the environment
        return _join(settings.within(f"{name}-{job}", name), manager, job, report)
    except BaseException:  # including an interrupt: leave no job behind
        _cancel(manager, job)
        _forget(settings, job)
        raise


def _living(settings: Settings) -> KeeperFile:
    config = lifecycle.living_config(settings)
    if config is None:
        raise ConsoleError("no mesh is up that could grow", "mesh up")
    if not config.rca:
        hint = "describe hosts in mesh.toml (mesh init --host); a mesh over SSH listens for other machines"
        raise ConsoleError("this mesh is for one machine: nodes of other machines cannot reach it", hint)
    return config


def _await_job(manager: Any, job: str) -> dict[str, str]:
    while True:
        try:
            found: dict[str, str] | None = manager.allocation(os.environ, job)
        except ManagerError as error:
            raise ConsoleError(error.message, error.hint) from None
        if found is not None:
            return found
        time.sleep(_POLL_S)  # poll: the manager's commands do not report a start


def _join(settings: Settings, manager: Any, job: str, report: Report) -> tuple[Grown, list[HostTask]]:
    try:
        left = manager.time_left(os.environ)
        members = [Host(node, node, processors=slots) for node, slots in manager.hosts(os.environ)]
    except ManagerError as error:
        raise ConsoleError(error.message, error.hint) from None
    names, now = [host.name for host in members], time.time()
    grown = Grown(settings.manager, job, names, now, None if left is None else now + left)
    # The mesh's own key and RCA decide where the nodes report.
    with lifecycle.locked(settings):
        config = _living(settings)
        _refuse_taken(settings, config, names)
        _record(settings, [*(row for row in recorded(settings) if row.job != job), grown])
        rca = config.rca[0].rpartition(":")[0].strip("[]")
        place = f"{job_directory(os.environ)}/redmesh-{os.geteuid()}/grown/{settings.allocation}"
        with crew(settings, report, starter=steps.Steps(settings, login=rca, place=place)) as workers:
            errands = workers.errands(members)
            workers.each(errands, workers.look)
            ledger = HostStateFile(settings.state_dir)
            config = hosts.grow_by(workers, settings, config, members, errands, ledger)
            ledger.clear(names)  # ``mesh down`` does not reach these hosts over SSH: it cancels their job
            _enlist(settings, grown)
            await_nodes(cpa_url(settings), config, errands)
    return grown, errands


def _refuse_taken(settings: Settings, config: KeeperFile, names: Sequence[str]) -> None:
    for row in recorded(settings):
        for name in row.nodes:
            if name in names:
                hint = f"mesh shrink {row.job}, if that job has ended"
                raise ConsoleError(f"{name} is a node of job {row.job} already", hint)
    own = {host.name for host in read_hosts(settings.within("", settings.manager))} | {config.login}
    for name in names:
        if name in own:
            raise ConsoleError(f"the mesh has a node {name} already", "exclude that host by an option of the manager")


def _enlist(settings: Settings, grown: Grown) -> None:
    # A node that was here before left drained. From now on the database knows when the nodes leave: no process of ours
    # has to be there then.
    ask_cpa(settings, {"op": "resume", "nodes": grown.nodes})
    if grown.drain_at is not None:
        after_s = max(0.0, grown.drain_at - time.time())
        request = {"op": "drain_later", "nodes": grown.nodes, "reason": _reason(grown), "after_s": after_s}
        ask_cpa(settings, request)


def _reason(grown: Grown) -> str:
    return f"job {grown.job} of {grown.manager} ends"


def shrink(
    settings: Settings, job: str, *, force: bool, evacuate: Callable[[list[str]], object], tell: Callable[[str], None]
) -> Grown:
    """Drain the job's nodes, wait until no launch runs on them, and cancel the job. Raises ConsoleError.

    ``evacuate`` sends the state objects of drained nodes to other nodes. ``force`` does not wait. At the manager's
    limit the wait ends too.
    """
    grown = next((row for row in recorded(settings) if row.job == job), None)
    if grown is None:
        raise ConsoleError(f"no nodes of a job {job} belong to this mesh", "mesh grow --list", exit_status=2)
    try:
        if grown.nodes:  # none: `mesh grow` was killed while the job waited
            ask_cpa(settings, {"op": "drain", "nodes": grown.nodes, "reason": _reason(grown)})
        evacuate(grown.nodes)
        if not force:
            _await_empty(settings, grown, tell)
    except AgentError as error:
        if error.code != "invalid":  # nodes that never registered are not in the database
            raise
    _cancel(_manager(grown.manager), job)
    with lifecycle.locked(settings):
        _forget(settings, job)
    return grown


def _await_empty(settings: Settings, grown: Grown, tell: Callable[[str], None]) -> None:
    told = False
    while grown.ends_at is None or time.time() < grown.ends_at:
        with open_store(cpa_url(settings)) as store:
            busy = [row.name for row in node_sizes(store) if row.name in grown.nodes and row.state == "draining"]
        if not busy:
            return
        if not told:
            tell(f"waiting for launches on {', '.join(busy[:5])}; --force does not wait")
            told = True
        time.sleep(_POLL_S)  # poll: a database does not report changes


def shrink_when_due(settings: Settings, job: str, evacuate: Callable[[list[str]], object]) -> None:
    """Shrink shortly before the manager's limit; return earlier if the job's nodes have left.

    The nodes are drained without this: it moves the state objects away, and ends the job once nothing runs.
    """
    wait: Callable[[float], object] = time.sleep  # poll, where no watch of inotify is left
    with suppress(OSError):
        wait = Changes(_record_path(settings)).wait
    while grown := next((row for row in recorded(settings) if row.job == job), None):
        if grown.drain_at is None:
            return
        left = grown.drain_at - time.time()
        if left <= 0:
            shrink(settings, job, force=False, evacuate=evacuate, tell=lambda _text: None)
            return
        wait(min(left, _LOOK_S))


def cancel_all(settings: Settings) -> None:
    """Cancel the jobs of a mesh that goes down. Raises ConsoleError."""
    for row in recorded(settings):
        _cancel(_manager(row.manager), row.job)
        _forget(settings, row.job)


def _cancel(manager: Any, job: str) -> None:
    try:
        manager.cancel(os.environ, job)
    except ManagerError as error:
        raise ConsoleError(f"job {job} may still run: {error.message}", error.hint) from None


def _forget(settings: Settings, job: str) -> None:
    rows = recorded(settings)
    if any(row.job == job for row in rows):
        _record(settings, [row for row in rows if row.job != job])

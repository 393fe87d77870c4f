"""The plan of a personal mesh: its nodes, and the keeper's configuration."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from agents.cpa.line.places import read_origin
from agents.wire.errors import AgentError
from console.errors import ConsoleError, UsageError
from console.settings import Settings
from redmesh.settings.keeper_file import SERVICE, KeeperFile, LoginSettings, NodeEntry
from redmesh.start_command import ROOT
from redmesh.text import counted

#: More PCTs than this on one machine are a typing error.
MOST_NODES = 4096
MOST_PROCESSORS = 1 << 20


class Size(NamedTuple):
    """The size of a mesh."""

    processors: int
    nodes: int
    cpas: int

    @property
    def with_cpas(self) -> str:
        """The number of CPAs, as the end of a phrase; empty for one."""
        return "" if self.cpas == 1 else f", {self.cpas} CPAs"

    def __str__(self) -> str:
        return f"{counted(self.processors, 'processor')} on {counted(self.nodes, 'node')}{self.with_cpas}"


def wanted_size(settings: Settings) -> Size:
    """The size from options and configuration. Raises UsageError."""
    processors = settings.processors or max(len(os.sched_getaffinity(0)), settings.nodes)
    if processors < settings.nodes:
        raise UsageError(
            f"{counted(processors, 'processor')} cannot be spread over {settings.nodes} nodes",
            "every node needs at least one",
        )
    if settings.nodes > MOST_NODES or processors > MOST_PROCESSORS or settings.cpas > 64:
        raise UsageError(
            f"a personal mesh has at most {MOST_PROCESSORS} processors, {MOST_NODES} nodes and 64 CPAs",
            "they all run on this machine",
        )
    return Size(processors, settings.nodes, settings.cpas)


def spread(size: Size) -> list[NodeEntry]:
    """The nodes ``n0``…, with the processors spread in runs of about equal length."""
    each, more = divmod(size.processors, size.nodes)
    nodes, first = [], 0
    for index in range(size.nodes):
        count = each + (index < more)
        nodes.append(NodeEntry(id=index + 1, name=f"n{index}", processors=tuple(range(first, first + count))))
        first += count
    return nodes


def plan_nodes(settings: Settings, size: Size) -> list[NodeEntry]:
    """The nodes with their GPUs, the last ones as service nodes. Raises UsageError if no compute node remains."""
    count, nodes = settings.service_nodes, spread(size)
    if count >= len(nodes) > 0 and count:
        raise UsageError(
            f"{count} of {counted(len(nodes), 'node')} for service leave none to compute", "mesh up with more --nodes"
        )
    first = len(nodes) - count
    return [
        node.replace(gpus=tuple(devices), role=SERVICE if at >= first else "compute")
        for at, (node, devices) in enumerate(zip(nodes, deal_gpus(settings, size.nodes), strict=True))
    ]


def login_name(nodes: Sequence[NodeEntry]) -> str:
    """The login processor's name: this machine's, unless a node has that name."""
    name = os.uname().nodename.partition(".")[0] or "login"
    return f"{name}-login" if any(node.name == name for node in nodes) else name


def size_of(config: KeeperFile) -> Size:
    """The size of an existing plan."""
    if config.simulated:
        return Size(config.size[0], config.size[1], config.cpas)
    return Size(sum(len(node.processors) for node in config.nodes), len(config.nodes), config.cpas)


def keeper_config(
    settings: Settings, size: Size, boot_id: str, *, auto: bool, machine: Sequence[NodeEntry] | None = None
) -> KeeperFile:
    """The ``keeper.json`` (docs/architecture.md). ``machine``: the nodes, if they are not on this machine."""
    nodes = plan_nodes(settings, size) if machine is None else machine
    file = cpa_url_file(settings)
    refuse_useless_cleanup(settings)
    return KeeperFile(
        **settings.values_of(LoginSettings),
        mesh=settings.mesh,
        run=settings.new_run_dir,
        state=settings.state_dir,
        boot_id=boot_id,
        login=login_name(nodes),
        auto=auto,
        idle_s=settings.idle_s,
        database="" if file else settings.database,
        database_file=file or "",
        nodes=tuple(nodes),
        cpas=size.cpas,
        installed=ROOT,
        topology=described(settings),
        managers=managers_of(settings, nodes),
    ).replace(post_back_urls=post_back_urls(settings))


def post_back_urls(settings: Settings) -> tuple[str, ...]:
    """The hosts of URLs that requests may be posted back to. Raises UsageError."""
    try:
        return tuple(map(read_origin, settings.post_back_urls))
    except AgentError as error:
        raise UsageError(f"{settings.where['post_back_urls']}: post_back_urls: {error.message}", error.hint) from None


def managers_of(settings: Settings, nodes: Sequence[NodeEntry]) -> tuple[dict[str, Any], ...]:
    """Check the configured managers against these nodes; return them unchanged. Raises UsageError."""
    if not settings.managers:
        return ()
    from db.allocation.managers import check_parts, parse
    from db.errors import Invalid

    try:
        check_parts(
            parse(settings.managers, settings.file),
            {node.name: node.processors for node in nodes},
            settings.file,
        )
    except Invalid as error:
        raise UsageError(error.message, error.hint) from None
    return tuple(settings.managers)


def refuse_useless_cleanup(settings: Settings) -> None:
    """Raise UsageError unless the clean-up executable can be run: without it, processors of dead launchers stay
    allocated."""
    path = settings.cleanup
    if path and not (os.path.isfile(path) and os.access(path, os.X_OK)):
        what = "is not executable" if os.path.isfile(path) else "does not exist"
        raise UsageError(f"the clean-up executable {path} {what}", "`cleanup` in the configuration names it")


def described(settings: Settings) -> dict[str, Any] | None:
    """The machine in the section [topology], with defaults; None if there is none. Raises UsageError."""
    if settings.topology is None:
        return None
    from db.topology import TopologyError, parse

    try:
        return parse(settings.topology).to_dict()
    except TopologyError as error:
        raise UsageError(f"{settings.where['topology']}: {error.message}", error.hint) from None


def deal_gpus(settings: Settings, nodes: int, folder: str = "/dev") -> list[list[int]]:
    """The GPUs of each node, by this machine's numbers; nodes share the machine, so each GPU has one node."""
    if isinstance(settings.gpus, int):
        return [list(range(at * settings.gpus, (at + 1) * settings.gpus)) for at in range(nodes)]
    numbers = [name.removeprefix("nvidia") for name in os.listdir(folder) if name.startswith("nvidia")]
    there = len([number for number in numbers if number.isascii() and number.isdigit()])
    cuts = [there * at // nodes for at in range(nodes + 1)]  # GPU runtimes count from 0, unlike /dev
    return [list(range(cuts[at], cuts[at + 1])) for at in range(nodes)]


def cpa_url_file(settings: Settings) -> str | None:
    """The 0600 file with the CPAs' URL; None for SQLite, which has no password to hide."""
    if settings.cpa_database_file:
        return settings.cpa_database_file
    return f"{settings.state_dir}/cpa.url" if settings.database.startswith("mysql:") else None


def cpa_url(settings: Settings) -> str:
    """The CPAs' database URL. Raises ConsoleError if its file is missing or not private."""
    if not settings.cpa_database_file:
        return settings.database
    path = settings.cpa_database_file
    try:
        with open(path) as file:
            status = os.fstat(file.fileno())
            url = file.readline().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConsoleError(f"cpa_database_file {path}: {getattr(error, 'strerror', error)}") from None
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o077:
        raise ConsoleError(f"{path} holds a password and must be yours, with mode 0600", f"chmod 600 {path}")
    if "://" not in url:
        raise ConsoleError(f"{path} holds no database URL", "one line: mysql://user:password@host/redmesh")
    return url

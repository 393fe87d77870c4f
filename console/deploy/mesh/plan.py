"""The plan of a mesh of many hosts: nodes, processors, addresses, and every keeper's configuration.

The only I/O are questions to the kernel about routes and ports.
"""

import os
import socket
from collections import Counter
from collections.abc import Sequence

from agents.wire.messages import PROTOCOL
from console.deploy.hosts.allocation import find_manager
from console.deploy.hosts.description import Host
from console.deploy.hosts.host_state_file import HostStateFile
from console.deploy.hosts.host_states import HostFailed
from console.deploy.personal.plan import MOST_PROCESSORS, Size, keeper_config
from console.deploy.ssh.worker_pool import HostTask
from console.errors import ConsoleError, UsageError
from console.settings import Settings
from redmesh.settings.groups import PrologSettings
from redmesh.settings.keeper_file import PARENT, KeeperFile, NodeEntry, ServedSettings


def agent_place(errand: HostTask, settings: Settings) -> tuple[str, int]:
    """The address at which the agent of a host listens. Raises HostFailed if it cannot be determined."""
    host = errand.host
    address = host.agent_address or _from_connection(errand, 2)
    if not address:
        raise HostFailed(
            "address", "its sshd does not report the address by which it was reached", "agent_address, mesh.toml"
        )
    if settings.allocation:  # several jobs may share a host, so the starter process chose a free port
        return address, int(str(errand.facts.get("connection", "0")).split()[-1])
    return address, host.agent_port or settings.agent_port


def _from_connection(errand: HostTask, word: int) -> str:
    # SSH_CONNECTION: the client's address and port, then the server's.
    words = str(errand.facts.get("connection", "")).split()
    return words[word].partition("%")[0] if len(words) == 4 else ""


def login_place(settings: Settings, errands: Sequence[HostTask]) -> str:
    """This machine's address for the hosts: configured, or seen by most of them, or on the route to the first one."""
    if settings.login_address:
        return settings.login_address
    seen = Counter(address for errand in errands if (address := _from_connection(errand, 0)))
    ours = [address for address, _ in seen.most_common() if _is_ours(address)]
    if ours:
        return ours[0]
    for errand in errands:
        if address := route_to(_from_connection(errand, 2)):
            return address
    raise ConsoleError("the address by which the hosts reach this machine is not known", "login_address in mesh.toml")


def _is_ours(address: str) -> bool:
    # Hosts behind a jump host see the jump host's address, which is not one of this machine.
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
            return True
        except OSError:
            return False


def route_to(address: str) -> str:
    """This machine's address on the route to ``address``; empty if there is no route."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))  # nothing is sent: the kernel chooses the address
            return str(probe.getsockname()[0])
        except OSError:
            return ""


def login_port(settings: Settings, address: str) -> int:
    """The UDP port of the RCA: the configured one, or in a job a free one, because jobs share hosts."""
    if not settings.allocation:
        return settings.agent_port
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def joined(place: tuple[str, int]) -> str:
    """``HOST:PORT``, an IPv6 host in brackets."""
    host, port = place
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def plan_nodes(
    hosts: Sequence[Host], errands: dict[str, HostTask], ledger: HostStateFile, settings: Settings
) -> list[NodeEntry]:
    """The nodes in the order of the description, for keeper.json. Raises UsageError if there are too many.

    A host that did not answer has its last known size; an unknown host has no processors yet.
    """
    nodes: list[NodeEntry] = []
    for host in hosts:
        _append(nodes, host, errands.get(host.name), ledger, settings)
    return nodes


def plan_growth(
    nodes: Sequence[NodeEntry],
    hosts: Sequence[Host],
    errands: dict[str, HostTask],
    ledger: HostStateFile,
    settings: Settings,
) -> tuple[list[NodeEntry], list[NodeEntry]]:
    """Return all nodes after a growth, and the added ones alone: new hosts, and those whose size was unknown before."""
    known = {node.name: node for node in nodes}
    all_of_them, grown = list(nodes), []
    for host in hosts:
        errand, node = errands.get(host.name), known.get(host.name)
        if errand is None or (node is not None and (node.processors or not size_of(host, errand, ledger)[0])):
            continue
        if node is not None:
            all_of_them.remove(node)
        _append(all_of_them, host, errand, ledger, settings, number=node.id if node is not None else 0)
        grown.append(all_of_them[-1])
    return sorted(all_of_them, key=lambda node: node.id), grown


def _append(
    nodes: list[NodeEntry],
    host: Host,
    errand: HostTask | None,
    ledger: HostStateFile,
    settings: Settings,
    number: int = 0,
) -> None:
    """Append a node; its processors follow the existing ones."""
    first = 1 + max((one for node in nodes for one in node.processors), default=-1)
    count, gpus = size_of(host, errand, ledger)
    if first + count > MOST_PROCESSORS:
        raise UsageError(f"a mesh has at most {MOST_PROCESSORS} processors: {host.name} makes it one host too many")
    if errand is not None and errand.facts:
        place = agent_place(errand, settings)
    else:
        place = (host.agent_address or host.address, host.agent_port or settings.agent_port)
    nodes.append(
        NodeEntry(
            id=number or 1 + max((one.id for one in nodes), default=0),
            name=host.name,
            processors=tuple(range(first, first + count)),
            address=f"tls://{joined(place)}/{host.name}",
            gpus=tuple(range(gpus)),
            role=host.role,
        )
    )


def size_of(host: Host, errand: HostTask | None, ledger: HostStateFile) -> tuple[int, int]:
    """Processors and GPUs of a host: as described, as counted on the host, or as last known; 0 if unknown."""
    facts = errand.facts if errand is not None else {}
    known = ledger.size_of(host.name) or (0, 0)
    processors = host.processors if host.processors >= 0 else int(facts.get("processors", known[0]))
    gpus = host.gpus if host.gpus >= 0 else int(facts.get("gpus", known[1]))
    return processors, gpus


def login_config(settings: Settings, nodes: list[NodeEntry], boot_id: str, listen: str) -> KeeperFile:
    """The login processor's ``keeper.json`` (docs/architecture.md)."""
    config = keeper_config(settings, Size(1, 1, settings.cpas), boot_id, auto=False, machine=nodes)
    name = settings.login or config.login
    if any(node.name == name for node in nodes):
        name = f"{name}-login"
    host = listen.rpartition(":")[0].strip("[]")
    return config.replace(
        login=name,
        rca=(listen,),
        trust=f"{settings.state_dir}/trust",
        cpa_listen=joined((host, settings.cpa_port)) if settings.cpa_port else "",
        users=bool(settings.system),
    )


def need_system(settings: Settings) -> None:
    """Raise ConsoleError unless a system mesh can be brought up from here."""
    if os.geteuid() != 0:
        raise ConsoleError("a mesh in system mode is brought up by root", "sudo mesh up")
    if not settings.hosts:
        raise UsageError("system mode needs hosts", "name this machine among them, if it is to compute (mesh init)")
    if settings.database.startswith("sqlite:"):
        raise UsageError(
            "in system mode everybody reads the system database, which SQLite cannot give out",
            "mesh db init with MySQL or MariaDB, then `database` and `cpa_database_file` in the configuration",
        )


def supervisor(settings: Settings) -> str:
    """The command name of the batch system's process above ours on each host of a job; empty if it has none."""
    return str(getattr(find_manager(settings), "supervisor", ""))


def node_config(login: KeeperFile, node: NodeEntry, errand: HostTask, settings: Settings) -> KeeperFile:
    """A node's ``keeper.json``. It has a new boot id at every start."""
    facts = errand.facts
    return KeeperFile(
        **login.values_of(ServedSettings),
        **(settings.values_of(PrologSettings) if settings.system else {}),
        system=bool(settings.system),
        objects=f"{settings.system}-objects" if settings.system else "",
        mesh=login.mesh,
        protocol=PROTOCOL,
        # the owner's uid on the login processor, which the CPA uses; the account may have another uid on the node
        owner=os.geteuid(),
        mesh_boot=login.boot_id,
        boot_id=f"{login.boot_id}-{os.urandom(4).hex()}",
        run=str(facts["run"]),
        state=str(facts["state"]),
        nodes=(node.replace(address=""),),
        cpas=0,
        login="",
        # a batch job has its processors for itself, and its PCTs look for no other meshes
        started_on="" if settings.allocation else os.uname().nodename,
        listen=joined(agent_place(errand, settings)),
        rca=login.rca,
        trust=f"{facts['state']}/trust",
        ends_with=PARENT if settings.allocation else (),
        supervisor=supervisor(settings) if settings.allocation else "",
        keep_jobs=login.keep_jobs,
        signalled_by=login.signalled_by,
        signals_reach=login.signals_reach,
    )

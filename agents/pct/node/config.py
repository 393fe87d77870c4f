"""The PCT's part of keeper.json (docs/architecture.md)."""

from __future__ import annotations

import os

from agents.pct.errors import PctError
from redmesh.settings.keeper_file import SERVICE, KeeperFile, NodeEntry

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Optional

    from agents.pct.heartbeat.datagrams import ContactConfig
    from agents.pct.multiuser.system_mode import SystemMode
    from agents.pct.remote.gateway import GatewayConfig

#: Added to the nice value of processes on a service node, because logins and file systems have priority.
NICE = 10


class Service:
    """Limits of launches on a service node; ``memory`` is bytes of address space, 0 for unlimited."""

    __slots__ = ("memory",)

    def __init__(self, memory: int) -> None:
        self.memory = memory

    def begin(self) -> None:
        """Apply the limits to this process, a launch child, and all its descendants."""
        os.nice(NICE)
        if self.memory:
            import resource

            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            least = self.memory if hard == resource.RLIM_INFINITY else min(self.memory, hard)
            resource.setrlimit(resource.RLIMIT_AS, (least, least))


class PctConfig:
    """The settings of one PCT in keeper.json."""

    __slots__ = (
        "boot_id",
        "contact",
        "failed_s",
        "gateway",
        "gpus",
        "mesh",
        "mesh_boot",
        "node",
        "objects_mb",
        "processors",
        "run",
        "service",
        "spare_s",
        "started_on",
        "state",
        "system",
    )  # fmt: skip

    def __init__(self, file: KeeperFile, node: NodeEntry) -> None:
        self.mesh, self.run, self.state, self.boot_id = file.mesh, file.run, file.state, file.boot_id
        self.mesh_boot = file.mesh_boot or file.boot_id  # the boot id of the login processor
        self.node, self.processors, self.gpus = node.name, list(node.processors), list(node.gpus)
        self.failed_s = file.failed_s  # seconds until a node that failed a load is used again
        self.objects_mb = file.node_jobs_mb  # state objects of one user that the node takes; 0: any number
        self.spare_s = file.spare_s  # seconds for which a used launch child waits for the next launch
        # The machine from which the mesh was brought up; "": other meshes do not matter.
        self.started_on = os.uname().nodename if file.started_on is None else file.started_on
        #: Limits of launches on a service node.
        self.service: Optional[Service] = Service(file.service_memory_mb << 20) if node.role == SERVICE else None
        self.gateway: Optional[GatewayConfig] = None  # the connection for other machines
        self.system: Optional[SystemMode] = None  # settings of system mode
        self.contact: Optional[ContactConfig] = None  # the connection to RCAs of other machines
        if file.listen or node.listen:
            from agents.pct.remote.gateway import GatewayConfig  # a mesh of one machine never imports TLS

            self.gateway = GatewayConfig(file, node)
        if file.system:
            from agents.pct.multiuser.system_mode import SystemMode

            self.system = SystemMode(file)
        if file.rca and not file.login:
            from agents.pct.heartbeat.datagrams import ContactConfig

            self.contact = ContactConfig(file, node.name)


def read_config(file: KeeperFile, node: str) -> PctConfig:
    """The settings of ``node``. Raises PctError if it is not listed."""
    for entry in file.nodes:
        if entry.name == node:
            return PctConfig(file, entry)
    raise PctError(f"the configuration names no node {node!r}", "run mesh down and mesh up", exit_status=2)

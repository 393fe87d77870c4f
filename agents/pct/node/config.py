"""The PCT's part of keeper.json (docs/architecture.md)."""

from __future__ import annotations

import os

from agents.pct.errors import PctError

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

#: The role of nodes whose PCT runs beside logins and file systems (the PCT emulator, row A11).
SERVICE = "service"
#: Added to the nice value of processes there, because logins and file systems have priority.
NICE = 10


class Service:
    """Limits of launches on a service node; ``memory`` is bytes of address space, 0 for unlimited."""

    __slots__ = ("memory",)

    def __init__(self, config: Dict[str, Any]) -> None:
        self.memory = int(config.get("service_memory_mb", 0)) << 20

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

    def __init__(
        self, mesh: str, run: str, state: str, boot_id: str, node: str, processors: List[int], gpus: List[int]
    ) -> None:
        self.mesh, self.run, self.state = mesh, run, state
        self.boot_id, self.node, self.processors, self.gpus = boot_id, node, processors, gpus
        self.service: Optional[Service] = None  # limits of launches on a service node
        self.gateway: Any = None  # the connection for other machines (agents/pct/remote/gateway.py)
        self.system: Any = None  # settings of system mode (agents/pct/multiuser/system_mode.py)
        self.contact: Any = None  # the connection to RCAs of other machines (agents/pct/node/contact.py)
        self.failed_s = 30.0  # seconds until a node that failed a load is used again
        self.started_on = ""  # the machine from which the mesh was brought up; "": other meshes do not matter
        self.objects_mb = 0  # state objects of one user that the node takes; 0: any number
        self.spare_s = 10.0  # seconds for which a used launch child waits for the next launch


def read_config(config: Dict[str, Any], node: str) -> PctConfig:
    """The settings of ``node``. Raises PctError if it is not listed."""
    for entry in config.get("nodes", []):
        if entry.get("name") == node:
            found = PctConfig(
                str(config["mesh"]), str(config["run"]), str(config["state"]), str(config["boot_id"]), node,
                list(entry["processors"]), list(entry.get("gpus", [])),
            )  # fmt: skip
            if entry.get("role") == SERVICE:
                found.service = Service(config)
            if config.get("listen") or entry.get("listen"):
                from agents.pct.remote.gateway import GatewayConfig  # a mesh of one machine never imports TLS

                found.gateway = GatewayConfig({**config, **entry}, node)
            if config.get("system"):
                from agents.pct.multiuser.system_mode import SystemMode

                found.system = SystemMode(config)
            if config.get("rca") and not config.get("login"):
                from agents.pct.heartbeat.datagrams import ContactConfig

                found.contact = ContactConfig(config, node)
            found.started_on = str(config.get("started_on", os.uname().nodename))
            found.objects_mb = int(config.get("node_jobs_mb", 0))
            found.failed_s = float(config.get("failed_s", found.failed_s))
            found.spare_s = float(config.get("spare_s", found.spare_s))
            return found
    raise PctError(f"the configuration names no node {node!r}", "run mesh down and mesh up", exit_status=2)

"""A simulated machine: its nodes come from a topology, and a few processes stand in for their PCTs."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

from console.deploy.personal.plan import Size, keeper_config
from console.errors import UsageError
from console.settings import Settings, load
from db.machine.nodes import NodeSpec
from db.topology import Cluster, Mesh, Topology, parse
from redmesh.settings.keeper_file import KeeperFile, NodeEntry

#: How many nodes one process stands in for (about), and the most processes.
A_PROCESS, MOST = 3000, 8


class Simulation:
    """A machine to simulate: ``topology`` with its nodes."""

    def __init__(self, topology: Topology, nodes: Sequence[NodeSpec]) -> None:
        self.topology, self.nodes = topology, nodes

    @property
    def processors(self) -> int:
        """The number of processors of all nodes."""
        return sum(len(node.processors) for node in self.nodes)

    @property
    def shares(self) -> list[Sequence[NodeSpec]]:
        """The nodes divided into runs for processes, so that neighbours are mostly in one process."""
        count = min(MOST, 1 + len(self.nodes) // A_PROCESS)
        cuts = [len(self.nodes) * at // count for at in range(count + 1)]
        return [self.nodes[first:last] for first, last in itertools.pairwise(cuts)]


def read(file: str, *, boards: bool, each: int = 1) -> Simulation:
    """The machine in the [topology] of ``file``. Raises UsageError.

    On a mesh of cabinets every processor is a node with its own PCT, as on Red Storm; with ``boards`` every board is a
    node. In a cluster the nodes are those of the topology, with ``each`` processors.
    """
    section = load(config=file).topology
    if section is None:
        raise UsageError(f"{file} has no section [topology]", "examples/red_storm.toml has one")
    topology = parse(section)
    if isinstance(topology, Cluster):
        if boards:
            raise UsageError("--boards is for machines of boards", f"{file} describes a cluster")
        return Simulation(topology, _of_cluster(topology, each, file))
    return Simulation(topology, _of_mesh(topology, boards))


def _of_mesh(mesh: Mesh, boards: bool) -> list[NodeSpec]:
    nodes: list[NodeSpec] = []
    for role, first, last, seats in (
        ("compute", 0, mesh.compute, mesh.routers),
        ("service", mesh.compute, mesh.size, len(mesh.service_routers)),
    ):
        step = seats if boards else 1
        for one in range(first, last, step):
            name = mesh.name(one).rpartition("n")[0] if boards else mesh.name(one)
            nodes.append(NodeSpec(len(nodes) + 1, name, list(range(one, one + step)), role))
    return nodes


def _of_cluster(cluster: Cluster, each: int, file: str) -> list[NodeSpec]:
    if not cluster.nodes:
        raise UsageError(f"the topology in {file} names no nodes", "racks and trees do")
    return [NodeSpec(at + 1, name, list(range(at * each, (at + 1) * each))) for at, name in enumerate(cluster.nodes)]


def config_of(settings: Settings, simulation: Simulation, boot_id: str) -> KeeperFile:
    """The machine's part of ``keeper.json``."""
    size = Size(simulation.processors, len(simulation.nodes), settings.cpas)
    nodes = [NodeEntry(name=node.name, processors=tuple(node.processors)) for node in simulation.nodes]
    config = keeper_config(settings, size, boot_id, auto=False, machine=nodes)
    return config.replace(
        nodes=(),
        simulated=tuple(f"sim-{at}" for at in range(len(simulation.shares))),
        size=(size.processors, size.nodes),
        topology=simulation.topology.to_dict(),
    )


def write_shares(simulation: Simulation, config: KeeperFile, write: Any) -> None:
    """Write a file in STATE for each simulating process, with the nodes that it stands in for."""
    for name, share in zip(config.simulated, simulation.shares, strict=True):
        what = {"nodes": [node.name for node in share], "processors": sum(len(node.processors) for node in share)}
        write(f"{config.state}/{name}.json", json.dumps(what) + "\n")

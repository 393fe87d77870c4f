"""The PMIx data of a launch: sizes, maps and each rank's place. No I/O."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Tuple

from agents.pmix.library import Rank, Short


class Job(NamedTuple):
    """A launch as seen from one machine. ``hosts``: [machine, ranks] in rank order; ``here``: this machine's number."""

    nspace: str
    size: int
    hosts: "List[List[int]]"
    here: int
    firsts: "List[int]"  # the first rank of each command line of the launch
    directory: str

    @property
    def on_machine(self) -> "Dict[int, List[int]]":
        """The ranks of each machine."""
        found: Dict[int, List[int]] = {}
        first = 0
        for machine, count in self.hosts:
            found.setdefault(machine, []).extend(range(first, first + count))
            first += count
        return found

    @property
    def local(self) -> "List[int]":
        """The ranks of this machine."""
        return self.on_machine[self.here]


def host_name(machine: int) -> str:
    """The PMIx name of a machine, only for its maps."""
    return f"machine{machine}"


def node_list(job: Job) -> str:
    """The list of machines for PMIx's generators."""
    return ",".join(host_name(machine) for machine in job.on_machine)


def rank_list(job: Job) -> str:
    """The ranks of each machine, in the same order."""
    return ";".join(",".join(map(str, ranks)) for ranks in job.on_machine.values())


def facts(job: Job, node_map: str, proc_map: str) -> "List[Tuple[str, Any]]":
    """Keys and values for the launch and for every rank of it (PMIx standard, 'Job-level information')."""
    machines = job.on_machine
    places = {machine: place for place, machine in enumerate(machines)}
    local = machines[job.here]
    told: List[Tuple[str, Any]] = [
        ("pmix.jobid", job.nspace), ("pmix.univ.size", job.size), ("pmix.job.size", job.size),
        ("pmix.max.size", job.size), ("pmix.job.napps", len(job.firsts)), ("pmix.num.nodes", len(machines)),
        ("pmix.local.size", len(local)),
        ("pmix.node.size", len(local)), ("pmix.nodeid", places[job.here]), ("pmix.lpeers", ",".join(map(str, local))),
        ("pmix.lldr", Rank(local[0])), ("pmix.nmap", node_map), ("pmix.pmap", proc_map), ("pmix.tmpdir", job.directory),
        ("pmix.nsdir", job.directory), ("pmix.spawned", False),
    ]  # fmt: skip
    for machine, ranks in machines.items():
        for place, rank in enumerate(ranks):
            told.append(("pmix.pdata", _of_rank(job, rank, place, places[machine], host_name(machine))))
    return told


def _of_rank(job: Job, rank: int, place: int, node: int, host: str) -> "List[Tuple[str, Any]]":
    line = max(number for number, first in enumerate(job.firsts) if first <= rank)
    return [
        ("pmix.rank", Rank(rank)), ("pmix.grank", Rank(rank)), ("pmix.apprank", Rank(rank - job.firsts[line])),
        ("pmix.appnum", line), ("pmix.lrank", Short(place)), ("pmix.nrank", Short(place)), ("pmix.nodeid", node),
        ("pmix.hname", host),
    ]  # fmt: skip

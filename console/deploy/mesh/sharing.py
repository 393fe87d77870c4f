"""Other meshes on the hosts of a mesh, and whose meshes a host takes part in, as hosts answer before they are used."""

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agents.pct.node import host_policy, neighbours
from agents.wire.errors import WireError
from console.deploy.hosts.host_states import HostFailed
from console.deploy.mesh.plan import joined
from console.deploy.ssh.bootstrap import OTHER_PORT, holder
from console.deploy.ssh.worker_pool import HostTask
from console.errors import ConsoleError
from redmesh.idset import fold_names

#: What it means that two meshes use a host.
MEANING = "neither knows what the other runs, so both may run ranks on the same processors"


class Neighbour(NamedTuple):
    """A PCT on a host: the user that the kernel names, and what the PCT says of itself."""

    uid: int
    user: str
    said: neighbours.Introduction


def found_on(errand: HostTask) -> list[Neighbour]:
    """All PCTs on a host, those of this mesh too."""
    found = []
    for one in errand.facts.get("neighbours", ()):
        try:
            said = neighbours.read_introduction(str(one["said"]).encode("utf-8", "replace"))
        except WireError:
            continue  # anybody may listen at a name like a PCT's
        found.append(Neighbour(int(one["uid"]), str(one["user"]), said))
    return found


def told(errand: HostTask) -> str:
    """The other meshes on a host in words; "" if there is none."""
    own = neighbours.Introduction("", os.uname().nodename, 0)
    table = neighbours.Table(int(errand.facts.get("uid", -1)), own)
    there = found_on(errand)
    for key, one in enumerate(there):
        if table.admit(key, one.uid):
            table.hear(key, one.said)
    names = {one.uid: one.user for one in there}
    return neighbours.told(table.meshes(), lambda uid: names[uid])


def lines(hosts: Iterable[tuple[str, str]]) -> list[str]:
    """A line for all hosts of which the same is told, from their names and :func:`told`."""
    alike: dict[str, list[str]] = {}
    for name, text in hosts:
        if text:
            alike.setdefault(text, []).append(name)
    return [f"{fold_names(names)} {'is' if len(names) == 1 else 'are'} {text}" for text, names in alike.items()]


def judge(errand: HostTask) -> host_policy.Judgement:
    """Decide whether the host takes part in meshes of its account."""
    file = errand.facts.get("policy")
    if file is None:
        return host_policy.Judgement()
    return host_policy.judge(host_policy.PolicyFile(*file), int(errand.facts["uid"]), str(errand.facts["user"]))


def explained(errand: HostTask, failure: HostFailed, place: tuple[str, int]) -> HostFailed:
    """Add to the failure to listen at ``place`` whose agent says that it listens there."""
    for one in found_on(errand):
        holds = failure.code == "port" and failure.message.startswith(f"a process of {one.user} ")
        if holds and one.said.listen == joined(place):
            told = f"{failure.message}: the agent of mesh {one.said.mesh}, started on {one.said.started_on}"
            return HostFailed("port", told, failure.hint)
    return failure


def need_free(place: tuple[str, int]) -> None:
    """Raise ConsoleError if another process of this machine has the RCA's UDP port."""
    who = holder("udp", place)
    if who:
        raise ConsoleError(f"{who} has UDP port {joined(place)} of this machine, which the RCA needs", OTHER_PORT)


def names(errands: Sequence[HostTask]) -> list[tuple[str, str]]:
    """The arguments of :func:`lines` for hosts that have answered."""
    return [(errand.name, told(errand)) for errand in errands if errand.facts]

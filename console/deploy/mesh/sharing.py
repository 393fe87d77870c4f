"""Other meshes on the hosts of a mesh, and whose meshes a host takes part in, as hosts answer before they are used."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agents.pct.node import host_policy, neighbours
from agents.wire.errors import WireError
from console.deploy.hosts.host_states import HostFailed
from console.deploy.hosts.other_meshes import MEANING, alike, lines
from console.deploy.mesh.plan import joined
from console.deploy.ssh import bootstrap
from console.deploy.ssh.worker_pool import HostTask
from console.errors import ConsoleError
from redmesh.idset import fold_names


class Neighbour(NamedTuple):
    """A PCT on a host: the user that the kernel names, and what the PCT says of itself."""

    uid: int
    user: str
    said: neighbours.Introduction


def found_on(facts: Mapping[str, Any]) -> list[Neighbour]:
    """All PCTs on a host, those of this mesh too."""
    found = []
    for one in facts.get("neighbours", ()):
        try:
            said = neighbours.read_introduction(str(one["said"]).encode("utf-8", "replace"))
        except WireError:
            continue  # anybody may listen at a name like a PCT's
        found.append(Neighbour(int(one["uid"]), str(one["user"]), said))
    return found


def told(facts: Mapping[str, Any]) -> str:
    """The other meshes on a host in words, from what bootstrap.py says of the host; "" if there is none."""
    own = neighbours.Introduction("", os.uname().nodename, 0)
    table = neighbours.Table(int(facts.get("uid", -1)), own)
    there = found_on(facts)
    for key, one in enumerate(there):
        if table.admit(key, one.uid):
            table.hear(key, one.said)
    names = {one.uid: one.user for one in there}
    return neighbours.told(table.meshes(), lambda uid: names[uid])


def notes(errands: Sequence[HostTask]) -> list[str]:
    """What ``mesh up`` says of hosts that it can use: other meshes there, and a policy that does not count."""
    there = [errand for errand in errands if errand.facts]
    shared = lines((errand.name, told(errand.facts)) for errand in there)
    warnings = alike((errand.name, judge(errand.facts).warning) for errand in there)
    return [
        *(f"{line}: {MEANING}" for line in shared),
        *(f"{fold_names(names)}: {warning}" for warning, names in warnings),
    ]


def judge(facts: Mapping[str, Any]) -> host_policy.Judgement:
    """Decide whether the host takes part in meshes of its account."""
    file = facts.get("policy")
    if file is None:
        return host_policy.Judgement()
    return host_policy.judge(host_policy.PolicyFile(*file), int(facts["uid"]), str(facts["user"]))


def explained(errand: HostTask, failure: HostFailed, place: tuple[str, int]) -> HostFailed:
    """Add to the failure to listen at ``place`` whose agent says that it listens there."""
    for one in found_on(errand.facts):
        holds = failure.code == "port" and failure.message.startswith(f"a process of {one.user} ")
        if holds and one.said.listen == joined(place):
            told = f"{failure.message}: the agent of mesh {one.said.mesh}, started on {one.said.started_on}"
            return HostFailed("port", told, failure.hint)
    return failure


def need_free(place: tuple[str, int]) -> None:
    """Raise ConsoleError if another process of this machine has the RCA's UDP port."""
    who = bootstrap.holder("udp", place)
    if who:
        message = f"{who} has UDP port {joined(place)} of this machine, which this mesh's RCA needs"
        raise ConsoleError(message, bootstrap.other_port("udp", place), exit_status=1)


def here() -> dict[str, Any]:
    """What bootstrap.py would say of this machine."""
    uid = os.geteuid()
    return {
        "uid": uid,
        "user": bootstrap.user_of(uid),
        "policy": bootstrap.policy_file(),
        "neighbours": bootstrap.neighbours(),
    }

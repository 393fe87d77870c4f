"""Heterogeneous jobs of Slurm: their components, each with nodes and tasks of its own.

Source: "Heterogeneous Job Support" of Slurm's documentation, and the variables that 22.05 sets in the leader's script.
"""

from __future__ import annotations

from redmesh.managers import ManagerError, expand, repeated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Sequence

    from redmesh.managers import Hosts


def components(environ: Mapping[str, str]) -> int:
    """The number of components; 0 in a job that is not heterogeneous."""
    text = environ.get("SLURM_HET_SIZE", "")
    return int(text) if text.isascii() and text.isdigit() else 0


def hosts(environ: Mapping[str, str]) -> Hosts:
    """The nodes of all components in their order, each once, with the processors of all its components."""
    slots: Dict[str, int] = {}
    for group in range(components(environ)):
        for name, count in _hosts_of(environ, group):
            slots[name] = slots.get(name, 0) + count
    return list(slots.items())


def job_hosts(environ: Mapping[str, str], suffix: str) -> Hosts:
    """The nodes that the variables with this suffix name. Slots of each: its tasks times the processors of a task, or
    the allocated processors."""
    names = expand(environ["SLURM_JOB_NODELIST" + suffix])
    if "SLURM_NTASKS" + suffix in environ and "SLURM_TASKS_PER_NODE" + suffix in environ:
        each = environ.get("SLURM_CPUS_PER_TASK" + suffix, "")
        times = int(each) if each.isascii() and each.isdigit() and int(each) > 0 else 1
        slots = [tasks * times for tasks in repeated(environ["SLURM_TASKS_PER_NODE" + suffix])]
    else:
        slots = repeated(environ.get("SLURM_JOB_CPUS_PER_NODE" + suffix, "1(x%d)" % len(names)))
    if len(slots) != len(names):
        raise ManagerError(
            "Slurm names %d nodes and the processors of %d" % (len(names), len(slots)),
            "run yod in the job's script rather than inside of another srun",
        )
    return list(zip(names, slots))


def groups(environ: Mapping[str, str], names: Sequence[str]) -> List[List[str]]:
    """``names`` by component: one srun starts tasks on the nodes of one."""
    left, parts = dict.fromkeys(names), []
    for group in range(components(environ)):
        part = [name for name, _slots in _hosts_of(environ, group) if name in left]
        for name in part:
            del left[name]
        parts.append(part)
    return [part for part in (*parts, list(left)) if part]


def options(environ: Mapping[str, str], name: str) -> List[str]:
    """The option of srun for the component of the node ``name``; none in a job that is not heterogeneous."""
    for group in range(components(environ)):
        if any(name == host for host, _slots in _hosts_of(environ, group)):
            return [f"--het-group={group}"]
    return []


def _hosts_of(environ: Mapping[str, str], group: int) -> Hosts:
    try:
        return job_hosts(environ, f"_HET_GROUP_{group}")
    except KeyError as error:
        raise ManagerError(
            f"Slurm says that the job has {components(environ)} components, and does not set {error.args[0]}",
            "run yod in the script of the job's leader",
        ) from None

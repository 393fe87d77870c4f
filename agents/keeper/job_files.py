"""The files of a batch job's mesh on one host: its keeper leaves none, neither of its own mesh nor of dead ones."""

from __future__ import annotations

import json
import os
import time

from agents.keeper import leftovers
from agents.link.lean import signal
from agents.link.sockets import own_directory
from agents.linux import processes
from agents.linux.removal import EVIDENCE, remove_all_but, remove_empty, remove_state, remove_tree
from agents.objects.carry import carry_all, has_objects
from agents.wire.errors import AgentError
from redmesh.settings.keeper_file import PARENT, KeeperFile

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from agents.link.journal import Journal

#: Seconds for which a node's keeper that ends waits for that of the mesh, at least; and before the batch system's kill.
LINGER_S, _KILL_S = 1.0, 0.3
#: In the state directory of a batch job's mesh: the directories of its hosts. How many directories are above the one
#: that a host's keeper removes (console/deploy/managed/starter.py): of the host, of all hosts, of the mesh, of all
#: jobs, of the user; and how many of these are above the mesh's own.
_NODES, _ABOVE, _ABOVE_MESH = "nodes", 5, 2


class JobFiles:
    """The files of the mesh whose keeper has ``config``, and those of the user's other jobs on this host."""

    def __init__(self, config: KeeperFile, log: Journal) -> None:
        self._state, self._target, self._log = config.state, config.keep_jobs, log
        #: True for the keeper of a node, False for that of the job's script.
        self._node = config.ends_with == PARENT
        self._mesh = self._state
        for _ in range(_ABOVE if self._node else 0):  # JOB/nodes/HOST/redmesh/nodes/NODE
            self._mesh = os.path.dirname(self._mesh)

    def leave(self, killed_at: float) -> None:
        """Carry state objects to their user's directory, and remove everything.

        ``killed_at``: monotonic, when the batch system kills what is left of the job; 0 if that is not known.
        """
        if not self._node:
            self._end_steps()
        if self._carry_objects():
            self._remove()
        if self._node:
            self._remove_killed_mesh(max(killed_at - _KILL_S, time.monotonic() + LINGER_S))
        leftovers.sweep(os.path.dirname(self._mesh))

    def sweep_at_start(self) -> None:
        """Remove what dead meshes of other jobs left here."""
        removed = leftovers.sweep(os.path.dirname(self._mesh))
        if removed:
            self._log.write("leftovers of dead jobs removed", paths=removed)

    def _end_steps(self) -> None:
        """End the manager's clients that hold the job's other nodes (console/deploy/managed/steps.py)."""
        if "REDMESH_LIFELINES" in os.environ:
            return  # the nodes end when this process and its daemons have closed the clients' input
        try:
            with open(os.path.join(self._state, "steps.json"), encoding="utf-8") as file:
                steps = [(int(pid), int(began)) for pid, began in json.load(file)]
        except (OSError, ValueError, TypeError):
            return
        for pid, began in steps:
            if processes.alive(pid, began):
                try:
                    os.killpg(pid, signal.SIGTERM)  # a client has its own session, with the processes that it runs here
                except OSError:
                    pass

    def _carry_objects(self) -> bool:
        """Carry the state objects that are here to their user's directory; False if one has to stay."""
        target, ours = self._target, os.path.join(self._state, "jobs")
        if not target or not os.path.isdir(ours):
            return True
        try:
            own_directory(target)
            carried, refused = carry_all(ours, target, f"the batch job of its mesh ended: kept in {target}")
        except (OSError, AgentError) as error:
            carried, refused = [], [str(error)]
        if carried or refused:
            self._log.write("state objects kept", carried=carried, refused=refused)
        return not refused

    def _remove(self) -> None:
        """Remove what this keeper's mesh had here. Where the hosts share a directory, objects of the other hosts stay
        until their own keepers have carried them."""
        if self._node:
            place = _place_of(self._state)
            remove_state(self._state)
            remove_tree(place)
            remove_empty(os.path.dirname(place), _ABOVE)
            return
        nodes = leftovers.nodes_of(self._state)
        kept = {_place_of(node) for node in nodes if leftovers.is_kept(node)}
        objects = has_objects(os.path.join(self._state, _NODES))
        for node in nodes:
            if _place_of(node) not in kept:
                _remove_killed_node(node, objects)
        if objects or kept:
            # The keeper of a node on this host still needs its directory, even to import modules; it removes the rest.
            remove_all_but(self._state, _NODES, *EVIDENCE)
            remove_all_but(self._state, _NODES)
            remove_empty(os.path.join(self._state, _NODES), _ABOVE - 1)  # the others may have been quicker
            return
        remove_state(self._state)
        remove_empty(os.path.dirname(self._state), _ABOVE_MESH)  # the hosts' keepers may have been quicker

    def _remove_killed_mesh(self, until: float) -> None:
        """On the script's host, wait for the end of the mesh's own keeper, which Slurm may kill with the script, and
        remove what it left."""
        while os.path.exists(os.path.join(self._mesh, "mesh.lock")):
            if leftovers.sweep_own(self._mesh) or time.monotonic() >= until:
                return
            time.sleep(LINGER_S / 10)  # poll: locks of files do not report their release


def _place_of(node: str) -> str:
    """The directory of everything that the node in the directory ``node`` has: JOB/nodes/HOST/redmesh."""
    return os.path.dirname(os.path.dirname(node))


def _remove_killed_node(node: str, objects: bool) -> None:
    """Remove what the keeper of ``node`` left, but not its directory if ``objects`` of any host are to be kept."""
    try:
        leftovers.remove_run(node)
    except (OSError, ValueError):
        pass  # its keeper has just removed it
    if not objects:
        remove_state(node)
        remove_tree(_place_of(node))
        remove_empty(os.path.dirname(_place_of(node)), 1)

"""Waits with the end of a yod whose mesh ends with it, while other launches use the mesh.

In ``srun -n 4 yod …`` the mesh of the job is started by one of the tasks. It ends with this task, because its daemons
are processes of the task, which Slurm kills when the task has ended.
"""

from __future__ import annotations

import os

from agents.keeper.job_end import Question
from agents.link.loop import Loop
from agents.linux import processes
from agents.managers import registry
from console.launch.daemons.connect import owner_of_mesh
from console.launch.daemons.cpa import connect_any
from redmesh.managers import ManagerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from console.settings import Settings

#: Seconds between looks, and how many looks in sequence find no launch: the other tasks may just have connected.
LOOK_S, QUIET = 0.2, 6


def wait_for_others(settings: Settings) -> None:
    """Return when no launch has processors any more, at once if the mesh does not end with this process's task."""
    try:
        _name, manager = registry.find(os.environ, settings.manager)
        in_task = bool(manager is not None and hasattr(manager, "in_task") and manager.in_task(os.environ))
    except ManagerError:
        return
    owner = owner_of_mesh(settings)
    if not in_task or owner not in {os.getpid(), *processes.ancestors(os.getpid())}:
        return
    loop, quiet = Loop(), 0

    def look() -> None:
        sock = connect_any(settings.run_dir, os.getpid())
        if sock is None:  # the mesh has ended
            loop.stop()
        else:
            Question(loop, sock, on_answer)

    def on_answer(idle: bool) -> None:
        nonlocal quiet
        quiet = quiet + 1 if idle else 0
        if quiet >= QUIET:
            loop.stop()
        else:
            loop.after(LOOK_S, look)

    loop.after(0, look)
    loop.run()
    loop.close()

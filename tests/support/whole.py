"""Whether a mesh of several tests is as a test found it: looks in the process of the test, no command."""

import contextlib
import json
from collections.abc import Iterator

from agents.link.client import Unreachable
from agents.linux import processes
from tests.support.look import processors
from tests.support.mesh import PrivateMesh, restarted_on_failure
from tests.support.waiting import wait_until


@contextlib.contextmanager
def left_as_found(mesh: PrivateMesh) -> Iterator[None]:
    """Wait after the block until the mesh is whole; it must be of the same boot, with the same ``env``.

    If it is not, or the block fails, the mesh is started again for later tests, with the ``env`` of before.
    """
    boot, env = boot_id(mesh), dict(mesh.env)
    with restarted_on_failure(mesh):
        try:
            yield
        finally:
            found, mesh.env = mesh.env, env
        changed = sorted(name for name in {*found, *env} if found.get(name) != env.get(name))
        assert not changed, f"the test changed variables in the environment of the mesh's commands: {changed}"
        wait_until(lambda: is_whole(mesh), lambda: f"the mesh is as before the test: {mesh.logs()}")
        assert boot_id(mesh) == boot, "the test started the mesh again"


def boot_id(mesh: PrivateMesh) -> str:
    """Return the boot id of a mesh that is up."""
    return str(json.loads((mesh.state / "keeper.json").read_text())["boot_id"])


def is_whole(mesh: PrivateMesh) -> bool:
    """Whether every daemon answers, none is frozen, and every processor is free."""
    try:
        daemons = mesh.keeper()["daemons"]
    except (OSError, Unreachable):
        return False
    if any(processes.state(int(one["pid"])) in ("", "T", "t") for one in daemons):
        return False  # a frozen one accepts connections too
    return all(mesh.answers(one["name"]) for one in daemons) and processors(mesh, "free") == mesh.size[0]

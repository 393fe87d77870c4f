"""Makes hosts with ``role = "login"`` login processors, over their SSH connections.

Users launch from these hosts, so Redmesh must be installed there; its ``mesh`` command is run over SSH.
"""

import json
from collections.abc import Sequence

from console.deploy.hosts.host_state_file import HostStateFile
from console.deploy.hosts.host_states import Event, HostFailed
from console.deploy.mesh import logins, plan
from console.deploy.ssh.worker_pool import HostTask, WorkerPool
from console.settings import Settings

ROLE = "login"
#: Seconds for ``mesh login join``, which waits until requests are served there, and for ``mesh down``.
JOIN_S, LEAVE_S = 45.0, 60.0
#: Shell script that runs ``mesh`` in the directory ``$1``, or else on PATH, or else in ~/.local/bin.
_MESH = (
    'cd /;d=$1;shift;for p in "$d/mesh" mesh "$HOME/.local/bin/mesh";do '
    'command -v "$p" >/dev/null 2>&1&&exec "$p" "$@";done;exit 127'
)


def parted(errands: Sequence[HostTask]) -> tuple[list[HostTask], list[HostTask]]:
    """Tasks of hosts with nodes, and of login processors."""
    nodes = [errand for errand in errands if errand.host.role != ROLE]
    return nodes, [errand for errand in errands if errand.host.role == ROLE]


def join_all(workers: WorkerPool, settings: Settings, errands: Sequence[HostTask], ledger: HostStateFile) -> None:
    """Make these hosts login processors; hosts that are login processors of the mesh already stay unchanged."""
    for errand in errands:
        ledger.put(errand.host, *plan.size_of(errand.host, errand, ledger))
    ledger.write()
    given: dict[str, str] = {}

    def grant(errand: HostTask) -> None:  # one after another, because each is a row in the database
        given[errand.name] = json.dumps(logins.grant(settings, errand.name, cpas=errand.host.cpas))

    for errand in errands:
        workers.each([errand], grant)
    workers.each(errands, lambda errand: _join(errand, given[errand.name]))


def _join(errand: HostTask, given: str) -> None:
    errand.handle(Event.ORDERED)
    _mesh(errand, ["login", "join", "-"], given, JOIN_S)
    errand.handle(Event.STARTED)
    errand.handle(Event.REGISTERED)


def leave(errand: HostTask) -> None:
    """End the login processor on the host, and all launches that were started from it. Raises HostFailed."""
    errand.handle(Event.ORDERED)
    _mesh(errand, ["down", "--force"], "", LEAVE_S)
    errand.handle(Event.DONE)
    errand.close()


def _mesh(errand: HostTask, words: Sequence[str], given: str, timeout_s: float) -> None:
    assert errand.remote is not None
    python = errand.host.python if errand.host.python.startswith("/") else str(errand.facts["python"])
    beside = python.rpartition("/")[0]
    status, said = errand.remote.run(["sh", "-c", _MESH, "redmesh", beside, *words], given.encode("ascii"), timeout_s)
    if status == 127:
        hint = "people launch from there, so install it; `python` in mesh.toml may say which one has it"
        raise HostFailed("login", "redmesh is not installed there: no `mesh` is found", hint)
    if status:
        raise HostFailed("login", said or f"`mesh {words[0]}` ended there with status {status}", "its own words")

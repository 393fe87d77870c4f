"""One user attacks the daemons and the database of a system mesh with all there is, and another one launches."""

import os
import statistics
import sys

from tests.bench.ratios import Bar, Row
from tests.support.hosts import NamespaceHosts
from tests.support.mariadb import private_server
from tests.support.system_mesh import Attacked, SystemMesh

SECONDS = 60.0
MOST_MB = 150.0


def attacked() -> list[Row]:
    """A launch beside the attack and beside as many processes that spin; what CPA and RCA need meanwhile.

    Needs root, for the hosts and the users, and MariaDB. REDMESH_ATTACK_S makes it longer.
    """
    seconds = float(os.environ.get("REDMESH_ATTACK_S", SECONDS))
    hosts = NamespaceHosts(1, users=("ada", "bob"))
    try:
        with private_server() as server:
            os.chmod(server.directory, 0o755)
            mesh = SystemMesh(hosts, server)
            try:
                mesh.up()
                options = ("--pct", f"{hosts[0].address}:7117", "--database", mesh.viewers_url)
                beside = Attacked(mesh, seconds)
                spinning = beside.launches(*options, "--spin")
                attacking = beside.launches(*options)
                normal = beside.normal_after()
                print(f"{len(spinning)} and {len(attacking)} launches; {beside.said}", file=sys.stderr)
                memory = max(mesh.memory_mb().values())
            finally:
                for what in mesh.close():
                    print(f"left behind: {what}", file=sys.stderr)
    finally:
        hosts.close()
    medians = statistics.median(attacking), statistics.median(spinning)
    return [
        Row("yod -sz 1 beside another user's attack (s)", "as many that spin", *medians, Bar(3.0, 1.5)),
        Row("all is normal after the attack (s)", "1 s", normal, 1.0, Bar(5.0, 2.0)),
        Row("CPA and RCA under attack: RSS of the larger (MB)", "150 MB", memory, MOST_MB, Bar(1.0, 0.6)),
    ]

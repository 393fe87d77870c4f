"""A mesh from nothing over four hosts of its own network, used, and gone without a trace."""

from typing import Any

from tests.support.far_mesh import FarMesh
from tests.support.hosts import NamespaceHosts
from tests.support.mesh import while_up
from tests.support.waiting import wait_until

HOSTS, EACH = 4, 4


def test_four_hosts_from_nothing_to_nothing(netns_hosts: Any) -> None:
    hosts: NamespaceHosts = netns_hosts(HOSTS)
    before = {host.name: _files(host) for host in hosts}
    with while_up(FarMesh(hosts, EACH), up=False) as mesh:
        up = mesh.up()
        assert up.stdout.startswith(f"mesh up: {HOSTS * EACH} processors on {HOSTS} nodes (")
        where = mesh.run("yod", "-sz", str(HOSTS * EACH), "hostname", check=True).stdout.split()
        assert {name: where.count(name) for name in set(where)} == {host.name: EACH for host in hosts}
        for host in hosts:
            shown = host.run("ss", "-ltnuH").stdout.splitlines()
            assert sorted(line.split()[4] for line in shown) == [f"{host.address}:22", f"{host.address}:7117"]
        hosts[2].reboot()  # its agent is gone, with all that was in memory
        assert mesh.up().stderr.count(": up (") == HOSTS
        mesh.run("yod", "-sz", str(HOSTS * EACH), "true", check=True)
        assert mesh.run("mesh", "down", check=True).stdout == "mesh down\n"
        for host in hosts:
            wait_until(lambda host=host: not host.processes(), f"nothing runs on {host.name}: {host.processes()}")
            assert _files(host) == before[host.name]


def _files(host: Any) -> set[str]:
    """Everything in the places that a host has for itself; directories of an account's state are the account's."""
    found = host.run("find", "/root", "/tmp", "/dev/shm", "-mindepth", "1").stdout.split("\n")
    return {path for path in found if path and path not in ("/root/.local", "/root/.local/state")}

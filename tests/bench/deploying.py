"""``mesh up`` of cold hosts beside bare paramiko, which only connects, puts a file and runs a command."""

import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.bench.ratios import Bar, Row, in_turn, seconds
from tests.support.addresses import address
from tests.support.hosts import LoopbackHosts
from tests.support.loopback_mesh import LoopbackMesh
from tests.support.mesh import BIN

HOSTS, RUNS = 32, 5

#: The peer: connect, put 100 KB, exec, in as many threads as there are hosts; key and pins as ~/.ssh/config has them.
_BARE = """
import io, os, sys
from concurrent.futures import ThreadPoolExecutor
import paramiko

key, pins, port, *hosts = sys.argv[1:]

def one(host):
    client = paramiko.SSHClient()
    client.load_host_keys(pins)
    client.connect(host, int(port), key_filename=key, allow_agent=False, look_for_keys=False)
    sftp = client.open_sftp()
    sftp.putfo(io.BytesIO(os.urandom(100_000)), "bare-" + host)
    status = client.exec_command("rm bare-" + host)[1].channel.recv_exit_status()
    client.close()
    return status

with ThreadPoolExecutor(len(hosts)) as pool:
    sys.exit(sum(pool.map(one, hosts)))
"""


def up_hosts() -> list[Row]:
    """32 hosts on loopback, nothing of ours on any of them."""
    hosts = LoopbackHosts(HOSTS)
    table = {"name": f"lo[1-{HOSTS}]", "address": address(f"[1-{HOSTS}]"), "processors": 1}
    mesh = LoopbackMesh(hosts, table)
    keys = hosts.keys
    words = [str(keys.directory / "id"), str(keys.known_hosts), str(hosts[0].port), *(host.address for host in hosts)]

    def ours() -> float:
        took = seconds([str(BIN / "mesh"), "up"], mesh.env)
        subprocess.run([str(BIN / "mesh"), "down"], env=mesh.env, check=True, capture_output=True)
        return took

    try:
        mine, bare = in_turn(ours, lambda: seconds([sys.executable, "-P", "-c", _BARE, *words]), RUNS)
    finally:
        mesh.close()
        hosts.close()
    return [Row(f"s, mesh up, {HOSTS} cold hosts", "bare paramiko: connect, put, exec", mine, bare, Bar(3.0, 1.7))]


def ssh_routes() -> list[Row]:
    """The routes to 32 hosts: a configuration without ``Match``, and the same with it, for which ssh -G is asked."""
    from console.deploy.ssh.config import SshConfig

    names = [f"node{number:03}" for number in range(HOSTS)]

    def ms(path: Path) -> float:
        began = time.perf_counter()
        config = SshConfig(str(path))
        with ThreadPoolExecutor(HOSTS) as pool:
            list(pool.map(config.route_to, names))
        return 1000 * (time.perf_counter() - began)

    with tempfile.TemporaryDirectory(prefix="redmesh-bench-") as folder:
        plain, match = Path(folder, "plain"), Path(folder, "match")
        plain.write_text("Host node*\n  User ada\n  Port 2200\n  IdentityFile ~/.ssh/node\n")
        match.write_text(f"Match final all\n  GSSAPIAuthentication yes\n{plain.read_text()}")
        mine, asked = in_turn(lambda: ms(plain), lambda: ms(match))
    return [Row(f"ms, routes to {HOSTS} hosts without Match", "with Match: ssh -G", mine, asked, Bar(0.3, 0.1))]

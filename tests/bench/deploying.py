"""``mesh up`` of cold hosts beside bare paramiko, which only connects, puts a file and runs a command."""

import subprocess
import sys

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

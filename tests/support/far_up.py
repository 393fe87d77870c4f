"""``mesh up`` of a personal mesh whose PCTs are reached like those of other machines: only over TLS, on loopback.

Run it in a PrivateMesh's environment with the options of ``mesh up``. Only the nodes' addresses (in the network
FAR_NETWORK), certificates and the CPAs' port differ from a usual personal mesh.
"""

import os
import sys

from agents.link.sockets import own_directory
from console.cli.mesh import command
from console.deploy.personal import lifecycle
from console.deploy.trust.authority import authority, write_private
from console.settings import Settings
from redmesh.settings.keeper_file import KeeperFile
from tests.support.addresses import free_port

_write = lifecycle.write_config


def far(settings: Settings, config: KeeperFile) -> None:
    """Give every node its own address, certificate and keys; then write keeper.json."""
    network = os.environ["FAR_NETWORK"]
    login = f"{network}.1"
    ours = authority(settings.state_dir, config.mesh)
    own_directory(config.run)
    ours.equip_login(config.login, [login], config.run)
    nodes = []
    for number, node in enumerate(config.nodes):
        host = f"{network}.{number % 250 + 2}"
        trust = os.path.join(settings.state_dir, "nodes", node.name, "trust")
        nodes.append(node.replace(listen=f"{host}:{free_port(host)}", trust=trust))
        os.makedirs(trust, mode=0o700, exist_ok=True)
        for name, content in ours.node_files(node.name, [host]).items():
            write_private(os.path.join(trust, name), content)
    _write(settings, config.replace(nodes=tuple(nodes), cpa_listen=f"{login}:{free_port(login)}"))


if __name__ == "__main__":
    lifecycle.write_config = far
    sys.exit(command.main(["up", *sys.argv[1:]]))

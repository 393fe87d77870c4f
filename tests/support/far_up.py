"""``mesh up`` of a personal mesh whose PCTs are reached like those of other machines: only over TLS, on 127.0.0.N.

Run it in a PrivateMesh's environment with the options of ``mesh up``. Only the nodes' addresses, certificates and the
CPAs' port differ from a usual personal mesh.
"""

import socket
import sys
from typing import Any

from agents.link.sockets import own_directory
from console.cli.mesh import command
from console.deploy.personal import lifecycle
from console.deploy.trust.authority import authority, write_private
from console.settings import Settings

_write = lifecycle.write_config


def free_port(host: str) -> int:
    """Return a TCP port that is free on ``host`` now."""
    with socket.socket() as sock:
        sock.bind((host, 0))
        port: int = sock.getsockname()[1]
        return port


def far(settings: Settings, config: dict[str, Any]) -> None:
    """Give every node its own address, certificate and keys; then write keeper.json."""
    import os

    ours = authority(settings.state_dir, config["mesh"])
    own_directory(config["run"])
    ours.equip_login(config["login"], ["127.0.0.1"], config["run"])
    for number, node in enumerate(config["nodes"]):
        host = f"127.0.0.{number % 250 + 2}"
        node["listen"] = f"{host}:{free_port(host)}"
        node["trust"] = os.path.join(settings.state_dir, "nodes", str(node["name"]), "trust")
        os.makedirs(node["trust"], mode=0o700, exist_ok=True)
        for name, content in ours.node_files(str(node["name"]), [host]).items():
            write_private(os.path.join(node["trust"], name), content)
    config["cpa_listen"] = f"127.0.0.1:{free_port('127.0.0.1')}"
    _write(settings, config)


if __name__ == "__main__":
    lifecycle.write_config = far
    sys.exit(command.main(["up", *sys.argv[1:]]))

"""python -m agents.pmix LINE JOB: the PMIx server of a launch; LINE is a descriptor, JOB a JSON object (server.py)."""

from __future__ import annotations

import json
import os
import socket
import sys

from agents.pmix.server import serve


def main() -> None:
    """Serve until the launch child has gone; 1 when that was not possible."""
    line = socket.socket(fileno=int(sys.argv[1]))
    os.umask(0o077)
    why = serve(json.loads(sys.argv[2]), line)
    os._exit(1 if why else 0)  # libpmix's threads are not waited for


if __name__ == "__main__":
    main()

"""Reports of a section's program: ``report("progress", "0.42 half of it")``."""

import os
import socket


def report(word: str, text: str = "") -> None:
    """Send one report and wait for its answer. RuntimeError when it is refused."""
    if "REDMESH_REPORT" not in os.environ:
        return
    host, port = os.environ["REDMESH_REPORT"].split(":")
    with socket.create_connection((host, int(port)), timeout=5) as sock:
        line = f"{os.environ['REDMESH_TOKEN']} {word} {os.environ['REDMESH_SECTION']} {text}\n"
        sock.sendall(line.encode("ascii", "replace"))
        answer = sock.makefile().readline().strip()
    if answer != "ok":
        raise RuntimeError(answer)

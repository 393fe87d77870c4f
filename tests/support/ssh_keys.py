"""Keys for hosts that a test may ssh to, and an OpenSSH configuration that uses them."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; raise AssertionError with its output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode:
        raise AssertionError(f"{shlex.join(command)} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done


class Keys:
    """A host key and a user's key in ``directory``, and an OpenSSH client configuration that uses them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in ("hostkey", "id"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(directory / name))
        self.host_public = " ".join((directory / "hostkey.pub").read_text().split()[:2])
        self.user_public = (directory / "id.pub").read_text()
        self.known_hosts = directory / "known_hosts"
        self.config = directory / "ssh_config"

    def write_config(self, hosts: Sequence[tuple[str, str, int]], user: str) -> None:
        """Write an OpenSSH configuration with a ``Host`` block for each (name, address, port), and known_hosts."""
        lines = []
        for name, address, port in hosts:
            lines.append(f"Host {name} {address}\n  HostName {address}\n  Port {port}")
        lines.append(
            f"Host *\n  User {user}\n  IdentityFile {self.directory / 'id'}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
            "  StrictHostKeyChecking yes\n  BatchMode yes\n  LogLevel ERROR"
        )
        self.config.write_text("\n".join(lines) + "\n")
        known = {(address if port == 22 else f"[{address}]:{port}") for _, address, port in hosts}
        self.known_hosts.write_text("".join(f"{name} {self.host_public}\n" for name in sorted(known)))

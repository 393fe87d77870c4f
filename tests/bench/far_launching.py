"""Launches over hosts with a network between them: namespace hosts, TLS.

Against mpiexec.hydra over ssh on the same hosts, and against srun on this machine.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.bench.meshes import slurm, wait_completing
from tests.bench.ratios import Bar, Row, in_turn, seconds
from tests.support.far_mesh import FarMesh
from tests.support.hosts import LOGIN_ADDRESS, NamespaceHosts

HOSTS = 16
PROGRAM = "/usr/bin/hostname"


def hosts() -> list[Row]:
    """16 processes over 16 hosts; needs root, for the hosts."""
    made = NamespaceHosts(HOSTS)
    try:
        mesh = FarMesh(made, processors=1)
        try:
            mesh.up()

            def ours() -> float:
                return seconds(made.command("yod", "-sz", str(HOSTS), PROGRAM), mesh.env)

            mine, other = in_turn(ours, lambda: seconds(made.command(*_hydra(mesh, made), PROGRAM), mesh.env))
            with slurm(HOSTS) as peer:
                beside_srun = in_turn(ours, None if peer is None else lambda: _srun(peer))
        finally:
            mesh.close()
    finally:
        made.close()
    what = f"{HOSTS} processes over {HOSTS} namespace hosts, TLS (s)"
    return [
        Row(what, "mpiexec.hydra over ssh, same hosts", mine, other, Bar(0.35, 0.2)),
        Row(what, f"srun -N{HOSTS} on one machine", *beside_srun, Bar(0.9, 0.5)),
    ]


def _srun(peer: dict[str, str]) -> float:
    took = seconds(["srun", f"-N{HOSTS}", PROGRAM], peer)
    wait_completing(peer)
    return took


def _hydra(mesh: FarMesh, made: NamespaceHosts) -> list[str]:
    # ssh looks for its configuration in the account's own home, whatever HOME says
    ssh = Path(mesh.home) / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec ssh -F {made.keys.config} "$@"\n')
    os.chmod(ssh, 0o755)
    names = ",".join(host.address for host in made)
    words = ["mpiexec.hydra", "-launcher", "ssh", "-launcher-exec", str(ssh), "-localhost", LOGIN_ADDRESS]
    return [*words, "-hosts", names, "-ppn", "1", "-n", str(HOSTS)]

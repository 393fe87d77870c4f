"""Sections that only sleep, over hosts with a network between them, beside GNU parallel over the same sshds."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tests.bench.ratios import Bar, Row, in_turn, seconds
from tests.support.far_mesh import FarMesh
from tests.support.hosts import NamespaceHosts

HOSTS, SECTIONS, SLEEP_S, RUNS = 16, 500, 0.2, 3


def sections() -> list[Row]:
    """500 sections of 0.2 s, one at a time on each of 16 hosts; nodes are tested first. Needs root, for the hosts."""
    made = NamespaceHosts(HOSTS)
    try:
        mesh = FarMesh(made, processors=1)
        try:
            mesh.up()
            numbers = [str(number) for number in range(SECTIONS)]
            ours = made.command("mesh", "--quiet", "sections", "run", "--", "sh", "-c", f"sleep {SLEEP_S}", "{}",
                                ":::", *numbers, cwd="/var/tmp")  # fmt: skip
            theirs = None if shutil.which("parallel") is None else _parallel(mesh, made, numbers)
            if theirs is None:
                print("no GNU parallel here", file=sys.stderr)
            mine, other = in_turn(lambda: seconds(ours, mesh.env), theirs and (lambda: seconds(theirs, mesh.env)), RUNS)
        finally:
            mesh.close()
    finally:
        made.close()
    what = f"{SECTIONS} sections of {SLEEP_S} s over {HOSTS} hosts, tests of the nodes counted (s)"
    return [
        Row(what, "GNU parallel over the same sshds", mine, other, Bar(0.7, 0.4)),
        Row(what, "sum of the sleeps ÷ processors", mine, SECTIONS * SLEEP_S / HOSTS, Bar(1.1, 1.04)),
    ]


def parallel_words(mesh: FarMesh, made: NamespaceHosts, *options: str) -> list[str]:
    """GNU parallel with one job at a time on each host."""
    # ssh looks for its configuration in the account's own home, whatever HOME says
    ssh, hosts = Path(mesh.home) / "ssh", Path(mesh.home) / "hosts"
    ssh.write_text(f'#!/bin/sh\nexec ssh -F {made.keys.config} "$@"\n')
    os.chmod(ssh, 0o755)
    hosts.write_text("".join(f"1/{host.name}\n" for host in made))
    (mesh.home / ".parallel").mkdir(exist_ok=True)
    (mesh.home / ".parallel" / "will-cite").touch()
    return ["parallel", "--ssh", str(ssh), "--sshloginfile", str(hosts), "-j1", *options]


def _parallel(mesh: FarMesh, made: NamespaceHosts, numbers: list[str]) -> list[str]:
    return made.command(*parallel_words(mesh, made), f"sleep {SLEEP_S}; :", ":::", *numbers)

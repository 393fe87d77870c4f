"""The socket of a node's PCT, and its incarnation: two files in RUN, and a copy in STATE."""

from __future__ import annotations

import os
import time

from agents.pct.heartbeat.boot_id import kernel_boot, life_file, read_life, replace_file


def pct_socket(run: str, node: str) -> str:
    """The socket of the node's PCT."""
    return os.path.join(run, f"{node}.sock")


def incarnation_file(run: str, node: str) -> str:
    """The file with the number of PCT starts since the mesh came up."""
    return os.path.join(run, f"incarnation-{node}")


def write_incarnation(run: str, node: str, number: int) -> None:
    """Store the incarnation for the node's next PCT. Raises OSError."""
    replace_file(incarnation_file(run, node), str(number))


def next_incarnation(run: str, state: str, node: str, boot_id: str) -> int:
    """One more than the incarnation of the node's last PCT under this boot id. Raises OSError.

    If the file was removed with RUN, a number that is later than any before: a PCT that starts at 1 again would be
    ignored, whatever runs on its node.
    """
    record = life_file(state, node)
    try:
        with open(incarnation_file(run, node), encoding="ascii") as file:
            number = int(file.read()) + 1
    except (OSError, ValueError):
        former, _, number = read_life(record)
        # Half of the time, to stay below the number of a boot that is given up.
        number = max(number + 1, int(time.time()) // 2) if former == boot_id else 1
    write_incarnation(run, node, number)
    try:
        replace_file(record, f"{boot_id} {kernel_boot()} {number}\n")
    except OSError:
        pass  # the disk is full; RUN has it
    return number

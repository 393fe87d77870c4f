"""The socket of a node's PCT, and how often that PCT was started: two files in RUN, and a copy in STATE."""

from __future__ import annotations

import os
import time

from agents.pct.heartbeat.boot_id import kernel_boot, life_file, read_life, replace_file


def pct_socket(run: str, node: str) -> str:
    """Where the node's PCT listens."""
    return os.path.join(run, f"{node}.sock")


def incarnation_file(run: str, node: str) -> str:
    """How often the node's PCT was started since the mesh came up."""
    return os.path.join(run, f"incarnation-{node}")


def write_incarnation(run: str, node: str, number: int) -> None:
    """What the next PCT of the node counts on from. OSError."""
    replace_file(incarnation_file(run, node), str(number))


def next_incarnation(run: str, state: str, node: str, boot_id: str) -> int:
    """One more than the node's last PCT had under its boot id. OSError.

    Where the count was removed with RUN, a number that is later than any before: one that counts from 1 again is not
    heard, whatever runs on its node.
    """
    record = life_file(state, node)
    try:
        with open(incarnation_file(run, node), encoding="ascii") as file:
            number = int(file.read()) + 1
    except (OSError, ValueError):
        former, _, number = read_life(record)
        # half: below the number of a life that is given up
        number = max(number + 1, int(time.time()) // 2) if former == boot_id else 1
    write_incarnation(run, node, number)
    try:
        replace_file(record, f"{boot_id} {kernel_boot()} {number}\n")
    except OSError:
        pass  # a full disk; RUN has it
    return number

"""The socket of a node's PCT, and how often that PCT was started: two files in RUN."""

from __future__ import annotations

import os
import time


def pct_socket(run: str, node: str) -> str:
    """Where the node's PCT listens."""
    return os.path.join(run, f"{node}.sock")


def incarnation_file(run: str, node: str) -> str:
    """How often the node's PCT was started since the mesh came up."""
    return os.path.join(run, f"incarnation-{node}")


def later_incarnation(run: str, node: str) -> None:
    """Where the count was removed with RUN: count on from a number that is later than any before. OSError."""
    if not os.path.exists(incarnation_file(run, node)):
        write_incarnation(run, node, int(time.time()) // 2)  # half: below the number of a life that is given up


def write_incarnation(run: str, node: str, number: int) -> None:
    """What the next PCT of the node counts on from. OSError."""
    path = incarnation_file(run, node)
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(str(number))
    os.replace(path + ".new", path)


def next_incarnation(run: str, node: str) -> int:
    """One more than the node's last PCT had since the mesh came up."""
    try:
        with open(incarnation_file(run, node), encoding="ascii") as file:
            number = int(file.read()) + 1
    except (OSError, ValueError):
        number = 1
    write_incarnation(run, node, number)
    return number

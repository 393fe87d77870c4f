"""Copies of programs in the parallel file system: which directories a yod removes."""

import os
from pathlib import Path

from agents.linux.processes import start_time
from console.launch.transfer.images import _prefix, sweep

#: No process has this pid: it is above the kernel's limit.
DEAD = (1 << 22) + 1


def test_only_what_dead_yods_of_this_boot_and_pid_namespace_left_is_removed(tmp_path: Path) -> None:
    """A machine or a container of the same name has pids of its own: its live yods look dead from here."""
    dead = f"{_prefix()}{DEAD}-77"
    lives = f"{_prefix()}{os.getpid()}-{start_time(os.getpid())}"
    there = [
        f"redmesh-{os.geteuid()}-{os.uname().nodename}-{'0' * 16}-{DEAD}-77",
        f"redmesh-{os.geteuid()}-{os.uname().nodename}-{DEAD}-77",
    ]
    for name in (dead, lives, *there):
        (tmp_path / name).mkdir()
    assert sweep(str(tmp_path)) == [dead]
    assert sorted(os.listdir(tmp_path)) == sorted([lives, *there])

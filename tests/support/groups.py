"""Control groups with limits, of either version, for processes that a test starts."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.linux.controllers import directories
from tests.support.waiting import wait_until

#: The limit's file of each controller, in version 1 and 2.
LIMITS = {"memory": ("memory.limit_in_bytes", "memory.max"), "pids": ("pids.max", "pids.max")}


@contextlib.contextmanager
def limited_group(controller: str, limit: int) -> Iterator[Path]:
    """A new group with this limit, beside which no process runs; the test is skipped where none can be made.

    Its processes must have ended at the end of the block.
    """
    for around in map(Path, reversed(directories(controller))):
        group = around / f"redmesh-test-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        with contextlib.suppress(OSError):
            group.mkdir()
            break
    else:
        pytest.skip(f"no control group for {controller} can be made here")
    try:
        try:
            name = next(name for name in LIMITS[controller] if (group / name).exists())
            (group / name).write_text(str(limit))
        except (StopIteration, OSError) as error:
            pytest.skip(f"a control group here cannot limit {controller}: {error}")
        yield group
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "the group's processes have ended")
    finally:
        group.rmdir()


def inside(group: Path, *command: str) -> list[str]:
    """The command line that runs ``command`` in a group."""
    return ["sh", "-c", f'echo $$ >"{group}/cgroup.procs" && exec "$@"', "sh", *command]

"""A migration in sections while hosts fail, and killed and resumed: the image has the bytes of the serial run.

The long forms: ``python -m tests.support.sections_storm`` (docs/sections.md).
"""

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.far_mesh import FarMesh
from tests.support.hosts import NOT_ROOT, NamespaceHosts
from tests.support.sections_storm import (
    FAULTS,
    KILLS,
    ON_HOSTS,
    Strike,
    Survey,
    kills,
    shared_directory,
    storm,
    tell,
)  # fmt: skip

pytest.importorskip("numpy")


@pytest.fixture
def shared() -> Iterator[Path]:
    directory = shared_directory()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.skipif(os.geteuid() != 0, reason=NOT_ROOT)
def test_hosts_that_are_killed_frozen_filled_up_and_cut_off_change_no_byte(shared: Path) -> None:
    hosts = NamespaceHosts(6)
    try:
        mesh = FarMesh(hosts, processors=1)
        left: list[str] = []
        try:
            mesh.up()
            survey = Survey(shared, 60, 500, 2, **ON_HOSTS)
            strikes = [Strike(4 + 3 * at, hosts[at], fault, 1e9) for at, fault in enumerate(FAULTS)]
            job = storm(mesh, survey, strikes, print)
            tell(job, print)
            survey.check(job)
        finally:
            left = mesh.close()
        assert not left, "left behind:\n" + "\n".join(left)
    finally:
        hosts.close()


def test_what_is_killed_at_any_moment_is_resumed_to_the_same_bytes() -> None:
    kills(len(KILLS), random.Random(22), print, traces=16)

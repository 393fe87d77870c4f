"""The whole host of a job's owner is lost while tasks run: the job goes on elsewhere, each result once.

The long form, 100,000 tasks: ``python -m tests.support.owner_storm`` (docs/jobs.md).
"""

from collections.abc import Iterator

import pytest

from tests.support.hosts import MakeHosts
from tests.support.mariadb import Server
from tests.support.mesh import while_up
from tests.support.owner_storm import TwoLogins, storm


@pytest.fixture(scope="module")
def mesh(netns_hosts: MakeHosts, sql_server: Server) -> Iterator[TwoLogins]:
    with while_up(TwoLogins(netns_hosts(3), sql_server, 4)) as made:
        yield made


# in this order: the host that was cut off serves on when it is healed, the one that was killed starts without daemons
@pytest.mark.parametrize("cut", [True, False], ids=["cut off", "killed"])
def test_the_job_goes_on_elsewhere(cut: bool, mesh: TwoLogins, sql_server: Server) -> None:
    storm(mesh, sql_server, 60, 4, 0.0, cut=cut, gated=True, say=print)

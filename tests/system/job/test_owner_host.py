"""The whole host of a job's owner is lost while tasks run: the job goes on elsewhere, each result once.

The long form, 100,000 tasks: ``python -m tests.support.owner_storm`` (docs/jobs.md).
"""

import pytest

from tests.support.hosts import MakeHosts
from tests.support.mariadb import Server
from tests.support.mesh import while_up
from tests.support.owner_storm import TwoLogins, storm


@pytest.mark.parametrize("cut", [False, True], ids=["killed", "cut off"])
def test_the_job_goes_on_elsewhere(cut: bool, netns_hosts: MakeHosts, sql_server: Server) -> None:
    with while_up(TwoLogins(netns_hosts(3), sql_server, 4)) as mesh:
        storm(mesh, sql_server, 60, 4, 0.0, cut=cut, gated=True, say=print)

"""A job of tasks while daemons, workers and its owner are killed and the database is stopped: each result once.

The long form, 100,000 tasks over 64 nodes: ``python -m tests.support.tasks_storm`` (docs/jobs.md).
"""

import random

from tests.support.chance import long
from tests.support.mariadb import Server
from tests.support.stores import server
from tests.support.tasks_storm import VICTIMS, storm

__all__ = ["server"]


def test_each_result_is_recorded_once_and_what_ran_twice_is_told(server: Server) -> None:
    kills = long(len(VICTIMS), 2 * len(VICTIMS))
    storm(server, 120, 4, kills, 1.0, random.Random(3), print, every_s=0.2, task_s=0.3)

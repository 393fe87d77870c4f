"""Two hostile users of a system mesh (tests/support/harm.py) beside a third, whose launches all succeed.

``python -m tests.support.harmed`` runs it by hand, and says how long each attack and each launch took.
"""

from collections.abc import Iterator

import pytest

from tests.support.chance import LONG, seed
from tests.support.harm import LOGIN
from tests.support.harmed import Harmed, harmed, trial
from tests.support.hosts import MakeHosts
from tests.support.mariadb import Server
from tests.support.others import python_for_others
from tests.support.system_mesh import USERS

#: The most that the third's median may be of that beside as many processes that only use CPU time.
MOST = 3.0
#: What CPA and RCA may have open when all is over.
DESCRIPTORS = 64
#: Attacks of the long form alone: they take a third of the time of all, and test_system_mode.py, test_objects.py and
#: tests/system/mesh/test_two_users.py do the same.
IN_LONG_FORM = {"orders", "objects", "own_mesh"}

pytestmark = pytest.mark.storm


@pytest.fixture(scope="module")
def made(netns_hosts: MakeHosts, sql_server: Server) -> Iterator[Harmed]:
    python_for_others()
    with harmed(netns_hosts(2, users=tuple(USERS)), sql_server) as made:
        yield made


def test_two_hostile_users_harm_no_third(made: Harmed) -> None:
    chosen = seed("REDMESH_HARM_SEED")
    print(f"REDMESH_HARM_SEED={chosen}")
    names = [name for name in LOGIN if LONG or name not in IN_LONG_FORM]
    if LONG:
        wrong = trial(made, chosen, 600.0, 20.0, names)
        assert not wrong, "\n".join(wrong)
        # All users share this machine's processors: those that the attacks use are lacking whatever the mesh does.
        slow = [str(one) for one in made.ratios if one.median_s > MOST * max(one.calm_s, one.spin_s)]
        assert not slow, slow
    else:
        with made.beside(chosen, 0.0, names=names, once=True) as goes_on:
            beside = made.launches(goes_on)
        wrong = [*beside.wrong(), *made.faults, *made.left()]
        assert not wrong, "\n".join(wrong)
    assert set(made.ran) == set(names) and all(made.ran.values()), made.ran
    assert all(most < DESCRIPTORS for most in made.descriptors().values()), made.usage()

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

pytestmark = pytest.mark.storm


@pytest.fixture(scope="module")
def made(netns_hosts: MakeHosts, sql_server: Server) -> Iterator[Harmed]:
    python_for_others()
    with harmed(netns_hosts(2, users=tuple(USERS)), sql_server) as made:
        yield made


def test_two_hostile_users_harm_no_third(made: Harmed) -> None:
    chosen = seed("REDMESH_HARM_SEED")
    print(f"REDMESH_HARM_SEED={chosen}")
    if LONG:
        wrong = trial(made, chosen, 600.0, 20.0, tuple(LOGIN))
        assert not wrong, "\n".join(wrong)
        # All users share this machine's processors: those that the attacks use are lacking whatever the mesh does.
        slow = [str(one) for one in made.ratios if one.median_s > MOST * max(one.calm_s, one.spin_s)]
        assert not slow, slow
    else:
        with made.beside(chosen, 0.0, names=tuple(LOGIN), once=True) as goes_on:
            beside = made.launches(goes_on)
        wrong = [*beside.wrong(), *made.faults, *made.left()]
        assert not wrong, "\n".join(wrong)
    assert set(made.ran) == set(LOGIN) and all(made.ran.values()), made.ran
    assert all(most < DESCRIPTORS for most in made.descriptors().values()), made.usage()

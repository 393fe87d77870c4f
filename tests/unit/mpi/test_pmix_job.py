"""What PMIx is told of a launch, without the library."""

from hypothesis import given
from hypothesis import strategies as st

from agents.pct.mpi.pmix_bridge import candidates
from agents.pct.mpi.process_mapping import first_rank, host_of
from agents.pmix.job import Job, facts, node_list, rank_list
from agents.pmix.library import Rank, Short


def job(hosts: list[list[int]], here: int, firsts: list[int]) -> Job:
    return Job("redmesh_1_7", sum(count for _, count in hosts), hosts, here, firsts, "/tmp/x")


def test_maps_name_each_machine_once_with_all_its_ranks() -> None:
    one = job([[0, 2], [1, 1], [0, 1]], 0, [0])
    assert (node_list(one), rank_list(one), one.local) == ("machine0,machine1", "0,1,3;2", [0, 1, 3])


def test_every_rank_has_its_place_and_its_command_line() -> None:
    told = facts(job([[3, 2], [5, 2]], 5, [0, 3]), "N", "P")
    ranks = [dict(value) for key, value in told if key == "pmix.pdata"]
    plain = dict(told)
    assert plain["pmix.lpeers"] == "2,3" and plain["pmix.nodeid"] == 1 and plain["pmix.job.napps"] == 2
    assert [[rank[key].number for key in ("pmix.rank", "pmix.apprank", "pmix.lrank")] for rank in ranks] == [
        [0, 0, 0],
        [1, 1, 1],
        [2, 2, 0],
        [3, 0, 1],
    ]
    assert isinstance(ranks[0]["pmix.rank"], Rank) and isinstance(ranks[0]["pmix.lrank"], Short)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=8))
def test_a_machine_is_led_by_itsfirst_rank(runs: list[tuple[int, int]]) -> None:
    hosts = [list(run) for run in runs]
    owner = [machine for machine, count in runs for _ in range(count)]
    for rank, machine in enumerate(owner):
        assert host_of(hosts, rank) == machine
        assert first_rank(hosts, machine) == owner.index(machine)
    assert sorted(rank for ranks in job(hosts, owner[0], [0]).on_machine.values() for rank in ranks) == list(
        range(len(owner))
    )


def test_the_programs_own_library_comes_first() -> None:
    assert candidates("/opt/lib/libpmix.so.2", "/home/ada/v/bin/python")[:2] == [
        "/opt/lib/libpmix.so.2",
        "/home/ada/v/lib/libpmix.so.2",
    ]
    assert candidates("", "/usr/bin/x")[-1] == "libpmix.so.2"

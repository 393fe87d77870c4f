"""Hints from merged trees: programs that are stuck in known ways, and programs that are not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agents.pct.debug import stack_tree
from console.launch.attach.deadlocks import blocking, hints
from redmesh import idset

MAIN = ("main", "ring.c", 90, "c")
MPI = "libmpich.so.12"


def at(line: int, name: str, *inside: str) -> list[stack_tree.Call]:
    """A rank in a call of MPI made at ``line`` of ring.c."""
    return [MAIN, ("step", "ring.c", line, "c"), (name, MPI, 0, "c"), *((one, MPI, 0, "c") for one in inside)]


def compute(line: int) -> list[stack_tree.Call]:
    return [MAIN, ("relax", "ring.c", line, "c")]


def told(
    ranks: dict[str, list[stack_tree.Call]], missing: dict[str, str] | None = None, not_asked: str = ""
) -> list[tuple[str, str, str]]:
    tree: stack_tree.Tree = {}
    everybody = 0
    for which, stack in ranks.items():
        stack_tree.add(tree, stack, idset.read(which))
        everybody |= idset.read(which)
    gone = [{"ranks": which, "node": "n0", "why": why} for which, why in (missing or {}).items()]
    for one in gone:
        everybody |= idset.read(one["ranks"])
    asked, everybody = everybody, everybody | idset.read(not_asked)
    return [(one["kind"], one["text"], one["ranks"]) for one in hints(tree, everybody, gone, asked=asked)]


def test_some_in_a_barrier_and_one_receiving() -> None:
    ((kind, text, ranks),) = told({"0,2-3": at(52, "PMPI_Barrier", "MPIR_Barrier"), "1": at(40, "MPI_Recv")})
    assert kind == "deadlock" and ranks == "0-3"
    assert text.startswith("ranks 0,2-3 in MPI_Barrier (ring.c:52); rank 1 in MPI_Recv (ring.c:40): nobody computes")


def test_different_calls_while_others_compute() -> None:
    found = told({"0-1": at(52, "PMPI_Bcast"), "2": at(60, "PMPI_Reduce"), "3": compute(12)})
    assert [(kind, ranks) for kind, _, ranks in found] == [("different-calls", "0-2"), ("not-arrived", "3")]
    assert "rank 3 in relax (ring.c:12)" in found[1][1]


def test_one_never_came_to_the_barrier() -> None:
    ((kind, text, ranks),) = told({"0-6": at(52, "MPI_Barrier"), "7": compute(12)})
    assert (kind, ranks) == ("not-arrived", "7")
    assert text == "ranks 0-6 in MPI_Barrier (ring.c:52); not there: rank 7 in relax (ring.c:12)"


def test_one_has_ended() -> None:
    ((kind, text, ranks),) = told({"0-2": at(52, "MPI_Barrier")}, {"3": "it has ended"})
    assert (kind, ranks) == ("not-arrived", "3") and text.endswith("rank 3 has ended and will not come")


def test_one_that_could_not_be_read_is_no_reason() -> None:
    assert told({"0-2": at(52, "MPI_Barrier")}, {"3": "it is traced by process 9"}) == []
    assert told({"0-2": at(52, "MPI_Recv")}, {"3": "it is traced by process 9"}) == []


def test_hints_speak_only_of_ranks_that_were_looked_at() -> None:
    assert told({"1": at(40, "MPI_Recv")}, not_asked="0,2-7") == [], "ranks that nobody looked at may send"
    assert told({"0-1": at(40, "MPI_Ssend")}, not_asked="2-3") == []
    assert told({"0-1": at(52, "MPI_Barrier")}, not_asked="2-3") == []
    ((kind, text, ranks),) = told({"0-1": at(52, "MPI_Bcast"), "2": at(40, "MPI_Recv")}, not_asked="3-7")
    assert (kind, ranks) == ("different-calls", "0-2"), "whether anybody computes is not known"
    assert text.startswith("of the 3 ranks looked at (of 8 that run): ranks 0-1 in MPI_Bcast (ring.c:52); rank 2")
    ((kind, text, ranks),) = told(
        {"0-1": at(52, "MPI_Barrier"), "2": compute(12)}, {"3": "no answer in time", "4": "it has ended"}, "5"
    )[:1]
    assert (kind, ranks) == ("not-arrived", "2")
    assert text.startswith("of the 3 ranks looked at (of 5 that run): ranks 0-1 in MPI_Barrier"), text
    found = told({"0-1": at(52, "MPI_Barrier"), "2": at(40, "MPI_Recv")}, {"3": "it is traced by strace 9"})
    assert [(kind, ranks) for kind, _, ranks in found] == [("different-calls", "0-2")]
    assert found[0][1].startswith("of the 3 ranks looked at (of 4 that run): "), "one that cannot be read counts too"


def test_a_rank_that_is_seen_to_wait_was_looked_at() -> None:
    no_python = {"0-1": "Python's own calls: py-spy found none"}
    ((kind, text, ranks),) = told({"0": at(52, "PMPI_Barrier"), "1": at(40, "PMPI_Recv")}, no_python)
    assert (kind, ranks) == ("deadlock", "0-1") and text.startswith("rank 0 in MPI_Barrier")


def test_a_reason_that_only_mentions_an_end_is_none() -> None:
    stack = {"0-2": at(52, "MPI_Barrier")}
    assert told(stack, {"3": "gdb: the thread has ended its wait"}) == [], "rank 3 has not ended"
    ((_, text, _),) = told(stack, {"3": "no calls found; its process has ended"})
    assert text.endswith("rank 3 has ended and will not come")


def test_a_ring_in_which_nobody_sends() -> None:
    ((kind, text, ranks),) = told({"0-2": at(40, "PMPI_Recv"), "3": at(44, "PMPI_Probe")})
    assert (kind, ranks) == ("deadlock", "0-3") and text.endswith("nobody sends")
    ((kind, text, _),) = told({"0-3": at(40, "PMPI_Ssend")})
    assert kind == "deadlock" and text.endswith("nobody receives")


def test_what_may_go_on_is_no_deadlock() -> None:
    assert told({"0-3": compute(12)}) == []
    assert told({"0-3": at(52, "MPI_Barrier")}) == [], "all are there: it returns"
    assert told({"0-1": at(52, "MPI_Barrier"), "2-3": at(99, "MPI_Barrier")}) == [], "one barrier from two places"
    assert told({"0-1": at(40, "MPI_Send"), "2-3": at(44, "MPI_Recv")}) == []
    assert told({"0-1": at(40, "MPI_Recv"), "2-3": compute(3)}) == [], "who computes may send"
    assert told({"0-3": at(40, "MPI_Waitall")}) == []


def test_mpi4py_and_torch() -> None:
    script = ("<module>", "train.py", 9, "python")
    wrapper = ("__pyx_pw_6mpi4py_3MPI_4Comm_119Barrier", "MPI.so", 0, "c")
    stack = [script, ("meet", "train.py", 4, "python"), wrapper, ("PMPI_Barrier", "libmpi.so.12", 0, "c")]
    ((_, text, _),) = told({"0": stack, "1": [script]})
    assert text == "rank 0 in MPI_Barrier (train.py:4); not there: rank 1 in <module> (train.py:9)"
    torch = [script, ("wrapper", "torch/distributed/c10d_logger.py", 83, "python")]
    reduce = ("all_reduce", "torch/distributed/distributed_c10d.py", 2777, "python")
    ((kind, text, _),) = told({"0-2": [*torch, reduce], "3": compute(12)})
    assert kind == "not-arrived" and text.startswith("ranks 0-2 in all_reduce (train.py:9); not there: rank 3")


def test_threads_that_wait_for_each_other() -> None:
    barrier = [MAIN, ("join_all", "t.c", 7, "c"), ("___pthread_barrier_wait", "libc.so.6", 0, "c")]
    ((kind, text, _),) = told({"0-2": barrier, "3": compute(12)})
    assert kind == "not-arrived" and "ranks 0-2 in pthread_barrier_wait (t.c:7)" in text


def test_names_of_calls() -> None:
    assert blocking(("PMPI_Allreduce", MPI, 0, "c")) == ("MPI_Allreduce", "collective")
    assert blocking(("MPI_Recv_c", MPI, 0, "c")) == ("MPI_Recv_c", "receive")
    assert blocking(("MPI_Comm_rank", MPI, 0, "c")) == ("", "")
    assert blocking(("barrier", "game.py", 3, "python")) == ("", "")


CALLS = st.tuples(
    st.sampled_from(["main", "PMPI_Barrier", "MPI_Recv", "MPI_Wait", "work", "pthread_barrier_wait"]),
    st.sampled_from(["a.c", "b.c", MPI]), st.integers(0, 3), st.sampled_from(["c", "python"]),
)  # fmt: skip


@given(st.dictionaries(st.integers(0, 40), st.lists(CALLS, max_size=4), max_size=12))
def test_hints_name_ranks_that_there_are(ranks: dict[int, list[stack_tree.Call]]) -> None:
    tree: stack_tree.Tree = {}
    for rank, stack in ranks.items():
        stack_tree.add(tree, stack, 1 << rank)
    everybody = idset.of(ranks)
    for hint in hints(tree, everybody, []):
        named = idset.read(hint["ranks"])
        assert named and not named & ~everybody
        assert hint["kind"] in ("deadlock", "different-calls", "not-arrived") and hint["text"]


def lock(line: int, name: str, *outside: stack_tree.Call) -> list[stack_tree.Call]:
    """A Python thread that waits for a lock at ``line``."""
    inside = ("__new_sem_wait_slow64.constprop.0", "libc.so.6", 0, "c"), ("__futex_abstimed_wait", "libc.so.6", 0, "c")
    return [*outside, (name, "two.py", line, "python"), *inside]


def threads(*stacks: list[stack_tree.Call]) -> list[dict[str, str]]:
    tree: stack_tree.Tree = {}
    for stack in stacks:
        stack_tree.add(tree, stack, idset.read("0-2"))
    return hints(tree, idset.read("0-2"), [])


def test_every_thread_waits_for_a_lock() -> None:
    begin: stack_tree.Call = ("Thread.run", "threading.py", 982, "python")
    both = threads(lock(6, "first", begin), lock(11, "second"))
    assert both == [{"kind": "locked", "ranks": "0-2", "text": "every thread waits for a lock: ranks 0-2 in first"
                     " (two.py:6); ranks 0-2 in second (two.py:11)"}]  # fmt: skip


def test_a_thread_that_computes_may_release_the_lock() -> None:
    assert threads(lock(6, "first"), [("work", "two.py", 20, "python")]) == []
    assert threads(lock(6, "first"), compute(12)) == []

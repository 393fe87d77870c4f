"""PMI without sockets: both versions' texts, a client's machine, and who shares a machine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.pct.mpi.fences import Exchange, TooMuch
from agents.pct.mpi.name_service import NameService
from agents.pct.mpi.pmi import Client, Do, State, World
from agents.pct.mpi.pmi_syntax import PmiError, Verb
from agents.pct.mpi.process_mapping import MAPPING_MAX, host_of, mapping

INIT1, INIT2 = b"cmd=init pmi_version=1 pmi_subversion=1\n", b"cmd=init pmi_version=2 pmi_subversion=0\n"


def world(served: int = 0, ranks: int = 2) -> World:
    return World(ranks, "redmesh_7", f"(vector,(0,1,{ranks}))", Exchange(range(ranks), {}), served)


def client(served: int = 0) -> Client:
    return Client(world(served), 0, 3)


def frame(text: str) -> bytes:
    return b"%6d" % len(text) + text.encode()


def sent(actions: list[tuple[object, ...]]) -> str:
    assert all(action[0] is Do.SEND for action in actions), actions
    return "".join(str(action[1], "ascii") for action in actions)  # type: ignore[call-overload]


def test_a_conversation_in_pmi_1() -> None:
    one = client()
    for asked, told in (
        (INIT1, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"),
        (b"cmd=get_maxes\n", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"),
        (b"cmd=get_universe_size\n", "cmd=universe_size size=2\n"),
        (b"cmd=get_appnum\n", "cmd=appnum appnum=3\n"),
        (b"cmd=get_my_kvsname\n", "cmd=my_kvsname kvsname=redmesh_7\n"),
        (b"cmd=get kvsname=redmesh_7 key=PMI_process_mapping\n", "value=(vector,(0,1,2))\n"),
        (b"cmd=get kvsname=redmesh_7 key=PMI_hwloc_xmlfile\n", "rc=-1 msg=no_such_key value=unknown\n"),
        (b"cmd=put kvsname=redmesh_7 key=P0 value=a=b c $d\n", "cmd=put_result rc=0\n"),
        (b"cmd=get kvsname=redmesh_7 key=P0\n", "cmd=get_result rc=0 msg=success value=a=b c $d\n"),
    ):
        assert sent(one.feed(asked)).endswith(told)
    assert one.feed(b"cmd=barrier_in\n") == [(Do.ENTER,)] and one.state is State.FENCED
    assert one.released() == b"cmd=barrier_out rc=0\n" and one.speaking
    assert sent(one.feed(b"cmd=finalize\n")) == "cmd=finalize_ack rc=0\n" and not one.speaking


def test_a_conversation_in_pmi_2() -> None:
    one = client()
    assert sent(one.feed(INIT2)) == "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n"
    told = sent(one.feed(frame("cmd=fullinit;pmirank=0;threaded=FALSE;")))
    assert int(told[:6]) == len(told) - 6 and ";rank=0;size=2;appnum=3;" in told
    assert "jobid=redmesh_7;rc=0;" in sent(one.feed(frame("cmd=job-getid;")))
    assert "kvs-put-response;thrid=5;rc=0;" in sent(one.feed(frame("cmd=kvs-put;key=a;value=x;;y=;;;thrid=5;")))
    assert "found=TRUE;value=x;;y=;;;rc=0;" in sent(one.feed(frame("cmd=kvs-get;jobid=redmesh_7;srcid=-1;key=a;")))
    assert "found=FALSE;rc=0;" in sent(one.feed(frame("cmd=kvs-get;key=b;")))
    assert one.feed(frame("cmd=info-getnodeattr;key=shm;wait=TRUE;")) == [(Do.ASK, "await_node", "shm", "")]
    assert b"found=TRUE;value=s;rc=0;" in one.answered("s", found=True)
    assert one.feed(frame("cmd=kvs-fence;")) == [(Do.ENTER,)]
    assert one.released() == frame("cmd=kvs-fence-response;rc=0;")
    assert "finalize-response" in sent(one.feed(frame("cmd=finalize;")))
    assert sent(one.feed(INIT1)).endswith("pmi_version=1 pmi_subversion=1 rc=0\n"), (
        "a second program, of another version"
    )


@given(st.data())
def test_bytes_may_come_in_any_pieces(data: st.DataObject) -> None:
    both = [
        INIT1 + b"cmd=put kvsname=k key=a value=1\ncmd=get kvsname=k key=a\ncmd=finalize\n",
        INIT2 + frame("cmd=fullinit;") + frame("cmd=kvs-put;key=a;value=1;") + frame("cmd=finalize;"),
    ]
    for whole in both:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
        one, other = client(), client()
        pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        assert "".join(sent(one.feed(piece)) for piece in pieces) == sent(other.feed(whole))
        assert one.state is State.FINALISED


def test_more_processes_are_refused_once_for_all_lines_of_a_request() -> None:
    one = client()
    one.feed(INIT1)
    lines = b"mcmd=spawn\nnprocs=1\nexecname=x\ntotspawns=2\nspawnssofar=%d\nendcmd\n"
    assert one.feed(lines % 1) == []
    (note, answer) = one.feed(lines % 2)
    assert note[0] is Do.NOTE and "MPI_Comm_spawn" in note[1]
    assert answer == (Do.SEND, b"cmd=spawn_result rc=-1 msg=spawn_is_not_supported\n")
    assert one.state is State.INITIALISED


@pytest.mark.parametrize(("text", "status"), [("exitcode=7", 7), ("exitcode=0", 1), ("exitcode=256", 1), ("", 1)])
def test_an_abort_never_looks_like_success(text: str, status: int) -> None:
    one = client()
    one.feed(INIT1)
    assert one.feed(f"cmd=abort {text} message=no more\n".encode()) == [(Do.ABORT, status, "no more")]
    assert not one.speaking


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.0\n", b"cmd=put kvsname=k key=a value=1\n", INIT1 + INIT1, INIT1 + b"cmd=no\n", b"x" * 90_000,
        INIT2 + b"12x456cmd=fullinit;", INIT2 + b"999999", INIT2 + frame("cmd=what;"), INIT1 + b"cmd=fullinit\n",
        INIT1 + b"cmd=barrier_in\ncmd=barrier_in\n",
    ],
)  # fmt: skip
def test_what_is_no_pmi_is_said_so(data: bytes) -> None:
    with pytest.raises(PmiError):
        client().feed(data)


def test_a_version_that_was_not_asked_for_is_refused() -> None:
    one = client(served=2)
    note, answer = one.feed(INIT1)
    assert note[0] is Do.NOTE and b"rc=-1" in answer[1] and not one.speaking
    assert client(served=1).feed(INIT1)[0][0] is Do.SEND


@given(st.lists(st.sampled_from(list(Verb)), max_size=12))
def test_a_client_is_in_the_state_the_table_says(verbs: list[Verb]) -> None:
    from agents.pct.mpi.pmi_syntax import Request

    one = client()
    for verb in verbs:
        entry = Client.TRANSITIONS.get((one.state, verb))
        if entry is None:
            with pytest.raises(PmiError):
                one._handle(Request(verb, {"key": "a"}))
            return
        if one._text.version == 1 and verb in (Verb.FULLINIT, Verb.JOBID, Verb.GET_JOB, Verb.PUT_NODE, Verb.GET_NODE):
            return  # its text has no such command
        one._handle(Request(verb, {"key": "a", "exitcode": "1"}))
        assert one.state in entry[1]


def test_keys_too_long_are_refused() -> None:
    exchange = Exchange([0], {})
    with pytest.raises(TooMuch):
        exchange.put("k" * 1025, "v")
    with pytest.raises(TooMuch):
        exchange.put("", "v")
    with pytest.raises(TooMuch):
        for number in range(5000):
            exchange.put(f"k{number}", "v" * 65_536)


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        ([[0, 4]], "(vector,(0,1,4))"),
        ([[0, 2], [1, 2], [2, 2]], "(vector,(0,3,2))"),
        ([[0, 2], [1, 1]], "(vector,(0,1,2),(1,1,1))"),
        ([[0, 1], [1, 1], [0, 1], [1, 1]], "(vector,(0,2,1),(0,2,1))"),
        ([[number % 2, 1 + number % 3] for number in range(600)], ""),
    ],
)
def test_the_mapping_of_ranks_to_machines(runs: list[list[int]], text: str) -> None:
    assert mapping(runs) == text and len(text) <= MAPPING_MAX
    flat = [host for host, count in runs for _ in range(count)]
    assert [host_of(runs, rank) for rank in range(len(flat))] == flat and host_of(runs, len(flat)) == -1


def test_names_and_what_is_left_for_others() -> None:
    one = NameService()
    assert one.ask(0, 0, "publish", "ocean", "port") == [(0, True, "")]
    assert one.ask(1, 0, "publish", "ocean", "other") == [(1, False, "")], "published twice"
    assert one.ask(1, 5, "lookup", "ocean", "") == [(1, True, "port")]
    assert one.ask(0, 0, "unpublish", "ocean", "") == [(0, True, "")]
    assert one.ask(1, 0, "lookup", "ocean", "") == [(1, False, "")]
    assert one.ask(1, 0, "await_node", "shm", "") == [] == one.ask(2, 0, "await_node", "shm", "")
    assert one.ask(3, 1, "get_node", "shm", "") == [(3, False, "")]
    assert one.ask(0, 1, "put_node", "shm", "there") == [(0, True, "")], "another machine's"
    assert one.ask(0, 0, "put_node", "shm", "here") == [(0, True, ""), (1, True, "here"), (2, True, "here")]
    assert one.ask(3, 1, "get_node", "shm", "") == [(3, True, "there")]

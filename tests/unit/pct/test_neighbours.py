"""What PCTs of other meshes on a host say: messages, limits, and what is told of them. Sockets: test_two_users.py."""

import json
from typing import Any

import pytest

from agents.pct.node.neighbours import (
    LONGEST_NAME,
    MOST,
    MOST_OF_USER,
    MOST_TRIED,
    Introduction,
    Table,
    name_of,
    names_in,
    read_introduction,
    told,
)
from agents.wire.errors import WireError

OWN = Introduction("a", "login1", 2)


def test_a_message_comes_back_as_it_was_sent() -> None:
    sent = Introduction("b", "login2", 4, "10.0.0.1:7117")
    got = read_introduction(json.dumps(sent.as_message()).encode())
    assert (got.mesh, got.started_on, got.processors, got.listen) == ("b", "login2", 4, "10.0.0.1:7117")


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\xff", b"[]", b"{}", b'{"mesh":"b"', b'{"mesh":"b"}',
        *(
            json.dumps({**OWN.as_message(), **change}).encode()
            for change in (
                {"mesh": ""}, {"mesh": 7}, {"mesh": "m" * (LONGEST_NAME + 1)}, {"started_on": None}, {"listen": []},
                {"processors": -1}, {"processors": "2"}, {"processors": True}, {"processors": 1 << 40},
                {"processors": 2.5},
            )
        ),
    ],
)  # fmt: skip
def test_a_message_of_anybody_is_refused(message: bytes) -> None:
    with pytest.raises(WireError):
        read_introduction(message)


def test_control_characters_reach_nobody() -> None:
    got = read_introduction(json.dumps({**OWN.as_message(), "mesh": "\x1b[31mb\n\u202e"}).encode())
    assert got.mesh.isprintable() and "\x1b" not in got.mesh


def heard(*peers: tuple[int, Introduction]) -> Table:
    table = Table(1000, OWN)
    for key, (uid, said) in enumerate(peers):
        assert table.admit(key, uid)
        table.hear(key, said)
    return table


def test_nodes_of_one_mesh_and_user_are_one() -> None:
    b = Introduction("b", "login1", 2)
    table = heard((1001, b), (1001, b), (1002, b))
    assert table.meshes() == [(1001, "b", 4), (1002, "b", 2)]
    table.forget(0)
    assert table.meshes() == [(1001, "b", 2), (1002, "b", 2)]
    table.forget(1)
    table.forget(2)
    table.forget(2)
    assert table.meshes() == []


def test_a_mesh_that_the_same_user_started_on_the_same_machine_is_not_told() -> None:
    others = [(1000, Introduction("mine", "login1", 2)), (1000, Introduction("far", "login2", 1))]
    assert heard(*others).meshes() == [(1000, "far", 1)]


def test_a_second_message_does_not_count() -> None:
    table = heard((1001, Introduction("b", "login1", 2)))
    assert not table.hear(0, Introduction("c", "login1", 9))
    assert table.meshes() == [(1001, "b", 2)]


def test_connections_of_a_user_and_of_all_are_limited() -> None:
    table = Table(1000, OWN)
    taken = [table.admit(key, 1001) for key in range(MOST_OF_USER + 1)]
    assert taken == [True] * MOST_OF_USER + [False]
    more = [table.admit(1000 + key, 2000 + key) for key in range(MOST)]
    assert more == [True] * (MOST - MOST_OF_USER) + [False] * MOST_OF_USER
    table.forget(0)
    assert table.admit(0, 1001)


@pytest.mark.parametrize(
    ("meshes", "text"),
    [
        ([], ""),
        ([(1, "b", 4)], "also used by mesh b of u1 (4 processors)"),
        ([(1, "b", 1), (2, "c", 2)], "also used by mesh b of u1 (1 processor), mesh c of u2 (2 processors)"),
        (
            [(number, "m", 2) for number in range(5)],
            "also used by " + "".join(f"mesh m of u{number} (2 processors), " for number in range(3)) + "2 more",
        ),
    ],
)
def test_other_meshes_in_words(meshes: Any, text: str) -> None:
    assert told(meshes, lambda uid: f"u{uid}") == text


def test_accounts_have_names_and_other_uids_numbers() -> None:
    assert (name_of(0), name_of(4_000_000_000)) == ("root", "uid 4000000000")


def test_sockets_of_other_meshes_are_found_once_and_not_all() -> None:
    lines = [
        b"Num       RefCount Protocol Flags    Type St Inode Path",
        b"0000000000000000: 00000002 00000000 00010000 0005 01 20001 @redmesh-pct-aa-01",
        b"0000000000000000: 00000003 00000000 00000000 0005 03 20002 @redmesh-pct-bb-02",
        b"0000000000000000: 00000003 00000000 00000000 0005 03 20003 @redmesh-pct-bb-02",
        b"0000000000000000: 00000002 00000000 00010000 0001 01 20004 /run/redmesh-pct-cc-03",
        b"@redmesh-pct-dd-04",  # no line of the kernel
        b"",
    ]
    assert names_in(b"\n".join(lines), "aa") == [b"redmesh-pct-bb-02"]
    many = b"\n".join(b"0: 2 0 0 5 1 9 @redmesh-pct-%d-0" % number for number in range(2 * MOST_TRIED))
    assert len(names_in(many, "aa")) == MOST_TRIED

"""The groups of a launch's caller: from the kernel to the node, whatever clients say."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.cpa.logins.processes import groups_of
from agents.cpa.logins.registry import vouched
from agents.link.peer_groups import groups_of_peer
from agents.link.sockets import peer
from agents.pct.launch.load import Load
from agents.pct.launch_child.load_check import check_load
from agents.pct.multiuser.identity import User
from agents.wire import caller_groups
from agents.wire import credential as credentials
from agents.wire.address import Peer
from agents.wire.caller_groups import MOST, CallerGroups, of_members, read
from agents.wire.credential import Credential, Pass
from agents.wire.errors import AgentError, Refusal, WireError
from console.launch.daemons.groups import difference
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]
AFAR = frozenset(("redmesh://m/rca/login2",))
NODES = [{"name": "n1", "processors": [4, 5]}, {"name": "n2", "processors": [8, 9]}]
OWN = 60001  # the primary group of the account; without a name here
GIDS = st.integers(0, (1 << 32) - 2)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="setgroups needs root")
#: Connects with the groups in argv, drops them, and holds the connection.
CLIENT = """
import os, socket, sys
first, dash, end = sys.argv[3].partition("-")
os.setgroups(range(int(first), int(end)) if dash else [int(word) for word in sys.argv[3].split(",") if word])
os.setegid(int(sys.argv[2]))
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
os.setegid(0)
os.setgroups([0])
sys.stdin.read()
"""


@contextmanager
def connected(directory: Path, gid: int, groups: str) -> Iterator[socket.socket]:
    """A connection of a process that had these groups when it connected, and has others now."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "s"))
        listener.listen()
        listener.settimeout(PATIENCE_S)
        command = [sys.executable, "-I", "-c", CLIENT, str(directory / "s"), str(gid), groups]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as client:
            sock, _ = listener.accept()
            with sock:
                yield sock
            assert client.stdin is not None
            client.stdin.close()
            assert client.wait() == 0


@needs_root
@pytest.mark.parametrize(
    ("groups", "others"),
    [("", []), ("30002,4", [4, 30002]), ("1000-1257", list(range(1000, 1257)))],
)
def test_groups_are_those_of_the_peer_when_it_connected(tmp_path: Path, groups: str, others: list[int]) -> None:
    with connected(tmp_path, 60060, groups) as sock:
        found = groups_of_peer(sock)
        assert found is not None and (found.gid, found.others) == (60060, others)
        of_cpa = groups_of(peer(sock), sock)
        assert of_cpa is not None and of_cpa.as_text() == found.as_text()


@needs_root
def test_of_65536_groups_the_lowest_travel(tmp_path: Path) -> None:
    with connected(tmp_path, 7, "100000-165536") as sock:
        found = groups_of_peer(sock)
    assert found is not None and found.others == list(range(100000, 100000 + MOST))
    assert read(found.as_text()).others == found.others


def test_a_socket_that_is_no_unix_socket_has_none() -> None:
    with socket.socket() as sock:
        assert groups_of_peer(sock) is None


@given(GIDS, st.lists(GIDS, max_size=40))
def test_groups_travel_as_they_are(gid: int, others: list[int]) -> None:
    groups = CallerGroups(gid, others)
    members = credentials.members_of(NODES) + caller_groups.entry(groups)
    found = of_members(members)
    assert found is not None and (found.gid, found.others) == (gid, sorted(set(others)))
    # what versions without groups read of the same members
    assert credentials.names_of(members) == {"n1", "n2"} and credentials.processors_of(members, "n1") == {4, 5}


def test_most_groups_fit_however_they_lie() -> None:
    groups = CallerGroups((1 << 32) - 2, range(1 << 31, (1 << 31) + 4 * MOST, 2))
    assert read(groups.as_text()).others == groups.others and len(groups.others) == MOST


@pytest.mark.parametrize(
    "text",
    ["", ":", "7", "7:x", "-1:", "7:-1", "7:5-4", "4294967295:", "7:4294967295", f"7:0-{MOST}",
     "7:0-99999999999", "7:,", "7:" + "1," * 99999 + "1", "9" * 5000 + ":"],
)  # fmt: skip
def test_what_is_no_callers_groups_is_refused(text: str) -> None:
    with pytest.raises(WireError):
        read(text)


def test_an_rca_vouches_for_groups_and_one_of_an_earlier_version_does_not() -> None:
    told = {"pid": 1, "uid": 1000, "gid": 20}
    found = groups_of(vouched(Peer(0, -1, -1, AFAR), {**told, "groups": "20:4,24-27"}), None)
    assert found is not None and (found.gid, found.others) == (20, [4, 24, 25, 26, 27])
    assert groups_of(vouched(Peer(0, -1, -1, AFAR), told), None) is None
    for groups in ("21:4", "20", "0:0"):
        with pytest.raises(AgentError):
            vouched(Peer(0, -1, -1, AFAR), {**told, "groups": groups})


@pytest.mark.parametrize("others", [None, CallerGroups(0, [0]), CallerGroups(20, [4, 27])])
def test_a_client_cannot_change_add_or_leave_out_groups(others: CallerGroups | None) -> None:
    members = credentials.members_of(NODES)
    whole = members + caller_groups.entry(CallerGroups(20, [4]))
    common = b"{}"
    made = Credential("m", 7, 1000, credentials.digest_of_members(whole), credentials.digest_of(common), "ab", 9.0)
    load = Load.__new__(Load)
    load.launcher, load.nodes = 7, [{"name": "n1", "processors": [4, 5]}]
    let_in = Pass(made, "", 9.0)
    message = {"credential": made.text, "members": whole}
    assert check_load(let_in, "n1", load, message, common) == {"n1", "n2"}
    for forged in (members + caller_groups.entry(others), [*caller_groups.entry(others), *whole]):
        if forged != whole:
            with pytest.raises(Refusal, match="other nodes"):
                check_load(let_in, "n1", load, {**message, "members": forged}, common)


@pytest.mark.parametrize(
    ("gid", "others", "expected", "told"),
    [
        (20, [4, 20], (20, [4, 20]), ""),
        (OWN, [], (OWN, []), ""),  # setpriv --clear-groups
        (20, [], (20, []), ""),
        (OWN, [4, 60060], (OWN, [4]), "group 60060, as yod is: {} it"),
        (60060, [4, 60060, 60061], (OWN, [4]), "groups 60060, 60061, as yod is: {} them{}"),
        (0, [0], (OWN, []), "group root (0), as yod is: {} it{}"),
        (OWN, range(60060, 60070), (OWN, []),
         "groups 60060, 60061, 60062, 60063, 60064, 60065 and 4 more, as yod is: {} them"),
    ],
)  # fmt: skip
def test_a_launch_has_the_callers_groups_that_the_node_gives_the_user(
    gid: int, others: Sequence[int], expected: tuple[int, list[int]], told: str
) -> None:
    ada = User(OWN, OWN, "ada", [4, 20, 24, OWN])
    said = ada.take(CallerGroups(gid, others))
    assert (ada.gid, ada.groups) == expected
    why = "the user database there does not have ada in", f"; the primary group of these ranks is {OWN}"
    assert said == (told and f"ranks are not in {told.format(*why)}")


def test_yod_says_which_groups_do_not_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getgroups", lambda: [60060])
    monkeypatch.setattr(os, "getegid", lambda: OWN)
    members = credentials.members_of(NODES)
    assert difference(None, members + caller_groups.entry(CallerGroups(OWN, [60060]))) == ""
    assert difference(None, members + caller_groups.entry(CallerGroups(OWN, []))) == (
        f"ranks are not in group 60060, as yod is: a launch takes along {MOST} groups at most"
    )
    assert f"the primary group here is {OWN}" in difference(None, members), "a CPA of an earlier version"
    assert difference(None, [*members, ["", "of a later version"]]) == ""

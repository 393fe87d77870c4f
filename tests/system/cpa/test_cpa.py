"""A CPA over a real database: what it grants, takes back, refuses.

What decides in the database is tested on SQLite and on MariaDB in tests/unit/db; Here both are
used by a launch, a batch job, a lost launcher, a repeated request and a reservation that runs out.
"""

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from agents.link.client import Client
from agents.wire.control import Message
from agents.wire.errors import AgentError
from tests.support.allocations import LOGIN, allocation, finish
from tests.support.daemons import Daemons, Make, on_both_databases
from tests.support.waiting import PATIENCE_S, wait_until


def refused(client: Client, message: Message) -> AgentError:
    with pytest.raises(AgentError) as caught:
        client.call(message)
    return caught.value


@pytest.fixture
def one(daemons: Make) -> Daemons:
    """One CPA, 8 processors on 2 nodes."""
    return daemons(8, 2).begin()


@on_both_databases
def test_a_launch_in_three_requests(one: Daemons) -> None:
    with one.client() as client:
        got = client.call(allocation(6))
        assert [(node["name"], node["processors"]) for node in got["nodes"]] == [("n0", [0, 1, 2, 3]), ("n1", [4, 5])]
        assert got["pending_s"] == 60.0 and got["mesh"] == "b00710" and len(got["cookie"]) == 16
        assert one.owners() == dict.fromkeys(range(6), got["launcher"])
        assert one.rows("SELECT state FROM launcher") == [("pending",)]

        ranks = [5, 4, 3, 2, 1, 0]
        began = {"op": "started", "launcher": got["launcher"], "cookie": got["cookie"], "ranks": ranks, "root": "n1"}
        client.call(began)
        (row,) = one.rows("SELECT state, ranks, root FROM launcher")
        assert (row[0], json.loads(row[1]), row[2]) == ("busy", ranks, "n1")

        for _ in range(2):  # finish is idempotent
            client.call(finish(got, 3))
        assert one.owners() == {}
        assert one.rows("SELECT state, exit_status, abnormal FROM launcher") == [("ended", 3, 0)]
        assert one.rows("SELECT COUNT(*) FROM `partition` WHERE ended_at IS NULL") == [(0,)]
        assert client.call({"op": "idle"})["partitions"] == 0


def test_more_than_is_free_is_refused_with_how_many_are(one: Daemons) -> None:
    with one.client() as client:
        client.call(allocation(5))
        error = refused(client, allocation(4))
        assert (error.code, error.message, error.exit_status) == (
            "unavailable",
            "4 processors asked for, 3 are free",
            125,
        )
        assert "8" in refused(client, allocation(9)).hint


#: What is asked for, and the processors that are got.
ASKED: list[tuple[Message, list[int]]] = [
    ({"size": 2, "cpus_per_task": 3}, [0, 1, 2, 4, 5, 6]),  # a task is on one node
    ({"size": 4, "nodes": 2}, [0, 1, 4, 5]),
    ({"size": 3, "nodes": 2}, [0, 1, 4]),
    ({"size": 2, "nodes": 2, "wanted": {"processors": [], "nodes": ["n1", "n0"]}}, [4, 0]),
    ({"size": 5, "most": {"n0": 1}}, [0, 4, 5, 6, 7]),
    ({"size": 20, "overcommit": True, "nodes": 2}, [0, 1, 2, 3, 4, 5, 6, 7]),
    (
        {
            "segments": [
                {"size": 3, "wanted": None},
                {"size": 2, "wanted": {"processors": [[0, 1]], "nodes": []}},
                {"size": 1, "wanted": None},
            ]
        },
        [2, 3, 4, 0, 1, 5],
    ),
    ({"size": 2, "wanted": {"processors": [[6, 7], [1, 1]], "nodes": []}}, [6, 7]),
    ({"size": None, "wanted": {"processors": [], "nodes": ["n1"]}}, [4, 5, 6, 7]),
    ({"size": None}, [0]),
    ({"size": 1, "wanted": {"processors": [[0, 99]], "nodes": []}}, [0]),
    ({"size": 5, "exclude": {"processors": [[0, 0]], "nodes": []}}, [1, 2, 3, 4, 5]),
    ({"size": 20, "overcommit": True}, [0, 1, 2, 3, 4, 5, 6, 7]),
    ({"size": 3, "placement": "first_fit"}, [0, 1, 2]),
]


def test_what_is_asked_for_is_what_is_got(one: Daemons) -> None:
    with one.client() as client:
        for asked, expected in ASKED:
            got = client.call(allocation(**asked))
            assert [each for node in got["nodes"] for each in node["processors"]] == expected, asked
            client.call(finish(got))


#: What is asked for, and a part of the refusal.
NONSENSE: list[tuple[Message, str]] = [
    ({"size": 0}, "at least 1"),
    ({"size": -3}, "at least 1"),
    ({"size": 1, "cpus_per_task": 0}, "at least 1"),
    ({"size": 1, "wanted": {"processors": [[90, 99]], "nodes": []}}, "no processor "),
    ({"size": 5, "wanted": {"processors": [[4, 99]], "nodes": []}}, "no processor "),
    ({"size": None, "wanted": {"processors": [[0, 99]], "nodes": []}}, "no processor "),
    ({"size": 1, "wanted": {"processors": [], "nodes": ["n7"]}}, "no node 'n7'"),
    ({"size": 1, "wanted": {"processors": "all", "nodes": []}}, "list"),
    ({"size": 1, "wanted": {"processors": [[True, 2]], "nodes": []}}, "range"),
    ({"size": 1, "placement": "hilbrt"}, "hilbrt"),
    ({"size": 1, "key": "short"}, "32 hexadecimal"),
    ({"size": 1, "login": "elsewhere"}, "elsewhere"),
    ({"size": 1 << 62, "cpus_per_task": 1 << 62}, "asked for"),
]


def test_nonsense_is_refused_in_one_line_and_changes_nothing(one: Daemons) -> None:
    with one.client() as client:
        for asked, says in NONSENSE:
            error = refused(client, allocation(**asked))
            assert says in error.message and "\n" not in error.message, asked
            assert error.code in ("invalid", "unavailable"), asked
            assert one.rows("SELECT COUNT(*) FROM launcher") == [(0,)], asked
        assert client.call(allocation(8))["launcher"] == 1


def test_a_repeated_request_gets_the_same_processors_and_a_new_cookie(one: Daemons) -> None:
    request = allocation(3)
    with one.client() as client, one.client() as again:
        first, second = client.call(request), again.call(request)
        assert {**first, "cookie": "", "pending_s": 0, "re": 0} == {**second, "cookie": "", "pending_s": 0, "re": 0}
        assert refused(client, finish(first)).code == "denied"
        again.call(finish(second))
        assert refused(client, request).code == "expired"


def test_every_right_needs_its_own_cookie(one: Daemons) -> None:
    with one.client() as client:
        mine = client.call(allocation(1))
        other = client.call(allocation(1))
        made = client.call({"op": "partition_create", "key": "c" * 32, "batch_job": "1.pbs", "size": 2})
        wrong = ["", "0" * 16, other["cookie"], mine["cookie"][:-1], mine["cookie"].upper() + " ", "\u00e9" * 16]
        for cookie in wrong:
            launcher: Message = {"launcher": mine["launcher"], "cookie": cookie}
            for request in (
                {"op": "started", "ranks": [0], **launcher},
                {"op": "finish", "exit_status": 0, **launcher},
                {"op": "node_failed", "node": "n0", "reason": "spite", **launcher},
                {**allocation(1), "partition": made["partition"], "cookie": cookie},
                {**allocation(1), "partition": made["partition"], "cookie": made["admin_cookie"]},
                {"op": "partition_destroy", "partition": made["partition"], "cookie": cookie or "0"},
                {"op": "partition_destroy", "partition": made["partition"], "cookie": made["allocation_cookie"]},
            ):
                assert refused(client, request).code == "denied", request["op"]
        assert one.rows("SELECT state FROM launcher ORDER BY id") == [("pending",), ("pending",)]
        assert one.rows("SELECT state FROM node WHERE name = 'n0'") == [("up",)]
        elsewhere = {"op": "node_failed", "node": "n1", "reason": "spite", "launcher": mine["launcher"]}
        assert refused(client, {**elsewhere, "cookie": mine["cookie"]}).code == "denied"


def test_no_cookie_and_no_command_ever_reaches_the_log(one: Daemons) -> None:
    with one.client() as client:
        got = client.call(allocation(1, command="secret --password hunter2"))
        made = client.call({"op": "partition_create", "key": "d" * 32, "batch_job": "1.pbs", "size": 2})
        refused(client, {**finish(got), "cookie": "f00dfacecafebeef"})
        client.call(finish(got))
        client.call({"op": "partition_destroy", "partition": made["partition"], "cookie": made["admin_cookie"]})
    wait_until(lambda: one.log("cpa-0")[-1]["event"] == "partition_destroy", "the last request is in the log")
    log = (one.state / "log" / "cpa-0.jsonl").read_text()
    assert '"finish"' in log and '"denied"' in log
    for secret in (got["cookie"], made["admin_cookie"], made["allocation_cookie"], "f00dface", "hunter2", "d" * 32):
        assert secret not in log


def test_a_node_that_failed_a_load_is_out_of_service(one: Daemons) -> None:
    with one.client() as client:
        got = client.call(allocation(8))
        client.call(
            {"op": "node_failed", "launcher": got["launcher"], "cookie": got["cookie"], "node": "n1", "reason": "mute"}
        )
        client.call(finish(got, 125))
        assert refused(client, allocation(5)).message == "5 processors asked for, 4 are free"


def test_nodes_come_and_go_as_the_rca_says(one: Daemons) -> None:
    life: Message = {"node": "n1", "boot_id": "b00710", "incarnation": 1}
    with one.client(role="rca") as client:
        client.call({"op": "node_suspect", **life, "reason": "no beat"})
        assert refused(client, allocation(5)).message == "5 processors asked for, 4 are free"
        client.call({"op": "node_up", **life, "address": one.nodes[1].address, "processors": 4})
        client.call(finish(client.call(allocation(5))))
        # incarnation 0: an RCA that never heard of the node; whatever life it had is over
        client.call({"op": "node_down", **life, "incarnation": 0, "reason": "not registered"})
        assert one.rows("SELECT state, reason FROM node WHERE name = 'n1'") == [("down", "not registered")]
        client.call({"op": "node_up", **life, "incarnation": 2, "address": "/x", "processors": 4})
        client.call({"op": "node_down", **life, "reason": "a late word about an earlier life"})
        assert one.rows("SELECT state FROM node WHERE name = 'n1'") == [("up",)]
        assert refused(client, {"op": "node_down", **life, "node": "n9", "reason": ""}).code == "invalid"


def test_what_is_not_started_in_time_is_free_again(one: Daemons) -> None:
    with one.client() as client:
        got = client.call(allocation(8))
        # the pending time is 60 s by the database's clock: make it 59 s ago
        one.store.run(lambda t: t.change("UPDATE launcher SET pending_until = created_at - 1, changed = ?", (t.stamp,)))
        wait_until(lambda: not one.owners(), "the reservation has run out")
        began = {"op": "started", "launcher": got["launcher"], "cookie": got["cookie"], "ranks": [0]}
        assert refused(client, began).code == "expired"
        assert one.rows("SELECT state, abnormal FROM launcher") == [("ended", 1)]
        client.call(allocation(8))


# --- the batch system


def test_a_batch_job_from_its_partition_to_its_end(one: Daemons) -> None:
    with one.client() as client:
        request = {"op": "partition_create", "key": "e" * 32, "batch_job": "42.pbs", "size": 4, "user": "daemon"}
        made = client.call(request)
        inside = {"partition": made["partition"], "cookie": made["allocation_cookie"]}
        first = client.call(allocation(3, **inside))
        assert first["partition"] == made["partition"]
        error = refused(client, allocation(2, **inside))
        assert error.message == f"2 processors asked for, 1 is free in partition {made['partition']}"
        client.call(finish(first))
        client.call(finish(client.call(allocation(2, **inside)), 139))
        assert one.rows("SELECT `user`, max_in_use, batch_job_error FROM `partition`") == [("daemon", 3, 1)]
        assert one.rows("SELECT COUNT(*) FROM processor WHERE `partition` IS NOT NULL") == [(4,)]
        for _ in range(2):
            client.call({"op": "partition_destroy", "partition": made["partition"], "cookie": made["admin_cookie"]})
        assert one.rows("SELECT COUNT(*) FROM processor WHERE `partition` IS NOT NULL") == [(0,)]
        assert refused(client, allocation(1, **inside)).code in ("expired", "unavailable")
        assert "no account" in refused(client, dict(request, key="f" * 32, user="no-such-user")).message


def test_modes_and_reservations_keep_processors_from_interactive_launchers(one: Daemons) -> None:
    n0: Message = {"processors": [], "nodes": ["n0"]}
    with one.client() as client:
        client.call({"op": "set_mode", "wanted": n0, "mode": "batch"})
        assert refused(client, allocation(5)).message == "5 processors asked for, 4 are free"
        made = client.call({"op": "partition_create", "key": "e" * 32, "batch_job": "1.pbs", "size": 8})
        client.call({"op": "partition_destroy", "partition": made["partition"], "cookie": made["admin_cookie"]})
        client.call({"op": "set_mode", "wanted": n0, "mode": "interactive"})
        client.call({"op": "reserve", "wanted": n0, "user": "daemon"})
        assert refused(client, allocation(5)).message == "5 processors asked for, 4 are free"
        client.call({"op": "reserve", "wanted": n0, "user": None})
        client.call(allocation(8))
        assert refused(client, {"op": "set_mode", "wanted": n0, "mode": "turbo"}).code == "invalid"
        assert refused(client, {"op": "reserve", "wanted": {"processors": [], "nodes": []}}).code == "invalid"


# --- rights, by uid

AS_NOBODY = """
import json, os, sys
from agents.link.client import Client
from agents.wire.errors import AgentError
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
answers = []
with Client(sys.argv[1], "admin") as client:
    for request in json.load(sys.stdin):
        try:
            answers.append(client.call(request))
        except AgentError as error:
            answers.append(error.code)
json.dump(answers, sys.stdout)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_an_ordinary_user_reaches_only_what_is_his(one: Daemons) -> None:
    import subprocess

    for path, mode in ((one.home, 0o711), (one.run, 0o711), (one.run / "cpa-0.sock", 0o666)):
        os.chmod(path, mode)
    with one.client() as client:
        mine = client.call(allocation(1))
    listed: Message = {"processors": [[0, 1]], "nodes": []}
    life: Message = {"node": "n0", "boot_id": "b00710", "incarnation": 1}
    forbidden: list[Message] = [
        {"op": "partition_create", "key": "a" * 32, "batch_job": "1", "size": 1},
        {"op": "partition_destroy", "partition": mine["partition"], "cookie": ""},
        {"op": "set_mode", "wanted": listed, "mode": "batch"},
        {"op": "reserve", "wanted": listed, "user": "nobody"},
        {"op": "launchers_of", "login": LOGIN},
        {"op": "launcher_lost", "login": LOGIN, "pid": os.getpid(), "pid_started": 1, "reason": ""},
        {"op": "node_up", **life, "address": "/tmp/evil.sock", "processors": 4},
        {"op": "node_suspect", **life, "reason": ""},
        {"op": "node_down", **life, "reason": ""},
        {"op": "idle"},
        {**finish(mine), "cookie": "0" * 16},
        {"op": "signal_launchers", "launchers": [mine["launcher"]], "signal": 15},
        {"op": "kill_launchers", "launchers": [mine["launcher"]]},
        {"op": "reset", "launchers": [mine["launcher"]], "nodes": ["n0"]},
        {"op": "drain", "nodes": ["n0"]},
        {"op": "drain_later", "nodes": ["n0"], "after_s": 60},
        {"op": "moved", "launcher": mine["launcher"], "cookie": "0" * 16, "pid": 1, "pid_started": 1},
        {**allocation(1), "key": allocation_key(one)},
    ]
    allowed = allocation(2)
    done = subprocess.run(
        [sys.executable, "-P", "-c", AS_NOBODY, str(one.run / "cpa-0.sock")],
        input=json.dumps([*forbidden, allowed]),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    *denied, granted = json.loads(done.stdout)
    assert denied == ["denied"] * len(forbidden)
    uid = one.rows(f"SELECT uid, `user` FROM launcher WHERE id = {granted['launcher']}")
    assert uid == [(65534, "nobody")]


def allocation_key(one: Daemons) -> str:
    """The key of root's request: somebody else's now."""
    return str(one.rows("SELECT request_key FROM launcher")[0][0])


# --- clean-up of lost launchers


def executable(path: Path, body: str) -> str:
    path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def lost(pid: int, pid_started: int, **more: Any) -> Message:
    return {"op": "launcher_lost", "login": LOGIN, "pid": pid, "pid_started": pid_started, "reason": "test", **more}


@on_both_databases
def test_a_lost_launcher_is_cleaned_up_before_anything_is_free(daemons: Make, tmp_path: Path) -> None:
    out, gate = tmp_path / "out", tmp_path / "gate"
    script = executable(
        tmp_path / "cleanup",
        f"open({str(out)!r}, 'a').write(json.dumps([sys.argv[1:], json.load(sys.stdin)]) + '\\n')\n"
        f"sys.exit(0 if os.path.exists({str(gate)!r}) else 'n1: not there')",
    )
    made = daemons(8, 2, cleanup=script).begin()
    with made.client() as client:
        mine = allocation(6, pid=os.getpid())
        got = client.call(mine)
        client.call(allocation(1, pid=os.getppid()))  # somebody else's, who lives
        event = lost(mine["pid"], mine["pid_started"])
        error = refused(client, event)
        assert error.code == "unclean" and "n1: not there" in error.message
        assert len(made.owners()) == 7
        gate.touch()
        client.call(event)
        assert len(made.owners()) == 1
        client.call(event)  # nothing is left of it: at once, without a clean-up
    nodes = [{"name": node.name, "address": node.address} for node in made.nodes]
    assert [json.loads(line) for line in out.read_text().splitlines()] == [[[str(got["launcher"])], nodes]] * 2
    assert made.rows("SELECT state, abnormal, reason FROM launcher WHERE id = 1") == [("ended", 1, "test")]


@on_both_databases
def test_a_node_that_does_not_confirm_keeps_the_processors_of_a_launch_that_lost_it(
    daemons: Make, tmp_path: Path
) -> None:
    """However often the end is told: its PCT may stand still and go on later, or be started later and take over the
    launch children that it finds."""
    told = tmp_path / "told"
    script = f"sys.exit(open({str(told)!r}).read())"
    made = daemons(8, 2, cleanup=executable(tmp_path / "cleanup", script)).begin()
    with made.client() as client:
        end = {**finish(client.call(allocation(6))), "lost": ["n0", "n1"]}
        for why in ("n1: no answer in time", "n1: its PCT does not answer: Connection refused"):
            told.write_text(why)
            error = refused(client, end)
            assert error.code == "unclean" and why in error.message
            assert len(made.owners()) == 6
    (tmp_path / "cleanup").write_text("#!/bin/sh\n")
    with made.client() as client:
        client.call(end)
    assert made.owners() == {}


def test_the_dispatch_loop_goes_on_while_a_clean_up_runs(daemons: Make, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    made = daemons(8, 2, cleanup=executable(tmp_path / "cleanup", f"open({str(gate)!r}).read()")).begin()
    with made.client() as client, made.client(role="rca") as rca:
        mine = allocation(2)
        client.call(mine)
        rca.tell(dict(lost(mine["pid"], mine["pid_started"]), id=77))
        other = client.call(allocation(2, pid=os.getppid()), timeout_s=2.0)
        client.call(finish(other))
        assert len(made.owners()) == 2
        gate.write_text("go on")
        assert rca.receive() == {"re": 77, "launchers": [1]}
    assert made.owners() == {}


def test_a_batch_partition_destroyed_by_force_is_cleaned_up_first(daemons: Make, tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = executable(tmp_path / "cleanup", f"open({str(out)!r}, 'w').write(sys.argv[1])")
    made = daemons(8, 2, cleanup=script).begin()
    with made.client() as client:
        job = client.call({"op": "partition_create", "key": "e" * 32, "batch_job": "42.pbs", "size": 4})
        got = client.call(allocation(2, partition=job["partition"], cookie=job["allocation_cookie"]))
        destroy = {"op": "partition_destroy", "partition": job["partition"], "cookie": job["admin_cookie"]}
        assert refused(client, destroy).code == "unavailable"
        assert refused(client, {**destroy, "force": True, "cookie": "0" * 16}).code == "denied" and not out.exists()
        client.call({**destroy, "force": True})
    assert out.read_text() == str(got["launcher"]) and made.owners() == {}
    assert made.rows("SELECT batch_job_error FROM `partition`") == [(1,)]


def test_without_a_pct_our_own_clean_up_is_not_clean(one: Daemons) -> None:
    with one.client() as client:
        mine = allocation(6)
        client.call(mine)
        error = refused(client, lost(mine["pid"], mine["pid_started"]))
        assert error.code == "unclean" and "n0: its PCT does not answer" in error.message
        assert len(one.owners()) == 6


def test_where_a_jobs_state_object_is(one: Daemons) -> None:
    uuid, uid = "63fd995c-b92a-413a-b0ee-8207e24c93ef", os.getuid()
    moved = {"op": "state_moved", "uuid": uuid, "sender": "n0", "receiver": "n1", "counter": 1, "uid": uid}
    with one.client() as client:
        assert "no job" in refused(client, {"op": "state_locate", "uuid": uuid}).message
        assert client.call({"op": "state_register", "uuid": uuid, "node": "n0", "uid": uid})["news"]
        assert [client.call(moved)["news"] for _ in range(2)] == [True, False]
        found = client.call({"op": "state_locate", "uuid": uuid})
        assert (found["url"], found["counter"], found["proxied"]) == (f"redmesh://n1/{uuid}", 1, False)
        assert refused(client, {**moved, "uuid": "../etc"}).code == "invalid"
        assert client.call({"op": "state_forget", "uuid": uuid, "node": "n1", "uid": uid})["news"]
        assert one.rows("SELECT COUNT(*) FROM state_location") == [(0,)]

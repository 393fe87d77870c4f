"""A query about a job costs the database one indexed read, and the object one look; what jobs do costs it nothing."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from agents.objects.http_query import answer
from redmesh.state import StateObject, new_uuid, open_for_reading
from tests.support.daemons import Make
from tests.support.mariadb import Server

QUERIES = 20


def test_a_query_is_one_indexed_read_of_the_database(make_daemons: Make, sql_server: Server) -> None:
    daemons = make_daemons(database=sql_server.new_database())
    daemons.start("cpa-0")
    uuids = [new_uuid() for _ in range(QUERIES)]
    with daemons.client() as cpa:
        for uuid in uuids:
            told = cpa.call({"op": "state_register", "uuid": uuid, "node": "n0", "uid": os.geteuid()})
            assert told["news"]
        cpa.call({"op": "state_locate", "uuid": uuids[0]})  # the CPA reads where the nodes are
        logged = "SELECT thread_id, argument FROM mysql.general_log WHERE command_type IN ('Query', 'Execute')"
        sql_server.admin("SET GLOBAL log_output = 'TABLE'", "TRUNCATE mysql.general_log", "SET GLOBAL general_log = 1")
        try:
            for uuid in uuids:
                assert cpa.call({"op": "state_locate", "uuid": uuid})["counter"] == 0
        finally:
            sql_server.admin("SET GLOBAL general_log = 0")
    rows = [
        (thread, bytes(text).decode() if isinstance(text, bytes) else str(text))
        for thread, text in sql_server.admin(logged)
    ]
    asked = [(thread, text) for thread, text in rows if "state_location" in text and "general_log" not in text]
    assert len(asked) == QUERIES, asked
    [thread] = {thread for thread, _ in asked}
    first, last = (rows.index(one) for one in (asked[0], asked[-1]))
    between = [text for its, text in rows[first : last + 1] if its == thread]
    assert len(between) == QUERIES, "and nothing else is asked on its connection"
    [plan] = daemons.rows(f"EXPLAIN {asked[0][1]}")
    assert "PRIMARY" in plan and 1 in plan, plan


def test_a_query_is_one_look_at_the_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / f"{new_uuid()}.job")
    job = StateObject.create(path, {"uuid": os.path.basename(path)[:36], "kind": "job", "command": "[]"})
    job.set("answer", "42")
    job.close()
    statements: list[str] = []
    connect = sqlite3.connect

    def traced(*args: object, **options: object) -> sqlite3.Connection:
        made: sqlite3.Connection = connect(*args, **options)  # type: ignore[call-overload]
        made.set_trace_callback(statements.append)
        return made

    monkeypatch.setattr(sqlite3, "connect", traced)
    assert answer(path, "", {}).status == 200
    monkeypatch.undo()
    assert statements.count("BEGIN") == 1, "all of the answer is of one moment"
    assert not [one for one in statements if " task" in one], "and costs the same with a million tasks"
    db = open_for_reading(path)
    try:
        for one in (one for one in statements if " transition " in one or " value " in one):
            plan = " ".join(str(row[3]) for row in db.execute(f"EXPLAIN QUERY PLAN {one}"))
            assert "TEMP B-TREE" not in plan, plan
    finally:
        db.close()

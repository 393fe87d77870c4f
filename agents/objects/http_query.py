"""The status of a job over HTTP: read-only answers from its state object, as JSON and as a page. Without sockets.

The server around it (``mesh job serve``) has checked the token and found the object. Every answer has an ETag that
changes with each commit of the owner; a watcher that sends it back waits for the next change.
"""

from __future__ import annotations

import json
import sqlite3

from redmesh.state import StateError, owned
from redmesh.state_reader import StateReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, NamedTuple, Tuple

    class Answer(NamedTuple):
        """An HTTP response: status, headers besides the length, body."""

        status: int
        headers: Dict[str, str]
        body: bytes

else:
    from collections import namedtuple

    Answer = namedtuple("Answer", "status headers body")

#: The most rows of tasks or log lines in one answer.
MOST_ROWS = 1000
_JSON = "application/json"
#: Allow nothing but this page and its own server, so that a job's output cannot run as a script.
PAGE_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}


def etag(path: str) -> str:
    """A value that changes with each commit of the owner, and when the owner is lost. Raises StateError."""
    with StateReader(path) as job:
        return _etag(job, path)


def _etag(job: StateReader, path: str) -> str:
    return f'"{int(job.meta("commits") or 0)}{"+" if owned(path) else ""}"'


def answer(path: str, what: str, query: Dict[str, str], known: str = "") -> Answer:
    """The answer about the object at ``path``.

    ``what`` is "", ``tasks``, ``failures``, ``log``, ``transitions`` or ``page``; ``known`` is the watcher's ETag.
    """
    if what == "page":
        return Answer(200, dict(PAGE_HEADERS), PAGE.encode())
    try:
        with StateReader(path) as job:  # once, so that the ETag and what it stands for are of one moment
            now = _etag(job, path)
            headers = {"Content-Type": _JSON, "ETag": now, "Cache-Control": "no-cache"}
            if known == now:
                return Answer(304, headers, b"")
            body = _READERS[what](job, query)
        if not what:
            body["owner_lives"] = owned(path)
    except KeyError:
        return refused(404, f"there is no {what[:40]!r} of a job", "a job, its tasks, its log or its page")
    except ValueError:
        return refused(400, "after and limit are whole numbers", "tasks?after=1000&limit=100")
    except (StateError, sqlite3.Error) as error:
        return refused(404, getattr(error, "message", str(error)), getattr(error, "hint", ""))
    return Answer(200, headers, json.dumps(body).encode())


def refused(status: int, message: str, hint: str = "") -> Answer:
    """An error as JSON."""
    return Answer(status, {"Content-Type": _JSON}, json.dumps({"error": message, "hint": hint}).encode())


def _job(job: StateReader, _query: Dict[str, str]) -> Dict[str, Any]:
    resources = [one._asdict() for one in job.resources(100)]
    return {**job.summary(), "resources": resources, "cause": job.cause(), "values": job.values(MOST_ROWS)}


def _tasks(job: StateReader, query: Dict[str, str]) -> Dict[str, Any]:
    state = query.get("state", "")
    return {"tasks": [one._asdict() for one in job.tasks([state] if state else [], *_part(query))]}


def _failures(job: StateReader, query: Dict[str, str]) -> Dict[str, Any]:
    """The tasks that failed first."""
    return {"failures": [one._asdict() for one in job.failures(_part(query)[1])]}


def _log(job: StateReader, query: Dict[str, str]) -> Dict[str, Any]:
    return {"log": [one._asdict() for one in job.log(*_part(query))]}


def _transitions(job: StateReader, query: Dict[str, str]) -> Dict[str, Any]:
    """The transitions of the job itself."""
    rows = job.job_transitions(*_part(query))
    return {"transitions": [{"id": one.id, "at": one.at, "state": one.state, "cause": one.cause} for one in rows]}


def _part(query: Dict[str, str]) -> Tuple[int, int]:
    after, limit = int(query.get("after", "-1")), int(query.get("limit", MOST_ROWS))
    if not -1 <= after < 1 << 62 or limit < 1:
        raise ValueError(after)
    return after, min(limit, MOST_ROWS)


_READERS = {"": _job, "tasks": _tasks, "failures": _failures, "log": _log, "transitions": _transitions}

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>job</title>
<style>body{font:14px system-ui;margin:2em;max-width:70em}table{border-collapse:collapse}td,th{padding:.1em .8em .1em 0;
text-align:left;vertical-align:top}pre{background:#8881;padding:.5em}progress{width:20em}.failed{color:#b00}</style>
<h1 id="title">job</h1><p id="state"></p><progress id="bar" max="1" value="0"></progress><dl id="facts"></dl>
<h2>Values</h2><table id="values"></table><h2>Tasks</h2><table id="tasks"></table><h2>Log</h2><pre id="log"></pre>
<script>
const base = location.pathname.replace(/\\/page$/, "");
const token = new URLSearchParams(location.search).get("token");
const at = id => document.getElementById(id);
let tag = "", last = -1;
async function get(what, more) {
  const headers = {Authorization: "Bearer " + token};
  if (more && tag) headers["If-None-Match"] = tag;
  return fetch(base + what, {headers});
}
function row(table, cells, kind) {
  const line = table.insertRow(); line.className = kind || "";
  for (const text of cells) line.insertCell().textContent = text ?? "";
}
async function show() {
  const reply = await get("?wait=25", true);
  if (reply.status == 304) return;
  if (!reply.ok) throw new Error(reply.status);
  tag = reply.headers.get("ETag");
  const job = await reply.json(), counts = job.counts || {};
  const all = Object.values(counts).reduce((a, b) => a + b, 0);
  document.title = at("title").textContent = "job " + job.uuid.slice(0, 8) + ": " + (job.command || []).join(" ");
  const told = Object.entries(counts).map(([state, count]) => count + " " + state).join(", ");
  at("state").textContent = job.state + (job.ended_at || job.owner_lives ? "" : " (owner lost)") + ": " + told;
  const over = (counts.done || 0) + (counts.failed || 0) + (counts.cancelled || 0);
  at("bar").value = job.progress ?? (all ? over / all : 0);
  at("values").textContent = ""; Object.entries(job.values).forEach(pair => row(at("values"), pair));
  const tasks = (await (await get("/tasks?limit=200")).json()).tasks;
  at("tasks").textContent = "";
  row(at("tasks"), ["task", "state", "node", "try", "exit", "progress", "last line"]);
  for (const t of tasks)
    row(at("tasks"), [t.first == t.last ? t.first : t.first + "-" + t.last, t.state, t.node, t.attempt, t.exit,
      t.progress, (t.lines || "").trimEnd().split("\\n").pop()], t.state);
  const lines = (await (await get("/log?after=" + last)).json()).log;
  for (const l of lines) {
    last = l.id;
    at("log").textContent += new Date(l.at * 1000).toISOString() + "  " + (l.node || "") + "  " + l.text + "\\n";
  }
}
(async () => { for (;;) try { await show(); } catch (e) { await new Promise(r => setTimeout(r, 2000)); } })();
</script></html>
"""

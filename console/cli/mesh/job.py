"""``mesh job``: reads the state objects of jobs (docs/state-object.md)."""

import argparse
import json
import os
import sqlite3
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from agents.job.description import META, Description, read
from agents.job.start import dependents, start_beside
from console.cli.map.drawing import cut, table
from console.cli.mesh.progress_line import time_text
from console.errors import ConsoleError, UsageError
from console.jobs.job_record import JobRecord
from console.jobs.objects import delete, directory_of, may_go, node_of, opened, places, summary, uuids
from console.jobs.reasons import stopped_processes, stopped_text
from console.jobs.rows import command_line, of_tasks, open_text, queue_row, rate_text
from console.launch.daemons.connect import login_name
from console.message_codes import coded
from console.sections.attempts import attempts, joblog
from console.settings import Settings
from console.tracker.commanding import at_hand, bring_ended
from console.tracker.source import Proxy, forget, purge_there, source
from redmesh.byte_text import from_system, to_bytes
from redmesh.sanitise import clean
from redmesh.state import job_path, owned
from redmesh.state_reader import TIMED_OUT, StateReader, signal_of
from redmesh.text import counted

_WIDTH = 200
_INPUT = 40  # characters of an input in a table
_MOST_FAILURES = 100  # in the log
_STEPS = 100_000  # of SQLite between two looks at the time limit of a query


def show_list(settings: Settings, options: argparse.Namespace) -> int:
    """Print the jobs with a state object on this host, the newest last."""
    directory = directory_of(settings.state_dir)
    found: list[JobRecord] = []
    for place in places(directory):
        for uuid in uuids(place):
            _add_summary(found, job_path(place, uuid))
    found.sort(key=lambda job: job.created_at)
    if options.json:
        print(json.dumps([job.as_json() for job in found]))
        return 0
    head = ("JOB", "KIND", "STATE", "TASKS", "CREATED", "SECONDS", "COMMAND")
    rows = [
        (job.name, job.kind, _state(job), _tasks(job), _instant(job.created_at), _seconds(job), " ".join(job.command))
        for job in found
    ]
    _print_table(head, rows)
    return 0


def _add_summary(found: list[JobRecord], path: str) -> None:
    try:
        found.append(summary(path))
    except ConsoleError as error:
        print(f"mesh: {coded(clean(error.message), clean(error.hint))}", file=sys.stderr)


def show(settings: Settings, options: argparse.Namespace) -> int:
    """Print a job's summary and progress."""
    found = source(settings, options.job, options.at or "")
    job = found.job()
    stopped = stopped_processes(job)
    if options.json:
        told_stopped = [one._asdict() for one in stopped]
        print(json.dumps({**job.as_json(), "stopped": told_stopped}))
        return 0
    failed = found.failures(1) if job.counts.get("failed") and job.kind != "launch" else []
    told = [
        ("job", job.uuid), ("state", _state(job)), ("cause", job.cause), ("kind", job.kind),
        ("command", " ".join(job.command)), ("in", job.cwd), ("of", f"{job.user} on {job.host}"),
        ("created", _instant(job.created_at)), ("seconds", _seconds(job)), ("tasks", _tasks(job)),
        ("failed", f"first task {failed[0]['task']}, {failed[0]['text']}" if failed else ""),
        ("progress", f"{job.progress:.0%}" if job.progress is not None else ""),
        ("waiting", stopped_text(stopped) if stopped else job.trouble),
        ("launcher", job.launcher), ("exit", job.exit_status),
        ("processors", _processors(job)),
        ("file", job.path),
        ("note", f"this is a copy: the object is on the login processor {job.proxied}" if job.proxied else ""),
    ]  # fmt: skip
    for name, text in told:
        if text not in (None, ""):
            print(f"{name + ':':<12}{clean(str(text))}")
    for key, value in job.values.items():
        print(f"{clean(key)} = {clean(value)[:_WIDTH]}")
    if job.report:
        print("\n".join(map(clean, job.report.splitlines())))
    return 0


def show_log(settings: Settings, options: argparse.Namespace) -> int:
    """Print a job's log: its messages, its failed tasks, and its state changes."""
    found = source(settings, options.job, options.at or "")
    rows: list[dict[str, Any]] = [
        {key: one[key] for key in ("at", "node", "task", "text")} for one in found.rows("log")
    ]
    for one in found.rows("transitions"):
        text = f"the job is {one['state']}" + (f": {one['cause']}" if one["cause"] else "")
        rows.append({"at": one["at"], "node": None, "task": None, "text": text})
    failed = found.failures(_MOST_FAILURES + 1)
    for one in failed[:_MOST_FAILURES]:
        text = "failed" + (f": {one['text']}" if one["text"] else "")
        rows.append({"at": one["at"], "node": None, "task": one["task"], "text": text})
    if len(failed) > _MOST_FAILURES:
        text = f"more tasks failed: mesh job tasks {found.uuid[:8]} --state failed prints all"
        rows.append({"at": failed[-1]["at"], "node": None, "task": None, "text": text})
    for row in sorted(rows, key=lambda one: float(one["at"])):
        if options.json:
            print(json.dumps(row))
        else:
            task = None if row["task"] is None else f"task {row['task']}"
            who = " ".join(str(one) for one in (row["node"], task) if one)
            print(f"{_instant(row['at'])}  {clean(who + ': ' if who else '')}{clean(row['text'])}")
    return 0


def show_tasks(settings: Settings, options: argparse.Namespace) -> int:
    """Print a job's tasks or ranks: a line for each, and for each range of equal tasks."""
    if options.joblog:
        if options.json or options.state or options.task is not None:
            raise UsageError("--joblog excludes --json, --state and TASK", "mesh job tasks JOB --joblog")
        with at_hand(settings, options.job) as path:
            return _show_joblog(path)
    found = source(settings, options.job, options.at or "")
    rows = found.rows("tasks", state=options.state or "")
    if options.task is not None:
        rows = [row for row in rows if row["first"] <= options.task <= row["last"]]
        if not rows:
            told = f"job {found.uuid[:8]} has no {f'{options.state} ' if options.state else ''}task {options.task}"
            raise UsageError(clean(told), "mesh job tasks JOB prints all")
    job = found.job()
    described = of_tasks(job) if job.has_tasks else None
    for row in rows:
        if described is not None and row["first"] == row["last"]:
            row["command"] = command_line(described, row["first"], row.get("input"))
    if options.json:
        for row in rows:
            print(json.dumps(row))
        return 0
    head = ("TASK", "STATE", "NODE", "TRY", "SECONDS", "EXIT", "PROGRESS", "INPUT", "LAST LINE")
    _print_table(head, [_task_row(row, described) for row in rows])
    return 0


def _show_joblog(path: str) -> int:
    with opened(path) as state:
        if not state.meta(META):
            raise ConsoleError(f"{path} is of a launch, which has no job log", "mesh job tasks JOB shows its ranks")
        described = read(state)
        inputs = {task.first: task.input for task in state.tasks()}
        found = attempts(state)
    lines = joblog(found, lambda number: command_line(described, number, inputs.get(number)))
    if sys.stdout.isatty():
        sys.stdout.writelines(clean(line, keep="\t\n") for line in lines)
    else:  # a file gets the commands as they are
        sys.stdout.buffer.writelines(map(to_bytes, lines))
    return 0


def _task_row(task: dict[str, Any], described: Description | None) -> tuple[str, ...]:
    number = str(task["first"]) if task["first"] == task["last"] else f"{task['first']}-{task['last']}"
    begun, ended = task["started_at"], task["ended_at"]
    seconds = (ended or time.time()) - begun if begun else None
    took = "" if seconds is None else f"{seconds:.3f}" if seconds < 10 else f"{seconds:.1f}"
    progress = "" if task["progress"] is None else f"{task['progress']:.0%}"
    lines = (task["lines"] or "").rstrip("\n").rpartition("\n")[2]
    last = ": ".join(filter(None, (_ended_by(task["exit"], described), lines)))
    told = "" if task["exit"] is None else str(task["exit"])
    sections = described is not None and described.sections
    given = cut((task.get("command") if sections else task.get("input")) or "", _INPUT)
    return number, task["state"], task["node"] or "", str(task["attempt"]), took, told, progress, given, last


def _ended_by(status: int | None, described: Description | None) -> str:
    """What an exit status means; "" for one that the program chose."""
    if status == TIMED_OUT and described is not None and described.time_s:
        return f"time limit of {described.time_s:g} s"
    return signal_of(status)


def sql(settings: Settings, options: argparse.Namespace) -> int:
    """Run an SQL query on the object, read-only, for at most ``--limit`` seconds, without those of a slow reader."""
    with at_hand(settings, options.job) as path:
        return _queried(opened(path), options)


def _queried(job: StateReader, options: argparse.Namespace) -> int:
    until = time.monotonic() + options.limit
    job.connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
    try:
        rows = job.connection.execute(from_system(options.query))
        names = [column[0] for column in rows.description or ()]
        if not options.json:
            print("\t".join(names))
        for row in rows:
            began = time.monotonic()
            if options.json:
                print(json.dumps(dict(zip(names, map(_plain, row), strict=True))))
            else:
                print("\t".join("" if one is None else clean(str(_plain(one))) for one in row))
            until += time.monotonic() - began
    except (sqlite3.Error, sqlite3.Warning) as error:
        if time.monotonic() > until:
            told = f"the query has not ended within {options.limit:g} s"
            raise ConsoleError(told, "--limit SECONDS; a recursive query or view may never end") from None
        raise UsageError(f"SQLite refuses the query: {error}", "docs/state-object.md has the tables") from None
    finally:
        job.connection.close()
    return 0


def watch(settings: Settings, options: argparse.Namespace) -> int:
    """Print a line at every change of the job's counts, state or progress until it ends; returns 1 if it failed."""
    found, told = source(settings, options.job, options.at or ""), ""
    while True:
        job = found.next_change()
        if job is None:
            continue
        progress = f"  {job.progress:.0%}" if job.progress is not None else ""
        line = f"{_state(job)}  {_tasks(job)}{progress}"
        if line != told:
            print(f"{_instant(time.time())}  {line}{_pace(job) if not found.node else ''}", flush=True)
            told = line
        if job.has_ended or job.owner_lost:
            return 0 if job.state == "done" else 1


def _pace(job: JobRecord) -> str:
    if not job.has_tasks:
        return ""
    row = queue_row(job)
    left = f"  {time_text(row.left_s)} left" if row.left_s is not None else ""
    return f"  {rate_text(row.rate)}{left}" if row.rate else ""


def fetch(settings: Settings, options: argparse.Namespace) -> int:
    """Copy a job's object to a file: a consistent snapshot, even while the owner writes."""
    with at_hand(settings, options.job) as path:
        return _copied(path, options)


def _copied(job: str, options: argparse.Namespace) -> int:
    # Two commands may fetch to one file at the same time.
    aside = f"{options.file}.part-{os.urandom(4).hex()}"
    try:
        if os.path.lexists(options.file):
            raise ConsoleError(f"{options.file} exists already", "name another file, or remove it", exit_status=1)
        os.close(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            with opened(job) as state:
                state.copy_to(aside)
            os.rename(aside, options.file)
        except BaseException:
            os.unlink(aside)
            raise
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConsoleError(f"{options.file} cannot be written: {reason}", "name a file on a disk with room") from None
    return 0


def purge(settings: Settings, options: argparse.Namespace) -> int:
    """Delete the objects of the named ended jobs, or of all ended ones."""
    if options.all:
        return _purge_all(settings, options)
    if not options.jobs:
        raise UsageError("mesh purge needs JOB, or --all", "mesh queue --all lists the jobs")
    for name in options.jobs:
        found = source(settings, name)
        path = found.path
        if not path and found.proxied:
            path = bring_ended(settings, found)
        if not path:
            purge_there(settings, found)
            continue
        if owned(path):
            raise ConsoleError(f"job {name} has not ended: its owner process runs", "end the job first", exit_status=1)
        told = summary(path)
        if not told.has_ended and not options.force:
            then = "its yod was killed" if told.kind == "launch" else "mesh job resume can continue it"
            raise ConsoleError(
                f"job {name} has not ended, but its owner process has: {then}",
                "--force deletes it all the same", exit_status=1,
            )  # fmt: skip
        waiting = [] if told.has_ended else dependents(path)
        tracked = _is_tracked(settings, path, told)
        delete(path)
        if tracked:
            forget(settings, told.uuid, node_of(settings, path) or login_name(settings))
        start_beside(path, waiting)  # they fail with that reason, or start (--after JOB:any)
    return 0


def _is_tracked(settings: Settings, path: str, told: JobRecord) -> bool:
    """True if the tracker may know this object: it is no copy somewhere else, and of a job of tasks, which may have had
    a standby, or moved."""
    place = os.path.join(directory_of(settings.state_dir), node_of(settings, path))
    here = os.path.realpath(path) == os.path.realpath(job_path(place, told.uuid))
    return here and bool(told.kind == "job" or told.counter)


def _purge_all(settings: Settings, options: argparse.Namespace) -> int:
    if options.jobs or options.force:
        raise UsageError("--all excludes JOB and --force", "--all deletes what has ended and is not kept by -keep")
    directory = directory_of(settings.state_dir)
    paths = [job_path(place, uuid) for place in places(directory) for uuid in uuids(place)]
    ended = [path for path in paths if may_go(path)]
    if not ended:
        print("no job has ended")
        return 0
    if not options.yes:
        what = f"the objects of {counted(len(ended), 'ended job')}"
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageError(f"{what} would be deleted", "--yes deletes them without a question")
        print(f"Delete {what}? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            return 1
    answers = True  # a CPA does
    for path in ended:
        if may_go(path):  # mesh retry may have started it again
            told = summary(path)
            tracked = answers and _is_tracked(settings, path, told)
            delete(path)
            if tracked:
                answers = forget(settings, told.uuid, node_of(settings, path) or login_name(settings))
    print(f"deleted: {counted(len(ended), 'job')}")
    return 0


def serve(settings: Settings, options: argparse.Namespace) -> int:
    """Serve the jobs of this host over HTTP on loopback until ^C."""
    from console.jobs.web import server

    try:
        made, token = server(directory_of(settings.state_dir), options.port, Proxy(settings).ask)
    except OSError as error:
        raise ConsoleError(
            f"port {options.port} cannot be listened on: {error.strerror}", "--port 0 takes any"
        ) from None
    address = f"http://127.0.0.1:{made.server_address[1]}"
    print(f"{address}/?token={token}", flush=True)
    for uuid in options.jobs:
        name = source(settings, uuid).uuid
        print(f"{address}/job/{name}/page?token={token}", flush=True)
    try:
        made.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        made.server_close()
    return 0


def _processors(job: JobRecord) -> str:
    return " ".join(f"{one.node}:{one.processors}" for one in job.resources if one.freed_at is None)


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _state(job: JobRecord) -> str:
    if job.owner_lost:
        return f"{job.state} ({f'moving to {job.handed_to}' if job.handed_to else 'owner lost'})"
    return open_text(job) or job.state


def _tasks(job: JobRecord) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in sorted(job.counts.items()))


def _seconds(job: JobRecord) -> str:
    return f"{(job.ended_at or time.time()) - job.created_at:.1f}"


def _instant(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    width = os.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    for line in table(head, [[clean(one) for one in row] for row in rows], width):
        print(line)

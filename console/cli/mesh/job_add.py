"""``mesh job add`` and ``mesh job close``: tasks of an open job (docs/jobs.md)."""

import argparse
import json
import os
import shlex

from agents.job.description import OPEN
from agents.job.tasks.adding import checked, write
from agents.job.tasks.new_tasks import NewTask, to_wire
from agents.wire.errors import WireError
from console.errors import ConsoleError, UsageError
from console.jobs.foreign import find
from console.jobs.job_record import ENDED, JobRecord
from console.jobs.objects import opened, summary
from console.jobs.owner_client import NoOwner, ask
from console.jobs.rows import need_tasks, of_tasks
from console.jobs.submission import parse_array
from console.jobs.task_files import GraphFile, lines
from console.settings import Settings
from redmesh.byte_text import from_system
from redmesh.state import StateError, StateObject
from redmesh.state_graph import GraphReader


def add(settings: Settings, options: argparse.Namespace) -> int:
    """Add tasks to an open job, and print their numbers."""
    path, job = _open_job(settings, options.job)
    tasks, ranges = _tasks(path, job, options)
    try:
        answer = ask(path, "add", added=to_wire(tasks), ranges=ranges)
        first, last = int(answer["first"]), int(answer["last"])
    except WireError:
        told = f"{len(tasks):,} tasks are too many for one message"
        raise ConsoleError(told, "add them in several parts, each of less than 8 MB", exit_status=1) from None
    except NoOwner:
        first, last = _add_to_object(path, tasks, ranges)
    if options.json:
        print(json.dumps({"first": first, "last": last}))
    else:
        print(f"{first}-{last}" if last > first else first)
    return 0


def close(settings: Settings, options: argparse.Namespace) -> int:
    """Add no more tasks to a job: it ends after those that it has."""
    path, _ = _open_job(settings, options.job)
    try:
        ask(path, "close_job")
    except NoOwner:
        state = _opened(path)
        try:
            _refuse_ended(state)
            state.set_meta(**{OPEN: 0})
            state.log("closed: no more tasks are added")
        finally:
            state.close()
    return 0


def _open_job(settings: Settings, name: str) -> tuple[str, JobRecord]:
    path = find(settings, name)
    job = summary(path)
    need_tasks(job)
    if job.has_ended:
        raise _ended(job.uuid, job.state)
    if not job.open:
        raise _not_open(job.uuid)
    return path, job


def _not_open(uuid: str) -> ConsoleError:
    hint = "mesh submit --open makes a job that tasks can be added to"
    return ConsoleError(f"job {uuid[:8]} is not open", hint, exit_status=1)


def _ended(uuid: str, state: str) -> ConsoleError:
    return ConsoleError(f"job {uuid[:8]} has ended: {state}", "mesh submit --open makes another one", exit_status=1)


def _refuse_ended(state: StateObject) -> None:
    told = str(state.meta("state"))
    if told in ENDED:
        raise _ended(state.uuid, told)


def _opened(path: str) -> StateObject:
    try:
        return StateObject(path)
    except StateError as error:
        raise ConsoleError(error.message, error.hint) from None


def _add_to_object(path: str, tasks: list[NewTask], ranges: list[tuple[int, int]]) -> tuple[int, int]:
    """Add tasks to a job that no process owns: it is held, waits for another one, or its owner was lost."""
    state = _opened(path)
    try:
        _refuse_ended(state)
        if not state.meta(OPEN):
            raise _not_open(state.uuid)  # it was closed meanwhile
        added = checked(state, tasks, ranges)
        write(state, added)
        state.commit()
    except StateError as error:
        raise ConsoleError(error.message, error.hint) from None
    finally:
        state.close()
    return added.first, added.last


def _tasks(path: str, job: JobRecord, options: argparse.Namespace) -> tuple[list[NewTask], list[tuple[int, int]]]:
    """What the options say, checked against the job as it is now. Raises UsageError."""
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    ways = (options.array, options.tasks, options.graph, words)
    if sum(map(bool, ways)) != 1:
        raise UsageError("mesh job add takes one of --array, --tasks, --graph and a program", "mesh job add -h")
    if (options.id or options.after) and not words:
        raise UsageError("--id and --after are of the one task that is a program", "--graph FILE says it for many")
    program, name = of_tasks(job).command, job.name
    if words and program:
        told = f"job {name} has a program for all tasks: {os.path.basename(program[0])}"
        raise UsageError(told, "--tasks FILE or --graph FILE adds inputs of it")
    if options.array and not program:
        raise UsageError(f"job {name} has no program for numbers", "--tasks FILE, or -- PROGRAM")
    if options.array:
        ranges, limit = parse_array(options.array)
        if limit:
            raise UsageError(f"--array {options.array[:60]}: the limit of a job stays", "leave %N out")
        return [], ranges
    if options.graph:
        file = GraphFile(options.graph)
        with opened(path) as state:
            file.ordered(GraphReader(state))
        tasks = file.tasks
    elif options.tasks:
        tasks = [NewTask("", (), text) for text in lines(options.tasks)]
        if not tasks:
            raise UsageError("--tasks has no tasks: every line is empty", "one task a line")
    else:
        after = [from_system(one) for one in options.after]
        tasks = [NewTask(from_system(options.id), after, shlex.join(words))]
    for task in tasks:
        task.input = from_system(task.input)
    return tasks, []

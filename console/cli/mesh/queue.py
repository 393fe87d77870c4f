"""``mesh submit``, ``queue``, ``cancel``, ``hold``, ``release``, ``retry`` and ``job resume``
(docs/jobs.md).

Data about a job come from its state object or its owner; the database has none.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from agents.job.dependencies import elsewhere
from agents.job.description import BEGIN_IN, BESIDE, META, OPEN, Description
from agents.job.description import read as read_description
from agents.job.start import CALLS, SOCKET, beside, start_dependents, start_owner
from agents.linux.processes import start_time
from agents.yodio.yodfields import file_name, has_field
from console.cli.map.drawing import table
from console.cli.mesh.job_wait import see_end
from console.cli.mesh.progress_line import time_text
from console.cli.options.parser import complain
from console.errors import ConsoleError, UsageError
from console.jobs.foreign import ForeignJob, find, is_admin, job_of
from console.jobs.job_record import ENDED, JobRecord
from console.jobs.objects import SHORTEST, directory_of, make_directory, summary, uuids
from console.jobs.owner_client import NoOwner, ask
from console.jobs.reasons import in_line, stopped_processes, stopped_text
from console.jobs.rows import QueueRow, need_tasks, of_tasks, queue_row, rate_text, waiting_text, waits
from console.launch.daemons.connect import reach, user
from console.launch.daemons.cpa import connect_any
from console.launch.options.limits import duration
from console.message_codes import coded
from console.sections.lists import MARKS
from console.sections.template import fields_of
from console.settings import Settings, state_directory
from console.tracker.follow import is_followed
from console.tracker.source import Source
from db.errors import StoreError
from db.views.viewer import open_viewer
from redmesh.byte_text import each_from_system, each_to_system, from_system
from redmesh.sanitise import clean
from redmesh.state import CANCELLED, DONE, FAILED, RUNNING, WAITING, StateError, StateObject, is_uuid, job_path, owned
from redmesh.text import counted

_LOOK_S = 0.5
_WIDTH = 200


def submit_job(settings: Settings, options: argparse.Namespace) -> int:
    """Submit a job and print its UUID; with --wait, run it to its end."""
    # The other commands of this file, and mesh up, do without these.
    from console.jobs.packaging import collect, stored
    from console.jobs.submission import parse_after, parse_array, submit
    from console.jobs.task_files import GraphFile, lines

    described = _describe(options)
    ranges, limit = parse_array(options.array) if options.array else ([(1, 1)], 0)
    described.limit = min(filter(None, (limit, options.limit)), default=0)
    files = collect(options.files, settings.job_limit_mb)
    if files:
        described.package = BEGIN_IN if options.cwd is None else BESIDE
    many = sum(last - first + 1 for first, last in ranges) > 1
    written = _name_streams(described, options, many=many or bool(options.tasks or options.graph or options.open))
    described.after = parse_after(settings, options.after)
    if options.functions:
        described.functions, ranges = each_to_system(json.loads(options.functions)), []
        program = described.functions["program"]
        described.functions["program"] = [program, start_time(program)]
    inputs = _distinct(lines(options.tasks), written) if options.tasks else None
    graph = GraphFile(options.graph).ordered() if options.graph else []
    for _ in _distinct((task.input for task in graph), written):
        pass
    if options.graph or (options.open and not (options.array or options.tasks)):
        ranges = []
    if not options.quiet and not options.json:
        tell_limit(settings, options.limit)
        if not options.hold:
            tell_start(settings)
        _tell_unfilled(described, many=many)
    if not options.hold:
        need_mesh_of_job(settings)
    path = submit(
        settings, described, () if inputs is not None else ranges, inputs,
        user=user(), hold=options.hold, files=stored(files), graph=graph, stays_open=options.open,
    )  # fmt: skip
    uuid = os.path.basename(path)[:36]
    if settings.system and not options.hold:
        _tell_unreachable(settings)
    if options.json:
        told = {"uuid": uuid, "path": path, "socket": beside(path, SOCKET), "directory": beside(path, CALLS)}
        told = {**told, **(_machine(settings) if options.functions else {})}
        print(json.dumps(each_from_system(told)), flush=True)
    else:
        print(uuid, flush=True)
    if not options.wait:
        return 0
    return see_end(settings, Source(uuid, path), quiet=options.quiet or options.json)


def _describe(options: argparse.Namespace) -> Description:
    """What the options say of a job's tasks, without their numbers and files. Raises UsageError."""
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if sum(map(bool, (options.array, options.tasks, options.graph))) > 1:
        raise UsageError("--array, --tasks and --graph exclude each other", "lines of a file are numbered from 1")
    if options.functions and (options.open or options.graph):
        raise UsageError("a job of redmesh.Executor gets its calls from its program", "leave --open and --graph out")
    if not words and options.array:
        raise UsageError("no program to run", "mesh submit --array 1-100 -- ./simulate --seed {}")
    if not (words or options.tasks or options.graph or options.functions or options.open):
        raise UsageError("no program to run", "mesh submit --array 1-100 -- ./simulate --seed {}")
    mark = next((word for word in words if word in MARKS), None)
    if mark:
        raise UsageError(
            f"mesh submit takes no values behind {mark}; mesh sections run does",
            f"mesh sections run -- {clean(' '.join(words[:8]))}; or --tasks FILE, a task a line",
        )
    if options.functions and options.time:
        raise UsageError(
            "a call of redmesh.Executor has no time limit", "leave --time out; result(timeout=…) limits a wait"
        )
    if from_system(options.name) != options.name:
        raise UsageError(
            f"--name {clean(options.name[:60])}: the name of a job is UTF-8, without the characters U+EF80 to U+EFFF",
            "--name sweep-4; arguments, paths and lines of tasks may have any bytes",
        )
    described = Description(words, _here() if options.cwd is None else _absolute_directory(options.cwd))
    described.name = options.name
    described.retries, described.max_fails = options.retries, options.max_fails
    described.time_s = (duration(options.time) or 0.0) if options.time else 0.0
    described.cpus, described.gpus = options.cpus_per_task, options.gpus_per_task
    described.env = dict(_variable(text) for text in options.env)
    described.standby = not options.no_standby
    described.hold_processors = options.hold_processors
    return described


def _name_streams(described: Description, options: argparse.Namespace, *, many: bool) -> dict[str, str]:
    """Set the files of the tasks' standard streams and make their directories; returns the files that are written.

    ``many``: the job has several tasks, which must not write one file. Raises UsageError.
    """
    if described.package == BEGIN_IN:
        described.stdin = options.stdin
        described.output, described.error = _kept("--output", options.output), _kept("--error", options.error)
    else:
        described.stdin = _absolute(options.stdin, described.cwd)
        described.output = _absolute(options.output, described.cwd)
        described.error = _absolute(options.error, described.cwd)
    written = {"--output": described.output, "--error": described.error}
    for option, name in written.items():
        if name and not has_field(name) and many:
            raise UsageError(f"{option} {name}: every task would write the same file", f"{option} 'out/{{#}}.txt'")
        _make_directory(name)
    return written


def _tell_unreachable(settings: Settings) -> None:
    """Say that a job waits because the mesh of this machine's users is down: only root can start it."""
    sock = connect_any(settings.run_dir, os.getpid())
    if sock is None:
        print(f"mesh: no mesh answers in {settings.run_dir}: the job waits until root starts it", file=sys.stderr)
    else:
        sock.close()


def need_mesh_of_job(settings: Settings) -> None:
    """Inside a batch job, bring its mesh up. The owner of a job cannot, because it lacks the batch job's variables."""
    if settings.allocation:
        reach(settings, os.getpid(), lambda text: print(f"mesh: {text}", file=sys.stderr))[1].close()


def starts_personal(settings: Settings) -> bool:
    """True if no mesh is up, so that the first launch starts a personal one."""
    from console.deploy.personal.lifecycle import is_up

    return not (settings.hosts or settings.allocation or settings.system or is_up(settings))


def tell_start(settings: Settings) -> None:
    """Say that the job starts a personal mesh, if it does."""
    from console.deploy.personal.plan import wanted_size

    if starts_personal(settings):
        size = counted(wanted_size(settings).processors, "processor")
        print(f"mesh: no mesh is up: the job starts a personal mesh of {size} (mesh down ends it)", file=sys.stderr)


def _machine(settings: Settings) -> dict[str, Any]:
    """How many processors the mesh has, and whether it is started now: the user is told."""
    from console.deploy.personal.lifecycle import is_up
    from console.deploy.personal.plan import wanted_size

    if starts_personal(settings):
        return {"starts": True, "processors": wanted_size(settings).processors}
    if not is_up(settings):
        return {}
    try:
        with open_viewer(settings.database, settings.login) as viewer:
            return {"processors": len(viewer.read().processors)}
    except StoreError:
        return {}


def _here() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise UsageError(
            f"the working directory cannot be used: {error.strerror}", "cd to a directory that exists, or --cwd /DIR"
        ) from None


def _absolute_directory(name: str) -> str:
    return os.path.normpath(name if os.path.isabs(name) else os.path.join(_here(), name))


def _absolute(name: str, cwd: str) -> str:
    return os.path.join(cwd, name) if name else ""


def tell_limit(settings: Settings, limit: int) -> None:
    """Say if the mesh has fewer processors than a job may use."""
    has = int(_machine(settings).get("processors", limit)) if limit > 1 else limit
    if has < limit:
        more = f"; a personal mesh has more after mesh down and mesh up --processors {limit}"
        print(f"mesh: --limit {limit}: the mesh has {counted(has, 'processor')}{more}", file=sys.stderr)


def _tell_unfilled(described: Description, *, many: bool) -> None:
    """Say which fields of the command stay as they are, and where its tasks cannot tell which one they are."""
    words = " ".join(described.command)
    left = [field for field in fields_of(words) if not has_field(field)]
    if left:
        told = f"mesh: {left[0]} stays as it is: mesh submit knows {{}} and {{#}}, mesh sections run the others"
        print(clean(told), file=sys.stderr)
    if many and not has_field(words) and "REDMESH_TASK" not in words:
        told = "mesh: no word of the command has {}, so a task finds its number in $REDMESH_TASK alone"
        print(told, file=sys.stderr)


def _make_directory(name: str) -> None:
    """Make the directory of the tasks' output files. Where it cannot be made, it may exist on the nodes."""
    directory = os.path.dirname(name)
    if directory and not has_field(directory):
        with suppress(OSError):
            os.makedirs(directory, exist_ok=True)


def _distinct(lines: Iterable[str], written: dict[str, str]) -> Iterator[str]:
    """The lines of the tasks. Raises UsageError if two tasks would write the same file."""
    named = [option for option, name in written.items() if name and "{#}" not in name]
    first: dict[str, int] = {}  # of each name
    for number, line in enumerate(lines, 1):
        name = file_name(line) if named else ""
        if named and first.setdefault(name, number) != number:
            raise UsageError(
                f"{named[0]} {written[named[0]]}: tasks {first[name]} and {number} would write one file",
                "their lines are alike, or begin alike: {#} in the name is the number of the task",
            )
        yield line


def _kept(option: str, output: str) -> str:
    if output and not os.path.isabs(output):
        raise UsageError(
            f"{option} {clean(output)}: with --file, tasks begin in a directory that is deleted with the job",
            "give it an absolute path, or --cwd DIR (the files are then in $REDMESH_FILES)",
        )
    return output


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or "\0" in text:
        raise UsageError(
            f"--env {clean(text[:60])}: it takes NAME=VALUE, or NAME for the value that it has here",
            "--env OMP_NUM_THREADS=4",
        )
    return name, value if equals else os.environ.get(name, "")


# The queue


def show_queue(settings: Settings, options: argparse.Namespace) -> int:
    """Print jobs that have not ended, in the order of submission; with --all also ended ones."""
    jobs = [job for job in _jobs(settings) if options.all or not job.has_ended]
    told, cells = [], []
    for job, (why, stuck) in zip(jobs, in_line(settings, jobs), strict=True):
        row, stopped = queue_row(job), stopped_processes(job)
        why = stopped_text(stopped) if stopped else why
        told.append({**row._asdict(), "why": why, "stuck": stuck, "stopped": [one._asdict() for one in stopped]})
        cells.append([clean(cell) for cell in _cells(row, why)])
    if options.json:
        print(json.dumps(told))
        return 0
    head = ("JOB", "NAME", "STATE", "OWNER", "TASKS", "FAILED", "RATE", "LEFT", "COMMAND")
    width = os.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    for line in table(head, cells, width):
        print(line)
    others = _told_of_others(settings) if settings.system else []
    if others:
        print("\n".join(["", *others]))
    return 0


def _cells(row: QueueRow, why: str) -> tuple[str, ...]:
    state = row.state + waiting_text(why, row.running)
    ended, failed = f"{row.ended:,} of {row.tasks:,}", f"{row.failed:,}" if row.failed else ""
    return (
        row.uuid[:8],
        row.name,
        state,
        row.owner,
        ended,
        failed,
        rate_text(row.rate),
        time_text(row.left_s),
        row.command,
    )


def _jobs(settings: Settings) -> list[JobRecord]:
    directory, found = directory_of(settings.state_dir), []
    for uuid in uuids(directory):
        try:
            job = summary(job_path(directory, uuid))
            if job.has_tasks:
                of_tasks(job)  # what follows can read it
        except ConsoleError as error:
            print(f"mesh: {coded(clean(error.message), clean(error.hint))}", file=sys.stderr)
            continue
        if job.has_tasks:
            found.append(job)
    return sorted(found, key=lambda job: job.created_at)


def resumable(settings: Settings) -> list[JobRecord]:
    """Jobs that lost their owner, or were suspended, and can be resumed."""
    found = []
    for job in _jobs(settings):
        described = of_tasks(job)
        if job.owner_lost and not job.held and not described.functions and not _waits(job, described):
            found.append(job)
    return found


def _waits(job: JobRecord, described: Description) -> bool:
    """True if the end of another job will start this one."""
    if not waits(job, described):
        return False
    return not elsewhere(os.path.dirname(job.path), described.after) or is_followed(job.path)


# One job


#: The reason that a cancelled job records.
_CANCELLED = "cancelled by mesh cancel"


def cancel(settings: Settings, options: argparse.Namespace) -> int:
    """End jobs: waiting tasks are cancelled, running ones terminated."""
    return _each(settings, options, _cancel, "cancel", reason=_CANCELLED)


def _cancel(path: str, job: JobRecord) -> None:
    try:
        ask(path, "cancel", reason=_CANCELLED)
    except NoOwner:
        with _opened(path) as state:
            _refuse_ended(state)
            for first, last, before, _ in state.ranges():
                if before in (WAITING, RUNNING):
                    state.change(first, last, CANCELLED, cause="mesh cancel")
            state.finish(CANCELLED, "mesh cancel", exit_status=130, held=0, **({OPEN: 0} if job.open else {}))
        start_dependents(path)


def hold(settings: Settings, options: argparse.Namespace) -> int:
    """Hold jobs: no further tasks start; running ones continue."""
    return _each(settings, options, _hold, "hold")


def _hold(path: str, job: JobRecord) -> None:
    try:
        ask(path, "hold")
    except NoOwner:
        with _opened(path) as state:
            _refuse_ended(state)
            state.set_meta(held=1)


def release(settings: Settings, options: argparse.Namespace) -> int:
    """Release held jobs."""
    need_mesh_of_job(settings)
    return _each(settings, options, _release, "release")


def _release(path: str, job: JobRecord) -> None:
    try:
        ask(path, "release")
    except NoOwner:
        with _opened(path) as state:
            _refuse_ended(state)
            state.set_meta(held=0)
            described = read_description(state)
            if described.after and not job.held:  # instead of waiting for other jobs
                described.after = []
                state.set_meta(**{META: described.dump()})
        from console.jobs.submission import begin

        begin(path, described.after)


def retry(settings: Settings, options: argparse.Namespace) -> int:
    """Run failed and cancelled tasks again, also of ended jobs."""
    need_mesh_of_job(settings)
    retrying = partial(_retry, max_fails=options.max_fails, limit_mb=settings.job_limit_mb)
    return _each(settings, options, retrying, "retry", ended=True)


def _retry(path: str, job: JobRecord, max_fails: int | None, limit_mb: int) -> None:
    counts = job.counts
    if max_fails is not None and not job.has_ended:
        told = f"job {job.name} has not ended, and --max-fails holds from its next start"
        raise ConsoleError(told, f"mesh wait {job.name}, or mesh cancel {job.name}, then mesh retry", exit_status=1)
    again = counts.get(FAILED, 0) + counts.get(CANCELLED, 0)
    if job.has_ended:  # its object or disk was full: others have not ended either
        again += counts.get(WAITING, 0) + counts.get(RUNNING, 0)
    if job.has_ended and sum(counts.values()) == counts.get(DONE, 0):
        print(f"mesh: job {job.name}: every task is done", file=sys.stderr)
        return
    try:
        again = int(ask(path, "retry").get("tasks", again))
    except NoOwner:
        with _opened(path) as state:
            described = read_description(state)
            if described.functions:
                raise ConsoleError(
                    f"job {job.name} belongs to a Python program, and its calls are lost with the program",
                    "submit them again in the program",
                    exit_status=1,
                ) from None
            state.raise_limit(limit_mb << 20)
            for first, last, before, _ in state.ranges():
                if before in (FAILED, CANCELLED):
                    state.change(first, last, WAITING, cause="mesh retry")
            described.after = [one[:2] for one in described.after]  # jobs on other hosts are asked again
            described.max_fails = described.max_fails if max_fails is None else max_fails
            state.set_meta(**{META: described.dump()})
            state.set_state(WAITING, "mesh retry")
            state.set_meta(ended_at=None, exit_status=None, why=None, held=0)
        from console.jobs.submission import begin

        begin(path, () if job.begun_at else described.after)
    print(f"mesh: job {job.name}: {counted(again, 'task')} to run again", file=sys.stderr)


def resume(settings: Settings, options: argparse.Namespace) -> int:
    """Resume jobs whose owner was lost: all of them if none is named."""
    found = resumable(settings)
    if not options.jobs and not found and not options.json:
        print("no job can be resumed", file=sys.stderr)
    named = {_found(settings, name) for name in options.jobs}
    status, resumed = 0, []
    for job in found if not named else [summary(path) for path in sorted(named)]:
        need_tasks(job)
        if job.has_ended or owned(job.path):
            why = (
                "has ended (mesh retry tries what is not done again)"
                if job.has_ended
                else "is owned by a process that runs: mesh queue shows it"
            )
            print(f"mesh: job {job.name} {why}", file=sys.stderr)
            status = 1
            continue
        try:
            if job.description.functions:
                print(
                    f"mesh: job {job.name} is of a Python program, and its calls went with the program"
                    f" (mesh cancel {job.name})",
                    file=sys.stderr,
                )
                status = 1
                continue
            need_mesh_of_job(settings)
            start_owner(job.path)
        except StateError as error:  # it hides no other job
            status = complain("mesh", error)
            continue
        resumed.append(job.uuid)
    if options.json:
        print(json.dumps(resumed))
    elif resumed:
        print("\n".join(resumed))
    return status


def _found(settings: Settings, name: str) -> str:
    """Return the path of a job on this host; fetch its object if it is on another node, or if its node was lost."""
    try:
        return to_run_again(settings, name, ended=False)
    except ForeignJob:
        raise
    except ConsoleError:
        if not is_uuid(name):
            raise
    from console.tracker.standby import bring

    return bring(settings, name)


def to_run_again(settings: Settings, name: str, *, ended: bool = True) -> str:
    """Return the path of a job on this host. Inside a batch job, carry an object of an earlier one into its mesh.

    ``ended``: carry a job that has ended too. Raises ConsoleError.
    """
    try:
        return find(settings, name)
    except ConsoleError:
        outside = directory_of(state_directory(os.environ))
        found = [uuid for uuid in uuids(outside) if len(name) >= SHORTEST and uuid.startswith(name)]
        if not settings.allocation or len(found) != 1:
            raise
    path = job_path(outside, found[0])
    if owned(path) or (summary(path).has_ended and not ended):
        return path
    from agents.objects.carry import carry

    directory = directory_of(settings.state_dir)
    make_directory(directory)
    try:
        return carry(path, directory, f"resumed in batch job {settings.allocation}")
    except (StateError, OSError) as error:
        raise ConsoleError(f"job {name} cannot be had: {error}", f"its object is {path}") from None


def _each(
    settings: Settings,
    options: argparse.Namespace,
    do: Callable[[str, JobRecord], None],
    command: str,
    *,
    ended: bool = False,
    **members: Any,
) -> int:
    """Call ``do`` for every named job, or ask its owner on another host for ``command``; returns 1 if one of them had a
    wrong state."""
    status = 0
    for name in options.jobs:
        try:
            path = to_run_again(settings, name) if ended else find(settings, name)
        except ForeignJob:
            raise
        except ConsoleError:
            if not is_uuid(name):
                raise
            path = _command_there(settings, name, command, members, ended=ended)
            if not path:
                continue
        job = summary(path)
        need_tasks(job)
        if job.has_ended and not ended:
            print(f"mesh: job {job.name} has ended already: {job.state}", file=sys.stderr)
            status = 1
            continue
        try:
            do(path, job)
        except StateError as error:
            raise ConsoleError(error.message, error.hint) from None
    return status


def _command_there(settings: Settings, name: str, command: str, members: dict[str, Any], *, ended: bool) -> str:
    """Have the owner of a job on another host carry out a command; "" if it has. Otherwise the path of the object,
    which was brought here. Raises ConsoleError."""
    from console.tracker.commanding import command_there

    answer, path = command_there(settings, name, command, ended=ended, members=members)
    if not path and "tasks" in answer:
        print(f"mesh: job {name[:8]}: {counted(int(answer['tasks']), 'task')} to run again", file=sys.stderr)
    return path


def _refuse_ended(state: StateObject) -> None:
    """Raise ConsoleError if the job has ended, which may happen while its owner was being asked."""
    ended = str(state.meta("state"))
    if ended in ENDED:
        told = f"job {state.uuid[:8]} has ended meanwhile: {ended}"
        raise ConsoleError(told, "mesh retry tries its failed tasks again", exit_status=1)


class _opened:
    """A state object without an owner process, opened for changes; committed and closed at the end."""

    def __init__(self, path: str) -> None:
        self._state = StateObject(path)

    def __enter__(self) -> StateObject:
        return self._state

    def __exit__(self, *_exception: object) -> None:
        self._state.close()


def _told_of_others(settings: Settings) -> list[str]:
    """Lines about the launches and requests of other users: a table for administrators, one line for the others."""
    try:
        with open_viewer(settings.database, settings.login) as viewer:
            live = [one for one in viewer.read().launchers if one.ended_at is None and one.uid != os.geteuid()]
            waiting = [one for one in viewer.waiting() if one.uid != os.geteuid()]
    except StoreError:
        return []
    if not live and not waiting:
        return []
    if is_admin(settings):
        return _foreign_table(live, waiting)
    runs = f"{counted(len(live), 'launch', 'launches')} on {counted(sum(one.size for one in live), 'processor')}"
    waits = counted(len(waiting), "request waits", "requests wait")
    return [f"of other users: {runs}; {waits} (showmesh shows the launches)"]


def _foreign_table(live: list[Any], waiting: list[Any]) -> list[str]:
    sizes: dict[tuple[str, str], int] = {}
    for one in live:
        key = (clean(one.user), job_of(one.command) or f"launch {one.id}")
        sizes[key] = sizes.get(key, 0) + one.size
    rows = [(whose, job, "running", str(size)) for (whose, job), size in sorted(sizes.items())]
    rows += [(clean(one.user), "", "waiting", str(one.size)) for one in waiting]
    return table(("USER", "JOB", "STATE", "PROCESSORS"), rows, 200, right=(3,))

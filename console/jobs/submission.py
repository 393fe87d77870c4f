"""Creates the state object of a job of tasks and starts its owner (``mesh submit``)."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise

from agents.job.dependencies import ANY, OK, Unmet, elsewhere, has_left, unmet
from agents.job.description import ENVIRONMENT, META, OPEN, Description, pack_environment
from agents.job.start import CALLS, beside, start_owner, wait_for
from agents.job.tasks.adding import write_tasks
from agents.job.tasks.new_tasks import Ordered
from agents.wire.seal import sha256
from console.errors import ConsoleError, UsageError
from console.jobs.objects import delete, directory_of, find, make_directory
from console.jobs.task_files import inputs_for_object
from console.settings import Settings
from redmesh.byte_text import from_system
from redmesh.state import SUFFIX, StateError, StateObject, is_uuid, job_path, new_uuid
from redmesh.state_graph import StateGraph

_PART = re.compile(r"(\d{1,13})(?:-(\d{1,13})(?::(\d{1,13}))?)?")
#: The most tasks in ranges with a step, because each of these tasks is a row of the state object.
_MOST_APART = 10_000_000
_MOST = 1 << 40
#: After so many ranges the room in the object is checked.
_AT_ONCE = 10_000
#: Variables of a surrounding launch, which must not reach the tasks.
_FOREIGN = (b"YOD_", b"SLURM_", b"PMI_", b"PMIX_", b"REDMESH_TASK", b"REDMESH_JOB", b"REDMESH_FILES")


def parse_array(text: str) -> tuple[list[tuple[int, int]], int]:
    """Parse ``1-10,20,30-40:2%8`` to ranges of task numbers, and how many may run at once (0: no limit). Raises
    UsageError."""
    body, percent, limit = text.partition("%")
    if percent and not (limit.isascii() and limit.isdigit() and len(limit) < 14 and int(limit)):
        raise UsageError(f"--array {text[:60]}: behind % is how many tasks may run at once", "--array 1-10000%64")
    ranges: list[tuple[int, int]] = []
    for part in body.split(","):
        found = _PART.fullmatch(part) if part.isascii() else None
        if found is None:
            raise UsageError(
                f"--array {text[:60]}: {part[:30]!r} is not a number or a range", "--array 1-10,20,30-40:2"
            )
        first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        if not first <= last < _MOST or not step:
            raise UsageError(f"--array {text[:60]}: {part[:30]!r} has no tasks", "the smaller number comes first")
        apart = 0 if step == 1 else (last - first) // step + 1
        if len(ranges) + apart > _MOST_APART:
            raise UsageError(
                f"--array {text[:60]}: more than {_MOST_APART:,} tasks with a step",
                "a range without a step has no limit",
            )
        ranges += [(first, last)] if step == 1 else [(number, number) for number in range(first, last + 1, step)]
    ranges.sort()
    for (_, last), (first, _) in pairwise(ranges):
        if first <= last:
            raise UsageError(f"--array {text[:60]}: task {first} is listed twice", "each number once")
    return ranges, int(limit or 0)


def parse_after(settings: Settings, texts: Sequence[str]) -> list[list[str]]:
    """Parse ``UUID[:ok|:any]`` of each; ``:ok`` is the default. Raises UsageError or ConsoleError."""
    found = []
    for text in texts:
        name, _, how = text.partition(":")
        if how not in ("", OK, ANY):
            raise UsageError(f"--after {text[:60]}: behind the job is :ok or :any", f"--after {name}:any")
        if is_uuid(name) and has_left(directory_of(settings.state_dir), name):
            found.append([name, how or OK])
            continue
        uuid = os.path.basename(find(settings, name)).removesuffix(SUFFIX)
        if not is_uuid(uuid):
            raise UsageError(f"--after {text[:60]}: this is not a job", "mesh queue prints the jobs")
        found.append([uuid, how or OK])
    return found


def submit(
    settings: Settings,
    described: Description,
    ranges: Sequence[tuple[int, int]],
    inputs: Iterable[str] | None,
    *,
    user: str,
    hold: bool,
    files: Iterable[tuple[str, bytes, int]] = (),
    graph: Sequence[Ordered] = (),
    stays_open: bool = False,
) -> str:
    """Create the job; returns the path of its object. Starts its owner unless it is held or waits. Raises
    ConsoleError.

    The texts of ``described``, ``inputs`` and the names of ``files`` are strings of the system, also the lines of
    ``graph``: tasks that come after others. ``files``: name, content and mode of further files in the object.
    ``stays_open``: tasks may be added until somebody closes the job.
    """
    directory = directory_of(settings.state_dir)
    make_directory(directory)
    variables = {name: value for name, value in os.environb.items() if not name.startswith(_FOREIGN)}
    uuid = new_uuid()
    path = job_path(directory, uuid)
    try:
        if described.functions is not None:
            described.functions["directory"] = beside(path, CALLS)
            os.mkdir(described.functions["directory"], 0o700)
        described.escape()
        try:
            job = StateObject.create(path, _meta(settings, described, uuid, user, variables, hold=hold))
            job.add_file(ENVIRONMENT, pack_environment(variables))
            for name, content, mode in files:
                job.add_file(from_system(name), content, mode)
            for number, (first, last) in enumerate(ranges, 1):
                job.add_array(first, last)
                if number % _AT_ONCE == 0:
                    job.check_room()
            if stays_open:
                StateGraph(job).create()
                job.set_meta(**{OPEN: 1})
            if graph:
                inputs_for_object(graph)
                write_tasks(job, graph, 1)
            if inputs is not None and not job.add_list(map(from_system, inputs)):
                raise UsageError("--tasks has no tasks: every line is empty", "one task a line")
            job.commit()
            job.close()
        except BaseException:
            with contextlib.suppress(OSError):  # the first error says why
                delete(path)  # on a full disk a part of the object may exist
            raise
    except StateError as error:
        raise ConsoleError(error.message, error.hint) from None
    except OSError as error:
        raise ConsoleError(
            f"{directory}: the job cannot be written: {error.strerror}", "check the disk, then submit it again"
        ) from None
    try:
        if not hold:
            begin(path, described.after)
    except StateError as error:
        raise ConsoleError(error.message, error.hint) from None
    except OSError as error:
        raise ConsoleError(
            f"the owner of job {uuid} cannot be started: {error}", "mesh job resume tries again"
        ) from None
    return path


def begin(path: str, after: Sequence[Sequence[str]]) -> None:
    """Start the owner of a job, or arrange its start for the end of the jobs in ``after``. Raises StateError or
    OSError."""
    directory, uuid = os.path.dirname(path), os.path.basename(path).removesuffix(SUFFIX)
    for other, *_ in after:
        wait_for(directory, other, uuid)  # before the other job is checked, because it may end meanwhile
    try:
        waits = unmet(directory, after)
    except (Unmet, StateError):
        waits = []  # the owner records the reason
    if not waits or elsewhere(directory, after):  # it follows jobs that have gone to other hosts
        start_owner(path)


def _meta(
    settings: Settings, described: Description, uuid: str, user: str, variables: dict[bytes, bytes], *, hold: bool
) -> dict[str, str | int | float | bytes | None]:
    digest = sha256(b"\0".join(chain.from_iterable(sorted(variables.items())))).hexdigest()
    return {
        "uuid": uuid,
        "kind": "job",
        "user": user,
        "uid": os.getuid(),
        "host": os.uname().nodename,
        "command": _command(described),
        "cwd": described.cwd,
        "environment": digest,
        "limit": settings.job_limit_mb << 20,
        "keep": 0,
        "held": int(hold),
        META: described.dump(),
    }


def _command(described: Description) -> str:
    return json.dumps(described.command or ([described.name] if described.functions else ["sh", "-c", "{}"]))

"""Creates, inspects, resumes and combines jobs of sections. They are jobs of tasks; the state object has all data."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from agents.job.description import Description, parts_file
from agents.job.start import start_owner
from agents.yodio.yodfields import PART
from agents.yodio.yodparts import age_unless_linked, is_still, pattern
from console.errors import ConsoleError, UsageError
from console.jobs.job_record import JobRecord
from console.jobs.objects import opened, summary
from console.jobs.owner_client import NoOwner, ask
from console.jobs.submission import submit
from console.launch.options.mpi import kind_for
from console.sections.combine import combine
from console.sections.job_file import SectionsJob, changes, fingerprint, fingerprints
from console.sections.output import Output
from console.settings import Settings
from redmesh.byte_text import each_from_system, each_to_system, to_system
from redmesh.state import CANCELLED, DONE, FAILED, RUNNING, WAITING, StateError, StateObject, damaged
from redmesh.state_reader import StateReader

if TYPE_CHECKING:
    from agents.yodio.yodparts import Written

#: The file in the object with the description.
_FILE = "sections"


class Made(NamedTuple):
    """The sections in a job's object: their ids in order, and the outputs with their parts."""

    name: str
    ids: list[str]
    words: list[list[str]]
    outputs: list[tuple[Output, list[str]]]
    cwd: str
    fingerprints: dict[str, str]
    mark: str


def make(settings: Settings, job: SectionsJob, *, user: str, digests: bool) -> str:
    """Create the job and start its owner; returns the path of its object. Raises ConsoleError or UsageError."""
    described = Description(list(job.command), job.cwd)
    described.name, described.limit = job.name, job.limits.processors // job.limits.size * job.limits.size
    described.retries, described.time_s = job.limits.retries, job.limits.section_s or 0.0
    described.max_fails, described.hold_processors = job.limits.max_fails, job.limits.hold_processors
    named, mark = job.names_parts, f"{os.urandom(4).hex()}-"
    described.sections = {
        "recheck_s": job.probe.recheck_s,
        "same_node": job.limits.same_node,
        # Two copies of a section may run at the same time only if each writes its own files.
        "copies": job.limits.stragglers and (named or job.stage) and not job.printed,
        "size": job.limits.size,
        "mpi": _mpi_of(job),
        "stage": job.stage,
        "settles": job.stage or job.limits.size > 1,
        "mark": mark,
        "probe": {
            "command": list(job.probe.command),
            "time_s": job.probe.time_s,
            "memory_mb": job.probe.memory_mb,
            "disk_mb": job.probe.disk_mb,
        },
    }
    if job.stage:
        _prepare_staging(job)
    ids, words, parts = [], [], [[job.part(output, one) for one in job.sections] for output in job.outputs]
    inputs = []
    for section in job.sections:
        own = [those[section.number] for those in parts]
        for part in own:
            age_unless_linked(part)
        direct, own = ([], own) if named or job.stage else (own, [])
        ids.append(section.id)
        words.append(job.words(section, [PART.format(place) for place in range(len(own))] if named else ()))
        staged = [os.path.relpath(path, job.cwd) for path in job.files_in(section)] if job.stage else []
        told = {"id": section.id, "words": words[-1], "parts": own, "named": named, "inputs": staged}
        told["output"], told["direct"] = job.printed_by(section), direct
        inputs.append(json.dumps(each_from_system(told)))
    for directory in {os.path.dirname(job.printed_by(section)) for section in job.sections} - {""}:
        with contextlib.suppress(OSError):  # it may exist on the nodes
            os.makedirs(directory, exist_ok=True)
    kept = {
        "name": job.name,
        "ids": ids,
        "words": words,
        "outputs": [[vars(output), those] for output, those in zip(job.outputs, parts, strict=True)],
        "cwd": job.cwd,
        "fingerprints": fingerprints(job, digests=digests),
        "digests": digests,
        "mark": mark,
    }
    content = json.dumps(each_from_system(kept)).encode()
    return submit(settings, described, (), inputs, user=user, hold=False, files=[(_FILE, content, 0o600)])


def _prepare_staging(job: SectionsJob) -> None:
    """Check that every input exists, and create the directories for parts that are sent back. Raises ConsoleError."""
    for path in sorted({path for one in job.sections for path in job.files_in(one)}):
        if not os.path.isfile(path):
            what = "not a file" if os.path.exists(path) else "no such file"
            raise ConsoleError(f"input {path}: {what}", "with stage = true inputs are files that are copied to nodes")
    for directory in {os.path.dirname(job.part(output, one)) for output in job.outputs for one in job.sections}:
        try:
            os.makedirs(directory, exist_ok=True)
        except OSError as error:
            raise ConsoleError(f"{directory}: {error.strerror}", "parts of an output are sent back there") from None


def _mpi_of(job: SectionsJob) -> str:
    if job.limits.size == 1 or job.limits.mpi != "auto":
        return job.limits.mpi
    program = job.words(job.sections[0])[0]
    found = shutil.which(program) if "/" not in program else os.path.join(job.cwd, program)
    return kind_for(found) if found else "auto"


def read_made(job: StateReader, name: str) -> Made:
    """Read the sections and outputs from a state object. Raises ConsoleError if it is not a job of sections."""
    told = _read_file(job, name)
    outputs = []
    for one, parts in told["outputs"]:
        outputs.append((Output(**{**one, "command": tuple(one["command"]), "shape": tuple(one["shape"])}), parts))
    words = [
        [_with_parts(word, [parts[number] for _, parts in outputs]) for word in those]
        for number, those in enumerate(told["words"])
    ]
    return Made(told["name"], told["ids"], words, outputs, told["cwd"], told["fingerprints"], told.get("mark", ""))


def _read_file(job: StateReader, name: str) -> dict[str, Any]:
    content = job.file(_FILE)
    if content is None:
        raise ConsoleError(f"{name} is not a job of sections", "mesh job tasks JOB shows it", exit_status=1)
    return dict(each_to_system(json.loads(content)))


def _with_parts(word: str, parts: list[str]) -> str:
    for place, name in enumerate(parts):
        word = word.replace(to_system(PART.format(place)), name)
    return word


def is_sections(path: str) -> bool:
    """True if a state object is a job of sections."""
    with opened(path) as job:
        return job.file(_FILE) is not None


def combined(path: str, *, anyway: bool = False) -> list[tuple[str, int]]:
    """Combine the outputs of a finished job; returns each with its size. Raises ConsoleError.

    ``anyway``: also if parts are no longer as the job's sections have left them.
    """
    with opened(path) as job:
        made = read_made(job, path)
        left = [] if anyway else [_left(job, number) for number in range(1, len(made.ids) + 1)]
    found = []
    for place, (output, parts) in enumerate(made.outputs):

        def is_foreign(number: int, place: int = place, parts: list[str] = parts) -> bool:
            return bool(left) and not is_still(parts[number], left[number], place)

        whole = os.path.join(made.cwd, output.name)
        found.append((whole, combine(output, whole, parts, made.cwd, foreign=is_foreign)))
        _sweep(parts, made.mark)
    return found


def _left(job: StateReader, number: int) -> list[list[Written]]:
    """How each attempt that succeeded has left the parts of section ``number``; empty in jobs of earlier versions."""
    try:
        told = json.loads(job.file(parts_file(number)) or b"[]")
        return [[None if one is None else (int(one[0]), int(one[1])) for one in parts] for parts in told]
    except (ValueError, TypeError, LookupError, RecursionError):
        raise damaged(job.path, ValueError(f"file: {parts_file(number)} does not tell parts")) from None


def _sweep(parts: list[str], mark: str) -> None:
    """Remove files of this job's attempts that ended without removing them, for example because the node was lost."""
    names = {os.path.basename(part) for part in parts}
    of_attempts = re.compile(f"(.+){pattern(mark)}", re.DOTALL)
    for directory in {os.path.dirname(part) for part in parts}:
        for entry in os.listdir(directory):
            found = of_attempts.fullmatch(entry)
            if found and found[1] in names:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(directory, entry))


def changed(path: str, job: SectionsJob | None) -> list[str]:
    """Return a line for each change since the job was made: of input files, or of ``job`` if it is given."""
    with opened(path) as state:
        told = _read_file(state, path)
    if job is None:
        now = _inputs_now(told["fingerprints"], told["digests"])
    else:
        now = fingerprints(job, digests=told["digests"])
    return changes(told["fingerprints"], now)


def _inputs_now(before: Mapping[str, str], digests: bool) -> dict[str, str]:
    return {
        name: fingerprint(name.partition(" ")[2], digests) if name.startswith("input ") else text
        for name, text in before.items()
    }


def failed_sections(path: str, ids: Sequence[str]) -> list[int]:
    """Return the numbers of all failed and cancelled sections, or (``ids``) of the named ones.

    Raises UsageError for an unknown id, and ConsoleError if a named section has not failed.
    """
    with opened(path) as job:
        numbers = {one: number for number, one in enumerate(read_made(job, path).ids, 1)}
        rows = job.states()
    states = {number: state for first, last, state in rows for number in range(first, last + 1)}
    for one in ids:
        if one not in numbers:
            raise UsageError(
                f"the job has no section {one[:60]!r}", "mesh sections status --all prints the sections' ids"
            )
        state = states[numbers[one]]
        if state not in (FAILED, CANCELLED):
            raise ConsoleError(
                f"section {one} is {state}: only failed and cancelled sections are tried again",
                "mesh sections status prints them", exit_status=1,
            )  # fmt: skip
    return [numbers[one] for one in ids] or [one for one, state in states.items() if state in (FAILED, CANCELLED)]


def resume(path: str, only: Sequence[int] | None = None, *, limit_mb: int) -> int:
    """Run all sections again that are not done, on any node; return their number. Raises ConsoleError.

    ``only``: of the failed and cancelled sections, run only these. ``limit_mb``: the size that the object may have.
    """
    job = summary(path)
    missing = sum(count for state, count in job.counts.items() if state != DONE)
    missing = missing if only is None else len(only)
    try:
        if not job.has_ended:
            try:
                ask(path, "retry", tasks=only)
                return missing
            except NoOwner:
                job = summary(path)  # it may have ended meanwhile
        if job.has_ended:
            state = StateObject(path)
            try:
                state.raise_limit(limit_mb << 20)
                for first, last, before, _ in list(state.ranges()):
                    if before == RUNNING or (before in (FAILED, CANCELLED) and only is None):
                        state.change(first, last, WAITING, cause="mesh sections resume")
                for number in only or ():
                    state.change(number, number, WAITING, cause="mesh sections retry")
                state.set_state(WAITING, "mesh sections resume")
                state.set_meta(ended_at=None, exit_status=None, why=None, held=0)
            finally:
                state.close()
        start_owner(path)
    except (StateError, OSError) as error:
        raise ConsoleError(getattr(error, "message", str(error)), getattr(error, "hint", "")) from None
    return missing


def failures(job: StateReader, made: Made) -> list[tuple[str, str, str]]:
    """Return (section, error, last lines) of every section that failed and did not succeed later."""
    found = []
    for task in job.tasks((FAILED, CANCELLED)):
        if task.exit is not None:
            cause = job.failure(task.first)
            told = f"exit status {task.exit} on {task.node}" + (f": {cause}" if cause else "")
            found.append((made.ids[task.first - 1], told, task.lines or ""))
    return found


def facts(job: JobRecord, made: Made) -> list[tuple[str, str]]:
    """The facts for the report's table."""
    return [
        ("job", job.uuid),
        ("state", job.state + (f": {job.why}" if job.why else "")),
        ("command", " ".join(job.command)),
        ("directory", made.cwd),
        ("of", f"{job.user} on {job.host}"),
        ("sections", ", ".join(f"{count} {state}" for state, count in sorted(job.counts.items()) if count)),
        ("outputs", ", ".join(output.name for output, _ in made.outputs)),
    ]

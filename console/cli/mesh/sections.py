"""``mesh sections``: jobs of sections, run until every section has finished, and their outputs combined
(docs/sections.md)."""

import argparse
import json
import os
import re
import shlex
import sys
import time
from dataclasses import replace

from console.cli.map.drawing import table
from console.cli.mesh.job_wait import ended
from console.cli.mesh.progress_line import ProgressLine
from console.cli.mesh.queue import cancel as cancel_job
from console.cli.mesh.queue import need_mesh_of_job, starts_personal, tell_limit, tell_start, to_run_again
from console.deploy.personal.plan import wanted_size
from console.errors import ConsoleError, UsageError
from console.jobs.foreign import find
from console.jobs.job_record import JobRecord
from console.jobs.objects import directory_of, opened, summary, uuids
from console.launch.daemons.connect import user
from console.launch.options.limits import duration
from console.sections.attempts import attempts, joblog
from console.sections.html_report import page
from console.sections.job import changed, combined, facts, failed_sections, failures, is_sections, make, read_made
from console.sections.job import resume as resume_job
from console.sections.job_file import EXAMPLE, Limits, SectionsJob, read
from console.sections.lists import read_list, sections_of, split_command
from console.settings import Settings
from db.errors import StoreError
from redmesh.byte_text import from_system
from redmesh.sanitise import clean
from redmesh.state import CANCELLED, FAILED, job_path
from redmesh.text import counted

#: Replacement strings that only GNU parallel has.
_UNKNOWN = re.compile(r"\{(?:%|=[^}]*=|\.{2,3}|/\.{2,3}|\+[./]+)\}")
_SHOWN = 5  # the most failures whose last lines are printed


def init(settings: Settings, options: argparse.Namespace) -> int:
    """Write an example job file."""
    try:
        with open(options.file, "x", encoding="utf-8") as file:
            file.write(EXAMPLE)
    except OSError as error:
        raise ConsoleError(f"{options.file}: {error.strerror}", "name a file that does not exist") from None
    print(f"mesh sections run {options.file}")
    return 0


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Make a job of sections, run it to its end, and combine its outputs."""
    job = _job(options)
    if not job.limits.same_node and _nodes(settings) == 1:
        job = replace(job, limits=replace(job.limits, same_node=True))  # there is no other node to try
    if not options.quiet:
        tell_limit(settings, job.limits.processors)
        if not options.json:
            tell_start(settings)
            _tell_unfilled(job.command)
    need_mesh_of_job(settings)
    path = make(settings, job, user=user(), digests=options.digests)
    uuid = os.path.basename(path)[:36]
    print(
        json.dumps({"uuid": uuid, "path": from_system(path)})
        if options.json
        else f"job {uuid}: {counted(len(job.sections), 'section')}",
        flush=True,
    )
    if options.detach:
        return 0
    return _see_through(settings, path, quiet=options.quiet)


def _job(options: argparse.Namespace) -> SectionsJob:
    words = list(options.words)
    if words[:1] != ["--"]:
        if len(words) != 1:
            raise UsageError(
                "give a job file, or a command behind --",
                "mesh sections run -- program {} ::: a b c; whole commands from a file: mesh submit --tasks FILE",
            )
        job = read(words[0])
        limits = replace(
            job.limits,
            processors=job.limits.processors if options.limit is None else options.limit,
            retries=job.limits.retries if options.retries is None else options.retries,
            same_node=bool(job.limits.same_node or options.same_node),
            hold_processors=job.limits.hold_processors or options.hold_processors,
            size=options.size or job.limits.size,
            mpi=options.mpi or job.limits.mpi,
            section_s=duration(options.time) if options.time else job.limits.section_s,
            max_fails=options.max_fails,
        )
        job = replace(job, limits=limits, printed=options.output)
        job.check()
        return job
    command, rows = split_command(words[1:])
    if not command:
        raise UsageError("no program to run", "mesh sections run -- program {} ::: a b c")
    if not rows and not sys.stdin.isatty():
        rows = [[line] for line in read_list("-")]
    limits = Limits(
        retries=3 if options.retries is None else options.retries, processors=options.limit or 0,
        same_node=bool(options.same_node), size=options.size or 1, mpi=options.mpi or "auto",
        section_s=duration(options.time) if options.time else None, max_fails=options.max_fails,
        hold_processors=options.hold_processors,
    )  # fmt: skip
    mark = options.colsep and options.colsep.replace("\\t", "\t")
    job = SectionsJob(
        tuple(command), tuple(sections_of(rows, mark)), os.getcwd(), command[0], limits=limits, printed=options.output
    )
    job.check()
    return job


def _nodes(settings: Settings) -> int:
    """The number of nodes of the mesh, or of the personal mesh that the job will start; 0 if unknown."""
    from db.views.viewer import open_viewer

    if starts_personal(settings):
        return wanted_size(settings).nodes
    try:
        with open_viewer(settings.database, settings.login) as viewer:
            return len({processor.node for processor in viewer.read().processors})
    except StoreError:
        return 0


def _tell_unfilled(command: tuple[str, ...]) -> None:
    """Say which replacement strings of GNU parallel stay as they are."""
    found = _UNKNOWN.search(" ".join(command))
    if found:
        told = f"mesh: {found[0]} stays as it is: {{}} {{.}} {{/}} {{//}} {{/.}} {{#}} and {{1}} are replaced"
        print(clean(told), file=sys.stderr)


def _see_through(settings: Settings, path: str, *, quiet: bool, anyway: bool = False) -> int:
    """Wait for the job's end; print failures, or combine its outputs; return the exit status."""
    name = os.path.basename(path)[:8]
    try:
        with ProgressLine(settings, lambda: summary(path), quiet=quiet):
            job = ended(path, "mesh sections resume")
    except KeyboardInterrupt:
        what = f"mesh sections watch {name} waits again, mesh sections cancel {name} ends it"
        print(f"mesh: the job goes on ({what})", file=sys.stderr)
        return 130
    if job.state != "done":
        _tell_failures(path, job)
        return job.exit_status or 1
    outputs = combined(path, anyway=anyway)
    if quiet:
        return 0
    for whole, size in outputs:
        print(f"mesh: {clean(whole)}: {size:,} bytes", file=sys.stderr)
    look = "" if outputs else f" (mesh job tasks {name}: what they printed last)"
    print(f"mesh: {_counts(job)}, {(job.ended_at or time.time()) - job.created_at:.1f} s{look}", file=sys.stderr)
    return 0


def _tell_failures(path: str, job: JobRecord) -> None:
    with opened(path) as state:
        failed = failures(state, read_made(state, path))
    for section, what, lines in failed[:_SHOWN]:
        print(f"mesh: section {clean(section)} failed: {clean(what)}", file=sys.stderr)
        for line in lines.splitlines():
            print(f"    {clean(line)}", file=sys.stderr)
    if len(failed) > _SHOWN:
        print(f"mesh: {len(failed) - _SHOWN} more failed: mesh sections status", file=sys.stderr)
    why = f": {job.why}" if job.why else ""
    print(clean(f"mesh: job {job.name} {job.state}{why} (mesh sections resume {job.name})"), file=sys.stderr)


def _counts(job: JobRecord) -> str:
    counts = job.counts
    total = sum(counts.values())
    words = [f"{counts.get('done', 0)} of {total} sections finished"]
    words += [
        f"{counts[state]} {name}" for state, name in (("running", "running"), ("failed", "failed")) if counts.get(state)
    ]
    return ", ".join(words)


def status(settings: Settings, options: argparse.Namespace) -> int:
    """Print the progress of a job, and the state of every section."""
    path = _find(settings, options.job)
    job = summary(path)
    keys = ("state", "node", "attempt", "progress", "started_at", "ended_at", "exit")
    with opened(path) as state:
        ids = list(map(from_system, read_made(state, path).ids))
        told = [{"section": ids[task.first - 1], **{key: getattr(task, key) for key in keys}} for task in state.tasks()]
        left_out = [line.text for line in state.log() if " is left out: " in line.text]
    for one in told:  # a section that failed and was then cancelled, because no node was left, counts as failed
        if one["state"] == CANCELLED and one["exit"]:
            one["state"] = FAILED
    if options.json:
        print(json.dumps({"uuid": job.uuid, "state": job.state, "counts": job.counts or None, "sections": told}))
        return 0
    print(f"job {job.uuid}  {job.state}{': ' + clean(job.why) if job.why else ''}\n{_counts(job)}")
    for text in left_out[-_SHOWN:]:
        print(clean(text))
    shown = [one for one in told if options.all or one["state"] in ("running", "failed", "cancelled")]
    cells = [
        [clean(str("" if one[key] is None else one[key])) for key in ("section", "state", "node", "attempt", "exit")]
        + ["" if one["progress"] is None else f"{one['progress']:.0%}"]
        for one in shown
    ]
    if cells:
        for line in table(("SECTION", "STATE", "NODE", "TRY", "EXIT", "PROGRESS"), cells, 160):
            print(line)
    return 0


def watch(settings: Settings, options: argparse.Namespace) -> int:
    """Follow a running job to its end, and combine its outputs if that was not done."""
    return _see_through(settings, _find(settings, options.job), quiet=False)


def resume(settings: Settings, options: argparse.Namespace) -> int:
    """Run the sections that are not done, and combine the outputs."""
    path = to_run_again(settings, options.job) if options.job else _find(settings, None)
    found = changed(path, read(options.file) if options.file else None)
    if found and not options.anyway:
        lines = "".join(f"\n    {clean(line)}" for line in found)
        raise ConsoleError(
            f"inputs or settings of the job have changed:{lines}",
            "--anyway continues; mesh sections run starts a new job", exit_status=1,
        )  # fmt: skip
    if summary(path).state != "done":
        need_mesh_of_job(settings)
        print(f"mesh: {counted(resume_job(path, limit_mb=settings.job_limit_mb), 'section')} to run", file=sys.stderr)
    return _see_through(settings, path, quiet=False, anyway=options.anyway)


def retry(settings: Settings, options: argparse.Namespace) -> int:
    """Run failed sections again: all, or the named ones."""
    path = to_run_again(settings, options.job) if options.job else _find(settings, None)
    numbers = failed_sections(path, options.section or ())
    if numbers:
        need_mesh_of_job(settings)
        print(
            f"mesh: {counted(resume_job(path, numbers, limit_mb=settings.job_limit_mb), 'section')} to run",
            file=sys.stderr,
        )
    return _see_through(settings, path, quiet=False)


def cancel(settings: Settings, options: argparse.Namespace) -> int:
    """End a job."""
    options.jobs = [_find(settings, options.job)]
    return cancel_job(settings, options)


def report(settings: Settings, options: argparse.Namespace) -> int:
    """Write the report as one HTML file, or as GNU parallel's job log."""
    if options.joblog and options.job and not set(options.job) <= set("0123456789abcdef-"):
        told = f"mesh sections report --joblog takes a job, and {clean(options.job)} is the beginning of no UUID"
        raise UsageError(told, f"--file {clean(options.job)} writes there")
    path = _find(settings, options.job)
    job = summary(path)
    with opened(path) as state:
        made = read_made(state, path)
        found = attempts(state)
        failed = failures(state, made)
    if options.joblog:
        text = "".join(joblog(found, lambda number: shlex.join(made.words[number - 1])))
        data = os.fsencode(text)
    else:
        names = dict(enumerate(made.ids, 1))
        title = made.name or f"Sections of {os.path.basename(made.cwd)}"
        text = page(title, facts(job, made), found, failed, names, job.ended_at or time.time())
        data = clean(text, keep="\t\n").encode()
    if options.file == "-":
        if sys.stdout.isatty():
            print(clean(text, keep="\t\n"), end="")
        else:
            sys.stdout.buffer.write(data)
        return 0
    try:
        with open(options.file, "wb") as file:
            file.write(data)
    except OSError as error:
        raise ConsoleError(f"{clean(options.file)}: {error.strerror}", "name a file that can be written") from None
    return 0


def _find(settings: Settings, name: str | None) -> str:
    """The named job, or the newest job of sections. Raises ConsoleError."""
    if name:
        return find(settings, name)
    directory = directory_of(settings.state_dir)
    paths = [job_path(directory, uuid) for uuid in uuids(directory)]
    for path in sorted(paths, key=os.path.getmtime, reverse=True):
        try:
            if is_sections(path):
                return path
        except ConsoleError:
            continue
    raise ConsoleError("there is no job of sections on this host", "mesh sections run creates one", exit_status=1)

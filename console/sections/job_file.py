"""The job file ``JOB.toml`` of sections: parsed, checked, and fingerprinted for resuming."""

from __future__ import annotations

import csv
import hashlib
import os
import shlex
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from console.errors import ConsoleError, UsageError
from console.launch.options.limits import duration
from console.sections.lists import MOST, read_list
from console.sections.output import HOW, Output
from console.sections.template import Section, command_of, file_of, fill
from redmesh.sanitise import clean

_KEYS = {
    "name", "command", "cwd", "parameters", "sections", "section", "inputs", "output", "size", "retries", "time",
    "limit", "mpi", "stage", "probe", "probe_time", "recheck", "min_memory_mb", "min_disk_mb", "same_node",
    "hold_processors",
    "stragglers",
}  # fmt: skip
#: Values of ``mpi``: the interface by which the ranks of a section find each other (yod --mpi).
MPI = ("auto", "pmi1", "pmi2", "pmix", "none")
_OUTPUT_KEYS = ("name", "part", "combine", "dtype", "shape", "header", "result_dtype")
_WAYS = ("count", "ids", "list", "table", "split")


@dataclass(frozen=True)
class Limits:
    """Limits and run options of a job.

    ``size``: ranks of a section. ``mpi``: how they find each other. ``section_s``: time limit of a section in seconds.
    ``processors``: the most that the job uses at the same time (0: all). ``retries``: of a section after its first
    failure. ``max_fails``: how many sections may fail before the rest is cancelled (None: all). ``hold_processors``:
    give none back to requests that wait.
    """

    size: int = 1
    mpi: str = "auto"
    retries: int = 3
    section_s: float | None = None
    processors: int = 0
    same_node: bool = False
    stragglers: bool = True
    max_fails: int | None = None
    hold_processors: bool = False


@dataclass(frozen=True)
class Probe:
    """Requirements on a node: free memory and disk in MiB, and a command that must exit with 0."""

    command: tuple[str, ...] = ()
    time_s: float = 30.0
    recheck_s: float = 300.0
    memory_mb: int = 0
    disk_mb: int = 0


@dataclass(frozen=True)
class SectionsJob:
    """A job of sections. ``command``: the words of the template. ``strict``: unknown names in it are errors.

    ``stage``: nodes do not share this file system, so inputs are copied there, and parts of outputs back.
    ``printed``: the file that takes what a section prints; "": the end of it is kept in the state object.
    """

    command: tuple[str, ...]
    sections: tuple[Section, ...]
    cwd: str
    name: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[Output, ...] = ()
    limits: Limits = field(default_factory=Limits)
    probe: Probe = field(default_factory=Probe)
    strict: bool = False
    stage: bool = False
    printed: str = ""

    def words(self, section: Section, parts: Sequence[str] = ()) -> list[str]:
        """The command of one section. ``parts``: the values of ``{part}``, ``{part2}`` …; default: the parts' paths.

        Raises UsageError.
        """
        parts = parts or [self.part(output, section) for output in self.outputs]
        named = dict(zip(part_names(len(self.outputs)), parts, strict=True))
        return command_of(
            self.command, section._replace(parameters={**named, **section.parameters}), strict=self.strict
        )

    @property
    def names_parts(self) -> bool:
        """True if there are outputs and the command names their parts: ``{part}``, ``{part2}`` …"""
        text = " ".join(self.command)
        return bool(self.outputs) and all(f"{{{name}}}" in text for name in part_names(len(self.outputs)))

    def files_in(self, section: Section) -> list[str]:
        """The input files of a section, as absolute paths. Raises UsageError."""
        return [os.path.join(self.cwd, fill(name, section, strict=self.strict)) for name in self.inputs]

    def part(self, output: Output, section: Section) -> str:
        """A section's part of ``output``, as an absolute path. Raises UsageError."""
        return os.path.join(self.cwd, fill(output.part, section, strict=self.strict))

    def printed_by(self, section: Section) -> str:
        """The file that takes what a section prints, as an absolute path; "" if there is none. Raises UsageError."""
        return os.path.join(self.cwd, file_of(self.printed, section)) if self.printed else ""

    def check(self) -> None:
        """Check every template and limit before anything runs. Raises UsageError."""
        for section in self.sections:
            self.words(section)
            self.files_in(section)
        if self.limits.processors and self.limits.processors < self.limits.size:
            raise UsageError(
                f"limit = {self.limits.processors} processors, and a section has {self.limits.size} ranks",
                f"limit = {self.limits.size} at least",
            )
        if self.stage:
            self._check_staged()
        if self.printed:
            if self.limits.size > 1:
                raise UsageError("--output is for sections of one rank", "let rank 0 write a file of its own")
            self._check_apart(
                [self.printed_by(section) for section in self.sections], "{#} in the name of --output is the number"
            )
        for output in self.outputs:
            place = os.path.dirname(os.path.join(self.cwd, output.name))
            if os.path.exists(place) and not (os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK)):
                told = "cannot be written" if os.path.isdir(place) else "is no directory"
                raise UsageError(f"output {output.name}: {place} {told}", "name another directory")
            parts = [self.part(output, section) for section in self.sections]
            self._check_apart(parts, f"put {{section}} into the part of output {output.name}: part.{{section}}")
            whole = os.path.join(self.cwd, output.name)
            if whole in parts:
                told = f"section {self.sections[parts.index(whole)].id} would write the whole output {whole}"
                raise UsageError(told, "name the part otherwise")

    def _check_apart(self, paths: Sequence[str], hint: str) -> None:
        """Raise UsageError if two sections have the same path."""
        owner: dict[str, str] = {}
        for path, section in zip(paths, self.sections, strict=True):
            if owner.setdefault(path, section.id) != section.id:
                raise UsageError(f"sections {owner[path]} and {section.id} would both write {path}", hint)

    def _check_staged(self) -> None:
        for section in self.sections:
            for path in (*self.files_in(section), *(self.part(output, section) for output in self.outputs)):
                if not path.startswith(self.cwd.rstrip("/") + "/") or ".." in path.split("/"):
                    raise UsageError(
                        f"{path} is outside {self.cwd}: only files below the job's directory are staged",
                        'set cwd = "…" to a directory above it',
                    )


def part_names(outputs: int) -> list[str]:
    """``part``, ``part2``, … for that many outputs."""
    return ["part" + (str(number + 1) if number else "") for number in range(outputs)]


def fingerprints(job: SectionsJob, *, digests: bool = False) -> dict[str, str]:
    """Map everything that must not change before a job is resumed to a short text that differs after a change.

    ``command``, ``sections``, and each input file: size and modification time, or with ``digests`` its SHA-256.
    """
    sections = hashlib.sha256()
    for section in job.sections:
        sections.update(repr((section.id, section.values, sorted(section.parameters.items()))).encode())
    outputs = [
        (one.name, one.part, one.how, one.command, one.dtype, one.shape, one.header)
        + ((one.result_dtype,) if one.result_dtype else ())
        for one in job.outputs
    ]
    found = {
        "command": shlex.join(job.command),
        "sections": f"{len(job.sections)} sections, {sections.hexdigest()[:16]}",
        "outputs": hashlib.sha256(repr(outputs).encode()).hexdigest()[:16],
    }
    if job.limits.size > 1:
        found["size"] = str(job.limits.size)
    for path in sorted({path for section in job.sections for path in job.files_in(section)}):
        found[f"input {path}"] = fingerprint(path, digests)
    return found


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """A line for each difference."""
    lines = []
    for name in sorted({*before, *now}):
        if name not in now:
            lines.append(f"{name}: not used any more")
        elif name not in before:
            lines.append(f"{name}: not used before")
        elif before[name] != now[name]:
            lines.append(f"{name}: was {before[name]}, is {now[name]}")
    return lines


def fingerprint(path: str, digests: bool) -> str:
    """The text for one input file."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if digests:
                return f"sha256 {hashlib.file_digest(file, 'sha256').hexdigest()}"
            return f"{status.st_size} bytes of {status.st_mtime_ns}"
    except OSError as error:
        return f"unreadable ({error.strerror})"


def read(path: str) -> SectionsJob:
    """The job in the file ``path``; relative names are below its directory. Raises UsageError or ConsoleError."""
    try:
        with open(path, "rb") as file:
            said = tomllib.load(file)
    except OSError as error:
        raise ConsoleError(
            f"{path}: {error.strerror}", "mesh sections init JOB.toml writes one to begin with"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: {error}", "mesh sections init JOB.toml shows the format") from None
    return _Reader(path, said).job()


class _Reader:
    """A file's tables; every error names the file and the key."""

    def __init__(self, path: str, said: dict[str, Any]) -> None:
        self._path, self._said = path, said
        self._directory = os.path.dirname(os.path.abspath(path))

    def job(self) -> SectionsJob:
        said = self._said
        unknown = sorted(set(said) - _KEYS)
        if unknown:
            raise self._error(f"{unknown[0]} is not a key of a job", f"the keys are: {' '.join(sorted(_KEYS))}")
        job = SectionsJob(
            command=self._command(said, "command"),
            sections=tuple(self._sections()),
            cwd=os.path.normpath(os.path.join(self._directory, self._text(said, "cwd", ""))),
            name=self._text(said, "name", os.path.splitext(os.path.basename(self._path))[0]),
            inputs=tuple(self._texts(said, "inputs")),
            outputs=tuple(self._output(one) for one in self._tables(said, "output")),
            limits=Limits(
                size=self._number(said, "size", 1, least=1),
                mpi=self._mpi(said),
                retries=self._number(said, "retries", 3),
                section_s=self._duration(said, "time", None),
                processors=self._number(said, "limit", 0),
                same_node=self._flag(said, "same_node", False),
                stragglers=self._flag(said, "stragglers", True),
                hold_processors=self._flag(said, "hold_processors", False),
            ),
            probe=Probe(
                command=self._command(said, "probe") if "probe" in said else (),
                time_s=self._duration(said, "probe_time", 30.0) or 30.0,
                recheck_s=self._duration(said, "recheck", 300.0) or 300.0,
                memory_mb=self._number(said, "min_memory_mb", 0),
                disk_mb=self._number(said, "min_disk_mb", 0),
            ),
            strict=True,
            stage=self._flag(said, "stage", False),
        )
        try:
            job.check()
        except UsageError as error:
            raise self._error(error.message, error.hint) from None
        return job

    def _mpi(self, said: dict[str, Any]) -> str:
        kind = self._text(said, "mpi", "auto")
        if kind not in MPI:
            raise self._error(f"mpi is one of {' '.join(MPI)}, not {kind[:40]!r}", 'mpi = "auto"')
        return kind

    def _sections(self) -> list[Section]:
        common = self._parameters(self._said, "parameters")
        listed = self._tables(self._said, "section")
        table = self._said.get("sections", {})
        if not isinstance(table, dict):
            raise self._error("sections is a table", "[sections] with count = 500, for example")
        ways = [key for key in _WAYS if key in table]
        if len(ways) + bool(listed) != 1:
            raise self._error(
                "a job has its sections from one place" + (f", not from {' and '.join(ways)}" if ways else ""),
                "count = N, ids = […], list = FILE, table = FILE.csv or split = {total = N, by = M} under [sections];"
                " or a [[section]] for each",
            )
        unknown = sorted(set(table) - set(_WAYS))
        if unknown:
            raise self._error(f"sections.{unknown[0]} is not a key", f"the keys are: {' '.join(_WAYS)}")
        rows = self._listed(listed) if listed else getattr(self, f"_{ways[0]}")(table)
        if not 0 < len(rows) <= MOST:
            raise self._error(f"a job has 1 to {MOST} sections, not {len(rows)}", "")
        ids = [row[0] for row in rows]
        wrong = next((one for one in ids if not one or not one.isprintable()), None)
        if wrong is not None:
            raise self._error(
                f"{wrong[:40]!r} is not an id of a section",
                "an id is a text without control characters, of at least one",
            )
        if len(set(ids)) < len(ids):
            twice = next(one for one in ids if ids.count(one) > 1) if len(ids) < 10_000 else "an id"
            raise self._error(f"{twice} stands for two sections", "give each section an id of its own")
        return [
            Section(number, one, values, {**common, **own}) for number, (one, values, own) in enumerate(rows)
        ]  # fmt: skip

    _Row = tuple[str, tuple[str, ...], dict[str, str]]

    def _count(self, table: dict[str, Any]) -> list[_Row]:
        count = self._number(table, "count", 0, least=1)
        if count > MOST:
            raise self._error(f"a job has 1 to {MOST} sections, not {count}", "")
        return [(str(number), (), {}) for number in range(count)]

    def _ids(self, table: dict[str, Any]) -> list[_Row]:
        return [(one, (one,), {}) for one in self._texts(table, "ids")]

    def _list(self, table: dict[str, Any]) -> list[_Row]:
        name = os.path.join(self._directory, self._text(table, "list", ""))
        return [(str(number + 1), (line,), {}) for number, line in enumerate(read_list(name))]

    def _table(self, table: dict[str, Any]) -> list[_Row]:
        name = os.path.join(self._directory, self._text(table, "table", ""))
        try:
            with open(name, encoding=sys.getfilesystemencoding(), errors="surrogateescape", newline="") as file:
                rows = list(csv.DictReader(file))
        except (OSError, csv.Error) as error:
            raise self._error(
                f"{name}: {getattr(error, 'strerror', None) or error}", "a CSV file with a header"
            ) from None
        if any(None in row or None in row.values() for row in rows):
            raise self._error(f"{name}: a row has more or fewer columns than the header", "")
        for id in (row.get("section") or "" for row in rows):
            if any("\ud800" <= one <= "\udfff" for one in id):
                raise self._error(
                    f"{name}: the name of section {clean(id)} is not UTF-8", "other columns may have any bytes"
                )
        return [(row.get("section") or str(number + 1), (), dict(row)) for number, row in enumerate(rows)]

    def _split(self, table: dict[str, Any]) -> list[_Row]:
        given = table["split"] if isinstance(table["split"], dict) else {}
        total, by = self._number(given, "total", 0, least=1), self._number(given, "by", 0, least=1)
        if (total + by - 1) // by > MOST:
            raise self._error(f"split gives more than {MOST} sections", "raise split.by")
        found: list[_Reader._Row] = []
        for number, first in enumerate(range(0, total, by)):
            last = min(first + by, total) - 1
            own = {"first": str(first), "last": str(last), "count": str(last - first + 1)}
            found.append((str(number), (), own))
        return found

    def _listed(self, tables: Sequence[dict[str, Any]]) -> list[_Row]:
        found: list[_Reader._Row] = []
        for number, table in enumerate(tables):
            own = {key: self._plain(f"section.{key}", value) for key, value in table.items() if key != "id"}
            found.append((self._plain("section.id", table.get("id", number)), (), own))
        return found

    def _output(self, table: dict[str, Any]) -> Output:
        unknown = sorted(set(table) - set(_OUTPUT_KEYS))
        if unknown:
            raise self._error(f"output.{unknown[0]} is not a key", ", ".join(_OUTPUT_KEYS))
        how = table.get("combine", "concatenate")
        command = tuple(self._command(table, "combine")) if isinstance(how, list) else ()
        if not command and how not in HOW:
            raise self._error(f"output.combine is {' or '.join(HOW)}, or a command as a list, not {how!r}", "")
        shape = table.get("shape", [])
        if not isinstance(shape, list) or not all(type(one) is int and one > 0 for one in shape):
            raise self._error("output.shape is a list of numbers from 1 on", "shape = [1000, 200]")
        for key in ("name", "part"):
            if not self._text(table, key, ""):
                raise self._error(f"an [[output]] needs {key}", 'name = "image.bin" and part = "part.{section}"')
        dtype, result = self._text(table, "dtype", ""), self._text(table, "result_dtype", "")
        if how in ("sum", "mean") and not dtype:
            raise self._error(f"output {table['name']}: {how} needs dtype", 'dtype = "float32"; "<f8" for a byte order')
        if result and how not in ("sum", "mean"):
            raise self._error(f"output {table['name']}: result_dtype is for sum and mean", "remove it")
        return Output(
            name=table["name"], part=table["part"], how="command" if command else how, command=command, dtype=dtype,
            shape=tuple(shape), header=self._number(table, "header", 0), result_dtype=result,
        )  # fmt: skip

    # Reading one key

    def _error(self, what: str, hint: str) -> UsageError:
        return UsageError(f"{self._path}: {what}", hint)

    def _text(self, table: Mapping[str, Any], key: str, default: str) -> str:
        value = table.get(key, default)
        if not isinstance(value, str):
            raise self._error(f"{key} is a text", f'{key} = "…"')
        return value

    def _plain(self, key: str, value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self._error(f"{key} is a text or a number", "")
        return str(value)

    def _texts(self, table: Mapping[str, Any], key: str) -> list[str]:
        value = table.get(key, [])
        if not isinstance(value, list):
            raise self._error(f"{key} is a list", f'{key} = ["…"]')
        return [self._plain(key, one) for one in value]

    def _tables(self, table: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise self._error(f"{key} is written [[{key}]], once for each", "")
        return value

    def _parameters(self, table: Mapping[str, Any], key: str) -> dict[str, str]:
        value = table.get(key, {})
        if not isinstance(value, dict):
            raise self._error(f"{key} is a table", f"[{key}]")
        return {name: self._plain(f"{key}.{name}", one) for name, one in value.items()}

    def _command(self, table: Mapping[str, Any], key: str) -> tuple[str, ...]:
        value = table.get(key)
        try:
            words = shlex.split(value) if isinstance(value, str) else self._texts(table, key)
        except ValueError as error:
            raise self._error(f"{key}: {error}", "close the quotes, or give the words as a list") from None
        if not words:
            raise self._error(f"{key} is missing", f'{key} = "program --section {{section}}"')
        return tuple(words)

    def _number(self, table: Mapping[str, Any], key: str, default: int, *, least: int = 0) -> int:
        value = table.get(key, default)
        if type(value) is not int or not least <= value < 1 << 53:
            raise self._error(f"{key} is a whole number from {least} on", f"{key} = {max(least, 1)}")
        return value

    def _flag(self, table: Mapping[str, Any], key: str, default: bool) -> bool:
        value = table.get(key, default)
        if not isinstance(value, bool):
            raise self._error(f"{key} is true or false", f"{key} = true")
        return value

    def _duration(self, table: Mapping[str, Any], key: str, default: float | None) -> float | None:
        value = table.get(key)
        if value is None:
            return default
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9:
            return float(value)
        try:
            return duration(value) if isinstance(value, str) else _no_duration()
        except UsageError:
            raise self._error(f"{key} is seconds, or a text like 10m", f'{key} = "10m"') from None


def _no_duration() -> float | None:
    raise UsageError("")


EXAMPLE = """\
# A job of sections: mesh sections run JOB.toml   (docs/sections.md has every key)
name = "sum"
# {part}: a file of each attempt, which gets the name below when the attempt has succeeded
command = ["sh", "-c", 'seq {first} {last} > "{part}"']

[sections]
split = {total = 1000, by = 100}     # {first}, {last}, {count}; or count = N, ids, list, table

[[output]]
name = "numbers.txt"
part = "part.{section}"
combine = "concatenate"              # in the order of the sections; sum, mean, header, or ["program", "{parts}"]
"""

"""Arguments, file names, working directories, variables and lines of tasks arrive byte for byte, whatever the bytes."""

import ast
import json
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agents.keeper.idle_end import job_owners
from redmesh.byte_text import to_bytes
from tests.support.chance import examples
from tests.support.mesh import MakeMesh, PrivateMesh
from tests.support.mpis import python_with
from tests.support.waiting import wait_until
from tests.support.yods import one_mesh, yods

__all__ = ["one_mesh", "yods"]

#: Prints what it got: arguments, working directory, a variable, the task's line.
PROGRAM = f"""#!{sys.executable}
import os, sys
print([os.fsencode(word) for word in sys.argv[1:]], os.getcwdb(), os.environb.get(b"V"),
      os.environb.get(b"REDMESH_TASK_INPUT"), sys.stdin.buffer.read(), sep=", ")
"""
CALLS = """
import os, sys
import redmesh

def told(word):
    return os.fsencode(word), os.getcwdb(), os.environb.get(b"V")

with redmesh.Executor(1) as executor:
    print(executor.submit(told, sys.argv[1]).result())
"""
#: Bytes near the escape: of U+EF80 to U+EFFF, of surrogates, parts of characters; and what text files are divided at.
NEAR = [b"\xee\xbf\xa9", b"\xee\xbe", b"\xed\xb3\xa9", b"\xe9", b"\r", b"\x85", "\u2028é".encode(), b"\\xe9", b"%"]


def _bytes(least: int, without: bytes) -> st.SearchStrategy[bytes]:
    pieces = st.lists(st.one_of(st.sampled_from(NEAR), st.binary(max_size=4)), min_size=least, max_size=6)
    return pieces.map(lambda found: b"".join(found).translate(None, without)).filter(lambda data: len(data) >= least)


WORDS = _bytes(0, b"\0{}")
NAMES = _bytes(1, b"\0/{}").filter(lambda name: name not in (b".", b".."))
LINES = st.lists(_bytes(1, b"\0\n").filter(bytes.strip), min_size=1, max_size=5)


class Given(NamedTuple):
    """What one run is given."""

    word: bytes
    name: bytes
    value: bytes
    lines: list[bytes]


ODD_LINES = [b"x\xe9", b"\xee\xbf\xa9\r", b"a\x0bb\x85\xff", b"{}"]
SPECIAL = Given(b"a\xe9\xee\xbf\xa9", b"n\xe9\r \xed\xb3\xa9", b"v\xe9", ODD_LINES)


def arbitrary(test: Callable[..., None]) -> Callable[..., None]:
    """The test with a special case, the smallest one, which is always hypothesis's first, and an arbitrary one.

    In a storm there are eighty: each takes seconds on a mesh.
    """
    limits = settings(max_examples=examples(2), deadline=None, suppress_health_check=list(HealthCheck))
    return pytest.mark.storm(limits(given(st.builds(Given, WORDS, NAMES, WORDS, LINES))(example(SPECIAL)(test))))


class Place:
    """A directory whose name and whose program have the bytes of a case."""

    def __init__(self, mesh: PrivateMesh, case: Given) -> None:
        self.mesh, self.case = mesh, case
        self.path = os.path.join(os.fsencode(tempfile.mkdtemp(dir=mesh.work)), case.name)
        os.mkdir(self.path)
        self.program = self.write(b"p" + case.name, PROGRAM.encode())
        os.chmod(self.program, 0o700)

    def write(self, name: bytes, content: bytes) -> bytes:
        """A file in the directory; returns its path."""
        path = os.path.join(self.path, name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def read(self, name: bytes) -> Any:
        """What the program printed into a file of the directory."""
        with open(os.path.join(self.path, name), encoding="ascii") as file:
            return ast.literal_eval(file.read())

    def run(self, *words: bytes) -> str:
        """Run a command in the directory, with the variable; returns its output."""
        told = self.mesh.run(*map(os.fsdecode, words), check=True, env={"V": os.fsdecode(self.case.value)},
                             cwd=os.fsdecode(self.path))  # fmt: skip
        return told.stdout

    def rows(self, job: str) -> list[Any]:
        """The job's tasks as JSON."""
        done = self.mesh.run("mesh", "job", "tasks", "--json", job, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]


@arbitrary
def test_yod(yods: PrivateMesh, case: Given) -> None:
    place = Place(yods, case)
    place.write(b"i" + case.name, case.value)
    streams = (b"-stdin", b"i" + case.name, b"-output", b"o" + case.name)
    place.run(b"yod", b"-sz", b"1", *streams, place.program, case.word, case.name)
    assert place.read(b"o" + case.name) == ([case.word, case.name], place.path, case.value, None, case.value)


@arbitrary
def test_lines_of_tasks(yods: PrivateMesh, case: Given) -> None:
    place = Place(yods, case)
    lines = place.write(b"l" + case.name, b"\n".join(case.lines))
    options = (b"--tasks", lines, b"--env", b"W=" + case.word, b"--stdin", lines, b"--output", b"{#}" + case.name)
    job = place.run(b"mesh", b"submit", b"--wait", *options, b"--", place.program, b"{}", case.word).strip()
    for number, line in enumerate(case.lines, 1):
        told = ([line, case.word], place.path, case.value, line, b"\n".join(case.lines))
        assert place.read(b"%d%s" % (number, case.name)) == told
    assert [to_bytes(row["input"]) for row in place.rows(job)] == case.lines
    summary = yods.json("mesh", "job", "show", job)
    assert to_bytes(summary["cwd"]) == place.path and to_bytes(summary["command"][2]) == case.word


@arbitrary
def test_values_of_sections(yods: PrivateMesh, case: Given) -> None:
    place = Place(yods, case)
    lines = place.write(b"l" + case.name, b"".join(line + b"\n" for line in case.lines))
    options = (b"--quiet", b"--output", b"{#}" + case.name, b"--", place.program, b"{1}", case.word)
    place.run(b"mesh", b"sections", b"run", *options, b"::::", lines)
    for number, line in enumerate(case.lines, 1):
        assert place.read(b"%d%s" % (number, case.name))[:3] == ([line, case.word], place.path, case.value)


@arbitrary
def test_parts_of_sections(yods: PrivateMesh, case: Given) -> None:
    place = Place(yods, case)
    table = b"value\n" + b'"' + case.word.replace(b'"', b'""') + b'"\n'
    place.write(b"t.csv", table)
    place.write(
        b"j" + case.name + b".toml",
        b"command = ['sh', '-c', 'printf %s \"$1\" > \"$2\"', 'sh', '{value}', '{part}']\n"
        b"sections = {table = 't.csv'}\noutput = [{name = 'whole', part = 'part.{section}'}]\n",
    )
    place.run(b"mesh", b"sections", b"run", b"--quiet", b"j" + case.name + b".toml")
    with open(os.path.join(place.path, b"whole"), "rb") as file:
        assert file.read() == case.word


@arbitrary
def test_calls_of_an_executor(yods: PrivateMesh, case: Given) -> None:
    place, python = Place(yods, case), os.fsencode(python_with("cloudpickle"))
    told = place.run(python, place.write(b"c" + case.name, CALLS.encode()), case.word)
    assert ast.literal_eval(told) == (case.word, place.path, case.value)


def test_long_lines_that_are_not_ascii_fit_into_frames(yods: PrivateMesh) -> None:
    """JSON has six characters for each of theirs: batches by characters were over the limit, and lost the worker."""
    (yods.work / "long").write_text(f"{'é' * 31_000}\n" * 60)
    done = yods.run("mesh", "submit", "--wait", "--tasks", "long", "--limit", "1", "--", "true", timeout_s=120)
    assert done.returncode == 0, done.stderr


def test_messages_about_files(yods: PrivateMesh) -> None:
    """A node's message names the file with all of its bytes, in JSON too."""
    for options in (("-chdir", "/none"), ("-stdin", "/{rank}none"), ("-stage-in", "/none")):
        words = ("yod", "-json", "-sz", "1", options[0], os.fsdecode(options[1].encode() + b"\xe9"), "true")
        done = yods.run(*words)
        [note] = [one["text"] for one in map(json.loads, done.stdout.splitlines()) if one["event"] == "note"]
        assert done.returncode == 125 and b"none\xe9: No such file" in to_bytes(note), note


def test_packaged_files_and_values_of_a_program(yods: PrivateMesh) -> None:
    place = Place(yods, SPECIAL)
    place.write(b"file\xe9", b"content")
    script = b"cat file\xe9; yodstate set k\xe9 v\xe9; yodstate get k\xe9; yodstate log l\xe9"
    job = place.run(b"mesh", b"submit", b"--wait", b"--file", b"file\xe9", b"--", b"sh", b"-c", script).strip()
    [row] = place.rows(job)
    assert to_bytes(row["lines"]) == b"contentv\xe9\n"
    assert yods.json("mesh", "job", "show", job)["values"] == {"k\uefe9": "v\uefe9"}
    log = yods.run("mesh", "job", "tasks", "--joblog", job, check=True).stdout
    assert script in os.fsencode(log)


def test_output_in_an_encoding_that_lacks_its_characters(yods: PrivateMesh) -> None:
    job = yods.run("mesh", "submit", "--wait", "--", "true", "é" * 300, check=True).stdout.strip()
    for encoding in ("ascii:replace", "latin-1"):  # without …, which ends a long command
        assert job[:8] in yods.run("mesh", "queue", "--all", check=True, env={"PYTHONIOENCODING": encoding}).stdout


def test_the_name_of_a_job_is_utf8(yods: PrivateMesh) -> None:
    done = yods.run("mesh", "submit", "--name", os.fsdecode(b"n\xe9"), "--", "true")
    assert done.returncode == 2 and "the name of a job is UTF-8" in done.stderr and "--name sweep-4" in done.stderr


def test_the_state_directory_and_reasons_may_have_any_bytes(mesh: MakeMesh) -> None:
    one = mesh(2, 1, up=False, PYTHONIOENCODING="utf-8:strict")
    state = one.home / os.fsdecode(b"state\xe9")
    state.mkdir(mode=0o700)
    one.env["XDG_STATE_HOME"], one.state = str(state), state / "redmesh"
    one.up()
    assert one.run("yod", "-sz", "1", "echo", "ran", check=True).stdout == "ran\n"
    job = one.run("mesh", "submit", "--wait", "--", "true", check=True).stdout.strip()
    assert to_bytes(one.json("mesh", "job", "show", job)["path"]) == os.fsencode(one.state / "jobs" / f"{job}.job")
    for encoding in ("utf-8:strict", "ascii:replace"):
        assert str(state) in one.run("mesh", "status", check=True, env={"PYTHONIOENCODING": encoding}).stdout
    one.run("mesh", "submit", "--", "sleep", "1000", check=True)
    wait_until(lambda: job_owners(str(one.state)), "the mesh knows the owner of the job by its title, and does not end")
    one.run("mesh", "drain", "n0", "--reason", os.fsdecode(b"why\xe9"), check=True)
    [node] = one.json("showmesh")["nodes"]
    assert node["reason"].startswith("why\uefe9 (")
    assert one.down().returncode == 0

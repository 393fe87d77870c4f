"""JOB.toml: what it means, and what is said of mistakes in it."""

from pathlib import Path

import pytest

from console.errors import ConsoleError, UsageError
from console.sections.job_file import EXAMPLE, changes, fingerprints, read

HEAD = 'command = "run {section}"\n'


def write(path: Path, text: str) -> str:
    (path / "JOB.toml").write_text(text)
    return str(path / "JOB.toml")


def test_the_example_is_a_job(tmp_path: Path) -> None:
    job = read(write(tmp_path, EXAMPLE))
    assert (job.name, len(job.sections), job.cwd) == ("sum", 10, str(tmp_path))
    assert job.words(job.sections[3]) == ["sh", "-c", f'seq 300 399 > "{tmp_path}/part.3"']
    assert job.names_parts
    assert job.part(job.outputs[0], job.sections[9]) == f"{tmp_path}/part.9"


@pytest.mark.parametrize(
    ("said", "ids", "parameters"),
    (
        ("[sections]\ncount = 3", ["0", "1", "2"], {}),
        ('[sections]\nids = ["a", 7]', ["a", "7"], {}),
        ("[parameters]\nv = 1.5\n[sections]\ncount = 1", ["0"], {"v": "1.5"}),
        ('[parameters]\nv = 1\n[[section]]\nid = "x"\nv = 2\n[[section]]\nw = 3', ["x", "1"], {"v": "2"}),
        ("[sections]\nsplit = {total = 5, by = 2}", ["0", "1", "2"], {"first": "0", "last": "1", "count": "2"}),
        ('[sections]\ntable = "t.csv"', ["n1", "n2"], {"section": "n1", "at": "5"}),
        ('[sections]\nlist = "l.txt"', ["1", "2"], {}),
    ),
)
def test_where_sections_come_from(tmp_path: Path, said: str, ids: list[str], parameters: dict[str, str]) -> None:
    (tmp_path / "t.csv").write_text("section,at\nn1,5\nn2,6\n")
    (tmp_path / "l.txt").write_text("one\ntwo\n")
    job = read(write(tmp_path, HEAD + said))
    assert [section.id for section in job.sections] == ids
    assert dict(job.sections[0].parameters) == parameters


@pytest.mark.parametrize(
    ("text", "told"),
    (
        ("command = [", "JOB.toml: "),
        ("comand = 1", "comand is not a key"),
        ("[sections]\ncount = 1", "command is missing"),
        ('command = "a \'"\n[sections]\ncount = 1', "command: No closing quotation"),
        (HEAD, "one place"),
        (HEAD + '[sections]\ncount = 1\nids = ["a"]', "not from count and ids"),
        (HEAD + "[sections]\ncount = 0", "count is a whole number from 1"),
        (HEAD + "[sections]\ncount = true", "count is a whole number"),
        (HEAD + "[sections]\ncount = 2000000", "1 to 1000000"),
        (HEAD + '[sections]\nids = ["a", "a"]', "a stands for two sections"),
        (HEAD + "sections = 5", "sections is a table"),
        (HEAD + 'time = "soon"\n[sections]\ncount = 1', "time is seconds"),
        ('command = "run {other}"\n[sections]\ncount = 1', r"\{other\} is not a parameter"),
        (HEAD + "output = 3\n[sections]\ncount = 1", "output is written"),
        (HEAD + '[sections]\ncount = 1\n[[output]]\nname = "x"', "needs part"),
        (HEAD + '[sections]\ncount = 2\n[[output]]\nname = "x"\npart = "p"', "sections 0 and 1 would both write"),
        (HEAD + '[sections]\ncount = 1\n[[output]]\nname = "x"\npart = "x"', "would write the whole output"),
        (HEAD + '[sections]\ncount = 1\n[[output]]\nname = "x"\npart = "p"\ncombine = "add"', "concatenate or sum"),
        (HEAD + '[sections]\ncount = 1\n[[output]]\nname = "x"\npart = "p"\ncombine = "sum"', "sum needs dtype"),
        (HEAD + '[sections]\ncount = 1\n[[output]]\nname = "x"\npart = "p"\nresult_dtype = "i4"', "for sum and mean"),
        (HEAD + '[sections]\nids = ["a\\nb"]', "is not an id of a section"),
        (HEAD + '[sections]\ntable = "none.csv"', "none.csv: No such file"),
    ),
)
def test_mistakes_are_named_with_the_file(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        read(write(tmp_path, text))
    assert "JOB.toml" in caught.value.message


def test_a_directory_that_an_output_cannot_be_written_to_is_named_before_anything_runs(tmp_path: Path) -> None:
    text = '[sections]\ncount = 2\n[[output]]\nname = "far/away"\npart = "part.{section}"\n'
    read(write(tmp_path, HEAD + text))
    (tmp_path / "far").touch()
    with pytest.raises(UsageError) as raised:
        read(write(tmp_path, HEAD + text))
    assert f"output far/away: {tmp_path}/far is no directory" in raised.value.message


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConsoleError, match="No such file") as caught:
        read(f"{tmp_path}/JOB.toml")
    assert "mesh sections init" in caught.value.hint


def test_what_changed_between_a_job_and_its_resumption_is_named(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("data")
    text = HEAD + 'inputs = ["in"]\n[sections]\ncount = 2'
    before = fingerprints(read(write(tmp_path, text)))
    with_digest = fingerprints(read(write(tmp_path, text)), digests=True)
    assert changes(before, fingerprints(read(write(tmp_path, text)))) == []
    (tmp_path / "in").write_text("DATA and more")
    told = changes(before, fingerprints(read(write(tmp_path, text.replace("run", "runs")))))
    assert [line.split(":")[0] for line in told] == ["command", f"input {tmp_path}/in"]
    assert "run '{section}'" in told[0] or "run {section}" in told[0]
    (tmp_path / "in").write_text("data")
    assert changes(with_digest, fingerprints(read(write(tmp_path, text)), digests=True)) == []

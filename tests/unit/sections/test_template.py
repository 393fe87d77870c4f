"""The commands of sections, as GNU parallel makes them from the same words."""

import shutil
import subprocess

import pytest

from console.errors import ConsoleError, UsageError
from console.sections.lists import sections_of, split_command
from console.sections.template import Section, command_of, fill

LISTS = (
    (["echo", "{}"], [":::", "a", "b c", "-x"]),
    (["echo"], [":::", "a", "b"]),
    (["echo", "{.}", "{/}", "{//}", "{/.}", "{#}"], [":::", "dir/sub/file.tar.gz", "plain", "/abs/x.c"]),
    (["echo", "{2}-{1}", "{1.}", "{2/}"], [":::", "a.c", "b.c", ":::", "d/1", "2"]),
    (["echo", "{1}+{2}"], [":::", "a", "b", "c", ":::+", "1", "2", "3"]),
    (["echo", "{1}", "{2}"], [":::", "a", "b", ":::+", "1", "2", ":::", "x", "y"]),
    (["echo", "{print}", "{}"], [":::", "a"]),
)


@pytest.mark.parametrize(("command", "lists"), LISTS, ids=lambda words: " ".join(words))
def test_commands_are_those_of_gnu_parallel(command: list[str], lists: list[str]) -> None:
    words, rows = split_command([*command, *lists])
    ours = [" ".join(command_of(words, section)[1:]) for section in sections_of(rows)]
    parallel = shutil.which("parallel")
    if parallel is None:
        pytest.skip("GNU parallel is not installed")
    theirs = subprocess.run([parallel, "-k", "-j1", *command, *lists], capture_output=True, text=True, check=True)
    assert ours == theirs.stdout.splitlines()


def test_a_file_of_values_and_columns(tmp_path: object) -> None:
    file = f"{tmp_path}/list"
    with open(file, "w") as out:
        out.write("a\t1\nb\t2\n")
    words, rows = split_command(["run", "{2}", "{1}", "::::", file])
    assert [command_of(words, one) for one in sections_of(rows, "\t")] == [["run", "1", "a"], ["run", "2", "b"]]
    with pytest.raises(ConsoleError, match="No such file"):
        split_command(["run", "::::", f"{tmp_path}/none"])


def test_mistakes_in_lists_are_named() -> None:
    with pytest.raises(UsageError, match="list of sections is empty"):
        sections_of(split_command(["run", ":::"])[1])
    with pytest.raises(UsageError, match="there is none"):
        split_command(["run", ":::+", "a"])
    with pytest.raises(UsageError, match=r"\{2\} asks for value 2"):
        command_of(["run", "{2}"], Section(0, "1", ("a",)))


def test_a_job_file_is_strict_about_names() -> None:
    section = Section(4, "five", (), {"velocity": "2000"})
    assert fill("v={velocity} {section} {#} {{print}}", section, strict=True) == "v=2000 five 5 {print}"
    with pytest.raises(UsageError, match=r"section five: \{velocty\} is not a parameter") as caught:
        fill("{velocty}", section, strict=True)
    assert "section velocity" in caught.value.hint

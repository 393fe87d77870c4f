"""What ``mesh`` says about words of Slurm, GNU parallel and mpiexec, and about words that are missing."""

import pytest

from console.cli.mesh import command


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("squeue", "mesh queue for jobs, pingd"),
        ("statsu", "did you mean mesh status?"),
        ("job sho", "did you mean mesh job show?"),
        ("job", "one of: list, show,"),
        ("debug 1 gdb", "RANK is a number, not 'gdb' (usage: mesh debug LAUNCHER RANK"),
        ("submit -j 4 x", "mesh submit has no option -j (--limit N"),
        ("submit -j4 x", "(--limit N"),
        ("submit -n 4 x", "--array 1-N"),
        ("submit --timeout 60 x", "--time 60s; a number alone is minutes"),
        ("submit -S host x", "mesh init --host NAME"),
        ("submit --resume-failed x", "mesh retry JOB"),
        ("sections run -j 8 -- x", "(--limit N"),
        ("sections run --joblog x", "mesh sections report --joblog --file"),
        ("sections run --halt now,fail=1 -- x", "--max-fails N"),
        ("parallel -j 4 x", "mesh sections run -- PROGRAM"),
        ("submit --limt 4 x", "did you mean --limit?"),
        ("retry --wait", "mesh retry JOB, then mesh wait JOB"),
        ("retry", "JOB [JOB ...]; mesh queue --all"),
        ("drain n0 disk", "--reason TEXT"),
        ("drain n0 --reason", "--reason needs a value (usage: mesh drain"),
        ("mode off 0", "mode is not 'off' (it is one of 'batch'"),
        ("up -n 4", "--processors N"),
        ("purge", "mesh purge needs JOB, or --all"),
        ("submit -- echo {} ::: a b", "mesh sections run"),
        ("sections run -j 8 -- echo ::: a", "--limit N"),
        ("sections run --pipe -- wc", "cut the input into files"),
        ("sections run -N2 -- echo ::: a b", "{1} {2}"),
        ("sections run x y", "whole commands from a file: mesh submit --tasks"),
        ("sections run --resume", "mesh sections resume JOB"),
        ("purge --all x", "--all excludes JOB"),
    ],
)
def test_an_error_says_what_to_do_next(words: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(words.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("mesh: ") and said.count("\n") == 1 and told in said

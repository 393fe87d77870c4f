"""The rules of --export against srun's words for them."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.errors import UsageError
from console.launch.options.environment import parse
from console.launch.options.request import is_foreign

HERE = {
    b"PATH": b"/bin",
    b"HOME": b"/home/ada",
    b"ODD": b"\xff,=",
    b"SLURM_PROCID": b"9",
    b"PMI_RANK": b"3",
    b"YOD_RANK": b"0",
    b"REDMESH_ALLOCATION_COOKIE": b"5d1f",
    b"REDMESH_ADMIN_COOKIE": b"77aa",
}
OURS = {b"PATH": b"/bin", b"HOME": b"/home/ada", b"ODD": b"\xff,="}


@pytest.mark.parametrize(
    ("text", "environment"),
    [
        ("ALL", OURS),
        ("NONE", {}),
        ("NIL", {}),
        ("PATH", {b"PATH": b"/bin"}),
        ("PATH,ODD", {b"PATH": b"/bin", b"ODD": b"\xff,="}),
        ("NOT_SET", {}),
        ("A=1", {b"A": b"1"}),
        ("NONE,A=1", {b"A": b"1"}),
        ("ALL,A=1,PATH=/opt/bin", {**OURS, b"A": b"1", b"PATH": b"/opt/bin"}),
        ("A=1,PATH,ALL", {**OURS, b"A": b"1"}),
        ("PATH,PATH=/x", {b"PATH": b"/x"}),
        ("A=", {b"A": b""}),
        ("A==b=c", {b"A": b"=b=c"}),
        ("L='a,b',M=\"c,'d\",N=it's", {b"L": b"a,b", b"M": b"c,'d", b"N": b"it's"}),
        ("A=ALL", {b"A": b"ALL"}),
        ("SLURM_PROCID", {b"SLURM_PROCID": b"9"}),
        ("ALL,SLURM_PROCID=7", {**OURS, b"SLURM_PROCID": b"7"}),
        ("REDMESH_ALLOCATION_COOKIE", {b"REDMESH_ALLOCATION_COOKIE": b"5d1f"}),
        (os.fsdecode(b"A=caf\xe9"), {b"A": b"caf\xe9"}),
    ],
)
def test_what_the_rules_give(text: str, environment: dict[bytes, bytes]) -> None:
    assert parse(text).apply(HERE) == environment


@pytest.mark.parametrize(
    "text",
    ["", ",", "A=1,,B", "ALL,", "=x", "A B", "ALL,NONE", "NONE,PATH", "A='x", "A='x'y", "A\0", "A=\0", "\t"]
    + ["REDMESH_ADMIN_COOKIE", "ALL,REDMESH_CPA_DATABASE", "REDMESH_ADMIN_COOKIE=1"],
)
def test_what_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert caught.value.exit_status == 2 and "--export" in caught.value.message


def test_names_that_are_not_set_can_be_told() -> None:
    assert parse("PATH,NOT,A=1,NEITHER").missing(HERE) == [b"NOT", b"NEITHER"]


NAMES = st.text(alphabet="ABCDEFG_", min_size=4, max_size=8).filter(lambda name: name not in ("ALL", "NONE"))
VALUES = st.text(alphabet="ab=, \"x'", max_size=6)


@given(st.booleans(), st.dictionaries(NAMES, VALUES, max_size=4), st.dictionaries(NAMES, VALUES, max_size=4))
def test_every_value_can_be_written(everything: bool, values: dict[str, str], here: dict[str, str]) -> None:
    items = ["ALL"] if everything else ["NONE"]
    for name, value in values.items():
        if "'" in value and '"' in value:
            continue
        quote = '"' if "'" in value else "'"
        items.append(f"{name}={quote}{value}{quote}")
    environ = {name.encode(): value.encode() for name, value in here.items()}
    told = {n.encode(): v.encode() for n, v in values.items() if not ("'" in v and '"' in v)}
    expected = {n: v for n, v in environ.items() if everything and not is_foreign(n)} | told
    assert parse(",".join(items)).apply(environ) == expected


@given(st.text(max_size=20))
def test_anything_is_read_or_refused(text: str) -> None:
    try:
        parse(text).apply(HERE)
    except (UsageError, UnicodeEncodeError) as error:
        # the command line has no lone surrogates but those that stand for bytes
        assert isinstance(error, UsageError) or any(0xD800 <= ord(char) < 0xE000 for char in text)


def test_an_mpi_finds_the_job_s_hosts_but_takes_no_rank_for_a_task_of_srun() -> None:
    """Open MPI lists the hosts of SLURM_NODELIST if SLURM_JOBID is set, and with SLURM_STEP_ID it expects srun."""
    job = [b"SLURM_JOBID", b"SLURM_JOB_ID", b"SLURM_NODELIST", b"SLURM_JOB_NODELIST", b"SLURM_TASKS_PER_NODE"]
    assert not any(map(is_foreign, job))
    step = [b"SLURM_STEP_ID", b"SLURM_STEPID", b"SLURM_STEP_NODELIST", b"SLURM_STEP_GPUS", b"SLURM_PROCID"]
    assert all(map(is_foreign, [*step, b"SLURM_NTASKS", b"SLURM_JOB_GPUS"]))

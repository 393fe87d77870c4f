"""What each manager reads from its job's environment, against what the systems' documentation shows."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.linux import processes
from agents.managers import flux, grid_engine, het_jobs, lsf, pbs, registry, slurm
from redmesh import managers
from redmesh.managers import ManagerError
from tests.support.managers.job import LIBRARY, NEEDS_GCC
from tests.support.waiting import PATIENCE_S, SLOWNESS, wait_until


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,12],login", ["n08", "n09", "n10", "n12", "login"]),
        ("rack[0-1]n[1-2]", ["rack0n1", "rack0n2", "rack1n1", "rack1n2"]),
        ("a,b[2]x", ["a", "b2x"]),
    ],
)
def test_compressed_lists_are_expanded(text: str, names: list[str]) -> None:
    assert managers.expand(text) == names


@given(st.text(alphabet="n1-3[],x", max_size=12))
def test_a_list_is_expanded_or_refused(text: str) -> None:
    try:
        assert all(isinstance(name, str) for name in managers.expand(text))
    except ManagerError as error:
        assert error.message


@pytest.mark.parametrize("text", ["n[1-", "n[a-b]", "n[1-99999999999]"])
def test_lists_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ManagerError):
        managers.expand(text)


def test_repeated_counts() -> None:
    assert managers.repeated("4(x2),3") == [4, 4, 3]
    with pytest.raises(ManagerError):
        managers.repeated("four")


@pytest.mark.parametrize(
    ("environ", "hosts"),
    [
        ({"SLURM_NTASKS": "5", "SLURM_TASKS_PER_NODE": "3,2"}, [("n1", 3), ("n2", 2)]),
        ({"SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "2(x2)", "SLURM_CPUS_PER_TASK": "3"}, [("n1", 6), ("n2", 6)]),
        ({"SLURM_JOB_CPUS_PER_NODE": "16(x2)"}, [("n1", 16), ("n2", 16)]),
        ({}, [("n1", 1), ("n2", 1)]),
    ],
)
def test_slurm_s_slots(environ: dict[str, str], hosts: list[tuple[str, int]]) -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", **environ}
    assert slurm.detect(job) and slurm.hosts(job) == hosts
    assert slurm.job_id(job) == "7" and slurm.job_id({**job, "SLURM_CLUSTER_NAME": "c"}) == "c.7"


def test_slurm_s_time_left() -> None:
    assert slurm._seconds("1-02:03:04") == 93784.0
    assert slurm._seconds("5:00") == 300.0
    assert slurm._seconds("UNLIMITED") is None


def test_a_step_inside_another_step_is_refused_with_its_reason() -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NTASKS": "3", "SLURM_TASKS_PER_NODE": "3"}
    with pytest.raises(ManagerError, match="2 nodes and the processors of 1"):
        slurm.hosts(job)


def test_grid_engine_adds_up_the_queues_of_a_host(tmp_path: Path) -> None:
    file = tmp_path / "pe"
    file.write_text("h1 4 all.q@h1 UNDEFINED\nh2 2 all.q@h2 UNDEFINED\nh1 1 long.q@h1 UNDEFINED\n")
    job = {"JOB_ID": "7", "PE_HOSTFILE": str(file), "SGE_TASK_ID": "3"}
    assert grid_engine.detect(job) and grid_engine.hosts(job) == [("h1", 5), ("h2", 2)]
    assert grid_engine.job_id(job) == "7.3"
    file.write_text("h1\n")
    with pytest.raises(ManagerError, match="cannot be read"):
        grid_engine.hosts(job)


def test_grid_engine_s_ranks_need_a_slot_beside_the_agent(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    rows = ("h1 2 all.q@h1", "h2 1 all.q@h2", "h2 1 big.q@h2", "h3 1 all.q@h3")
    file.write_text("".join(f"{row} UNDEFINED\n" for row in rows))
    job = {"JOB_ID": "7", "PE_HOSTFILE": str(file)}
    grid_engine.check_ranks(job, ["h1", "h2"])
    with pytest.raises(ManagerError, match="h3: Grid Engine gives this host one slot"):
        grid_engine.check_ranks(job, ["h1", "h3"])


def test_pbs_counts_the_lines_of_a_host(tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text("b\nb\na\nb\n")
    job = {"PBS_JOBID": "7.server", "PBS_NODEFILE": str(file)}
    assert pbs.detect(job) and pbs.hosts(job) == [("b", 3), ("a", 1)]
    with pytest.raises(ManagerError, match="PBS_NODEFILE"):
        pbs.hosts({**job, "PBS_NODEFILE": str(tmp_path / "none")})


HET = {
    "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_NTASKS": "1", "SLURM_TASKS_PER_NODE": "1",
    "SLURM_HET_SIZE": "2", "SLURM_JOB_NODELIST_HET_GROUP_0": "n1", "SLURM_JOB_NODELIST_HET_GROUP_1": "n[2-3]",
    "SLURM_NTASKS_HET_GROUP_0": "1", "SLURM_NTASKS_HET_GROUP_1": "4", "SLURM_TASKS_PER_NODE_HET_GROUP_0": "1",
    "SLURM_TASKS_PER_NODE_HET_GROUP_1": "2(x2)", "SLURM_CPUS_PER_TASK_HET_GROUP_1": "3",
}  # fmt: skip


def test_all_components_of_a_heterogeneous_job_are_hosts() -> None:
    """The variables are those of Slurm 22.05 in the script of `sbatch -n1 : -N2 -n4 -c3`."""
    assert slurm.hosts(HET) == [("n1", 1), ("n2", 6), ("n3", 6)]
    assert slurm.groups(HET, ["n3", "n1", "n2"]) == [["n1"], ["n2", "n3"]], "one srun serves one component"
    assert het_jobs.options(HET, "n1") == ["--het-group=0"] and het_jobs.options(HET, "n3") == ["--het-group=1"]
    assert slurm.groups({"SLURM_JOB_ID": "7"}, ["a", "b"]) == [["a", "b"]] and not het_jobs.options({}, "a")
    shared = {**HET, "SLURM_JOB_NODELIST_HET_GROUP_1": "n[1-2]"}
    assert slurm.hosts(shared) == [("n1", 7), ("n2", 6)]
    assert slurm.groups(shared, ["n1", "n2"]) == [["n1"], ["n2"]], "a node of two components gets one agent"
    with pytest.raises(ManagerError, match="3 components"):
        slurm.hosts({**HET, "SLURM_HET_SIZE": "3"})


def test_times_and_ends_of_a_heterogeneous_job(tmp_path: Path) -> None:
    """squeue prints a line for each component."""
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho KillWait = 5 sec\n")
    job = {**HET, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    squeue = tmp_path / "squeue"
    for said, left_s, ends in (("5:00 3:00", 180.0, None), ("R CG", None, None), ("CG CG", None, 5.0)):
        squeue.write_text("#!/bin/sh\n" + "".join(f"echo {word}\n" for word in said.split()))
        for command in (squeue, tmp_path / "scontrol"):
            command.chmod(0o755)
        assert (slurm.time_left(job), slurm.ending(job)) == (left_s, ends)


def test_pbs_is_found_below_the_directory_that_its_configuration_file_names(tmp_path: Path) -> None:
    installed, conf = tmp_path / "opt" / "openpbs", tmp_path / "pbs.conf"
    conf.write_text(f"PBS_SERVER=head\nPBS_EXEC={installed}\nPBS_START_MOM=1\n")
    job = {"PBS_JOBID": "7.server", "PBS_NODEFILE": "/nowhere", "PATH": "/nowhere", "PBS_CONF_FILE": str(conf)}
    with pytest.raises(ManagerError, match="neither libpbs") as found:
        pbs.starts_by(job)
    assert str(installed) in found.value.hint
    for path in ("bin/pbsdsh", "sbin/pbs_tmrsh", "lib/libpbs.so.0"):
        (installed / path).parent.mkdir(parents=True, exist_ok=True)
        (installed / path).write_text("#!/bin/sh\n")
        (installed / path).chmod(0o755)
        task = dict.fromkeys(("PBS_JOBCOOKIE", "PBS_NODENUM", "PBS_TASKNUM", "PBS_MOMPORT"), "1")
        inside = pbs.starts_by({**job, **(task if "lib" in path else {})})
        assert inside == str(installed / path)
    assert pbs.starts_by({**job, "PBS_EXEC": "/nowhere", "PATH": str(installed / "bin")}).endswith("pbsdsh")


def test_lsf_s_hosts() -> None:
    job = {"LSB_JOBID": "7", "LSB_JOBINDEX": "2", "LSB_MCPU_HOSTS": "a 4 b 2"}
    assert lsf.detect(job) and lsf.hosts(job) == [("a", 4), ("b", 2)] and lsf.job_id(job) == "7.2"
    assert lsf.hosts({"LSB_JOBID": "7", "LSB_HOSTS": "a a b"}) == [("a", 2), ("b", 1)]
    with pytest.raises(ManagerError):
        lsf.hosts({**job, "LSB_MCPU_HOSTS": "a b"})


def test_flux_s_identifier_without_a_command() -> None:
    job = {"FLUX_URI": "local:///run/flux/x/run/local-0", "PATH": ""}
    assert flux.detect(job) and flux.job_id(job) == "local-0"
    assert flux.job_id({**job, "FLUX_JOB_ID": "ƒ2o"}) == "ƒ2o"


def test_who_is_found() -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}
    assert registry.find(job)[0] == "slurm"
    assert registry.find({**job, "FLUX_URI": "x"})[0] == "flux", "a Flux instance runs inside the other's job"
    assert registry.find(job, "none") == ("", None) == registry.find({})
    with pytest.raises(ManagerError, match="not in an allocation"):
        registry.find({}, "slurm")
    with pytest.raises(ManagerError, match="no manager is called"):
        registry.find(job, "loadleveler")


@pytest.mark.parametrize("name", registry.OURS)
def test_ours_have_the_whole_interface(name: str) -> None:
    manager = registry.load(name)
    assert managers.problems(manager) == []
    assert len(Path(manager.__file__).read_text().splitlines()) < 250


@pytest.fixture
def tm_job(tmp_path: Path) -> dict[str, str]:
    """The environment of a PBS job with two nodes of two slots, and a library that stands in for libpbs."""
    (tmp_path / "nodes").write_text("a\na\nb\nb\n")
    library = tmp_path / "lib" / "libpbs.so"
    library.parent.mkdir()
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, LIBRARY], check=True)
    variables = {"PBS_JOBCOOKIE": "c", "PBS_NODENUM": "0", "PBS_TASKNUM": "1", "PBS_MOMPORT": "15003"}
    variables |= {"PBS_JOBID": "7.server", "PBS_NODEFILE": str(tmp_path / "nodes"), "PBS_EXEC": str(tmp_path)}
    return {**variables, "STAND_IN_REFUSED": str(tmp_path / "refused"), "PATH": os.environ["PATH"]}


@NEEDS_GCC
def test_tm_spawn_gives_the_environment_and_the_status(tm_job: dict[str, str], tmp_path: Path) -> None:
    script = f'echo "$WORD" >{tmp_path}/said; exit 7'
    handle = pbs.spawn(tm_job, "b", ["sh", "-c", script], {"WORD": "two words"})
    assert handle.wait(PATIENCE_S) == 7 and (tmp_path / "said").read_text() == "two words\n"
    assert not (tmp_path / "refused").exists()


@NEEDS_GCC
def test_a_signal_to_the_client_reaches_the_task(tm_job: dict[str, str], tmp_path: Path) -> None:
    script = f"trap 'echo got >{tmp_path}/said; exit 5' USR1; echo >{tmp_path}/ready; while :; do sleep 0.05; done"
    handle = pbs.spawn(tm_job, "a", ["sh", "-c", script], {})
    wait_until((tmp_path / "ready").exists, "the task runs")
    assert pbs.alive(handle)
    pbs.signal(handle, signal.SIGUSR1)
    assert handle.wait(PATIENCE_S) == 5 and (tmp_path / "said").read_text() == "got\n"
    assert not pbs.alive(handle)


@NEEDS_GCC
def test_one_client_starts_a_task_on_each_node_and_has_the_highest_status(
    tm_job: dict[str, str], tmp_path: Path
) -> None:
    library = tmp_path / "lib" / "libpbs.so"
    script = f"mkdir {tmp_path}/first 2>/dev/null && exit 2; exit 3"
    words = [sys.executable, "-I", "-S", Path(pbs.__file__).with_name("tm.py"), library, "0,2", "sh", "-c", script]
    assert subprocess.run(words, env=tm_job, timeout=PATIENCE_S).returncode == 3


@NEEDS_GCC
def test_errors_of_the_library_are_told(tm_job: dict[str, str], tmp_path: Path) -> None:
    library = tmp_path / "lib" / "libpbs.so"
    client = [sys.executable, "-I", "-S", str(Path(pbs.__file__).with_name("tm.py"))]
    done = subprocess.run(
        [*client, library, "9", "true"], env=tm_job, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 1 and "no such node" in done.stderr and "Traceback" not in done.stderr
    outside = {**tm_job, "PBS_MOMPORT": ""}
    del outside["PBS_MOMPORT"]
    done = subprocess.run(
        [*client, library, "0", "true"], env=outside, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 1 and "not that of a job's task" in done.stderr
    broken = tmp_path / "broken.so"
    broken.write_text("no library")
    done = subprocess.run(
        [*client, broken, "0", "true"], env=tm_job, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    with pytest.raises(ManagerError, match="neither libpbs"):
        pbs.spawn({**outside, "PATH": "/nowhere"}, "a", ["true"], {})


@pytest.mark.parametrize("wrapped", [False, True], ids=["srun itself", "srun is a script"])
def test_only_srun_s_own_second_process_is_killed(tmp_path: Path, wrapped: bool) -> None:
    """A script that starts the real srun and waits for it has the client as its child."""
    python, client = os.path.realpath(sys.executable), tmp_path / "srun"
    body = "import ctypes, os, signal, time\nctypes.CDLL(None).prctl(15, b'srun')\n"
    body += f"signal.signal(signal.SIGUSR1, lambda *_: open({str(tmp_path / 'lives')!r}, 'x'))\n"
    body += f"if {wrapped} or os.fork() == 0:\n    open({str(tmp_path / 'pid')!r}, 'x').write(f'{{os.getpid()}}\\n')\n"
    (tmp_path / "client.py").write_text(f"{body}time.sleep(60)\n")
    client.write_text(f"#!/bin/sh\n{'' if wrapped else 'exec '}{python} -I -S {tmp_path / 'client.py'}\nexit 1\n")
    client.chmod(0o755)
    handle = subprocess.Popen([client], start_new_session=True)
    try:
        pid = int(wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip(), "it runs"))
        slurm.settled(handle)
        if wrapped:
            processes.send_signal(pid, signal.SIGUSR1)
            wait_until((tmp_path / "lives").exists, "the client lives", patience_s=5.0 * SLOWNESS)
        else:
            wait_until(lambda: not processes.alive(pid), "the second process has ended")
        assert handle.poll() is None
    finally:
        os.killpg(handle.pid, signal.SIGKILL)
        handle.wait()

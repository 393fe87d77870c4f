"""Answers of hosts through a manager's client that labels lines and cuts long ones."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from agents.linux import processes
from console.cli.mesh.host_progress import Lines
from console.deploy.managed import steps
from console.deploy.managed.steps import _Stream, job_ends_with_input
from console.deploy.mesh import lifecycle
from console.deploy.ssh import bootstrap
from console.errors import ConsoleError
from console.settings import Settings, load
from redmesh.settings.keeper_file import KeeperFile

#: As in console/deploy/managed/starter.py, which is no module of its own.
LONGEST = 1000


def test_answers_longer_than_a_line_of_the_client_arrive_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    config = json.dumps({"nodes": ["n" * 500] * 8})
    lines = []
    for label, host in enumerate(("n0", "n1")):
        (tmp_path / "redmesh" / "nodes" / f"mesh-{host}").mkdir(parents=True)
        (tmp_path / "redmesh" / "nodes" / f"mesh-{host}" / "keeper.json").write_text(config)
        bootstrap.serve(f"w@{host}", io.BytesIO(f"('facts', {{'node': 'mesh-{host}'}}, [])\n".encode()), LONGEST)
        said = capfdbinary.readouterr().out.splitlines()
        assert max(map(len, said)) <= LONGEST < 1024
        lines.append([b"%d: %s\n" % (label, line) for line in said])
    mixed = b"".join(line for pair in zip(*lines, strict=True) for line in pair)
    command = [sys.executable, "-S", "-c", f"import os; os.write(1, {mixed!r}); os.read(0, 1)"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as client:
        stream = _Stream(client, ["n0", "n1"], "w", None)
        for host in ("n0", "n1"):
            answer = json.loads(stream.answer(host, 20.0))
            assert answer["config"] == config and answer["state"].endswith(f"mesh-{host}")


@pytest.mark.parametrize(("manager", "ends"), [("slurm", True), ("grid_engine", True), ("pbs", False), ("own", False)])
def test_a_shell_outside_of_the_job_knows_whether_nodes_end_with_their_input(
    tmp_path: Path, manager: str, ends: bool
) -> None:
    """If it signalled srun, Slurm would kill the keepers of the nodes before they have removed their files."""
    settings = load(environ={"XDG_STATE_HOME": str(tmp_path), "REDMESH_JOB": str(tmp_path / "jobs" / "slurm-c.1")})
    run = str(tmp_path / "run")
    config = KeeperFile(
        run=run, state=settings.job, mesh="ab", boot_id="b", login="l", nodes=(), cpas=1, signalled_by=manager
    )  # fmt: skip
    assert job_ends_with_input(settings, config) is ends
    assert not job_ends_with_input(settings, None)


def job_of_slurm(home: Path) -> Settings:
    """A job's mesh whose keeper was killed, for a shell outside of the job."""
    settings = load(environ={"XDG_STATE_HOME": str(home), "REDMESH_JOB": str(home / "jobs" / "slurm-c.1")})
    state, run = Path(settings.state_dir), home / "run" / settings.mesh
    for directory in (state, run):
        directory.mkdir(parents=True, mode=0o700)
    config = KeeperFile(
        run=str(run), state=str(state), mesh=settings.mesh, boot_id="b", login="l", nodes=(), cpas=1,
        signalled_by="slurm",
    )  # fmt: skip
    (state / "keeper.json").write_text(json.dumps(config.to_json()))
    return settings


def record(settings: Settings, client: "subprocess.Popen[bytes]") -> None:
    rows = [[client.pid, processes.start_time(client.pid)]]
    (Path(settings.state_dir) / "steps.json").write_text(json.dumps(rows))


def test_down_from_a_shell_outside_of_the_job_lets_clients_end_by_themselves(tmp_path: Path) -> None:
    """The client here exits when the mesh's directory of sockets is gone."""
    settings = job_of_slurm(tmp_path)
    script = f"while [ -d {tmp_path}/run/{settings.mesh} ]; do sleep 0.02; done"
    with subprocess.Popen(["sh", "-c", script], start_new_session=True) as client:
        try:
            record(settings, client)
            lifecycle.down(settings, Lines(), force=True)
            assert client.wait() == 0
        finally:
            client.kill()


def test_down_fails_if_a_client_of_the_manager_does_not_exit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client can hang in the kernel; here it leads no group of processes, and thus gets no signal."""
    monkeypatch.setattr(steps, "END_S", 0.0)
    settings = job_of_slurm(tmp_path)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as client:
        try:
            record(settings, client)
            with pytest.raises(ConsoleError, match="client processes do not exit"):
                lifecycle.down(settings, Lines(), force=True)
            assert client.poll() is None
        finally:
            client.kill()

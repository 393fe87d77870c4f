"""What the facts of a host tell: rooms, clocks, sizes; and what the mesh's plan makes of hosts."""

from pathlib import Path
from typing import Any

import pytest

from agents.pct.images import ram_disk
from console.cli.mesh.host_progress import Silent
from console.deploy.hosts.description import Host, read_hosts
from console.deploy.hosts.host_state_file import HostStateFile
from console.deploy.hosts.host_states import HostFailed, State
from console.deploy.mesh import plan
from console.deploy.mesh.checks import _from_facts
from console.deploy.mesh.upgrade import refuse_strangers
from console.deploy.ssh import bootstrap
from console.deploy.ssh.connection import _host_and_port
from console.deploy.ssh.worker_pool import HostTask, WorkerPool, _clock_off
from console.settings import Settings, load

WELL = {
    "python": "/usr/bin/python3", "version": "3.11.2", "tag": "cpython-311", "processors": 8, "gpus": 2, "uid": 1000,
    "boot": "b", "clock": 0.0, "connection": "10.0.0.254 50000 10.0.0.1 22", "shm_free": 1 << 33, "tmp_free": 1 << 33,
    "state_free": 1 << 33, "state": "/home/ada/.local/state/redmesh/nodes/m-n1", "run": "/tmp/redmesh-1000/m-n1",
    "ram_disk": "", "programs": "/dev/shm", "writable": True, "agents": [], "keeper": 0, "agent": "", "config": "",
}  # fmt: skip


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    path = tmp_path / "mesh.toml"
    path.write_text('ssh_config = "/dev/null"\n[[hosts]]\nname = "n[1-3]"\naddress = "10.0.0.[1-3]"\n')
    return load(config=str(path), environ={"XDG_STATE_HOME": str(tmp_path)})


def errand(settings: Settings, host: Host, **facts: Any) -> HostTask:
    made = HostTask(host, WorkerPool(settings, Silent()))
    made.facts = {**WELL, **facts}
    made.state = State.READY
    return made


@pytest.mark.parametrize(
    ("facts", "off_s", "code", "grave"),
    [
        ({}, 0.0, None, None),
        ({"shm_free": 1 << 20}, 0.0, "space", True),
        ({"shm_free": 32 << 20}, 0.0, "space", False),
        ({"ram_disk": "is read-only", "programs": "/tmp"}, 0.0, "ram_disk", False),
        ({"ram_disk": "does not exist", "programs": ""}, 0.0, "ram_disk", True),
        ({"state_free": 0}, 0.0, "space", True),
        ({"shm_free": -1}, 0.0, None, None),  # it cannot be told
        ({"writable": False}, 0.0, "permission", True),
        ({}, 3.0, "clock", False),
        ({}, -3600.0, "clock", True),
        ({"processors": 2}, 0.0, "processors", False),
    ],
)
def test_what_a_host_says_becomes_findings(
    settings: Settings, facts: dict[str, Any], off_s: float, code: str | None, grave: bool | None
) -> None:
    one = errand(settings, Host("n1", "10.0.0.1", processors=4), **facts)
    one.clock_off_s = off_s
    found = _from_facts(one, settings, None)
    assert [(finding.code, finding.grave) for finding in found] == ([(code, grave)] if code else [])


def test_a_clock_is_off_by_what_the_round_trip_does_not_explain() -> None:
    assert (
        _clock_off(100.5, 100.0, 101.0) == 0
        and _clock_off(103.0, 100.0, 101.0) == 2
        and _clock_off(90, 100, 101) == -10
    )


def test_processors_are_numbered_in_the_order_of_the_description(settings: Settings, tmp_path: Path) -> None:
    """Hosts that did not answer keep what they had; those nobody knows have none until they are known, at the end."""
    hosts = read_hosts(settings)
    ledger = HostStateFile(str(tmp_path))
    one, two = errand(settings, hosts[0], processors=4), errand(settings, hosts[2], processors=2)
    nodes = plan.plan_nodes(hosts, {"n1": one, "n3": two}, ledger, settings)
    assert [list(node.processors) for node in nodes] == [[0, 1, 2, 3], [], [4, 5]]
    assert nodes[0].address == "tls://10.0.0.1:7117/n1" and nodes[0].gpus == (0, 1)
    late = errand(settings, hosts[1], processors=3, connection="10.0.0.254 50000 10.0.0.2 22")
    new = errand(settings, Host("n9", "10.0.0.9"), processors=1)
    every, grown = plan.plan_growth(
        nodes, [*hosts, new.host], {"n1": one, "n2": late, "n9": new}, ledger, settings
    )  # fmt: skip
    assert [(node.id, node.name, list(node.processors)) for node in grown] == [(2, "n2", [6, 7, 8]), (4, "n9", [9])]
    assert [node.name for node in every] == ["n1", "n2", "n3", "n9"]
    ledger.put(hosts[1], 3, 0)
    ledger.write()
    again = HostStateFile(str(tmp_path))
    assert again.size_of("n2") == (3, 0) and again.has_ours() == [hosts[1]]
    again.clear(["n2"])
    assert HostStateFile(str(tmp_path)).has_ours() == [] and HostStateFile(str(tmp_path)).size_of("n2") == (3, 0)


def test_the_file_of_hosts_is_not_made_again_below_a_removed_directory(tmp_path: Path) -> None:
    """The keeper of a batch job's mesh may remove STATE while ``mesh down`` works."""
    ledger = HostStateFile(str(tmp_path / "state"))
    ledger.put(Host("n1", "10.0.0.1"), 1, 0)
    ledger.clear(["n1"])
    assert not ledger.has_ours() and not (tmp_path / "state").exists()


def test_an_address_that_cannot_be_told(settings: Settings) -> None:
    with pytest.raises(HostFailed, match="does not report the address"):
        plan.agent_place(errand(settings, Host("n1", "x"), connection=""), settings)
    place = plan.agent_place(errand(settings, Host("n1", "x"), connection="fe80::1%eth0 1 fe80::2%eth0 22"), settings)
    assert plan.joined(place) == "[fe80::2]:7117"


@pytest.mark.parametrize(("theirs", "fits"), [(1, False), (2, True), (3, True), (4, True), (5, False)])
def test_neighbours_in_protocol_understand_each_other(theirs: int, fits: bool) -> None:
    if fits:
        refuse_strangers(theirs, ours=3, oldest=2)
        return
    with pytest.raises(HostFailed, match=f"speaks protocol {theirs}, this version 2 to 3"):
        refuse_strangers(theirs, ours=3, oldest=2)


@pytest.mark.parametrize(
    ("text", "place"),
    [("gate", ("gate", 0)), ("gate:22", ("gate", 22)), ("[::1]:22", ("::1", 22)), ("::1", ("::1", 0))],
)
def test_jump_hosts_are_split_into_host_and_port(text: str, place: tuple[str, int]) -> None:
    assert _host_and_port(text) == place


@pytest.mark.parametrize("text", ["-oProxyCommand=x", "", "gate:x"])
def test_jump_hosts_that_are_none(text: str) -> None:
    with pytest.raises(HostFailed):
        _host_and_port(text)


@pytest.mark.parametrize(
    ("linger", "conf", "run", "codes"),
    [
        (False, "", "/run/user/0/redmesh/1", ["linger"]),
        (True, "[Login]\nKillUserProcesses=yes\nKillExcludeUsers=\n", "/run/user/0/redmesh/1", []),
        (False, "[Login]\nKillUserProcesses=yes\nKillExcludeUsers=\n", "/run/user/0/redmesh/1", ["linger", "logout"]),
        (False, "[Login]\nKillUserProcesses=yes\n", "/tmp/redmesh-0/1", []),
        (False, "[Login]\nKillUserProcesses=yes\nKillOnlyUsers=jane\nKillExcludeUsers=\n", "/tmp/redmesh-0/1", []),
        (False, "nonsense", "/tmp/redmesh-0/1", []),
    ],
)
def test_what_a_logout_does(tmp_path: Path, linger: bool, conf: str, run: str, codes: list[str]) -> None:
    from console.deploy.personal.logind import dangers

    assert dangers(run, str(tmp_path), 0) == [], "without systemd nothing"
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    (tmp_path / "etc/systemd/logind.conf.d").mkdir(parents=True)
    (tmp_path / "etc/systemd/logind.conf.d/50-site.conf").write_text(conf)
    if linger:
        (tmp_path / "var/lib/systemd/linger").mkdir(parents=True)
        (tmp_path / "var/lib/systemd/linger/root").touch()
    assert [danger.code for danger in dangers(run, str(tmp_path), 0)] == codes


@pytest.mark.parametrize(("mode", "usable"), [(0o700, True), (0o1777, True), (0o777, False), (0o770, False)])
def test_a_place_for_programs_that_agents_leave_out_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, usable: bool
) -> None:
    """Others could rename the files there."""
    place = tmp_path / "programs"
    place.mkdir()
    place.chmod(mode)
    monkeypatch.setenv("TMPDIR", str(place))
    assert str(place) in bootstrap.program_places()
    assert ("rename" in bootstrap.unusable(str(place))) is not usable
    assert usable or str(place) not in ram_disk.places()

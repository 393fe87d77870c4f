"""System mode: root's mesh, everybody's launches. Users are ada and bob; root's part is done by ``mesh up``."""

import asyncio
import contextlib
import functools
import json
import os
import shlex
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.linux import cgroup
from console.settings import load
from console.tui.sources.database import MachineReader
from db.store.store import open_store
from db.views.viewer import open_viewer
from tests.support.hosts import MakeHosts, NamespaceHost, NamespaceHosts
from tests.support.look import look, processors
from tests.support.mariadb import Server
from tests.support.mesh import Run, while_up
from tests.support.others import python_for_others
from tests.support.system_mesh import SystemMesh
from tests.support.viewer_reach import Reach
from tests.support.waiting import PATIENCE_S, freeze, wait_until

LEFT = "ls -d /dev/shm/redmesh-2100*/launch-* /run/redmesh-0/*/launch-* 2>/dev/null"
IDENTITY = r"""
echo "uid $(id -u) gid $(id -g) groups $(id -G) umask $(umask)"
grep -E '^(Uid|Gid|Groups|CapInh|CapPrm|CapEff|CapBnd|CapAmb):' /proc/self/status
grep ^0:: /proc/self/cgroup
"""


@pytest.fixture(scope="module")
def hosts(netns_hosts: MakeHosts) -> NamespaceHosts:
    python_for_others()
    made: NamespaceHosts = netns_hosts(2, users=("ada", "bob"))
    groups = {"node-only": (30001, [*made]), "readers": (30002, [made, *made]), "half": (30003, [made[0]])}
    for name, (gid, places) in groups.items():  # ``made`` is the login processor
        for place in places:
            with open(place.directory / "group", "a") as group:
                group.write(f"{name}:x:{gid}:ada\n")
    return made


@pytest.fixture(scope="module")
def mesh(hosts: NamespaceHosts, sql_server: Server) -> Iterator[SystemMesh]:
    os.chmod(sql_server.directory, 0o755)
    for host in hosts:
        for name in ("prolog", "epilog"):
            (host.directory / name).write_text(
                f"#!/bin/sh\necho $REDMESH_STEP $REDMESH_LAUNCHER $REDMESH_USER $(id -u) >> /run/{name}.log\n"
                f"env | sort > /run/{name}.env\n[ ! -e /run/{name}.fails ] || {{ echo no good; exit 3; }}\n"
                f"[ ! -e /run/{name}.daemon ] || sleep 986 &\n"
            )
            (host.directory / name).chmod(0o755)
    made = SystemMesh(hosts, sql_server, prolog="/run/host/prolog", epilog="/run/host/epilog")
    with while_up(made):
        yield made


@pytest.fixture(autouse=True)
def settled(mesh: SystemMesh) -> Iterator[None]:
    """Afterwards every processor is free, and no host has a process or a directory of a user's launch."""
    yield
    wait_until(lambda: processors(mesh, "free") == 4, "every processor is free")
    for host in mesh.hosts:

        def left(host: NamespaceHost = host) -> str:
            return str(host.run("sh", "-c", LEFT).stdout)

        wait_until(lambda: not left(), lambda: f"nothing is left on {host.name}:\n{left()}{host.processes()}")  # noqa: B023


def run_in(mesh: SystemMesh, gid: int, groups: str, *command: str) -> Run:
    """Run a command as ada with this primary group and supplementary groups."""
    ids = ("--reuid", "21001", "--regid", str(gid), *(("--groups", groups) if groups else ("--clear-groups",)))
    return mesh.run("setpriv", *ids, "--", *command, env=mesh.user_env("ada"))


def test_a_job_is_its_users_exactly_on_every_node(mesh: SystemMesh) -> None:
    command = f"umask 027; yod -sz 4 --label sh -c {shlex.quote(IDENTITY)}"
    done = run_in(mesh, 21001, "21001,30002", "sh", "-c", command)
    for rank in range(4):
        said = [line.partition(": ")[2] for line in done.stdout.splitlines() if line.startswith(f"{rank}: ")]
        assert said[0] == "uid 21001 gid 21001 groups 21001 30002 umask 0027", done.stderr
        words = {line.split(":")[0]: line.split(":")[1].split() for line in said[1:]}
        assert words["Uid"] == words["Gid"] == ["21001"] * 4 and words["Groups"] == ["21001", "30002"]
        assert [words[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Amb")] == [["0" * 16]] * 4
        assert words["CapBnd"] != ["0" * 16]
        assert not cgroup.parent_directory() or said[-1].startswith("0::/redmesh-launch-"), "and in its control group"


@pytest.mark.parametrize(
    ("gid", "groups", "on_h1", "on_h2", "told"),
    [
        (30002, "21001,30002", "30002 21001", "30002 21001", ""),  # sg readers
        (21001, "", "21001", "21001", ""),
        (30002, "", "30002", "30002", ""),
        (30003, "21001,30003", "30003 21001", "21001",
         "yod: h2: ranks are not in group 30003, as yod is: the user database there does not have ada in it; "
         "the primary group of these ranks is ada (21001)\n"),
        (21001, "0,21001,21002,30002", "21001 30002", "21001 30002",
         "yod: h1-h2: ranks are not in groups root (0), bob (21002), as yod is: "
         "the user database there does not have ada in them\n"),
    ],
)  # fmt: skip
def test_a_launch_has_the_callers_groups_within_each_nodes_database(
    mesh: SystemMesh, gid: int, groups: str, on_h1: str, on_h2: str, told: str
) -> None:
    """And nobody gets a group that only the node has, which no caller on the login processor is in."""
    script = "f=$(mktemp -p /dev/shm) && echo $(hostname) $(stat -c %g $f) $(id -G); rm $f"
    done = run_in(mesh, gid, groups, "yod", "-sz", "4", "sh", "-c", script)
    assert (done.returncode, done.stderr) == (0, told)
    expected = [f"h1 {on_h1.split()[0]} {on_h1}"] * 2 + [f"h2 {on_h2.split()[0]} {on_h2}"] * 2
    assert sorted(done.stdout.splitlines()) == expected


#: Prints the members of a launch of ada's (its reply in argv, or a new one), or why there are none.
ASKER = """
import json, os, sys
from pathlib import Path
from agents.link.client import Client
from agents.wire.errors import AgentError
run, *given = sys.argv[1:]
started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
who = {"login": "", "pid": os.getpid(), "pid_started": started, "command": "x"}
with Client(f"{run}/cpa-0.sock", "launcher") as cpa:
    asked = {"op": "allocate", "key": os.urandom(16).hex(), "size": 1, **who}
    reply = json.loads(given[0]) if given else cpa.call(asked)
    mine = {name: reply[name] for name in ("launcher", "cookie")}
    forged = {"groups": "0:0", "gid": 0, "uid": 0, "members": [["", "0:0"]]}
    try:
        print(json.dumps(cpa.call({"op": "credential", "common": "0" * 64, **mine, **forged})["members"]))
    except AgentError as error:
        print(error.message)
    if not given:
        print(json.dumps(reply), flush=True)
        sys.stdin.read()
        cpa.call({"op": "finish", "exit_status": 0, **mine})
"""


def test_a_credential_has_the_groups_of_the_process_that_asks_which_is_the_launchs_user(mesh: SystemMesh) -> None:
    words = ["python", "-c", ASKER, str(mesh.run_dir)]
    with mesh.start_as("ada", *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as ada:
        assert ada.stdout is not None and ada.stdin is not None
        assert json.loads(ada.stdout.readline())[1:] == [["", "21001:21001,30002"]]
        reply = ada.stdout.readline()
        launcher = json.loads(reply)["launcher"]
        assert mesh.as_user("bob", *words, reply).stdout == f"launcher {launcher} is another user's\n"
        assert json.loads(run_in(mesh, 30002, "", *words, reply).stdout)[1:] == [["", "30002:"]]
        assert len(json.loads(mesh.run("sh", "-c", 'PATH=$0 exec "$@"', f"{mesh.bin}:/bin", *words, reply).stdout)) == 1
        ada.stdin.close()
        assert ada.wait() == 0


def test_tasks_of_a_job_have_the_groups_of_the_command_that_submitted_it(mesh: SystemMesh) -> None:
    out = "/dev/shm/groups-of-a-task"  # on the node
    try:
        done = run_in(mesh, 30002, "", "mesh", "submit", "--quiet", "--wait", "--output", out, "--", "id", "-G")
        assert done.returncode == 0, done.stderr
        found = [host.run("sh", "-c", f"stat -c %g {out} && cat {out}").stdout for host in mesh.hosts]
        assert sorted(found) == ["", "30002\n30002\n"]
    finally:
        for host in mesh.hosts:
            host.run("rm", "-f", out)


@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="the kernel has no FUSE here")
def test_mounted_files_are_the_users_and_only_over_what_is_the_users(mesh: SystemMesh) -> None:
    data = mesh.home / "ada" / "data"
    data.mkdir()
    (data / "in").write_text("of ada\n")
    for path in (data, data / "in"):
        os.chown(path, 21001, 21001)
    script = (
        f"cd {data} && cat in && echo out > out && stat -c '%u %g' in out && id -u && grep CapEff /proc/self/status"
    )
    done = mesh.as_user("ada", "yod", "-io", str(data), "-w", "h1", "-sz", "1", "sh", "-c", script)
    assert done.stdout.split("\n") == [
        "of ada", "21001 21001", "21001 21001", "21001", "CapEff:\t0000000000000000", "",
    ], done.stderr  # fmt: skip
    assert (data / "out").stat().st_uid == 21001
    done = mesh.as_user(
        "ada", "yod", "-io", "/etc:ro", "-w", "h1", "-sz", "1", "sh", "-c", "grep -c ' /etc fuse' /proc/mounts"
    )
    assert done.stdout == "0\n" and "the directory there is another user's" in done.stderr


def test_limits_are_those_of_the_users_shell(mesh: SystemMesh) -> None:
    shell = "ulimit -S -c 0 -s 4096 -n 200 -f 100000; yod -sz 2 sh -c 'ulimit -S -c; ulimit -s; ulimit -n; ulimit -f'"
    done = mesh.as_user("ada", "bash", "-c", shell, check=True)
    assert sorted(done.stdout.split()) == sorted(["0", "4096", "200", "200000"] * 2)  # sh counts -f in 512 bytes


def test_prolog_and_epilog_are_roots_and_hear_nothing_of_the_user(mesh: SystemMesh) -> None:
    hostile = {"LD_PRELOAD": "/tmp/evil.so", "PYTHONPATH": "/tmp/evil", "BASH_ENV": "/tmp/evil.sh", "IFS": "x"}
    words = [f"{name}={value}" for name, value in hostile.items()]
    for host in mesh.hosts:
        host.run("rm", "-f", "/run/prolog.log", "/run/epilog.log")
    done = mesh.as_user("ada", "yod", "-sz", "4", "--export", ",".join(["ALL", *words]), "/bin/true")
    assert done.returncode == 0, done.stderr
    for host in mesh.hosts:
        for name in ("prolog", "epilog"):
            told = host.run("cat", f"/run/{name}.log").stdout.split()
            assert told[0] == name and told[2:] == ["ada", "0"], (host.name, told)
            names = {line.partition("=")[0] for line in host.run("cat", f"/run/{name}.env").stdout.splitlines()}
            assert not names & (set(hostile) | {"HOME", "USER", "REDMESH_LAUNCH"}), names


def test_a_node_whose_prolog_fails_is_left_out(mesh: SystemMesh) -> None:
    mesh.hosts[1].run("touch", "/run/prolog.fails")
    try:
        done = mesh.as_user("ada", "yod", "-sz", "2", "-w", "h2", "/bin/true")
        assert done.returncode == 125 and "h2: the prolog ended with 3: no good" in done.stderr
        assert mesh.as_user("ada", "yod", "-sz", "2", "hostname", check=True).stdout == "h1\nh1\n"
    finally:
        mesh.hosts[1].run("rm", "/run/prolog.fails")
    wait_until(lambda: set(mesh.states().values()) == {"up"}, "h2 is tried again", step_s=0.1)


def test_two_users_share_the_mesh_and_touch_only_their_own(mesh: SystemMesh) -> None:
    yod = mesh.start_as("ada", "yod", "-sz", "2", "sleep", "600", stderr=subprocess.PIPE, text=True)
    wait_until(lambda: processors(mesh, "busy") == 2, "ada's launch runs")
    (launcher,) = [str(one["id"]) for one in look(mesh)["launchers"]]
    assert mesh.as_user("bob", "yod", "-sz", "2", "id", "-un", check=True).stdout == "bob\nbob\n"
    for command in (
        ["yod", "--attach", launcher],
        ["yod", "--signal", "TERM", launcher],
        ["pingd", "-kill", "-NoInquire", "-all"],
        ["mesh", "stacks", launcher],
    ):
        refused = mesh.as_user("bob", *command)
        assert refused.returncode != 0 and "Traceback" not in refused.stderr, command
        assert yod.poll() is None, command
    shown = mesh.as_user("bob", "showmesh", check=True).stdout
    assert "ada" in shown
    done = mesh.as_user("ada", "yod", "--signal", "TERM", launcher)
    assert done.returncode == 0, done.stderr
    assert yod.wait(PATIENCE_S) == 128 + signal.SIGTERM


def test_an_interrupt_reaches_a_users_yod_and_nobody_elses(mesh: SystemMesh) -> None:
    """Its socket is in the user's own room, where the user may also put what is none."""
    for who in ("ada", "root"):
        yod = mesh.start_as("ada", "yod", "-sz", "2", "sleep", "600")
        wait_until(lambda: processors(mesh, "busy") == 2, "it runs")
        launcher = str(look(mesh)["launchers"][0]["id"])
        words = ("pingd", "-NoInquire", "-interrupt", "-job", launcher)
        assert mesh.as_user("bob", *words).returncode
        done = mesh.run(*words) if who == "root" else mesh.as_user(who, *words)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert yod.wait(PATIENCE_S) == 128 + signal.SIGTERM


def test_root_looks_after_a_users_launch(mesh: SystemMesh) -> None:
    yod = mesh.start_as("ada", "yod", "-sz", "2", "sleep", "600")
    wait_until(lambda: processors(mesh, "busy") == 2, "it runs")
    launcher = str(look(mesh)["launchers"][0]["id"])
    wait_until(lambda: mesh.run("mesh", "procs", launcher).stdout.count("sleep") == 2, "root sees both", step_s=0.5)
    done = mesh.run("yod", "--signal", "TERM", launcher)
    assert done.returncode == 0, done.stderr
    assert yod.wait(PATIENCE_S) == 128 + signal.SIGTERM


def test_a_user_who_listens_in_place_of_a_yod_holds_nobody_up(mesh: SystemMesh) -> None:
    yod = mesh.start_as("ada", "yod", "-sz", "2", "sleep", "600")
    wait_until(lambda: processors(mesh, "busy") == 2, "it runs")
    launcher = str(look(mesh)["launchers"][0]["id"])
    place = wait_until(lambda: next((mesh.home / "run").rglob(f"yod-{launcher}.sock"), None), "the yod listens")
    assert place is not None
    words = ("pingd", "-NoInquire", "-interrupt", "-job", launcher)
    place.unlink()
    with socket.socket(socket.AF_UNIX) as deaf, socket.socket(socket.AF_UNIX) as first:
        deaf.bind(str(place))
        deaf.listen(0)
        first.connect(str(place))
        told = mesh.as_user("ada", *words)
        assert told.returncode == 125 and "takes no connections" in told.stderr, told
    place.unlink()
    place.symlink_to(mesh.run_dir / "cpa-0.sock")  # root's: nothing of an observer's is said to it
    told = mesh.as_user("ada", *words)
    assert told.returncode == 125 and "pingd -kill" in told.stderr, told
    assert mesh.as_user("ada", "pingd", "-NoInquire", "-kill", "-job", launcher).returncode == 0
    yod.wait(PATIENCE_S)


def test_a_killed_launch_child_leaves_nothing_of_a_user(mesh: SystemMesh) -> None:
    host = mesh.hosts[0]
    host.run("rm", "-f", "/run/epilog.log")
    yod = mesh.start_as("ada", "yod", "-batch", "-sz", "2", "-w", "h1", "sh", "-c", "setsid sleep 987 & sleep 987",
                        stderr=subprocess.PIPE, text=True)  # fmt: skip
    wait_until(lambda: list(host.processes().values()).count("sleep 987") == 4, "it runs")
    assert mesh.kill_on(host, "redmesh-launch")
    assert yod.wait(PATIENCE_S) != 0
    wait_until(lambda: "sleep 987" not in " ".join(host.processes().values()), "no process is left")
    wait_until(lambda: "ada 0" in host.run("cat", "/run/epilog.log").stdout, "the epilog has run all the same")


def test_an_epilog_is_run_whoever_was_killed(mesh: SystemMesh) -> None:
    """PCT and launch child at once: the next PCT ends the ranks, runs the epilog and removes the user's files."""
    host = mesh.hosts[0]
    host.run("rm", "-f", "/run/epilog.log")
    script = "env -i setsid sleep 987 & env -i sleep 987 & sleep 987"  # two that carry no mark
    yod = mesh.start_as("ada", "yod", "-batch", "-sz", "1", "-w", "h1", "sh", "-c", script, stderr=subprocess.DEVNULL)
    wait_until(lambda: list(host.processes().values()).count("sleep 987") == 3, "it runs")
    host.run("mkdir", "/dev/shm/redmesh-\N{SUPERSCRIPT TWO}", "/dev/shm/redmesh-4294967295")  # anybody may
    for pid in mesh.pids_on(host, "redmesh-pct") + mesh.pids_on(host, "redmesh-launch"):
        os.kill(pid, signal.SIGKILL)
    assert yod.wait(PATIENCE_S) != 0
    wait_until(lambda: "ada 0" in host.run("cat", "/run/epilog.log").stdout, "the epilog has run")
    wait_until(lambda: not host.run("sh", "-c", LEFT).stdout, "nothing is left")
    assert host.run("cat", "/run/epilog.log").stdout.count("\n") == 1
    wait_until(lambda: "sleep 987" not in " ".join(host.processes().values()), "no process is left")
    assert not host.run("sh", "-c", "ls /run/redmesh-0/*/epilog-*").stdout
    host.run("rmdir", "/dev/shm/redmesh-\N{SUPERSCRIPT TWO}", "/dev/shm/redmesh-4294967295")
    wait_until(lambda: set(mesh.states().values()) == {"up"}, "h1 is up again", step_s=0.1)


#: A yod of a user's own, that gives its processors back and keeps its ranks on them.
GREEDY = """
import sys
from console.launch.daemons.allocation import Allocation
confirm = Allocation.confirm
def finish_at_once(self, plan, confirmed):
    def then():
        finish = self.cookied("finish", exit_status=0, processor_error=False, reason="")
        self._daemons.cpa.ask(finish, lambda *_: None, 3.0)
        confirmed()
    confirm(self, plan, then)
Allocation.confirm = finish_at_once
sys.argv[0] = "yod"
from console.cli.yod.command import main
main()
"""


def test_a_processor_is_never_in_two_launches(mesh: SystemMesh) -> None:
    host = mesh.hosts[0]
    command = ["python", "-c", GREEDY, "-sz", "2", "-w", "h1", "sleep", "987"]
    yod = mesh.start_as("ada", *command, stderr=subprocess.DEVNULL)
    wait_until(lambda: "sleep 987" in " ".join(host.processes().values()), "it runs")
    wait_until(lambda: processors(mesh, "free") == 4, "it has given its processors back")
    refused = mesh.as_user("bob", "yod", "-sz", "2", "-w", "h1", "hostname")
    assert refused.returncode == 125 and "h1: processor 0 is still in another launch" in refused.stderr
    assert refused.stdout == "" and yod.poll() is None
    assert mesh.as_user("bob", "yod", "-sz", "2", "hostname", check=True).stdout == "h2\nh2\n"
    for pid, words in host.processes().items():
        if words == "sleep 987":
            os.kill(pid, signal.SIGKILL)
    yod.wait(PATIENCE_S)
    wait_until(lambda: set(mesh.states().values()) == {"up"}, "h1 is tried again", step_s=0.1)
    assert mesh.as_user("bob", "yod", "-sz", "2", "-w", "h1", "hostname", check=True).stdout == "h1\nh1\n"


def test_a_prolog_may_begin_a_daemon(mesh: SystemMesh) -> None:
    """One that holds the prolog's output open: the launch does not wait for it, and ends it with everything else."""
    host = mesh.hosts[0]
    host.run("touch", "/run/prolog.daemon")
    try:
        mesh.as_user("ada", "yod", "-sz", "1", "-w", "h1", "true", check=True)
        assert "sleep 986" not in " ".join(host.processes().values())
    finally:
        host.run("rm", "/run/prolog.daemon")


#: Run by ada: what root's launch children make and remove for her leads elsewhere now and then.
SWAPS = r"""
import os
base = "/dev/shm/redmesh-21001"
def swap(path, to):
    try:
        os.rename(path, path + ".mine"); os.symlink(to, path); os.unlink(path); os.rename(path + ".mine", path)
    except OSError:
        try:
            os.rename(path + ".mine", path)
        except OSError:
            pass
def launches():
    try:
        return [os.path.join(base, name) for name in os.listdir(base) if name.startswith("launch-")]
    except OSError:
        return []
count = 0
while count < 10_000 or not os.path.exists("/tmp/enough"):
    to = ("/dev/shm/redmesh-21002", "/root/canary", "/etc", "/root")[count % 4]
    for path in (base, base + "/images", *launches()):
        swap(path, to)
        count += 1
print(count)
"""


def test_symlinks_in_the_place_of_a_users_directories_lead_root_nowhere(mesh: SystemMesh) -> None:
    host = mesh.hosts[0]
    mesh.as_user("bob", "yod", "-sz", "1", "-w", "h1", "--bcast=always", "/bin/true", check=True)
    host.run("sh", "-c", "mkdir -m 700 -p /root/canary; echo x > /root/canary/secret; chmod 600 /root/canary/secret")
    listing = ("sh", "-c", "ls -lAnd /root /etc /run/host; ls -lAnR /root/canary /dev/shm/redmesh-21002; ls -An /root")
    wait_until(lambda: "launch-" not in host.run(*listing).stdout, "bob's launch has tidied up")
    before = host.run(*listing).stdout
    ada = ["setpriv", "--reuid", "21001", "--regid", "21001", "--clear-groups", "--"]
    swapping = subprocess.Popen([*host.enter, *ada, "/usr/bin/python3", "-c", SWAPS], stdout=subprocess.PIPE)
    try:
        for _ in range(4):
            done = mesh.as_user("ada", "yod", "-sz", "2", "-w", "h1", "--bcast=always", "/usr/bin/id", "-u")
            assert set(done.stdout.split()) <= {"21001"} and "Traceback" not in done.stderr
            wait_until(lambda: mesh.states()["h1"] == "up", "h1 is tried again", step_s=0.1)
    finally:
        host.run("touch", "/tmp/enough")
        said, _ = swapping.communicate(timeout=PATIENCE_S)
        host.run("rm", "/tmp/enough")
    assert int(said) >= 10_000
    host.run("sh", "-c", "rm -rf /dev/shm/redmesh-21001*")
    assert host.run(*listing).stdout == before


def test_a_user_cannot_read_or_trace_the_launch_child(mesh: SystemMesh) -> None:
    """It has the node's key in its memory, and acts as the user."""
    script = r"""
pid=$PPID
cat /proc/$pid/mem /proc/$pid/environ > /dev/null 2>/tmp/said-$YOD_RANK && echo readable
ls /proc/$pid/fd >/dev/null 2>&1 && echo listed
cat /root/.local/state/redmesh/nodes/*/trust/launch.key 2>/dev/null && echo key
grep -E '^Uid' /proc/$pid/status
"""
    done = mesh.as_user("ada", "yod", "-sz", "1", "sh", "-c", script, check=True)
    assert done.stdout.split() == ["Uid:", "21001", "21001", "0", "21001"]


def test_what_looks_into_a_launch_is_its_users(mesh: SystemMesh) -> None:
    """Stack tools and debuggers run as the user for good, with nothing of the launch child's in their hands."""
    launcher = mesh.as_user("ada", "yod", "-detach", "-sz", "4", "sleep", "600", check=True).stdout.strip()
    try:
        told: list[object] = []

        def there() -> bool:
            done = mesh.as_user("ada", "mesh", "stacks", launcher, "--json")
            told[:] = [done.stdout, done.stderr]
            return "clock_nanosleep" in done.stdout and '"ranks": "0-3"' in done.stdout

        wait_until(there, "stacks of both hosts", step_s=0.5)
        assert '"missing": []' in str(told[0])
        script = "grep -E '^(Uid|Gid|Groups|CapPrm|CapEff):' /proc/self/status; ls -l /proc/self/fd; echo $HOME"
        said = mesh.as_user("ada", "mesh", "debug", launcher, "3", "--", "sh", "-c", script, check=True).stdout
        words = {line.split(":")[0]: line.split(":")[1].split() for line in said.splitlines() if ":\t" in line}
        assert words["Uid"] == words["Gid"] == ["21001"] * 4 and words["Groups"] == ["21001", "30002"]
        assert words["CapPrm"] == words["CapEff"] == ["0" * 16]
        assert "socket:" not in said and "/home/ada" in said
        refused = mesh.as_user("bob", "mesh", "debug", launcher, "0", "--", "id")
        assert refused.returncode == 125 and "uid=" not in refused.stdout
    finally:
        mesh.as_user("ada", "yod", "-signal", "KILL", launcher)


#: In ada's HOME on a node, and in what her yod's environment names: each says as whom it was run.
HOSTILE = r"""
set -e
cd /home/ada; mkdir -p .config/gdb evil
say='id -u >> /tmp/ran'
echo "shell $say" | tee .gdbinit .gdbearlyinit .config/gdb/gdbinit .config/gdb/gdbearlyinit >/dev/null
cd evil; echo "import os; os.system('$say')" | tee sitecustomize.py usercustomize.py gdb.py startup.py >/dev/null
chown -R 21001:21001 /home/ada
"""
TO_HERS = (
    "PYTHONSTARTUP=/home/ada/evil/startup.py", "PYTHONPATH=/home/ada/evil", "PYTHONUSERBASE=/home/ada/evil",
    "DEBUGINFOD_URLS=http://127.0.0.1:9/", "GDBHISTFILE=/root/canary", "XDG_CONFIG_HOME=/home/ada/.config",
)  # fmt: skip


def test_a_users_start_up_files_reach_no_tool_of_ours(mesh: SystemMesh) -> None:
    """Neither eu-stack nor gdb, at a crash or on request; her own debugger reads them, as she."""
    host = mesh.hosts[0]
    host.run("sh", "-c", HOSTILE, check=True)
    crash = ("yod", "-sz", "1", "-w", "h1", "-bt", "sh", "-c", "exec env -i sh -c 'kill -SEGV $$'")
    try:
        for hide in ((), ("/usr/bin/eu-stack",)):
            for path in hide:
                host.run("mount", "--bind", "/dev/null", path, check=True)
            done = mesh.as_user("ada", "env", *TO_HERS, *crash)
            assert done.returncode == 128 + signal.SIGSEGV and ("gdb" if hide else "eu-stack") in done.stderr, (
                done.stderr
            )
            assert host.run("cat", "/tmp/ran").stdout == ""
        ada = ["setpriv", "--reuid", "21001", "--regid", "21001", "--clear-groups", "--", "env", "HOME=/home/ada"]
        host.run(*ada, "gdb", "-batch")
        assert set(host.run("cat", "/tmp/ran").stdout.split()) == {"21001"}, "they do say so, where they are read"
    finally:
        host.run("umount", "/usr/bin/eu-stack")
        host.run("sh", "-c", "rm -rf /home/ada/.gdb* /home/ada/.config /home/ada/evil /tmp/ran")


def test_hard_links_in_a_users_directory_give_nothing_away(mesh: SystemMesh) -> None:
    """What is root's, or another's, keeps owner and mode, whatever ada links where her launch child writes."""
    host = mesh.hosts[0]
    mesh.as_user("ada", "yod", "-sz", "1", "-w", "h1", "--bcast=always", "/bin/true", check=True)
    host.run("sh", "-c", "echo x > /dev/shm/roots; chmod 666 /dev/shm/roots; echo y > /dev/shm/bobs; "
                         "chown 21002 /dev/shm/bobs; chmod 600 /dev/shm/bobs")  # fmt: skip
    link = (
        "cd /dev/shm/redmesh-21001; for f in roots bobs; do for n in lock digests; do ln -f ../$f $n; done; done;"
        "mkdir -p images; ln ../roots images/1-00; ln ../roots images/x.part; ls -l . images"
    )
    ada = ["setpriv", "--reuid", "21001", "--regid", "21001", "--clear-groups", "--"]
    linked = host.run(*ada, "sh", "-c", link).stdout
    assert "x.part" in linked, "the kernel lets her link what she may write"
    for _ in range(2):
        done = mesh.as_user("ada", "yod", "-sz", "2", "-w", "h1", "--bcast=always", "/usr/bin/id", "-u")
        assert set(done.stdout.split()) <= {"21001"} and "Traceback" not in done.stderr
    said = host.run("stat", "-c", "%u %a", "/dev/shm/roots", "/dev/shm/bobs").stdout
    assert said == "0 666\n21002 600\n"
    assert host.run("cat", "/dev/shm/bobs").stdout == "y\n"
    host.run("sh", "-c", "rm -rf /dev/shm/redmesh-21001 /dev/shm/roots /dev/shm/bobs")
    wait_until(lambda: mesh.states()["h1"] == "up", "h1 is tried again", step_s=0.1)


def test_a_users_room_that_was_never_given_is_given_and_no_other_is_taken(mesh: SystemMesh) -> None:
    """The RCA may be killed between making a directory and giving it; nobody else can put one there."""
    users = mesh.run_dir / "users"
    mesh.as_user("ada", "yod", "-sz", "1", "true", check=True)
    tried = mesh.as_user("ada", "sh", "-c", f"cd {users} && mv 21001 mine; ln -s /root 21002; rmdir 21001; mkdir 21003")
    assert tried.returncode and "21001" in tried.stderr and sorted(os.listdir(users))[0] == "21001"
    os.chown(users / "21001", 0, 0)
    mesh.as_user("ada", "yod", "-sz", "1", "true", check=True)
    assert (users / "21001").stat().st_uid == 21001 and (users / "21001").stat().st_mode & 0o777 == 0o700


#: What a CPA asks a node that changes sides, with the login processor's certificate.
WIPE = """
from agents.link.client import Client
from agents.link.trust import use_login
use_login("{mesh}", "{state}")
with Client("tls://{address}:7117/h1", "cpa") as client:
    print(client.call({{"op": "wipe"}})["clean"])
"""


def test_a_node_that_is_wiped_has_nothing_of_any_user(mesh: SystemMesh) -> None:
    """Each user's directory is swept as that user, before the node says that it is clean."""
    host = mesh.hosts[0]
    plant = (
        "d=/dev/shm/redmesh-%d; mkdir -p -m 700 $d $d/images; "
        "l=$d/launch-$(stat -Lc %%i /proc/self/ns/pid)-4000000-1-x; "
    )
    plant += "mkdir -m 700 $l; echo old > $l/program; ln $l/program $d/images/4-00; chown -R %d:%d $d"
    for uid in (21001, 21002):
        host.run("sh", "-c", plant % (uid, uid, uid), check=True)
    name = os.path.basename(mesh.run_dir)
    script = WIPE.format(mesh=name, state=mesh.state, address=host.address)
    done = mesh.run("python", "-c", script, env={"PYTHONPATH": str(Path(__file__).parents[3])})
    left = host.run("sh", "-c", "find /dev/shm/redmesh-2100* -type f -size +0").stdout
    assert (done.stdout, left) == ("True\n", ""), done
    wait_until(lambda: mesh.states()["h1"] == "up", "it registers anew", step_s=0.1)


def test_root_is_refused_unless_the_site_allows_it(mesh: SystemMesh) -> None:
    done = mesh.run("yod", "-sz", "1", "true")
    assert done.returncode == 125 and "launches of root are refused" in done.stderr and "allow_root" in done.stderr


def test_somebody_elses_directory_in_the_ram_disk_is_put_aside(mesh: SystemMesh) -> None:
    host = mesh.hosts[0]
    host.run("sh", "-c", "rm -rf /dev/shm/redmesh-21001; mkdir -m 777 /dev/shm/redmesh-21001; "
                         "chown 21002 /dev/shm/redmesh-21001")  # fmt: skip
    mesh.as_user("ada", "yod", "-sz", "1", "-w", "h1", "true", check=True)
    owners = host.run("stat", "-c", "%u %a", "/dev/shm/redmesh-21001").stdout
    assert owners == "21001 700\n"
    host.run("sh", "-c", "rm -rf /dev/shm/redmesh-21001.*")


def test_a_program_travels_and_is_its_users(mesh: SystemMesh, tmp_path: Path) -> None:
    program = mesh.home / "ada" / "prog"
    program.write_text('#!/bin/sh\nstat -c "%u %a" "$0"; echo "$0"\n')
    program.chmod(0o755)
    os.chown(program, 21001, 21001)
    done = mesh.as_user("ada", "yod", "-sz", "2", "--bcast=always", str(program), check=True)
    assert done.stdout.split()[0] == "21001" and "/dev/shm/redmesh-21001/" in done.stdout


@pytest.mark.parametrize(
    ("spoil", "mend", "why"),
    [
        ("mount -o remount,ro /dev/shm", "mount -o remount,rw /dev/shm", " is read-only"),
        ("chmod 700 /dev/shm", "chmod 1777 /dev/shm", ": Permission denied"),
    ],
    ids=["read-only", "closed"],
)
def test_without_a_ram_disk_files_are_in_a_users_directory_of_tmp(
    mesh: SystemMesh, spoil: str, mend: str, why: str
) -> None:
    """Every launch failed. Root makes the directory, so a name that somebody else took does not matter."""
    host, place = mesh.hosts[0], "/tmp/redmesh-programs-21001"
    program = mesh.home / "ada" / "where"
    program.write_text(f'#!/bin/sh\nstat -c "%u %a" "$0" {place}; echo "$0"\n')
    program.chmod(0o755)
    os.chown(program, 21001, 21001)
    host.run("sh", "-c", f"rm -rf {place}*; mkdir -m 777 {place}; chown 21002 {place}; ln -s /root {place}/images")
    host.run("sh", "-c", spoil, check=True)
    try:
        # The user's own TMPDIR has no say.
        command = ("env", "TMPDIR=/home", "yod", "-sz", "1", "-w", "h1", "--bcast=always", str(program))
        done = mesh.as_user("ada", *command, check=True)
        assert done.stderr == f"yod: h1: /dev/shm{why}: programs are copied to /tmp instead\n"
        told = done.stdout.splitlines()
        assert told[:2] == ["21001 500", "21001 700"] and told[2].startswith(f"{place}/launch-")
        left = "find /tmp/redmesh-programs-21001 -name 'launch-*' -o -type f -size +0"
        wait_until(lambda: host.run("sh", "-c", left).stdout == "", "nothing of it is left")
    finally:
        host.run("sh", "-c", f"{mend}; rm -rf {place}*")


def test_only_what_the_configuration_says_listens(mesh: SystemMesh) -> None:
    for host in mesh.hosts:
        lines = host.run("ss", "-ltnH").stdout.splitlines()
        assert sorted(line.split()[3] for line in lines) == [f"{host.address}:22", f"{host.address}:7117"]


def test_a_user_sees_a_well_mesh_and_what_is_roots_is_left_out(mesh: SystemMesh) -> None:
    done = mesh.as_user("ada", "mesh", "status", check=True)
    assert "4 processors on 2 nodes" in done.stdout and "RCA         answers" in done.stdout
    assert "TROUBLE" not in done.stdout and "keeper" not in done.stdout
    assert "owner       root, for all users" in done.stdout
    trust = mesh.as_user("ada", "mesh", "trust", "show", check=True).stdout
    assert "is root's, for all users" in trust and "no certificates" not in trust
    assert json.loads(mesh.as_user("ada", "mesh", "trust", "show", "--json", check=True).stdout)["of_root"] is True
    mesh.run("mesh", "drain", "h2", "--reason", "new disk", check=True)
    told = mesh.as_user("ada", "mesh", "status")
    mesh.run("mesh", "resume", "h2", check=True)
    assert told.returncode == 1 and "h2 is drained: new disk" in told.stdout and "! drained 2" in told.stdout


def test_a_job_of_another_user_is_named_as_such(mesh: SystemMesh) -> None:
    said = mesh.as_user("ada", "mesh", "submit", "--quiet", "--array", "1-9", "--", "sleep", "600", check=True)
    uuid = said.stdout.strip()
    wait_until(lambda: processors(mesh, "busy") == 4, "the job has every processor")
    for command in ("wait", "cancel", "hold", "job show", "job tasks"):
        for name in (uuid, uuid[:8]):
            refused = mesh.as_user("bob", "mesh", *command.split(), name)
            assert refused.returncode == 125 and f"job {uuid[:8]} is ada's" in refused.stderr, command
            assert "ask ada or root" in refused.stderr
    assert f"runuser -l ada -c 'mesh cancel {uuid[:8]}'" in mesh.run("mesh", "cancel", uuid[:8]).stderr
    waiting = mesh.as_user("bob", "mesh", "submit", "--quiet", "--", "true", check=True).stdout.strip()

    def queue() -> list[str]:
        return mesh.as_user("bob", "mesh", "queue", check=True).stdout.splitlines()

    wait_until(lambda: any("1 request in front" in line or "first in the line" in line for line in queue()), "it waits")
    assert queue()[-1].startswith("of other users: ") and " on 4 processors; " in queue()[-1]
    rows = [line.split() for line in mesh.run("mesh", "queue", check=True).stdout.splitlines()]
    assert ["ada", uuid[:8], "running", "4"] in rows and ["bob", "waiting", "1"] in rows
    for user, job in (("bob", waiting), ("ada", uuid)):
        mesh.as_user(user, "mesh", "cancel", job, check=True)


#: What nobody but ada and root may read of her launches.
SECRET = "hunter2"
SHOWS = ("showmesh", "showmesh --json", "mesh history", "mesh history --json", "mesh queue", "pingd", "mesh status")


def reach_of(mesh: SystemMesh, user: str, launchers: set[int]) -> Reach:
    """What a user reads of the system database with the viewers' password and the plain client."""

    def run(words: list[str], given: str) -> str:
        return str(mesh.as_user(user, *words, input=given).stdout)

    return Reach(mesh.viewers_url, run, launchers)


def launchers_in(mesh: SystemMesh, user: str) -> set[int]:
    """The ids of the launches that a user sees, live or ended."""
    shown = json.loads(mesh.as_user(user, "showmesh", "--json", check=True).stdout)["launchers"]
    return {row["id"] for row in [*shown, *json.loads(mesh.as_user(user, "mesh", "history", "--json").stdout)]}


def with_secret(mesh: SystemMesh, user: str) -> list[str]:
    """The commands that show the secret to a user."""
    run = mesh.run if user == "root" else functools.partial(mesh.as_user, user)
    return [words for words in SHOWS if SECRET in run(*words.split()).stdout]


@pytest.fixture
def secretive(mesh: SystemMesh) -> Iterator[str]:
    """Ada's launch, job, waiting request, and launches that succeeded and failed; yields the id of the first."""
    before = launchers_in(mesh, "ada")
    mesh.as_user("ada", "yod", "-sz", "1", "/bin/true", "-p", SECRET, check=True)
    mesh.as_user("ada", "yod", "-sz", "1", "-stage-in", f"/tmp/{SECRET}", "true")
    nap = ("sh", "-c", "sleep 600", "-p", SECRET)
    launcher = mesh.as_user("ada", "yod", "-detach", "-sz", "1", *nap, check=True).stdout.strip()
    job = mesh.as_user("ada", "mesh", "submit", "--quiet", "--array", "1-9", "--", *nap, check=True).stdout.strip()
    other = mesh.as_user("ada", "mesh", "submit", "--quiet", "--", *nap, check=True).stdout.strip()
    try:
        with open_viewer(mesh.database) as viewer:
            wait_until(lambda: viewer.waiting() and not processors(mesh, "free"), "one job runs, and one waits")
        assert len(launchers_in(mesh, "ada") - before) >= 4
        yield launcher
    finally:
        for one in (other, job):
            mesh.as_user("ada", "mesh", "cancel", one)
        mesh.as_user("ada", "yod", "-signal", "KILL", launcher)


#: Asks a CPA for launches, whoever's they are; prints its reply.
ASK = r"""
import json, socket, struct, sys
cpa = socket.socket(socket.AF_UNIX)
cpa.connect(sys.argv[1])
hello = {"op": "hello", "protocol": 2, "role": "launcher", "name": ""}
for message in (hello, {"op": "full_texts", "id": 1, "launchers": json.loads(sys.argv[2])}):
    data = json.dumps(message).encode()
    cpa.sendall(struct.pack("!BI", 0, len(data)) + data)
stream = cpa.makefile("rb")
while True:
    reply = json.loads(stream.read(struct.unpack("!BI", stream.read(5))[1]))
    if "re" in reply:
        print(json.dumps(reply))
        break
"""


def test_a_users_arguments_are_read_by_that_user_and_root(mesh: SystemMesh, secretive: str) -> None:
    """Not by the viewers' password, whatever its account may call or read; and not by a CPA that does not answer."""
    reach = reach_of(mesh, "bob", launchers_in(mesh, "bob"))
    assert {"reading", "launcher", "launchers_ended", "waiting"} <= reach.procedures
    assert reach.statements_with("ada") and reach.statements_with(SECRET) == []
    assert with_secret(mesh, "bob") == []
    names = mesh.as_user("bob", "showmesh", check=True).stdout.split()
    assert {"sh", "yodwork"} <= set(names) and "600" not in names
    words = (python_for_others(), "-P", "-c", ASK, f"{mesh.run_dir}/cpa-0.sock", f"[{secretive}]")
    replies = [json.loads(mesh.as_user(user, *words, check=True).stdout) for user in ("bob", "ada")]
    assert replies[0]["launchers"] == [] and SECRET in replies[1]["launchers"][0]["command"]
    assert with_secret(mesh, "root") == list(SHOWS[:4])
    assert with_secret(mesh, "ada") == list(SHOWS[:5]), "her job's state object is hers"
    assert f"stage-in: /tmp/{SECRET}" in mesh.as_user("ada", "mesh", "history", check=True).stdout
    assert SECRET in mesh.as_user("ada", "mesh", "stacks").stderr, "it asks which of her launches is meant"
    assert SECRET not in mesh.run("mesh", "record", "--seconds", "1", "-", check=True).stdout
    with contextlib.closing(MachineReader(load(config=str(mesh.site)))) as console:  # root's
        seen = [row.command for row in asyncio.run(console.read()).launchers]
        ended = [row.reason for row in asyncio.run(console.history(100))]
    assert f"sh -c sleep 600 -p {SECRET}" in seen and any(SECRET in reason for reason in ended)
    cpa = mesh.pid_of("cpa-0")
    freeze(cpa)
    try:
        shown = mesh.as_user("ada", "showmesh")
    finally:
        os.kill(cpa, signal.SIGCONT)
    assert (shown.returncode, shown.stderr) == (0, "") and SECRET not in shown.stdout and " sh\n" in shown.stdout


def test_what_was_stored_before_an_upgrade_is_hidden_when_a_cpa_starts(mesh: SystemMesh) -> None:
    mesh.as_user("ada", "yod", "-sz", "1", "/bin/true", check=True)
    with open_store(mesh.database) as store:
        (last,) = store.read("SELECT MAX(id) FROM launcher")[0]
        store.execute("UPDATE launcher SET command = ?, full_command = NULL WHERE id = ?", (f"old {SECRET}", last))
    assert SECRET in mesh.as_user("bob", "mesh", "history").stdout
    os.kill(mesh.pid_of("cpa-0"), signal.SIGKILL)
    wait_until(lambda: SECRET not in mesh.as_user("bob", "mesh", "history").stdout, "it is hidden", step_s=0.2)
    assert reach_of(mesh, "bob", {last}).statements_with(SECRET) == []
    wait_until(lambda: f"old {SECRET}" in mesh.as_user("ada", "mesh", "history").stdout, "a CPA answers", step_s=0.2)


def test_a_reservation_that_keeps_a_launch_out_is_told(mesh: SystemMesh) -> None:
    mesh.run("mesh", "reserve", "ada", "h1", "--reason", "course on Thursday", check=True)
    refused = mesh.as_user("bob", "yod", "-w", "h1", "-sz", "1", "true")
    shown = mesh.as_user("bob", "showmesh", check=True).stdout
    assert mesh.as_user("ada", "yod", "-w", "h1", "-sz", "1", "true").returncode == 0
    mesh.run("mesh", "unreserve", "h1", check=True)
    assert refused.returncode == 125
    assert "2 are reserved for ada: showmesh says by whom and why" in refused.stderr
    assert "0..1: reserved for ada, by root: course on Thursday" in shown
    assert "course" not in mesh.as_user("bob", "showmesh", check=True).stdout


def test_what_only_root_can_end_is_refused_before_a_users_jobs_are_touched(mesh: SystemMesh) -> None:
    job = mesh.as_user("ada", "mesh", "submit", "--quiet", "--json", "--", "sleep", "600", check=True).stdout
    uuid = json.loads(job)["uuid"]

    def state() -> str:
        rows = json.loads(mesh.as_user("ada", "mesh", "queue", "--json", check=True).stdout)
        return next((row["state"] for row in rows if row["uuid"] == uuid), "")

    wait_until(lambda: state() == "running", "the job runs", step_s=0.1)
    for words in (["down", "--force"], ["down"], ["doctor"], ["upgrade"], ["trust", "rotate"]):
        refused = mesh.as_user("ada", "mesh", *words)
        assert refused.returncode == 1 and not refused.stdout, words
        assert "is root's, for all users" in refused.stderr and f"sudo mesh {words[0]}" in refused.stderr, words
        assert state() == "running", words
    for config in (["--config", str(mesh.site)], []):  # REDMESH_CONFIG, which sudo does not pass on
        told = mesh.as_user("ada", "mesh", *config, "down").stderr
        assert f"sudo mesh down --config {mesh.site}" in told
    mesh.as_user("ada", "mesh", "cancel", uuid, check=True)
    wait_until(lambda: not state(), "it has ended", step_s=0.1)


def test_it_needs_root_a_database_server_and_a_configuration(mesh: SystemMesh) -> None:
    done = mesh.as_user("ada", "mesh", "up")
    assert done.returncode != 0 and "root" in done.stderr and "Traceback" not in done.stderr
    plain = mesh.run("mesh", "up", "--system", env={"REDMESH_CONFIG": "", "REDMESH_SYSTEM": ""})
    assert plain.returncode == 2 and "/etc/redmesh/mesh.toml" in plain.stderr
    lite = mesh.run("mesh", "up", env={"REDMESH_DATABASE": f"sqlite://{mesh.home}/x.db"})
    assert lite.returncode == 2 and "SQLite" in lite.stderr


def processors_of(mesh: SystemMesh) -> dict[str, int]:
    """How many processors each user has."""
    with open_viewer(mesh.database) as viewer:
        found: Counter[str] = Counter()
        for one in viewer.read().launchers:
            found[one.user] += one.size
        return dict(found)


def test_two_users_arrays_share_the_machine_and_give_back_to_a_launch_that_waits(mesh: SystemMesh) -> None:
    submit = ("mesh", "submit", "--quiet", "--array", "1-100000", "--", "sleep", "0.1")
    jobs = {"ada": mesh.as_user("ada", *submit, check=True).stdout.strip()}
    try:
        wait_until(lambda: processors_of(mesh) == {"ada": 4}, "the first array has the whole machine")
        jobs["bob"] = mesh.as_user("bob", *submit, check=True).stdout.strip()
        wait_until(lambda: processors_of(mesh) == {"ada": 2, "bob": 2}, lambda: f"half each: {processors_of(mesh)}")
        done = mesh.as_user("bob", "yod", "-wait-for-nodes", "3600", "-sz", "4", "echo", "four", check=True)
        assert done.stdout == "four\n" * 4, "each of the four was given back after the task at hand"
        wait_until(lambda: processors_of(mesh) == {"ada": 2, "bob": 2}, lambda: f"as before: {processors_of(mesh)}")
        for user, job in jobs.items():
            assert '"failed": 0' in mesh.as_user(user, "mesh", "queue", "--json").stdout, job
    finally:
        for user, job in jobs.items():
            mesh.as_user(user, "mesh", "cancel", job, check=True)
            mesh.as_user(user, "mesh", "wait", job)

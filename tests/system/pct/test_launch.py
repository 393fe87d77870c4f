"""A launch over real PCTs: begun under hold, run, reported, cleaned up."""

import os
import resource
import signal
import stat
from collections.abc import Iterator

import pytest

from agents.link.sockets import connect
from agents.linux import processes
from tests.support.pcts import MESH, Launcher, Machine, run
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with Machine(7) as machine:
        yield machine
        wait_until(lambda: not machine.leftovers(), "no file of a launch is left")


def test_statuses_of_all_ranks_come_once(machine: Machine) -> None:
    statuses, launcher = run(machine, ["sh", "-c", "exit $YOD_RANK"], per_node=3)
    assert statuses == {rank: rank << 8 for rank in range(21)}
    told = [rank for m in launcher.messages if m["op"] == "exits" for rank, _, _ in m["ranks"]]
    closed = [rank for m in launcher.messages if m["op"] == "closed" for rank in m["ranks"]]
    assert sorted(told) == sorted(closed) == list(range(21))


def test_a_signal_is_a_wait_status(machine: Machine) -> None:
    statuses, _ = run(machine, ["sh", "-c", "kill -SEGV $$"], nodes=1)
    assert os.WTERMSIG(statuses[0]) == signal.SIGSEGV


@pytest.mark.parametrize("fanout", [1, 2, 32])
def test_trees_of_any_shape(machine: Machine, fanout: int) -> None:
    statuses, launcher = run(machine, ["sh", "-c", "echo $YOD_NODE $YOD_RANK"], per_node=2, fanout=fanout)
    assert len(statuses) == 14 and set(statuses.values()) == {0}
    for rank in range(14):
        assert launcher.stdout(rank) == f"n{rank // 2} {rank}\n".encode()


def test_environment_of_a_rank(machine: Machine) -> None:
    forwarded = {"PATH": "/bin:/usr/bin", "MINE": "a=b\xff", "SLURM_PROCID": "4", "OMPI_MCA_btl": "tcp"}
    stale = {"YOD_RANK": "99", "REDMESH_LAUNCH": "other/n0/1"}
    _, launcher = run(machine, ["env"], per_node=2, nodes=2, env={**forwarded, **stale})
    lines = launcher.stdout(3).decode("utf-8", "surrogateescape").splitlines()
    seen = dict(line.split("=", 1) for line in lines)
    assert len(seen) == len(lines), "no variable stands there twice"
    # what is forwarded at all is the launcher's business (--export); what we tell replaces what it had of ours
    assert seen == {
        **forwarded,
        "YOD_RANK": "3", "YOD_SIZE": "4", "YOD_LOCAL_RANK": "1", "YOD_LOCAL_SIZE": "2", "YOD_NODE": "n1",
        "YOD_NNODES": "2", "YOD_LAUNCHER_ID": str(launcher.number), "YOD_PARTITION_ID": "1",
        "YOD_RANK_MAP": f"{machine.run}/launch-n1-{launcher.number}.ranks",
        "REDMESH_LAUNCH": f"{MESH}/n1/{launcher.number}",
    }  # fmt: skip


def test_rank_map_is_there_before_the_first_instruction(machine: Machine) -> None:
    launcher = Launcher(machine, ["sh", "-c", 'cat "$YOD_RANK_MAP"'], per_node=2, fanout=1)
    ranks = launcher.go()
    launcher.finish()
    expected = "".join(f"{rank} n{place} {pid}\n" for rank, (pid, place) in enumerate(ranks)).encode()
    assert {launcher.stdout(rank) for rank in range(14)} == {expected}


def test_process_state_of_a_rank(machine: Machine, tmp_path: object) -> None:
    script = "pwd; umask; ls -1 /proc/self/fd | wc -l; ps -o sid=,pid= -p $$; readlink /proc/$$/fd/0"
    _, launcher = run(machine, ["bash", "-c", script], nodes=1, cwd=str(tmp_path))
    lines = launcher.stdout().decode().splitlines()
    assert lines[0] == str(tmp_path) and lines[1] == "0022"
    assert int(lines[2]) == 4, "0, 1, 2 and the directory that ls reads"
    session, pid = lines[3].split()
    assert session == pid
    assert lines[4] == "/dev/null"
    _, launcher = run(machine, ["grep", "Sig[BI]", "/proc/self/status"], nodes=1)
    # 32 and 33 are the C library's own, which nobody can set; who started this test may have left them ignored
    masks = [int(line.split()[1], 16) & ~(3 << 31) for line in launcher.stdout().splitlines()]
    assert masks == [0, 0], "no signal is blocked or ignored"


@pytest.mark.parametrize("hold", ["exec", "gate"])
def test_no_instruction_runs_before_go(machine: Machine, tmp_path: object, hold: str) -> None:
    launcher = Launcher(machine, ["touch", f"{tmp_path}/ran"], nodes=2, hold=hold)
    ranks = launcher.ready()
    expected = {"t"} if hold == "exec" else {"S"}
    wait_until(lambda: {processes.state(pid) for pid, _ in ranks} == expected, "they are held")
    assert not os.path.exists(f"{tmp_path}/ran")
    launcher.send({"op": "go", "ranks": ranks})
    assert set(launcher.finish().values()) == {0}
    assert os.path.exists(f"{tmp_path}/ran")


def test_setuid_programs_wait_at_the_gate(machine: Machine, tmp_path: object) -> None:
    path = f"{tmp_path}/whoami"
    with open("/bin/cat", "rb") as source, open(path, "wb") as copy:
        copy.write(source.read())
    os.chmod(path, 0o755 | stat.S_ISUID)
    launcher = Launcher(machine, [path, "/dev/null"], nodes=1)
    [[pid, _]] = launcher.ready()
    # at the gate, not traced: a tracer would make exec ignore the setuid bit
    wait_until(lambda: processes.state(pid) == "S", "it waits at the gate")
    launcher.send({"op": "go", "ranks": [[pid, 0]]})
    assert launcher.finish() == {0: 0}


def _script(path: str, text: str, mode: int = 0o755) -> str:
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)
    return path


def test_what_cannot_run_is_found_before_anything_runs(machine: Machine, tmp_path: object) -> None:
    cases = [
        ("/no/such", 127, "No such file", ""),
        (_script(f"{tmp_path}/plain", "x", 0o644), 126, "Permission denied", ""),
        (_script(f"{tmp_path}/lost", "#!/no/interpreter\n"), 127, "No such file", "interpreter"),
        (_script(f"{tmp_path}/data", "neither\n"), 126, "Exec format", "script"),
        (str(tmp_path), 126, "Permission denied", ""),
    ]
    for path, status, words, hint in cases:
        launcher = Launcher(machine, [path], per_node=2, fanout=2)
        failed = launcher.until("failed", "ready")
        assert (failed["op"], failed["exit_status"], failed["fault"]) == ("failed", status, "program")
        assert path in failed["message"] and words in failed["message"] and hint in failed["hint"]
        launcher.until("finished")
        launcher.sock.close()
    wait_until(lambda: not machine.marked(), "nothing of it is left")
    wait_until(lambda: not machine.leftovers(), "no file is left")


def test_an_exec_that_fails_at_the_gate_is_told_after_go(machine: Machine) -> None:
    launcher = Launcher(machine, ["/no/such"], nodes=2, hold="gate")
    launcher.go()
    statuses = launcher.finish()
    assert statuses == {0: 127 << 8, 1: 127 << 8}
    notes = [message["message"] for message in launcher.messages if message["op"] == "note"]
    assert sorted(notes) == [f"n{i}: /no/such: No such file or directory" for i in range(2)]


def test_a_missing_directory_is_named(machine: Machine) -> None:
    failed = Launcher(machine, ["true"], cwd="/no/such").until("failed")
    assert "cannot enter /no/such" in failed["message"] and failed["exit_status"] == 125


def test_a_node_without_pct_fails_the_load_by_name(machine: Machine) -> None:
    launcher = Launcher.__new__(Launcher)
    nodes = [dict(machine.nodes[0]), {"id": 99, "name": "n99", "processors": [99]}]
    machine.nodes, kept = nodes, machine.nodes  # type: ignore[assignment]
    try:
        launcher.__init__(machine, ["true"])  # type: ignore[misc]
    finally:
        machine.nodes = kept
    failed = launcher.until("failed")
    assert (failed["node"], failed["fault"]) == ("n99", "node")
    launcher.until("finished")
    launcher.sock.close()


def test_signals_reach_all_or_some(machine: Machine) -> None:
    script = "trap 'exit 7' USR1; echo up; while :; do sleep 0.05; done"
    launcher = Launcher(machine, ["sh", "-c", script], fanout=2)
    launcher.go()
    while len(launcher.output) < 7:
        launcher.read()
    launcher.send({"op": "signal", "signal": signal.SIGUSR1, "ranks": [1, 5]})
    while len(launcher.exits()) < 2:
        launcher.read()
    assert launcher.exits() == {1: 7 << 8, 5: 7 << 8}
    launcher.send({"op": "signal", "signal": signal.SIGTERM, "ranks": None})
    statuses = launcher.finish()
    assert {statuses[rank] for rank in (0, 2, 3, 4, 6)} == {signal.SIGTERM}


def test_kill_ends_every_rank(machine: Machine) -> None:
    launcher = Launcher(machine, ["sh", "-c", "trap '' TERM INT; sleep 100"], per_node=2, fanout=2)
    launcher.go()
    launcher.send({"op": "kill"})
    assert set(launcher.finish().values()) == {signal.SIGKILL}


def test_many_ranks_on_a_node_with_a_low_limit_of_open_files() -> None:
    with Machine(1, open_files=128) as machine:
        statuses, launcher = run(machine, ["sh", "-c", "ulimit -Sn"], per_node=200)
    assert len(statuses) == 200 and set(statuses.values()) == {0}
    assert launcher.stdout(199) == b"128\n", "ranks have the limit that the node was started with"


def test_launches_side_by_side(machine: Machine) -> None:
    launchers = [Launcher(machine, ["sh", "-c", f"echo {i}"], fanout=3) for i in range(8)]
    for launcher in launchers:
        launcher.go()
    for i, launcher in enumerate(launchers):
        assert set(launcher.finish().values()) == {0}
        assert launcher.stdout(6) == f"{i}\n".encode()


def test_a_pct_leaks_nothing(machine: Machine) -> None:
    pct = machine.pcts["n0"].pid

    def at_rest() -> int:
        """Descriptors of the PCT, when no launch is left and one launch child waits for the next."""
        wait_until(lambda: not machine.leftovers(), "every launch has tidied up")
        wait_until(lambda: len(processes.children(pct)) == 1, "one launch child is spare")
        return len(os.listdir(f"/proc/{pct}/fd"))

    run(machine, ["true"])
    before = at_rest()
    for _ in range(10):
        run(machine, ["true"])
    assert at_rest() == before
    Launcher(machine, ["/no/such"]).until("finished")
    run(machine, ["true"])
    assert at_rest() == before


def test_strangers_are_told_what_is_wrong(machine: Machine) -> None:
    for rubbish in (b"GET / HTTP/1.0\r\n\r\n", b"\x00\x00\x00\x00\x02{}", b"\xff" * 100, b"\x00\xff\xff\xff\xff"):
        with connect(machine.address("n0")) as sock:
            sock.sendall(rubbish)
            while sock.recv(4096):
                pass
    with connect(machine.address("n0")) as sock:
        sock.sendall(b"\x00\x00")  # half a header, and silence
        assert machine.ask("n0", {"op": "status"})["node"] == "n0"


def test_status_names_launches_and_ranks(machine: Machine) -> None:
    launcher = Launcher(machine, ["sleep", "100"], per_node=2, nodes=2)
    ranks = launcher.go()
    wait_until(lambda: machine.ask("n1", {"op": "status"})["launches"][0]["state"] == "running", "running")
    status = machine.ask("n1", {"op": "status"})
    [launch] = status["launches"]
    assert launch["launcher"] == launcher.number
    assert launch["ranks"] == [[2, ranks[2][0]], [3, ranks[3][0]]]
    assert (status["boot_id"], status["incarnation"], status["processors"]) == ("b0", 1, [4, 5, 6, 7])
    launcher.send({"op": "kill"})
    launcher.finish()


@pytest.mark.parametrize("hold", ["exec", "gate"])
def test_ranks_have_the_launchers_limits_up_to_the_nodes(hold: str) -> None:
    """The gate forks a rank; otherwise it comes by vfork."""
    core, cpu = (resource.getrlimit(number)[1] for number in (resource.RLIMIT_CORE, resource.RLIMIT_CPU))
    core = 4096 if core < 0 else min(core, 4096)  # this test's shell may have hard limits
    told = b"64\n%d\n%s\n" % (core // 512, b"unlimited" if cpu < 0 else b"%d" % cpu)
    with Machine(2, open_files=128) as machine:
        asked = [[resource.RLIMIT_NOFILE, 64], [resource.RLIMIT_CORE, core], [resource.RLIMIT_CPU, cpu]]
        statuses, launcher = run(machine, ["sh", "-c", "ulimit -Sn; ulimit -Sc; ulimit -St"], hold=hold, limits=asked)
        assert statuses == {0: 0, 1: 0}
        assert launcher.stdout(1) == told, "sh counts in 512 bytes"
        assert not [message for message in launcher.messages if message["op"] == "note"]
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        asked = [[resource.RLIMIT_NOFILE, hard + 1], [resource.RLIMIT_NICE, -1], [77, 1]]
        statuses, launcher = run(machine, ["sh", "-c", "ulimit -Sn; ulimit -Hn; ulimit -e"], hold=hold, limits=asked)
        assert launcher.stdout(1).split()[:2] == [b"%d" % hard, b"%d" % hard], "a claim raises no hard limit"
        notes = {message["node"]: message["message"] for message in launcher.messages if message["op"] == "note"}
        text = f"open files (ulimit -n) {hard} instead of {hard + 1}: the hard limit there"
        assert notes.keys() == {"n0", "n1"} and all(note.startswith(text) for note in notes.values()), notes


def test_limits_under_which_no_program_loads_are_named_and_no_nodes_fault(machine: Machine) -> None:
    launcher = Launcher(machine, ["true"], nodes=1, limits=[[resource.RLIMIT_AS, 4096]])
    failed = launcher.until("failed")
    assert failed["fault"] in ("launch", "program"), failed
    assert "yod's own limits are address space (ulimit -v) 4 KiB" in failed["hint"], failed
    launcher.send({"op": "kill"})
    launcher.finish()

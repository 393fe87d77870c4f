"""pingd's selectors and verbs, through the real commands on a real mesh."""

import os
import pty
import pwd
import signal
import subprocess
from pathlib import Path

from agents.link.sockets import connect
from agents.wire.errors import AgentError
from tests.support.mesh import MakeMesh, PrivateMesh
from tests.support.waiting import freeze, wait_until
from tests.support.yods import free, one_mesh, yods

__all__ = ["one_mesh", "yods"]

NO_QUESTION = "-NoInquire"


def launched(yods: PrivateMesh, size: int, trap: str = ":") -> tuple["subprocess.Popen[str]", int]:
    """A launch all of whose ranks run, and its launcher's id."""
    before = set(sockets(yods))
    script = f"{trap}; echo up; sleep 60 & wait; wait"
    process = yods.start(
        "yod", "-sz", str(size), "sh", "-c", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and [process.stdout.readline() for _ in range(size)] == ["up\n"] * size
    name = wait_until(lambda: [one for one in set(sockets(yods)) - before if listens(yods, one)], "it listens")[0]
    return process, int(name[4:-5])


def listens(yods: PrivateMesh, name: str) -> bool:
    """Whether somebody listens at a socket, which is there a moment earlier."""
    try:
        connect(str(yods.run_dir / name)).close()
    except (OSError, AgentError):
        return False
    return True


def sockets(yods: PrivateMesh) -> list[str]:
    return [name for name in os.listdir(yods.run_dir) if name.startswith("yod-")]


#: The column with the seconds since GO.
_SECONDS = 9


def rows(yods: PrivateMesh, *words: str) -> list[list[str]]:
    """What ``pingd -parse`` prints, but for the seconds that launches have run: two calls may see another second."""
    lines = [line.split() for line in yods.run("pingd", "-parse", *words, check=True).stdout.splitlines()]
    return [[*line[:_SECONDS], *line[_SECONDS + 1 :]] for line in lines]


def test_selectors_all_have_to_hold(yods: PrivateMesh) -> None:
    _, launcher = launched(yods, 3)
    mine = rows(yods, "-mine")
    assert rows(yods, "-user", str(os.getuid())) == mine and rows(yods, "-user", "nobody") == []
    assert [row[0] for row in mine] == ["0", "1", "2"] and {row[4] for row in mine} == {str(launcher)}
    assert rows(yods, "-job", str(launcher)) and [row[7] for row in mine] == ["0", "1", "2"]
    assert [row[0] for row in rows(yods, "-mine", "-list", "2..5")] == ["2"]
    assert [row[0] for row in rows(yods, "n1", "7")] == ["2", "3", "7"]
    assert rows(yods, "-job", str(launcher), "n3") == []
    assert len(rows(yods, "-all", "-fast")) == 8
    shown = yods.run("pingd", "-mine", check=True).stdout
    assert shown.count("\n") == 3 + 3 and "Total: 3   free: 0   pending: 0   busy: 3" in shown
    assert yods.run("pingd", "-m", "-s", check=True).stdout.startswith("Total: 3 ")
    assert yods.run("pingd", "-m", "-v", check=True).stdout.count("node up") == 3
    assert yods.run("pingd", "-job", str(launcher), "-kill", NO_QUESTION).returncode == 0


def test_a_listing_of_what_is_not_there_is_no_error(yods: PrivateMesh) -> None:
    done = yods.run("pingd", "0,99,nx")
    assert done.returncode == 0 and "    0 ( n0 )" in done.stdout
    assert done.stderr.splitlines() == ["pingd: this mesh has no processor 99", "pingd: this mesh has no node nx"]
    empty = yods.run("pingd", "-job", "999999")
    assert empty.returncode == 0 and empty.stdout.strip().startswith("Total: 0 ")
    for word in ("-help", "--help", "-xtrahelp", "-x"):
        assert yods.run("pingd", word).returncode == 0


def test_interrupt_and_kill(yods: PrivateMesh) -> None:
    first, one = launched(yods, 2)
    deaf, two = launched(yods, 2, "trap '' TERM")
    done = yods.run("pingd", "-job", str(one), "-interrupt", NO_QUESTION)
    assert done.returncode == 0 and done.stdout == f"SIGTERM sent to launcher {one}\n"
    assert first.wait() == 143
    assert yods.run("pingd", "-job", str(two), "-int", "-N").returncode == 0
    done = yods.run("pingd", "-job", str(two), "-kill", "-N")
    assert done.returncode == 0 and done.stdout == f"killed: launcher {two}\n"
    assert free(yods) == 8, "they are free when it is said"
    assert deaf.wait() == 143, "it had been told to end before"
    ended = [entry for entry in yods.json("mesh", "history") if entry["id"] == two]
    assert ended and ended[0]["abnormal"]


def test_a_launch_whose_yod_is_stopped_is_killed_too(yods: PrivateMesh) -> None:
    process, launcher = launched(yods, 4)
    freeze(process.pid)
    try:
        done = yods.run("pingd", "-job", str(launcher), "-interrupt", NO_QUESTION)
        assert done.returncode == 125 and "its yod has not answered within 3 s" in done.stderr
        assert yods.run("pingd", "-job", str(launcher), "-kill", NO_QUESTION).returncode == 0
        assert free(yods) == 8
    finally:
        os.kill(process.pid, signal.SIGCONT)
    assert process.wait() == 137


def test_a_verb_that_selects_nothing_is_an_error(yods: PrivateMesh) -> None:
    for words in (("-job", "999999"), ("-mine",), ("nx",), ("-pbsjob", "nojob")):
        done = yods.run("pingd", *words, "-kill", NO_QUESTION)
        assert done.returncode == 1 and "is selected" in done.stderr and done.stdout == ""
    assert yods.run("pingd", "-kill", NO_QUESTION).returncode == 2
    assert yods.run("pingd", "-all", "-kill", "-reset").returncode == 2
    assert yods.run("pingd", "-r", "-all").returncode == 2


def test_it_asks_on_a_terminal_and_nowhere_else(yods: PrivateMesh) -> None:
    process, launcher = launched(yods, 1)
    done = yods.run("pingd", "-job", str(launcher), "-kill")
    assert done.returncode == 2 and "-NoInquire" in done.stderr
    for answer, status in ((b"n\n", 1), (b"\n", 1), (b"y\n", 0)):
        master, slave = pty.openpty()
        asking = yods.start(
            "pingd", "-job", str(launcher), "-kill", stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        os.close(slave)
        os.write(master, answer)
        _, said = asking.communicate()
        os.close(master)
        assert asking.returncode == status and f"Kill launcher {launcher}".encode() in said
        assert (process.poll() is None) is bool(status) or process.wait() == 137


def test_nodes_out_and_back(yods: PrivateMesh) -> None:
    process, _ = launched(yods, 4)  # n0 and n1
    assert yods.run("pingd", "n1", "n2", "-gone", NO_QUESTION).returncode == 0
    assert [row[2] for row in rows(yods, "n1,n2")] == ["busy", "busy", "drained", "drained"], "what runs there runs on"
    refused = yods.run("yod", "-sz", "3", "true")
    assert refused.returncode == 125 and "2 are free" in refused.stderr
    assert yods.run("pingd", "n2", "-reset", NO_QUESTION).stdout == "reset: n2\n"
    assert [row[2] for row in rows(yods, "n2")] == ["free", "free"]
    assert yods.run("pingd", "n1", "-reset", NO_QUESTION).returncode == 0
    assert process.wait() == 137, "a reset ends what runs there"
    assert [row[2] for row in rows(yods, "-all")] == ["free"] * 8


def test_processors_are_reserved_for_a_user_and_free_again(yods: PrivateMesh) -> None:
    assert yods.run("pingd", "n3", "-reserve", "nobody", NO_QUESTION).stdout == "reserved: 6..7\n"
    assert [row[2] for row in rows(yods, "n3")] == ["reserved"] * 2
    assert yods.run("pingd", "n3", "-reserve", "no such user", NO_QUESTION).returncode == 125
    assert yods.run("pingd", "n3", "-unreserve", NO_QUESTION).returncode == 0
    assert [row[2] for row in rows(yods, "n3")] == ["free"] * 2


def test_words_of_the_original_that_are_refused_say_what_to_do(yods: PrivateMesh) -> None:
    for words, instead in (
        (("-nicekill",), "yod -wait-for-nodes"),
        (("-Scan",), "mesh doctor"),
        (("-nid", "3"), "-config FILE"),
        (("-pid", "4"), "-config FILE"),
        (("-PBSsupport", "on"), "mesh partition create"),
        (("-PBSupdate", "off"), "mesh partition list"),
        (("-PBSinteractive", "4"), "mesh mode interactive"),
        (("-PBSlist",), "mesh partition list"),
        (("-Debug",), "mesh status"),
    ):
        done = yods.run("pingd", *words)
        assert done.returncode == 2 and done.stderr.startswith(f"pingd: {words[0]}: ") and instead in done.stderr


def test_a_reservation_takes_a_uid(yods: PrivateMesh) -> None:
    for uid, name in ((str(os.getuid()), pwd.getpwuid(os.getuid()).pw_name), ("54321", "54321")):
        assert yods.run("pingd", "0", "-reserve", uid, NO_QUESTION).returncode == 0
        assert yods.json("pingd", "0")["processors"][0]["reserved_for"] == name
    assert yods.run("pingd", "0", "-unreserve", NO_QUESTION).returncode == 0
    assert "no account is called" in yods.run("pingd", "0", "-reserve", "no-such-user", NO_QUESTION).stderr


def test_batch_jobs_are_named(yods: PrivateMesh) -> None:
    made = yods.run("mesh", "partition", "create", "--batch-job", "4242.pbs", "-sz", "2", check=True).stdout
    inside = dict(line.split("=", 1) for line in made.splitlines())
    process = yods.start("yod", "sleep", "60", env=inside)
    try:
        wait_until(lambda: "PBS # 4242" in yods.run("pingd", "-mine").stdout, "it is named", step_s=0.5)
        wait_until(lambda: rows(yods, "-pbsjob", "4242")[0][4] != "-", "its launch is there", step_s=0.5)
        listed = yods.run("pingd", "-pbsjob", "4242").stdout.splitlines()
        assert listed[0].endswith("  PBS # 4242"), "the leading number, as the original has it"
        assert listed[-1] == "Launchers: 1   partitions: 1"
        assert yods.run("pingd", "n3").stdout.splitlines()[-1] == "Launchers: 0   partitions: 0", "of what is listed"
        told = yods.json("pingd", "-pbsjob", "4242")
        assert told["totals"]["busy"] + told["totals"]["pending"] + told["totals"]["free"] == 2
        assert {row["batch_job"] for row in told["processors"]} == {"4242.pbs"}
        assert [row[0] for row in rows(yods, "-pbsjob", "4242.pbs")] == ["0", "1"]
        assert rows(yods, "-pbsjob", "42") == []
        assert yods.run("pingd", "-pbsjob", "4242", "-interrupt", NO_QUESTION).returncode == 0
        assert process.wait() == 143
    finally:
        yods.run("mesh", "partition", "destroy", "--force", inside["REDMESH_PARTITION"], check=True)


def test_a_node_that_stays_unclean_is_taken_out(mesh: MakeMesh, tmp_path: Path) -> None:
    one = mesh(2, 2)
    process, launcher = launched(one, 2)
    pid = one.pid_of("n1")
    freeze(pid)  # its PCT answers nobody; the launch runs on
    try:
        done = one.run("pingd", "-job", str(launcher), "-reset", NO_QUESTION)
        assert done.returncode == 0 and "n1 is drained: not clean after a reset" in done.stdout
        states = {row[1]: row[2] for row in rows(one, "-all")}
        assert states == {"n0": "free", "n1": "drained"}, "nothing starts beside what is left there"
    finally:
        os.kill(pid, signal.SIGCONT)
    process.wait()
    wait_until(
        lambda: one.run("pingd", "n1", "-reset", NO_QUESTION).stdout == "reset: n1\n", "it answers again", step_s=0.5
    )
    wait_until(lambda: free(one) == 2, "all are free")

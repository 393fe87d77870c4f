"""Launches without a terminal: -detach, --attach, -signal, --feed, and observers of any launch."""

import json
import os
import signal
import socket
import subprocess

import pytest

from agents.link.client import Client, Unreachable
from agents.wire.control import decode
from agents.wire.frames import CONTROL, STDOUT
from tests.support.look import look
from tests.support.mesh import PrivateMesh
from tests.support.shared_mesh import borrowed_mesh as one_mesh
from tests.support.waiting import wait_until
from tests.support.yods import yods

__all__ = ["one_mesh", "yods"]


def detach(yods: PrivateMesh, *command: str) -> int:
    done = yods.run("yod", "-detach", *command, check=True)
    assert done.stdout.strip().isdigit() and done.stderr == ""
    return int(done.stdout)


def over(yods: PrivateMesh, launcher: int) -> bool:
    return not (yods.run_dir / f"yod-{launcher}.sock").exists()


def test_detached_and_attached_while_it_runs(yods: PrivateMesh) -> None:
    script = "echo first$YOD_RANK; until [ -e end ]; do sleep 0.02; done; echo last$YOD_RANK; exit 3"
    launcher = detach(yods, "-sz", "2", "sh", "-c", script)  # returns: the terminal is free while it runs
    attached = yods.start("yod", "--attach", str(launcher), stdout=subprocess.PIPE, text=True)
    assert attached.stdout is not None
    first = sorted(attached.stdout.readline() for _ in range(2))
    (yods.work / "end").touch()
    rest, _ = attached.communicate()
    assert attached.returncode == 3
    assert first == ["first0\n", "first1\n"] and sorted(rest.split()) == ["last0", "last1"]


def test_attached_after_its_end(yods: PrivateMesh) -> None:
    launcher = detach(yods, "sh", "-c", "echo out; echo err >&2; exit 5")
    wait_until(lambda: over(yods, launcher), "it is over")
    for _ in range(2):
        done = yods.run("yod", "--attach", str(launcher))
        assert (done.returncode, done.stdout, done.stderr) == (5, "out\n", "err\n")
    labelled = yods.run("yod", "-label", "--attach", str(launcher))
    assert labelled.stdout == "0: out\n"


def test_it_belongs_to_no_terminal(yods: PrivateMesh) -> None:
    launcher = detach(yods, "sleep", "30")
    pid = next(pid for pid, command in yods.processes().items() if "-detach" in command)
    assert os.getsid(pid) == pid
    assert {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in (0, 1, 2)} == {"/dev/null"}
    entry = next(one for one in yods.json("pingd")["processors"] if one.get("launcher") == launcher)
    assert entry
    assert yods.run("yod", "-signal", "TERM", str(launcher)).returncode == 0
    wait_until(lambda: over(yods, launcher), "it is over")
    assert yods.run("yod", "--attach", str(launcher)).returncode == 143


def test_leaving_an_attached_launch_lets_it_run(yods: PrivateMesh) -> None:
    launcher = detach(yods, "sh", "-c", "echo begun; sleep 1.5; echo ended")
    attached = yods.start("yod", "--attach", str(launcher), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert attached.stdout is not None
    assert attached.stdout.readline() == "begun\n"
    attached.send_signal(signal.SIGINT)
    _, said = attached.communicate()
    assert attached.returncode == 130 and f"launcher {launcher} goes on" in said
    assert yods.run("yod", "--attach", str(launcher), check=True).stdout == "begun\nended\n"


@pytest.mark.parametrize(
    ("command", "status", "text"),
    [
        (["nosuchprogram"], 127, "no such program"),
        (["-sz", "99", "true"], 125, "8 are free"),
        (["./noexec"], 126, "noexec"),
    ],
)
def test_what_cannot_start_is_said_where_it_was_asked(
    yods: PrivateMesh, command: list[str], status: int, text: str
) -> None:
    (yods.work / "noexec").write_bytes(b"\x7fELF" + b"\0" * 60)
    (yods.work / "noexec").chmod(0o755)
    done = yods.run("yod", "-detach", *command)
    assert (done.returncode, done.stdout) == (status, "")
    assert text in done.stderr and done.stderr.count("\n") == 1


def test_no_such_launcher(yods: PrivateMesh) -> None:
    for command in (["--attach", "999999"], ["-signal", "TERM", "999999"]):
        done = yods.run("yod", *command)
        assert done.returncode == 125 and "launcher 999999 does not run" in done.stderr and done.stderr.count("\n") == 1


def test_much_output_is_replayed_byte_for_byte(yods: PrivateMesh) -> None:
    (yods.work / "big").write_bytes(os.urandom(20 << 20))
    launcher = detach(yods, "cat", "big")
    with open(yods.work / "got", "wb") as got:
        assert yods.start("yod", "--attach", str(launcher), stdout=got).wait() == 0
    assert (yods.work / "got").read_bytes() == (yods.work / "big").read_bytes()
    path = yods.state / "spool" / f"{launcher}.frames"
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700


def test_an_attached_reader_that_stands_still_does_not_hold_the_job(yods: PrivateMesh) -> None:
    (yods.work / "big").write_bytes(os.urandom(20 << 20))
    launcher = detach(yods, "sh", "-c", "sleep 0.5; cat big; touch finished")
    attached = yods.start("yod", "--attach", str(launcher), stdout=subprocess.PIPE)
    wait_until(lambda: (yods.work / "finished").exists(), "the job ended although nobody read")
    wait_until(lambda: over(yods, launcher), "so did its yod")
    out, _ = attached.communicate()
    assert attached.returncode == 0 and out == (yods.work / "big").read_bytes()


# Observers of a launch that is not detached


def launcher_of(process: "subprocess.Popen[str]", yods: PrivateMesh) -> int:
    def launchers() -> list[int]:
        return [one["id"] for one in look(yods)["launchers"] if one["pid"] == process.pid]

    def listens() -> bool:  # its file is there a moment before it listens
        with socket.socket(socket.AF_UNIX) as door:
            return door.connect_ex(str(yods.run_dir / f"yod-{launcher}.sock")) == 0

    (launcher,) = wait_until(launchers, "it has processors")
    wait_until(listens, "its socket is there")
    return launcher


def test_an_observer_gets_the_stream(yods: PrivateMesh) -> None:
    script = "until [ -e followed ]; do sleep 0.02; done; echo out$YOD_RANK; exit $YOD_RANK"
    process = yods.start("yod", "-sz", "2", "sh", "-c", script, stdout=subprocess.PIPE, text=True)
    launcher = launcher_of(process, yods)
    path = yods.run_dir / f"yod-{launcher}.sock"
    assert path.stat().st_mode & 0o777 == 0o600
    events, output = [], {}
    with Client(str(path), "observer", 10.0) as client:
        client.tell({"op": "attach", "replay": True, "output": True})
        assert decode(client.receive_frame()[1])["role"] == "yod"
        while not events or events[-1]["event"] != "end":
            kind, payload = client.receive_frame()
            if kind == CONTROL:
                events.append(decode(payload))
                (yods.work / "followed").touch()
            else:
                assert kind == STDOUT
                rank = int.from_bytes(payload[:4], "big")
                output[rank] = output.get(rank, b"") + payload[4:]
    kinds = [event["event"] for event in events]
    assert kinds[0] == "hello" and events[0]["size"] == 2 and events[0]["launcher"] == launcher
    assert kinds[1:4] == ["allocated", "loading", "started"]
    assert sorted((e["rank"], e["status"]) for e in events if e["event"] == "exit") == [(0, 0), (1, 1)]
    assert output == {0: b"out0\n", 1: b"out1\n"}
    assert events[-1]["exit_status"] == 1
    assert process.wait() == 1


def test_an_observer_signals_kills_and_is_refused_nonsense(yods: PrivateMesh) -> None:
    process = yods.start("yod", "-sz", "2", "sh", "-c", "trap '' TERM; sleep 60 & wait; wait", text=True)
    path = str(yods.run_dir / f"yod-{launcher_of(process, yods)}.sock")
    for nonsense in (
        {"op": "attach", "replay": 1},
        {"op": "go"},
        {"op": "signal", "signal": 99},
        {"op": "signal", "signal": 1, "ranks": ["a"]},
    ):
        with Client(path, "observer", 5.0) as client:
            client.tell(nonsense)
            with pytest.raises(Unreachable):
                for _ in range(10):
                    client.receive()
    raw = socket.socket(socket.AF_UNIX)
    raw.connect(path)
    raw.sendall(b"GET / HTTP/1.0\r\n\r\n")
    while raw.recv(4096):
        pass
    raw.close()
    with Client(path, "observer", 5.0) as client:
        client.tell({"op": "kill"})
        assert process.wait() == 137


def test_a_lazy_observer_is_left_behind_and_told(yods: PrivateMesh) -> None:
    (yods.work / "big").write_bytes(os.urandom(16 << 20))
    for name in ("begin", "go"):
        os.mkfifo(yods.work / name)
    with open(yods.work / "out", "wb") as out:
        process = yods.start("yod", "sh", "-c", "cat begin big go; echo tail", stdout=out)
    path = str(yods.run_dir / f"yod-{launcher_of(process, yods)}.sock")
    with Client(path, "observer", 10.0) as client:
        client.tell({"op": "attach", "replay": False, "output": True})
        client.receive()
        (yods.work / "begin").write_text("")
        written = lambda: (yods.work / "out").stat().st_size >= 16 << 20  # noqa: E731
        wait_until(written, "yod has passed on 16 MiB, and nobody reads here")
        (yods.work / "go").write_text("late\n")
        kinds, size = [], 0
        while "end" not in kinds:
            kind, payload = client.receive_frame()
            if kind == CONTROL:
                kinds.append(decode(payload)["event"])
            else:
                size += len(payload) - 4
    assert size < 8 << 20 and "skipped" in kinds
    assert process.wait() == 0


def test_spooled_events_are_json_too(yods: PrivateMesh) -> None:
    launcher = detach(yods, "echo", "hi")
    done = yods.run("yod", "-json", "--attach", str(launcher), check=True)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0]["event"] == "hello" and events[-1]["event"] == "end"
    assert (yods.state / "spool" / f"{launcher}.frames").is_file()


def test_a_detached_launch_reads_what_observers_send(yods: PrivateMesh) -> None:
    launcher = yods.run("yod", "--detach", "--input=all", "-sz", "2", "-label", "cat", check=True).stdout.strip()
    big = "x" * 50_000  # with -label a line over 64 KiB may be broken
    done = yods.run("yod", "--feed", launcher, input=f"one\nzwölf\n{big}\n", check=True)
    assert done.stderr == ""
    done = yods.run("yod", "--attach", launcher, "-label", check=True)
    for rank in (0, 1):
        lines = [line.removeprefix(f"{rank}: ") for line in done.stdout.splitlines() if line.startswith(f"{rank}: ")]
        assert lines == ["one", "zwölf", big], [line[:40] for line in lines]


def test_other_launches_take_none(yods: PrivateMesh) -> None:
    launcher = yods.run("yod", "--detach", "-sz", "1", "sleep", "100", check=True).stdout.strip()
    done = yods.run("yod", "--feed", launcher, input="one\n")
    assert done.returncode == 125 and "takes no input" in done.stderr
    yods.run("yod", "-signal", "KILL", launcher, check=True)
    gone = yods.run("yod", "--feed", launcher, input="one\n")
    assert gone.returncode == 125 and "Traceback" not in gone.stderr

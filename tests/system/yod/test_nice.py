"""A launch of low priority gives way to one that waits: told to end, killed if it does not, its books right."""

import json
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.support.mesh import PrivateMesh, while_up
from tests.support.waiting import wait_until
from tests.support.yods import free

GRACE_S = 1.5
ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture(scope="module")
def mesh_of_four() -> Iterator[PrivateMesh]:
    with while_up(PrivateMesh(4, 2, 2, REDMESH_NICE_GRACE_S=str(GRACE_S))) as private:
        yield private


@pytest.fixture
def four(mesh_of_four: PrivateMesh) -> Iterator[PrivateMesh]:
    yield mesh_of_four
    wait_until(lambda: free(mesh_of_four) == 4, "every processor is free again")


def nice(mesh: PrivateMesh, size: int, script: str, *options: str) -> "subprocess.Popen[str]":
    ready = mesh.work / "ready"
    ready.unlink(missing_ok=True)
    body = f"{script}; touch ready; while :; do sleep 0.05; done"
    yod = mesh.start(
        "yod", "-nice", *options, "-sz", str(size), "bash", "-c", body,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(ready.exists, "it runs")
    return yod


def test_a_nice_launch_is_told_to_end_when_another_waits(four: PrivateMesh) -> None:
    low = nice(four, 4, "trap 'echo told; exit 9' TERM")
    done = four.run("yod", "-wait-for-nodes", "3600", "-sz", "2", "echo", "regular", check=True)
    assert done.stdout == "regular\nregular\n"
    out, err = low.communicate()
    assert low.returncode == 9 and out.count("told") == 4
    told = f"this launch of low priority gives way to {ME}, who waits for 2 processors: SIGTERM now, SIGKILL in 1.5 s"
    assert err.count(f"yod: {told}") == 1, "said once, not by every node"


def test_one_that_ignores_sigterm_is_killed_after_its_grace(four: PrivateMesh) -> None:
    low = nice(four, 3, "trap '' TERM")
    began = time.monotonic()
    four.run("yod", "-wait-for-nodes", "3600", "-sz", "4", "true", check=True)
    assert time.monotonic() - began >= GRACE_S - 0.3
    low.communicate()
    assert low.returncode == 128 + signal.SIGKILL


@pytest.mark.parametrize("how", ["-batch", "-quiet", "-json"])
def test_why_it_ended_is_told_to_everybody(four: PrivateMesh, how: str) -> None:
    low = nice(four, 4, "trap 'exit 9' TERM", how)
    four.run("yod", "-wait-for-nodes", "3600", "-sz", "1", "true", check=True)
    out, err = low.communicate()
    assert low.returncode == 9 and f"gives way to {ME}, who waits for 1 processor: " in (out if how == "-json" else err)
    if how == "-json":
        (told,) = [event for event in map(json.loads, out.splitlines()) if event["event"] == "gives_way"]
        assert (told["to"], told["kill_in_s"]) == (ME, GRACE_S)
    (ended,) = [
        row for row in json.loads(four.run("mesh", "history", "--json").stdout)[-2:] if "trap" in row["command"]
    ]
    assert ended["reason"] == f"gave way to {ME}, who waited for 1 processor"
    assert f"(gave way to {ME}" in four.run("mesh", "history").stdout


def test_who_does_not_wait_is_refused_with_a_hint_and_nobody_ends(four: PrivateMesh) -> None:
    low = nice(four, 4, "trap 'exit 9' TERM")
    refused = four.run("yod", "-sz", "2", "true")
    assert refused.returncode == 125 and "--wait-for-nodes" in refused.stderr and "low priority" in refused.stderr
    assert low.poll() is None
    low.terminate()
    low.communicate()


def test_nobody_ends_where_it_would_not_help(four: PrivateMesh) -> None:
    low = nice(four, 2, "trap 'exit 9' TERM")
    regular = four.start("yod", "-sz", "1", "sleep", "100")
    wait_until(lambda: free(four) == 1, "both run")
    refused = four.run("yod", "-wait-for-nodes", "1", "-sz", "4", "true")
    assert refused.returncode == 125
    assert low.poll() is None
    for one in (low, regular):
        one.terminate()
        one.wait()


def test_the_books_are_right(four: PrivateMesh) -> None:
    low = nice(four, 4, "trap 'exit 9' TERM")
    four.run("yod", "-wait-for-nodes", "3600", "-sz", "4", "true", check=True)
    low.communicate()
    log = [
        json.loads(line)
        for number in range(2)
        for line in (four.state / "log" / f"cpa-{number}.jsonl").read_text().splitlines()
    ]
    assert any(line["event"] == "preempted" for line in log)
    wait_until(lambda: free(four) == 4, "all are free")

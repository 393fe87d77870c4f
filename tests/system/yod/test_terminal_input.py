"""Standard input of detached launches: sent by whoever observes them."""

from tests.support.mesh import PrivateMesh
from tests.support.yods import one_mesh as one_mesh
from tests.support.yods import yods as yods


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

"""Where ranks go and what they get, through the real commands: nodes, host files, GPUs, load files, dry runs."""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mesh import PrivateMesh, Run, while_up
from tests.support.waiting import wait_until
from tests.support.yods import free, ranks_left

PLACE = ("sh", "-c", "echo $YOD_RANK $YOD_NODE")
DEVICES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")


@pytest.fixture(scope="module")
def one_mesh() -> Iterator[PrivateMesh]:
    """Eight processors and eight GPUs on four nodes, and two CPAs."""
    with while_up(PrivateMesh(8, 4, 2, REDMESH_GPUS="2")) as private:
        yield private


@pytest.fixture
def mesh8(one_mesh: PrivateMesh) -> Iterator[PrivateMesh]:
    """The module's mesh; afterwards all of it is free again."""
    yield one_mesh
    wait_until(lambda: free(one_mesh) == 8, "every processor is free again")
    wait_until(lambda: not ranks_left(one_mesh), "no process of a launch is left")
    for file in one_mesh.work.iterdir():
        file.unlink()


def places(done: Run) -> dict[int, str]:
    assert done.returncode == 0, done.stderr
    return {int(rank): node for rank, node in (line.split() for line in done.stdout.splitlines())}


def ranks_on(done: Run) -> list[int]:
    return sorted(Counter(places(done).values()).values())


def test_nodes_and_tasks_per_node(mesh8: PrivateMesh) -> None:
    assert ranks_on(mesh8.run("yod", "--nodes", "4", *PLACE)) == [1, 1, 1, 1]
    assert ranks_on(mesh8.run("yod", "-n", "5", "--nodes", "4", *PLACE)) == [1, 1, 1, 2]
    assert ranks_on(mesh8.run("yod", "--nodes=3", "--ntasks-per-node=2", *PLACE)) == [2, 2, 2]
    assert ranks_on(mesh8.run("yod", "-n", "4", "--tasks-per-node", "1", *PLACE)) == [1, 1, 1, 1]
    assert ranks_on(mesh8.run("yod", "-n", "12", "--nodes", "2", "--overcommit", *PLACE)) == [6, 6]
    ended = mesh8.json("mesh", "history")[-1]
    assert ended["ranks"] == 12 and ended["size"] <= 8
    assert ranks_on(mesh8.run("yod", "-n", "3", "-c", "2", *PLACE)) == [1, 1, 1], "a rank is never cut in two"
    refused = mesh8.run("yod", "--nodes", "5", "true")
    assert refused.returncode == 125 and "5 nodes" in refused.stderr


def test_lists_and_what_is_left_out(mesh8: PrivateMesh) -> None:
    assert set(places(mesh8.run("yod", "-w", "n3,n1", "-n", "4", *PLACE)).values()) == {"n1", "n3"}
    assert set(places(mesh8.run("yod", "--nodelist=n2", *PLACE)).values()) == {"n2"}
    assert set(places(mesh8.run("yod", "-x", "n0,2,3", "-n", "4", *PLACE)).values()) == {"n2", "n3"}
    left = mesh8.run("yod", "-w", "n1,n2", "-x", "n2", *PLACE)
    assert places(left) == {0: "n1", 1: "n1"}, "a list says how many, without what is excluded"
    empty = mesh8.run("yod", "-w", "n1", "-x", "n1", "true")
    assert empty.returncode == 125 and "excluded too" in empty.stderr
    refused = mesh8.run("yod", "-x", "n[0-3]", "true")
    assert refused.returncode == 125 and refused.stderr.count("\n") == 1


def test_a_host_file(mesh8: PrivateMesh) -> None:
    (mesh8.work / "hosts").write_text("# mine\nn3 slots=1\nn1:2\n")
    assert ranks_on(mesh8.run("yod", "--hostfile", "hosts", *PLACE)) == [1, 2]
    (mesh8.work / "hosts").write_text("n2\n")
    assert places(mesh8.run("yod", "-hostfile", "hosts", *PLACE)) == {0: "n2", 1: "n2"}, "as many as it has processors"
    assert places(mesh8.run("yod", "-sz", "1", "-hostfile", "hosts", *PLACE)) == {0: "n2"}
    (mesh8.work / "hosts").write_text("nowhere\n")
    refused = mesh8.run("yod", "-hostfile", "hosts", "true")
    assert refused.returncode == 125 and "nowhere" in refused.stderr


def test_a_dry_run_says_where_and_takes_nothing(mesh8: PrivateMesh) -> None:
    before = mesh8.json("mesh", "history")
    plain = mesh8.run("yod", "--dry-run", "-n", "3", "-list", "n2,n3", "true", check=True)
    assert plain.stdout == "rank 0-1 on n2: processors 4..5\nrank 2 on n3: processor 6\n"
    whole = json.loads(mesh8.run("yod", "--dry-run", "--json", "--gpus-per-task", "1", "-n", "8", "true").stdout)
    assert whole["size"] == 8 and [node["gpus"] for node in whole["nodes"]] == [[[0], [1]]] * 4
    refused = mesh8.run("yod", "--dry-run", "-n", "9", "true")
    assert refused.returncode == 125 and "8 are free" in refused.stderr
    assert mesh8.json("mesh", "history") == before and free(mesh8) == 8
    assert mesh8.run("yod", "-n", "3", "-list", "n2,n3", *PLACE).returncode == 0


def test_show_asks_nobody(mesh8: PrivateMesh) -> None:
    shown = mesh8.run("yod", "-sh", "-n", "4", "-nodes", "2", "sh", "-c", "x", env={"XDG_STATE_HOME": "/nosuch"})
    assert shown.returncode == 0 and "/sh -c x" in shown.stdout and "4, over 2 nodes" in shown.stdout


def environment(done: Run) -> dict[str, str]:
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def test_gpus_are_each_ranks_own(mesh8: PrivateMesh) -> None:
    show = "echo $YOD_NODE " + " ".join(f"${name}" for name in DEVICES)
    done = mesh8.run("yod", "-n", "8", "--gpus-per-task", "1", "sh", "-c", show, env={"CUDA_VISIBLE_DEVICES": "7"})
    seen = [line.split() for line in done.stdout.splitlines()]
    assert sorted(int(cuda) for _, cuda, *_ in seen) == list(range(8)), "the nodes share a machine, but no GPU"
    for node, cuda, rocr, hip, ze in seen:
        assert cuda == rocr == ze and int(cuda) // 2 == int(node[1:]) and hip == "0"
    done = mesh8.run("yod", "--nodes", "2", "--gpus-per-task", "2", "sh", "-c", show)
    assert sorted(line.split(" ", 1)[1] for line in done.stdout.splitlines()) == ["0,1 0,1 0,1 0,1", "2,3 2,3 0,1 2,3"]
    kept = mesh8.run("yod", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES", env={"CUDA_VISIBLE_DEVICES": "7"})
    assert kept.stdout == "7\n", "who asks for none keeps what he has"


def test_two_launches_never_share_a_gpu(mesh8: PrivateMesh) -> None:
    first = [
        mesh8.start(
            "yod", "-wait-for-nodes", "20", "--gpus-per-task", "1", "-list", "n1", "-sz", "1",
            "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; while [ ! -e go ]; do sleep 0.05; done",
            stdout=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    got = [process.stdout.readline().strip() for process in first if process.stdout]
    assert sorted(got) == ["2", "3"]
    assert mesh8.run("yod", "--gpus-per-task", "1", "-list", "n1", "true").returncode == 125
    assert mesh8.run("yod", "--gpus-per-task", "2", "-n", "3", "--immediate", "true").returncode == 0, "elsewhere"
    (mesh8.work / "go").touch()
    assert [process.wait() for process in first] == [0, 0]
    again = mesh8.run(
        "yod", "--gpus-per-task", "2", "-list", "n1", "-sz", "1", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"
    )
    assert again.stdout == "2,3\n", "what ended gave its own back"


def test_gpus_that_nobody_has(mesh8: PrivateMesh) -> None:
    refused = mesh8.run("yod", "--gpus-per-task", "3", "true")
    assert refused.returncode == 125 and "3 gpu" in refused.stderr and refused.stderr.count("\n") == 1


def test_a_load_file(mesh8: PrivateMesh) -> None:
    lines = 'echo $YOD_RANK $YOD_SIZE $YOD_SEGMENT $YOD_SEGMENT_RANK $YOD_SEGMENT_SIZE $YOD_NODE "$0" "$1"'
    (mesh8.work / "jobs.load").write_text(
        f"# three programs\n-sz 3 sh -c '{lines}' first 'x y'\n\n-list n3 sh -c '{lines}' second\n".replace(
            "-list n3", "-sz 2 -list n3"
        )
        + f"sh -c '{lines}' \\\n  third # the last\n"
    )
    done = mesh8.run("yod", "-list", "n0,n1", "jobs.load")
    assert done.returncode == 0, done.stderr
    rows = sorted(done.stdout.splitlines())
    assert [row.split()[:5] + row.split()[6:] for row in rows] == [
        ["0", "6", "0", "0", "3", "first", "x", "y"],
        ["1", "6", "0", "1", "3", "first", "x", "y"],
        ["2", "6", "0", "2", "3", "first", "x", "y"],
        ["3", "6", "1", "0", "2", "second"],
        ["4", "6", "1", "1", "2", "second"],
        ["5", "6", "2", "0", "1", "third"],
    ]
    nodes = [row.split()[5] for row in rows]
    assert set(nodes[:3] + nodes[5:]) <= {"n0", "n1"} and nodes[3:5] == ["n3", "n3"]
    roots = []
    for log in (mesh8.state / "log").glob("pct-*.jsonl"):
        for line in log.read_text().splitlines():
            entry = json.loads(line)
            if entry["event"] == "subgroup":
                roots.append((entry["segment"], entry["root"], entry["ranks"], entry["node"]))
    assert sorted(roots)[-3:] == [(0, 0, 3, nodes[0]), (1, 3, 2, "n3"), (2, 5, 1, nodes[5])]


def test_lines_that_list_come_first(mesh8: PrivateMesh) -> None:
    """A line without a list must not take what a later one names."""
    (mesh8.work / "tight.load").write_text(
        "-sz 6 sh -c 'echo $YOD_RANK $YOD_NODE'\n-sz 2 -list 0..1 sh -c 'echo $YOD_RANK $YOD_NODE'\n"
    )
    where = places(mesh8.run("yod", "tight.load"))
    assert (where[6], where[7]) == ("n0", "n0") and "n0" not in {where[rank] for rank in range(6)}


def test_a_line_has_as_many_ranks_as_its_list_has_room_for(mesh8: PrivateMesh) -> None:
    tell = "sh -c 'echo $YOD_RANK $YOD_SEGMENT_SIZE $YOD_NODE'"
    (mesh8.work / "lists.load").write_text(f"-list n[1-2] {tell}\n-list 0 {tell}\n")
    done = mesh8.run("yod", "-sz", "5", "lists.load", check=True)
    rows = ["0 4 n1", "1 4 n1", "2 4 n2", "3 4 n2", "4 1 n0"]
    assert sorted(done.stdout.splitlines()) == rows
    assert sorted(mesh8.run("yod", "lists.load", check=True).stdout.splitlines()) == rows
    less = mesh8.run("yod", "-x", "n2", "lists.load", check=True)
    assert sorted(less.stdout.splitlines()) == ["0 2 n1", "1 2 n1", "2 1 n0"], "without what is excluded"
    assert "rank 0-1 on n1: processors 2..3 (line 1)" in mesh8.run("yod", "-dry-run", "lists.load", check=True).stdout
    other = mesh8.run("yod", "-sz", "4", "lists.load", check=True)
    assert sorted(other.stdout.splitlines()) == rows and "-sz 4 is ignored" in other.stderr


@pytest.mark.parametrize(
    ("line", "status", "says"),
    [
        ("-list n9 true", 125, "wrong.load:2: there is no node 'n9'"),
        ("-sz 3 -list n1 true", 125, "wrong.load:2: 3 ranks with a processor each asked for, there is room for 2"),
        ("-sz 2 -list n1,n1 true", 2, "wrong.load:2: the list names node n1 twice"),
        ("-sz 2 there-is-none", 127, "wrong.load:2: there-is-none: no such program"),
    ],
)
def test_a_lines_mistake_is_told_with_file_and_line(mesh8: PrivateMesh, line: str, status: int, says: str) -> None:
    (mesh8.work / "wrong.load").write_text(f"true\n{line}\n")
    done = mesh8.run("yod", "-wait-for-nodes", "60", "wrong.load")
    assert done.returncode == status and says in done.stderr and done.stderr.count("\n") == 1


def test_variables_of_a_line_are_its_ranks_alone(mesh8: PrivateMesh) -> None:
    tell = "sh -c 'echo $YOD_RANK:$A:$B'\n"
    (mesh8.work / "envs").write_text(f"-sz 2 A=one {tell}{tell}-sz 2 B='two words' A= {tell}")
    done = mesh8.run("yod", "envs", check=True, env={"A": "base"})
    assert sorted(done.stdout.splitlines()) == ["0:one:", "1:one:", "2:base:", "3::two words", "4::two words"]


@pytest.mark.parametrize(
    ("options", "nodes"),
    [
        ((), ["n0"] * 3 + ["n1"] * 3 + ["n2"] * 3 + ["n3"] * 3),
        (("-list", "2..5"), ["n1"] * 6 + ["n2"] * 6),
        (("-distribution", "cyclic"), ["n0", "n1", "n2", "n3"] * 3),
    ],
)
def test_the_lines_of_a_load_file_share_what_there_is(
    mesh8: PrivateMesh, options: tuple[str, ...], nodes: list[str]
) -> None:
    told = "sh -c 'echo $0 $YOD_RANK $YOD_SEGMENT_RANK/$YOD_SEGMENT_SIZE $YOD_NODE'"
    (mesh8.work / "many.load").write_text(f"-sz 9 {told} a\n-sz 3 {told} b\n")
    done = mesh8.run("yod", "-overcommit", *options, "many.load", check=True)
    lines = sorted((line.split() for line in done.stdout.splitlines()), key=lambda line: int(line[1]))
    assert [line[:3] for line in lines] == [
        *(["a", str(rank), f"{rank}/9"] for rank in range(9)),
        *(["b", str(9 + rank), f"{rank}/3"] for rank in range(3)),
    ]
    assert [line[3] for line in lines] == nodes


@pytest.mark.parametrize(
    ("text", "options", "status", "says"),
    [
        ("-sz 1 true\n-sz 1 nosuchprogram\n", (), 127, "bad.load:2: nosuchprogram"),
        ("-sz 9 true\n", (), 125, "room for 8"),
        ("-sz x true\n", (), 2, "bad.load:1"),
        ("'true\n", (), 2, "has no end"),
        ("true\n-sz 9 -list 0..3 true\n", ("-overcommit",), 2, "bad.load:2: -overcommit and processors of its own"),
        ("-service true\n", ("-overcommit",), 2, "exclude each other"),
        ("true\n", ("-nodes", "1"), 2, "cannot be used with a load file"),
    ],
)
def test_load_files_that_are_wrong(
    mesh8: PrivateMesh, text: str, options: tuple[str, ...], status: int, says: str
) -> None:
    (mesh8.work / "bad.load").write_text(text)
    done = mesh8.run("yod", *options, "bad.load")
    assert (done.returncode, done.stdout) == (status, "") and says in done.stderr and done.stderr.count("\n") == 1


def test_what_ranks_get(mesh8: PrivateMesh) -> None:
    told = {"SLURM_PROCID": "5", "MINE": "1", "YOD_RANK": "99", "REDMESH_CPA_DATABASE": "secret"}
    kept = environment(mesh8.run("yod", "env", env=told))
    assert kept["MINE"] == "1" and kept["YOD_RANK"] == "0"
    assert not {"SLURM_PROCID", "REDMESH_CPA_DATABASE"} & set(kept)
    alone = environment(mesh8.run("yod", "--export=NONE,A=1", "/usr/bin/env", env=told))
    assert alone["A"] == "1" and alone["YOD_RANK"] == "0" and not {"MINE", "PATH", "HOME"} & set(alone)
    named = environment(mesh8.run("yod", "--export=SLURM_PROCID,B=2", "/usr/bin/env", env=told))
    assert (named["SLURM_PROCID"], named["B"]) == ("5", "2") and "MINE" not in named
    set_here = environment(mesh8.run("yod", "--export=ALL,SLURM_PROCID=7", "env", env=told))
    assert (set_here["SLURM_PROCID"], set_here["MINE"]) == ("7", "1")
    where = mesh8.run("yod", "--chdir", "/usr", "--umask", "077", "sh", "-c", "pwd; umask")
    assert where.stdout == "/usr\n0077\n"
    nowhere = mesh8.run("yod", "--chdir", "/no/such", "true")
    assert nowhere.returncode == 125 and "/no/such" in nowhere.stderr
    missing = mesh8.run("yod", "--export=ALL,NOSUCH", "true")
    assert missing.returncode == 0 and "NOSUCH" in missing.stderr


def test_a_cpa_is_chosen_by_name_or_socket(mesh8: PrivateMesh) -> None:
    pids = {name: mesh8.pid_of(name) for name in ("cpa-0", "cpa-1")}
    log = mesh8.state / "log"
    for address in ("cpa-1", str(mesh8.run_dir / "cpa-1.sock")):
        before = (log / "cpa-1.jsonl").read_text().count('"allocate"')
        assert mesh8.run("yod", "--cpa", address, "true").returncode == 0
        assert (log / "cpa-1.jsonl").read_text().count('"allocate"') == before + 1
    assert mesh8.run("yod", "-nid", "cpa-0", "-pid", str(pids["cpa-0"]), "true").returncode == 0
    assert mesh8.run("yod", "-pid", str(pids["cpa-1"]), "true").returncode == 0
    wrong = mesh8.run("yod", "-nid", "cpa-0", "-pid", str(pids["cpa-1"]), "true")
    assert wrong.returncode == 125 and str(pids["cpa-0"]) in wrong.stderr
    none = mesh8.run("yod", "--cpa", "/no/such.sock", "true")
    assert none.returncode == 125 and none.stderr.count("\n") == 1


def test_the_originals_words_in_any_order(mesh8: PrivateMesh) -> None:
    for words in (
        ["-N", "-NOBUF", "-batch", "-q", "-k", "-l", "0..1", "-sz", "2"],
        ["-sz", "2", "-k", "-l", "0..1", "-NOBUF", "-q", "-batch", "-N"],
    ):
        done = mesh8.run("yod", *words, "echo", "-sz")
        assert (done.returncode, done.stdout, done.stderr) == (0, "-sz\n-sz\n", "")
    for word, status in (("-help", 1), ("-h", 0), ("-vhelp", 1), ("-v", 1), ("--help", 0), ("--vhelp", 0)):
        assert mesh8.run("yod", "-sz", "2", word).returncode == status, word
    assert "YODRETRYCOUNT" in mesh8.run("yod", "-vhelp").stdout


def test_gpus_are_counted_where_nothing_is_said(tmp_path: Path) -> None:
    from console.deploy.personal.plan import deal_gpus
    from console.settings import load

    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    settings = load(environ={"HOME": str(tmp_path), "XDG_CONFIG_HOME": os.devnull})
    assert deal_gpus(settings, 1, str(tmp_path)) == [[0, 1, 2]]
    assert deal_gpus(settings, 2, str(tmp_path)) == [[0], [1, 2]]
    two = load({"gpus": 2}, environ={"HOME": str(tmp_path), "XDG_CONFIG_HOME": os.devnull})
    assert deal_gpus(two, 2, str(tmp_path)) == [[0, 1], [2, 3]]

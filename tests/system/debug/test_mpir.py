"""The process table for debuggers: in a file, printed, and read by gdb out of a stub's symbols."""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from agents.linux import processes
from console.launch.attach import mpir
from tests.support.mesh import PrivateMesh
from tests.support.places import Begin, begin, pid_of, places
from tests.support.shared_mesh import borrowed_mesh as one_mesh
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.yods import yods

__all__ = ["begin", "one_mesh", "places", "yods"]

needs_tools = pytest.mark.skipif(not (shutil.which("gdb") and shutil.which("cc")), reason="no gdb or no C compiler")


def test_the_table_of_a_held_launch(yods: PrivateMesh, begin: Begin, places: str) -> None:
    launcher = begin("--hold", "-sz", "6", places)
    told = json.loads(yods.run("mesh", "procs", launcher, "--mpir", check=True).stdout)
    expected = [
        {"host_name": os.uname().nodename, "executable_name": places, "pid": pid_of(yods, launcher, rank)}
        for rank in range(6)
    ]
    assert told["MPIR_proctable"] == expected and told["MPIR_proctable_size"] == 6
    assert told["MPIR_debug_state"] == 1 and told["MPIR_i_am_starter"] == 1
    assert yods.json("mesh", "procs", launcher) == [{"rank": rank, **one} for rank, one in enumerate(expected)]
    lines = yods.run("mesh", "procs", launcher, check=True).stdout.splitlines()
    assert [line.split()[0] for line in lines] == list("012345")
    assert all(processes.state(one["pid"]) == "T" for one in expected)


def test_the_file_is_there_before_the_first_instruction(yods: PrivateMesh, tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    script = f'grep -q "\\"pid\\": $$\\$" {file} && echo there'
    told = yods.run("yod", "-sz", "2", "-input", "none", "--mpir-file", str(file), "sh", "-c", script, check=True)
    table = json.loads(file.read_text())
    assert told.stdout == "there\nthere\n" and len(table["MPIR_proctable"]) == 2
    assert file.stat().st_mode & 0o777 == 0o600
    nowhere = yods.run("yod", "--mpir-file", str(tmp_path / "none" / "t.json"), "true")
    assert nowhere.returncode == 0 and "the process table cannot be written" in nowhere.stderr


def test_programs_of_a_load_file(yods: PrivateMesh, tmp_path: Path) -> None:
    (tmp_path / "load").write_text("-sz 1 /bin/sleep 0\n-sz 2 /bin/true\n")
    yods.run("yod", "--mpir-file", "t.json", "load", cwd=tmp_path, check=True)
    table = json.loads((tmp_path / "t.json").read_text())["MPIR_proctable"]
    assert [os.path.basename(one["executable_name"]) for one in table] == ["sleep", "true", "true"]


@needs_tools
def test_gdb_reads_the_table_from_the_stub(yods: PrivateMesh, begin: Begin, places: str) -> None:
    launcher = begin("-sz", "8", places)
    process = yods.start("mesh", "procs", launcher, "--mpir-stub", stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    stub = int(re.findall(r"attach to process (\d+)", process.stdout.readline())[0])
    asked = ["print MPIR_proctable_size", "print MPIR_proctable[5].pid", "print MPIR_proctable[7].executable_name"]
    asked += ["print MPIR_debug_state", "info address MPIR_Breakpoint"]
    command = ["gdb", "-nx", "-batch", "-p", str(stub), *(word for one in asked for word in ("-ex", one))]
    told = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S).stdout
    assert "$1 = 8\n" in told and f"$2 = {pid_of(yods, launcher, 5)}\n" in told
    assert f'"{places}"' in told and "$4 = 1\n" in told and 'Symbol "MPIR_Breakpoint" is a function' in told
    yods.run("yod", "-signal", "KILL", launcher)
    assert process.wait() == 0, "it ends with the launch"
    wait_until(lambda: not processes.alive(stub), "and its stub too")


@needs_tools
def test_interrupting_the_stub(yods: PrivateMesh, begin: Begin, places: str) -> None:
    launcher = begin("-sz", "2", places)
    process = yods.start("mesh", "procs", launcher, "--mpir-stub", stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    stub = int(re.findall(r"attach to process (\d+)", process.stdout.readline())[0])
    process.send_signal(signal.SIGINT)
    assert process.wait() in (0, 130) and not processes.alive(stub)
    assert processes.alive(pid_of(yods, launcher, 0))


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_names_that_hold_everything(tmp_path: Path) -> None:
    odd = '/tmp/a"b\\n%d1\t??/é'
    text = mpir.stub([{"host_name": "n-1.x", "executable_name": odd, "pid": 7}])
    text = text.replace("int main(void)\n{", "int main(void)\n{\n    return !puts(MPIR_proctable[0].executable_name);")
    (tmp_path / "stub.c").write_text(text)
    subprocess.run(["cc", "-o", str(tmp_path / "stub"), str(tmp_path / "stub.c")], check=True, capture_output=True)
    assert subprocess.run([str(tmp_path / "stub")], capture_output=True).stdout.decode() == odd + "\n"

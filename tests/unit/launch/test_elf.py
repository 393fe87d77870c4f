"""Reading ELF files, against readelf and against what the loader really loads."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.launch.elf import NotElf, is_system, needed, read_elf


def gcc(*arguments: object) -> None:
    subprocess.run(["gcc", *map(str, arguments)], check=True)


def library(path: Path, *arguments: object, name: str = "", calls: str = "") -> Path:
    source = path.with_suffix(".c")
    function = re.sub(r"\W", "_", path.stem)
    source.write_text(f"int {calls}(void);\nint {function}(void) {{ return {calls}() + 1; }}" if calls else
                      f"int {function}(void) {{ return 1; }}")  # fmt: skip
    gcc("-shared", "-fPIC", "-o", path, source, f"-Wl,-soname,{name or path.name}", *arguments)
    return path


def program(path: Path, calls: str, *arguments: object) -> Path:
    source = path.with_suffix(".c")
    source.write_text(f"int {calls}(void);\nint main(void) {{ return {calls}() - {calls}(); }}")
    gcc("-o", path, source, *arguments)
    return path


def loaded(path: Path, env: dict[str, str]) -> dict[str, str]:
    """What ld.so itself resolves for a program of our own."""
    out = subprocess.run(["ldd", path], capture_output=True, text=True, check=True, env={**os.environ, **env}).stdout
    pairs = (line.split(" => ") for line in out.splitlines() if " => " in line)
    found = {name.strip(): where.split(" (")[0].strip() for name, where in pairs}
    return {name: where for name, where in found.items() if where != "not found"}


def same(path: Path, env: dict[str, str] | None = None) -> dict[str, str]:
    """Ours and ld.so's agree, library by library; what we ship is returned."""
    env = env or {}
    mine = needed(str(path), env)
    theirs = {name: where for name, where in loaded(path, env).items() if not is_system(where)}
    shipped = dict(mine.shipped)
    assert {name: os.path.realpath(where) for name, where in shipped.items()} == {
        name: os.path.realpath(where) for name, where in theirs.items()
    }
    return shipped


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_runpath_origin_and_what_they_need_in_turn(tree: Path) -> None:
    inner = library(tree / "a" / "libinner.so.2", name="libinner.so.2")
    library(tree / "b" / "libouter.so", inner, "-Wl,--enable-new-dtags,-rpath,${ORIGIN}/../a", calls="libinner_so")
    job = program(tree / "job", "libouter", tree / "b" / "libouter.so", "-Wl,--enable-new-dtags,-rpath,$ORIGIN/b")
    assert set(same(job)) == {"libouter.so", "libinner.so.2"}
    assert needed(str(job), {}).missing == []


def test_a_runpath_is_not_handed_down_and_an_rpath_is(tree: Path) -> None:
    inner = library(tree / "a" / "libinner.so")
    library(tree / "a" / "libouter.so", inner, calls="libinner")
    for tags, missing in (("--enable-new-dtags", ["libinner.so"]), ("--disable-new-dtags", [])):
        job = program(
            tree / f"job{tags[2]}", "libouter", tree / "a" / "libouter.so",
            f"-Wl,{tags},-rpath,{tree}/a", f"-Wl,-rpath-link,{tree}/a",
        )  # fmt: skip
        same(job)
        assert needed(str(job), {}).missing == missing


def test_the_environment_stands_between_rpath_and_runpath(tree: Path) -> None:
    for folder in "abc":
        library(tree / folder / "libx.so")
    env = {"LD_LIBRARY_PATH": f"{tree}/c"}
    new = program(tree / "new", "libx", tree / "a" / "libx.so", f"-Wl,--enable-new-dtags,-rpath,{tree}/b")
    old = program(tree / "old", "libx", tree / "a" / "libx.so", f"-Wl,--disable-new-dtags,-rpath,{tree}/b")
    assert same(new, env) == {"libx.so": f"{tree}/c/libx.so"} and same(new) == {"libx.so": f"{tree}/b/libx.so"}
    assert same(old, env) == {"libx.so": f"{tree}/b/libx.so"}


def test_a_library_that_is_not_there_is_told(tree: Path) -> None:
    job = program(tree / "job", "libx", library(tree / "a" / "libx.so"))
    assert needed(str(job), {}).missing == ["libx.so"]
    (tree / "a" / "libx.so").write_bytes(b"\x7fELF" + bytes(100))  # there, and no library for this machine
    assert needed(str(job), {"LD_LIBRARY_PATH": f"{tree}/a"}).missing == ["libx.so"]


def test_the_systems_own_stay_behind() -> None:
    for path in ("/bin/ls", "/usr/bin/gdb", shutil.which("python3", path="/usr/bin")):
        if path and os.path.exists(path):
            found = needed(path, {})
            assert found.shipped == [] and found.missing == []
            assert read_elf(path).needed


def test_a_script_and_other_files_need_none(tmp_path: Path) -> None:
    script = tmp_path / "job"
    script.write_text("#!/bin/sh\n")
    found = needed(str(script), {})
    assert (found.shipped, found.missing) == ([], [])
    with pytest.raises(NotElf):
        read_elf(str(script))


def test_the_cache_is_read_as_ldconfig_prints_it(tree: Path) -> None:
    ldconfig = shutil.which("ldconfig", path="/sbin:/usr/sbin")
    if not ldconfig:
        pytest.skip("no ldconfig")
    library(tree / "a" / "libcached.so.1")
    (tree / "conf").write_text(f"{tree}/a\n")
    subprocess.run([ldconfig, "-X", "-f", tree / "conf", "-C", tree / "cache"], check=True, capture_output=True)
    job = program(tree / "job", "libcached_so", tree / "a" / "libcached.so.1")
    found = needed(str(job), {}, str(tree / "cache"))
    assert found.shipped == [("libcached.so.1", f"{tree}/a/libcached.so.1")] and found.missing == []


def test_needed_is_what_readelf_says() -> None:
    path = os.path.realpath(sys.executable)
    out = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
    assert read_elf(path).needed == re.findall(r"NEEDED.*\[(.*)\]", out)


WHOLE = Path("/bin/true").read_bytes()


@given(st.integers(0, 4096), st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 255)), max_size=6))
def test_damaged_files_are_refused_or_read(tmp_path_factory, cut: int, pokes: list[tuple[int, int]]) -> None:  # type: ignore[no-untyped-def]
    data = bytearray(WHOLE[: len(WHOLE) - cut * 8])
    for at, value in pokes:
        if at < len(data):
            data[at] = value
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(data)
    try:
        read_elf(str(path))
    except NotElf:
        pass

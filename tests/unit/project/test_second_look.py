"""A test that failed has a second look: what fails twice fails the run, and what is unstable is named."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.recorded import FAILING, Outcomes
from tests.support.second_look import MOST_FAILURES, MOST_UNSTABLE, SecondLook, _at_once, _fewer, judge, to_look_at
from tests.support.waiting import PATIENCE_S, Process, wait_until

ROOT = Path(__file__).parents[3]
SYSTEM = """
import os, pathlib, pytest

def first_time(name):
    ran = pathlib.Path(__file__).with_name(f"ran-{name}")
    try:
        return not ran.exists()
    finally:
        ran.touch()

@pytest.mark.parametrize("name", ["a b::c/[d]"])
def test_unstable(name):
    first = first_time("call")
    print("first output" if first else "second output")
    assert not first

@pytest.fixture
def fragile():
    yield
    assert not first_time("teardown")

def test_unstable_at_its_end(fragile):
    pass

def test_the_worker_crashes_once():
    if first_time("crash"):
        os._exit(3)

def test_fails_twice():
    assert False, "the reason"

def test_skipped_the_second_time():
    if not first_time("skip"):
        pytest.skip("not today")
    assert False

@pytest.mark.xfail
def test_expected():
    assert False
"""
UNIT = """
import pytest

def test_fails():
    assert False

def test_passes():
    pass

def test_skipped():
    pytest.skip("nothing to do")
"""


def project(folder: Path, **files: str) -> Path:
    """Make a project whose test files are ``files``, by their directories' names."""
    folder.joinpath("pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\n')
    for name, text in files.items():
        folder.joinpath("tests", name).mkdir(parents=True)
        folder.joinpath("tests", name, "test_it.py").write_text(text)
    return folder


COMMAND = [sys.executable, "-m", "tests.support.second_look"]


def environment(*plugins: str, **more: str) -> dict[str, str]:
    """The variables of a run in a project of its own. Loading every installed plugin would take most of the time."""
    kept = {name: value for name, value in os.environ.items() if name not in ("STRICT", "PYTEST_ADDOPTS")}
    loaded = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": ",".join(plugins)}
    return {**kept, "PYTHONPATH": str(ROOT), **loaded, **more}


def run(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of ``folder`` to their end."""
    env = environment(*(["xdist.plugin"] if "-n" in words else []), **variables)
    return subprocess.run(
        [*COMMAND, *words], cwd=folder, env=env, capture_output=True, text=True,
        errors="replace", stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.timeout(300)
def test_what_fails_once_is_unstable_and_what_fails_twice_fails(tmp_path: Path) -> None:
    done = run(project(tmp_path, system=SYSTEM, unit=UNIT), "-n", "1", "tests")
    assert done.returncode == 1, done.stdout + done.stderr
    *_, reasons, unstable, closing = done.stdout.splitlines()
    names = ["test_unstable[a b::c/[d]]", "test_unstable_at_its_end", "test_the_worker_crashes_once"]
    assert unstable.startswith("3 unstable: ")
    assert all(f"tests/system/test_it.py::{name}" in unstable for name in names), unstable
    assert closing.startswith("3 failed, 4 passed, 1 skipped, 1 xfailed in "), closing
    for name, outcome in {"test_fails_twice": "failed", "test_skipped_the_second_time": "skipped"}.items():
        assert f"DOES NOT PASS alone: tests/system/test_it.py::{name}" in done.stdout
        assert f"FAILED tests/system/test_it.py::{name} (alone: {outcome})" in done.stdout
    assert "FAILED tests/unit/test_it.py::test_fails (no second look)" in done.stdout
    assert reasons == "Both outputs of each unstable test are in build/unstable.txt."
    kept = tmp_path.joinpath("build/unstable.txt").read_text()
    assert "first output" in kept and "second output" in kept and "worker 'gw" in kept and "the reason" not in kept


def test_the_verdict_stands_though_its_file_cannot_be_written(tmp_path: Path) -> None:
    text = SYSTEM.split("@pytest.fixture")[0].replace("assert not first", r"assert not first, '\udcff'")
    project(tmp_path, system=text).joinpath("build").write_text("not a directory")
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cannot write build/unstable.txt: " in done.stdout and "1 passed in" in done.stdout.splitlines()[-1]
    assert r"\udcff" in done.stdout and "first output" in done.stdout


UNSTABLE = SYSTEM.split("@pytest.mark")[0] + "def test_it(): assert not first_time('it')\n"
#: What makes a run fail beside a test that fails, and the words of a conftest.py or test file that does.
BESIDE = {
    "a file that cannot be collected": {"test_broken.py": "import no_such_module"},
    "a hook that fails": {"conftest.py": "def pytest_sessionfinish(session):\n    raise RuntimeError('leaked')"},
    "a test that ends the run": {"test_it2.py": "import pytest\ndef test_exit(): pytest.exit('broken', 1)"},
    "a test that ends pytest": {"test_it2.py": "import os\ndef test_exit(): os._exit(0)"},
}


@pytest.mark.parametrize("what", BESIDE)
def test_a_run_that_fails_otherwise_has_no_second_look(tmp_path: Path, what: str) -> None:
    stale = project(tmp_path, system=UNSTABLE) / "build" / "unstable.txt"
    stale.parent.mkdir()
    stale.write_text("of an earlier run")
    for name, text in BESIDE[what].items():
        tmp_path.joinpath("tests/system", name).write_text(text)
    done = run(tmp_path, PYTEST_ADDOPTS="--continue-on-collection-errors")
    assert done.returncode != 0 and "second look" not in done.stdout, done.stdout + done.stderr
    assert not stale.exists()


def test_a_run_that_stops_at_the_first_failure_has_no_second_look(tmp_path: Path) -> None:
    done = run(project(tmp_path, system=UNSTABLE, unit=UNIT), PYTEST_ADDOPTS="-x")
    assert done.returncode == 1 and "second look" not in done.stdout, done.stdout + done.stderr


def test_options_and_strict_runs_are_pytests_own(tmp_path: Path) -> None:
    project(tmp_path, system=UNSTABLE, unit=UNIT)
    for words, variables in ((["-v", "tests"], {"STRICT": "0"}), ([], {"STRICT": "1"})):
        tmp_path.joinpath("tests/system/ran-it").unlink(missing_ok=True)
        done = run(tmp_path, *words, **variables)
        assert done.returncode == 1 and "second look" not in done.stdout, done.stdout + done.stderr
        assert "2 failed, 1 passed, 1 skipped in" in done.stdout.splitlines()[-1]


def test_unit_tests_run_first_and_nothing_else_does_if_one_fails(tmp_path: Path) -> None:
    project(tmp_path, system=UNSTABLE, unit=UNIT)
    done = run(tmp_path)
    assert done.returncode == 1 and "1 failed, 1 passed, 1 skipped in" in done.stdout.splitlines()[-1], done.stdout
    assert not tmp_path.joinpath("tests/system/ran-it").exists()

    tmp_path.joinpath("tests/unit/test_it.py").write_text("def test_passes(): pass\n")
    tmp_path.joinpath("tests/system/test_more.py").write_text("def test_passes(): pass\n")
    for words in (("-n", "1"), ()):  # the second time, nothing fails
        done = run(tmp_path, *words)
        assert done.returncode == 0 and done.stdout.splitlines()[-1].startswith("3 passed in "), done.stdout
        assert ("1 unstable: tests/system/test_it.py::test_it" in done.stdout) is bool(words)


BESIDE_A_PROCESS = (
    UNSTABLE.replace("def test_it", "def test_with_a_process")
    + """
import subprocess

@pytest.fixture
def child():
    return subprocess.run(["true"]).returncode

@pytest.fixture(autouse=True)
def status(request):
    return request.getfixturevalue("child") if "with" in request.node.name else 0

def test_by_itself():
    pass
"""
)


def test_a_unit_test_with_a_process_has_a_second_look_before_the_others_run(tmp_path: Path) -> None:
    """With workers of pytest-xdist, and without."""
    project(tmp_path, system="def test_it(): pass", unit=BESIDE_A_PROCESS)
    done = run(tmp_path, "-n", "2")
    assert done.returncode == 0, done.stdout
    assert "1 unstable: tests/unit/test_it.py::test_with_a_process" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("3 passed in "), done.stdout

    tmp_path.joinpath("tests/unit/ran-it").unlink()
    tmp_path.joinpath("tests/unit/test_more.py").write_text("def test_fails(): assert False\n")
    tmp_path.joinpath("tests/system/test_it.py").write_text(UNSTABLE)
    done = run(tmp_path)
    assert done.returncode == 1 and done.stdout.splitlines()[-1].startswith("1 failed, 2 passed in "), done.stdout
    assert "1 unstable: tests/unit/test_it.py::test_with_a_process" in done.stdout
    assert not tmp_path.joinpath("tests/system/ran-it").exists()


def test_a_run_without_a_failure_is_pytests_own(tmp_path: Path) -> None:
    name = "tests/unit/test_it.py::test_passes"
    done = run(project(tmp_path, unit=UNIT), name)
    assert done.returncode == 0 and "1 passed" in done.stdout.splitlines()[-1], done.stdout + done.stderr
    assert run(tmp_path, "no_such_file").returncode == 4
    assert run(tmp_path, "--help").returncode == 0


HANGS = """
import os, pathlib, pytest

@pytest.fixture
def resource():
    yield
    pathlib.Path("released").touch()

def test_waits(resource):
    assert pathlib.Path("go").exists(), "the first time"
    pathlib.Path("began").write_text(str(os.getpid()))
    reader, writer = os.pipe()
    os.read(reader, 1)
"""


@pytest.mark.parametrize(
    ("number", "group", "second", "workers"),
    [
        (signal.SIGINT, True, False, "0"),  # ^C in a terminal
        (signal.SIGTERM, True, False, "2"),  # timeout(1)
        (signal.SIGINT, False, True, "0"),
    ],
)
def test_a_signal_ends_the_tests_with_their_own_clean_up(
    tmp_path: Path, number: signal.Signals, group: bool, second: bool, workers: str
) -> None:
    project(tmp_path, system=HANGS)
    go, began = tmp_path / "go", tmp_path / "began"
    if not second:
        go.touch()
    plugins = ("xdist.plugin", "pytest_timeout", "tests.conftest")
    env = environment(*plugins, PYTEST_ADDOPTS="-p no:cacheprovider", PYTHONUNBUFFERED="1")
    with open(tmp_path / "output", "w") as output:
        process = Process(
            [*COMMAND, "-n", workers],
            cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        if second:
            wait_until(lambda: "second look" in (tmp_path / "output").read_text(), "the second look")
            go.touch()
        wait_until(lambda: began.exists() and began.read_text(), "the test runs")
        (tmp_path / "released").unlink(missing_ok=True)
        (os.killpg if group else os.kill)(process.pid, number)
        assert process.wait(timeout=PATIENCE_S) == (128 + number if second else 2)
        wait_until(lambda: not Path(f"/proc/{began.read_text()}").exists(), "the test's process has ended")
        assert (tmp_path / "released").exists()
        assert "Traceback" not in (tmp_path / "output").read_text()
    finally:
        process.kill()
        process.wait()


def outcomes(categories: dict[str, str], beside: list[str] | None = None) -> Outcomes:
    return Outcomes(categories, {}, beside or [], complete=True)


def test_a_few_failures_have_a_second_look_and_many_none() -> None:
    few = {f"tests/system/test_a.py::test[{at}]": "failed" for at in range(MOST_FAILURES)}
    assert to_look_at(outcomes(few)) == list(few)
    assert to_look_at(outcomes({**few, "tests/system/test_a.py::test_b": "error"})) == []
    pure, beside, system = "tests/unit/test_a.py::pure", "tests/unit/test_a.py::beside", "tests/tui/test_b.py::test"
    assert to_look_at(outcomes(dict.fromkeys([pure, beside, system], "failed"), [beside])) == [beside, system]
    assert to_look_at(Outcomes(few, {}, [], complete=False)) == []


@pytest.mark.parametrize(("unstable", "failed"), [(MOST_UNSTABLE, 0), (MOST_UNSTABLE + 2, 2)])
def test_more_than_a_few_unstable_tests_fail_the_run(unstable: int, failed: int) -> None:
    first = outcomes({"tests/tui/test_b.py::ok": "passed", **{f"t{at}": "failed" for at in range(unstable)}})
    verdict = judge(first, [SecondLook(f"t{at}", "passed", "") for at in range(unstable)])
    assert verdict.failed == [] and len(verdict.unstable) == unstable
    assert verdict.totals == {"passed": 1 + MOST_UNSTABLE, "failed": failed}
    assert verdict.status() == (1 if failed else 0)


@given(st.lists(st.sampled_from(["error", "failed", "skipped", "xfailed", "xpassed", "passed"])), st.data())
def test_the_closing_line_counts_every_test_once_and_agrees_with_the_status(
    kinds: list[str], data: st.DataObject
) -> None:
    first = outcomes({f"tests/system/test_a.py::test[{at}]": kind for at, kind in enumerate(kinds)})
    second = st.sampled_from(["passed", "failed", "skipped", "not found"])
    looks = [SecondLook(name, data.draw(second), "") for name in to_look_at(first)]
    verdict = judge(first, looks)
    line = verdict.closing_line(3723.456)
    counts = dict(reversed(part.split()) for part in line.partition(" in ")[0].split(", ") if part)
    assert sum(int(count) for count in counts.values()) == len(kinds)
    assert line.endswith(" in 3723.46s (1:02:03)")
    passed = sum(look.passed for look in looks)
    failed = sum(kind in FAILING for kind in kinds) - passed + max(0, passed - MOST_UNSTABLE)
    assert int(counts.get("failed", 0)) == failed and verdict.status() == min(failed, 1)


def test_how_many_tests_run_at_once_is_read_as_pytest_xdist_reads_it() -> None:
    for words in ("-n 8 tests", "-n8", "--numprocesses=8", "tests --numprocesses 8", "-n 8 --dist worksteal"):
        assert _at_once(words.split()) == 8, words
    for words in ("-n auto", "-nauto", "--numprocesses=auto"):
        assert _at_once(words.split()) == len(os.sched_getaffinity(0)), words
    for words in ("", "tests/unit", "-k no-n8", "-nothing"):
        assert _at_once(words.split()) == 1, words


def test_unit_tests_have_half_the_processes() -> None:
    assert _fewer(["-n", "8", "--dist", "worksteal"]) == ["-n", "4", "--dist", "worksteal"]
    for words in (["-n", "1"], ["-n", "auto"], ["-n"], ["--dist", "load"], []):
        assert _fewer(words) == words

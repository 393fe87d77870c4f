"""A monkey at the console (tests/monkey): keys, mouse, sizes and events at random; make storm has longer ones."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.chance import long
from tests.support.waiting import PATIENCE_S

PROJECT = Path(__file__).resolve().parents[3]
MINUTES = long(0.5, 6.0)
#: The mesh goes up and down, and every act waits for a terminal.
LONG_S = MINUTES * 60 + 3 * PATIENCE_S
#: One that found a fault once (a byte that is no character, a sequence that is none), and a new one, which is printed.
SEEDS = {"the same acts": 1, "other acts": random.SystemRandom().randrange(1, 1 << 30)}


@pytest.mark.storm
@pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux here")
@pytest.mark.parametrize("which", SEEDS)
def test_a_monkey_at_the_console(which: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.monkey", "--minutes", str(MINUTES), "--seed", str(SEEDS[which])]
    monkey = subprocess.Popen(
        [*command, "--report", str(tmp_path)],
        cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        said, _ = monkey.communicate(timeout=LONG_S)
    except subprocess.TimeoutExpired:
        monkey.terminate()  # so that it takes its mesh down
        said, _ = monkey.communicate(timeout=PATIENCE_S)
        pytest.fail(f"the monkey does not end within {LONG_S:.0f} s:\n{said}")
    finally:
        monkey.kill()
    print(said)
    found = "\n".join(path.read_text(errors="replace") for path in sorted(tmp_path.glob("violation-*.txt")))
    assert monkey.returncode == 0, f"{said}\n{found}"
    assert " 0 violations" in said.splitlines()[-1], said

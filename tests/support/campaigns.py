"""What campaigns (tests/storm, tests/monkey) have in common: their start, and how a test of the suite plays one."""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.isolated import PROJECT, interruptible, run_isolated
from tests.support.waiting import PATIENCE_S


def parser(name: str, description: str, minutes: float, repeats: str) -> argparse.ArgumentParser:
    """The options that every campaign has. ``repeats``: what a seed gives again."""
    made = argparse.ArgumentParser(prog=f"python -m tests.{name}", description=description)
    made.add_argument("--minutes", type=float, default=minutes, help=f"how long (default: {minutes:g})")
    made.add_argument("--seed", type=int, default=0, help=f"repeat the {repeats} of a seed (default: a new seed)")
    made.add_argument("--report", type=Path, help=f"where the log goes (default: /var/tmp/redmesh-{name}-SEED)")
    made.add_argument("--inside", default="", help=argparse.SUPPRESS)
    return made


def start(name: str, options: argparse.Namespace, play: Callable[[argparse.Namespace], int]) -> int:
    """Choose a seed, make the report's directory, and play in namespaces of its own; the exit status."""
    if options.inside:
        interruptible()
        return play(options)
    options.seed = options.seed or random.randrange(1, 1 << 30)
    options.report = (options.report or Path(f"/var/tmp/redmesh-{name}-{options.seed}")).resolve()
    options.report.mkdir(parents=True, exist_ok=True)
    print(f"{name}: seed {options.seed}, log {options.report / f'{name}.jsonl'}", flush=True)
    return run_isolated(f"tests.{name}", sys.argv[1:], options.seed, options.report)


def played(name: str, seed: int, report: Path, words: list[str], patience_s: float) -> str:
    """Play a campaign for a test; what it printed. Fails the test if anything was violated, or if it does not end."""
    command = [sys.executable, "-m", f"tests.{name}", "--seed", str(seed), "--report", str(report), *words]
    campaign = subprocess.Popen(
        command, cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said, _ = campaign.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        campaign.terminate()  # so that it takes its mesh down
        said, _ = campaign.communicate(timeout=PATIENCE_S)
        pytest.fail(f"the {name} does not end within {patience_s:.0f} s:\n{said}")
    finally:
        campaign.kill()
    found = "\n".join(path.read_text(errors="replace") for path in sorted(report.glob("violation-*.txt")))
    if "is left out: " in said:
        pytest.skip(said.partition("is left out: ")[2].splitlines()[0])
    assert campaign.returncode == 0, f"{said}\n{found}"
    assert " 0 violations" in said.splitlines()[-1], said
    return said

"""``mesh stacks``: the stacks of a running launch, merged into one tree."""

import argparse
import json
import re
import sys
from typing import Any

from console.cli.mesh.chosen_launch import chosen_launch
from console.launch.attach.stacks import take
from console.launch.daemons.connect import stay_on_side
from console.settings import Settings
from redmesh.sanitise import clean

_INSIDE = re.compile(r"P?MPI_[A-Z]")


def stacks(settings: Settings, options: argparse.Namespace) -> int:
    """Collect the stacks and print them."""
    launcher = chosen_launch(settings, options.launcher)
    stay_on_side(settings, launcher)
    which = "native" if options.native else "python" if options.python else "all"
    told = take(settings.run_dir, launcher, ranks=options.ranks, which=which, limit_s=options.limit)
    if options.json:
        print(json.dumps(told))
    else:
        for line in lines(told, whole=options.whole):
            print(line)
        sys.stdout.flush()
        for line in remarks(told):
            print(f"mesh: {line}", file=sys.stderr)
    return 0 if told["tree"] else 1


def lines(told: dict[str, Any], *, whole: bool) -> list[str]:
    """The tree as lines, one for each call; calls inside MPI are omitted unless ``whole``."""
    found: list[str] = []
    ahead = [(0, one) for one in reversed(told["tree"])]
    while ahead:
        depth, one = ahead.pop()
        found.append("  " * depth + f"[{one['ranks']}] {_call(one)}")
        if not whole and one["language"] == "c" and _INSIDE.match(one["function"]):
            continue
        ahead += [(depth + 1, each) for each in reversed(one["children"])]
    return found


def _call(one: dict[str, Any]) -> str:
    file = clean(str(one["file"]))
    if one["line"]:
        file += f":{one['line']}"
    elif file:
        file = f"in {file}"
    return f"{clean(str(one['function']))} {file}".rstrip()


def remarks(told: dict[str, Any]) -> list[str]:
    """Lines for stderr: missing ranks with reasons, and hints."""
    found = []
    for one in told["missing"]:
        on = f" on {clean(one['node'])}" if one["node"] else ""
        found.append(f"rank {one['ranks']}{on}: {clean(one['why'])}")
    found += [clean(lack) for lack in told["lacks"]]
    for hint in told["hints"]:
        found.append(f"hint ({hint['kind']}): {clean(hint['text'])}")
    return found

"""``mesh manager``: detects the batch system of this job, and tests what it offers."""

import argparse
import json
import os
import sys
from typing import Any

from agents.managers import registry
from console.errors import ConsoleError
from console.settings import Settings
from redmesh.managers import ManagerError
from redmesh.text import counted


def list_managers(settings: Settings, options: argparse.Namespace) -> int:
    """List all managers, whether each is detected, and the state directory of the job's mesh."""
    rows = [_row(name) for name in registry.names()]
    if options.json:
        print(json.dumps({"managers": rows, "job": settings.allocation, "state": _state(settings)}))
        return 0
    for row in rows:
        marks = [word for word, is_so in (("detected", row["detected"]), ("distributed", row["distributed"])) if is_so]
        print(f"{row['name']:<12} {row['error'] or ', '.join(marks) or '-'}")
    if settings.allocation:
        print(f"\nthis job    {settings.allocation}\nits mesh    {_state(settings)}")
        print(f"from another shell of this host: REDMESH_JOB={_state(settings)} mesh console")
    return 0


def _state(settings: Settings) -> str:
    return settings.state_dir if settings.allocation or settings.job else ""


def _row(name: str) -> dict[str, Any]:
    try:
        manager = registry.load(name)
        there, told = bool(manager.detect(os.environ)), ""
    except ManagerError as error:
        return {"name": name, "detected": False, "distributed": False, "error": error.message}
    return {"name": name, "detected": there, "distributed": bool(manager.distributed), "error": told}


def check(settings: Settings, options: argparse.Namespace) -> int:
    """Test this job's manager; returns 1 if some of it does not work."""
    try:
        name, manager = registry.find(os.environ, settings.manager)
        if not name:
            raise ConsoleError("this process is not in a job of a batch system", "run it in the job's script")
        hosts = manager.hosts(os.environ)
        job = manager.job_id(os.environ)
    except ManagerError as error:
        raise ConsoleError(error.message, error.hint, exit_status=1) from None
    left = _time_left(manager)
    slots = sum(count for _name, count in hosts)
    path, missing = _starts_by(manager)
    if options.json:
        facts = {"manager": name, "job": job, "hosts": hosts, "time_left_s": left}
        print(json.dumps({**facts, "starts_by": path, "missing": missing}))
    else:
        print(f"manager     {name}\njob         {job}")
        print(f"hosts       {counted(len(hosts), 'host')}, {counted(slots, 'slot')}")
        print(f"time left   {'no limit is known' if left is None else f'{left:.0f} s'}")
        print(f"starts by   {', '.join([*([path] if path else []), _way(manager)])}")
        if missing:
            print(f"missing     {missing}")
    return int(bool(missing))


def install(_settings: Settings, options: argparse.Namespace) -> int:
    """Print a site's scripts for prolog and epilog, and how to configure the batch system."""
    from console.deploy.managed.site_scripts import Site, scripts

    site = Site(options.directory, options.jobs, os.path.dirname(os.path.abspath(sys.argv[0])))
    made, rest = scripts(options.batch_system, site)
    if options.json:
        print(json.dumps({"scripts": [script._asdict() for script in made], "configuration": rest}))
        return 0
    for script in made:
        print(f"=== {script.path} (mode 0755): {script.runs}\n{script.text}")
    print("=== " + "\n".join(rest))
    return 0


def _time_left(manager: Any) -> float | None:
    try:
        seconds: float | None = manager.time_left(os.environ) if hasattr(manager, "time_left") else None
    except ManagerError as error:
        print(f"mesh: the time left cannot be told: {error.message}", file=sys.stderr)
        return None
    return seconds


def _starts_by(manager: Any) -> tuple[str, str]:
    """The path of what starts processes, and what is missing for that."""
    try:
        return (str(manager.starts_by(os.environ)) if hasattr(manager, "starts_by") else ""), ""
    except ManagerError as error:
        return "", "; ".join(part for part in (error.message, error.hint) if part)


def _way(manager: Any) -> str:
    many = "one client for all hosts" if hasattr(manager, "spawn_all") else "one client for each host"
    return many if getattr(manager, "streams", True) else f"{many}, fed through files in your state directory"

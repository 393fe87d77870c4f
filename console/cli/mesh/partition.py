"""``mesh partition``: the batch system's interface to a mesh."""

import argparse
import json
import os
import sys

from agents.link.sockets import own_directory
from console.deploy.mesh.cpas import ask_cpa
from console.deploy.personal.lifecycle import write_private
from console.errors import ConsoleError, UsageError
from console.launch.options.lists import parse_list
from console.settings import Settings


def create(settings: Settings, options: argparse.Namespace) -> int:
    """Create a partition; print the variables for a job script as lines for ``eval``."""
    if options.size is None and not options.list:
        raise UsageError("the number of processors is missing", "-sz N, or --list LIST")
    if not options.batch_job:
        raise UsageError("--batch-job needs the batch system's job id", "mesh partition create --batch-job ID -sz N")
    request = {
        "op": "partition_create",
        "key": os.urandom(16).hex(),
        "batch_job": options.batch_job,
        "size": options.size,
        "wanted": parse_list(options.list) if options.list else None,
        "exclude": None,
        "placement": "default",
    }
    if options.user:
        request["user"] = options.user
    reply = ask_cpa(settings, request)
    folder = f"{settings.state_dir}/partitions"
    own_directory(folder)
    write_private(f"{folder}/{reply['partition']}", reply["admin_cookie"] + "\n")
    if options.json:
        print(json.dumps({"partition": int(reply["partition"]), "allocation_cookie": reply["allocation_cookie"]}))
        return 0
    print(f"REDMESH_PARTITION={int(reply['partition'])}")
    print(f"REDMESH_ALLOCATION_COOKIE={reply['allocation_cookie']}")
    return 0


def destroy(settings: Settings, options: argparse.Namespace) -> int:
    """Destroy a partition, with the cookie that ``create`` stored."""
    path = f"{settings.state_dir}/partitions/{options.partition}"
    try:
        with open(path, encoding="ascii") as file:
            cookie = file.read().strip()
    except FileNotFoundError:
        raise ConsoleError(
            f"partition {options.partition} was not created on this login processor",
            "mesh partition list",
            exit_status=1,
        ) from None
    ask_cpa(
        settings,
        {"op": "partition_destroy", "partition": options.partition, "cookie": cookie, "force": options.force},
        timeout_s=60.0,
    )
    os.unlink(path)
    return 0


def show(settings: Settings, options: argparse.Namespace) -> int:
    """Print the existing partitions, directly from the database."""
    import shutil

    from console.cli.map.drawing import elapsed, table
    from db.views.viewer import Picture, open_viewer
    from redmesh.sanitise import clean

    picture = Picture()
    with open_viewer(settings.database, settings.login) as viewer:
        picture.update(viewer)
    rows = [row for _, row in sorted(picture.partitions.items())]
    if options.json:
        print(json.dumps([dict(row._asdict(), batch_job_error=bool(row.batch_job_error)) for row in rows]))
        return 0
    if not rows:
        print("no partitions")
        return 0
    head = ("partition", "batch job", "user", "size", "max in use", "error", "age", "processors")
    lines = [
        (
            str(row.id),
            clean(row.batch_job or "-"),
            clean(row.user),
            str(row.size),
            str(row.max_in_use),
            "yes" if row.batch_job_error else "no",
            elapsed(picture.now - row.created_at),
            row.processors,
        )
        for row in rows
    ]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 1 << 20
    print("\n".join(table(head, lines, width, right=(0, 3, 4))))
    return 0

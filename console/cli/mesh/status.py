"""``mesh status``."""

import argparse
import glob
import json
import os
from typing import Any

from agents.link.client import Client, Unreachable
from console.cli.map.drawing import legend
from console.cli.map.rows import counts, to_be_drained
from console.deploy.hosts.other_meshes import MEANING
from console.deploy.hosts.other_meshes import lines as lines_of
from console.deploy.personal import evidence_of_life, lifecycle
from console.deploy.personal.plan import size_of
from console.deploy.personal.program_snapshot import runs_another
from console.settings import Settings
from db.errors import StoreError
from db.store.ranges import fold
from db.store.url import without_password
from db.views.viewer import Picture, open_viewer
from redmesh.sanitise import clean
from redmesh.text import counted

#: Free bytes that the state directory needs, so that the mesh can write its files.
ROOM = 4 << 20
#: The most nodes with the same problem that are listed one by one.
NAMED = 5
#: What gives a mesh whose keeper has exited a new one.
HEALS = "mesh up gives it a new keeper, which starts what is missing; launches run on"
#: Whose a system mesh is, and what its users may ask.
OF_ROOT = "owner       root, for all users: yod, mesh submit and mesh queue are yours; root starts and ends it"


def status(settings: Settings, options: argparse.Namespace) -> int:
    """Print the state of the mesh; returns 1 if none is up, or if part of it is missing.

    A user of a system mesh neither reads the keeper's files nor reaches its socket, which are root's: the keeper is
    left out then.
    """
    found = _find_out(settings)
    print(json.dumps(found) if options.json else "\n".join(_as_text(found)))
    return 0 if found["healthy"] else 1


def _find_out(settings: Settings) -> dict[str, Any]:
    of_root = bool(settings.system and os.geteuid())
    config, trouble = (None, "") if of_root else lifecycle.found_config(settings)
    keeper = None if of_root else _ask(f"{settings.run_dir}/keeper.sock", {"op": "status"})
    rca = _ask(f"{settings.run_dir}/rca.sock", {"op": "status"})
    unheard = "" if of_root or (keeper and rca) else _unheard(settings)
    if unheard:
        keeper = _ask(f"{settings.run_dir}/keeper.sock", {"op": "status"})
        rca = _ask(f"{settings.run_dir}/rca.sock", {"op": "status"})
    cpas = {
        os.path.basename(path)[:-5]: evidence_of_life.answers(path)
        for path in sorted(glob.glob(f"{glob.escape(settings.run_dir)}/cpa-*.sock"))
    }
    database, size, machine = _database(settings)
    up = bool(keeper or rca or any(cpas.values()) or unheard)
    gone = up and config is not None and keeper is None
    # no keeper runs, and a new one can take daemons and launches over
    adoptable = gone and not evidence_of_life.lock_is_held(settings.state_dir)
    free = _free(settings.state_dir)
    failing = any("reason" in one for one in keeper["daemons"]) if keeper else False
    complete = bool((keeper or of_root) and rca and cpas and all(cpas.values()) and not database and machine)
    return {
        "mesh": settings.mesh,
        "up": up,
        "healthy": complete and not (machine["nodes_out"] or failing) and (free is None or free >= ROOM),
        "size": str(size_of(config)) if config else size if of_root else None,
        "trouble": "" if not up else unheard if not keeper and not rca else trouble if config is None else "",
        "state": settings.state_dir,
        "state_free": free,
        "another_program": up and runs_another(settings.state_dir),
        "run": settings.run_dir,
        "database": without_password(settings.database),
        "database_error": database,
        "of_root": of_root,
        "auto": keeper["auto"] if keeper else None,
        "adoptable": adoptable,
        "keeper": keeper["pid"] if keeper else None,
        "daemons": keeper["daemons"] if keeper else [],
        "rca": rca is not None,
        "rca_events": rca["events"] if rca else None,
        "cpas": cpas,
        **machine,
    }


def _unheard(settings: Settings) -> str:
    """Describe a mesh whose keeper does not answer, after giving it time to make sockets again; "" if none is up."""
    if not lifecycle.is_up(settings):
        return ""
    there = lifecycle.found_config(settings)[0] or lifecycle.bare_config(settings)
    silent = evidence_of_life.await_sockets(there)
    if evidence_of_life.any_answers(settings.run_dir):
        return "a part of it does not answer"
    what = f"its processes live ({', '.join(silent)})" if silent else f"a keeper holds {settings.state_dir}/mesh.lock"
    why = "" if os.path.isdir(settings.run_dir) else f"; {settings.run_dir} was removed and cannot be made again"
    return f"{what}, but nothing answers{why}"


def _ask(path: str, request: dict[str, Any]) -> dict[str, Any] | None:
    try:
        with Client(path, "admin", 2.0) as client:
            return client.call(request)
    except Unreachable:
        return None


def _database(settings: Settings) -> tuple[str, str | None, dict[str, Any]]:
    """An error or "", the size of the machine, and what the database says of it."""
    picture = Picture()
    try:
        with open_viewer(settings.database, settings.login) as viewer:
            picture.update(viewer)
    except StoreError as error:
        return (
            error.message,
            None,
            {
                "nodes_out": [],
                "nodes_told": [],
                "nodes_shared": [],
                "to_be_drained": [],
                "launchers_unknown": [],
                "processors": {},
                "launchers": 0,
                "partitions": 0,
            },
        )
    out = [
        {"name": node.name, "state": node.state, "reason": node.reason}
        for _, node in sorted(picture.nodes.items())
        if node.state != "up"
    ]
    shared = [
        {"name": node.name, "reason": node.reason}
        for _, node in sorted(picture.nodes.items())
        if node.state == "up" and node.reason
    ]
    sizes = {"launchers": len(picture.launchers), "partitions": len(picture.partitions)}
    nodes = len({one.node for one in picture.processors.values()})
    size = f"{counted(len(picture.processors), 'processor')} on {counted(nodes, 'node')}"
    told = {"nodes_out": out, "nodes_told": _nodes_out(out), "to_be_drained": to_be_drained(picture)}
    told["nodes_shared"] = shared
    told["launchers_unknown"] = launchers_unknown(picture)
    return "", size, {**told, "processors": counts(picture), **sizes}


def _free(directory: str) -> int | None:
    """Free bytes for the owner of a directory; None if unknown."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _as_text(found: dict[str, Any]) -> list[str]:
    if not found["up"] and found["of_root"]:
        return [f"no mesh answers at {found['run']}: its administrator starts it (mesh up, as root)"]
    if not found["up"]:
        return ["no mesh is up", f"state       {found['state']}"]
    auto = ", ends when idle" if found["auto"] else ""
    lines = [f"mesh {found['mesh']}: {found['size'] or 'its size is not known'}{auto}"]
    if found["trouble"]:
        hint = HEALS if found["adoptable"] else "mesh down --force ends what is up"
        lines.append(f"TROUBLE     {found['trouble']} ({hint})")
    gone = f"GONE: daemons are not restarted ({HEALS})" if found["adoptable"] else "DOES NOT ANSWER"
    keeper = f"pid {found['keeper']}" if found["keeper"] else gone
    cpas = ", ".join(name if answers else f"{name} DOES NOT ANSWER" for name, answers in found["cpas"].items())
    lines.append(OF_ROOT if found["of_root"] else f"keeper      {keeper}")
    lines.append(f"CPAs        {cpas or 'NONE'}")
    events = f", {counted(found['rca_events'], 'event waits', 'events wait')} for a CPA" if found["rca_events"] else ""
    lines.append("RCA         " + (f"answers{events}" if found["rca"] else "DOES NOT ANSWER"))
    lines.append(
        f"database    {found['database']}" + (f": {found['database_error']}" if found["database_error"] else "")
    )
    lines += [f"{one['name']:<11} {_failing(one)}" for one in found["daemons"] if "reason" in one]
    again = [one for one in found["daemons"] if one["restarts"]]
    if again:
        lines.append("restarted   " + ", ".join(f"{one['name']} {counted(one['restarts'], 'time')}" for one in again))
    if found["processors"]:
        lines.append(f"processors  {legend(found['processors'])}")
        lines.append(
            "in use      " + f"{counted(found['launchers'], 'launcher')}, {counted(found['partitions'], 'partition')}"
        )
    lines += [f"node        {told}" for told in [*found["nodes_told"], *found["to_be_drained"]]]
    shared = lines_of((one["name"], clean(one["reason"])) for one in found["nodes_shared"])
    lines += [f"shared      {told}: {MEANING}" for told in shared]
    lines += _unknown_lines(found["launchers_unknown"])
    if found["another_program"]:
        lines.append("program     of another version than is installed now; mesh upgrade changes it, launches run on")
    full = "" if found["state_free"] is None or found["state_free"] >= ROOM else ": " + _full(found["state_free"])
    return [*lines, f"state       {found['state']}{full}", f"sockets     {found['run']}"]


def _failing(daemon: dict[str, Any]) -> str:
    why = clean(str(daemon["reason"]))
    if "again_s" not in daemon:
        return f"HAS NO SOCKET: {why}; kill -CONT {daemon['pid']} lets it go on, kill {daemon['pid']} has it replaced"
    return f"DOES NOT COME UP: {why}; tried again in {daemon['again_s']:.0f} s, or by mesh up"


def _nodes_out(nodes: list[dict[str, str]]) -> list[str]:
    """A line for each node; one line for more than ``NAMED`` nodes with the same problem: thousands may be drained."""
    alike: dict[tuple[str, str], list[str]] = {}
    for one in nodes:
        alike.setdefault((one["state"], one["reason"]), []).append(one["name"])
    found = []
    for (state, reason), names in alike.items():
        why = f": {clean(reason)}" if reason else ""
        if len(names) <= NAMED:
            found += [f"{name} is {state}{why}" for name in names]
        else:
            found.append(f"{len(names)} nodes ({names[0]} … {names[-1]}) are {state}{why}")
    return found


def launchers_unknown(picture: Picture) -> list[dict[str, Any]]:
    """Launches of which nothing shows whether their process (yod) still runs: they keep their processors."""
    found = []
    for number, launcher in sorted(picture.launchers.items()):
        login = picture.nodes.get(launcher.login_processor)
        reason = ""
        if login is not None and login.state in ("suspect", "down"):
            reason = f"{login.name}, where it was started, does not answer"
        elif not launcher.pid:
            reason = "its process is in a pid namespace that the mesh's daemons cannot see"
        if reason:
            where = login.name if login is not None else ""
            found.append({"launcher": number, "user": launcher.user, "login": where, "reason": reason})
    return found


def _unknown_lines(launchers: list[dict[str, Any]]) -> list[str]:
    """A line for each reason and user."""
    alike: dict[tuple[str, str], list[int]] = {}
    for one in launchers:
        alike.setdefault((one["reason"], one["user"]), []).append(one["launcher"])
    return [
        f"launcher    {fold(ids)} of {clean(user)} may have ended: {clean(reason)}"
        f" (pingd -job {ids[0]} -kill ends {ids[0]} and frees its processors)"
        for (reason, user), ids in alike.items()
    ]


def _full(free: int) -> str:
    return f"ITS DISK IS FULL ({free >> 10} KiB left): logs, spools and a database there cannot grow; make room"

"""The faults, as a table: what each touches, what it may end, and how it heals.

A fault that strikes returns a :class:`Strike`, which names the launches that it may end; the storm holds against the
product every other launch that ends. Root rule of the model: a launch lives as long as its yod, its launch children and
its ranks live, whatever becomes of daemons, database, disks and directories.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

import pymysql

from tests.storm import world
from tests.storm.launches import Kind, Launch
from tests.storm.settings import MariadbSetting, SshSetting

if TYPE_CHECKING:
    from tests.storm.commands import Command
    from tests.storm.engine import Storm

PERSONAL, MARIADB, SSH = frozenset({"sqlite", "mariadb"}), frozenset({"mariadb"}), frozenset({"ssh"})
SQLITE, EVERY = frozenset({"sqlite", "ssh"}), frozenset({"sqlite", "mariadb", "ssh"})
#: The longest time that a process is stopped for: far below every lease and time-out of the product.
STOPPED_S = 2.0
#: Longer than ``mesh up`` waits for a mesh (console/deploy/personal/lifecycle.py), so that it gives up.
LONGER_THAN_UP_S = 19.0


class Unbegun(IntEnum):
    """What a fault may do to launches that have not begun."""

    GOES_ON = 0
    REFUSED = 1  # a new request may be refused; one that waits in line waits on
    FAILS = 2  # and so may the load of one that has its processors


@dataclass
class Strike:
    """A fault that has struck: what it hit, which launches it may end, and how and when it heals."""

    target: str
    may_end: list[Launch] = field(default_factory=list)
    heal: Callable[[], object] | None = None
    for_s: float = 0.0
    until: Command | None = None  # heals sooner, as soon as this command has ended


@dataclass(frozen=True)
class Fault:
    """One row of the table."""

    name: str
    family: str
    touches: str
    may_end: str  # in words; the Strike names the launches
    heals: str
    strike: Callable[[Storm], Strike | None]
    settings: frozenset[str] = EVERY
    #: What may become of a launch that has not begun while the fault lasts.
    unbegun: Unbegun = Unbegun.FAILS
    weight: float = 1.0
    #: Two faults of one resource never last at the same time.
    resource: str = ""


# Daemons


def _one(storm: Storm, role: str) -> tuple[str, int] | None:
    """One living daemon of a role: its name and pid."""
    there = [(name, pid) for (kind, name), pids in storm.daemons().items() if kind == role for pid in pids]
    return storm.random.choice(sorted(there)) if there else None


def _kill(role: str) -> Callable[[Storm], Strike | None]:
    def strike(storm: Storm) -> Strike | None:
        victim = _one(storm, role)
        if victim is None or not world.send(victim[1], signal.SIGKILL):
            return None
        return Strike(f"{role} {victim[0]} ({victim[1]})", for_s=1.0)

    return strike


def _stopped(storm: Storm, who: str, pids: list[int]) -> Strike | None:
    """Stop processes; they go on after at most :data:`STOPPED_S`."""
    hit = [pid for pid in pids if world.send(pid, signal.SIGSTOP)]
    seconds = storm.random.uniform(0.1, STOPPED_S)

    def heal() -> None:
        for pid in hit:
            world.send(pid, signal.SIGCONT)

    return Strike(f"{who} {hit}", heal=heal, for_s=seconds) if hit else None


def _stop(role: str) -> Callable[[Storm], Strike | None]:
    def strike(storm: Storm) -> Strike | None:
        victim = _one(storm, role)
        return _stopped(storm, f"{role} {victim[0]}", [victim[1]]) if victim else None

    return strike


def _kill_keeper(storm: Storm) -> Strike | None:
    victim = _one(storm, "keeper")
    if victim is None or not world.send(victim[1], signal.SIGKILL):
        return None
    seconds = storm.random.choice([0.0, 0.1, 0.5, 2.0])
    return Strike(f"keeper {victim[0]} ({victim[1]})", heal=storm.mesh_up, for_s=seconds)


def _kill_several(*roles: str, every: bool = False) -> Callable[[Storm], Strike | None]:
    """One daemon of each role (``every``: all of them), at once and in any order; then ``mesh up``."""

    def strike(storm: Storm) -> Strike | None:
        chosen = list(roles)
        storm.random.shuffle(chosen)
        hit = []
        for role in chosen:
            if every:
                victims = [
                    (name, pid) for (kind, name), pids in storm.daemons().items() if kind == role for pid in pids
                ]
            else:
                one = _one(storm, role)
                victims = [one] if one else []
            hit += [f"{role} {name}" for name, pid in victims if world.send(pid, signal.SIGKILL)]
        seconds = storm.random.choice([0.0, 0.2, 1.5])
        return Strike(", ".join(hit), heal=storm.mesh_up, for_s=seconds) if hit else None

    return strike


def _kill_pcts(storm: Storm) -> Strike | None:
    pids = [pid for (role, _), some in storm.daemons().items() if role == "pct" for pid in some]
    hit = [pid for pid in pids if world.send(pid, signal.SIGKILL)]
    return Strike(f"PCTs {hit}", for_s=1.5) if hit else None


# Launches


def _running(storm: Storm, *kinds: Kind) -> Launch | None:
    there = [one for one in storm.living() if one.has_begun and (not kinds or one.kind in kinds)]
    # survivors are there to live: struck seldom
    there = [one for one in there if not one.survivor or storm.random.random() < 0.1]
    return storm.random.choice(there) if there else None


def _kill_one_of(name: str, processes: Callable[[Storm, Launch], list[int]]) -> Callable[[Storm], Strike | None]:
    """Kill one of the processes of a launch that runs; ``name`` is the fault's."""

    def strike(storm: Storm) -> Strike | None:
        launch = _running(storm)
        there = processes(storm, launch) if launch else []
        if launch is None or not there:
            return None
        launch.may_end.append(name)
        pid = storm.random.choice(there)
        return Strike(f"{launch.token} ({pid})", [launch]) if world.send(pid, signal.SIGKILL) else None

    return strike


def _stop_launch_child(storm: Storm) -> Strike | None:
    launch = _running(storm)
    children = storm.launch_children(launch) if launch else []
    if launch is None or not children:
        return None
    return _stopped(storm, launch.token, [storm.random.choice(children)])


def _kill_yod(storm: Storm) -> Strike | None:
    # also one that has not begun yet
    there = [one for one in storm.living() if not one.survivor]
    launch = storm.random.choice(there) if there else None
    pids = storm.yods(launch) if launch else []
    if launch is None or not pids:
        return None
    launch.may_end.append("kill-yod")
    hit = [pid for pid in pids if world.send(pid, signal.SIGKILL)]
    return Strike(f"{launch.token} {hit}", [launch])


def _stop_yod(storm: Storm) -> Strike | None:
    launch = storm.random.choice(storm.living()) if storm.living() else None
    return _stopped(storm, launch.token, storm.yods(launch)) if launch else None


def _signal_yod(storm: Storm) -> Strike | None:
    launch = _running(storm, Kind.ATTACHED, Kind.WAITING)
    pids = storm.yods(launch) if launch else []
    if launch is None or not pids:
        return None
    number = storm.random.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    launch.may_end.append("signal-yod")
    return Strike(f"{launch.token} {number.name}", [launch]) if world.send(pids[0], number) else None


def _detach_yod(storm: Storm) -> Strike | None:
    launch = _running(storm, Kind.ATTACHED, Kind.WAITING)
    if launch is None or launch.detached_later or launch.command.poll() is not None:
        return None
    launch.detached_later = True
    return Strike(launch.token) if world.send(launch.command.pid, signal.SIGQUIT) else None


def _kill_observer(storm: Storm) -> Strike | None:
    observers = [one for one in storm.commands if one.words[:2] == ["yod", "--attach"] and one.poll() is None]
    if not observers:
        return None
    one = storm.random.choice(observers)
    storm.expect_any_status(one)
    return Strike(one.text) if world.send(one.pid, signal.SIGKILL) else None


def _kill_whole_node(with_keeper: bool) -> Callable[[Storm], Strike | None]:
    """The PCT and its launch children (and the keeper) at once: nobody is left who knows the node's processes."""

    def strike(storm: Storm) -> Strike | None:
        launch = _running(storm)
        if launch is None or not launch.nodes:
            return None
        node = storm.random.choice(sorted(launch.nodes))
        daemons = storm.daemons()
        victims = daemons.get(("pct", node), []) + daemons.get(("launch", node), [])
        touched = storm.on_node(node)
        for one in touched:
            one.may_end.append("kill-whole-node")
        if with_keeper:
            # the keeper first: it would clear up behind the others
            victims = daemons.get(("keeper", ""), []) + daemons.get(("keeper", node), []) + victims
        hit = [pid for pid in victims if world.send(pid, signal.SIGKILL)]
        return Strike(f"{node} {hit}", touched, storm.mesh_up, storm.random.choice([0.0, 0.5]))

    return strike


# The database


def _database_file(storm: Storm) -> Path:
    return storm.setting.state / "mesh.db"


def _take_database_away(storm: Storm) -> Callable[[], object] | None:
    """Move the database away, or stop its server for good; what brings it back. None: it is away already."""
    setting = storm.setting
    if isinstance(setting, MariadbSetting):
        if setting.server.process is None or setting.server.process.poll() is not None:
            return None
        setting.server.kill()
        return setting.server.start
    # The file alone: whoever has it open goes on with it and its log, which must not be parted from their names
    # (sqlite.org/howtocorrupt.html, 2.4). One that is there when it comes back was made by somebody who found none.
    path = _database_file(storm)
    aside = path.with_name("moved-away")
    if not path.exists() or aside.exists():
        return None
    os.rename(path, aside)

    def back() -> None:
        if path.exists():
            storm.violate("database redefined", "mesh.db was moved away, and somebody made a new one meanwhile")
        os.rename(aside, path)

    return back


def _move_database(storm: Storm) -> Strike | None:
    back = _take_database_away(storm)
    return Strike("mesh.db", heal=back, for_s=storm.random.uniform(0.05, 3.0)) if back else None


def _away_at_turn(storm: Storm) -> Strike | None:
    """The database goes while launches wait in line, and processors for them come free before it is back."""
    if not any(one.kind is Kind.WAITING and not one.has_begun for one in storm.living()):
        return None
    ending = [one for one in storm.living() if one.has_begun and not one.survivor]
    if not ending:
        return None
    stopped = _stop_server(storm) if isinstance(storm.setting, MariadbSetting) and storm.random.random() < 0.5 else None
    back = stopped.heal if stopped else _take_database_away(storm)
    if back is None:
        return None
    for launch in ending:
        storm.files.stop(launch)
    names = ", ".join(launch.token for launch in ending)
    # a server that stands still for more than 3 s counts as dead (docs/database.md)
    seconds = storm.random.uniform(3.5, 5.0) if stopped else storm.random.uniform(0.5, 4.0)
    return Strike(f"{'stopped' if stopped else 'away'} while {names} end", heal=back, for_s=seconds)


def _lock_database(storm: Storm) -> Strike | None:
    try:
        connection = sqlite3.connect(_database_file(storm), timeout=1.0, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.Error:
        return None
    return Strike("BEGIN IMMEDIATE", heal=connection.close, for_s=storm.random.uniform(0.1, STOPPED_S))


def _server(storm: Storm) -> MariadbSetting:
    assert isinstance(storm.setting, MariadbSetting)
    return storm.setting


def _kill_server(storm: Storm) -> Strike | None:
    back = _take_database_away(storm)
    return Strike("mariadbd, SIGKILL", heal=back, for_s=storm.random.choice([0.0, 1.0, 4.0])) if back else None


def _restart_server(storm: Storm) -> Strike | None:
    server = _server(storm).server
    if server.process is None or server.process.poll() is not None:
        return None
    server.stop()
    return Strike("mariadbd, SIGTERM", heal=server.start, for_s=storm.random.choice([0.0, 0.5, 2.0]))


def _stop_server(storm: Storm) -> Strike | None:
    server = _server(storm).server
    if server.process is None or server.process.poll() is not None:
        return None
    server.signal(signal.SIGSTOP)
    return Strike(
        "mariadbd, SIGSTOP", heal=lambda: server.signal(signal.SIGCONT), for_s=storm.random.choice([0.3, 2.0, 5.0])
    )


def _kill_connections(storm: Storm) -> Strike | None:
    server = _server(storm).server
    rows = server.admin("SELECT id FROM information_schema.processlist WHERE user LIKE 'storm%'")
    for (number,) in rows:
        try:
            server.admin(f"KILL {number}")
        except pymysql.MySQLError:
            pass  # it has ended meanwhile
    return Strike(f"{len(rows)} connections") if rows else None


# Disks and directories


def _fill_disk(storm: Storm) -> Strike | None:
    disks = storm.setting.full_disks()
    if not disks:
        return None
    name = storm.random.choice(sorted(disks))
    path = disks[name] / f"filler-{storm.random.randrange(1 << 30)}"
    try:
        with open(path, "wb", buffering=0) as file:
            while file.write(bytes(1 << 18)):
                pass
    except OSError:
        pass  # full, as it should be
    return Strike(name, heal=lambda: path.unlink(missing_ok=True), for_s=storm.random.uniform(0.2, 2.5))


def _remove_run(storm: Storm) -> Strike | None:
    path = storm.random.choice(storm.setting.run_directories())
    if not path.exists():
        return None
    shutil.rmtree(path, ignore_errors=True)
    return Strike(str(path), for_s=2.0)


# Commands at bad moments


def _up_beside(storm: Storm) -> Strike | None:
    ups = [storm.mesh_up(again=True) for _ in range(storm.random.choice([1, 2]))]
    return Strike(f"{len(ups)} × mesh up")


def _up_killed(storm: Storm) -> Strike | None:
    """``mesh up`` gives the mesh a new keeper and is killed meanwhile."""
    victim = _one(storm, "keeper")
    if victim is None or not world.send(victim[1], signal.SIGKILL):
        return None
    command = storm.mesh_up(again=True)
    if command is None:
        return None
    storm.expect_any_status(command)

    def kill_and_try_again() -> None:
        world.send(command.pid, signal.SIGKILL)
        storm.mesh_up()

    return Strike("mesh up", heal=kill_and_try_again, for_s=storm.random.uniform(0.0, 0.3))


def _down_refused(storm: Storm) -> Strike | None:
    """``mesh down`` without ``--force`` while launches run: it is to refuse."""
    if not any(one.survivor and one.has_begun for one in storm.living()):
        return None
    command = storm.run("mesh", "down")
    storm.expect_any_status(command)
    return Strike("mesh down", until=command, for_s=30.0)


def _start_without_database(by_yod: bool) -> Callable[[Storm], Strike | None]:
    """Keeper (and CPAs) killed, the database away; then somebody starts the mesh."""

    def strike(storm: Storm) -> Strike | None:
        daemons = storm.daemons()
        victims = [pid for (role, _), some in daemons.items() for pid in some if role in ("keeper", "cpa")]
        if storm.setting.name == "ssh":
            victims = [pid for (role, name), some in daemons.items() for pid in some if (role, name) == ("keeper", "")]
        back = _take_database_away(storm)
        if back is None:
            return None
        for pid in victims:
            world.send(pid, signal.SIGKILL)
        command = storm.run("yod", "-sz", "1", "true") if by_yod else storm.mesh_up(again=True)
        if command is None:
            back()
            return None
        storm.expect_any_status(command)

        def heal() -> None:
            back()
            storm.mesh_up()

        return Strike(command.text, heal=heal, for_s=LONGER_THAN_UP_S, until=command)

    return strike


def _up_beside_stopped_node(storm: Storm) -> Strike | None:
    """Keeper killed, the PCT of a node stopped; ``mesh up`` waits for that node in vain."""
    keeper, pct = _one(storm, "keeper"), _one(storm, "pct")
    if keeper is None or pct is None:
        return None
    world.send(pct[1], signal.SIGSTOP)
    world.send(keeper[1], signal.SIGKILL)
    command = storm.mesh_up(again=True)
    if command is None:
        return None
    storm.expect_any_status(command)

    def heal() -> None:
        world.send(pct[1], signal.SIGCONT)
        storm.mesh_up()

    return Strike(f"mesh up beside {pct[0]}", heal=heal, for_s=LONGER_THAN_UP_S, until=command)


# Hosts


def _cut(long: bool) -> Callable[[Storm], Strike | None]:
    def strike(storm: Storm) -> Strike | None:
        assert isinstance(storm.setting, SshSetting)
        name = storm.random.choice(storm.setting.nodes)
        host = storm.setting.host(name)
        if not host.init:
            return None
        touched = storm.on_node(name) if long else []
        for launch in touched:
            launch.may_end.append("cut-host-long")
        way = "both" if long else storm.random.choice(["both", "in", "out"])
        host.cut(way)
        seconds = storm.random.uniform(16.0, 22.0) if long else storm.random.uniform(0.1, STOPPED_S)
        return Strike(f"{name}, {way}", touched, host.heal, seconds)

    return strike


def _reboot(storm: Storm) -> Strike | None:
    assert isinstance(storm.setting, SshSetting)
    name = storm.random.choice(storm.setting.nodes)
    host = storm.setting.host(name)
    if not host.init:
        return None
    touched = storm.on_node(name)
    for launch in touched:
        launch.may_end.append("reboot-host")
    host.kill()

    def heal() -> None:
        host.start()
        storm.mesh_up()

    return Strike(name, touched, heal, storm.random.uniform(0.0, 3.0))


NOTHING, ITS, ON_NODE = "nothing", "the launch that is struck", "launches with ranks on the node"
_RESTARTED, _ADOPTED, _GOES_ON = "the keeper starts it again", "mesh up", "SIGCONT within 2 s"
_GO_ON, _REFUSED = Unbegun.GOES_ON, Unbegun.REFUSED

FAULTS: tuple[Fault, ...] = (
    Fault("kill-keeper", "daemons", "a keeper", NOTHING, _ADOPTED, _kill_keeper, weight=2, unbegun=_GO_ON),
    Fault("kill-pct", "daemons", "a PCT", NOTHING, _RESTARTED, _kill("pct"), weight=3),
    Fault("kill-cpa", "daemons", "a CPA", NOTHING, _RESTARTED, _kill("cpa"), weight=2, unbegun=_REFUSED),
    Fault("kill-rca", "daemons", "the RCA", NOTHING, _RESTARTED, _kill("rca"), weight=2, unbegun=_GO_ON),
    Fault("kill-pcts", "daemons", "every PCT at once", NOTHING, _RESTARTED, _kill_pcts),
    Fault("stop-keeper", "daemons", "a keeper", NOTHING, _GOES_ON, _stop("keeper")),
    Fault("stop-pct", "daemons", "a PCT", NOTHING, _GOES_ON, _stop("pct"), weight=2),
    Fault("stop-cpa", "daemons", "a CPA", NOTHING, _GOES_ON, _stop("cpa"), unbegun=_REFUSED),
    Fault("stop-rca", "daemons", "the RCA", NOTHING, _GOES_ON, _stop("rca"), unbegun=_GO_ON),
    Fault("kill-keeper-pct", "daemons", "keeper and PCT", NOTHING, _ADOPTED, _kill_several("keeper", "pct")),
    Fault("kill-keeper-cpa", "daemons", "keeper and CPA", NOTHING, _ADOPTED, _kill_several("keeper", "cpa"),
          unbegun=_REFUSED),
    Fault("kill-keeper-rca", "daemons", "keeper and RCA", NOTHING, _ADOPTED, _kill_several("keeper", "rca"),
          unbegun=_REFUSED),
    Fault(
        "kill-every-daemon", "daemons", "keepers, CPAs, RCA, PCTs at once", NOTHING, _ADOPTED,
        _kill_several("keeper", "cpa", "rca", "pct", every=True),
    ),
    Fault("kill-launch-child", "launches", "a launch child", ITS, "not at all",
          _kill_one_of("kill-launch-child", lambda storm, launch: storm.launch_children(launch)), weight=2),
    Fault("stop-launch-child", "launches", "a launch child", NOTHING, _GOES_ON, _stop_launch_child, weight=2),
    Fault("kill-rank", "launches", "a process of a rank", ITS, "not at all",
          _kill_one_of("kill-rank", lambda storm, launch: storm.ranks(launch)), unbegun=_GO_ON),
    Fault("kill-yod", "launches", "a yod", ITS, "the RCA cleans up", _kill_yod, weight=3, unbegun=_GO_ON),
    Fault("stop-yod", "launches", "a yod", NOTHING, _GOES_ON, _stop_yod, weight=2, unbegun=_GO_ON),
    Fault("signal-yod", "launches", "a yod: INT, TERM or HUP", ITS, "not at all", _signal_yod, unbegun=_GO_ON),
    Fault("detach-yod", "launches", "a yod: SIGQUIT", NOTHING, "the launch goes on", _detach_yod, unbegun=_GO_ON),
    Fault("kill-observer", "launches", "yod --attach", NOTHING, "not at all", _kill_observer, unbegun=_GO_ON),
    Fault("kill-node", "launches", "PCT and launch children of a node", ON_NODE, _ADOPTED, _kill_whole_node(False)),
    Fault("kill-node-keeper", "launches", "the same and the keeper", ON_NODE, _ADOPTED, _kill_whole_node(True)),
    Fault("move-database", "database", "mesh.db", NOTHING, "moved back within 3 s", _move_database, SQLITE,
          unbegun=_REFUSED,
          weight=2, resource="database"),
    Fault("database-away-at-turn", "database", "the database, while a line waits", NOTHING, "back within 4 s",
          _away_at_turn, unbegun=_REFUSED, weight=2, resource="database"),
    Fault("lock-database", "database", "mesh.db", NOTHING, "unlocked within 2 s", _lock_database, SQLITE,
          unbegun=_REFUSED,
          weight=2, resource="database"),
    Fault("kill-server", "database", "mariadbd", NOTHING, "started again", _kill_server, MARIADB,
          unbegun=_REFUSED, weight=2,
          resource="database"),
    Fault("restart-server", "database", "mariadbd", NOTHING, "started again", _restart_server, MARIADB,
          unbegun=_REFUSED,
          resource="database"),
    Fault("stop-server", "database", "mariadbd", NOTHING, "SIGCONT within 5 s", _stop_server, MARIADB, unbegun=_REFUSED,
          resource="database"),
    Fault("kill-connections", "database", "the database's connections", NOTHING, "made anew", _kill_connections,
          MARIADB, unbegun=_REFUSED, weight=2, resource="database"),
    Fault("fill-disk", "disks", "file system of state, run or RAM disk", NOTHING, "emptied within 3 s", _fill_disk,
          weight=3, resource="disk"),
    Fault("remove-run", "directories", "rm -rf of the run directory", NOTHING, "daemons make it again", _remove_run,
          resource="run"),
    Fault("up-beside", "commands", "mesh up beside the mesh", NOTHING, "not needed", _up_beside, unbegun=_GO_ON,
          weight=2),
    Fault("up-killed", "commands", "keeper killed; mesh up killed", NOTHING, _ADOPTED, _up_killed),
    Fault("down-refused", "commands", "mesh down without --force", NOTHING, "not needed", _down_refused,
          unbegun=_GO_ON),
    Fault("up-without-database", "commands", "keeper killed, database away, mesh up", NOTHING, "database back; mesh up",
          _start_without_database(False), weight=0.5, resource="database"),
    Fault("yod-without-database", "commands", "keeper, CPAs killed, database away, yod", NOTHING,
          "database back; mesh up", _start_without_database(True), PERSONAL, weight=0.5, resource="database"),
    Fault("up-beside-stopped-node", "commands", "keeper killed, a PCT stopped, mesh up", NOTHING,
          "SIGCONT after 19 s at most; mesh up", _up_beside_stopped_node, PERSONAL, weight=0.3, resource="stopped"),
    Fault("cut-host", "hosts", "the network of a host", NOTHING, "within 2 s", _cut(False), SSH, weight=2,
          resource="host"),
    Fault("cut-host-long", "hosts", "the network of a host", ON_NODE, "after 16 s and more", _cut(True), SSH,
          weight=0.3, resource="host"),
    Fault("reboot-host", "hosts", "a host, with all that runs there", ON_NODE, "it boots; mesh up", _reboot, SSH,
          weight=0.3, resource="host"),
)  # fmt: skip
FAMILIES = tuple(dict.fromkeys(fault.family for fault in FAULTS))

"""The storm itself: launches without pause, faults at random, and checks while it lasts and whenever it pauses."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.storm import world
from tests.storm.commands import DEADLINE_S, Command, slowdown
from tests.storm.faults import Fault, Strike, Unbegun
from tests.storm.journal import Journal
from tests.storm.launches import Kind, Launch, Outcome, RankFiles
from tests.storm.settings import Setting

STEP_S = 0.05
LOOK_S = 0.2  # between two looks at /proc
PROBE_S = 1.5  # between two looks at the database
#: How long a stretch between two checkpoints is, and how many families of faults it has.
STRETCH_S = (20.0, 40.0)
#: What a fault's effect may take beyond its heal: nodes that failed come back, daemons register again.
AFTERMATH_S = 8.0
#: How long a mesh may take until all is in order again, on an idle machine.
SETTLED_S, SETTLED_AFTER_VIOLATION_S = 25.0, 8.0
LAUNCHES_AT_ONCE, SURVIVORS = 5, 2
#: The longest that a detached launch goes without a yod between two processes that stand for it.
HANDED_OVER_S = 2.0
MANNERS = ("plain", "plain", "stray", "cleared", "stubborn")
PROBES = (
    ("showmesh", "--json"),
    ("showmesh", "--json"),
    ("mesh", "status"),
    ("pingd",),
    ("mesh", "history", "--json"),
)
#: What a launch says that waits in line: from then on it must outlive every restart of the database.
_IN_LINE = re.compile(r"waiting for processors \(")
#: What a request hears while the database is away.
_DATABASE_WORDS = re.compile(r"database|lost connection|mysql|mariadb|sqlite", re.IGNORECASE)
#: What an immediate launch hears from a machine that is full.
_NO_ROOM = re.compile(r"asked for, \d+ (is|are) free|waiting for processors")
_RANK = str(Path(__file__).with_name("rank.py"))


@dataclass
class Active:
    """A fault that lasts, or whose aftermath may last."""

    fault: Fault
    strike: Strike
    began: float
    heals_at: float
    healed_at: float | None = None


class Unusable(Exception):
    """The mesh did not come back to order; the storm goes on with a new one."""


class Storm:
    """One setting under faults for some time."""

    def __init__(
        self,
        make: Callable[[bool], Setting],
        journal: Journal,
        chance: random.Random,
        faults: Sequence[Fault],
        directory: Path,
        small_disks: bool,
        every_s: float,
    ) -> None:
        self.random, self.journal = chance, journal
        self._make, self._small_disks, self._every_s = make, small_disks, every_s
        self._directory = directory
        self.setting = make(small_disks)
        journal.setting = self.setting.name
        self._faults = [one for one in faults if self.setting.name in one.settings]
        self._chosen: list[Fault] = self._faults
        self.counts = {"faults": 0, "launches": 0, "checkpoints": 0, "meshes": 0, "commands": 0}
        self._numbers = 0
        self._start_afresh()

    def _start_afresh(self) -> None:
        self.counts["meshes"] += 1
        self._place = self._directory / f"{self.setting.name}-{self.counts['meshes']}"
        self.files = RankFiles(self._place)
        (self._place / "commands").mkdir()
        (self._place / "rank.py").write_text(Path(_RANK).read_text())
        self.launches: dict[str, Launch] = {}
        self.commands: list[Command] = []
        self._any_status: set[int] = set()
        self._active: list[Active] = []
        self._past: list[Active] = []
        self._processes: list[world.Process] = []
        self._looked = self._probed = self._struck = -1e9
        self._processors: dict[int, set[int]] = {}
        self._told: set[str] = set()
        self._settled_s = SETTLED_S
        self._up: Command | None = None
        self._quiet = False

    # What faults ask

    def daemons(self) -> dict[tuple[str, str], list[int]]:
        """The mesh's daemons as they are now."""
        return self.setting.daemons(list(world.processes()))

    def living(self) -> list[Launch]:
        """Launches that are not over, in the order in which they were asked for."""
        return [launch for launch in self.launches.values() if not launch.over]

    def on_node(self, node: str) -> list[Launch]:
        """Launches with ranks on the node, and those of which that is not known yet."""
        return [one for one in self.living() if node in one.nodes or len(one.begun) < one.size]

    def _of(self, launch: Launch) -> list[world.Process]:
        return [process for process in world.processes() if launch.token in process.words]

    def ranks(self, launch: Launch) -> list[int]:
        """Its ranks and what they forked."""
        return sorted(process.pid for process in self._of(launch) if _is_rank(process))

    def yods(self, launch: Launch) -> list[int]:
        """The processes that stand for it on the login processor."""
        return sorted(process.pid for process in self._of(launch) if not _is_rank(process))

    def launch_children(self, launch: Launch) -> list[int]:
        """The launch children that are parents of its ranks."""
        children = {process.pid for process in world.processes() if world.role(process)[0] == "launch"}
        parents = {process.parent for process in self._of(launch) if _is_rank(process)}
        return sorted(parents & children)

    def run(self, *words: str, allowed_s: float = DEADLINE_S) -> Command:
        """Start a command as a user does."""
        self._numbers += 1
        self.counts["commands"] += 1
        place = self._place / "commands" / f"{self._numbers:06}"
        command = Command(words, self.setting.argv(*words), self.setting.env, self.setting.cwd, place)
        command.allowed_s = allowed_s
        self.commands.append(command)
        self.journal.write("command", pid=command.pid, words=command.text)
        return command

    def expect_any_status(self, command: Command) -> None:
        """Its exit status says nothing: it is killed, or is to fail."""
        self._any_status.add(id(command))

    def mesh_up(self, again: bool = False) -> Command | None:
        """``mesh up``, unless one runs already (``again``: also then)."""
        if again or self._up is None or self._up.poll() is not None:
            self._up = self.run("mesh", "up", allowed_s=2 * DEADLINE_S)
            return self._up
        return None

    # The course of it

    def storm(self, seconds: float) -> None:
        """Faults and launches for so long, with checkpoints between."""
        end = self.journal.now() + seconds
        try:
            self._bring_up()
            while self.journal.now() < end:
                self._stretch(end)
                try:
                    self.checkpoint(last=self.journal.now() >= end)
                except Unusable as error:
                    self.journal.write("unusable", why=str(error))
                    if self.journal.now() < end:
                        self._begin_again()
        finally:
            self._finish()

    def _bring_up(self) -> None:
        self._quiet = True
        command = self.run("mesh", "up", allowed_s=2 * DEADLINE_S)
        self._wait(lambda: command.poll() is not None, 2 * DEADLINE_S)
        if command.poll() != 0:
            self.violate("does not come up", f"a new mesh: mesh up ended with {command.poll()}: {command.err()}")
            raise RuntimeError("no mesh to storm at")
        self._quiet = False

    def _stretch(self, end: float) -> None:
        seconds = min(self.random.uniform(*STRETCH_S), max(2.0, end - self.journal.now()))
        families = sorted({fault.family for fault in self._faults})
        # a few families at a time, so that what happens is not excused by everything else that happens
        some = self.random.sample(families, self.random.randint(1, min(4, len(families))))
        if self.random.random() < 0.25:
            some = families
        self._chosen = [fault for fault in self._faults if fault.family in some]
        self.journal.write("stretch", families=some, seconds=round(seconds, 1), slowdown=round(slowdown(), 1))
        until, before = self.journal.now() + seconds, len(self.journal.violations)
        # what follows from a violation says nothing new: a checkpoint finds out whether the mesh is of use yet
        while self.journal.now() < until and len(self.journal.violations) == before:
            self.tick()
            time.sleep(STEP_S)
        # a mesh that has failed already is not waited for so long
        self._settled_s = SETTLED_S if len(self.journal.violations) == before else SETTLED_AFTER_VIOLATION_S

    def tick(self) -> None:
        """One step: look, judge, heal, strike, launch."""
        now = self.journal.now()
        if now - self._looked >= LOOK_S:
            self._look()
        self._heal_due()
        self._judge_commands()
        if self._quiet:
            return
        self._keep_keeper()
        self._launch_more()
        if now - self._struck >= self._every_s * self._pace and self._chosen:
            self._struck = now
            self._pace = self.random.uniform(0.4, 1.6)
            self._strike()
        if now - self._probed >= PROBE_S:
            self._probed = now
            self._probe()

    _pace = 1.0
    _keeper_gone_at: float | None = None

    def _wait(self, true: Callable[[], Any], seconds: float) -> bool:
        """Tick until it is true; False when it is not in time, measured against the load."""
        begun = time.monotonic()
        while not true():
            if time.monotonic() - begun > seconds * slowdown():
                return False
            self.tick()
            time.sleep(STEP_S)
        return True

    # Launches

    def _launch_more(self) -> None:
        living = self.living()
        if sum(one.survivor for one in living) < SURVIVORS:
            self._launch(Kind.DETACHED, 1, 3600.0, survivor=True)
        elif len(living) < LAUNCHES_AT_ONCE + SURVIVORS:
            kind = self.random.choice([Kind.ATTACHED, Kind.WAITING, Kind.WAITING, Kind.DETACHED])
            size = self.random.choice([1, 1, 2, 2, 3, 4])
            self._launch(kind, size, self.random.choice([0.1, 0.5, 2.0, 6.0, 15.0]))

    def _over(self, launch: Launch, seconds: float) -> bool:
        return self._wait(lambda: launch.over, seconds)

    def _launch(self, kind: Kind, size: int, seconds: float, survivor: bool = False) -> Launch:
        self.counts["launches"] += 1
        token = f"storm-{self.setting.name}-{self.counts['launches']}"
        manner = self.random.choice(MANNERS)
        options = {Kind.ATTACHED: [], Kind.WAITING: ["-wait-for-nodes", "600"], Kind.DETACHED: ["--detach"]}[kind]
        rank = str(self._place / "rank.py")
        words = [token, str(self._place), str(self.setting.slots), str(seconds), manner]
        allowed_s = DEADLINE_S if kind is Kind.DETACHED else 1e9  # checkpoints have the patience for the others
        program = ["/usr/bin/env", "python3", "-I", "-S", rank]
        command = self.run("yod", *options, "-sz", str(size), *program, *words, allowed_s=allowed_s)
        launch = Launch(token, kind, size, seconds, manner, command, self.journal.now(), survivor)
        self.launches[token] = launch
        what = {"token": token, "kind": kind.value, "size": size, "seconds": seconds, "manner": manner}
        self.journal.write("launch", **what, survivor=survivor, pid=command.pid)
        return launch

    def _look(self) -> None:
        """Look at processes and at the files of ranks."""
        now = self._looked = self.journal.now()
        self._processes = list(world.processes())
        self.files.look(self.launches, now)
        by_token: dict[str, list[world.Process]] = {}
        for process in self._processes:
            for word in process.words:
                if word in self.launches:
                    by_token.setdefault(word, []).append(process)
        for launch in self.living():
            self._judge_launch(launch, by_token.get(launch.token, []), now)
        for rank, what in self.files.twice().items():
            owner = self.launches.get(rank.rpartition(".")[0])
            self.violate("double allocation", f"{rank} found no free slot: {what}", owner)
        self._compare_processors(by_token)

    def _judge_launch(self, launch: Launch, processes: list[world.Process], now: float) -> None:
        status = launch.command.poll()
        if not launch.outlives_its_command or (launch.detached_later and status not in (0, None)):
            if status is not None:
                self._conclude(launch, status)
            return
        if status is None:
            return
        if launch.kind is Kind.DETACHED and status != 0 and not launch.has_begun:
            self._conclude(launch, status)
        elif any(not _is_rank(process) for process in processes):
            launch.gone_since = None
        elif launch.gone_since is None:
            launch.gone_since = now
        elif now - launch.gone_since > HANDED_OVER_S:
            self._conclude(launch, None)

    def _conclude(self, launch: Launch, status: int | None) -> None:
        # ranks may have written meanwhile
        self.files.look(self.launches, self.journal.now())
        launch.over_at = self.journal.now()
        launch.outcome = launch.judge(status)
        self.journal.write(
            "over", token=launch.token, status=status, outcome=launch.outcome.value, may_end=launch.may_end,
            begun=len(launch.begun), ended=len(launch.ended), launcher=launch.launcher,
        )  # fmt: skip
        if not launch.may_end:
            self._hold_against(launch, status)

    def _hold_against(self, launch: Launch, status: int | None) -> None:
        """Judge a launch that no fault may have ended."""
        said = launch.command.err().strip()
        what = (
            f"{launch.token} ({launch.kind.value}, launcher {launch.launcher}, "
            f"{len(launch.begun)}/{launch.size} begun, "
            f"{len(launch.ended)} ended, status {status}): {said[-400:]}"
        )
        if launch.outcome is Outcome.WELL:
            if status == 0 and not launch.outlives_its_command and (missing := launch.missing_output()):
                self.violate("output lost", f"{what}: {missing}", launch)
        elif launch.outcome is Outcome.REFUSED:
            waits = launch.kind is Kind.WAITING
            in_line = _IN_LINE.search(said)
            needed = Unbegun.FAILS if in_line else Unbegun.REFUSED
            if in_line and _DATABASE_WORDS.search(said):
                self.violate("waiting launch refused", what, launch)
            elif (waits or not _NO_ROOM.search(said)) and not self._excused(launch, needed):
                self.violate("refused without a cause", what, launch)
        elif launch.outcome is Outcome.CUT_SHORT:
            self.violate("ended untouched", what, launch)
        else:
            self.violate("wrong status", what, launch)

    def _excused(self, launch: Launch, needed: Unbegun) -> bool:
        """Whether a fault that may do this to launches which have not begun lasted while this one was asked for."""
        now = self.journal.now()
        return any(
            one.fault.unbegun >= needed and (one.healed_at is None or one.healed_at + AFTERMATH_S > launch.asked_at)
            for one in [*self._active, *self._past]
            if one.began < now
        )

    def _compare_processors(self, by_token: dict[str, list[world.Process]]) -> None:
        """No two launches whose ranks live have a processor in common, by what the database said of each."""
        holders: dict[int, Launch] = {}
        for token, processes in by_token.items():
            launch = self.launches[token]
            if not any(_is_rank(process) for process in processes):
                continue
            for processor in self._processors.get(launch.launcher, ()):
                other = holders.setdefault(processor, launch)
                if other is not launch and f"{processor} {token}" not in self._told:
                    self._told.add(f"{processor} {token}")
                    self.violate("double allocation", f"processor {processor}: {other.token} and {token}", launch)

    # Faults

    def _strike(self) -> None:
        weights = [fault.weight for fault in self._chosen]
        fault = self.random.choices(self._chosen, weights)[0]
        if fault.resource and any(one.fault.resource == fault.resource for one in self._active):
            return
        alone = not self._keeper_lives()
        try:
            strike = fault.strike(self)
        except (OSError, subprocess.SubprocessError, RuntimeError, AssertionError) as error:
            self.journal.write("no-fault", fault=fault.name, why=repr(error))
            return
        if strike is None:
            return
        self.counts["faults"] += 1
        now = self.journal.now()
        if alone and fault.unbegun is Unbegun.GOES_ON:
            # nobody restarts what this killed, until the next mesh up
            fault = replace(fault, unbegun=Unbegun.REFUSED)
        self._active.append(Active(fault, strike, now, now + strike.for_s))
        touched = [launch.token for launch in strike.may_end]
        self.journal.write(
            "fault", name=fault.name, target=strike.target, may_end=touched, for_s=round(strike.for_s, 2)
        )

    def _keeper_lives(self) -> bool:
        return ("keeper", "") in self.setting.daemons(self._processes)

    def _heal_due(self, everything: bool = False) -> None:
        now = self.journal.now()
        for one in list(self._active):
            ended = one.strike.until is not None and one.strike.until.poll() is not None
            if everything or ended or now >= one.heals_at:
                self._heal(one)

    def _heal(self, one: Active) -> None:
        self._active.remove(one)
        if one.strike.heal is not None:
            try:
                one.strike.heal()
            except (OSError, subprocess.SubprocessError, AssertionError) as error:
                self.journal.write("heal-failed", name=one.fault.name, why=repr(error))
            else:
                self.journal.write("heal", name=one.fault.name)
        one.healed_at = self.journal.now()
        self._past = [*self._past[-200:], one]

    def _keep_keeper(self) -> None:
        """An operator who sees that the keeper is gone types ``mesh up`` after a while."""
        if self._keeper_lives():
            self._keeper_gone_at = None
        elif self._keeper_gone_at is None:
            self._keeper_gone_at = self.journal.now()
        elif self.journal.now() - self._keeper_gone_at > 3.0:
            self._keeper_gone_at = None
            self.mesh_up()

    # Commands

    def _probe(self) -> None:
        self.run(*self.random.choice(PROBES))
        observed = [one for one in self.living() if one.kind is Kind.DETACHED and one.has_begun]
        if observed and self.random.random() < 0.2:
            self.run("yod", "--attach", str(self.random.choice(observed).launcher), allowed_s=1e9)

    def _judge_commands(self) -> None:
        launching = {id(one.command) for one in self.launches.values()}
        for command in list(self.commands):
            if command.poll() is None:
                if command.is_late():
                    self._hung(command)
                continue
            self.commands.remove(command)
            self._judge_command(command)
            if id(command) not in launching:
                self.journal.write(
                    "ended", words=command.text, status=command.poll(), took_s=round(command.took_s(), 2),
                    said=(command.err() or command.out() if command.poll() else command.err())[-200:].strip(),
                )  # fmt: skip

    def _hung(self, command: Command) -> None:
        self.commands.remove(command)
        late = f"{command.text} runs for {command.took_s():.0f} s (load for each core {slowdown():.1f})"
        self.violate("hung", late, evidence=_stack(command.pid) + command.err())
        command.kill()
        for launch in self.living():
            if launch.command is command:
                launch.may_end.append("killed as hung")

    def _judge_command(self, command: Command) -> None:
        said = command.err()
        if "Traceback (most recent call last)" in said:
            self.violate("traceback", command.text, evidence=said)
        out = command.out() if len(command.words) > 1 else ""
        alive = [
            one for one in self.living()
            if one.has_begun and not one.may_end and one.begun_at is not None
            and time.monotonic() - command.begun < self.journal.now() - one.begun_at
        ]  # fmt: skip
        if command.words[:2] == ["mesh", "status"] and "no mesh is up" in out + said and alive:
            self.violate("denied", f"mesh status says that no mesh is up; {alive[0].token} runs", alive[0])
        if command.words[:2] == ["yod", "--attach"] and id(command) not in self._any_status:
            same = [one for one in alive if str(one.launcher) == command.words[2] and self.yods(one)]
            if same and command.poll() != 0 and re.search("no launcher|ended", said):
                self.violate("denied", f"{command.text}: {said.strip()}; {same[0].token} runs", same[0])
        if command.words == ["showmesh", "--json"] and command.poll() == 0:
            self._note_processors(command.out())

    def _note_processors(self, out: str) -> None:
        try:
            told = json.loads(out)
        except ValueError:
            self.violate("books", f"showmesh --json printed no JSON: {out[:200]}")
            return
        taken: dict[int, int] = {}
        for launcher in told["launchers"]:
            numbers = _numbers(launcher["processors"])
            self._processors[launcher["id"]] = numbers
            for number in numbers:
                if taken.setdefault(number, launcher["id"]) != launcher["id"]:
                    who = f"launchers {taken[number]} and {launcher['id']}"
                    self.violate("double allocation", f"the database gives processor {number} to {who}")

    # Checkpoints

    def checkpoint(self, last: bool = False) -> None:
        """Heal all, let launches end, and see that everything is in order. Unusable when it is not."""
        self.counts["checkpoints"] += 1
        self.journal.write("checkpoint", living=[one.token for one in self.living()])
        self._quiet = True
        try:
            self._heal_everything()
            self._see_mesh_up()
            self._see_launches_end(last)
            self._see_no_orphans()
            self._see_books()
            if not last:
                self._see_launch()
            self._see_logs()
            self._forget_old()
        finally:
            self._quiet = False
        self.journal.write("in order")

    def _heal_everything(self) -> None:
        self._heal_due(everything=True)
        for pids in self.daemons().values():
            for pid in pids:
                world.send(pid, signal.SIGCONT)
        self.setting.heal()

    def _see_mesh_up(self) -> None:
        self._wait(lambda: self._up is None or self._up.poll() is not None, 2 * DEADLINE_S)
        # a mesh down that is still to be refused would be granted when the launches have ended
        self._wait(lambda: not any(command.words[:2] == ["mesh", "down"] for command in self.commands), DEADLINE_S)
        command = self.run("mesh", "up", allowed_s=2 * DEADLINE_S)
        self._wait(lambda: command.poll() is not None, 2 * DEADLINE_S + 5)
        if command.poll() != 0:
            said = f"with all healed, mesh up ended with {command.poll()}: {command.out()}{command.err()[-1500:]}"
            self._fail("does not come up", said)

    def _see_launches_end(self, last: bool) -> None:
        wanted = [one for one in self.living() if last or not one.survivor or self.random.random() < 0.2]
        for launch in wanted:
            self.files.stop(launch)
        ended = self._wait(lambda: all(one.over for one in wanted), self._settled_s)
        if ended:
            return
        for launch in wanted:
            if not launch.over:
                evidence = "".join(_stack(pid) for pid in self.yods(launch)[:2]) + launch.command.err()
                begun = f"{len(launch.begun)} of {launch.size} ranks began, {len(launch.ended)} ended"
                text = f"{launch.token} ({launch.kind.value}, launcher {launch.launcher}) does not end: {begun}"
                self.violate("hung", text, launch, evidence)
        raise Unusable("launches do not end")

    def _orphans(self) -> list[tuple[Launch, world.Process]]:
        found = []
        for process in world.processes():
            for word in process.words:
                launch = self.launches.get(word)
                if launch is not None and launch.over and launch.over_at is not None and _is_rank(process):
                    found.append((launch, process))
        return found

    def _see_no_orphans(self) -> None:
        if self._wait(lambda: not self._orphans(), self._settled_s / 2):
            return
        for launch, process in self._orphans():
            words = " ".join(process.words)
            text = f"process {process.pid} of {launch.token} ({launch.manner}; {launch.may_end}) lives on: {words}"
            self.violate("orphan", text, launch)
            world.send(process.pid, signal.SIGKILL)

    def _disorder(self) -> str:
        """What is not as it should be at rest, as the commands tell it; "" when all is."""
        done = subprocess.run(
            self.setting.argv("showmesh", "--json"), env=self.setting.env, cwd=self.setting.cwd,
            capture_output=True, text=True, timeout=DEADLINE_S * slowdown(),
        )  # fmt: skip
        if done.returncode:
            return f"showmesh ended with {done.returncode}: {done.stderr[-300:]}"
        told = json.loads(done.stdout)
        states, wanted = told["states"], self.living()
        bad = [
            f"{node['name']} is {node['state']} ({node['reason']})" for node in told["nodes"] if node["state"] != "up"
        ]
        names = sorted(node["name"] for node in told["nodes"])
        if names != sorted(self.setting.nodes):
            bad.append(f"the nodes are {names}")
        if sum(states.values()) != self.setting.processors:
            bad.append(f"{sum(states.values())} processors in all, of {self.setting.processors}")
        busy = sum(one.size for one in wanted)
        if states["busy"] != busy or states["free"] != self.setting.processors - busy:
            bad.append(f"{busy} processors are in use, and the states are {states}")
        there, known = {one["id"] for one in told["launchers"]}, {one.launcher for one in wanted}
        if there != known:
            bad.append(f"launchers {sorted(known)} run, the database has {sorted(there)}")
        return "; ".join(bad)

    def _see_books(self) -> None:
        begun = time.monotonic()
        try:
            while disorder := self._disorder():
                if time.monotonic() - begun > self._settled_s * slowdown():
                    self._fail("books", disorder)
                self.tick()
                time.sleep(0.3)
            command = self.run("mesh", "status")
            self._wait(lambda: command.poll() is not None, DEADLINE_S)
            if command.poll() != 0:
                self._fail("books", f"mesh status ended with {command.poll()}: {command.out()}{command.err()}")
        except subprocess.TimeoutExpired as error:
            self._fail("hung", f"showmesh does not end: {error}")

    def _see_launch(self) -> None:
        """The whole rest of the machine can be used: nobody who has gone waits in line or keeps a processor."""
        size = self.setting.processors - sum(one.size for one in self.living())
        begun = time.monotonic()
        while True:
            launch = self._launch(Kind.ATTACHED, size, 0.1)
            if not self._over(launch, self._settled_s):
                self._fail("hung", f"{launch.token} on all {size} free processors does not end: {launch.command.err()}")
            if launch.outcome is Outcome.WELL:
                return
            said = launch.command.err()
            late = time.monotonic() - begun > self._settled_s * slowdown()
            if late or not _NO_ROOM.search(said):
                self._fail(
                    "cannot launch", f"{launch.token} on all {size} free processors: {launch.outcome}: {said[-500:]}"
                )
            time.sleep(0.5)

    def _see_logs(self) -> None:
        """No daemon has died of an error of its own."""
        for path in sorted((self.setting.state / "log").glob("*")):
            text = path.read_text(errors="replace")
            for part in text.split("Traceback (most recent call last)")[1:]:
                last = next((line for line in part.splitlines()[1:] if line and line[0] not in " \t^"), "?")
                if f"{path.name} {last}" not in self._told:
                    self._told.add(f"{path.name} {last}")
                    self.violate("traceback", f"in {path.name}: {last}", evidence=part[:3000])

    def _forget_old(self) -> None:
        for token, launch in list(self.launches.items()):
            if launch.over:
                self.files.forget(launch)
                launch.command.forget()
                del self.launches[token]
        for path in (self._place / "commands").iterdir():
            if not any(path.stem in str(one.place) for one in [*self.commands, *self._commands_of_launches()]):
                path.unlink()

    def _commands_of_launches(self) -> list[Command]:
        return [one.command for one in self.launches.values()]

    # Violations

    def violate(self, kind: str, text: str, launch: Launch | None = None, evidence: str = "") -> None:
        since = None if launch is None else max(launch.asked_at, self.journal.now() - 20.0)
        self.journal.violate(kind, text, since, evidence or self._logs())

    def _logs(self) -> str:
        try:
            return self.setting.mesh.logs(5)
        except OSError:
            return ""

    def _fail(self, kind: str, text: str) -> None:
        self.violate(kind, text)
        raise Unusable(text)

    # The end

    def _end_everything(self) -> None:
        for command in [*self.commands, *self._commands_of_launches()]:
            command.kill()
        self._heal_due(everything=True)
        try:
            self._heal_everything()
        except (OSError, subprocess.SubprocessError, AssertionError) as error:
            self.journal.write("heal-failed", name="everything", why=repr(error))

    def _end_ranks(self) -> None:
        tokens = set(self.launches)
        world.kill_all([process.pid for process in world.processes() if tokens & set(process.words)])

    def _begin_again(self) -> None:
        """A new mesh instead of one that is beyond help."""
        self._end_everything()
        self.setting.destroy()
        self._end_ranks()
        self.setting = self._make(self._small_disks)
        self._start_afresh()
        self._bring_up()

    def _finish(self) -> None:
        in_order = not any(one.setting == self.setting.name for one in self.journal.violations)
        self._end_everything()
        left = self.setting.destroy()
        self._end_ranks()
        if left and in_order and sys.exc_info()[0] is None:
            self.journal.violate("left behind", "\n".join(left))


def _is_rank(process: world.Process) -> bool:
    """Whether it is a rank, or was forked by one; else it is a yod, whose command line has the same words."""
    return not any(Path(word).name == "yod" for word in process.words[:12])


def _numbers(folded: str) -> set[int]:
    """``0..3,8`` as numbers."""
    found: set[int] = set()
    for part in filter(None, folded.split(",")):
        first, _, last = part.partition("..")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _stack(pid: int) -> str:
    """Where a Python process stands; "" when nobody can tell."""
    tool = Path(sys.executable).with_name("py-spy")
    try:
        done = subprocess.run([tool, "dump", "--pid", str(pid)], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout

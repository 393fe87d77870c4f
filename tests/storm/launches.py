"""What the storm knows of a launch: from its yod, from the files of its ranks, from the faults that struck it."""

import json
import os
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from tests.storm.commands import Command


class Kind(Enum):
    """How a launch is begun."""

    ATTACHED = "attached"
    WAITING = "waiting"  # attached, and waits for processors
    DETACHED = "detached"


class Outcome(Enum):
    """How a launch ended, as far as its ranks and its yod tell."""

    WELL = "well"  # every rank ended by itself, and yod says so
    REFUSED = "refused"  # no rank ever began
    CUT_SHORT = "cut short"  # ranks began, and not all of them ended by themselves
    WRONG_STATUS = "wrong status"  # every rank ended well, yod says otherwise; or the other way round


@dataclass
class Launch:
    """One launch of the storm. ``may_end`` names the faults that struck it and may end it."""

    token: str
    kind: Kind
    size: int
    seconds: float
    manner: str
    command: Command
    asked_at: float  # seconds of the storm, as all instants here
    survivor: bool = False  # lives through checkpoints
    detached_later: bool = False  # its yod was told to let go
    may_end: list[str] = field(default_factory=list)
    begun: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    begun_at: float | None = None
    launcher: int = 0
    nodes: set[str] = field(default_factory=set)
    over_at: float | None = None
    gone_since: float | None = None  # a detached launch: since when no yod of it is seen
    outcome: Outcome | None = None
    told: bool = False  # what is left of it was reported

    @property
    def has_begun(self) -> bool:
        return bool(self.begun)

    @property
    def all_ended(self) -> bool:
        return len(self.ended) == self.size

    @property
    def over(self) -> bool:
        return self.over_at is not None

    @property
    def outlives_its_command(self) -> bool:
        return self.kind is Kind.DETACHED or self.detached_later

    def judge(self, status: int | None) -> Outcome:
        """How it ended; ``status`` None: unknown, as that of a detached launch."""
        if not self.has_begun:
            return Outcome.REFUSED if status else Outcome.WRONG_STATUS
        if not self.all_ended:
            return Outcome.WRONG_STATUS if status == 0 else Outcome.CUT_SHORT
        return Outcome.WELL if not status else Outcome.WRONG_STATUS

    def missing_output(self) -> list[str]:
        """Lines that its ranks wrote and its yod did not."""
        there = set(self.command.out().splitlines())
        wanted = [f"{self.token} {rank} {word}" for rank in range(self.size) for word in ("begins", "ends")]
        return [line for line in wanted if line not in there]


class RankFiles:
    """The directory in which ranks say that they began and ended, and take slots. All nodes see it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in ("launches", "slots", "twice"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        self._seen: set[str] = set()

    def look(self, launches: dict[str, Launch], now: float) -> None:
        """Note which ranks have begun and ended since the last look."""
        for name in os.listdir(self.directory / "launches"):
            token, _, rest = name.partition(".")
            rank, _, word = rest.partition(".")
            launch = launches.get(token)
            if launch is None or name in self._seen or word not in ("begun", "ended"):
                continue
            self._seen.add(name)
            if word == "ended":
                launch.ended.add(int(rank))
                continue
            self._note_begun(launch, int(rank), name, now)

    def _note_begun(self, launch: Launch, rank: int, name: str, now: float) -> None:
        told = json.loads((self.directory / "launches" / name).read_text())
        launch.begun.add(rank)
        launch.nodes.add(told["node"])
        launch.launcher = told["launcher"]
        if launch.begun_at is None:
            launch.begun_at = now

    def stop(self, launch: Launch) -> None:
        """Have its ranks end by themselves."""
        (self.directory / "launches" / f"{launch.token}.stop").touch()

    def twice(self) -> dict[str, str]:
        """Ranks that found no slot of their node free: what each wrote about it; each is told once."""
        found = {}
        for path in list((self.directory / "twice").iterdir()):
            if not path.name.endswith(".new"):
                found[path.name] = path.read_text()
                path.unlink()
        return found

    def forget(self, launch: Launch) -> None:
        """Remove the files of a launch that is over."""
        for path in (self.directory / "launches").glob(f"{launch.token}.*"):
            self._seen.discard(path.name)
            path.unlink(missing_ok=True)

"""The script of a monkey: acts at random, a pure function of the seed."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from textual.keys import _character_to_key

from console.tui.actions.registry import ALL, of
from tests.monkey.program import MANNERS

_ESCAPES = {
    "up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D", "home": "\x1b[H", "end": "\x1b[F",
    "pageup": "\x1b[5~", "pagedown": "\x1b[6~", "delete": "\x1b[3~", "insert": "\x1b[2~", "enter": "\r", "tab": "\t",
    "shift+tab": "\x1b[Z", "escape": "\x1b", "space": " ", "backspace": "\x7f",
    **{f"shift+{key}": f"\x1b[1;2{end}" for key, end in (("up", "A"), ("down", "B"), ("right", "C"), ("left", "D"))},
}  # fmt: skip
_PRINTABLE = {name: one for one in string.printable[:-6] for name in (one, _character_to_key(one))}
#: Keys that no action has, and that terminals send.
_OTHER = ("insert", "backspace", "ctrl+a", "ctrl+k", "ctrl+u", "ctrl+w", "ctrl+d", "ctrl+e", "ctrl+g", "ctrl+v")
#: Keys that leave the console: seldom, because a start takes as long as a hundred keys.
_LEAVE = frozenset({"q", "ctrl+q", "ctrl+c", "ctrl+z"})
#: Keys that open another place.
_PLACES = (*"n1234567mae?:/s", "ctrl+p", "enter", "escape", "tab", "greater_than_sign", "left_square_bracket")
_TEXTS = (
    "python3 program.py sleep", "python3 program.py flood", "python3 program.py wide", "python3 program.py fail",
    "2", "4", "n1", "0..3", "free", "user=root", "node[0-1] & free", "launcher 1", "nodes", "help", "events", "日本語",
    "e\u0301", "🚀", "[red]x[/red]", "'", '"', "\\", "((", "a.csv", "x" * 90, "-sz 2", "theme", "drain", "0", "-1",
)  # fmt: skip
_PASTES = (
    "n1", "one\ntwo\nthree", "日本語 🚀", "\x1b[31mred\x1b[0m", "\t\t", "x" * 3000, "", "\u202eback", "a\x00b",
    "100 kB " * 14_500, "行\n" * 25_000,
)  # fmt: skip
#: Sequences that end too soon, that nobody asked for, or that are none.
_ODD = (
    "\x1b", "\x1b[", "\x1bO", "\x1b[<0;", "\x1b[1;", "\x1b[M   ", "\x1b[999~", "\x1b[12;40R", "\x1b[?62;4c",
    "\x1b[?2026;2$y", "\x1b]11;rgb:0000/0000/0000\x07", "\x1bP>|tmux\x1b\\", "\x1b[97;5u", "\x1b[57441u", "\x1b\x1b[A",
    "\x1ba", "\x1b[<999;999;999M", "\x1b[<0;0;0M", "\x1b[<-1;-1;-1M", "\x1b[200~\x1b[201~", "\x1b[201~", "\x00",
    "\x80", "\xff\xfe", "\x1b[1;1:3A", "\x1b[I\x1b[O",
)  # fmt: skip
_SIZES = ((20, 5), (20, 60), (300, 100), (300, 5), (80, 24), (120, 40), (60, 15), (40, 10), (81, 25), (200, 60))
_EVENTS = (
    *("launch",) * 7, "burst", "odd-name", "take", "job", "job", "job", "job-act", "cancel", "kill-rank", "kill-yod",
    "kill-daemon", "kill-daemon", "signal", "database-gone", "database-busy", "exchange", "spool-gone", "drain",
    "reserve",
)  # fmt: skip
#: Ways to leave the console: ^Z and fg, SIGSTOP and fg, SIGSTOP and SIGCONT at once, its ends.
_LEAVES = ("\x1a", "\x1a", "\x1a", "STOP", "STOP", "STOP CONT", "CONT", "\x11", "\x03", "\x03\x03", "q", "TERM")
#: What happens to the terminal itself: it stops reading, reads slowly, is attached elsewhere, is detached.
_TERMINALS = ("stall 2", "stall 0.3", "slow 8", "attach 120 40", "attach 40 12", "detach", "detach")
#: How far the console's clock is from the right time after a jump.
_CLOCKS = ("0", "0", "5", "-5", "-3600", "86400", "-1e9")


class Route(NamedTuple):
    """The way from anywhere to a place that keys at random seldom reach, and what has keys there."""

    #: Names of keys; texts with = in front; events with @, their words joined by colons; ``wait``; ~ and what
    #: is waited for on the screen; ``restart``, with an option of the console behind a colon.
    keys: str
    places: str  # of the tables of actions
    arrive_s: float = 0.0  # how long a command takes to answer there


_RUN = "1 home enter"
_LIVE = "@launch:sleep:3 @launched 1 ~launchers wait end enter ~running"  # the newest, which runs for a while
_STACKS = f"{_LIVE} s ~taken"
_JOB = "@job:2 7 wait end enter"  # 300 tasks, which take a while
_FRESH = "restart"  # not read-only, and no dialog open
ROUTES = (
    Route(_RUN, "run ranks output"),
    Route(_RUN, "run output"),
    Route("1 e G enter", "run ranks output"),
    Route(_STACKS, "stacks tree", 1.5),
    Route(f"{_STACKS} down", "stacks tree", 1.5),
    Route(f"{_FRESH} {_STACKS} s wait wait", "stacks tree", 1.5),
    Route(f"{_STACKS} S enter wait", "beside lines"),
    Route(f"{_FRESH} {_STACKS} s wait wait S backspace =before enter wait", "beside lines"),
    Route(f"{_FRESH} {_STACKS} S enter wait", "beside lines"),
    Route(f"{_RUN} f =rank:0 enter", "run output"),
    Route(f"{_RUN} slash =line enter", "run"),
    Route(f"{_FRESH} @launch:flood:2 @launched 1 ~launchers wait end enter ~running slash =line enter wait", "search"),
    Route(f"{_FRESH} @prepared:input @launched 1 ~launchers wait end enter ~running i =words enter", "prompt input"),
    Route(f"{_FRESH} @prepared:input @launched 1 ~launchers wait end enter ~running", "input run"),
    Route(f"{_FRESH} @prepared:held @launched 1 ~launchers wait end enter ~held", "held run"),
    Route(f"{_FRESH} {_LIVE} @kill-yod:-1 wait wait", "gone run"),
    Route(f"{_LIVE} tab", "ranks cells run"),
    Route(f"{_FRESH} {_LIVE} wait", "run ranks output"),
    Route(f"{_RUN} w enter", "run"),
    Route(f"{_RUN} tab", "ranks cells"),
    Route(f"{_RUN} z", "output run"),
    Route(f"{_RUN} L", "launch field"),
    Route(f"{_RUN} d", "choosing"),
    Route(_JOB, "job rows"),
    Route(f"{_FRESH} @job:1 7 wait end enter wait", "job rows"),
    Route(f"{_FRESH} @prepared:held-job 7 wait end enter wait", "job rows"),
    Route(f"{_FRESH} @prepared:lost-job wait @kill-owner:-1 7 wait e end enter wait", "job rows"),
    Route(f"{_JOB} tab", "job"),
    Route("7 e home enter", "job rows", 0.5),
    Route("@job:2 7 wait end", "jobs"),
    Route("7 e", "jobs rows table"),
    Route("7", "jobs rows table"),
    Route("1", "table rows"),
    Route("2", "table rows"),
    Route("3", "table rows"),
    Route(f"{_FRESH} 3 wait", "table rows"),
    Route("4", "table rows"),
    Route("m tab", "launchers cells lines"),
    Route("m", "map cells mesh"),
    Route(f"{_FRESH} space", "map cells mesh"),
    Route("m K", "choosing"),
    Route("n tab tab tab", "choice launch"),
    Route("n =true ctrl+s =mine enter ctrl+o", "choosing launch"),
    Route("n =python3 space =program.py space =unicode tab =3 enter", "run output ranks"),
    Route("question_mark", "page"),
    Route("6", "page"),
    Route("exclamation_mark", "choosing page"),
    Route("5", "choosing"),
    Route("ctrl+p =theme enter", "choosing"),
    Route("p", "replay"),
    Route("restart:--replay", "replay"),
    Route("restart:--replay p", "replay map"),
)
#: Parts of tables: what is possible in a certain state of a launch alone.
_PARTS = {
    "search": ("run.next-match", "run.previous-match"),
    "input": ("run.input",),
    "held": ("run.release",),
    "gone": ("run.reattach",),
}


@dataclass(frozen=True)
class Act:
    """One act. ``data``: bytes for the terminal, each a character; or the words of an event."""

    number: int
    kind: str  # type, mouse, size, event, leave, restart, until, terminal, clock, look, beat
    data: str
    pause_s: float = 0.0  # afterwards

    def to_dict(self) -> dict[str, object]:
        """For the journal, with the beginning of a long paste."""
        return {**asdict(self), "data": self.data[:200]}


def key_bytes(key: str) -> str:
    """What a terminal sends for Textual's name of a key, each byte as a character."""
    if key in _ESCAPES:
        return _ESCAPES[key]
    if key.startswith("ctrl+") and len(key) == 6:
        return chr(ord(key[5]) & 0x1F)
    return _PRINTABLE[key]


def _step_of(key: str) -> Step:
    """The step of a key of a route."""
    if key[0] == "@":
        return Step("event", key[1:].replace(":", " "))
    if key == "wait":
        return Step("beat", "")
    if key[0] == "~":
        return Step("until", key[1:])
    if key.startswith("restart"):
        return Step("restart", key.partition(":")[2])
    if key == "escape":
        return Step("type", key_bytes(key), 0.12)  # or it would begin the sequence of the next key
    return Step("type", _bytes(key[1:]) if key[0] == "=" else key_bytes(key), 0.0)


def _bytes(text: str) -> str:
    return text.encode().decode("latin-1")


_KEYS = sorted({key.strip() for action in ALL.values() for key in action.keys.split(",") if key.strip()} - _LEAVE)
#: How often each kind is chosen.
_WEIGHTS = {"key": 28, "place": 18, "text": 8, "mouse": 12, "resize": 4, "paste": 2, "odd": 4, "focus": 1, "event": 8,
            "leave": 2, "again": 4, "journey": 14, "terminal": 1, "clock": 1}  # fmt: skip
_PAUSES = (0.0, 0.0, 0.0, 0.0, 0.01, 0.03, 0.1, 0.3)
_BEAT_EVERY, _LOOK_EVERY = 6, 14
#: How long a route waits for what takes a command: a launch, a job, stacks.
_ARRIVE_S = 1.5


def script(seed: int) -> Iterator[Act]:
    """The acts of a seed, without end."""
    chance, make = random.Random(f"monkey {seed}"), _Maker(seed)
    number = 0
    while True:
        [kind] = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        for step in make.steps(kind):
            number += 1
            pause_s = chance.choice(_PAUSES)
            yield Act(number, step.kind, step.data, pause_s if step.pause_s is None else step.pause_s)
            if number % _LOOK_EVERY == 0:
                yield Act(number, "look", "")
            elif number % _BEAT_EVERY == 0:
                yield Act(number, "beat", "")


class Step(NamedTuple):
    """An act before it has a number."""

    kind: str
    data: str
    pause_s: float | None = None  # None: at random


class _Maker:
    """Makes steps of a kind. It knows the terminal's size, for the mouse."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"monkey's hand {seed}")
        self._size = (100, 30)
        self._last = "j"
        self._decks: dict[str, list[str]] = {}

    def steps(self, kind: str) -> list[Step]:
        """One or more steps."""
        make: Callable[[], list[Step]] = getattr(self, f"_{kind}")
        return make()

    def _key(self) -> list[Step]:
        self._last = key_bytes(self._chance.choice([*_KEYS, *_OTHER]))
        return [Step("type", self._last)]

    def _again(self) -> list[Step]:
        return [Step("type", self._last * self._chance.randint(2, 60))]

    def _place(self) -> list[Step]:
        return [Step("type", key_bytes(self._chance.choice(_PLACES)))]

    def _text(self) -> list[Step]:
        end = key_bytes(self._chance.choice(("enter", "enter", "tab", "escape", "down")))
        return [Step("type", _bytes(self._chance.choice(_TEXTS))), Step("type", end)]

    def _paste(self) -> list[Step]:
        return [Step("type", _bytes(f"\x1b[200~{self._chance.choice(_PASTES)}\x1b[201~"))]

    def _odd(self) -> list[Step]:
        return [Step("type", self._chance.choice(_ODD))]

    def _focus(self) -> list[Step]:
        return [Step("type", self._chance.choice(("\x1b[I", "\x1b[O", "\x1b[O\x1b[I")))]

    def _resize(self) -> list[Step]:
        sizes = [self._chance.choice(_SIZES) for _ in range(self._chance.choice((1, 1, 2, 4)))]
        if self._chance.random() < 0.3:
            sizes.append((self._chance.randint(20, 300), self._chance.randint(5, 100)))
        self._size = sizes[-1]
        return [Step("size", f"{columns} {lines}") for columns, lines in sizes]

    def _mouse(self) -> list[Step]:
        def at() -> str:
            return f"{self._chance.randint(1, self._size[0])};{self._chance.randint(1, self._size[1])}"

        where, extra = at(), self._chance.choice((0, 0, 0, 4, 8, 16))
        does = self._chance.choice(("click", "click", "double", "wheel", "drag", "move", "middle", "right"))
        button = {"middle": 1, "right": 2}.get(does, 0) + extra
        if does == "wheel":
            return [Step("mouse", f"\x1b[<{64 + self._chance.randint(0, 3)};{where}M" * self._chance.randint(1, 12))]
        if does == "move":
            return [Step("mouse", f"\x1b[<35;{where}M\x1b[<35;{at()}M")]
        if does == "drag":
            moves = "".join(f"\x1b[<{32 + extra};{at()}M" for _ in range(self._chance.randint(1, 5)))
            return [Step("mouse", f"\x1b[<{extra};{where}M{moves}\x1b[<{extra};{at()}m")]
        click = f"\x1b[<{button};{where}M\x1b[<{button};{where}m"
        return [Step("mouse", click * (2 if does == "double" else 1))]

    def _event(self) -> list[Step]:
        what = self._chance.choice(_EVENTS)
        some = self._chance.randrange(1000)
        if what == "launch":
            return [Step("event", f"launch {self._chance.choice(MANNERS)} {self._chance.randint(1, 4)}")]
        return [Step("event", f"{what} {some}")]

    def _leave(self) -> list[Step]:
        return [Step("leave", self._chance.choice(_LEAVES))]

    def _terminal(self) -> list[Step]:
        return [Step("terminal", self._chance.choice(_TERMINALS))]

    def _clock(self) -> list[Step]:
        return [Step("clock", self._chance.choice(_CLOCKS))]

    def _dealt(self, name: str, every: Sequence[str]) -> str:
        """One of these in random order: none comes again before all have come."""
        deck = self._decks.setdefault(name, [])
        if not deck:
            deck += self._chance.sample(every, len(every))
        return deck.pop()

    def _journey(self) -> list[Step]:
        """To a place, and keys that do something there. A heartbeat after each key lets its screen come."""
        route = ROUTES[int(self._dealt("routes", [*map(str, range(len(ROUTES)))]))]
        steps: list[Step] = []
        if _FRESH in route.keys:  # what is waited for has room
            self._size = (100, 30)
            steps += [Step("size", "100 30")]
        for key in ("escape", "escape", *route.keys.split()):
            steps += [_step_of(key), Step("beat", "", _ARRIVE_S if key == "wait" else None)]
        steps += [Step("beat", "", route.arrive_s), Step("look", "")]
        for _ in range(self._chance.randint(3, 12)):
            place = self._chance.choice(route.places.split())
            self._last = key_bytes(self._dealt(place, _keys_of(place)))
            steps += [Step("type", self._last)]
        return steps


def _keys_of(place: str) -> list[str]:
    """The keys of a place of the tables of actions, or of a part of one."""
    actions = [ALL[name] for name in _PARTS[place]] if place in _PARTS else of(place)
    keys = [key.strip() for action in actions for key in action.keys.split(",")]
    return [key for key in keys if key and key not in _LEAVE]

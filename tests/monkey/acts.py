"""The script of a monkey: acts at random, a pure function of the seed."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from textual.keys import _character_to_key

from console.tui.actions.registry import ALL

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
_PASTES = ("n1", "one\ntwo\nthree", "日本語 🚀", "\x1b[31mred\x1b[0m", "\t\t", "x" * 3000, "", "\u202eback", "a\x00b")
#: Sequences that end too soon, that nobody asked for, or that are none.
_ODD = (
    "\x1b", "\x1b[", "\x1bO", "\x1b[<0;", "\x1b[1;", "\x1b[M   ", "\x1b[999~", "\x1b[12;40R", "\x1b[?62;4c",
    "\x1b[?2026;2$y", "\x1b]11;rgb:0000/0000/0000\x07", "\x1bP>|tmux\x1b\\", "\x1b[97;5u", "\x1b[57441u", "\x1b\x1b[A",
    "\x1ba", "\x1b[<999;999;999M", "\x1b[<0;0;0M", "\x1b[<-1;-1;-1M", "\x1b[200~\x1b[201~", "\x1b[201~", "\x00",
    "\x80", "\xff\xfe", "\x1b[1;1:3A", "\x1b[I\x1b[O",
)  # fmt: skip
_SIZES = ((20, 5), (20, 60), (300, 100), (300, 5), (80, 24), (120, 40), (60, 15), (40, 10), (81, 25), (200, 60))
_EVENTS = (
    *("launch",) * 6, "job", "job", "cancel", "kill-rank", "kill-yod", "kill-daemon", "kill-daemon", "signal",
    "database-gone", "database-busy", "exchange", "spool-gone", "drain", "reserve",
)  # fmt: skip
#: The program's manners, see program.py.
MANNERS = ("end", "end", "fail", "flood", "wide", "escapes", "sleep", "sleep", "signal")


@dataclass(frozen=True)
class Act:
    """One act. ``data``: bytes for the terminal, each a character; or the words of an event."""

    number: int
    kind: str  # type, mouse, size, event, leave, look, beat
    data: str
    pause_s: float = 0.0  # afterwards

    def to_dict(self) -> dict[str, object]:
        """For the journal."""
        return asdict(self)


def key_bytes(key: str) -> str:
    """What a terminal sends for Textual's name of a key, each byte as a character."""
    if key in _ESCAPES:
        return _ESCAPES[key]
    if key.startswith("ctrl+") and len(key) == 6:
        return chr(ord(key[5]) & 0x1F)
    return _PRINTABLE[key]


def _bytes(text: str) -> str:
    return text.encode().decode("latin-1")


_KEYS = sorted({key.strip() for action in ALL.values() for key in action.keys.split(",") if key.strip()} - _LEAVE)
#: How often each kind is chosen.
_WEIGHTS = {"key": 36, "place": 18, "text": 8, "mouse": 12, "resize": 4, "paste": 2, "odd": 4, "focus": 1, "event": 7,
            "leave": 1, "again": 4}  # fmt: skip
_PAUSES = (0.0, 0.0, 0.0, 0.0, 0.01, 0.03, 0.1, 0.3)
_BEAT_EVERY, _LOOK_EVERY = 6, 14


def script(seed: int) -> Iterator[Act]:
    """The acts of a seed, without end."""
    chance, make = random.Random(f"monkey {seed}"), _Maker(seed)
    number = 0
    while True:
        [kind] = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        for one, data in make.acts(kind):
            number += 1
            yield Act(number, one, data, chance.choice(_PAUSES))
            if number % _LOOK_EVERY == 0:
                yield Act(number, "look", "")
            elif number % _BEAT_EVERY == 0:
                yield Act(number, "beat", "")


class _Maker:
    """Makes acts of a kind. It knows the terminal's size, for the mouse."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"monkey's hand {seed}")
        self._size = (100, 30)
        self._last = "j"

    def acts(self, kind: str) -> list[tuple[str, str]]:
        """One or more acts, each a kind and its data."""
        make: Callable[[], list[tuple[str, str]]] = getattr(self, f"_{kind}")
        return make()

    def _key(self) -> list[tuple[str, str]]:
        self._last = key_bytes(self._chance.choice([*_KEYS, *_OTHER]))
        return [("type", self._last)]

    def _again(self) -> list[tuple[str, str]]:
        return [("type", self._last * self._chance.randint(2, 60))]

    def _place(self) -> list[tuple[str, str]]:
        return [("type", key_bytes(self._chance.choice(_PLACES)))]

    def _text(self) -> list[tuple[str, str]]:
        end = key_bytes(self._chance.choice(("enter", "enter", "tab", "escape", "down")))
        return [("type", _bytes(self._chance.choice(_TEXTS))), ("type", end)]

    def _paste(self) -> list[tuple[str, str]]:
        return [("type", _bytes(f"\x1b[200~{self._chance.choice(_PASTES)}\x1b[201~"))]

    def _odd(self) -> list[tuple[str, str]]:
        return [("type", self._chance.choice(_ODD))]

    def _focus(self) -> list[tuple[str, str]]:
        return [("type", self._chance.choice(("\x1b[I", "\x1b[O", "\x1b[O\x1b[I")))]

    def _resize(self) -> list[tuple[str, str]]:
        sizes = [self._chance.choice(_SIZES) for _ in range(self._chance.choice((1, 1, 2, 4)))]
        if self._chance.random() < 0.3:
            sizes.append((self._chance.randint(20, 300), self._chance.randint(5, 100)))
        self._size = sizes[-1]
        return [("size", f"{columns} {lines}") for columns, lines in sizes]

    def _mouse(self) -> list[tuple[str, str]]:
        def at() -> str:
            return f"{self._chance.randint(1, self._size[0])};{self._chance.randint(1, self._size[1])}"

        where, extra = at(), self._chance.choice((0, 0, 0, 4, 8, 16))
        does = self._chance.choice(("click", "click", "double", "wheel", "drag", "move", "middle", "right"))
        button = {"middle": 1, "right": 2}.get(does, 0) + extra
        if does == "wheel":
            return [("mouse", f"\x1b[<{64 + self._chance.randint(0, 3)};{where}M" * self._chance.randint(1, 12))]
        if does == "move":
            return [("mouse", f"\x1b[<35;{where}M\x1b[<35;{at()}M")]
        if does == "drag":
            moves = "".join(f"\x1b[<{32 + extra};{at()}M" for _ in range(self._chance.randint(1, 5)))
            return [("mouse", f"\x1b[<{extra};{where}M{moves}\x1b[<{extra};{at()}m")]
        click = f"\x1b[<{button};{where}M\x1b[<{button};{where}m"
        return [("mouse", click * (2 if does == "double" else 1))]

    def _event(self) -> list[tuple[str, str]]:
        what = self._chance.choice(_EVENTS)
        some = self._chance.randrange(1000)
        if what == "launch":
            return [("event", f"launch {self._chance.choice(MANNERS)} {self._chance.randint(1, 4)}")]
        return [("event", f"{what} {some}")]

    def _leave(self) -> list[tuple[str, str]]:
        return [("leave", self._chance.choice(("\x1a", "\x1a", "\x1a", "\x11", "\x03", "\x03\x03", "q", "TERM")))]

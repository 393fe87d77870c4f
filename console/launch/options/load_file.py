"""Load files: several programs in one launch, whose ranks are numbered together.

Each line is ``[-sz N] [-list L] [NAME=VALUE …] program arguments…``; ranks are numbered in the order of the lines.
``#`` begins a comment where a word could begin; blank lines are ignored; a backslash at the end of a line continues it.
Quotes and backslashes work as in a POSIX shell. Nothing is expanded: ``$HOME`` and ``*`` stay unchanged.
"""

from __future__ import annotations

from console.errors import UsageError, next_step
from console.launch.options.lists import parse_list
from redmesh.sanitise import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

#: The most bytes read of a load file: a hundred times a line for each of ten thousand programs.
MOST = 16 << 20
#: The most ranks of a launch, because the protocol has four bytes for a rank.
MOST_RANKS = (1 << 32) - 1
_HEAD = 4096

#: All spellings of a line's own options.
_OPTIONS = {
    **dict.fromkeys(("-sz", "-n", "-np", "--size", "--ntasks", "--np"), "sz"),
    **dict.fromkeys(("-list", "-lis", "-li", "-l", "-w", "--list", "--nodelist"), "list"),
    **dict.fromkeys(("-service", "--service"), "service"),
}
#: Options without a value.
_FLAGS = frozenset(("service",))


def _assigns(word: bytes) -> bool:
    name, equals, _value = word.partition(b"=")
    return bool(equals) and name.isascii() and name.decode("ascii").isidentifier()


#: Any service processors, in the protocol's form.
SERVICE = {"processors": [], "nodes": [], "service": True}


class Segment:
    """A line of a load file: ``size`` ranks of one program.

    ``size`` 0: as many ranks as the list has room for, which a CPA determines. ``wanted``: the processor list of the
    line or of the command line, in the protocol's form.
    """

    __slots__ = ("argv", "env", "line", "size", "wanted")

    def __init__(self, line: int, size: int, wanted: dict[str, Any] | None, words: list[bytes]) -> None:
        self.line, self.size, self.wanted = line, size, wanted
        self.env: list[bytes] = []  # NAME=VALUE before the program, as in a shell
        while words and _assigns(words[0]):
            self.env.append(words[0])
            words = words[1:]
        self.argv = words

    def __repr__(self) -> str:
        return f"Segment(line={self.line}, size={self.size}, wanted={self.wanted}, argv={self.argv})"


def is_load_file(path: bytes) -> bool:
    """True if ``path`` is a load file and not a program: a regular text file, not executable, without ``#!``."""
    import os
    import stat

    try:
        status = os.stat(path)
        # Check the mode instead of access(2), whose result depends on the caller: any x bit makes the file a program.
        if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o111:
            return False
        with open(path, "rb", buffering=0) as file:
            head = file.read(_HEAD) or b""
    except OSError:
        return False
    return bool(head) and b"\0" not in head and not head.startswith((b"#!", b"\x7fELF"))


def read(path: bytes, wanted: dict[str, Any] | None = None, *, counted: bool = True) -> list[Segment]:
    """Read the load file ``path``. Raises UsageError if it is unreadable or malformed."""
    import os

    name = clean(os.fsdecode(path))
    try:
        with open(path, "rb") as file:
            data = file.read(MOST + 1)
    except OSError as error:
        raise UsageError(f"the load file {name} cannot be read: {error.strerror}", next_step(error)) from None
    if len(data) > MOST:
        raise UsageError(f"the load file {name} is larger than {MOST >> 20} MiB", "is it really a load file?")
    return parse(data, name, wanted, counted=counted)


def parse(data: bytes, name: str, wanted: dict[str, Any] | None = None, *, counted: bool = True) -> list[Segment]:
    """Parse the lines of ``data``; a line without a list gets ``wanted``, the command line's.

    ``counted``: a list of numbers has room for one rank on each. Raises UsageError, which names ``name`` and the line.
    """
    segments: list[Segment] = []
    total = 0
    for number, words in commands(data, name):
        try:
            segment = line_of(number, words, wanted, counted=counted)
        except UsageError as error:
            raise UsageError(f"{name}:{number}: {error.message}", error.hint) from None
        total += segment.size
        if total > MOST_RANKS:
            raise UsageError(
                f"{name}:{number}: more than {MOST_RANKS} ranks up to this line",
                "write fewer ranks, or several load files",
            )
        segments.append(segment)
    if not segments:
        raise UsageError(f"{name}: no program in this load file", "a line is: [-sz N] [-list L] program arguments")
    return segments


def line_of(number: int, words: list[bytes], wanted: dict[str, Any] | None, *, counted: bool) -> Segment:
    """The segment of one line. Raises UsageError, without file and line."""
    own: dict[str, str] = {}
    at = 0
    while at < len(words) and words[at].startswith(b"-") and words[at] != b"-":
        spelled, equals, value = words[at].decode("utf-8", "replace").partition("=")
        at += 1
        if spelled == "--" and not equals:
            break
        option = _OPTIONS.get(spelled)
        if option is None:
            raise UsageError(
                f"a line of a load file has no option {clean(spelled)}", "it may begin with -sz N, -list L or -service"
            )
        if option in own:
            raise UsageError(f"{spelled} stands here twice", "write it once")
        if option in _FLAGS:
            if equals:
                raise UsageError(f"{spelled} takes no value", "-service")
        elif not equals:
            if at == len(words):
                raise UsageError(f"{spelled} needs a value", "-sz 4, or -list n3")
            value = words[at].decode("utf-8", "replace")
            at += 1
        own[option] = value
    if at == len(words):
        raise UsageError("no program on this line", "a line is: [-sz N] [-list L] program arguments")
    program = next((word for word in words[at:] if not _assigns(word)), None)
    if program is None:
        raise UsageError("no program behind the variables on this line", "a line is: NAME=VALUE program arguments")
    if not program:
        raise UsageError("the program's name is empty", "a line is: [-sz N] [-list L] [NAME=VALUE …] program arguments")
    if "service" in own:
        if "list" in own:
            raise UsageError("-service and -list exclude each other", "leave one of them out")
        return Segment(number, _size(own.get("sz"), None, counted=counted), dict(SERVICE), words[at:])
    lines_own = parse_list(own["list"]) if "list" in own else None
    return Segment(number, _size(own.get("sz"), lines_own, counted=counted), lines_own or wanted, words[at:])


def _size(text: str | None, own: dict[str, Any] | None, *, counted: bool) -> int:
    """``-sz``; without it as many as the line's own list has room for; otherwise 1."""
    if text is not None:
        if text.isascii() and text.isdigit() and len(text) > 9:
            raise UsageError(f"-sz {text}: the number is too large", f"a launch has at most {MOST_RANKS} ranks")
        if not (text.isascii() and text.isdigit()) or not int(text):
            raise UsageError(f"-sz takes a whole number above 0, not {clean(text)!r}", "-sz 4")
        return int(text)
    if own is None:
        return 1
    if own["nodes"] or not counted:
        return 0
    return sum(last - first + 1 for first, last in own["processors"])


def total(segments: Sequence[Segment]) -> int:
    """The number of ranks of the segments; 0 if a CPA must determine it."""
    sizes = [segment.size for segment in segments]
    return sum(sizes) if all(sizes) else 0


def commands(data: bytes, name: str) -> list[tuple[int, list[bytes]]]:
    """The non-empty lines, each with the number of its first line; words keep their bytes.

    Raises UsageError for an unclosed quote, and for bytes that no argument can contain.
    """
    text = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").decode("latin-1")  # one character for each byte
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UsageError(f"{name}:{line}: a NUL byte: this is not text", "is it a program? chmod +x makes it one")
    found: list[tuple[int, list[bytes]]] = []
    at, line = 0, 1
    while at < len(text):
        words, end = _command(text, at, line, name)
        if words:
            found.append((line, [word.encode("latin-1") for word in words]))
        line += text.count("\n", at, end)
        at = end
    return found


def _command(text: str, at: int, line: int, name: str) -> tuple[list[str], int]:
    """The words from ``at`` to the end of the (continued) line, and where the next line begins."""
    words: list[str] = []
    word: list[str] | None = None  # None between words, because '' in quotes is a word
    start, end = at, len(text)
    while at < end:
        char = text[at]
        if char in " \t\n#" and (char != "#" or word is None):
            if char == "#":
                at = text.find("\n", at)
                at = end if at < 0 else at
                continue
            if word is not None:
                words.append("".join(word))
                word = None
            at += 1
            if char == "\n":
                return words, at
            continue
        if char == "\\" and text[at + 1 : at + 2] == "\n":
            at += 2
            continue
        word = [] if word is None else word
        piece, at = _piece(text, at)
        if at < 0:
            opened = line + text.count("\n", start, -at - 1)
            raise UsageError(
                f"{name}:{opened}: the quote that begins here has no end", "close it, or write \\' for the quote itself"
            )
        word.append(piece)
    if word is not None:
        words.append("".join(word))
    return words, end


def _piece(text: str, at: int) -> tuple[str, int]:
    """A character, an escape, or a quoted string at ``at``, and its end; -1 - at if it is unclosed."""
    char = text[at]
    if char == "\\":
        # POSIX does not define a backslash at the very end; shells keep it.
        return (text[at + 1 : at + 2] or "\\"), at + 2
    if char == "'":
        end = text.find("'", at + 1)
        return (text[at + 1 : end], end + 1) if end >= 0 else ("", -1 - at)
    if char != '"':
        return char, at + 1
    out: list[str] = []
    here = at + 1
    while here < len(text):
        char, after = text[here], text[here + 1 : here + 2]
        if char == '"':
            return "".join(out), here + 1
        if char == "\\" and after and after in '$`"\\\n':
            out.append("" if after == "\n" else after)
            here += 2
            continue
        out.append(char)
        here += 1
    return "", -1 - at

"""Short forms of times, amounts and texts."""

import time

from rich.cells import cell_len, set_cell_size

from redmesh.sanitise import clean

HELD = "‖"  # the glyph of ranks that are held at their first instruction


def elapsed(seconds: float) -> str:
    """``7s``, ``2:05``, ``3:00:07``, ``2d 04h``."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    if not hours:
        return f"{minute}:{second:02}"
    days, hour = divmod(hours, 24)
    return f"{days}d {hour:02}h" if days else f"{hour}:{minute:02}:{second:02}"


def amount(count: int) -> str:
    """``950 B``, ``12.3 KiB``, ``1.0 GiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def clock(at: float) -> str:
    """An instant in local time, with the date if it is more than a day from now."""
    then = time.localtime(at)
    return time.strftime("%H:%M:%S" if abs(time.time() - at) < 86_400 else "%d %b %H:%M", then)


def lasting(at: float, now: float) -> str:
    """``since 14:02``, or ``for 2d 04h`` if it began more than a day ago."""
    if now - at >= 86_400:
        return f"for {elapsed(now - at)}"
    return time.strftime("since %H:%M", time.localtime(at))


def several(count: int, noun: str) -> str:
    """``1 node``, ``3 nodes``, ``2 processes``, ``4 launches``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}{'es' if noun.endswith(('s', 'ch')) else 's'}"


_INTERPRETERS = ("python", "bash", "sh", "perl", "julia", "Rscript")


def program_words(command: str) -> list[str]:
    """A command line without the directory of its program, and without the interpreter of its script."""
    words = command.split()
    names = [word.rsplit("/", 1)[-1] or word for word in words[:2]]
    if names == ["yodwork", "job"]:  # the workers of a job: the job's first digits and name
        return words[1:]
    if len(words) > 1 and not words[1].startswith("-") and names[0].rstrip("0123456789.") in _INTERPRETERS:
        return [names[1], *words[2:]]
    return [*names[:1], *words[1:]]


def near_end(path: str) -> str:
    """The last two parts of a long path, which distinguish sockets of one machine; other addresses unchanged."""
    parts = path.rsplit("/", 2)
    return f"…/{parts[1]}/{parts[2]}" if path.startswith("/") and path.count("/") > 3 else path


def fitted(text: str, columns: int) -> str:
    """The text, cut off with a mark if it has more columns; a wide character, which has two, is never split."""
    return text if cell_len(text) <= columns else set_cell_size(text, columns - 1).rstrip() + "…"


def one_line(text: str, stop: int = 8) -> str:
    """A line of a program or a file, sanitised, its tabs as spaces. Tab stops count columns, as a terminal does."""
    if "\t" not in text or text.isascii():
        return clean(text.expandtabs(stop))
    gaps = [*tab_gaps(text, stop), 0]
    return "".join(clean(part) + " " * gap for part, gap in zip(text.split("\t"), gaps, strict=True))


def tab_gaps(text: str, stop: int = 8) -> list[int]:
    """How many spaces ``one_line`` puts in place of each tab."""
    gaps, column = [], 0
    for part in text.split("\t")[:-1]:
        column += cell_len(clean(part))
        gaps.append(stop - column % stop)
        column += gaps[-1]
    return gaps

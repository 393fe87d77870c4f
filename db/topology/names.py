"""Compressed node names: ``node[001-064,070],login1``."""

from __future__ import annotations

from db.errors import TopologyError
from db.topology.config_section import MOST


def expand(texts: tuple[str, ...], where: str) -> list[str]:
    """Expand ``texts`` to names, in order. Raises TopologyError, which names ``where``, for a malformed text."""
    found: list[str] = []
    for text in texts:
        for item in _split(text, where):
            found += _names(item, where)
            if len(found) > MOST:
                raise TopologyError(f"[{where}] names more than {MOST} nodes")
    return found


def _split(text: str, where: str) -> list[str]:
    # Commas inside brackets separate ranges, not names.
    items, inside, item = [], False, ""
    for char in text:
        if char in "[]":
            if inside == (char == "["):
                raise TopologyError(f"[{where}] the brackets of {text[:60]!r} do not match")
            inside = char == "["
        if char == "," and not inside:
            items.append(item)
            item = ""
        else:
            item += char
    if inside:
        raise TopologyError(f"[{where}] the brackets of {text[:60]!r} do not match")
    items = [one.strip() for one in (*items, item)]
    if "" in items:
        raise TopologyError(
            f"[{where}] {text[:60]!r} has two commas without a value between them", "write it like node[001-064],login1"
        )
    return items


def _names(item: str, where: str) -> list[str]:
    before, bracket, rest = item.partition("[")
    if not bracket:
        return [before]
    ranges, _, after = rest.partition("]")
    if "[" in after:
        raise TopologyError(f"[{where}] {item[:60]!r} has two pairs of brackets", "use one pair in each name")
    return [f"{before}{number}{after}" for span in ranges.split(",") for number in _numbers(span.strip(), item, where)]


def _numbers(span: str, item: str, where: str) -> list[str]:
    first, dash, last = span.partition("-")
    last = last if dash else first
    if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit()) or len(first + last) > 18:
        raise TopologyError(f"[{where}] {item[:60]!r}: {span[:40]!r} is not a range of numbers like 001-064")
    low, high = int(first), int(last)
    if not low <= high < low + MOST:
        raise TopologyError(f"[{where}] {item[:60]!r}: the range {span[:40]!r} runs backwards or has no end")
    width = len(first) if first.startswith("0") else 0
    return [f"{number:0{width}d}" for number in range(low, high + 1)]

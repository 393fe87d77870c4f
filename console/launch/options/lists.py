"""Lists of processors and nodes: ``25..35,112..140,160`` and ``node[001-064],login1``.

Numbers are processor ids; names mean all processors of those nodes. A range has one or more dots, or a dash.
"""

from collections.abc import Sequence
from typing import Any

from console.errors import UsageError
from redmesh.idset import fold_names, fold_ranks

#: The most names that a bracket expression may have: more than any machine needs, and a limit for memory.
MOST = 1_000_000
#: This host's addresses, which are taken as names (console/cli/yod/this_host.py).
LOOPBACK = ("127.0.0.1", "127.0.1.1")


def parse_list(text: str) -> dict[str, Any]:
    """Parse to the protocol's ``wanted``: ``{"processors": [[first, last], …], "nodes": [name, …]}``, in order.

    Raises UsageError for an invalid list, a descending range, or a duplicate.
    """
    processors: list[list[int]] = []
    nodes: list[str] = []
    for item in _items(text):
        if item[0].isdigit() and item not in LOOPBACK:
            processors.append(_range(item))
        else:
            nodes += [item] if item in LOOPBACK else _names(item)
    _refuse_twice(processors, nodes)
    return {"processors": processors, "nodes": nodes}


def fold(ids: list[int]) -> str:
    """Fold processor ids in their order: ``[0, 1, 2, 8]`` gives ``0..2,8``."""
    return fold_ranks(ids).replace("-", "..")


def fold_nodes(names: Sequence[str]) -> str:
    """``n0,n[2-4],login``: names that count up, folded as every list takes them."""
    parts = []
    for run in fold_names(list(names)).split(",") if names else []:
        parts.append(_brackets(run, names))
    return ",".join(parts)


def _brackets(run: str, names: Sequence[str]) -> str:
    first, _, last = run.partition("-")
    if run in names or first not in names:
        # A name that contains a dash: split c3-0c0s1n2-c3-0c0s1n3 where both halves are names.
        found = next((i for i, char in enumerate(run) if char == "-" and run[:i] in names and run[i + 1 :] in names), 0)
        if run in names or not found:
            return run
        first, last = run[:found], run[found + 1 :]
    head = first.rstrip("0123456789")
    return f"{head}[{first[len(head) :]}-{last[len(head) :]}]"


def _items(text: str) -> list[str]:
    items, depth, item = [], 0, ""
    for char in text + ",":
        if char == "," and depth == 0:
            if not item.strip():
                raise UsageError(
                    f"two commas without a value between them in the list {text!r}",
                    "write it like 0..3,8,node[001-064]",
                )
            items.append(item.strip())
            item = ""
            continue
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise UsageError(f"the brackets in {text!r} do not match", "like node[001-064],login1")
        item += char
    if depth:
        raise UsageError(f"the brackets in {text!r} do not match", "like node[001-064],login1")
    return items


def _number(text: str, whole: str) -> int:
    if not (text.isascii() and text.isdigit()):
        hint = "showmesh shows the nodes and processors"
        if whole.count(".") == 3:
            hint = f"a node has a name of its own: mesh nodes add NAME address={whole}"
        raise UsageError(f"{whole!r} is not a processor number, a range like 25..35 or a node's name", hint)
    if len(text) > 9:
        raise UsageError(f"the number {text} in a list is too large", "showmesh lists the processors that exist")
    return int(text)


def _range(item: str) -> list[int]:
    first, dots, last = item.partition(".")
    if dots:
        last = last.lstrip(".")  # the original's forms: 1.3, 25..35, 1...4
    else:
        first, _, last = item.partition("-")
    low, high = _number(first, item), _number(last or first, item)
    if (dots and not last) or high < low:
        raise UsageError(f"the range {item!r} runs backwards or has no end", "like 25..35")
    return [low, high]


def _names(item: str) -> list[str]:
    before, bracket, rest = item.partition("[")
    if not bracket:
        if not _is_name(item):
            name, colon, ranks = item.partition(":")
            hint = f"-list {name} -n {ranks}" if colon and ranks.isdigit() else "showmesh shows the nodes' names"
            user, at, host = item.partition("@")
            if at:
                hint = f"a node has a name of its own: mesh nodes add NAME address={host} user={user}"
            raise UsageError(f"{item!r} is not a node's name", hint)
        return [item]
    inside, _, after = rest.partition("]")
    heads: list[str] = []
    for part in inside.split(","):
        first, dash, last = part.partition("-")
        low, high = _number(first, item), _number(last if dash else first, item)
        if high < low:
            raise UsageError(f"the range {part!r} in {item!r} runs backwards", "like node[001-064]")
        if high - low >= MOST or len(heads) + high - low >= MOST:
            raise UsageError(f"{item!r} names more than {MOST} nodes", "give several lists")
        heads += [f"{before}{number:0{len(first)}d}" for number in range(low, high + 1)]
    tails = _names_after(after)
    if len(heads) * len(tails) > MOST:
        raise UsageError(f"{item!r} names more than {MOST} nodes", "give several lists")
    names = [head + tail for head in heads for tail in tails]
    if not _is_name(names[0]):
        raise UsageError(f"{item!r} is not a node's name", "letters, digits, - and _; or node[01-16] for several")
    return names


def _names_after(text: str) -> list[str]:
    if "[" in text:
        return _names(text)
    if text and not _is_name("x" + text):
        raise UsageError(f"{text!r} cannot stand in a node's name", "like node[001-064],login1")
    return [text]


def _is_name(text: str) -> bool:
    return text[0].isalpha() and text.isascii() and all(char.isalnum() or char in "-._" for char in text)


def _refuse_twice(processors: list[list[int]], nodes: list[str]) -> None:
    end = -1
    for first, last in sorted(processors):
        if first <= end:
            raise UsageError(f"the list names processor {first} twice", "name it once")
        end = last
    seen: set[str] = set()
    for name in nodes:
        if name in seen:
            raise UsageError(f"the list names node {name} twice", "name it once")
        seen.add(name)

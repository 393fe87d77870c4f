"""Generates the numbers of messages (console/message_codes.txt) and their page (docs/messages.md) from the code.

``make check`` runs it: it fails if these files do not match the code. ``--write`` updates them: a new message gets the
next number of its room, a reworded message (similar, in the same file) keeps its number, and a removed message stays
in the table with ``-`` as its file, so that its number is never used again.
"""

from __future__ import annotations

import ast
import difflib
import gc
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from console.message_codes import LEAST, fixed_letters, numbers  # noqa: E402

TABLE, PAGE = ROOT / "console" / "message_codes.txt", ROOT / "docs" / "messages.md"
#: Base classes of the errors whose messages users see.
ROOTS = {"AgentError", "ConsoleError", "ManagerError", "PlacementError", "RedmeshError", "StateError", "StoreError"}
#: Room → the first of its numbers, and its heading on the page.
ROOMS = {
    "console": (1000, "Commands and the console"),
    "db": (3000, "The system database"),
    "agents": (4000, "Daemons and nodes"),
    "redmesh": (6000, "The Python package"),
    "simulated": (7000, "The simulated machine"),
}
_ALIKE = 0.6

Found = dict[str, tuple[str, str]]  # template → file, hint


def messages() -> Found:
    """Find every message that the code can produce."""
    trees = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            trees[str(path.relative_to(ROOT))] = ast.parse(path.read_text())
    bases: dict[str, list[str]] = {}
    places: dict[str, int] = {}
    for tree in trees.values():
        for node in _inside(tree):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
                for made in node.body:
                    if isinstance(made, ast.FunctionDef) and made.name == "__init__":
                        names = [arg.arg for arg in made.args.args]
                        places[node.name] = names.index("message") - 1 if "message" in names else -1
    found: Found = {}
    for file, tree in trees.items():
        for scope in _inside(tree):
            if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
                for template, hint in _of_scope(scope, bases, places):
                    if fixed_letters(template) >= LEAST:
                        found.setdefault(template, (file, hint))
    return found


@cache
def _children(node: ast.AST) -> list[ast.AST]:
    return list(ast.iter_child_nodes(node))


@cache
def _inside(scope: ast.AST) -> list[ast.AST]:
    """What ``ast.walk`` yields, kept: a function is looked through for itself, its class and its module."""
    nodes = [scope]
    for node in nodes:
        nodes += _children(node)
    return nodes


def _of_scope(scope: ast.AST, bases: dict[str, list[str]], places: dict[str, int]) -> Iterator[tuple[str, str]]:
    local: dict[str, list[ast.expr]] = {}
    for node in _inside(scope):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            local.setdefault(node.targets[0].id, []).append(node.value)
    supers = {
        call: base.id
        for owner in _inside(scope)
        if isinstance(owner, ast.ClassDef)
        for base in owner.bases[:1]
        if isinstance(base, ast.Name)
        for call in _inside(owner)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "super().__init__"
    }
    for node in _inside(scope):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        at = _place(supers.get(node, name), bases, places)
        if at < 0 or len(node.args) <= at:
            continue
        hint = node.args[at + 1] if len(node.args) > at + 1 else None
        hints = list(_templates(hint, local)) if hint is not None else []
        for template in _templates(node.args[at], local):
            yield template, hints[0] if hints else ""


def _place(name: str, bases: dict[str, list[str]], places: dict[str, int]) -> int:
    """The position of ``message`` among the arguments of the error class ``name``; -1 if it is not a Redmesh error."""
    seen: set[str] = set()
    while name not in seen:
        seen.add(name)
        if name in places and _is_told(name, bases):
            return places[name]
        above = bases.get(name, [])
        if not above:
            return -1
        name = above[0]
    return -1


def _is_told(name: str, bases: dict[str, list[str]]) -> bool:
    return name in ROOTS or any(_is_told(above, bases) for above in bases.get(name, []) if above != name)


def _templates(node: ast.expr, local: dict[str, list[ast.expr]]) -> Iterator[str]:
    """The possible values of a string expression, with {} for variable parts."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    elif isinstance(node, ast.IfExp):
        yield from _templates(node.body, local)
        yield from _templates(node.orelse, local)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        for left in _templates(node.left, local) or ["{}"]:
            yield from (left + right for right in _templates(node.right, local))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant):
        text = str(node.left.value)
        for kind in ("%s", "%d", "%r", "%o", "%.1f", "%.0f"):
            text = text.replace(kind, "{}")
        yield text
    elif isinstance(node, ast.Name) and node.id in local:
        for value in local[node.id]:
            if not isinstance(value, ast.Name):
                yield from _templates(value, local)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _templates(value, local)


def renumbered(found: Found, before: list[tuple[int, str, str]]) -> list[tuple[int, str, str]]:
    """The table for the messages ``found``, given the table ``before``."""
    of = {template: number for number, _file, template in before}
    rows = [(of[template], file, template) for template, (file, _hint) in found.items() if template in of]
    gone = [(number, file, template) for number, file, template in before if template not in found]
    highest = {start: start for start, _name in ROOMS.values()}
    for number, _file, _template in before:
        start = max(start for start in highest if start < number)
        highest[start] = max(highest[start], number)
    for template, (file, _hint) in found.items():
        if template in of:
            continue
        alike = max(gone, key=lambda row: _likeness(row, file, template), default=None)
        if alike is not None and _likeness(alike, file, template) >= _ALIKE:
            gone.remove(alike)
            rows.append((alike[0], file, template))
            continue
        start = ROOMS[file.split("/")[0]][0]
        highest[start] += 1
        rows.append((highest[start], file, template))
    return sorted(rows + [(number, "-", template) for number, _file, template in gone])


def _likeness(row: tuple[int, str, str], file: str, template: str) -> float:
    return difflib.SequenceMatcher(None, row[2], template).ratio() if row[1] == file else 0.0


def page(rows: list[tuple[int, str, str]], found: Found) -> str:
    """The content of docs/messages.md."""
    lines = [
        "# Messages", "",
        "The number behind a message stays the same when its words change. `…` is what varies. The second",
        "column is what the message says to do next; [troubleshooting](troubleshooting.md) has more.", "",
        "This page is generated (`python tools/message_codes.py --write`).",
    ]  # fmt: skip
    for room, (_start, name) in ROOMS.items():
        lines += ["", f"## {name}", "", "| | message | what to do |", "|---|---|---|"]
        for number, file, template in rows:
            if file.split("/")[0] == room:
                lines.append(f"| RM-{number} | {_cell(template)} | {_cell(found[template][1])} |")
    return "\n".join(lines) + "\n"


def _cell(template: str) -> str:
    text = " ".join(template.replace("{}", "…").split())
    for letter in "\\|<>*_[]`":
        text = text.replace(letter, f"\\{letter}")
    return text


def main() -> int:
    """Check the files, or with ``--write`` update them; return 1 if a check failed."""
    gc.disable()  # all syntax trees stay until the end; to look for garbage among them took most of the time
    found = messages()
    before = numbers() if TABLE.exists() else []
    rows = renumbered(found, before)
    table = "# written by tools/message_codes.py\n" + "".join(f"{n}\t{file}\t{text!s}\n" for n, file, text in rows)
    made = {TABLE: table, PAGE: page(rows, found)}
    wrong = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    if "--write" in sys.argv[1:]:
        for path in wrong:
            path.write_text(made[path])
        return 0
    for path in wrong:
        print(f"{path.relative_to(ROOT)} is not what the code says: python tools/message_codes.py --write")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

"""Selects processors by an expression: ``node[1-8] & free``, ``(user=ada | launcher=7) & !suspect``. No I/O.

``!`` binds before ``&`` (or a blank), and this before ``|`` (or a comma). Words: states, pools, nodes (``n3``,
``node[1-8]``, ``c3-*``), processor numbers (``0..15``), users, and ``key=value`` for ambiguous names.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from typing import NamedTuple

from console.errors import ConsoleError, UsageError
from console.launch.options.lists import parse_list
from console.tui.model.machine import Machine, Processor, State

#: Words for states beside the states' own names.
STATE_WORDS = {
    **{state.name.lower(): (state,) for state in State},
    "stale": (State.SUSPECT,),  # its name in JSON
    "used": (State.PENDING, State.BUSY, State.DRAINING),
    "out": (State.DOWN, State.DRAINED),
}
MODES = ("batch", "interactive")
KEYS = ("node", "user", "launcher", "job", "partition", "command", "state", "mode", "side", "processor")
MOST_DEEP = 100

#: A parsed expression: a word, or an operator and its operands.
Tree = tuple[str, ...] | tuple[str, "Tree"] | tuple[str, "Tree", "Tree"]


class ExpressionError(ConsoleError):
    """An expression that cannot be parsed, or names something unknown."""

    exit_status = 2


class _Token(NamedTuple):
    kind: str  # one of ``& | ! ( )``, ``word``, or empty at the end
    text: str


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    word, depth = "", 0
    for char in text + " ":
        if depth == 0 and (char.isspace() or char in "&|!(),"):
            if word:
                tokens.append(_Token("word", word))
            word = ""
            if not char.isspace():
                tokens.append(_Token("|" if char == "," else char, char))
            continue
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise ExpressionError(f"the brackets of {text.strip()!r} do not match")
        word += char
    if depth:
        raise ExpressionError(f"the brackets of {text.strip()!r} do not match")
    return [*tokens, _Token("", "")]


def parse(text: str) -> Tree:
    """Parse an expression. Raises ExpressionError, which says what was expected where."""
    tokens = _tokens(text)
    if len(tokens) == 1:
        raise ExpressionError("the expression is empty", "free, node[1-8] & busy, user=ada …")
    tree, rest = _either(tokens, 0, 0)
    if tokens[rest].kind:
        raise ExpressionError(f"{tokens[rest].text!r} is not expected here")
    return tree


def _either(tokens: list[_Token], at: int, depth: int) -> tuple[Tree, int]:
    tree, at = _both(tokens, at, depth)
    while tokens[at].kind == "|":
        other, at = _both(tokens, at + 1, depth)
        tree = ("|", tree, other)
    return tree, at


def _both(tokens: list[_Token], at: int, depth: int) -> tuple[Tree, int]:
    tree, at = _one(tokens, at, depth)
    while tokens[at].kind in ("&", "word", "!", "("):
        other, at = _one(tokens, at + (tokens[at].kind == "&"), depth)
        tree = ("&", tree, other)
    return tree, at


def _one(tokens: list[_Token], at: int, depth: int) -> tuple[Tree, int]:
    kind, text = tokens[at]
    if depth > MOST_DEEP:
        raise ExpressionError("the expression is nested too deeply")
    if kind == "!":
        tree, at = _one(tokens, at + 1, depth + 1)
        return ("!", tree), at
    if kind == "(":
        tree, at = _either(tokens, at + 1, depth + 1)
        if tokens[at].kind != ")":
            raise ExpressionError("a closing ) is missing")
        return tree, at + 1
    if kind == "word":
        return ("word", text), at + 1
    raise ExpressionError(f"an operand is missing before {text!r}" if text else "an operand is missing at the end")


def choose(text: str, machine: Machine, uid: int = -1) -> set[int]:
    """The cells that match the expression; ``uid`` is the user of ``mine``. Raises ExpressionError."""
    return _value(parse(text), _Words(machine, uid))


def _value(tree: Tree, words: _Words) -> set[int]:
    if tree[0] == "word":
        return words.cells(str(tree[1]))
    if tree[0] == "!":
        return words.everything - _value(tree[1], words)  # type: ignore[arg-type]
    # A chain of operators is left-associative, so its length is not a recursion depth.
    chain: list[tuple[str, Tree]] = []
    while tree[0] in ("&", "|"):
        chain.append((tree[0], tree[2]))  # type: ignore[misc, arg-type]
        tree = tree[1]  # type: ignore[assignment]
    found = _value(tree, words)
    for operator, other in reversed(chain):
        found = found & _value(other, words) if operator == "&" else found | _value(other, words)
    return found


class _Words:
    """Resolves single words to cells of one machine."""

    def __init__(self, machine: Machine, uid: int) -> None:
        self._machine = machine
        self._uid = uid
        self.everything = set(range(machine.cells))

    def cells(self, word: str) -> set[int]:
        key, equals, value = word.partition("=")
        if equals and key.lower() in KEYS:
            return self._by_key(key.lower(), value)
        lower = word.lower()
        if lower == "all":
            return set(self.everything)
        if lower == "mine":
            return self._mine()
        if lower in STATE_WORDS:
            return self._state(lower)
        if lower in MODES:
            return self._where(lambda row: row.mode == lower)
        if word[0].isdigit():
            return self._processors(word)
        found = self._nodes(word)
        return self._of_user(word) if found is None else found

    def _by_key(self, key: str, value: str) -> set[int]:
        if not value:
            raise ExpressionError(f"{key}= needs a value")
        if key in ("launcher", "partition", "side"):
            if not (value.isascii() and value.isdigit()) or len(value) > 18:
                raise ExpressionError(f"{key}={value}: that is not a number")
            return self._by_number(key, int(value))
        if key == "state":
            return self._state(value.lower())
        if key == "mode":
            return self._where(lambda row: row.mode == value)
        if key == "processor":
            return self._processors(value)
        if key == "node":
            found = self._nodes(value)
            if found is None:
                raise ExpressionError(f"there is no node {value}")
            return found
        if key == "user":
            return self._of_user(value)
        launchers = self._machine.launchers.values()
        if key == "job":
            short = [row for row in self._machine.partitions.values() if row.batch_job]
            numbers = {row.id for row in short if value in (row.batch_job, row.batch_job.partition(".")[0])}
            return self._where(lambda row: row.partition in numbers)
        found_launchers = {row.id for row in launchers if value.lower() in row.command.lower()}
        return self._where(lambda row: row.launcher in found_launchers)

    def _by_number(self, key: str, number: int) -> set[int]:
        if key == "launcher":
            return self._where(lambda row: row.launcher == number)
        if key == "partition":
            return self._where(lambda row: row.partition == number)
        machine = self._machine
        return self._of_nodes(index for index, node in enumerate(machine.nodes) if node.side == number)

    def _state(self, word: str) -> set[int]:
        if word not in STATE_WORDS:
            raise ExpressionError(f"there is no state {word}", ", ".join(STATE_WORDS))
        wanted = STATE_WORDS[word]
        return {cell for cell, state in enumerate(self._machine.states) if state in wanted}

    def _where(self, holds: Callable[[Processor], bool]) -> set[int]:
        return {cell for cell, row in enumerate(self._machine.processors) if holds(row)}

    def _mine(self) -> set[int]:
        own = {row.id for row in self._machine.launchers.values() if row.uid == self._uid}
        parts = {row.id for row in self._machine.partitions.values() if row.uid == self._uid}
        return self._where(lambda row: row.launcher in own or row.partition in parts)

    def _of_user(self, user: str) -> set[int]:
        machine = self._machine
        launchers = {row.id for row in machine.launchers.values() if row.user == user}
        partitions = {row.id for row in machine.partitions.values() if row.user == user}
        found = self._where(
            lambda row: row.launcher in launchers or row.partition in partitions or row.reserved_for == user
        )
        if not found:
            raise ExpressionError(f"no state, node or user with anything here is called {user}")
        return found

    def _processors(self, word: str) -> set[int]:
        try:
            wanted = parse_list(word)
        except UsageError as error:
            raise ExpressionError(error.message, error.hint) from None
        ranges = wanted["processors"]
        return self._where(lambda row: any(first <= row.id <= last for first, last in ranges))

    def _nodes(self, word: str) -> set[int] | None:
        """The cells of the nodes that a word names; None if it names none."""
        machine = self._machine
        if "*" in word or "?" in word:
            indices = [i for i, node in enumerate(machine.nodes) if fnmatch.fnmatchcase(node.name, word)]
            return self._of_nodes(indices) if indices else None
        try:
            names = set(parse_list(word)["nodes"])
        except UsageError as error:
            raise ExpressionError(error.message, error.hint) from None
        indices = [i for i, node in enumerate(machine.nodes) if node.name in names]
        if not indices:
            return None
        there = {machine.nodes[i].name for i in indices}
        if len(there) < len(names):
            raise ExpressionError(f"there is no node {sorted(names - there)[0]}")
        return self._of_nodes(indices)

    def _of_nodes(self, indices: Iterable[int]) -> set[int]:
        return {cell for index in indices for cell in self._machine.node_cells(index)}

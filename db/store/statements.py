"""Statements on the tables: written once with peewee, compiled once for each kind of database, kept as text.

A statement is a function of its parameters that returns a peewee query::

    @statement
    def rename_node(*, node: int, name: str) -> Query:
        return Node.update({Node.name: name, Node.changed: STAMP}).where(Node.id == node)

    t.write(rename_node.bind(node=7, name="n7"))

``bind`` has the function's own parameters, so the type checker knows them. The function runs once for each kind of
database, when the statement is first sent, with placeholders for its parameters: peewee takes 100 to 200 µs to build a
query, and looking up the kept text takes nothing. A value that the function writes itself stands in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Generic, NamedTuple, ParamSpec

from db.store.orm import pw
from db.store.ranges import conditions, runs

P = ParamSpec("P")
Query = pw.BaseQuery
#: A text with the driver's marks, and a value for each mark.
Sent = tuple[str, Sequence[Any]]
#: Ids of rows; a statement selects them by few ranges (``among``).
Ids = Sequence[int]

SQLITE, MYSQL = "sqlite", "mysql"
_DATABASES: dict[str, pw.Database] = {SQLITE: pw.SqliteDatabase(None), MYSQL: pw.MySQLDatabase(None)}
_MARKS = {SQLITE: "?", MYSQL: "%s"}
_MARK, _OPEN, _CLOSE = "\0", "\1", "\2"  # characters that none of our texts contains
ROWS_A_STATEMENT = 400


class Each(NamedTuple):
    """A text that is run for every row of values (SQLite only). Its row count is the sum over all rows."""

    text: str
    rows: Sequence[Sequence[Any]]


class _Parameter:
    """The placeholder that peewee sees for a parameter while a statement is compiled."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


def _placeholder(name: str) -> Any:
    return pw.Value(_Parameter(name), converter=False, unpack=False)


#: The number and the instant of the transaction that sends the statement; the transaction fills them in.
STAMP, INSTANT = _placeholder("stamp"), _placeholder("instant")


class _ByDatabase(pw.ColumnBase):
    """An expression with a different spelling for each kind of database."""

    def __init__(self, sqlite: pw.ColumnBase, mysql: pw.ColumnBase) -> None:
        self._of = {SQLITE: sqlite, MYSQL: mysql}

    def __sql__(self, ctx: pw.Context) -> Any:
        return ctx.sql(self._of[ctx.state.kind])  # type: ignore[no-untyped-call]


#: The database's clock in seconds since the epoch. SYSDATE gives the time after the lock was taken, not before; 0e0
#: makes it a float.
NOW = _ByDatabase(
    (pw.fn.julianday("now") - 2440587.5) * 86400.0, pw.fn.UNIX_TIMESTAMP(pw.fn.SYSDATE(6)) + pw.SQL("0e0")
)


def same(column: pw.ColumnBase, value: Any) -> pw.ColumnBase:
    """True if a column equals ``value``, where NULL equals NULL."""
    return _ByDatabase(pw.Expression(column, "IS", value), pw.Expression(column, "<=>", value))


def unless_empty(text: str, column: pw.Field[Any]) -> pw.ColumnBase:
    """``text``, or the column's present value if ``text`` is empty."""
    return pw.Case(None, [(pw.Value(text) == "", column)], text)


class _Among(pw.ColumnBase):
    def __init__(self, column: pw.ColumnBase) -> None:
        self._column = column

    def __sql__(self, ctx: pw.Context) -> Any:
        return ctx.literal(_OPEN).sql(self._column).literal(_CLOSE)  # type: ignore[no-untyped-call]


def among(column: pw.ColumnBase, ids: Ids) -> pw.ColumnBase:
    """True if a column is one of ``ids``, a parameter of the statement. A statement has at most one such condition."""
    assert isinstance(ids, pw.Value) and ids.value.name == "ids", "the parameter is called ids"
    return _Among(column)


class _Compiled(NamedTuple):
    text: str
    names: tuple[str, ...]
    column: str  # the column of ``among``, between ``text`` and ``rest``; empty without one
    rest: str
    before: int  # how many of the names are in ``text``
    reads: bool  # True for a SELECT


class Bound(NamedTuple):
    """A statement and the values of its parameters."""

    statement: Statement[...]
    values: Mapping[str, Any]


class Statement(Generic[P]):
    """A statement built by ``build``; ``kinds``: the databases that it is for."""

    def __init__(self, build: Callable[P, Query], kinds: tuple[str, ...] = (SQLITE, MYSQL)) -> None:
        code = build.__code__
        if code.co_argcount:
            raise TypeError(f"parameters of the statement {build.__qualname__} are to be keyword-only")
        self.name = f"{build.__module__}.{build.__qualname__}"
        self.parameters: tuple[str, ...] = code.co_varnames[: code.co_kwonlyargcount]
        self.kinds = kinds
        self._build = build
        self._compiled: dict[str, _Compiled] = {}
        STATEMENTS.append(self)

    def bind(self, *_: P.args, **values: P.kwargs) -> Bound:
        """Bind parameters; the result is run by a Transaction or a Store."""
        return Bound(self, values)

    def query(self) -> Query:
        """The peewee query."""
        return self._build(**{name: _placeholder(name) for name in self.parameters})  # type: ignore[call-arg]

    def text(self, kind: str) -> tuple[str, tuple[str, ...]]:
        """The text for one kind of database, and the name of the parameter at each of its marks."""
        compiled = self._compile(kind)
        assert not compiled.column, f"{self.name} has another text for every list of ids"
        return compiled.text, compiled.names

    def sent(self, kind: str, values: Mapping[str, Any]) -> list[Sent | Each]:
        """The texts and values to send: one; several if a list of ids is long; none if the list is empty."""
        text, names, column, rest, before, reads = self._compiled.get(kind) or self._compile(kind)
        if not column:
            return [(text, [values[name] for name in names])]
        if kind == SQLITE and not reads:
            # One text, prepared once, for every run of ids: half the time of a long condition that never occurs again.
            these = [values[name] for name in names]
            rows = [(*these[:before], first, last, *these[before:]) for first, last in runs(sorted(values["ids"]))]
            return [Each(f"{text}{column} BETWEEN ? AND ?{rest}", rows)] if rows else []
        params = [values[name] for name in names]
        return [(f"{text}{condition}{rest}", params) for condition in conditions(values["ids"], column)]

    def sent_rows(self, kind: str, rows: Sequence[Mapping[str, Any]], own: Mapping[str, Any]) -> list[Sent | Each]:
        """An INSERT of many rows as few statements; ``own``: the parameters that all rows share."""
        text, names, *_ = self._compiled.get(kind) or self._compile(kind)
        if not rows:
            return []
        in_order = itemgetter(*names)
        if kind == SQLITE:
            return [Each(text, [in_order({**own, **row}) for row in rows])]
        head, values = text.split(" VALUES ", 1)
        parts = (rows[start : start + ROWS_A_STATEMENT] for start in range(0, len(rows), ROWS_A_STATEMENT))
        return [
            (
                f"{head} VALUES {', '.join([values] * len(part))}",
                [value for row in part for value in in_order({**own, **row})],
            )
            for part in parts
        ]

    def _compile(self, kind: str) -> _Compiled:
        found = self._compiled.get(kind)
        if found is None:
            query, context = self.query(), _DATABASES[kind].get_sql_context(param=_MARK, kind=kind)
            text, values = context.sql(query).query()  # type: ignore[no-untyped-call]
            self._compiled[kind] = found = _compiled(kind, text, values, isinstance(query, pw.SelectBase))
        return found


def _compiled(kind: str, text: str, values: Sequence[Any], reads: bool) -> _Compiled:
    pieces = text.replace("%", "%%").split(_MARK) if kind == MYSQL else text.split(_MARK)
    out, names = [pieces[0]], []
    for value, piece in zip(values, pieces[1:], strict=True):
        if isinstance(value, _Parameter):
            names.append(value.name)
            out.append(_MARKS[kind])
        else:
            out.append(_literal(value))
        out.append(piece)
    head, _, tail = "".join(out).partition(_OPEN)
    column, _, rest = tail.partition(_CLOSE)
    return _Compiled(head, tuple(names), column, rest, head.count(_MARKS[kind]), reads)


def _literal(value: object) -> str:
    """A value written by the statement itself, as an SQL literal."""
    if value is None:
        return "NULL"
    if isinstance(value, int | float):
        return repr(int(value) if isinstance(value, bool) else value)
    if isinstance(value, str) and not any(one in "'\\%?" or ord(one) < 32 for one in value):
        return f"'{value}'"
    raise TypeError(f"no text has {value!r} in it: make it a parameter")


#: All statements, for tests that compile them.
STATEMENTS: list[Statement[...]] = []


def statement(build: Callable[P, Query]) -> Statement[P]:
    """Make a statement from a function that returns a peewee query of its keyword parameters."""
    return Statement(build)


def mysql_statement(build: Callable[P, Query]) -> Statement[P]:
    """As ``statement``, for MySQL and MariaDB only."""
    return Statement(build, (MYSQL,))


def sqlite_statement(build: Callable[P, Query]) -> Statement[P]:
    """As ``statement``, for SQLite only."""
    return Statement(build, (SQLITE,))

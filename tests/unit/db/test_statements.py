"""Statements built by peewee: each is compiled for its databases, fits the real schema, and is bound by its names."""

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import db
from db.schema.models import Launcher, Node
from db.store import statements
from db.store.orm import pw
from db.store.statements import MYSQL, SQLITE, STAMP, Bound, Each, Ids, Query, Statement, among, same, unless_empty
from db.store.store import Store
from db.views import questions
from tests.support.stores import define

ROOT = Path(__file__).resolve().parents[3]
ROOMS = ("agents", "console", "db", "redmesh", "simulated")
#: A word that begins a statement on tables, and what follows it.
RAW = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|REPLACE)\b[\s(`\"]")
#: Where texts may stand: peewee makes no views, migrations are frozen, and texts.py is compiled from questions.py.
#: State objects are files of their own, and hosts have the standard library alone: one module writes them, one reads.
#: The program that runs on hosts over SSH has no module of ours, and asks whether a copy is of an ended job.
STATE_OBJECTS = (
    "redmesh/state.py", "redmesh/state_graph.py", "redmesh/state_reader.py", "console/deploy/ssh/bootstrap.py",
)  # fmt: skip
MAY_HAVE_TEXTS = ("db/schema/login_views.py", "db/schema/migrations/", "db/views/texts.py", *STATE_OBJECTS)


def every_statement() -> list[Statement[...]]:
    for module in pkgutil.walk_packages(db.__path__, "db."):
        if "migrations" not in module.name:
            importlib.import_module(module.name)
    return [one for one in statements.STATEMENTS if one.name.startswith("db.")]


def made(build: Any) -> Statement[...]:
    """A statement of a test's own, which no other test sees."""
    found: Statement[...] = Statement(build)
    statements.STATEMENTS.remove(found)
    return found


def test_every_statement_fits_the_schema_of_a_real_database(store: Store) -> None:
    define(store)
    checked = 0
    for one in every_statement():
        if store.dialect not in one.kinds or one.name.endswith("._viewer_limits"):  # that reads the server's tables
            continue
        values: dict[str, Any] = {name: [1, 2, 3, 7] if name == "ids" else 1 for name in one.parameters}
        for sent in one.sent(store.dialect, {**values, "stamp": 1, "instant": 1.0}):
            text, params = (sent.text, sent.rows[0]) if isinstance(sent, Each) else sent
            store.connect()
            assert store.together([(f"EXPLAIN {text}", params)])[0] is not None, one.name
            checked += 1
    assert checked > 150


@pytest.mark.parametrize("kind", [SQLITE, MYSQL])
def test_parameters_stand_in_the_order_of_their_marks(kind: str) -> None:
    for one in every_statement():
        if kind in one.kinds and "ids" not in one.parameters:
            text, names = one.text(kind)
            assert text.count("?" if kind == SQLITE else "%s") == len(names), one.name
            assert {*names} - {"stamp", "instant"} == {*one.parameters}, f"{one.name} has a parameter it does not use"


def test_a_statement_is_built_once_for_each_kind_of_database() -> None:
    built = []

    def rename(*, node: int, name: str) -> Query:
        built.append(node)
        return Node.update({Node.name: name, Node.changed: STAMP}).where(Node.id == node)

    one = made(rename)
    assert not built, "not before it is used: imports stay cheap"
    for node in range(5):
        values = {**one.bind(node=node, name="it's").values, "stamp": 9}
        assert one.sent(SQLITE, values) == [
            ('UPDATE "node" SET "name" = ?, "changed" = ? WHERE ("node"."id" = ?)', ["it's", 9, node])
        ]
        assert one.sent(MYSQL, values)[0][1] == ["it's", 9, node]
    assert len(built) == 2


def test_ids_are_sent_as_few_ranges() -> None:
    def end(*, ids: Ids, user: str) -> Query:
        return Launcher.update({Launcher.changed: STAMP}).where(among(Launcher.id, ids), Launcher.user == user)

    def live(*, ids: Ids) -> Query:
        return Launcher.select(Launcher.id).where(among(Launcher.id, ids))

    change, read = made(end), made(live)
    values = {"ids": [3, 1, 2, 9], "user": "ada", "stamp": 4}
    assert change.sent(SQLITE, values) == [
        Each(
            'UPDATE "launcher" SET "changed" = ? WHERE ("launcher"."id" BETWEEN ? AND ? AND ("launcher"."user" = ?))',
            [(4, 1, 3, "ada"), (4, 9, 9, "ada")],
        )
    ]
    assert change.sent(MYSQL, values) == [
        (
            "UPDATE `launcher` SET `changed` = %s WHERE"
            " ((`launcher`.`id` BETWEEN 1 AND 3 OR `launcher`.`id` IN (9)) AND (`launcher`.`user` = %s))",
            [4, "ada"],
        )
    ]
    assert len(read.sent(MYSQL, {"ids": range(0, 2000, 2)})) == 3, "few ranges a statement"
    assert read.sent(SQLITE, {"ids": []}) == change.sent(SQLITE, {**values, "ids": []}) == []


def test_what_a_statement_writes_itself_stands_in_its_text() -> None:
    def find(*, root: str) -> Query:
        given = unless_empty(root, Launcher.root)
        return Launcher.select(given).where(Launcher.state == "busy", Launcher.nice, same(Launcher.end_by, None))

    text, names = made(find).text(MYSQL)
    assert "`state` = 'busy'" in text and "<=> NULL" in text and names == ("root", "root")

    def unsafe() -> Query:
        return Launcher.select(Launcher.id).where(Launcher.user == "o'brien")

    with pytest.raises(TypeError, match="make it a parameter"):
        made(unsafe).text(SQLITE)


def test_a_statement_takes_its_parameters_by_name_alone() -> None:
    def named(node: int) -> Query:
        return Node.select(Node.id).where(Node.id == node)

    with pytest.raises(TypeError, match="keyword-only"):
        Statement(named)
    assert isinstance(questions.launcher.bind(launcher=1), Bound)


def test_viewers_texts_are_what_the_models_say() -> None:
    assert Path(questions.TEXTS).read_text(encoding="utf-8") == questions.compiled(), "python -m db.views.questions"


def test_a_column_renamed_in_the_models_alone_breaks_statements_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Launcher, "pending_until")
    failing = 0
    for one in every_statement():
        try:
            one.query()
        except AttributeError as error:
            assert "pending_until" in str(error)
            failing += 1
    assert failing >= 8


def test_no_statement_on_a_table_is_a_text_elsewhere() -> None:
    found = []
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            text = path.read_text(encoding="utf-8")
            if name.startswith(MAY_HAVE_TEXTS) or not re.search(r"SELECT|INSERT|UPDATE|DELETE|REPLACE", text):
                continue
            tree = ast.parse(text)
            docs = {
                id(node.body[0].value)
                for node in ast.walk(tree)
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                and node.body
                and isinstance(node.body[0], ast.Expr)
            }
            found += [
                f"{name}:{node.lineno}"
                for node in ast.walk(tree)
                if isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in docs
                and RAW.match(node.value)
            ]
    assert found == [], "build it with peewee (db/store/statements.py)"


def test_no_private_name_of_peewee_is_used() -> None:
    private = re.compile(r"\bpw\._|\._meta\b|__exception_wrapper__|playhouse\.\w+\._")
    for path in (ROOT / "db").rglob("*.py"):
        if "migrations" not in path.parts:
            assert not private.search(path.read_text(encoding="utf-8")), path


def test_viewers_start_without_peewee() -> None:
    code = "import sys, db.views.viewer; sys.exit('peewee' in sys.modules or 'typing' in sys.modules)"
    subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"], check=True)


def test_a_query_is_peewees(store: Store) -> None:
    assert all(isinstance(one.query(), pw.BaseQuery) for one in every_statement())

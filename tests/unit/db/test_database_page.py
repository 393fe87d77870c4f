"""docs/database.md: its picture and its questions are those of the models, and the questions have answers."""

import re

import pytest

from db.schema.models import TABLES, columns_of
from db.store.store import Store
from tests.support import database_page
from tests.support.stores import Machine, take


def test_the_generated_parts_are_what_the_models_say() -> None:
    page = database_page.PAGE.read_text(encoding="utf-8")
    assert page == database_page.written(page), "python -m tests.support.database_page"


@pytest.mark.parametrize("table", TABLES)
def test_the_table_of_columns_has_every_column(table: str) -> None:
    page = database_page.PAGE.read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith(f"| `{table}`"))
    said = set(re.findall(r"`(\w+)`", row.split("|")[2]))
    assert {field.column_name for field in columns_of(TABLES[table])} <= said


def test_the_questions_have_answers(store: Store, machine: Machine) -> None:
    taken = take(store, machine, 2)
    for question, source in database_page.QUESTIONS:
        store.connect()
        rows = store.execute(database_page.sql(source).replace("?", "")).fetchall()
        assert rows is not None, question
    rows = store.execute(database_page.sql(database_page.QUESTIONS[1][1])).fetchall()
    assert [(row[0], int(row[1])) for row in rows] == [("ada", len(taken.processors))]

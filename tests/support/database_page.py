"""Generates parts of docs/database.md: the diagram of the tables, and questions as peewee queries and as SQL.

``python -m tests.support.database_page`` rewrites these parts of the page. tests/unit/db/test_database_page.py compares
them with the page and runs each query on a real database.
"""

from pathlib import Path
from typing import Any

from db.schema import models
from db.schema.models import SECRET_COLUMNS, TABLES, columns_of
from db.store.orm import pw

PAGE = Path(__file__).resolve().parents[2] / "docs" / "database.md"
#: Column name → the table whose id such a column holds.
REFERS = {"node": "node", "login_processor": "node", "partition": "partition", "launcher": "launcher"}

QUESTIONS = (
    (
        "Who runs what, since when, on how many processors?",
        "Launcher.select(Launcher.id, Launcher.user, Launcher.size, Launcher.command, Launcher.started_at)"
        '.where(Launcher.state == "busy").order_by(Launcher.id)',
    ),
    (
        "How many processors does each user have?",
        "Launcher.select(Launcher.user, fn.SUM(Launcher.size)).where(Launcher.ended_at.is_null())"
        ".group_by(Launcher.user).order_by(fn.SUM(Launcher.size).desc())",
    ),
    (
        "Which launch has processor 17?",
        "Processor.select(Processor.launcher, Launcher.user, Launcher.command)"
        ".join(Launcher, on=Launcher.id == Processor.launcher).where(Processor.id == 17)",
    ),
    (
        "How many processors are free, by alloc mode?",
        "Processor.select(Processor.alloc_mode, fn.COUNT(Processor.id)).join(Node, on=Node.id == Processor.node)"
        '.where(Processor.partition.is_null(), Processor.reserved_for.is_null(), Node.state == "up")'
        ".group_by(Processor.alloc_mode)",
    ),
    (
        "Which nodes are out of service, why, and who said so?",
        "Node.select(Node.name, Node.state, Node.reason, Node.by, Node.rca)"
        '.where(Node.state != "up").order_by(Node.id)',
    ),
    (
        "What happened on node n3 last?",
        "Event.select(Event.at, Event.kind, Event.text).join(Node, on=Node.id == Event.node)"
        '.where(Node.name == "n3").order_by(Event.id.desc()).limit(20)',
    ),
    (
        "Who waits for processors, in which order?",
        "Waiting.select(Waiting.user, Waiting.size, Waiting.partition, Waiting.part, Waiting.created_at)"
        ".order_by(Waiting.precedence, Waiting.id)",
    ),
    (
        "How did ada's last launches end?",
        "Launcher.select(Launcher.id, Launcher.command, Launcher.exit_status, Launcher.reason, Launcher.ended_at)"
        '.where(Launcher.user == "ada", Launcher.ended_at.is_null(False)).order_by(Launcher.ended_at.desc()).limit(20)',
    ),
    (
        "Which batch jobs have an error?",
        "Partition.select(Partition.batch_job, Partition.user, Partition.id)"
        ".where(Partition.batch_job_error, Partition.ended_at.is_null())",
    ),
    (
        "How much of each resource is in use on each node?",
        "NodeResource.select(Node.name, NodeResource.name, NodeResource.in_use, NodeResource.total)"
        ".join(Node, on=Node.id == NodeResource.node).order_by(Node.id)",
    ),
)


def query(source: str) -> Any:
    """Evaluate ``source`` and return the peewee query."""
    names = {name: found for name, found in vars(models).items() if isinstance(found, type)}
    return eval(source, {**names, "fn": pw.fn})


def sql(source: str) -> str:
    """Return the query as SQL for MySQL, MariaDB and SQLite."""
    found = query(source)
    found.bind(pw.MySQLDatabase(None))
    return str(found)


def picture() -> list[str]:
    """Return the tables as a Mermaid diagram: every column with its type, its keys and the table it refers to."""
    lines = ["```mermaid", "erDiagram"]
    for table, model in TABLES.items():
        lines.append(f"    {table} {{")
        for field in columns_of(model):
            keys = ["PK"] * bool(field.primary_key) + ["UK"] * bool(field.unique and not field.primary_key)
            keys += ["FK"] * (field.column_name in REFERS and field.column_name != table)
            notes = ["NULL"] * bool(field.null) + ["CPA only"] * (
                field.column_name in SECRET_COLUMNS.get(table, frozenset())
            )
            shown = [field.field_type.lower(), field.column_name, ", ".join(keys)]
            shown += [f'"{", ".join(notes)}"'] * bool(notes)
            lines.append(f"        {' '.join(part for part in shown if part)}")
        lines.append("    }")
    for table, model in TABLES.items():
        for field in columns_of(model):
            other = REFERS.get(field.column_name, table)
            if other != table:
                lines.append(f"    {other} |{'o' if field.null else '|'}--o{{ {table} : {field.column_name}")
    return [*lines, "```"]


def questions() -> list[str]:
    """Return each question with its peewee query and its SQL, as lines of Markdown."""
    lines = ["<!-- fmt:off -->", ""]
    for number, (question, source) in enumerate(QUESTIONS, 1):
        lines += [f"{number}. {question}", "", "   ```python", f"   {source}", "   ```", ""]
        lines += ["   ```sql", f"   {sql(source)}", "   ```", ""]
    return [*lines, "<!-- fmt:on -->"]


def written(page: str) -> str:
    """Return ``page`` with its generated parts replaced."""
    for name, lines in (("picture", picture()), ("questions", questions())):
        begin, end = f"<!-- {name}: python -m tests.support.database_page -->\n", f"\n<!-- end of {name} -->"
        head, _, rest = page.partition(begin)
        page = f"{head}{begin}\n" + "\n".join(lines) + f"\n{end}{rest.partition(end)[2]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

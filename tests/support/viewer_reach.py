"""All that an account of viewers can read on a MySQL server, asked with the plain ``mariadb`` client."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from db.store.url import mysql_options

#: Runs a command line with a text on its standard input, and returns its standard output; it may fail.
Run = Callable[[list[str], str], str]

_PROCEDURES = (
    "SELECT r.ROUTINE_SCHEMA, r.ROUTINE_NAME, COUNT(p.PARAMETER_NAME) FROM information_schema.ROUTINES r"
    " LEFT JOIN information_schema.PARAMETERS p ON p.SPECIFIC_SCHEMA = r.ROUTINE_SCHEMA"
    " AND p.SPECIFIC_NAME = r.SPECIFIC_NAME AND p.ORDINAL_POSITION > 0 GROUP BY 1, 2"
)
_TABLES = "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES"
_MOST = 100_000


class Reach:
    """What the account of ``url`` can read: every procedure with every choice of numbers, every table and view.

    ``numbers``: ids that are worth asking for. ``texts`` has each result by the statement that gave it.
    """

    def __init__(self, url: str, run: Run, numbers: Iterable[int] = ()) -> None:
        options = mysql_options(url)
        self._words = ["mariadb", "--no-defaults", "--skip-ssl", "--force", "--batch", "--skip-column-names"]
        self._words += [
            f"--user={options['user']}",
            f"--password={options['password']}",
            f"--socket={options['unix_socket']}",
        ]
        self._run = run
        values = [*map(str, sorted({0, 1, *numbers})), str(_MOST), "NULL"]
        self.procedures: set[str] = set()
        statements = []
        for schema, name, count in self._rows(_PROCEDURES):
            self.procedures.add(name)
            for chosen in itertools.product(values, repeat=int(count)):
                statements.append(f"CALL `{schema}`.`{name}`({', '.join(chosen)})")
        self.tables = {f"{schema}.{table}" for schema, table in self._rows(_TABLES)}
        statements += [f"SELECT * FROM `{name.replace('.', '`.`')}`" for name in sorted(self.tables)]
        statements += ["SHOW FULL PROCESSLIST", "SHOW DATABASES"]
        self.texts = self._results(statements)

    def statements_with(self, text: str) -> list[str]:
        """The statements whose results have ``text``."""
        return [statement for statement, result in self.texts.items() if text in result]

    def _rows(self, statement: str) -> list[list[str]]:
        return [line.split("\t") for line in self._run(self._words, f"{statement};\n").splitlines()]

    def _results(self, statements: list[str]) -> dict[str, str]:
        """Each statement's result; all go through one client, which goes on after a refused one."""
        marked = [f"SELECT 'mark-{number}'; {statement};" for number, statement in enumerate(statements)]
        told = self._run(self._words, "\n".join(marked))
        found: dict[str, str] = {}
        for part in told.split("mark-")[1:]:
            number, _, result = part.partition("\n")
            found[statements[int(number)]] = result
        return found

"""Fixtures that every test may use."""

from tests.support.daemons import daemons, make_daemons
from tests.support.mesh import mesh
from tests.support.stores import database_url, machine, pytest_terminal_summary, sql_database, sql_server, store

__all__ = [
    "daemons",
    "database_url",
    "machine",
    "make_daemons",
    "mesh",
    "pytest_terminal_summary",
    "sql_database",
    "sql_server",
    "store",
]

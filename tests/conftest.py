"""Fixtures that every test may use."""

from tests.support.mesh import mesh
from tests.support.stores import database_url, machine, pytest_terminal_summary, sql_database, sql_server, store

__all__ = ["database_url", "machine", "mesh", "pytest_terminal_summary", "sql_database", "sql_server", "store"]

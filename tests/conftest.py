"""Fixtures that every test may use."""

from tests.support.daemons import daemons, make_daemons, sql_server
from tests.support.mesh import mesh

__all__ = ["daemons", "make_daemons", "mesh", "sql_server"]

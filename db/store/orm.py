"""peewee without the drivers that it imports by itself: MySQL's driver costs 25 ms, and a mesh on SQLite does not
need it."""

import sys
from typing import TYPE_CHECKING, Any

_DRIVERS = ("psycopg2cffi", "psycopg2", "psycopg", "pymysql", "MySQLdb")


def _without_drivers() -> Any:
    modules: dict[str, Any] = sys.modules
    kept_out = [name for name in _DRIVERS if name not in modules]
    for name in kept_out:
        modules[name] = None  # makes the import fail; peewee handles that
    try:
        import peewee
    finally:
        for name in kept_out:
            del modules[name]
    return peewee


if TYPE_CHECKING:
    import peewee as pw
else:
    pw = _without_drivers()

__all__ = ["load_mysql", "pw"]


def load_mysql() -> None:
    """Give peewee its MySQL driver. Raises ImportError."""
    library: Any = pw
    if library.mysql is None:
        import pymysql

        library.mysql = pymysql

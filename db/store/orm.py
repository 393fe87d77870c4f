"""peewee, without the drivers that it loads by itself: MySQL's alone cost 25 ms, and a mesh on SQLite needs none."""

import sys
from typing import TYPE_CHECKING, Any

_DRIVERS = ("psycopg2cffi", "psycopg2", "psycopg", "pymysql", "MySQLdb")


def _without_drivers() -> Any:
    modules: dict[str, Any] = sys.modules
    kept_out = [name for name in _DRIVERS if name not in modules]
    for name in kept_out:
        modules[name] = None  # an import of it fails, which peewee is prepared for
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
    """Give peewee its MySQL driver. ImportError."""
    library: Any = pw
    if library.mysql is None:
        import pymysql

        library.mysql = pymysql

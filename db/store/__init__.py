"""Connections and transactions on MySQL, MariaDB and SQLite."""

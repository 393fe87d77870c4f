"""SQL that peewee cannot express, each with its reason. All other statements on tables are built by peewee.

Further exceptions are the texts of accounts, grants, views and procedures (db/schema/accounts.py, login_views.py),
because peewee has no CREATE USER, GRANT, CREATE VIEW or CREATE PROCEDURE. Migrations keep frozen copies of what they
ran. Viewers import this, so it is light.
"""

from __future__ import annotations

#: The first statement of a writer's transaction. It is a text because it travels in one packet with the next
#: statements; peewee's ``atomic`` sends them one by one. IMMEDIATE, because SQLite otherwise refuses the first write if
#: another transaction began meanwhile.
BEGIN = {"sqlite": "BEGIN IMMEDIATE", "mysql": "BEGIN"}
COMMIT = "COMMIT"
ROLLBACK = "ROLLBACK"

#: The first statement of a viewer's transaction: everything as of one instant. Viewers do not import peewee.
BEGIN_READING = {"sqlite": "BEGIN", "mysql": "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"}

#: Moves SQLite's write-ahead log into the file as far as readers allow; peewee's ``checkpoint`` does not offer PASSIVE.
CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"

#: Server variables and rights, which are in no table.
IS_GALERA = "SHOW VARIABLES LIKE 'wsrep_on'"
OWN_RIGHTS = "SHOW GRANTS"

#: Session variables: peewee sends only one ``init_command``.
ISOLATE_WRITER = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
ISOLATE_VIEWER = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"


def writer_session(lock_wait_s: int, longest_list: int) -> str:
    """UTC, strict mode, short waits, and lists as long as a machine's."""
    return (
        "SET SESSION time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',"
        f" innodb_lock_wait_timeout = {int(lock_wait_s)}, group_concat_max_len = {int(longest_list)}"
    )


def viewer_session(longest_list: int) -> str:
    """UTC, and lists as long as a machine's."""
    return f"SET SESSION time_zone = '+00:00', group_concat_max_len = {int(longest_list)}"


def make_database(quoted_name: str) -> str:
    """peewee creates tables, not databases. With utf8mb4_bin, names that differ in case are different names."""
    return f"CREATE DATABASE IF NOT EXISTS {quoted_name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

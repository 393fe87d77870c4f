"""SQL that peewee has no words for, each with its reason. Statements on tables are built by peewee.

The texts of accounts, grants, views and procedures (db/schema/accounts.py, login_views.py) are the other ones: peewee
has no CREATE USER, GRANT, CREATE VIEW or CREATE PROCEDURE. Migrations keep frozen copies of what they ran. Light
enough for viewers.
"""

from __future__ import annotations

#: Frames of a writer's transaction, as texts of their own because they travel in one packet with its statements, which
#: peewee's ``atomic`` sends one by one. IMMEDIATE: else SQLite refuses the first write where another began meanwhile.
BEGIN = {"sqlite": "BEGIN IMMEDIATE", "mysql": "BEGIN"}
COMMIT = "COMMIT"
ROLLBACK = "ROLLBACK"

#: A viewer's frame: everything as of one instant. Viewers start without peewee.
BEGIN_READING = {"sqlite": "BEGIN", "mysql": "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"}

#: Moves SQLite's write-ahead log into the file as far as readers allow; peewee's ``checkpoint`` cannot ask for PASSIVE.
CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"

#: Server variables and rights, which no table holds.
IS_GALERA = "SHOW VARIABLES LIKE 'wsrep_on'"
OWN_RIGHTS = "SHOW GRANTS"

#: Session variables: peewee sends one ``init_command`` alone.
ISOLATE_WRITER = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
ISOLATE_VIEWER = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"


def writer_session(lock_wait_s: int, longest_list: int) -> str:
    """UTC, strict, short waits, and lists as long as a machine's."""
    return (
        "SET SESSION time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',"
        f" innodb_lock_wait_timeout = {int(lock_wait_s)}, group_concat_max_len = {int(longest_list)}"
    )


def viewer_session(longest_list: int) -> str:
    """UTC, and lists as long as a machine's."""
    return f"SET SESSION time_zone = '+00:00', group_concat_max_len = {int(longest_list)}"


def make_database(quoted_name: str) -> str:
    """Peewee makes tables, not databases. utf8mb4_bin: names that differ in case are different names."""
    return f"CREATE DATABASE IF NOT EXISTS {quoted_name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

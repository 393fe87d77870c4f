"""Forgetting what ended long ago, in small transactions that nobody has to wait for."""

from __future__ import annotations

from db.store.store import Store, Transaction

AT_ONCE = 200
DAY_S = 86400.0


def trim(store: Store, days: float, rows: int, *, steps: int | None = None) -> int:
    """Removes ended launchers and partitions, and events, older than ``days`` or beyond the last ``rows``; how many.

    The newest row of each table stays, so that no id is ever given twice. With ``steps`` it is at most so many
    transactions of AT_ONCE rows a table, and there is more to remove when one of them was full.
    """
    removed = 0
    for table, instant, ended in (
        ("launcher", "ended_at", "ended_at IS NOT NULL"),
        ("partition", "ended_at", "ended_at IS NOT NULL"),
        ("event", "at", "1 = 1"),
    ):
        done = 0
        while steps is None or done < steps:
            count = _trim_some(store, table, instant, ended, days, max(rows, 1))
            removed += count
            done += 1
            if count < AT_ONCE:
                break
    return removed


def _trim_some(store: Store, table: str, instant: str, ended: str, days: float, rows: int) -> int:
    """One small transaction; how many rows it removed."""
    first, last = store.read(f"SELECT MIN(id), MAX(id) FROM `{table}`")[0]
    if first is None:
        return 0
    first_kept = first
    if last - first >= rows:  # ids have gaps at most, so fewer would be too few to count
        kept_from = store.read(f"SELECT id FROM `{table}` WHERE {ended} ORDER BY id DESC LIMIT 1 OFFSET ?", (rows - 1,))
        first_kept = kept_from[0][0] if kept_from else first
    condition = f"{ended} AND (id < ? OR {instant} < {store.now_sql} - ?) AND id < ?"
    found = store.read(
        f"SELECT id, changed FROM `{table}` WHERE {condition} ORDER BY id LIMIT {AT_ONCE}",
        (first_kept, days * DAY_S, last),
    )
    if not found:
        return 0

    def work(t: Transaction) -> int:
        ids = ",".join(str(int(row[0])) for row in found)
        if table != "event":  # viewers ask for events by id, not by the counter
            t.trimmed_to = max(t.trimmed_to, *(int(row[1]) for row in found))
        return t.change(f"DELETE FROM `{table}` WHERE id IN ({ids}) AND {ended}")

    return store.run(work)

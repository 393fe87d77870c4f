"""Launchers of low priority (yod -nice), and when one that is being preempted will be killed."""

from __future__ import annotations

from typing import Any

import peewee as pw

#: One statement of DDL is not undone on MySQL, so a step that broke off is run again from its beginning.
atomic = False


def up(migrator: Any, db: pw.Database) -> None:
    there = {column.name for column in db.get_columns("launcher")}
    steps = []
    if "nice" not in there:
        steps.append(migrator.add_column("launcher", "nice", pw.BooleanField(default=False)))
    if "end_by" not in there:
        steps.append(migrator.add_column("launcher", "end_by", pw.DoubleField(null=True)))
    for step in steps:
        step.run()
